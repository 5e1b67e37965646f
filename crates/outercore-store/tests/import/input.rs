use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outercore_core::{ErrorKind, Result};
use outercore_format::{DType, NpyHeader};
use outercore_io::RealDisk;
use outercore_store::import::{EdgeArtifacts, EdgeImport, EdgeImportOptions};

use crate::model::{begin, import, naive, options, random_edges, read, scratch};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn npy(dtype: DType, shape: &[u64], ids: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut bytes = NpyHeader::encode(dtype, shape);
    for id in ids {
        bytes.extend_from_slice(&id.to_le_bytes()[..dtype.size()]);
    }
    bytes
}

fn lines(edges: &[[u64; 2]], line: impl Fn(u64, u64) -> String) -> String {
    edges.iter().map(|&[u, v]| line(u, v)).collect()
}

/// Runs an import with the sources that `take` gives, in a new directory below `directory`.
fn import_by(
    directory: &Path,
    options: &EdgeImportOptions,
    take: impl FnOnce(&mut EdgeImport) -> Result<()>,
) -> Result<(PathBuf, EdgeArtifacts)> {
    let root = directory.join("graph");
    let _ = std::fs::remove_dir_all(&root);
    let mut import = begin(Arc::new(RealDisk), &root, options)?;
    take(&mut import)?;
    let artifacts = import.finish(&mut |_| Ok(()))?;
    Ok((root, artifacts))
}

#[test]
fn every_kind_of_text_gives_the_same_csc() {
    let edges = random_edges(500, 90, 1);
    let expected = naive(&edges, &options());
    let blanks = lines(&edges, |u, v| format!("{u} {v}\n"));
    let (left, right) = blanks.as_bytes().split_at(blanks.len() / 2);
    let zstd = |text: &[u8]| zstd::encode_all(text, 3).unwrap();
    let kinds = [
        (
            "snap",
            format!("# Nodes: 90 Edges: 500\n{}", lines(&edges, |u, v| format!("{u}\t{v}\n")))
                .into_bytes(),
        ),
        (
            "csv",
            format!("source,target,weight\r\n{}", lines(&edges, |u, v| format!("{u},{v},0.5\r\n")))
                .into_bytes(),
        ),
        ("mark", format!("\u{feff}{}", lines(&edges, |u, v| format!("{u};{v}\n"))).into_bytes()),
        (
            "market",
            format!(
                "%%MatrixMarket matrix coordinate pattern general\n90 90 500\n{}",
                lines(&edges, |u, v| format!("{} {}\n", u + 1, v + 1))
            )
            .into_bytes(),
        ),
        ("gzip", gzip(blanks.as_bytes())),
        ("members", [gzip(left), gzip(right)].concat()),
        ("frames", [zstd(left), zstd(right)].concat()),
        ("cut", blanks.trim_end().as_bytes().to_vec()),
    ];
    let directory = scratch();
    let path = directory.path().join("edges.dat");
    let nodes = EdgeImportOptions { num_nodes: Some(90), ..options() };
    for (name, content) in kinds {
        std::fs::write(&path, content).unwrap();
        let taken = |import: &mut EdgeImport| import.text(&path, &mut |_| Ok(()));
        let (root, artifacts) = import_by(directory.path(), &nodes, taken).unwrap();
        assert_eq!(read(&root, &artifacts), naive(&edges, &nodes), "{name}");
    }
    assert_eq!(expected.sources, naive(&edges, &nodes).sources);
}

#[test]
fn every_kind_of_array_gives_the_same_csc() {
    let edges = random_edges(500, 90, 2);
    let expected = naive(&edges, &options());
    let directory = scratch();
    let path = |name: &str| directory.path().join(name);
    let column = |c: usize| edges.iter().map(move |edge| edge[c]);
    for dtype in [DType::I32, DType::I64, DType::U32, DType::U64] {
        std::fs::write(path("pairs"), npy(dtype, &[500, 2], edges.iter().flatten().copied()))
            .unwrap();
        std::fs::write(path("columns"), npy(dtype, &[2, 500], column(0).chain(column(1)))).unwrap();
        std::fs::write(path("u"), npy(dtype, &[500], column(0))).unwrap();
        std::fs::write(path("v"), npy(dtype, &[500], column(1))).unwrap();
        for kind in 0..3 {
            let (root, artifacts) = import_by(directory.path(), &options(), |import| match kind {
                0 => import.npy(&path("pairs"), &mut |_| Ok(())),
                1 => import.npy(&path("columns"), &mut |_| Ok(())),
                _ => import.npy_columns(&path("u"), &path("v"), &mut |_| Ok(())),
            })
            .unwrap();
            assert_eq!(read(&root, &artifacts), expected, "{dtype} {kind}");
        }
    }
}

