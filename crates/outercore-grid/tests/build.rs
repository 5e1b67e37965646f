//! A built grid contains the arcs of the CSC, for any order, partition size, budget and number of
//! threads.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{Made, arcs_of, grid_arcs, read, zoo};
use outercore_core::Bytes;
use outercore_grid::{BuildOptions, Grid, Order, build, verify};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;
use outercore_testkit::{Csc, Width};
use proptest::prelude::*;

fn options(order: Option<Order>, partition_log2: Option<u32>) -> BuildOptions {
    BuildOptions { memory: Bytes::mib(64), order, partition_log2, ..BuildOptions::default() }
}

#[test]
fn the_arcs_of_a_grid_are_those_of_the_graph() {
    for (name, made) in zoo() {
        for order in [None, Some(Order::Degree), Some(Order::Natural)] {
            // In a large graph, partitions of 2 nodes would create millions of blocks.
            let smallest = if made.csc.num_nodes() <= 300 { 1 } else { 5 };
            for log2 in [None, Some(smallest), Some(9), Some(16)] {
                let directory = tempfile::tempdir().unwrap();
                let data_set = made.write(directory.path());
                let summary =
                    match build(&RealDisk, &data_set, &options(order, log2), &mut |_, _, _, _| {
                        Ok(())
                    }) {
                        Ok(summary) => summary,
                        Err(error) => panic!("{name}, {order:?}, {log2:?}: {error}"),
                    };
                let data_set = DataSet::open(directory.path()).unwrap();
                let grid = Grid::open(&data_set).unwrap();
                assert_eq!(summary.edges, grid.shape().edges);
                assert_eq!(
                    grid_arcs(&data_set, &grid),
                    arcs_of(&made),
                    "{name}, {order:?}, {log2:?}"
                );
                assert!(!directory.path().join(".grid").exists());
            }
        }
    }
}

#[test]
fn a_graph_without_nodes_has_an_empty_grid() {
    let directory = tempfile::tempdir().unwrap();
    let made = Made::directed(0, &[]);
    let data_set = made.write(directory.path());
    let summary =
        build(&RealDisk, &data_set, &options(None, None), &mut |_, _, _, _| Ok(())).unwrap();
    assert_eq!((summary.edges, summary.pieces, summary.partitions), (0, 0, 1));
    Grid::open(&DataSet::open(directory.path()).unwrap()).unwrap();
}

fn quiet(_: &str, _: u64, _: u64, _: &str) -> outercore_core::Result<()> {
    Ok(())
}

/// The bytes of every file of the grid.
fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let manifest = DataSet::read_manifest(root).unwrap();
    let grid = manifest.arrays.iter().filter(|(key, _)| key.starts_with("grid/"));
    grid.map(|(key, entry)| (key.clone(), std::fs::read(root.join(&entry.file)).unwrap())).collect()
}

