//! Inputs that a build or an opening rejects, and problems that a check finds.

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{Made, write_array};
use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_format::{Checksum, DType, MANIFEST_FILE};
use outercore_grid::{BuildOptions, BuildSummary, Grid, Order, build, verify};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;
use outercore_store::generations;
use outercore_testkit::Csc;

fn made(undirected: bool) -> Made {
    let graph = Csc::power_law(3000, 40_000, 2);
    let edges: Vec<(u64, u64)> =
        graph.sources.iter().zip(0..).map(|(source, at)| (*source, at * 13 % 2900)).collect();
    let made = if undirected { Made::undirected } else { Made::directed };
    made(3000, &edges).weighted((0..edges.len()).map(|id| id as f64 - 3.0).collect())
}

fn run(root: &Path, options: &BuildOptions) -> Result<BuildSummary> {
    build(&RealDisk, &DataSet::open(root)?, options, &mut |_, _, _, _| Ok(()))
}

fn built(options: &BuildOptions, undirected: bool) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    made(undirected).write(directory.path());
    run(directory.path(), options).unwrap();
    directory
}

fn open(root: &Path) -> Result<Grid> {
    Grid::open(&DataSet::open(root)?)
}

/// Changes the JSON of the header in place, with the same length, to imitate another release.
fn change_header(root: &Path, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let path = root.join("grid/edge/header.npy");
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).expect(from);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(to.as_bytes(), at as u64).unwrap();
    let mut manifest = DataSet::read_manifest(root).unwrap();
    let header = manifest.arrays.get_mut("grid/edge/header").unwrap();
    header.checksum = Checksum::of(&fs::read(&path).unwrap()[4096..]);
    fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
}

fn write_at(root: &Path, name: &str, offset: u64, bytes: &[u8]) {
    let path = root.join(format!("grid/edge/{name}.npy"));
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, 4096 + offset).unwrap();
}

#[test]
fn a_data_set_without_a_grid_says_how_to_build_one() {
    let directory = tempfile::tempdir().unwrap();
    made(false).write(directory.path());
    let error = open(directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("outercore grid "), "{error}");
}

#[test]
fn a_grid_of_another_topology_is_stale_until_it_is_built_again() {
    let directory = built(&BuildOptions::default(), true);
    let root = directory.path();
    let mut manifest = DataSet::read_manifest(root).unwrap();
    // An array of the topology that a grid without weights does not read.
    let ids = manifest.arrays.get_mut("edges/edge/ids").unwrap();
    ids.checksum = "xxh3:0123456789abcdef".into();
    fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
    for error in [open(root).unwrap_err(), run(root, &BuildOptions::default()).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("another topology"), "{error}");
        let command = format!("outercore grid {} --overwrite", root.display());
        assert!(error.to_string().contains(&command), "{error}");
    }
    run(root, &BuildOptions { overwrite: true, ..BuildOptions::default() }).unwrap();
    open(root).unwrap();
}

#[test]
fn other_weights_make_a_weighted_grid_stale() {
    let directory =
        built(&BuildOptions { weights: Some("w".into()), ..BuildOptions::default() }, true);
    let root = directory.path();
    let mut manifest = DataSet::read_manifest(root).unwrap();
    let rows = made(true).rows as usize;
    write_array(root, &mut manifest, "edges/edge/w", DType::F64, &vec![2.0; rows]);
    fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
    assert_eq!(open(root).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_grid_that_is_there_is_kept_unless_it_is_asked_for_otherwise() {
    let options = BuildOptions { weights: Some("w".into()), ..BuildOptions::default() };
    let directory = built(&options, false);
    let root = directory.path();
    let before = fs::read(root.join(MANIFEST_FILE)).unwrap();
    for same in [
        options.clone(),
        BuildOptions::default(),
        BuildOptions { weights: Some("edges/edge/w".into()), ..BuildOptions::default() },
        BuildOptions { order: Some(Order::Degree), ..BuildOptions::default() },
        BuildOptions { partition_log2: Some(9), ..BuildOptions::default() },
    ] {
        let summary = run(root, &same).unwrap();
        assert_eq!((summary.written, summary.edges), (Bytes(0), 40_000));
        assert!(summary.input.0 > 4 * summary.arcs && summary.blocks > 0);
    }
    for (other, what) in [
        (BuildOptions { weights: Some("v".into()), ..BuildOptions::default() }, "weights w"),
        (BuildOptions { order: Some(Order::Natural), ..BuildOptions::default() }, "natural"),
        (BuildOptions { partition_log2: Some(8), ..BuildOptions::default() }, "partition_log2 9"),
    ] {
        let error = run(root, &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(what), "{error}");
        let command = format!("outercore grid {} --overwrite", root.display());
        assert!(error.to_string().contains(&command), "{error}");
    }
    assert_eq!(fs::read(root.join(MANIFEST_FILE)).unwrap(), before);
}

#[test]
fn a_grid_without_weights_replaces_one_with_weights() {
    let directory =
        built(&BuildOptions { weights: Some("w".into()), ..BuildOptions::default() }, false);
    let root = directory.path();
    run(root, &BuildOptions { overwrite: true, ..BuildOptions::default() }).unwrap();
    let manifest = DataSet::read_manifest(root).unwrap();
    assert!(!manifest.arrays.contains_key("grid/edge/weights"));
    // The input data set was open, so its files were kept.
    generations::tidy(root).unwrap();
    assert!(!root.join("grid/edge/weights.npy").exists());
    assert_eq!(verify(&DataSet::open(root).unwrap(), &mut |_, _, _, _| Ok(())).unwrap(), []);
}

#[test]
fn another_version_and_a_damaged_header_are_told_apart() {
    let directory = built(&BuildOptions::default(), false);
    let root = directory.path();
    change_header(root, "\"connected\"", "\"new_thing\"");
    let command = format!("outercore grid {} --overwrite", root.display());
    for (other, kind) in [("1", ErrorKind::Invalid), ("7", ErrorKind::Version)] {
        let other = format!("\"version\": {other}");
        change_header(root, "\"version\": 3", &other);
        let error = open(root).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(&command), "{error}");
        change_header(root, &other, "\"version\": 3");
    }
    let error = open(root).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("new_thing"), "{error}");
    change_header(root, "\"new_thing\"", "\"connected\"");
    change_header(root, "\"edges\": 40000", "\"edges\": 40001");
    assert_eq!(open(root).unwrap_err().kind(), ErrorKind::Corrupt);
    change_header(root, "\"edges\": 40001", "\"edges\": 40000");
    open(root).unwrap();
    write_at(root, "header", 2, b"x");
    let error = open(root).unwrap_err().to_string();
    assert!(error.contains("`grid/edge/header`: checksum") && error.contains("hint: "), "{error}");
}

