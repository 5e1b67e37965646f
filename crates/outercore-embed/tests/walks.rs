//! Epochs of several walks: every triple is trained once, renaming moves nothing extra, plans
//! predict the moved bytes, and the result has the same bits as with everything in memory.

mod common;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use common::{Naive, Table, train};
use outercore_core::{Bytes, ErrorKind};
use outercore_embed::{
    BucketEdges, Order, OrderConfig, OrderKind, OrderPlan, PlanInput, PoolReader, Share, SwapMode,
    TriplePool, Visit, Walk, WalkConfig, Walks, partition_order, plan_order,
};
use outercore_io::RealDisk;
use proptest::prelude::*;

/// Each way to mix, separately and combined.
fn ways() -> Vec<WalkConfig> {
    let none = WalkConfig { seed: 5, ..WalkConfig::default() };
    vec![
        WalkConfig { sweeps: 3, ..none },
        WalkConfig { spread: true, ..none },
        WalkConfig { rename: true, ..none },
        WalkConfig { in_turn: true, ..none },
        WalkConfig { sweeps: 2, spread: true, rename: true, ..none },
        WalkConfig { sweeps: 2, spread: true, rename: true, in_turn: true, ..none },
        WalkConfig { sweeps: 2, spread: true, ..none },
        WalkConfig { sweeps: 2, rename: true, ..none },
        WalkConfig { rename: true, group: 3, ..none },
        WalkConfig { sweeps: 2, spread: true, rename: true, group: 2, ..none },
        WalkConfig { spread: true, rename: true, in_turn: true, group: 4, ..none },
    ]
}

fn orders() -> Vec<OrderConfig> {
    let spare = |kind, partitions, slots| OrderConfig {
        mode: SwapMode::SpareSlot,
        ..OrderConfig::new(kind, partitions, slots)
    };
    vec![
        OrderConfig::new(OrderKind::Optimal, 6, 3),
        OrderConfig::new(OrderKind::Optimal, 5, 2),
        OrderConfig::new(OrderKind::Cover, 16, 4),
        OrderConfig::new(OrderKind::Optimal, 1, 1),
        spare(OrderKind::Optimal, 6, 4),
        spare(OrderKind::Optimal, 7, 3),
        spare(OrderKind::Beta, 5, 3),
        spare(OrderKind::Optimal, 3, 4),
    ]
}

fn sorted(mut some: Vec<usize>) -> Vec<usize> {
    some.sort_unstable();
    some
}

/// Checks that a walk loads, group by group, exactly the partitions of its states, and that every
/// bucket appears once, in the first state that allows it.
fn follow_walk(walk: &Walk, order: &Order, config: WalkConfig) -> Result<(), TestCaseError> {
    let group = config.group as usize;
    prop_assert_eq!(walk.states.len(), order.states.len());
    let mut there = sorted(walk.states[0].resident.clone());
    let mut seen = HashSet::new();
    for (index, state) in walk.states.iter().enumerate() {
        prop_assert_eq!(state.swaps.len(), if index == 0 { 0 } else { group });
        for swap in &state.swaps {
            prop_assert!(there.contains(&swap.evicted) && !there.contains(&swap.loaded));
            there.retain(|&partition| partition != swap.evicted);
            there.push(swap.loaded);
        }
        there.sort_unstable();
        prop_assert_eq!(&there, &sorted(state.resident.clone()));
        for bucket in &state.buckets {
            prop_assert!(there.contains(&bucket.source) && there.contains(&bucket.target));
            prop_assert!(seen.insert(*bucket), "{:?} twice", bucket);
        }
    }
    prop_assert_eq!(seen.len(), (order.partitions * group).pow(2));
    Ok(())
}

