//! Requests read a layout like the array: another order changes no bit, and `int8` gives the
//! restored values.

mod common;

use std::sync::Mutex;

use outercore_core::{Bytes, ErrorKind};
use outercore_format::{Update, keys::FEATURES};
use outercore_io::{CostModel, EngineConfig, RealDisk};
use outercore_layout::{BuildOptions, Layout, Method, Scales, build};
use outercore_pipeline::{Ask, Degrees, Features, Precision, RequestConfig, Requests, Sharing};
use outercore_store::dataset::DataSet;
use outercore_store::delta::Delta;
use outercore_store::paged::PagedTopology;
use outercore_testkit::Csc;

const NODES: u64 = 20_000;

/// Nodes and rows of each request.
type Found = Vec<(Vec<u64>, Vec<f32>)>;

fn config(precision: Precision, memory: Bytes) -> RequestConfig {
    RequestConfig {
        features: Some(Features { key: FEATURES.into(), precision }),
        fan_outs: vec![4, 3],
        replace: false,
        most_nodes: 8,
        degrees: Degrees::None,
        memory,
        reserved: Bytes(0),
        growth: Bytes(0),
        threads: 2,
        sharing: Sharing::default(),
    }
}

fn answered(requests: &mut Requests, delta: Option<&Delta>) -> Found {
    let asked: Vec<Vec<u64>> =
        (0..60u64).map(|i| (0..i % 8 + 1).map(|k| i * 613 % NODES + k % 3).collect()).collect();
    let found = Mutex::new(vec![None; asked.len()]);
    let ask = Ask { delta, seed: 7, requests: asked, is_known: &|_| false };
    requests
        .answer(ask, &|place, answer| {
            let nodes: Vec<u64> = answer.sampled.nodes.iter().collect();
            found.lock().unwrap()[place] = Some((nodes, answer.x.to_vec()));
            Ok(())
        })
        .unwrap();
    found.into_inner().unwrap().into_iter().map(Option::unwrap).collect()
}

fn lay_out(data_set: &DataSet, method: Method, precision: Precision) -> DataSet {
    let options = BuildOptions { method, precision, ..BuildOptions::default() };
    build(&RealDisk, data_set, &options, &mut |_, _, _, _| Ok(())).unwrap();
    DataSet::open(data_set.root()).unwrap()
}

fn scales_of(data_set: &DataSet) -> Scales {
    let layout = Layout::open(data_set, FEATURES, Precision::Int8).unwrap().unwrap();
    layout.scales().unwrap().clone()
}

/// The restored values of an `int8` row, from the definition.
fn worth(scales: &Scales, row: &[f32]) -> Vec<f32> {
    let columns = scales.scale().iter().zip(scales.offset()).zip(row);
    let value = |((scale, offset), value): ((&f32, &f32), &f32)| {
        let steps = ((value - offset) / scale).round_ties_even().clamp(-128.0, 127.0);
        offset + scale * steps
    };
    columns.map(value).collect()
}

#[test]
fn another_order_changes_no_bit_and_int8_gives_what_its_steps_stand_for() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::power_law(NODES, 100_000, 1));
    let mut data_set = DataSet::open(directory.path()).unwrap();
    for memory in [Bytes::mib(4), Bytes::mib(64)] {
        let open = |data_set: &DataSet, precision| {
            Requests::open(data_set, &config(precision, memory)).unwrap()
        };
        let expected = answered(&mut open(&data_set, Precision::Exact), None);
        for method in [Method::Degree, Method::Glist, Method::Rcm] {
            data_set = lay_out(&data_set, method, Precision::Exact);
            let mut requests = open(&data_set, Precision::Exact);
            let reserved = requests.plan().reserved;
            assert!(reserved.0 >= 4 * NODES, "the plan counts the table of places: {reserved}");
            assert_eq!(answered(&mut requests, None), expected, "{method}");
            assert_eq!(requests.notice(), None);
        }
        for method in [Method::None, Method::Glist] {
            data_set = lay_out(&data_set, method, Precision::Int8);
            let mut requests = open(&data_set, Precision::Int8);
            let scales = scales_of(&data_set);
            for ((nodes, rows), (expected, _)) in
                answered(&mut requests, None).iter().zip(&expected)
            {
                assert_eq!(nodes, expected);
                let wanted: Vec<f32> = nodes
                    .iter()
                    .flat_map(|&node| worth(&scales, &common::feature_row(node)))
                    .collect();
                assert_eq!(rows, &wanted, "{method}");
            }
        }
        outercore_layout::remove(&RealDisk, &data_set, None).unwrap();
        data_set = DataSet::open(directory.path()).unwrap();
    }
}

