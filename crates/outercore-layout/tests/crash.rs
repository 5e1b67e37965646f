//! Every crash point and every refused write of a build: the data set stays valid, with its
//! previous layout or with the complete new one.

mod common;

use std::path::{Path, PathBuf};

use outercore_core::{Bytes, ErrorKind, Result};
use outercore_format::keys::FEATURES;
use outercore_io::{Disk, FaultDisk, FaultKind, FaultPlan, RealDisk};
use outercore_layout::{BuildOptions, BuildSummary, Layout, Method, Precision, build, verify};
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_store::generations;
use outercore_testkit::Csc;

const NODES: u64 = 120;

fn place() -> (tempfile::TempDir, PathBuf) {
    // In memory if possible: with a disk, thousands of syncs would each wait.
    let memory = Path::new("/dev/shm");
    let directory = match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    };
    let root = directory.path().join("data");
    std::fs::create_dir(&root).unwrap();
    common::write(&root, &Csc::power_law(NODES, 600, 5), &common::rows(NODES));
    (directory, root)
}

fn run(disk: &dyn Disk, root: &Path, method: Method) -> Result<BuildSummary> {
    let (precision, memory) = (Precision::Int8, Bytes::mib(32));
    let options = BuildOptions { method, precision, memory, ..BuildOptions::default() };
    let built = build(disk, &DataSet::open(root)?, &options, &mut |_, _, _, _| Ok(()));
    // The input data set was open during the build, so its files were kept.
    generations::tidy(root)?;
    built
}

/// The order of the layout in `root`, if there is a layout; checks that it is sound.
fn found(root: &Path, when: &str) -> Option<Method> {
    let data_set = DataSet::open(root).unwrap_or_else(|error| panic!("{when}: {error}"));
    let report = check(root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
    assert!(report.is_sound(), "{when}: {:?}", report.problems);
    let problems = verify(&data_set, &mut |_, _, _, _| Ok(())).unwrap();
    assert!(problems.is_empty(), "{when}: {problems:?}");
    let layout = Layout::open(&data_set, FEATURES, Precision::Int8).unwrap();
    layout.map(|layout| layout.header().order.method())
}

/// Number of files of layouts, and number of those that the manifest names.
fn files(root: &Path) -> (usize, usize) {
    let there = std::fs::read_dir(root.join("layout/nodes/node/x/int8")).map_or(0, Iterator::count);
    let arrays = DataSet::open(root).unwrap().manifest().arrays.clone();
    (there, arrays.keys().filter(|key| key.starts_with("layout/")).count())
}

#[test]
fn every_fault_leaves_the_layout_before_or_the_whole_new_one() {
    for before in [None, Some(Method::None)] {
        let place = || {
            let (directory, root) = place();
            if let Some(method) = before {
                run(&RealDisk, &root, method).unwrap();
            }
            (directory, root)
        };
        let (_directory, root) = place();
        let counting = FaultDisk::counting(&root);
        run(&counting, &root, Method::Degree).unwrap();
        let (mut old, mut new) = (0, 0);
        for at in 0..counting.operations() {
            for kind in [FaultKind::Crash, FaultKind::NoSpace, FaultKind::Eio] {
                let (_directory, root) = place();
                let when = format!("{kind:?} at {at}, before: {before:?}");
                let disk = FaultDisk::new(&root, FaultPlan { at, kind });
                let done = run(&disk, &root, Method::Degree);
                match found(&root, &when) {
                    Some(Method::Degree) => new += 1,
                    there => {
                        assert_eq!(there, before, "{when}");
                        let error = done.expect_err(&when);
                        let expected = match kind {
                            FaultKind::NoSpace => Some(ErrorKind::NoSpace),
                            FaultKind::Eio => Some(ErrorKind::Io),
                            _ => None,
                        };
                        assert!(
                            expected.is_none_or(|kind| kind == error.kind()),
                            "{when}: {error}"
                        );
                        old += 1;
                    }
                }
                // The next build works in spite of leftovers, and removes them.
                run(&RealDisk, &root, Method::Rcm).unwrap();
                assert_eq!(found(&root, &when), Some(Method::Rcm));
                let (there, named) = files(&root);
                assert_eq!(there, named, "{when}: files are left over");
            }
        }
        assert!(old > 0 && new > 0, "{old} old, {new} new");
    }
}

#[test]
fn a_build_that_is_stopped_changes_nothing() {
    let (_directory, root) = place();
    let mut calls = 0;
    for stop_at in 0.. {
        calls = 0;
        let options = BuildOptions { precision: Precision::Int8, ..BuildOptions::default() };
        let done = build(&RealDisk, &DataSet::open(&root).unwrap(), &options, &mut |_, _, _, _| {
            calls += 1;
            match calls > stop_at {
                true => Err(outercore_core::Error::new(ErrorKind::Interrupted, "stop")),
                false => Ok(()),
            }
        });
        match done {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}"),
        }
        assert_eq!(found(&root, "stopped"), None);
        assert_eq!(files(&root), (0, 0));
    }
    assert!(calls > 4, "{calls}");
    assert_eq!(found(&root, "not stopped"), Some(Method::Glist));
}

#[test]
fn a_check_finds_rows_at_wrong_places_and_places_that_two_nodes_share() {
    let (_directory, root) = place();
    run(&RealDisk, &root, Method::Degree).unwrap();
    let alter = |part: &str, change: &dyn Fn(&mut Vec<u8>)| {
        // Imitates a faulty writer: the checksum matches the wrong bytes.
        let mut manifest = DataSet::read_manifest(&root).unwrap();
        let entry = manifest.arrays.get_mut(&format!("layout/{FEATURES}/int8/{part}")).unwrap();
        let path = root.join(&entry.file);
        let mut bytes = std::fs::read(&path).unwrap();
        let mut data = bytes.split_off(4096);
        change(&mut data);
        entry.checksum = outercore_format::Checksum::of(&data);
        bytes.extend(data);
        std::fs::write(&path, bytes).unwrap();
        std::fs::write(root.join("graph.json"), manifest.to_json()).unwrap();
    };
    let problem = || {
        let data_set = DataSet::open(&root).unwrap();
        let problems = verify(&data_set, &mut |_, _, _, _| Ok(())).unwrap();
        assert_eq!(problems.len(), 1);
        problems[0].message.clone()
    };
    alter("rows", &|data| data.swap(0, common::WIDTH));
    assert!(problem().contains("not those of the array"), "{}", problem());
    alter("rows", &|data| data.swap(0, common::WIDTH));
    alter("places", &|data| data.copy_within(0..4, 4));
    assert!(problem().contains("have place"), "{}", problem());
    alter("places", &|data| data[3] = 1);
    assert!(problem().contains("expected a place below 120"), "{}", problem());
    alter("header", &|data| {
        let at = data.windows(10).position(|part| part == b"\"version\":").unwrap();
        data[at + 11] = b'2';
    });
    assert!(problem().contains("version 2"), "{}", problem());
}