/// Follows two epochs of walks and checks their promises.
fn follow(order: &Order, config: WalkConfig) -> Result<(), TestCaseError> {
    let mut walks = Walks::new(order.clone(), config).unwrap();
    let sweeps = u64::from(config.sweeps);
    let mut before: Option<Walk> = None;
    for walk in 0..2 * sweeps {
        let this = walks.walk(walk).clone();
        // Walks may be requested in any order, as a reopened run does.
        let mut others = Walks::new(order.clone(), config).unwrap();
        prop_assert_eq!(others.walk(walk), &this);
        follow_walk(&this, order, config)?;
        if let Some(before) = before {
            let last = before.states.last().unwrap();
            let there = sorted(last.resident.clone());
            prop_assert_eq!(&there, &sorted(this.states[0].resident.clone()), "walk {}", walk);
            if order.mode == SwapMode::SpareSlot {
                let left = last.swaps.iter().map(|swap| swap.evicted).collect();
                let loaded = this.swaps_after(0).iter().map(|swap| swap.loaded).collect();
                prop_assert_eq!(sorted(left), sorted(loaded));
            }
        }
        before = Some(this);
    }
    let partitions = walks.partitions();
    for epoch in 0..2 {
        let mut visits = walks.epoch(epoch);
        let mut trained = vec![HashSet::new(); partitions * partitions];
        let counts: Vec<u64> = (0..trained.len() as u64).map(|at| at * 7 % 31).collect();
        for index in 0..walks.states() {
            let (number, state) = walks.place_of(epoch, index);
            let walk = walks.walk(number).clone();
            let next = walk.swaps_after(state);
            let found = visits.state(&walk, state);
            for (side, held) in [(&found.before_swap, true), (&found.during_swap, false)] {
                for (bucket, share) in side {
                    let there = &walk.states[state].resident;
                    prop_assert!(there.contains(&bucket.source) && there.contains(&bucket.target));
                    let leaves = next.iter().any(|next| bucket.needs(next.evicted));
                    let needed = next.is_empty() || leaves;
                    prop_assert_eq!(held, config.in_turn || needed);
                    let at = bucket.source * partitions + bucket.target;
                    let places: Vec<u64> = share.places(counts[at]).collect();
                    prop_assert_eq!(places.len() as u64, share.count(counts[at]));
                    for place in places {
                        prop_assert!(trained[at].insert(place), "{:?} {} twice", bucket, place);
                    }
                }
            }
        }
        for (found, count) in trained.iter().zip(counts) {
            prop_assert_eq!(found.len() as u64, count);
            prop_assert!(found.iter().all(|place| *place < count));
        }
    }
    Ok(())
}

