//! Passes random texts, composed of typical pieces of text files, through every reader.
//!
//! No text may cause a panic, and readers that accept the same text must agree. Each test runs for
//! `OUTERCORE_FUZZ_SECONDS` (2 by default); a failure prints its seed.

use std::path::Path;
use std::time::{Duration, Instant};

use outercore_core::Bytes;
use outercore_text::{
    Cells, Dialect, EdgeLayout, EdgeSettings, Mirror, Position, Purpose, Rows, Table, TextOptions,
    detect, read_edges,
};

const MEMORY: Bytes = Bytes::mib(16);

/// Pieces of text files; `\n` is frequent, so that there are lines.
const PIECES: &[&[u8]] = &[
    b"0",
    b"1",
    b"2",
    b"17",
    b"1",
    b"3",
    b"\n",
    b"\n",
    b"\n",
    b"\r\n",
    b",",
    b",",
    b"\t",
    b";",
    b"|",
    b" ",
    b" ",
    b"\"",
    b"\"\"",
    b"#",
    b"%",
    b"a",
    b"src",
    b"dst",
    b"-",
    b"1.5",
    b"NA",
    b"nan",
    b"true",
    b"9223372036854775807",
    b"18446744073709551617",
    b"1e-400",
    b"\xC3\xA9",
    b"\xFF",
    b"\xEF\xBB\xBF",
    b"<a>",
    b"<p>",
    b"_:b",
    b"\"x\"@en",
    b" .\n",
    b"p sp 3 2\n",
    b"a 1 2 3\n",
    b"p tw 3 1\n",
    b"%%MatrixMarket matrix coordinate real general\n",
    b"3 3 1\n",
    b"c x\n",
    b"0,1\n",
    b"4,2\n",
    b"0 1\n",
    b"a,b,c\n",
    b"x\ty\tz\n",
];

struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    }

    /// A text that repeats a line with small changes, like real files.
    fn text(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        for _ in 0..=self.next(3) {
            let line: Vec<u8> =
                (0..self.next(8)).flat_map(|_| PIECES[self.next(PIECES.len())].to_vec()).collect();
            for _ in 0..self.next(5) {
                text.extend_from_slice(&line);
                text.push(b'\n');
            }
            for _ in 0..self.next(4) {
                text.extend_from_slice(PIECES[self.next(PIECES.len())]);
            }
        }
        text
    }
}

fn fuzz(name: &str, purpose: Purpose, check: impl Fn(&Path, &Dialect, u64)) {
    let seconds = std::env::var("OUTERCORE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(2));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file.csv");
    let (mut seed, mut read) = (0, 0);
    while Instant::now() < end {
        let text = Random(seed).text();
        std::fs::write(&path, &text).unwrap();
        match detect(&path, purpose, &TextOptions::default(), MEMORY) {
            Ok(dialect) => {
                read += 1;
                check(&path, &dialect, seed);
            }
            Err(error) => assert!(
                error.to_string().contains("file.csv"),
                "seed {seed}: {error} of {:?}",
                String::from_utf8_lossy(&text)
            ),
        }
        seed += 1;
    }
    println!("{name}: {seed} texts, {read} of them understood");
    assert!(read > seed / 100, "{name}: {read} of {seed} texts were understood");
}

fn edges(path: &Path, layout: &EdgeLayout, block: usize) -> Result<Vec<[u64; 2]>, String> {
    let settings = EdgeSettings { block, threads: 2, memory: MEMORY };
    let mut found = Vec::new();
    let start: Position = layout.dialect.start;
    read_edges(path, start, layout, settings, &mut |part| {
        found.extend_from_slice(part.edges);
        Ok(())
    })
    .map(|()| found)
    .map_err(|error| error.to_string())
}

#[test]
fn edges_are_the_same_in_blocks_of_any_size_and_as_a_table() {
    fuzz("edges", Purpose::Edges, |path, dialect, seed| {
        let layout = EdgeLayout { mirrored: false, ..EdgeLayout::new(dialect.clone()) };
        let large = edges(path, &layout, 4096);
        let small = edges(path, &layout, 64);
        assert_eq!(large, small, "seed {seed}");
        assert!(dialect.mirror() == Mirror::No || !layout.mirrored, "seed {seed}");
        let Ok(large) = large else { return };
        let mut table = Table::open("edge list", path, dialect.clone(), MEMORY).unwrap();
        let mut rows: Vec<[u64; 2]> = Vec::new();
        while let Some(batch) = table.next(&[0, 1], Cells::Integers(None)).unwrap() {
            let Rows::Integers(values) = batch else { panic!("seed {seed}: no integers") };
            let first = dialect.first_id;
            rows.extend(values.chunks(2).map(|ids| [ids[0] as u64 - first, ids[1] as u64 - first]));
        }
        assert_eq!(rows, large, "seed {seed}");
    });
}

#[test]
fn tables_have_as_many_rows_as_numbers_as_text_and_as_their_profile() {
    fuzz("tables", Purpose::Table, |path, dialect, seed| {
        let columns: Vec<usize> = (0..dialect.columns).collect();
        let open = || Table::open("table", path, dialect.clone(), MEMORY).unwrap();
        let mut profiled = open();
        let profile = profiled.profile();
        for cells in [Cells::Integers(Some(-1)), Cells::Floats, Cells::Texts] {
            let mut table = open();
            let rows = loop {
                match table.next(&columns, cells) {
                    Ok(Some(_)) => {}
                    Ok(None) => break Ok(table.rows()),
                    Err(error) => break Err(error.to_string()),
                }
            };
            match (&profile, rows) {
                (Ok(_), Ok(rows)) => assert_eq!(rows, profiled.rows(), "seed {seed}"),
                (Err(error), Ok(_)) => panic!("seed {seed}: profile alone fails: {error}"),
                (_, Err(error)) => assert!(error.contains("line "), "seed {seed}: {error}"),
            }
        }
    });
}

#[test]
fn triples_are_cut_or_refused_with_their_line() {
    fuzz("triples", Purpose::Triples, |path, dialect, seed| {
        let mut table = Table::open("triples", path, dialect.clone(), MEMORY).unwrap();
        loop {
            match table.next(&[0, 1, 2], Cells::Texts) {
                Ok(Some(Rows::Texts(texts))) => {
                    let lengths: Vec<usize> = texts.iter().map(|text| text.offsets.len()).collect();
                    assert!(lengths.iter().all(|length| *length == lengths[0]), "seed {seed}");
                }
                Ok(Some(_)) => panic!("seed {seed}: no text"),
                Ok(None) => break,
                Err(error) => {
                    assert!(error.to_string().contains("line "), "seed {seed}: {error}");
                    break;
                }
            }
        }
    });
}

#[test]
fn names_of_edges_are_cut_or_refused_with_their_line() {
    fuzz("named edges", Purpose::NamedEdges, |path, dialect, seed| {
        let mut table = Table::open("edge list", path, dialect.clone(), MEMORY).unwrap();
        while let Some(rows) = match table.next(&[0, 1], Cells::Texts) {
            Ok(rows) => rows,
            Err(error) => {
                assert!(error.to_string().contains("line "), "seed {seed}: {error}");
                None
            }
        } {
            assert!(matches!(rows, Rows::Texts(_)), "seed {seed}");
        }
    });
}