#[test]
fn a_grid_is_the_same_for_every_budget_and_number_of_threads() {
    let graph = Csc::power_law(9000, 1_000_000, 3);
    let edges: Vec<(u64, u64)> =
        graph.sources.iter().zip(0..).map(|(source, at)| (*source, at * 31 % 8000)).collect();
    let weights: Vec<f64> = (0..edges.len()).map(|id| (id % 1000) as f64 / 8.0).collect();
    for undirected in [false, true] {
        let made = if undirected { Made::undirected } else { Made::directed };
        let made = made(9000, &edges).weighted(weights.clone());
        for weighted in [false, true] {
            let mut first = None;
            let (mut dealt_to_file, mut kept) = (0, 0);
            let least = Bytes::mib(if weighted { 11 } else { 7 });
            for (memory, threads) in [
                (least, 1),
                (least, 3),
                (Bytes(least.0 + 12345), 2),
                (Bytes::mib(64), 1),
                (Bytes::gib(1), 4),
            ] {
                let directory = tempfile::tempdir().unwrap();
                let width = if threads == 3 { Width::Wide } else { Width::Narrow };
                let data_set = made.write_as(directory.path(), width);
                let options = BuildOptions {
                    memory,
                    threads: Some(threads),
                    weights: weighted.then(|| "edges/edge/w".into()),
                    ..BuildOptions::default()
                };
                let mut phases = BTreeSet::new();
                let summary = build(&RealDisk, &data_set, &options, &mut |phase, _, _, _| {
                    phases.insert(phase.to_owned());
                    // The temporary file exists while edges are encoded, unless it is not needed.
                    if phase == "encode" && directory.path().join(".grid/edges").exists() {
                        phases.insert("file".to_owned());
                    }
                    Ok(())
                })
                .unwrap();
                assert!(phases.contains("encode") && phases.contains("deal"), "{phases:?}");
                let by_file = phases.contains("file");
                *if by_file { &mut dealt_to_file } else { &mut kept } += 1;
                let stored: u64 =
                    files(directory.path()).iter().map(|file| file.1.len() as u64).sum();
                let record = if weighted { 8 } else { 4 };
                let dealt = if by_file { record * summary.edges } else { 0 };
                assert_eq!(summary.written.0, stored + dealt);
                let mut now = files(directory.path());
                // The widths of the ids affect only the checksums.
                now.retain(|(key, _)| !key.ends_with("header"));
                let first = first.get_or_insert_with(|| now.clone());
                assert!(*first == now, "{memory}, {threads} threads, weights: {weighted}");
            }
            assert!(dealt_to_file > 0 && kept > 0, "{dealt_to_file} by file, {kept} in memory");
        }
    }
}

