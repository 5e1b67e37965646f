use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;

use outercore_core::{Bytes, ErrorKind, Result};
use outercore_format::Manifest;
use outercore_io::RealDisk;
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_store::import::{
    Duplicates, Part, TripleArtifacts, TripleBatch, TripleImportOptions, TripleTuning, Unknown,
};
use outercore_text::{Purpose, TextOptions, detect};

use crate::model::{
    Packed, Row, begin, naive, options, push, random_parts, read, scratch, text, tiny,
};

/// Imports texts.
pub fn import(
    texts: &[(Part, &[u8])],
    options: &TripleImportOptions,
) -> Result<(tempfile::TempDir, TripleArtifacts, Manifest)> {
    let directory = scratch();
    let root = directory.path().join("graph");
    let mut import = begin(Arc::new(RealDisk), &root, options)?;
    for (index, (part, text)) in texts.iter().enumerate() {
        let path = directory.path().join(format!("{index}.txt"));
        std::fs::write(&path, text).unwrap();
        import.text(*part, &path, None, &mut |_| Ok(()))?;
    }
    let found = import.finish(&mut |_| Ok(()))?.clone();
    let manifest = import.commit()?;
    Ok((directory, found, manifest))
}

#[test]
fn every_rule_gives_what_the_definition_gives_in_any_memory() {
    let least =
        TripleTuning { entities: 0, relations: 0, merging: 1, smallest_buffer: 0, ..tiny() };
    for seed in 0..4 {
        let parts = random_parts(80, seed);
        let texts: Vec<(Part, String)> =
            parts.iter().map(|(part, rows)| (*part, text(rows))).collect();
        let texts: Vec<(Part, &[u8])> = texts.iter().map(|(p, t)| (*p, t.as_bytes())).collect();
        for unknown in [Unknown::Drop, Unknown::Keep] {
            for duplicates in [Duplicates::Drop, Duplicates::Keep] {
                let rules = TripleImportOptions { unknown, duplicates, ..options() };
                let expected = naive(&parts, &rules);
                let mut checksums = Vec::new();
                for tuning in [Some(least), Some(tiny()), None] {
                    let (directory, found, manifest) =
                        import(&texts, &TripleImportOptions { tuning, ..rules.clone() }).unwrap();
                    let root = directory.path().join("graph");
                    assert_eq!(read(&root), expected, "seed {seed}, {tuning:?}");
                    let report =
                        check(&root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
                    assert!(report.is_sound(), "{:?}", report.problems);
                    checksums.push((manifest.arrays, found.parts));
                }
                assert_eq!(checksums[0], checksums[1], "seed {seed}");
                assert_eq!(checksums[1], checksums[2], "seed {seed}");
            }
        }
    }
}

#[test]
fn what_came_twice_is_not_known_or_is_in_train_too_is_counted() {
    let texts: [(Part, &[u8]); 3] = [
        (Part::Train, b"a r b\na r b\nb r a\na r b\n"),
        (Part::Valid, b"a r b\na r b\nb s a\nb r z\nz r y\n"),
        (Part::Test, b""),
    ];
    let (_directory, found, manifest) = import(&texts, &options()).unwrap();
    assert_eq!((found.entities, found.relations), (2, 1));
    let train = &found.parts[&Part::Train];
    assert_eq!((train.input, train.triples, train.duplicates, train.in_train), (4, 4, 2, 0));
    let valid = &found.parts[&Part::Valid];
    assert_eq!((valid.input, valid.triples, valid.duplicates, valid.in_train), (5, 2, 1, 1));
    assert_eq!((valid.unknown_entities, valid.unknown_relations), (2, 1));
    assert_eq!(valid.unknown_triples, 3);
    assert_eq!(valid.unknown, ["y", "z", "s"]);
    assert_eq!(manifest.arrays["triples/test"].shape, [0, 3]);
    let drop = TripleImportOptions { duplicates: Duplicates::Drop, ..options() };
    let (_directory, found, _) = import(&texts, &drop).unwrap();
    assert_eq!((found.parts[&Part::Train].triples, found.parts[&Part::Valid].triples), (2, 1));
}

#[test]
fn names_that_train_does_not_have_are_listed_ten_at_most() {
    let strangers: String = (0..25).map(|i| format!("a r x{i}\n")).collect();
    let texts: [(Part, &[u8]); 3] =
        [(Part::Train, b"a r b\n"), (Part::Valid, strangers.as_bytes()), (Part::Test, b"a q b\n")];
    let refuse = TripleImportOptions { unknown: Unknown::Error, ..options() };
    let error = import(&texts, &refuse).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let told = error.to_string();
    let expected = "`valid` has 25 entities and 0 relations that `train` does not have, in 25 \
                    triples: `x0`, `x1`, `x2`, `x3`, `x4`, `x5`, `x6`, `x7`, `x8`, `x9`, …; `test` \
                    has 0 entities and 1 relations that `train` does not have, in 1 triples: `q`";
    assert!(told.starts_with(expected), "{told}");
    let keep = TripleImportOptions { unknown: Unknown::Keep, ..options() };
    let (_directory, found, _) = import(&texts, &keep).unwrap();
    assert_eq!((found.entities, found.relations), (27, 2));
    assert_eq!(found.parts[&Part::Valid].unknown_triples, 25);
}

#[test]
fn numbers_that_count_from_zero_are_their_own_ids() {
    let rows: String = (0..1000).map(|i| format!("{} {} {}\n", 999 - i, i % 20, i)).collect();
    let (directory, found, _) =
        import(&[(Part::Train, rows.as_bytes())], &TripleImportOptions::default()).unwrap();
    assert_eq!((found.entities, found.relations), (1000, 20));
    let graph = read(&directory.path().join("graph"));
    let expected: Vec<[i64; 3]> = (0..1000).map(|i| [999 - i, i % 20, i]).collect();
    assert_eq!(graph.parts[&Part::Train], expected);
}

#[test]
fn every_form_of_text_gives_the_same_triples() {
    let parts = random_parts(50, 1);
    let rows = &parts[&Part::Train];
    let plain = text(rows);
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let join = |cut: &dyn Fn(&Row) -> String| rows.iter().map(cut).collect::<String>();
    let quoted = join(&|[h, r, t]| format!("\"{h}\",\"{r}\",{t}\n"));
    let cases: [(&str, Vec<u8>); 9] = [
        ("hrt", plain.clone().into_bytes()),
        ("hrt", gzip(&plain)),
        ("hrt", zstd::encode_all(plain.as_bytes(), 3).unwrap()),
        ("hrt", plain.replace('\n', "\r\n\r\n").into_bytes()),
        ("hrt", format!("\u{feff}{}", plain.trim_end()).into_bytes()),
        ("hrt", format!("\n\u{20}\nSubject,Predicate,Object\n{quoted}").into_bytes()),
        ("trh", join(&|[h, r, t]| format!("{t} ; {r} ; {h}\n")).into_bytes()),
        ("_h_rtw", join(&|[h, r, t]| format!("1\t{h}\t\t{r}\t{t}\t0.5\n")).into_bytes()),
        (
            "hrtw",
            format!("h,r,t,w\n{}", join(&|[h, r, t]| format!("{h},{r},{t},2\n"))).into_bytes(),
        ),
    ];
    let expected = naive(&BTreeMap::from([(Part::Train, rows.clone())]), &options());
    for (columns, text) in cases {
        let chosen = TripleImportOptions { columns: columns.parse().unwrap(), ..options() };
        let (directory, _, manifest) = import(&[(Part::Train, &text)], &chosen).unwrap();
        assert_eq!(read(&directory.path().join("graph")), expected, "columns {columns}");
        assert_eq!(manifest.arrays.contains_key("triples/train.weight"), columns.contains('w'));
    }
}

#[test]
fn weights_stay_with_their_triples() {
    let texts: [(Part, &[u8]); 1] = [(Part::Train, b"b r a 2\na r b 0.5\nb r a 7\n")];
    let columns = "hrtw".parse().unwrap();
    let chosen = TripleImportOptions { columns, duplicates: Duplicates::Drop, ..options() };
    let (directory, _, _) = import(&texts, &chosen).unwrap();
    let set = DataSet::open(directory.path().join("graph")).unwrap();
    let weights = set.read_array("triples/train.weight").unwrap();
    assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&weights), [2.0, 0.5]);
}

