//! The topology on disk against the conformance suite, on every back end.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use outercore_core::{Bytes, ErrorKind, Stream};
use outercore_io::{Availability, Backend, CostModel, EngineConfig, available_backends};
use outercore_store::dataset::DataSet;
use outercore_store::paged::PagedTopology;
use outercore_store::{Extent, Topology};
use outercore_testkit::{Csc, Width, topology_conformance, write_data_set};

fn config(backend: Backend) -> EngineConfig {
    EngineConfig { backend, staging: Bytes::mib(1), depth: 32, tier: None }
}

fn open(data_set: &DataSet, offsets_resident: bool) -> PagedTopology {
    let config = config(Backend::Threads);
    PagedTopology::open(data_set, config, CostModel::default(), offsets_resident).unwrap()
}

#[test]
fn a_paged_topology_answers_like_its_arrays_on_every_back_end() {
    for (name, graph) in Csc::zoo() {
        for width in [Width::Narrow, Width::Wide] {
            let directory = tempfile::tempdir().unwrap();
            let data_set = write_data_set(directory.path(), &graph, width);
            for Availability { backend, missing } in available_backends() {
                if let Some(why) = missing {
                    println!("{backend} is not offered: {why}");
                    continue;
                }
                for offsets_resident in [false, true] {
                    println!("{name} {width:?} {backend} offsets resident: {offsets_resident}");
                    let cost = CostModel::default();
                    let topology =
                        PagedTopology::open(&data_set, config(backend), cost, offsets_resident);
                    topology_conformance(&topology.unwrap(), &graph);
                }
            }
        }
    }
}

#[test]
fn a_request_larger_than_the_working_memory_is_answered_in_pieces() {
    let graph = Csc::power_law(3000, 40_000, 2);
    let directory = tempfile::tempdir().unwrap();
    let data_set = write_data_set(directory.path(), &graph, Width::Narrow);
    for working in [Bytes(0), Bytes::kib(10)] {
        let topology = open(&data_set, false).with_working_memory(working);
        assert_eq!(topology.memory(), Bytes(Bytes::mib(1).0 + working.0));
        if working.0 > 0 {
            topology_conformance(&topology, &graph);
        } else {
            let mut sources = [0; 3];
            topology.sources(&[7, 39_999, 7], &mut sources).unwrap();
            assert_eq!(sources, [7, 39_999, 7].map(|position| graph.sources[position]));
        }
    }
}

#[test]
fn repeated_and_neighbouring_positions_share_their_reads() {
    let graph = Csc::random(20_000, 100_000, 3);
    let directory = tempfile::tempdir().unwrap();
    let topology = open(&write_data_set(directory.path(), &graph, Width::Narrow), true);
    let before = topology.read_counters();
    let positions: Vec<u64> = (0..100_000).chain(0..100_000).collect();
    topology.sources(&positions, &mut vec![0; positions.len()]).unwrap();
    let after = topology.read_counters();
    assert_eq!(after.useful_bytes - before.useful_bytes, 400_000);
    assert!(after.requests - before.requests < 10, "{after:?}");
    assert!(after.bytes - before.bytes < 450_000, "{after:?}");
}

#[test]
fn several_threads_may_ask_at_once() {
    let graph = Csc::power_law(3000, 40_000, 2);
    let directory = tempfile::tempdir().unwrap();
    let topology = open(&write_data_set(directory.path(), &graph, Width::Wide), false);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (topology, graph) = (&topology, &graph);
            scope.spawn(move || {
                let mut draws = Stream::new(thread, 0).uniform(0, 0, 0);
                for _ in 0..20 {
                    let positions: Vec<u64> = (0..200).map(|_| draws.below(40_000)).collect();
                    let mut sources = vec![0; 200];
                    topology.sources(&positions, &mut sources).unwrap();
                    for (&position, source) in positions.iter().zip(sources) {
                        assert_eq!(source, graph.sources[position as usize]);
                    }
                }
            });
        }
    });
}

/// Overwrites one element of an array of 64-bit ids.
fn damage(root: &Path, key: &str, position: u64, value: u64) {
    let file = OpenOptions::new().write(true).open(root.join(format!("{key}.npy"))).unwrap();
    file.write_all_at(&value.to_le_bytes(), 4096 + position * 8).unwrap();
}

#[test]
fn damaged_elements_are_reported_with_array_and_position() {
    let graph = Csc::random(300, 2500, 1);
    let nodes: Vec<u64> = (0..300).collect();
    let positions: Vec<u64> = (0..2500).collect();
    for (key, position, value, expected) in [
        ("edges/edge/offsets", 17, 0, "array `edges/edge/offsets`: position 17 holds 0"),
        ("edges/edge/offsets", 300, 9999, "array `edges/edge/offsets`: position 300 holds 9999"),
        ("edges/edge/sources", 77, 300, "array `edges/edge/sources`: position 77 holds 300"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let data_set = write_data_set(directory.path(), &graph, Width::Wide);
        damage(directory.path(), key, position, value);
        let topology = open(&data_set, false);
        let extents = topology.extents(&nodes, &mut vec![Extent::default(); 300]);
        let sources = topology.sources(&positions, &mut vec![0; 2500]);
        let error = extents.and(sources).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn a_file_that_was_cut_short_is_reported_with_its_array() {
    let graph = Csc::random(300, 2500, 1);
    let directory = tempfile::tempdir().unwrap();
    let data_set = write_data_set(directory.path(), &graph, Width::Wide);
    let path = directory.path().join("edges/edge/sources.npy");
    let topology = open(&data_set, true);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(9000).unwrap();
    let error = topology.sources(&[2400], &mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().starts_with("array `edges/edge/sources`: "), "{error}");

    let opened =
        PagedTopology::open(&data_set, config(Backend::Threads), CostModel::default(), true);
    let error = opened.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.to_string().contains("its file has 9000 bytes, expected at least 24096"),
        "{error}"
    );
}
