//! Costs of orders, compared with hand-computed numbers and with the numbers of the paper.

use outercore_core::{Bytes, ErrorKind};
use outercore_embed::{
    BucketEdges, OrderConfig, OrderKind, OrderPlan, PlanInput, SwapMode, WalkConfig,
    partition_order, plan_order,
};
use proptest::prelude::*;

/// Twelve nodes of eight bytes, one second per byte read or written, one second per edge, one edge
/// per bucket.
fn slow(partitions: u64) -> PlanInput {
    PlanInput {
        nodes: 12,
        row_bytes: 8,
        partition_bytes: None,
        edges: BucketEdges::Even(partitions * partitions),
        seconds_per_edge: 1.0,
        read_bandwidth: 1.0,
        write_bandwidth: 1.0,
        walks: WalkConfig::default(),
    }
}

fn plan(config: OrderConfig, input: &PlanInput) -> OrderPlan {
    plan_order(&partition_order(&config).unwrap(), input).unwrap()
}

/// The paper's machine: 10^-7 seconds per edge, reads at 3 GB/s, writes at 2 GB/s (Legend 4).
fn legend_s(nodes: u64, edges: u64) -> PlanInput {
    PlanInput {
        nodes,
        row_bytes: 800,
        partition_bytes: None,
        edges: BucketEdges::Even(edges),
        seconds_per_edge: 1e-7,
        read_bandwidth: 3e9,
        write_bandwidth: 2e9,
        walks: WalkConfig::default(),
    }
}

#[test]
fn an_epoch_in_place_adds_up_by_hand() {
    // {0,1,2} {0,3,2} {0,3,4}...: four partitions need three states and two swaps.
    let plan = plan(OrderConfig::new(OrderKind::Optimal, 4, 3), &slow(4));
    assert_eq!(plan.partition_bytes, Bytes(24));
    assert_eq!(plan.memory, Bytes(72));
    assert_eq!((plan.states, plan.swaps, plan.prefetchable), (3, 2, 2));
    assert_eq!((plan.bytes_read, plan.bytes_written), (Bytes(5 * 24), Bytes(5 * 24)));
    assert_eq!(plan.bytes_between, Bytes(2 * 24));
    assert_eq!(plan.compute_seconds, 16.0);
    assert_eq!(plan.swap_seconds, 96.0);
    // Four of the first state's buckets do not need the evicted partition. Of the second state's
    // five, three do not: the loaded partition's own and its two buckets with the partition that
    // stays.
    assert_eq!(plan.stall_seconds, (48.0 - 4.0) + (48.0 - 3.0));
    assert_eq!(plan.epoch_seconds, 16.0 + 44.0 + 45.0);
    assert_eq!(plan.ends_seconds, 3.0 * 48.0);
    assert_eq!(plan.hidden, 0);
}

#[test]
fn an_epoch_with_a_spare_slot_adds_up_by_hand() {
    let config =
        OrderConfig { mode: SwapMode::SpareSlot, ..OrderConfig::new(OrderKind::Beta, 4, 4) };
    let plan = plan(config, &slow(4));
    assert_eq!((plan.swaps, plan.memory), (2, Bytes(96)));
    // The partition that the first swap loads is still in memory. The other write and read take 48
    // seconds, of which training hides 5.
    assert_eq!(plan.stall_seconds, 48.0 - 5.0);
    assert_eq!((plan.bytes_between, plan.bytes_read), (Bytes(24), Bytes(5 * 24)));
}

#[test]
fn a_fast_device_is_hidden_and_a_slow_one_is_not() {
    let config = || OrderConfig::new(OrderKind::Optimal, 12, 3);
    let fast = PlanInput { read_bandwidth: 1e9, write_bandwidth: 1e9, ..slow(12) };
    let fast = plan(config(), &fast);
    assert_eq!((fast.hidden, fast.stall_seconds), (32, 0.0));
    assert!(fast.hiding.holds);
    let slow = plan(config(), &slow(12));
    assert_eq!(slow.hidden, 0);
    assert!(!slow.hiding.holds);
}

/// "With M = 15G and d = 100, the I/O overhead can be completely covered by the computation if
/// |E| / |V|^2 >= 10^-7" (Legend 4): rounded from 1.28.
#[test]
fn theorem_3_gives_the_paper_s_threshold_and_its_two_cases() {
    let nodes = 75_000_000;
    let input = legend_s(nodes, 1);
    let hiding = plan(OrderConfig::new(OrderKind::Legend, 12, 3), &input).hiding;
    let least = hiding.least_density.unwrap();
    assert!((least - 1.28e-7).abs() < 1e-12, "{least}");
    let twitter =
        plan(OrderConfig::new(OrderKind::Legend, 8, 3), &legend_s(41_600_000, 1_460_000_000));
    assert!(twitter.hiding.holds, "{:?}", twitter.hiding);
    let freebase =
        plan(OrderConfig::new(OrderKind::Legend, 12, 3), &legend_s(86_100_000, 304_700_000));
    assert!(!freebase.hiding.holds, "{:?}", freebase.hiding);
}