#[test]
fn a_header_may_be_demanded_or_denied() {
    let directory = scratch();
    let path = directory.path().join("train.txt");
    std::fs::write(&path, "head relation tail\na r b\n").unwrap();
    for (header, triples) in [(None, 1), (Some(true), 1), (Some(false), 2)] {
        let said = TextOptions { header, ..TextOptions::default() };
        let dialect = detect(&path, Purpose::Triples, &said, Bytes::mib(16)).unwrap();
        let root = directory.path().join(format!("graph{triples}{header:?}"));
        let mut import = begin(Arc::new(RealDisk), &root, &options()).unwrap();
        import.text(Part::Train, &path, Some(dialect), &mut |_| Ok(())).unwrap();
        let found = import.finish(&mut |_| Ok(())).unwrap();
        assert_eq!(found.parts[&Part::Train].triples, triples, "{header:?}");
    }
}

#[test]
fn statements_of_n_triples_are_read_with_their_tabs_and_commas() {
    let text = "# made\n<http://a>\t<http://p>\t\"x, y;\tz\"@en .\n<http://a> <http://p> _:b .\n";
    let (directory, found, _) = import(&[(Part::Train, text.as_bytes())], &options()).unwrap();
    assert_eq!((found.entities, found.relations), (3, 1));
    let set = DataSet::open(directory.path().join("graph")).unwrap();
    let names = set.read_array("names/entity.bytes").unwrap();
    assert_eq!(String::from_utf8_lossy(&names), "_:bhttp://a\"x, y;\tz\"@en");
}