#[test]
fn sources_of_all_kinds_follow_one_another() {
    let edges = random_edges(600, 90, 3);
    let directory = scratch();
    let (text, array) = (directory.path().join("a.txt"), directory.path().join("b.npy"));
    std::fs::write(&text, lines(&edges[100..200], |u, v| format!("{u} {v}\n"))).unwrap();
    std::fs::write(&array, npy(DType::I64, &[100, 2], edges[300..400].iter().flatten().copied()))
        .unwrap();
    let (root, artifacts) = import_by(directory.path(), &options(), |import| {
        let columns = |from: usize, to: usize| -> (Vec<i64>, Vec<i64>) {
            edges[from..to].iter().map(|&[u, v]| (u as i64, v as i64)).unzip()
        };
        for (from, to) in [(0, 33), (33, 100)] {
            let (sources, targets) = columns(from, to);
            import.push(&sources, &targets)?;
        }
        import.text(&text, &mut |_| Ok(()))?;
        import.push_pairs(&edges[200..300])?;
        import.npy(&array, &mut |_| Ok(()))?;
        import.push_pairs(&edges[400..600])
    })
    .unwrap();
    assert_eq!(read(&root, &artifacts), naive(&edges, &options()));
}

#[test]
fn a_symmetric_matrix_is_an_undirected_graph() {
    let directory = scratch();
    let path = directory.path().join("matrix.mtx");
    let text = "%%MatrixMarket matrix coordinate real symmetric\n4 4 3\n1 1 .5\n3 1 .5\n2 3 1\n";
    std::fs::write(&path, text).unwrap();
    for (undirected, edges) in [
        (false, vec![[0, 0], [2, 0], [0, 2], [1, 2], [2, 1]]),
        (true, vec![[0, 0], [2, 0], [1, 2]]),
    ] {
        let options = EdgeImportOptions { undirected, ..options() };
        let taken = |import: &mut EdgeImport| import.text(&path, &mut |_| Ok(()));
        let (root, artifacts) = import_by(directory.path(), &options, taken).unwrap();
        assert_eq!(artifacts.num_nodes, 4);
        let four = EdgeImportOptions { num_nodes: Some(4), ..options };
        assert_eq!(read(&root, &artifacts), naive(&edges, &four));
    }
}

#[test]
fn a_matrix_with_fewer_entries_than_it_says_is_corrupt() {
    let directory = scratch();
    let path = directory.path().join("matrix.mtx");
    std::fs::write(&path, "%%MatrixMarket matrix coordinate real general\n4 4 3\n1 1 1\n").unwrap();
    let error =
        import_by(directory.path(), &options(), |i| i.text(&path, &mut |_| Ok(()))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("found 1 entries, but its header says 3"), "{error}");
}