#[test]
fn rows_of_int8_take_a_quarter_of_the_memory() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::power_law(NODES, 100_000, 1));
    let data_set = DataSet::open(directory.path()).unwrap();
    let data_set = lay_out(&data_set, Method::None, Precision::Int8);
    let slots = |precision| {
        let requests = Requests::open(&data_set, &config(precision, Bytes::mib(64))).unwrap();
        requests.plan().slots.0 / NODES
    };
    // All rows are in memory; a row of 6 columns takes one word instead of three.
    assert_eq!(slots(Precision::Exact) - slots(Precision::Int8), 16);
}

#[test]
fn changed_rows_are_what_they_will_be_in_the_layout() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::power_law(NODES, 100_000, 1));
    let data_set = DataSet::open(directory.path()).unwrap();
    // The data set accepts updates after the manifest states the number of imported edges.
    let mut manifest = data_set.manifest().clone();
    manifest.edge_types.get_mut("edge").unwrap().rows = Some(data_set.num_edges());
    std::fs::write(directory.path().join("graph.json"), manifest.to_json()).unwrap();
    let data_set = lay_out(&data_set, Method::Degree, Precision::Int8);
    let base = PagedTopology::open(&data_set, EngineConfig::default(), CostModel::default(), false)
        .unwrap();
    let mut delta = Delta::new(&data_set).unwrap();
    // One value within the range of its column, one far beyond it.
    let row: [f32; common::WIDTH] = [17.3, 1e9, -1e9, 0.0, 5.0, 6.0];
    let rows = [(FEATURES.to_owned(), bytemuck::cast_slice(&row).to_vec())].into_iter().collect();
    delta.apply(1, &[Update::UpdateNode { node: 613, rows }], &base).unwrap();
    let mut requests = Requests::open(&data_set, &config(Precision::Int8, Bytes::mib(4))).unwrap();
    let scales = scales_of(&data_set);
    let mut seen = false;
    for (nodes, found) in answered(&mut requests, Some(&delta)) {
        for (node, found) in nodes.iter().zip(found.chunks_exact(common::WIDTH)) {
            let stored = if *node == 613 { row } else { common::feature_row(*node) };
            assert_eq!(found, worth(&scales, &stored), "node {node}");
            seen |= *node == 613;
        }
    }
    assert!(seen);
}

#[test]
fn requests_say_when_they_have_no_int8_layout_and_when_one_is_not_used() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::power_law(1000, 3000, 1));
    let data_set = DataSet::open(directory.path()).unwrap();
    let memory = Bytes::mib(4);
    let error = Requests::open(&data_set, &config(Precision::Int8, memory)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let data_set = lay_out(&data_set, Method::Degree, Precision::Exact);
    // Another program version has rewritten the features.
    let mut manifest = data_set.manifest().clone();
    manifest.arrays.get_mut(FEATURES).unwrap().checksum = outercore_format::Checksum::of(b"new");
    std::fs::write(directory.path().join("graph.json"), manifest.to_json()).unwrap();
    let data_set = DataSet::open(directory.path()).unwrap();
    let requests = Requests::open(&data_set, &config(Precision::Exact, memory)).unwrap();
    assert!(requests.notice().unwrap().contains("stale"));
}
