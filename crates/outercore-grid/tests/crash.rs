//! Every crash point and every refused write of a build: the data set stays valid, with its
//! previous grid or with the complete new one.

mod common;

use std::path::Path;

use common::{Made, arcs_of, grid_arcs};
use outercore_core::{Bytes, ErrorKind, Result};
use outercore_grid::{BuildOptions, BuildSummary, Grid, build, verify};
use outercore_io::{Disk, FaultDisk, FaultKind, FaultPlan, RealDisk};
use outercore_store::dataset::DataSet;
use outercore_store::generations;
use outercore_testkit::Csc;

fn made() -> Made {
    let graph = Csc::power_law(400, 3000, 5);
    let edges: Vec<(u64, u64)> =
        graph.sources.iter().zip(0..).map(|(s, t)| (*s, t % 400)).collect();
    let weights = (0..edges.len()).map(|id| id as f64).collect();
    Made::undirected(400, &edges).weighted(weights)
}

fn options(overwrite: bool, weights: bool) -> BuildOptions {
    BuildOptions {
        memory: Bytes::mib(16),
        threads: Some(2),
        weights: weights.then(|| "w".into()),
        partition_log2: Some(6),
        overwrite,
        ..BuildOptions::default()
    }
}

fn run(disk: &dyn Disk, root: &Path, options: &BuildOptions) -> Result<BuildSummary> {
    let built = build(disk, &DataSet::open(root)?, options, &mut |_, _, _, _| Ok(()));
    // The input data set was open during the build, so its files were kept.
    generations::tidy(root)?;
    built
}

/// The grid in `root`, if there is one, holds the graph.
fn assert_sound(root: &Path, made: &Made, when: &str) -> bool {
    let data_set = DataSet::open(root).unwrap_or_else(|error| panic!("{when}: {error}"));
    if !Grid::is_built(&data_set) {
        return false;
    }
    let problems = verify(&data_set, &mut |_, _, _, _| Ok(())).unwrap();
    assert!(problems.is_empty(), "{when}: {problems:?}");
    let grid = Grid::open(&data_set).unwrap();
    let unweighted = Made { weights: None, csc: made.csc.clone(), ..*made };
    let expected = if grid.shape().weighted { arcs_of(made) } else { arcs_of(&unweighted) };
    assert!(grid_arcs(&data_set, &grid) == expected, "{when}");
    true
}

/// The arrays of the grid that the manifest names.
fn grid_arrays(root: &Path) -> usize {
    let data_set = DataSet::open(root).unwrap();
    data_set.manifest().arrays.keys().filter(|key| key.starts_with("grid/")).count()
}

/// A crash may leave files that no manifest names; an error must not.
fn grid_files(root: &Path) -> usize {
    std::fs::read_dir(root.join("grid/edge")).map_or(0, Iterator::count)
}

#[test]
fn every_crash_point_leaves_a_data_set_without_a_grid_or_with_a_whole_one() {
    let made = made();
    for before in [false, true] {
        let place = || {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().join("data");
            std::fs::create_dir(&root).unwrap();
            made.write(&root);
            if before {
                run(&RealDisk, &root, &options(false, false)).unwrap();
            }
            (directory, root)
        };
        let (_directory, root) = place();
        let counting = FaultDisk::counting(&root);
        run(&counting, &root, &options(true, true)).unwrap();
        let (mut old, mut new) = (0, 0);
        for at in 0..counting.operations() {
            let (_directory, root) = place();
            let disk = FaultDisk::new(&root, FaultPlan { at, kind: FaultKind::Crash });
            let done = run(&disk, &root, &options(true, true));
            let when = format!("crash at {at}, a grid before: {before}");
            assert!(disk.crashed(), "{when}");
            let there = assert_sound(&root, &made, &when);
            let weighted =
                there && Grid::open(&DataSet::open(&root).unwrap()).unwrap().shape().weighted;
            assert!(there || !before, "{when}: the old grid is gone");
            if weighted {
                new += 1;
            } else {
                assert!(done.is_err(), "{when}: reported as done, but undone");
                old += 1;
            }
            // The next build works in spite of leftovers of the crash.
            run(&RealDisk, &root, &options(true, true)).unwrap();
            assert!(assert_sound(&root, &made, &format!("built after {when}")));
            assert_eq!(grid_files(&root), grid_arrays(&root), "{when}: files are left over");
        }
        // After the commit, the build still removes the note of the change and the previous grid.
        assert!(old > 0 && new > 0, "{old} old, {new} new");
    }
}

