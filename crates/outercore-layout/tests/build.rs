//! A layout holds each row of its array at the right place, exactly or as `int8`.

mod common;

use std::path::Path;

use common::{WIDTH, row, rows, write};
use outercore_core::{Bytes, ErrorKind, Result};
use outercore_format::keys::FEATURES;
use outercore_io::RealDisk;
use outercore_layout::{
    BuildOptions, BuildSummary, Layout, Method, Order, Precision, build, choose, remove,
};
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_testkit::Csc;

fn options(method: Method, precision: Precision) -> BuildOptions {
    BuildOptions { method, precision, memory: Bytes::mib(64), ..BuildOptions::default() }
}

fn built(data_set: &DataSet, options: &BuildOptions) -> Result<BuildSummary> {
    build(&RealDisk, data_set, options, &mut |_, _, _, _| Ok(()))
}

/// Flips a bit at the end of a file.
fn flip_last(file: &Path) {
    let mut bytes = std::fs::read(file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(file, bytes).unwrap();
}

/// Opens a layout and compares it with its definition.
fn assert_holds(data_set: &DataSet, precision: Precision, expected: &[f32]) -> Layout {
    let data_set = &DataSet::open(data_set.root()).unwrap();
    let layout = Layout::open(data_set, FEATURES, precision).unwrap().unwrap();
    let places = layout.load_places(data_set).unwrap();
    let stored = data_set.read_array(&layout.rows().key).unwrap();
    let width = layout.rows().row_elements() as usize;
    let mut taken = vec![false; data_set.num_nodes() as usize];
    for (node, expected) in (0..).zip(expected.chunks_exact(width)) {
        let place = places.as_ref().map_or(node, |places| places.of(node)) as usize;
        assert!(!std::mem::replace(&mut taken[place], true), "two rows at place {place}");
        match layout.scales() {
            None => {
                let found: &[u8] = &stored[place * width * 4..(place + 1) * width * 4];
                assert_eq!(found, bytemuck::cast_slice::<f32, u8>(expected), "node {node}");
            }
            Some(scales) => {
                let found = stored[place * width..(place + 1) * width].iter();
                let columns = scales.scale().iter().zip(scales.offset()).zip(expected);
                for (step, ((scale, offset), value)) in found.zip(columns) {
                    let wanted = if *scale == 0.0 { 0.0 } else { (value - offset) / scale };
                    let wanted = wanted.round_ties_even().clamp(-128.0, 127.0);
                    assert_eq!(f32::from(*step as i8), wanted, "node {node}");
                }
            }
        }
    }
    let report = check(data_set.root(), &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
    layout
}

#[test]
fn every_order_and_precision_holds_every_row() {
    let graph = Csc::power_law(700, 4000, 3);
    for method in Method::ALL {
        for precision in Precision::ALL {
            if (method, precision) == (Method::None, Precision::Exact) {
                continue;
            }
            let directory = tempfile::tempdir().unwrap();
            let data_set = write(directory.path(), &graph, &rows(700));
            let options = options(method, precision);
            let summary = built(&data_set, &options).unwrap();
            assert!(summary.written > summary.bytes);
            let layout = assert_holds(&data_set, precision, &rows(700));
            assert_eq!(layout.header().order.method(), method);
            // The layout already exists.
            let again = built(&data_set, &options).unwrap();
            assert_eq!((again.written, again.order), (Bytes(0), summary.order));
            let files = std::fs::read_dir(directory.path().join("layout/nodes/node/x")).unwrap();
            assert_eq!(files.count(), 1, "one precision");
        }
    }
}

#[test]
fn rows_that_do_not_fit_are_written_in_parts_and_come_out_the_same() {
    let nodes = 60_000;
    let graph = Csc::power_law(nodes, 100_000, 3);
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &graph, &rows(nodes));
    let small =
        BuildOptions { memory: Bytes::kib(7900), ..options(Method::Degree, Precision::Exact) };
    built(&data_set, &small).unwrap();
    let layout = assert_holds(&data_set, Precision::Exact, &rows(nodes));
    let checksum = layout.rows().checksum.clone();
    remove(&RealDisk, &data_set, None).unwrap();
    built(&data_set, &options(Method::Degree, Precision::Exact)).unwrap();
    let layout = assert_holds(&data_set, Precision::Exact, &rows(nodes));
    assert_eq!(layout.rows().checksum, checksum);
}

#[test]
fn a_budget_that_is_too_small_is_told_with_one_that_works() {
    let graph = Csc::power_law(20_000, 100_000, 3);
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &graph, &rows(20_000));
    for method in Method::ALL {
        let with = |memory| BuildOptions { memory, ..options(method, Precision::Int8) };
        let mut memory = Bytes(1);
        for _ in 0..8 {
            let Err(error) = built(&data_set, &with(memory)) else { break };
            assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
            memory = error.needed().expect("the least").max(Bytes(memory.0 + 1));
        }
        built(&data_set, &with(memory)).unwrap_or_else(|error| panic!("{method}: {error}"));
    }
}