#[test]
fn builds_at_once_write_one_after_the_other_and_what_one_built_the_others_take() {
    let edges: Vec<(u64, u64)> = (0..40_000).map(|at| (at * at % 2999, at * 31 % 2000)).collect();
    let made = Made::directed(3000, &edges);
    for overwrite in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let data_set = made.write(directory.path());
        let options = BuildOptions { overwrite, ..options(None, Some(5)) };
        let written: Vec<Bytes> = std::thread::scope(|scope| {
            let one = || build(&RealDisk, &data_set, &options, &mut quiet).unwrap().written;
            let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let builds = written.iter().filter(|bytes| bytes.0 > 0).count();
        assert_eq!(builds, if overwrite { 4 } else { 1 });
        let data_set = DataSet::open(directory.path()).unwrap();
        let grid = Grid::open(&data_set).unwrap();
        assert_eq!(grid_arcs(&data_set, &grid), arcs_of(&made));
        assert!(!directory.path().join(".grid").exists());
    }
}

#[test]
fn weights_follow_their_edges() {
    for (name, made) in zoo() {
        // Thirds are not exact as float32, so they are stored as float64.
        let (halves, thirds) =
            (|id: u64| (id % 97) as f64 - 5.5, |id: u64| id as f64 / 3.0 - 1e-60);
        for (order, single) in [(Order::Degree, true), (Order::Natural, true)]
            .into_iter()
            .chain([(Order::Degree, false), (Order::Natural, false)])
        {
            let weights = (0..made.rows).map(if single { halves } else { thirds }).collect();
            let made = Made { csc: made.csc.clone(), weights: None, ..made }.weighted(weights);
            let directory = tempfile::tempdir().unwrap();
            let data_set = made.write(directory.path());
            let options =
                BuildOptions { weights: Some("w".into()), ..options(Some(order), Some(6)) };
            build(&RealDisk, &data_set, &options, &mut quiet).unwrap();
            let data_set = DataSet::open(directory.path()).unwrap();
            let grid = Grid::open(&data_set).unwrap();
            assert_eq!(grid_arcs(&data_set, &grid), arcs_of(&made), "{name}, {order:?}");
            let least = made.weights.iter().flatten().copied().reduce(f64::min);
            assert_eq!(grid.header().least_weight, least);
            assert_eq!(verify(&data_set, &mut quiet).unwrap(), []);
        }
    }
}

#[test]
fn a_row_of_more_edges_than_a_piece_goes_on_in_the_next() {
    let star: Vec<(u64, u64)> = (1..=200_000).map(|node| (node, 0)).collect();
    let parallel = vec![(1, 0); 200_000];
    let loops = vec![(1, 1); 100_000];
    for edges in [star, parallel, loops] {
        for made in [Made::directed(200_001, &edges), Made::undirected(200_001, &edges)] {
            let directory = tempfile::tempdir().unwrap();
            let data_set = made.write(directory.path());
            build(&RealDisk, &data_set, &options(Some(Order::Natural), Some(16)), &mut quiet)
                .unwrap();
            let data_set = DataSet::open(directory.path()).unwrap();
            let grid = Grid::open(&data_set).unwrap();
            assert!(grid.pieces().iter().all(|piece| piece.edges <= 65_536));
            assert!(grid_arcs(&data_set, &grid) == arcs_of(&made));
            assert_eq!(verify(&data_set, &mut quiet).unwrap(), []);
        }
    }
}

#[test]
fn degrees_and_order_are_those_of_the_graph() {
    for (name, made) in zoo() {
        for order in [Order::Degree, Order::Natural] {
            let directory = tempfile::tempdir().unwrap();
            let data_set = made.write(directory.path());
            build(&RealDisk, &data_set, &options(Some(order), None), &mut quiet).unwrap();
            let data_set = DataSet::open(directory.path()).unwrap();
            let grid = Grid::open(&data_set).unwrap();
            let nodes = made.csc.num_nodes() as usize;
            let (mut into, mut out) = (vec![0u32; nodes], vec![0u32; nodes]);
            for (source, target, _) in arcs_of(&made) {
                out[source as usize] += 1;
                into[target as usize] += 1;
            }
            let mut expected: Vec<usize> = (0..nodes).filter(|v| into[*v] + out[*v] > 0).collect();
            let connected = expected.len();
            if order == Order::Degree {
                expected.sort_by_key(|v| std::cmp::Reverse(into[*v] + out[*v]));
            }
            expected.extend((0..nodes).filter(|v| into[*v] + out[*v] == 0));
            let found: Vec<u32> = match grid.order() {
                Some(order) => read(&data_set, &order.key),
                None => (0..nodes as u32).collect(),
            };
            assert!(found.iter().map(|v| *v as usize).eq(expected.iter().copied()), "{name}");
            let by_rank = |degrees: &[u32]| -> Vec<u32> {
                expected[..connected].iter().map(|v| degrees[*v]).collect()
            };
            assert_eq!(read::<u32>(&data_set, &grid.out_degrees().key), by_rank(&out), "{name}");
            assert_eq!(read::<u32>(&data_set, &grid.in_degrees().key), by_rank(&into), "{name}");
            assert_eq!(verify(&data_set, &mut quiet).unwrap(), [], "{name}, {order:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_graph_is_held(
        nodes in 1..60u64,
        pairs in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..150),
        undirected: bool,
        natural: bool,
        log2 in 1..=16u32,
    ) {
        let edges: Vec<(u64, u64)> = pairs
            .iter()
            .map(|(u, v)| (u.index(nodes as usize) as u64, v.index(nodes as usize) as u64))
            .collect();
        let made = if undirected { Made::undirected } else { Made::directed };
        let weights = (0..edges.len()).map(|id| id as f64).collect();
        let made = made(nodes, &edges).weighted(weights);
        let order = if natural { Order::Natural } else { Order::Degree };
        let directory = tempfile::tempdir().unwrap();
        let data_set = made.write(directory.path());
        let options = BuildOptions { weights: Some("w".into()), ..options(Some(order), Some(log2)) };
        build(&RealDisk, &data_set, &options, &mut quiet).unwrap();
        let data_set = DataSet::open(directory.path()).unwrap();
        let grid = Grid::open(&data_set).unwrap();
        prop_assert_eq!(grid_arcs(&data_set, &grid), arcs_of(&made));
        prop_assert_eq!(verify(&data_set, &mut quiet).unwrap(), []);
    }
}
