//! Headers of layouts, from any bytes.

use outercore_core::Bytes;
use outercore_io::RealDisk;
use outercore_layout::{BuildOptions, Method, Precision, build, fuzz};
use outercore_store::dataset::DataSet;
use outercore_testkit::LiveModel;
use outercore_testkit::fuzz::{keep, run};

#[test]
fn any_bytes_as_the_header_of_a_layout() {
    run("layout_header", fuzz::header);
}

#[test]
#[ignore = "writes `fuzz/corpus`"]
fn write_the_first_inputs() {
    keep("layout_header", "key", b"layout/nodes/node/x/int8/header");
    for method in [Method::None, Method::Degree, Method::Glist, Method::Rcm] {
        let directory = tempfile::tempdir().unwrap();
        let graph = LiveModel::random(12, 30, false, 1).write(directory.path());
        let options = BuildOptions {
            array: None,
            method,
            precision: Precision::Int8,
            memory: Bytes::mib(32),
        };
        build(&RealDisk, &graph, &options, &mut |_, _, _, _| Ok(())).unwrap();
        let graph = DataSet::open(directory.path()).unwrap();
        let header = graph.read_array("layout/nodes/node/x/int8/header").unwrap();
        keep("layout_header", &format!("{method:?}").to_lowercase(), &header);
    }
}