#[test]
fn bad_input_is_refused_by_name_and_place() {
    let directory = scratch();
    let path = directory.path().join("input");
    let ten = EdgeImportOptions { num_nodes: Some(10), ..options() };
    let text = |content: &str| (content.as_bytes().to_vec(), false);
    let array = |dtype, shape: &[u64], ids: &[u64]| (npy(dtype, shape, ids.to_vec()), true);
    let minus = -4i64 as u64;
    let mut cut = npy(DType::I64, &[4, 2], 0..8);
    cut.truncate(4096 + 60);
    for ((content, is_array), expected) in [
        (text("0 1\n2 -3\n"), "line 2: `2 -3`: node id -3 in column 2 is negative"),
        (
            text("0 1\n2 10\n"),
            "line 2: `2 10`: node id 10 is out of range: the graph has 10 nodes (0 to 9)",
        ),
        (text("0 1\n2\n3 4\n"), "line 2: `2`: found 1 column separated by blanks, expected 2"),
        (text("0 1\n2 3 4\n5 6\n"), "line 2: `2 3 4`: found 3 columns separated by blanks"),
        (text("0 1\n2 3\na b\n"), "line 3: `a b`: column 1 is `a`, expected a node id"),
        (text("3,1\n1.5,2\n"), "line 2: `1.5,2`: column 1 is `1.5`"),
        (text("0 99999999999999999999\n"), "line 1: `0 99999999999999999999`: node id"),
        (array(DType::I64, &[2, 3], &[0, 1, 2, minus, 3, 4]), "row 0: node id -4 is negative"),
        (array(DType::I64, &[2, 2], &[0, 1, 2, 3]), "shape [2, 2] may be [2, E] or [E, 2]"),
        (array(DType::I32, &[3, 2], &[0, 1, 2, 3, minus, 3]), "row 2: node id -4 is negative"),
        (
            array(DType::U32, &[3, 2], &[0, 1, 2, 3, 4, 17]),
            "row 2: node id 17 is out of range: the graph has 10",
        ),
        (
            array(DType::U64, &[3, 2], &[0, 1, minus, 3, 4, 5]),
            "row 1: node id 18446744073709551612 is too large",
        ),
        (
            array(DType::F32, &[3, 2], &[0; 6]),
            "type float32, expected int32, int64, uint32 or uint64",
        ),
        (array(DType::I64, &[3, 3], &[0; 9]), "shape [3, 3], expected [E, 2] or [2, E]"),
        (array(DType::I64, &[6], &[0; 6]), "shape [6], expected [E, 2] or [2, E]"),
        ((cut, true), "4,156 bytes, expected 4,160"),
        ((b"0 1\n".to_vec(), true), "not a .npy file"),
    ] {
        std::fs::write(&path, content).unwrap();
        let error = import_by(directory.path(), &ten, |import| match is_array {
            true => import.npy(&path, &mut |_| Ok(())),
            false => import.text(&path, &mut |_| Ok(())),
        })
        .unwrap_err();
        let message = error.to_string();
        assert!(message.contains(expected), "{message}\nexpected: {expected}");
        assert!(message.contains(path.to_str().unwrap()), "{message}");
    }
}

#[test]
fn bad_batches_are_refused_by_row() {
    let ten = EdgeImportOptions { num_nodes: Some(10), ..options() };
    for (batches, expected) in [
        (
            vec![(vec![0; 20], vec![1; 20]), (vec![0, 4], vec![1, -1])],
            "row 21: node id -1 is negative",
        ),
        (
            vec![(vec![0; 20], vec![1; 20]), (vec![0, 10], vec![1, 1])],
            "row 21: node id 10 is out of range",
        ),
        (vec![(vec![0; 3], vec![1; 2])], "3 sources and 2 targets, expected as many of each"),
    ] {
        let directory = scratch();
        let error = import_by(directory.path(), &ten, |import| {
            batches.iter().try_for_each(|(sources, targets)| import.push(sources, targets))
        })
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn nothing_to_import_and_ids_that_are_no_row_numbers_are_refused() {
    let directory = scratch();
    let error = import(directory.path(), &options(), &[]).unwrap_err();
    assert!(error.to_string().contains("no edges and says no number of nodes"), "{error}");
    let directory = scratch();
    let error = import(directory.path(), &options(), &[[1 << 60, 0]]).unwrap_err();
    assert!(error.to_string().contains("the largest node id is 1152921504606846976"), "{error}");
}

#[test]
fn a_directory_or_a_missing_file_is_no_edge_list() {
    let directory = scratch();
    let missing = directory.path().join("missing.csv");
    for (path, kind) in [(directory.path(), ErrorKind::Invalid), (&missing, ErrorKind::NotFound)] {
        let error =
            import_by(directory.path(), &options(), |i| i.text(path, &mut |_| Ok(()))).unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}