#[test]
fn where_the_device_is_the_limit_fewer_states_take_less_time() {
    let input = legend_s(86_100_000, 304_700_000);
    let seconds = |kind| plan(OrderConfig::new(kind, 12, 3), &input).epoch_seconds;
    assert!(seconds(OrderKind::Optimal) < seconds(OrderKind::Legend));
    assert!(seconds(OrderKind::Optimal) < seconds(OrderKind::Beta));
}

#[test]
fn two_slots_in_place_hide_nothing_by_theorem_3() {
    let hiding = plan(OrderConfig::new(OrderKind::Optimal, 6, 2), &slow(6)).hiding;
    assert_eq!((hiding.least_density, hiding.holds), (None, false));
}

#[test]
fn what_all_fits_costs_no_swap() {
    let plan = plan(OrderConfig::new(OrderKind::Optimal, 3, 3), &slow(3));
    assert_eq!((plan.swaps, plan.stall_seconds, plan.bytes_between), (0, 0.0, Bytes(0)));
    assert!(plan.hiding.holds);
}

#[test]
fn rates_and_counts_that_make_no_sense_are_refused() {
    let order = partition_order(&OrderConfig::new(OrderKind::Beta, 4, 3)).unwrap();
    let refused = |input: PlanInput| {
        let error = plan_order(&order, &input).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    let error = refused(PlanInput { read_bandwidth: 0.0, ..slow(4) });
    assert!(error.contains("read bandwidth is 0"), "{error}");
    let error = refused(PlanInput { seconds_per_edge: f64::NAN, ..slow(4) });
    assert!(error.contains("seconds per edge is NaN"), "{error}");
    let error = refused(PlanInput { edges: BucketEdges::Counted(vec![1; 9]), ..slow(4) });
    assert!(error.contains("edges of 9 buckets, expected those of 4 x 4"), "{error}");
    assert!(refused(PlanInput { nodes: u64::MAX, ..slow(4) }).contains("more bytes"));
    assert!(refused(PlanInput { nodes: 0, ..slow(4) }).contains("expected nodes"));
    let error = refused(PlanInput { partition_bytes: Some(23), ..slow(4) });
    assert!(error.contains("a partition of 23 bytes, expected the 24 of its nodes"), "{error}");
    let huge = PlanInput { partition_bytes: Some(u64::MAX), ..slow(4) };
    assert!(refused(huge).contains("more bytes"));
}

#[test]
fn what_partitions_have_besides_is_moved_and_has_to_be_hidden_as_well() {
    let order = partition_order(&OrderConfig::new(OrderKind::Optimal, 12, 3)).unwrap();
    let bare = legend_s(12_000, 1_000_000);
    let plan = |partition_bytes| {
        plan_order(&order, &PlanInput { partition_bytes, ..bare.clone() }).unwrap()
    };
    let (none, same, twice) = (plan(None), plan(Some(800_000)), plan(Some(1_600_000)));
    assert_eq!(none, same);
    assert_eq!(twice.bytes_read.0, 2 * none.bytes_read.0);
    assert_eq!(twice.memory.0, 2 * none.memory.0);
    assert_eq!(twice.swap_seconds, 2.0 * none.swap_seconds);
    // A swap takes twice as long, so twice as many edges have to be trained meanwhile.
    let least = |plan: &OrderPlan| plan.hiding.least_density.unwrap();
    assert!((least(&twice) / least(&none) - 2.0).abs() < 1e-9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn counting_evenly_filled_buckets_one_by_one_changes_nothing(
        partitions in 1usize..=24,
        slots in 3usize..=6,
        per_bucket in 0u64..1000,
        spare in any::<bool>(),
    ) {
        let mode = if spare { SwapMode::SpareSlot } else { SwapMode::InPlace };
        let config = OrderConfig { mode, ..OrderConfig::new(OrderKind::Beta, partitions, slots) };
        let buckets = partitions * partitions;
        let even = PlanInput {
            edges: BucketEdges::Even(per_bucket * buckets as u64),
            ..slow(partitions as u64)
        };
        let counted = PlanInput {
            edges: BucketEdges::Counted(vec![per_bucket; buckets]),
            ..even.clone()
        };
        let (even, counted) = (plan(config.clone(), &even), plan(config, &counted));
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
        prop_assert!(close(even.epoch_seconds, counted.epoch_seconds));
        prop_assert!(even.epoch_seconds >= even.compute_seconds);
        prop_assert!(even.stall_seconds <= even.swap_seconds + 1e-9);
    }
}