#[test]
fn names_may_hold_what_separates_fields_elsewhere() {
    for text in ["a;b,r,c\nd,r,e;f\n", "New York, US\tin\tA;B\nx\tin\ty\n", "a,\"r,s\",b\nc,r,d\n"]
    {
        let (_directory, found, _) = import(&[(Part::Train, text.as_bytes())], &options()).unwrap();
        assert_eq!((found.parts[&Part::Train].triples, found.entities), (2, 4), "{text}");
    }
    let mixed = format!("{}a,r,b\n", "a\tr\tb\n".repeat(1500));
    let error = import(&[(Part::Train, mixed.as_bytes())], &options()).unwrap_err().to_string();
    assert!(error.contains("line 1501: `a,r,b`: found 1 columns separated by tabs"), "{error}");
}

#[test]
fn a_bad_line_is_named_with_file_and_number() {
    let good = "a\tr\tb\n".repeat(100);
    for (text, expected) in [
        (format!("{good}\na\tb\n"), "line 102: `a\tb`".replace('\t', "\\t")),
        (format!("{good}a\t\tb\n"), "line 101: `a\\t\\tb`: the relation is empty".to_owned()),
        (format!("{good}\tr\tb"), "line 101: `r\\tb`: the head is empty".to_owned()),
        (
            "14541\n0 1 2\n".to_owned(),
            "line 1: `14541`: found 1 columns separated by blanks".to_owned(),
        ),
    ] {
        let error = import(&[(Part::Train, text.as_bytes())], &options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let told = error.to_string();
        assert!(told.contains(&expected) && told.contains("0.txt"), "{told}");
    }
}

#[test]
fn no_triples_and_too_little_memory_are_said() {
    for text in [&b""[..], b"\n\n", b"head\trelation\ttail\n"] {
        let error = import(&[(Part::Train, text)], &options()).unwrap_err().to_string();
        assert!(error.contains("`train` has no triples"), "{error}");
    }
    let error = import(&[(Part::Valid, b"a r b\n")], &options()).unwrap_err().to_string();
    assert!(error.contains("`train` has no triples"), "{error}");
    let little = TripleImportOptions { memory: Bytes::mib(1), tuning: None, ..options() };
    let error = import(&[(Part::Train, b"a r b\n")], &little).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    let runs = TripleTuning { smallest_buffer: 800, ..tiny() };
    let text: String = (0..60).map(|i| format!("a{i} r b\n")).collect();
    let few = TripleImportOptions { tuning: Some(runs), ..options() };
    let error = import(&[(Part::Train, text.as_bytes())], &few).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    assert!(error.to_string().contains("`memory="), "{error}");
}

#[test]
fn bad_batches_are_refused() {
    let directory = scratch();
    let root = directory.path().join("graph");
    let packed = |names: &[&str]| Packed::new(names.iter().map(|name| (*name).to_owned()));
    let (two, one, gap) = (packed(&["a", "b"]), packed(&["r"]), packed(&["", "r"]));
    let backwards = Packed { offsets: vec![0, 2, 1], bytes: b"ab".to_vec() };
    let beyond = Packed { offsets: vec![0, 1, 9], bytes: b"ab".to_vec() };
    for (relations, weights, expected) in [
        (&one, None, "1 relations, expected 2"),
        (&gap, None, "row 0: the relation is empty"),
        (&backwards, None, "offsets of its relations"),
        (&beyond, None, "offsets of its relations"),
        (&two, Some(&[1.0f32, 1.0][..]), "weights must come with all triples or with none"),
    ] {
        let mut import = begin(Arc::new(RealDisk), &root, &options()).unwrap();
        let (heads, relations, tails) = (two.column(), relations.column(), two.column());
        let batch = TripleBatch { heads, relations, tails, weights };
        let error = import.push(Part::Train, &batch).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        let after = import.finish(&mut |_| Ok(())).unwrap_err().to_string();
        assert!(after.contains("stopped by an error before"), "{after}");
        std::fs::remove_dir_all(&root).ok();
    }
    let mut import = begin(Arc::new(RealDisk), &root, &options()).unwrap();
    push(&mut import, Part::Train, &[]).unwrap();
    let error = import.finish(&mut |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("`train` has no triples"), "{error}");
}
