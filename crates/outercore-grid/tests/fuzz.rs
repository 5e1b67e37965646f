//! Headers and pieces of a grid, from any bytes.

use outercore_grid::{BuildOptions, HEADER, build, fuzz};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;
use outercore_testkit::fuzz::{keep, run};
use outercore_testkit::{Csc, Width, write_data_set};

#[test]
fn any_bytes_as_the_header_of_a_grid() {
    run("grid_header", fuzz::header);
}

#[test]
fn any_bytes_as_a_piece_of_a_grid() {
    run("grid_piece", fuzz::piece);
}

#[test]
#[ignore = "writes `fuzz/corpus`"]
fn write_the_first_inputs() {
    for (nodes, arcs) in [(40u64, 200), (300, 900)] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let graph = write_data_set(root, &Csc::power_law(nodes, arcs, 1), Width::Narrow);
        let options = BuildOptions { partition_log2: Some(6), ..BuildOptions::default() };
        build(&RealDisk, &graph, &options, &mut |_, _, _, _| Ok(())).unwrap();
        let graph = DataSet::open(root).unwrap();
        keep("grid_header", &format!("{nodes}-nodes"), &graph.read_array(HEADER).unwrap());
        let records = graph.read_array("grid/edge/pieces").unwrap();
        let bodies = graph.read_array("grid/edge/blocks").unwrap();
        for (number, record) in records.chunks_exact(64).take(3).enumerate() {
            let word =
                |at: usize| u64::from_le_bytes(record[8 * at..8 * at + 8].try_into().unwrap());
            let start = word(0) as usize;
            let body = &bodies[start..start + (word(2) & 0xFFFF_FFFF) as usize];
            // Partitions of 64 nodes, in order of degree.
            let shape = nodes | 5 << 56;
            let input = [record, &shape.to_le_bytes(), body].concat();
            keep("grid_piece", &format!("{nodes}-nodes-{number}"), &input);
        }
    }
}