#[test]
fn a_damaged_record_is_refused_and_named() {
    for undirected in [false, true] {
        let directory = built(&BuildOptions::default(), undirected);
        let root = directory.path();
        let records = fs::read(root.join("grid/edge/pieces.npy")).unwrap()[4096..].to_vec();
        let pieces = open(root).unwrap().pieces().len();
        assert!(pieces > 10);
        for word in (0..8).filter(|word| *word != 5) {
            let at = (7 * 64 + word * 8) as u64;
            let before = &records[at as usize..at as usize + 8];
            for byte in 0..8 {
                let mut after = before.to_vec();
                after[byte] ^= 0x80;
                write_at(root, "pieces", at, &after);
                let error = match open(root) {
                    Err(error) => error,
                    // Plausible counts and first rows; only the pieces contradict them.
                    Ok(_) => {
                        let data_set = DataSet::open(root).unwrap();
                        let problems = verify(&data_set, &mut |_, _, _, _| Ok(())).unwrap();
                        assert!(
                            problems[0].message.contains("piece 7"),
                            "{word}, {byte}: {problems:?}"
                        );
                        continue;
                    }
                };
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{word}, {byte}");
                assert!(error.to_string().contains("grid/edge/pieces"), "{error}");
            }
            write_at(root, "pieces", at, before);
        }
        open(root).unwrap();
    }
}

#[test]
fn a_check_finds_what_is_wrong_in_every_array() {
    let directory =
        built(&BuildOptions { weights: Some("w".into()), ..BuildOptions::default() }, false);
    let root = directory.path();
    let data_set = DataSet::open(root).unwrap();
    let problems = || verify(&data_set, &mut |_, _, _, _| Ok(())).unwrap();
    assert_eq!(problems(), []);
    for (name, offset) in
        [("blocks", 5000), ("order", 8), ("out_degrees", 8), ("in_degrees", 0), ("weights", 400)]
    {
        let path = root.join(format!("grid/edge/{name}.npy"));
        let before = fs::read(&path).unwrap();
        let at = 4096 + offset;
        let changed: Vec<u8> = match name {
            // The order names a node twice.
            "order" => before[at + 4..at + 8].to_vec(),
            "weights" => f32::NAN.to_le_bytes().to_vec(),
            _ => before[at..at + 4].iter().map(|byte| byte ^ 0x11).collect(),
        };
        write_at(root, name, offset as u64, &changed);
        let found = problems();
        assert!(found.iter().any(|problem| problem.message.contains(name)), "{name}: {found:?}");
        fs::write(&path, &before).unwrap();
    }
    assert_eq!(problems(), []);
}

