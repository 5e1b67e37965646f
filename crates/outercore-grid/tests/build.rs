//! A built grid holds the arcs of the CSC, whatever the order, the partition size, the budget and the
//! number of threads.

mod common;

use common::{Made, arcs_of, grid_arcs, zoo};
use outercore_core::Bytes;
use outercore_grid::{BuildOptions, Grid, Order, build};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;

fn options(order: Option<Order>, partition_log2: Option<u32>) -> BuildOptions {
    BuildOptions { memory: Bytes::mib(64), order, partition_log2, ..BuildOptions::default() }
}

#[test]
fn the_arcs_of_a_grid_are_those_of_the_graph() {
    for (name, made) in zoo() {
        for order in [None, Some(Order::Degree), Some(Order::Natural)] {
            // Partitions of 2 nodes make millions of blocks of a large graph.
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
