use outercore_io::RowLayout;

use super::*;

/// Each row fills one page.
const PAGE: u64 = 4096;
const ROWS: u64 = 100_000;

/// A tenth of a millisecond per request, and almost nothing for its page.
const COST: CostModel =
    CostModel { seconds_per_request: 1e-4, seconds_per_byte: 1e-9, granule: 4096 };

/// Eight batches of ten rows each, none shared, too far apart for common reads.
fn trial() -> Trial {
    let batch = |number: u64| (0..10).map(|row| (number * 10 + row) * 512).collect();
    Trial { batches: (0..8).map(batch).collect(), nodes: 10, ..Trial::default() }
}

/// A plan with a budget of `slots` slots in addition to the memory of a group of eight.
fn plan(trial: &Trial, slots: u64, pause_s: f64, group: Option<u32>) -> Result<MemoryPlan> {
    let layout = RowLayout { base: 0, stride: PAGE, file_len: ROWS * PAGE };
    let rows = [PlannedPart { nodes: 0..ROWS, layout, places: None }];
    // 16 bytes per node of a batch: twice assembled, three times sampled; 32 bytes during sampling.
    let (assembled, in_flight) = (2 * 160, 8 * (3 * 160 + 320));
    MemoryPlan::new(&PlanInput {
        budget: Bytes(assembled + in_flight + slots * (PAGE + SLOT_OVERHEAD)),
        reserved: Bytes(0),
        topology: plan_topology(
            TopologyMode::Resident,
            TopologySize::default(),
            Bytes(0),
            Bytes(0),
            Bytes(0),
        )
        .unwrap(),
        staging: Bytes(0),
        rows: Some(&rows),
        slot_bytes: Bytes(PAGE),
        edge_ids: false,
        arrays: ArraysPlan::default(),
        look_ahead: 0,
        group,
        constant_share: None,
        trial,
        cost: &COST,
        pause_s,
        max_read: Bytes::mib(1),
        depth: 64,
        far: None,
    })
}

#[test]
fn batches_are_merged_until_the_pause_between_groups_is_small() {
    let split = plan(&trial(), 1000, 3e-3, None).unwrap().split;
    assert_eq!(split.group, 8);
    // Ten reads of 0.1041 ms per batch; a pause of 3 ms for all eight.
    let reading = 10.0 * (1e-4 + 4096e-9);
    assert!((split.seconds_per_batch - (reading + 3e-3 / 8.0)).abs() < 1e-12, "{split:?}");
    assert_eq!(split.requests_per_batch, 10.0);
    let alone = plan(&trial(), 1000, 3e-3, Some(1)).unwrap().split;
    assert!((alone.seconds_per_batch - (reading + 3e-3)).abs() < 1e-12, "{alone:?}");
    // Without a pause, one batch per group is as good as several.
    assert_eq!(plan(&trial(), 1000, 0.0, None).unwrap().split.group, 1);
}

#[test]
fn what_the_cache_absorbs_makes_larger_groups() {
    // Nine of ten rows are hot: a single batch reads for 0.1 ms and pauses for as long.
    let mut seen = trial();
    seen.hot = seen.batches.iter().flat_map(|batch| batch[..9].to_vec()).collect();
    let of = |trial: &Trial, group| plan(trial, 200, 1e-4, Some(group)).unwrap().split;
    let seconds = |split: Split, expected: f64| (split.seconds_per_batch - expected).abs() < 1e-12;
    assert!(seconds(of(&trial(), 1), 10.0 * 1.04096e-4 + 1e-4));
    let absorbed = of(&seen, 1);
    // A fifth of 201 slots holds the hot rows of the first batch.
    assert_eq!((absorbed.misses_per_batch, absorbed.constant_slots), (1.0, 40));
    assert!(seconds(absorbed, 2.04096e-4), "{absorbed:?}");
    assert_eq!(plan(&seen, 200, 1e-4, None).unwrap().split.group, 8);
}

#[test]
fn memory_bounds_the_group() {
    // Two groups are in memory at the same time, with a slack of a twentieth: 21 slots per batch.
    for (slots, group) in [(21, 1), (42, 2), (100, 4), (168, 8)] {
        assert_eq!(plan(&trial(), slots, 3e-3, None).unwrap().split.group, group, "{slots} slots");
    }
    // The memory that smaller groups leave free adds a few slots.
    assert_eq!(plan(&trial(), 5, 3e-3, None).unwrap_err().kind(), ErrorKind::Budget);
}
