use outercore_format::{DType, NpyHeader};
use outercore_io::ProfilePoint;
use outercore_testkit::{Csc, Width, write_data_set};

use super::*;
use crate::features::RowSource;
use crate::seed_list::Input;

#[test]
fn staging_is_a_small_part_of_the_budget_and_never_large() {
    for (budget, expected) in [
        (Bytes(1), Bytes::mib(1)),
        (Bytes::mib(24), Bytes::kib(1536)),
        (Bytes::mib(60), Bytes::mib(2)),
        (Bytes::mib(64), Bytes::mib(4)),
        (Bytes::gib(64), Bytes::mib(8)),
    ] {
        assert_eq!(staging(budget), expected, "budget {budget}");
    }
}

#[test]
fn a_trial_is_a_small_part_of_an_epoch() {
    let tried = [0, 3, 10, 64, 256, 400, 2048, 1 << 20].map(trial_batches);
    assert_eq!(tried, [0, 3, 4, 8, 32, 32, 128, 256]);
}

#[test]
fn the_queue_is_as_deep_as_the_profile_asks_within_bounds() {
    let depth = |latency_s: f64| {
        let read_bytes = Bytes::kib(4);
        let point = ProfilePoint { read_bytes, depth: 64, iops: 1e5, bytes_per_s: 4.096e8 };
        let profile = DeviceProfile {
            version: 1,
            measured: String::new(),
            backend: "uring".into(),
            file_bytes: Bytes::mib(256),
            alignment: 512,
            latency_s,
            points: vec![point],
        };
        reading(&LoaderConfig::default(), Some(&profile), None).depth
    };
    assert_eq!([1e-9, 1e-4, 1.0].map(depth), [32, 190, 512]);
    let default = reading(&LoaderConfig::default(), None, None);
    assert_eq!(default.depth, EngineConfig::default().depth);
}

#[test]
fn visits_are_computed_where_the_topology_leaves_memory_for_them() {
    const NODES: u64 = 100_000;
    let directory = tempfile::tempdir().unwrap();
    let data_set = write_data_set(directory.path(), &Csc::path(NODES), Width::Narrow);
    let features = directory.path().join("x.npy");
    let mut bytes = NpyHeader::encode(DType::F32, &[NODES, 1]);
    bytes.resize(bytes.len() + 4 * NODES as usize, 0);
    std::fs::write(&features, bytes).unwrap();
    // Visits take 1.6 MB. Of 3.6 MiB, a paged topology takes 1.5 and feature reads take 1.
    let budgets = [(Bytes::kib(3600), false), (Bytes::mib(64), true)];
    for topology in [TopologyMode::Paged, TopologyMode::Resident] {
        for (memory, expected) in budgets {
            let config = LoaderConfig {
                fan_outs: vec![2],
                batch_size: 16,
                hotness: Hotness::Visits,
                threads: 1,
                topology,
                memory,
                ..LoaderConfig::default()
            };
            let rows = RowSpace::of_one(RowSource::of_npy(&features, NODES).unwrap());
            let seeds = Input::Nodes(Arc::new((0..1000).collect()));
            let seeds = SeedList::even(seeds, Vec::new(), &config).unwrap();
            let prepared =
                prepare(&data_set, Some(rows), seeds, &config, None, &mut |_, _| Ok(())).unwrap();
            assert_eq!(prepared.heat.is_some(), expected, "{topology:?}, {memory}");
        }
    }
}