#[test]
fn every_way_to_walk_every_order_trains_each_triple_once_an_epoch() {
    for order in orders() {
        let order = partition_order(&order).unwrap();
        for config in ways() {
            follow(&order, config).unwrap_or_else(|error| panic!("{config:?}: {error}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_walk_trains_each_triple_once_an_epoch(
        partitions in 1usize..12, slots in 2usize..6, spare: bool, sweeps in 1u32..5,
        spread: bool, rename: bool, in_turn: bool, group in 1u32..4, seed: u64,
    ) {
        let mode = if spare { SwapMode::SpareSlot } else { SwapMode::InPlace };
        let slots = slots + usize::from(spare);
        let config = OrderConfig { mode, ..OrderConfig::new(OrderKind::Beta, partitions, slots) };
        let group = if rename { group } else { 1 };
        let walks = WalkConfig { sweeps, spread, rename, in_turn, group, seed };
        follow(&partition_order(&config).unwrap(), walks)?;
    }

    #[test]
    fn parts_are_alike_and_differ_from_deal_to_deal(count in 0u64..2000, of in 2u32..40, seed: u64) {
        let parts: Vec<Vec<u64>> =
            (0..of).map(|part| Share { part, of, seed }.places(count).collect()).collect();
        let sizes = || parts.iter().map(|part| part.len() as u64);
        prop_assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
        let mut all = parts.concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
        let other = Share { part: 0, of, seed: seed ^ 1 };
        prop_assert!(count < 200 || other.places(count).collect::<Vec<_>>() != parts[0]);
    }
}

#[test]
fn epochs_of_several_walks_give_the_bits_of_those_in_memory() {
    for order in orders() {
        for walks in ways() {
            let directory = tempfile::tempdir().unwrap();
            let table = Table::walked(&order, walks, 2);
            let mut naive = Naive::new(&table);
            table.create(Arc::new(RealDisk), directory.path()).unwrap();
            let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
            let mut buckets = table.buckets(directory.path());
            for epoch in 0..2 {
                if epoch == 1 {
                    buckets.keep_all().unwrap();
                }
                table.train_epoch(&mut executor, &mut buckets, &mut |_| false).unwrap();
                naive.train_epoch(&table, epoch);
                let found = table.numbers(&mut executor);
                assert!(found == naive.embeddings(&table), "{order:?} {walks:?} {epoch}");
            }
        }
    }
}

#[test]
fn what_is_trained_elsewhere_may_come_back_when_it_leaves() {
    let published = [(OrderKind::Legend, 8, 3), (OrderKind::Beta, 7, 4)];
    let published =
        published.map(|(kind, partitions, slots)| OrderConfig::new(kind, partitions, slots));
    for order in orders().into_iter().chain(published) {
        for walks in ways().into_iter().chain([WalkConfig::default()]) {
            let directory = tempfile::tempdir().unwrap();
            let table = Table::walked(&order, walks, 2);
            let mut naive = Naive::new(&table);
            table.create(Arc::new(RealDisk), directory.path()).unwrap();
            let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
            let mut buckets = table.buckets(directory.path());
            let mut relation = common::relation_of(&executor);
            for epoch in 0..2 {
                // Copies that are trained instead of the slots, whose content must not matter.
                let mut elsewhere: HashMap<usize, (Vec<f32>, Vec<f32>)> = HashMap::new();
                while let Some(step) = executor.advance().unwrap() {
                    for (partition, rows, state) in executor.partitions_mut() {
                        if let Some((trained, its_state)) = elsewhere.remove(&partition) {
                            rows.copy_from_slice(&trained);
                            state.copy_from_slice(&its_state);
                        }
                    }
                    assert!(elsewhere.is_empty(), "{order:?} {walks:?} {step:?}");
                    train(&mut executor, &mut buckets, &step, &mut relation);
                    for (partition, rows, state) in executor.partitions_mut() {
                        if !step.leaving.contains(&partition) {
                            elsewhere.insert(partition, (rows.to_vec(), state.to_vec()));
                            rows.fill(f32::NAN);
                            state.fill(f32::NAN);
                        }
                    }
                }
                assert!(elsewhere.is_empty(), "{order:?} {walks:?}");
                naive.train_epoch(&table, epoch);
                let found = table.numbers(&mut executor);
                assert!(found == naive.embeddings(&table), "{order:?} {walks:?} {epoch}");
            }
        }
    }
}

#[test]
fn a_run_of_several_walks_goes_on_exactly_from_any_state() {
    for order in orders() {
        for walks in ways() {
            let directory = tempfile::tempdir().unwrap();
            let table = Table::walked(&order, walks, 1);
            let mut naive = Naive::new(&table);
            naive.train_epoch(&table, 0);
            naive.train_epoch(&table, 1);
            table.create(Arc::new(RealDisk), directory.path()).unwrap();
            let mut buckets = table.buckets(directory.path());
            let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
            // After every fifth ended state, all uncommitted work is dropped.
            while executor.position().epoch < 2 {
                let mut relation = common::relation_of(&executor);
                let mut states = 0;
                while let Some(step) = executor.advance().unwrap() {
                    train(&mut executor, &mut buckets, &step, &mut relation);
                    states += usize::from(step.ends_state);
                    if step.ends_state && states == 4 {
                        executor.commit(&relation.to_le_bytes()).unwrap();
                    }
                    if states == 5 {
                        break;
                    }
                }
                if states < 4 {
                    executor.commit(&relation.to_le_bytes()).unwrap();
                }
                drop(executor);
                executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
            }
            let found = table.numbers(&mut executor);
            assert!(found == naive.embeddings(&table), "{order:?} {walks:?}");
        }
    }
}

fn plan_of(table: &Table, edges: BucketEdges, partition_bytes: Option<u64>) -> OrderPlan {
    let input = PlanInput {
        nodes: table.layout.partitioning().nodes(),
        row_bytes: (table.layout.dim() + table.layout.state_width()) as u64 * 4,
        partition_bytes,
        edges,
        seconds_per_edge: 1e-6,
        read_bandwidth: 1e9,
        write_bandwidth: 1e9,
        walks: table.walks,
    };
    plan_order(&table.order, &input).unwrap()
}

#[test]
fn bytes_and_triples_that_walks_move_are_those_of_the_plan() {
    for mode in [SwapMode::InPlace, SwapMode::SpareSlot] {
        for walks in [vec![WalkConfig::default()], ways()].concat() {
            let slots = if mode == SwapMode::InPlace { 3 } else { 4 };
            let order = OrderConfig { mode, ..OrderConfig::new(OrderKind::Optimal, 8, slots) };
            // Partitions of whole pages, and partitions with padding rows.
            let nodes = 8 * 512 * u64::from(walks.group);
            moves_what_is_planned(&Table::shaped(&order, walks, nodes, 6, 2, 1), None);
            let table = Table::shaped(&order, walks, nodes - 1_500, 6, 2, 1);
            let bytes = u64::from(walks.group) * table.layout.partition_bytes().0;
            moves_what_is_planned(&table, Some(bytes));
        }
    }
}

fn moves_what_is_planned(table: &Table, partition_bytes: Option<u64>) {
    let directory = tempfile::tempdir().unwrap();
    let walks = table.walks;
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let buckets = table.buckets(directory.path());
    // With groups, the counts of buckets are not known in advance.
    let edges = if walks.group == 1 { buckets.counts().edges() } else { BucketEdges::Even(400) };
    let plan = plan_of(table, edges, partition_bytes);
    assert_eq!(plan.partition_bytes.0, u64::from(walks.group) * table.layout.partition_bytes().0);
    let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    let mut before = executor.counters();
    let mut steps = 0;
    for epoch in 0..3 {
        let mut triples = 0;
        while let Some(step) = executor.advance().unwrap() {
            steps += u64::from(step.ends_state);
            triples += step.buckets.iter().map(|&b| buckets.count(b)).sum::<u64>();
        }
        let after = executor.counters();
        let read = after.bytes_read - before.bytes_read;
        let written = after.bytes_written - before.bytes_written;
        let between = plan.bytes_between.0;
        // With a spare slot, the partition that leaves last is written by the first swap of the
        // epoch after the next. The very first epoch loads every partition that it needs.
        assert_eq!(read, if epoch == 0 { plan.bytes_read.0 } else { between }, "{plan:?}");
        assert_eq!(written, between, "{epoch} {plan:?}");
        assert_eq!(steps, (epoch + 1) * plan.states as u64);
        if !walks.rename {
            assert_eq!(triples, plan.triples_read);
        }
        before = after;
    }
    executor.commit(b"").unwrap();
    let left = executor.counters().bytes_written - before.bytes_written;
    assert_eq!(left, plan.bytes_written.0 - plan.bytes_between.0);
}

#[test]
fn sweeps_move_as_often_and_spread_buckets_even_out_the_pools() {
    let config = OrderConfig::new(OrderKind::Optimal, 12, 4);
    let plan = |walks| {
        let table = Table::shaped(&config, walks, 12 * 512, 6, 2, 1);
        plan_of(&table, BucketEdges::Even(144_000), None)
    };
    let once = plan(WalkConfig::default());
    let four = plan(WalkConfig { sweeps: 4, ..WalkConfig::default() });
    assert_eq!(four.bytes_between, Bytes(4 * once.bytes_between.0));
    assert_eq!((four.states, four.swaps), (4 * once.states, 4 * once.swaps));
    assert_eq!(four.triples_read, 4 * once.triples_read);
    assert_eq!(once.triples_read, 144_000);
    assert!((four.compute_seconds - once.compute_seconds).abs() < 1e-12);
    let density = |plan: &OrderPlan| plan.hiding.least_density.unwrap();
    assert!((density(&four) / density(&once) - 4.0).abs() < 1e-9);
    let spread = plan(WalkConfig { spread: true, ..WalkConfig::default() });
    assert_eq!(spread.bytes_between, once.bytes_between);
    assert_eq!(spread.prefetchable, spread.swaps);
    assert!(spread.triples_read > once.triples_read);
}

#[test]
fn in_turn_a_state_is_one_pool_and_nothing_hides_its_swap() {
    let walks = |in_turn| WalkConfig { spread: true, in_turn, ..WalkConfig::default() };
    for slots in [2, 3] {
        let config = OrderConfig::new(OrderKind::Optimal, 8, slots);
        let table = |in_turn| Table::shaped(&config, walks(in_turn), 8 * 512, 6, 2, 1);
        let (meanwhile, in_turn) =
            [false, true].map(|turn| plan_of(&table(turn), BucketEdges::Even(64_000), None)).into();
        assert_eq!(in_turn.bytes_between, meanwhile.bytes_between);
        assert_eq!((in_turn.prefetchable, in_turn.hidden), (0, 0));
        assert!((in_turn.stall_seconds - in_turn.swap_seconds).abs() < 1e-12);
        assert!(!in_turn.hiding.holds && in_turn.hiding.least_density.is_none());

        let directory = tempfile::tempdir().unwrap();
        let table = table(true);
        table.create(Arc::new(RealDisk), directory.path()).unwrap();
        let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
        let mut steps = 0;
        while let Some(step) = executor.advance().unwrap() {
            assert!(step.ends_state);
            assert_eq!((step.buckets.len(), step.resident.len()), (slots * slots, slots));
            steps += 1;
        }
        assert_eq!(steps, in_turn.states);
    }
}

#[test]
fn no_pool_is_larger_than_the_room_for_it() {
    for order in orders() {
        for walks in [vec![WalkConfig::default()], ways()].concat() {
            let directory = tempfile::tempdir().unwrap();
            let table = Table::walked(&order, walks, 0);
            table.create(Arc::new(RealDisk), directory.path()).unwrap();
            let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
            let mut buckets = table.buckets(directory.path());
            let config = Walks::new(table.order.clone(), walks).unwrap();
            let room = buckets.largest_pool(&config).most;
            let mut pool = TriplePool::default();
            for _ in 0..4 {
                let mut all = 0;
                while let Some(step) = executor.advance().unwrap() {
                    buckets.read(&step, table.layout.slot_rows(), &mut pool).unwrap();
                    all += pool.triples.len();
                    assert!(pool.triples.len() as u64 <= room, "{order:?} {walks:?}");
                }
                assert_eq!(all, table.triples.len());
            }
        }
    }
}

#[test]
fn every_step_is_known_ahead_and_so_are_its_triples() {
    for order in orders() {
        for walks in [vec![WalkConfig::default()], ways()].concat() {
            let directory = tempfile::tempdir().unwrap();
            let table = Table::walked(&order, walks, 0);
            table.create(Arc::new(RealDisk), directory.path()).unwrap();
            let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
            let slot_rows = table.layout.slot_rows();
            let mut buckets = table.buckets(directory.path());
            let mut pools = PoolReader::new(table.buckets(directory.path())).unwrap();
            let (mut expected, mut steps) = (TriplePool::default(), 0);
            for _ in 0..3 {
                // The upcoming visits must be known in advance.
                let mut upcoming: Option<Vec<Visit>> = executor.upcoming().map(<[_]>::to_vec);
                while let Some(step) = executor.advance().unwrap() {
                    let visits: Vec<Visit> =
                        step.buckets.iter().copied().zip(step.shares.iter().copied()).collect();
                    assert_eq!(upcoming.as_ref(), Some(&visits), "{order:?} {walks:?}");
                    buckets.read(&step, slot_rows, &mut expected).unwrap();
                    assert_eq!(*pools.read(&step, slot_rows).unwrap(), expected);
                    steps += 1;
                    // Reopened within an epoch, and moved on by a commit.
                    if step.ends_state && steps % 3 == 0 {
                        executor.commit(&1.0f32.to_le_bytes()).unwrap();
                    }
                    if step.ends_state && steps == 9 {
                        drop(executor);
                        executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
                    }
                    upcoming = executor.upcoming().map(<[_]>::to_vec);
                    assert_eq!(executor.upcoming(), upcoming.as_deref());
                    if let Some(visits) = upcoming.clone() {
                        pools.begin(visits).unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn no_sweep_and_too_many_are_refused() {
    let order = partition_order(&OrderConfig::new(OrderKind::Beta, 5, 3)).unwrap();
    for sweeps in [0, 1025] {
        let config = WalkConfig { sweeps, ..WalkConfig::default() };
        let error = Walks::new(order.clone(), config).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("expected 1 to 1024"), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let table = Table::walked(&OrderConfig::new(OrderKind::Beta, 5, 3), config, 0);
        assert!(table.create(Arc::new(RealDisk), directory.path()).is_err());
    }
}

#[test]
fn groups_need_members_that_change_and_a_table_of_their_partitions() {
    let order = OrderConfig::new(OrderKind::Beta, 5, 3);
    let walks = WalkConfig { rename: true, group: 2, ..WalkConfig::default() };
    for (group, rename, expected) in
        [(0, true, "expected 1 to 512"), (513, true, "expected 1 to 512"), (2, false, "keep")]
    {
        let config = WalkConfig { group, rename, ..walks };
        let error = Walks::new(partition_order(&order).unwrap(), config).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    let table = Table { walks, ..Table::new(&order, 0) };
    let error = table.create(Arc::new(RealDisk), directory.path()).unwrap_err().to_string();
    assert!(error.contains("an order of 10 partitions for a table of 5"), "{error}");
}

#[test]
fn groups_change_from_walk_to_walk() {
    let order = partition_order(&OrderConfig::new(OrderKind::Optimal, 8, 3)).unwrap();
    let config = WalkConfig { rename: true, group: 4, seed: 3, ..WalkConfig::default() };
    let mut walks = Walks::new(order, config).unwrap();
    // Count the pairs of partitions that are in the same group in two walks.
    let pairs = |walk: &Walk| -> HashSet<(usize, usize)> {
        let groups = walk.states.iter().flat_map(|state| state.resident.chunks(4));
        let pairs = groups.flat_map(|group| group.iter().map(move |&one| (group, one)));
        pairs.flat_map(|(group, one)| group.iter().map(move |&other| (one, other))).collect()
    };
    let first = pairs(&walks.walk(0).clone());
    assert_eq!(first.len(), 8 * 16);
    let second = pairs(&walks.walk(1).clone());
    let kept = second.intersection(&first).filter(|(one, other)| one != other).count();
    // Three groups of twelve pairs stay in memory; few pairs of the other groups meet again.
    assert!((36..60).contains(&kept), "{kept}");
    let tenth = pairs(&walks.walk(10).clone());
    let kept = tenth.intersection(&first).filter(|(one, other)| one != other).count();
    assert!(kept < 24, "{kept}");
}

#[test]
fn a_table_of_another_version_is_refused() {
    let table = Table::new(&OrderConfig::new(OrderKind::Optimal, 5, 3), 1);
    let directory = tempfile::tempdir().unwrap();
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let path = directory.path().join("journal.json");
    let text = std::fs::read_to_string(&path).unwrap();
    for version in [3, 5] {
        let other = text.replace("\"version\":4", &format!("\"version\":{version}"));
        std::fs::write(&path, other).unwrap();
        let error = table.open(Arc::new(RealDisk), directory.path()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Version, "{error}");
    }
}