#[test]
fn weights_that_are_missing_or_not_numbers_are_refused() {
    let graph = made(false);
    let rows = graph.rows as usize;
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    graph.write(root);
    let mut manifest = DataSet::read_manifest(root).unwrap();
    let mut bad = vec![1.0; rows];
    bad[17] = f64::NAN;
    write_array(root, &mut manifest, "edges/edge/bad", DType::F64, &bad);
    write_array(root, &mut manifest, "edges/edge/short", DType::F64, &bad[..10]);
    let mut long = vec![1i64 << 60; rows];
    long[40] += 1;
    write_array(root, &mut manifest, "edges/edge/long", DType::I64, &long);
    fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
    for (name, kind, what) in [
        (
            "v",
            ErrorKind::NotFound,
            "edge array `v` is not in the data set\nhint: it has bad, long, short, w",
        ),
        ("bad", ErrorKind::Invalid, "edge array `bad`: row 17 is nan"),
        (
            "long",
            ErrorKind::Invalid,
            "edge array `long`: row 40 is 1152921504606846977, which float64 does not hold exactly",
        ),
        ("short", ErrorKind::Invalid, "edge array `short`: shape [10], expected [40000]"),
    ] {
        let error =
            run(root, &BuildOptions { weights: Some(name.into()), ..BuildOptions::default() })
                .unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(what), "{error}");
    }
    assert!(!root.join(".grid").exists());
}

#[test]
fn an_undirected_graph_with_an_arc_of_one_way_is_corrupt() {
    // The numbers of arcs in both directions match, but the arcs are not reverses of each other.
    for edges in [vec![(0, 1), (1, 2)], vec![(0, 1), (0, 1)], vec![(5, 1), (1, 1)]] {
        let directory = tempfile::tempdir().unwrap();
        let made = Made { undirected: true, ..Made::directed(6, &edges) };
        made.write(directory.path());
        let error = run(directory.path(), &BuildOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(!Grid::is_built(&DataSet::open(directory.path()).unwrap()));
    }
}

#[test]
fn impossible_options_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    made(false).write(root);
    for (options, kind) in [
        (BuildOptions { threads: Some(0), ..BuildOptions::default() }, ErrorKind::Invalid),
        (BuildOptions { partition_log2: Some(0), ..BuildOptions::default() }, ErrorKind::Invalid),
        (BuildOptions { partition_log2: Some(17), ..BuildOptions::default() }, ErrorKind::Invalid),
        (BuildOptions { memory: Bytes::mib(3), ..BuildOptions::default() }, ErrorKind::Budget),
    ] {
        let error = run(root, &options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let error =
        run(root, &BuildOptions { memory: Bytes(0), threads: Some(2), ..BuildOptions::default() })
            .unwrap_err();
    let least = error.needed().unwrap();
    assert!(error.to_string().contains(&format!("the least that works is {least}")), "{error}");
    run(root, &BuildOptions { memory: least, threads: Some(2), ..BuildOptions::default() })
        .unwrap();
}

#[test]
fn the_budget_refuses_a_grid_instead_of_changing_it() {
    let ring: Vec<(u64, u64)> = (0..400_000).map(|node| (node, node * 7 % 400_000)).collect();
    let graph = Made::directed(400_000, &ring);
    let header = |memory| {
        let directory = tempfile::tempdir().unwrap();
        graph.write(directory.path());
        let options = BuildOptions { memory, threads: Some(2), ..BuildOptions::default() };
        run(directory.path(), &options)?;
        Ok::<_, outercore_core::Error>(fs::read(directory.path().join("grid/edge/header.npy"))?)
    };
    let enough = header(Bytes::mib(64)).unwrap();
    // Enough memory for the given order, but not for sorting.
    let given = Bytes(9_800_000);
    let error = header(given).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
    assert!(error.to_string().contains("--order natural"), "{error}");
    assert!(header(error.needed().unwrap()).unwrap() == enough);

    let directory = tempfile::tempdir().unwrap();
    graph.write(directory.path());
    let options = BuildOptions {
        memory: given,
        threads: Some(2),
        order: Some(Order::Natural),
        ..BuildOptions::default()
    };
    run(directory.path(), &options).unwrap();
}

#[test]
fn a_wish_to_stop_ends_the_build_and_leaves_nothing() {
    for phase in ["in-degrees", "out-degrees", "count", "deal", "encode"] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let data_set = made(false).write(root);
        let error = build(&RealDisk, &data_set, &BuildOptions::default(), &mut |now, _, _, _| {
            if now != phase {
                return Ok(());
            }
            Err(Error::new(ErrorKind::Interrupted, "stop"))
        })
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "{phase}");
        assert!(!root.join(".grid").exists());
        let left = fs::read_dir(root.join("grid/edge")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{phase}");
    }
}

#[test]
fn an_offset_beyond_the_arcs_is_damage_and_not_a_node_with_too_many_arcs() {
    let row = 1000u64;
    for bit in [1u64 << 17, 1 << 36, 1 << 62] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        made(false).write(root);
        let file = root.join("edges/edge/offsets.npy");
        let mut bytes = fs::read(&file).unwrap();
        let at = 4096 + 8 * row as usize;
        let offset = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) ^ bit;
        bytes[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        fs::write(&file, bytes).unwrap();
        let error = run(root, &BuildOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{bit:#x}: {error}");
        assert!(error.to_string().contains("array `edges/edge/offsets`"), "{error}");
        assert!(error.next_step().unwrap().to_string().contains("outercore check"), "{error}");
    }
}