#[test]
fn values_without_an_int8_are_refused_with_row_and_column() {
    let graph = Csc::path(10);
    for (value, text) in [(f32::NAN, "NaN"), (f32::NEG_INFINITY, "-inf")] {
        let directory = tempfile::tempdir().unwrap();
        let mut features = rows(10);
        features[7 * WIDTH + 2] = value;
        let data_set = write(directory.path(), &graph, &features);
        let error = built(&data_set, &options(Method::None, Precision::Int8)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let message = error.to_string();
        let expected = format!("row 7: column 2: {text}, expected a finite value");
        assert!(message.contains(&expected), "{message}");
        assert!(
            !directory.path().join("layout/nodes/node/x/int8").exists()
                || no_files(directory.path())
        );
        // A copy in another order accepts every value.
        built(&data_set, &options(Method::Degree, Precision::Exact)).unwrap();
        assert_holds(&data_set, Precision::Exact, &features);
    }
}

fn no_files(root: &std::path::Path) -> bool {
    let directories =
        Precision::ALL.map(|precision| root.join(format!("layout/nodes/node/x/{precision}")));
    directories.iter().all(|directory| {
        // The directory may be removed with its last file.
        std::fs::read_dir(directory).map_or(true, |mut files| files.next().is_none())
    })
}

#[test]
fn a_layout_of_an_older_array_is_stale_and_can_be_built_anew() {
    let graph = Csc::path(10);
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let data_set = write(root, &graph, &rows(10));
    built(&data_set, &options(Method::Rcm, Precision::Exact)).unwrap();
    built(&data_set, &options(Method::None, Precision::Int8)).unwrap();
    let mut features = rows(10);
    features[0] = 9.0;
    let mut manifest = DataSet::read_manifest(root).unwrap();
    let shape = [10, WIDTH as u64];
    let bytes = bytemuck::cast_slice(&features);
    let changed = common::entry(root, FEATURES, outercore_format::DType::F32, &shape, bytes);
    manifest.arrays.insert(FEATURES.into(), changed);
    std::fs::write(root.join("graph.json"), manifest.to_json()).unwrap();
    let data_set = DataSet::open(root).unwrap();
    for precision in Precision::ALL {
        let error = Layout::open(&data_set, FEATURES, precision).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("stale"), "{error}");
    }
    let chosen = choose(&data_set, FEATURES, Precision::Exact, Bytes::mib(1)).unwrap();
    assert!(chosen.layout.is_none() && chosen.notice.unwrap().contains("stale"));
    choose(&data_set, FEATURES, Precision::Int8, Bytes::mib(1)).unwrap_err();
    for (method, precision) in [(Method::Rcm, Precision::Exact), (Method::None, Precision::Int8)] {
        assert!(built(&data_set, &options(method, precision)).unwrap().written > Bytes(0));
        assert_holds(&data_set, precision, &features);
    }
}