#[test]
fn a_full_or_failing_disk_is_an_error_that_leaves_nothing_behind() {
    let made = made();
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("data");
    std::fs::create_dir(&root).unwrap();
    made.write(&root);
    let counting = FaultDisk::counting(&root);
    run(&counting, &root, &options(true, true)).unwrap();
    for at in 0..counting.operations() {
        for kind in [FaultKind::NoSpace, FaultKind::Eio] {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().join("data");
            std::fs::create_dir(&root).unwrap();
            made.write(&root);
            let done =
                run(&FaultDisk::new(&root, FaultPlan { at, kind }), &root, &options(false, true));
            let when = format!("{kind:?} at {at}");
            let there = assert_sound(&root, &made, &when);
            match done {
                // Only the release of space may fail without an error.
                Ok(_) => assert!(there, "{when}"),
                Err(error) => {
                    let expected = match kind {
                        FaultKind::NoSpace => ErrorKind::NoSpace,
                        _ => ErrorKind::Io,
                    };
                    assert_eq!(error.kind(), expected, "{when}: {error}");
                    assert!(error.to_string().contains('`'), "{when}: {error}");
                    if !there && kind == FaultKind::NoSpace {
                        // `remove_file` is never refused on a full device.
                        assert_eq!(grid_files(&root), 0, "{when}");
                    }
                }
            }
            run(&RealDisk, &root, &options(true, true)).unwrap();
            assert!(assert_sound(&root, &made, &format!("built after {when}")));
        }
    }
}

#[test]
fn a_crash_while_edges_are_dealt_to_a_file_leaves_nothing_that_matters() {
    let graph = Csc::power_law(2000, 300_000, 5);
    let edges: Vec<(u64, u64)> =
        graph.sources.iter().zip(0..).map(|(s, t)| (*s, t * 7 % 2000)).collect();
    let weights = (0..edges.len()).map(|id| id as f64).collect();
    let made = Made::directed(2000, &edges).weighted(weights);
    // Two copies of 8 bytes per edge do not fit into the rest.
    let mut options = options(true, true);
    options.memory = Bytes::kib(8704);
    let place = || {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("data");
        std::fs::create_dir(&root).unwrap();
        made.write(&root);
        (directory, root)
    };
    let (_directory, root) = place();
    let counting = FaultDisk::counting(&root);
    let summary = run(&counting, &root, &options).unwrap();
    assert!(summary.written.0 > 8 * summary.edges, "nothing was dealt to a file");
    assert!(!root.join(".grid").exists());
    let operations = counting.operations();
    for at in (0..operations).step_by((operations / 12).max(1) as usize) {
        for kind in [FaultKind::Crash, FaultKind::NoSpace] {
            let (_directory, root) = place();
            let when = format!("{kind:?} at {at}");
            let disk = FaultDisk::new(&root, FaultPlan { at, kind });
            let done = run(&disk, &root, &options);
            assert!(done.is_err() || Grid::is_built(&DataSet::open(&root).unwrap()), "{when}");
            if kind == FaultKind::NoSpace {
                assert!(!root.join(".grid").exists(), "{when}: the temporary file is still there");
            }
            assert_sound(&root, &made, &when);
            run(&RealDisk, &root, &options).unwrap();
            assert!(assert_sound(&root, &made, &format!("built after {when}")));
            assert!(!root.join(".grid").exists());
        }
    }
}