#[test]
fn what_was_altered_on_disk_is_refused_or_found_by_a_check() {
    let graph = Csc::power_law(300, 1000, 3);
    for (part, is_opened) in [("header", true), ("scale", true), ("places", true), ("rows", false)]
    {
        let directory = tempfile::tempdir().unwrap();
        let data_set = write(directory.path(), &graph, &rows(300));
        built(&data_set, &options(Method::Degree, Precision::Int8)).unwrap();
        let path = directory.path().join(format!("layout/nodes/node/x/int8/{part}.npy"));
        flip_last(&path);
        let data_set = DataSet::open(directory.path()).unwrap();
        let opened = Layout::open(&data_set, FEATURES, Precision::Int8)
            .and_then(|layout| layout.unwrap().load_places(&data_set));
        assert_eq!(opened.is_err(), is_opened, "{part}");
        if let Err(error) = opened {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
        let report = check(directory.path(), &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
        assert_eq!(report.problems.len(), 1, "{part}");
        // Opening the data set rejects a truncated file, as for every array.
        std::fs::write(&path, b"").unwrap();
        assert_eq!(DataSet::open(directory.path()).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn a_data_set_without_a_layout_is_read_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &Csc::path(10), &rows(10));
    let chosen = choose(&data_set, FEATURES, Precision::Exact, Bytes::mib(1)).unwrap();
    assert!(chosen.layout.is_none() && chosen.notice.is_none());
    let error = choose(&data_set, FEATURES, Precision::Int8, Bytes::mib(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.next_step().unwrap().to_string().contains("outercore layout"), "{error}");
    let error = built(&data_set, &options(Method::None, Precision::Exact)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_eq!(remove(&RealDisk, &data_set, None).unwrap(), 0);
}

#[test]
fn a_table_of_places_that_takes_too_much_memory_is_not_used_unasked() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &Csc::path(1000), &rows(1000));
    built(&data_set, &options(Method::Degree, Precision::Exact)).unwrap();
    let data_set = DataSet::open(directory.path()).unwrap();
    let chosen = |memory| choose(&data_set, FEATURES, Precision::Exact, memory).unwrap();
    assert!(chosen(Bytes(16_000)).layout.is_some());
    let small = chosen(Bytes(15_999));
    assert!(small.layout.is_none() && small.notice.unwrap().contains("quarter"));
}

#[test]
fn removing_leaves_the_array_and_none_of_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &Csc::path(20), &rows(20));
    built(&data_set, &options(Method::Glist, Precision::Exact)).unwrap();
    built(&data_set, &options(Method::Glist, Precision::Int8)).unwrap();
    assert_eq!(remove(&RealDisk, &data_set, Some("x")).unwrap(), 2);
    let data_set = DataSet::open(directory.path()).unwrap();
    assert!(data_set.manifest().arrays.keys().all(|key| !key.starts_with("layout/")));
    assert!(no_files(directory.path()));
    let found = data_set.read_rows(FEATURES, &[3]).unwrap();
    assert_eq!(found, bytemuck::cast_slice::<f32, u8>(&row(3)));
}

#[test]
fn a_new_order_replaces_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &Csc::power_law(300, 1000, 1), &rows(300));
    for method in [Method::Degree, Method::None, Method::Rcm] {
        built(&data_set, &options(method, Precision::Int8)).unwrap();
        let layout = assert_holds(&data_set, Precision::Int8, &rows(300));
        assert_eq!(layout.header().order.method(), method);
        assert_eq!(layout.places_memory().0 > 0, layout.header().order != Order::None);
    }
}

#[test]
fn a_damaged_layout_is_built_anew_by_the_command_that_built_it() {
    let graph = Csc::power_law(300, 2000, 4);
    for precision in Precision::ALL {
        for part in ["rows", "places"] {
            let directory = tempfile::tempdir().unwrap();
            let data_set = write(directory.path(), &graph, &rows(300));
            let options = options(Method::Degree, precision);
            built(&data_set, &options).unwrap();
            let file = format!("layout/nodes/node/x/{precision}/{part}.npy");
            flip_last(&directory.path().join(file));
            assert!(built(&data_set, &options).unwrap().written > Bytes(0), "{precision} {part}");
            assert_holds(&data_set, precision, &rows(300));
        }
    }
}

#[test]
fn a_damaged_table_of_places_names_the_command_that_mends_it() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = write(directory.path(), &Csc::power_law(300, 2000, 4), &rows(300));
    built(&data_set, &options(Method::Degree, Precision::Exact)).unwrap();
    flip_last(&directory.path().join("layout/nodes/node/x/exact/places.npy"));
    let data_set = DataSet::open(directory.path()).unwrap();
    let layout = Layout::open(&data_set, FEATURES, Precision::Exact).unwrap().unwrap();
    let error = layout.load_places(&data_set).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.next_step().unwrap().to_string().contains("`outercore layout "), "{error}");
}
