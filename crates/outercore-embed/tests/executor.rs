//! The executor compared with everything in memory; budgets and wrong input.

mod common;

use std::sync::Arc;

use common::{Naive, Table, engine, train};
use outercore_core::{Bytes, ErrorKind};
use outercore_embed::{
    Bucket, Buckets, Executor, OrderConfig, OrderKind, PlanInput, SwapMode, WalkConfig, Walks,
    partition_order, plan_memory, plan_order,
};
use outercore_io::{EngineConfig, RealDisk};
use proptest::prelude::*;

/// Every kind of order, in place and with a spare slot.
fn orders() -> Vec<OrderConfig> {
    let mut configs = Vec::new();
    for mode in [SwapMode::InPlace, SwapMode::SpareSlot] {
        for (kind, partitions, slots) in [
            (OrderKind::Optimal, 6, 3),
            (OrderKind::Legend, 8, 3),
            (OrderKind::Beta, 7, 4),
            (OrderKind::Cover, 16, 4),
            (OrderKind::Beta, 5, 2),
            (OrderKind::Optimal, 2, 3),
            (OrderKind::Optimal, 1, 1),
        ] {
            let slots = slots + usize::from(mode == SwapMode::SpareSlot);
            configs.push(OrderConfig { mode, ..OrderConfig::new(kind, partitions, slots) });
        }
    }
    configs
}

#[test]
fn an_epoch_in_partitions_gives_the_bits_of_one_in_memory() {
    for config in orders() {
        let directory = tempfile::tempdir().unwrap();
        let table = Table::new(&config, 3);
        let mut naive = Naive::new(&table);
        table.create(Arc::new(RealDisk), directory.path()).unwrap();
        let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
        let mut buckets = table.buckets(directory.path());
        for epoch in 0..3 {
            table.train_epoch(&mut executor, &mut buckets, &mut |_| false).unwrap();
            naive.train_epoch(&table, epoch);
            assert_eq!(
                table.numbers(&mut executor),
                naive.embeddings(&table),
                "{config:?} {epoch}"
            );
        }
        executor.commit(b"").unwrap();
        drop(executor);
        let mut again = table.open(Arc::new(RealDisk), directory.path()).unwrap();
        assert_eq!(table.numbers(&mut again), naive.embeddings(&table), "{config:?}");
    }
}

#[test]
fn one_partition_in_one_slot_needs_no_spare_one() {
    let config =
        OrderConfig { mode: SwapMode::SpareSlot, ..OrderConfig::new(OrderKind::Optimal, 1, 1) };
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(&config, 0);
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    assert_eq!(executor.advance().unwrap().unwrap().resident.len(), 1);
    assert_eq!(executor.advance().unwrap(), None);
}

#[test]
fn bytes_moved_are_those_that_the_order_says() {
    for mode in [SwapMode::InPlace, SwapMode::SpareSlot] {
        let slots = if mode == SwapMode::InPlace { 3 } else { 4 };
        let config = OrderConfig { mode, ..OrderConfig::new(OrderKind::Optimal, 8, slots) };
        let directory = tempfile::tempdir().unwrap();
        let table = Table::new(&config, 1);
        table.create(Arc::new(RealDisk), directory.path()).unwrap();
        let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
        let swaps = executor.order(0).swaps() as u64;
        let each = table.layout.partition_bytes().0;
        // With a spare slot, the partition that left last is still in memory when the next epoch
        // loads it first. The partition that leaves last is not yet written.
        let spared = u64::from(mode == SwapMode::SpareSlot);
        let (mut loads, mut stores) = (3, 0);
        for epoch in 0..3 {
            while executor.advance().unwrap().is_some() {}
            loads += swaps - if epoch > 0 { spared } else { 0 };
            stores += swaps - spared;
            let counters = executor.counters();
            assert_eq!((counters.loads, counters.stores), (loads, stores), "{mode:?} {epoch}");
            assert_eq!(counters.bytes_read, loads * each);
            assert_eq!(counters.bytes_written, stores * each);
        }
        executor.commit(b"").unwrap();
        assert_eq!(executor.counters().stores, stores + 3 + spared);
        assert_eq!(executor.counters().states, 3 * (swaps + 1));
        assert!((0.0..=1.0).contains(&executor.counters().hidden()));
    }
}

#[test]
fn bytes_moved_between_two_epochs_are_those_of_the_plan() {
    let config = OrderConfig::new(OrderKind::Optimal, 8, 3);
    let directory = tempfile::tempdir().unwrap();
    // Partitions of whole pages, so that there are no padding rows.
    let table = Table::shaped(&config, WalkConfig::default(), 8 * 512, 6, 2, 1);
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let buckets = table.buckets(directory.path());
    let plan = plan_order(
        &table.order,
        &PlanInput {
            nodes: 8 * 512,
            row_bytes: (6 + 2) * 4,
            partition_bytes: None,
            edges: buckets.counts().edges(),
            seconds_per_edge: 1e-6,
            read_bandwidth: 1e9,
            write_bandwidth: 1e9,
            walks: WalkConfig::default(),
        },
    )
    .unwrap();
    assert_eq!(plan.partition_bytes, table.layout.partition_bytes());
    let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    while executor.advance().unwrap().is_some() {}
    let before = executor.counters();
    assert_eq!(before.bytes_read, plan.bytes_read.0);
    while executor.advance().unwrap().is_some() {}
    let after = executor.counters();
    assert_eq!(after.bytes_read - before.bytes_read, plan.bytes_between.0);
    assert_eq!(after.bytes_written - before.bytes_written, plan.bytes_between.0);
}

#[test]
fn a_step_names_neither_the_partition_in_flight_nor_a_bucket_twice() {
    for config in orders() {
        let directory = tempfile::tempdir().unwrap();
        let table = Table::new(&config, 0);
        table.create(Arc::new(RealDisk), directory.path()).unwrap();
        let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
        for epoch in 0..2 {
            let mut seen = Vec::new();
            let mut numbers = Vec::new();
            while let Some(step) = executor.advance().unwrap() {
                assert_eq!(step.epoch, epoch);
                let there: Vec<usize> = step.resident.iter().map(|r| r.partition).collect();
                let given: Vec<usize> =
                    executor.partitions_mut().iter().map(|(partition, ..)| *partition).collect();
                assert_eq!(given, there);
                for &Bucket { source, target } in &step.buckets {
                    assert!(there.contains(&source) && there.contains(&target), "{step:?}");
                }
                let order = executor.order(epoch);
                let state = &order.states[step.state];
                let in_flight = state.during_swap() == step.buckets
                    && config.mode == SwapMode::InPlace
                    && step.state + 1 < order.states.len();
                if in_flight {
                    let gone = order.states[step.state + 1].swap.unwrap().evicted;
                    assert!(!there.contains(&gone), "{step:?}");
                } else {
                    assert_eq!(there, state.resident);
                }
                seen.extend(step.buckets);
                numbers.push(step.number);
            }
            seen.sort_unstable();
            let partitions = config.partitions;
            let all: Vec<Bucket> = (0..partitions * partitions)
                .map(|b| Bucket { source: b / partitions, target: b % partitions })
                .collect();
            assert_eq!(seen, all, "{config:?}");
            assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        }
    }
}

#[test]
fn every_budget_from_the_least_up_gives_the_same_bits() {
    let config = OrderConfig::new(OrderKind::Optimal, 6, 3);
    let table = Table::new(&config, 2);
    let order = partition_order(&config).unwrap();
    let walks = Walks::new(order, WalkConfig::default()).unwrap();
    let mut found = Vec::new();
    let least = {
        let directory = tempfile::tempdir().unwrap();
        let buckets = table.buckets(directory.path());
        let error = plan_memory(&table.layout, &walks, &buckets, Bytes(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        let text = error.to_string();
        let (_, least) = text.split_once("which is ").unwrap();
        least.split_once(" bytes").unwrap().0.parse::<u64>().unwrap()
    };
    let mut kept = Vec::new();
    for memory in [least, least + 4096, least + 10_000, least + (1 << 20), least + (64 << 20)] {
        let directory = tempfile::tempdir().unwrap();
        table.create(Arc::new(RealDisk), directory.path()).unwrap();
        let mut buckets = table.buckets(directory.path());
        let plan = plan_memory(&table.layout, &walks, &buckets, Bytes(memory)).unwrap();
        assert!(plan.total().0 <= memory, "{plan:?}");
        if plan.keeps_triples() {
            buckets.keep_all().unwrap();
        }
        kept.push(plan.keeps_triples());
        let config = EngineConfig { staging: plan.staging, depth: 8, ..EngineConfig::default() };
        let disk = Arc::new(RealDisk);
        let mut executor = Executor::open(disk, directory.path(), config).unwrap();
        for _ in 0..2 {
            table.train_epoch(&mut executor, &mut buckets, &mut |_| false).unwrap();
        }
        found.push(table.numbers(&mut executor));
    }
    assert_eq!((kept[0], kept[kept.len() - 1]), (false, true));
    assert!(found.iter().all(|numbers| *numbers == found[0]));
    let directory = tempfile::tempdir().unwrap();
    let buckets = table.buckets(directory.path());
    plan_memory(&table.layout, &walks, &buckets, Bytes(least - 1)).unwrap_err();
}

#[test]
fn a_run_that_is_opened_again_goes_on_exactly() {
    for config in orders() {
        let directory = tempfile::tempdir().unwrap();
        let table = Table::new(&config, 2);
        let mut naive = Naive::new(&table);
        for epoch in 0..3 {
            naive.train_epoch(&table, epoch);
        }
        table.create(Arc::new(RealDisk), directory.path()).unwrap();
        let mut buckets = table.buckets(directory.path());
        // Commit after every third state, train a little more, and drop all uncommitted work.
        let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
        let mut relation = common::relation_of(&executor);
        while executor.position().epoch < 3 {
            let mut states = 0;
            while let Some(step) = executor.advance().unwrap() {
                if states == 4 {
                    break;
                }
                train(&mut executor, &mut buckets, &step, &mut relation);
                states += usize::from(step.ends_state);
                if step.ends_state && states == 3 {
                    executor.commit(&relation.to_le_bytes()).unwrap();
                }
            }
            if states < 3 {
                executor.commit(&relation.to_le_bytes()).unwrap();
            }
            drop(executor);
            executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
            relation = common::relation_of(&executor);
        }
        assert_eq!(table.numbers(&mut executor), naive.embeddings(&table), "{config:?}");
        assert_eq!(relation, naive.relation);
    }
}

#[test]
fn a_commit_in_the_midst_of_a_state_is_refused_and_changes_nothing() {
    let config = OrderConfig::new(OrderKind::Optimal, 6, 3);
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(&config, 0);
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    executor.commit(b"before the first step").unwrap();
    let step = executor.advance().unwrap().unwrap();
    assert!(!step.ends_state);
    let error = executor.commit(b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(executor.advance().unwrap().unwrap().ends_state);
    executor.commit(b"relations").unwrap();
    drop(executor);
    let executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    assert_eq!(executor.resident_state().unwrap(), b"relations");
    assert_eq!((executor.position().epoch, executor.position().state), (0, 1));
}

#[test]
fn a_damaged_partition_is_named_and_stops_the_run() {
    let config = OrderConfig::new(OrderKind::Beta, 4, 2);
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(&config, 0);
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let path = directory.path().join("partitions.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    let place = 4096 + 2 * 3 * table.layout.partition_bytes().as_usize() + 17;
    bytes[place] ^= 0x10;
    std::fs::write(&path, bytes).unwrap();
    let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    let error = loop {
        if let Err(error) = executor.advance() {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("embeddings of partition 3 at byte"), "{error}");
    assert!(executor.advance().unwrap_err().to_string().contains("open the table again"));
    assert!(executor.commit(b"").is_err());
}

#[test]
fn a_table_is_neither_created_twice_nor_with_another_number_of_partitions() {
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(&OrderConfig::new(OrderKind::Beta, 5, 3), 0);
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let error = table.create(Arc::new(RealDisk), directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let other = partition_order(&OrderConfig::new(OrderKind::Beta, 6, 3)).unwrap();
    let fill = &mut |_: usize, _: &mut [f32], _: &mut [f32]| Ok(());
    let new = directory.path().join("new");
    let error = Executor::create(Arc::new(RealDisk), &new, &table.layout, &other, b"", fill);
    assert!(error.unwrap_err().to_string().contains("an order of 6 partitions for a table of 5"));
    let missing = table.open(Arc::new(RealDisk), &new).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

#[test]
fn what_lies_beside_a_table_is_not_touched_when_there_is_one_or_somebody_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(&OrderConfig::new(OrderKind::Beta, 5, 3), 0);
    let fill = &mut |_: usize, _: &mut [f32], _: &mut [f32]| Ok(());
    let mut prepared = 0;
    let mut create = || {
        let (disk, path) = (Arc::new(RealDisk), directory.path());
        let prepare = &mut || {
            prepared += 1;
            Ok(())
        };
        let walks = WalkConfig::default();
        Executor::create_with(
            disk,
            path,
            &table.layout,
            &table.order,
            walks,
            &[0; 4],
            prepare,
            fill,
        )
    };
    create().unwrap();
    assert!(create().unwrap_err().to_string().contains("holds a table"));
    let _executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    assert!(create().unwrap_err().to_string().contains("another process holds it"));
    assert_eq!(prepared, 1);
}

#[test]
fn counts_that_cannot_be_are_refused_before_they_are_used() {
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(&OrderConfig::new(OrderKind::Beta, 5, 3), 0);
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    table.buckets(directory.path());
    let buckets = directory.path().join("buckets.bin");
    let journal = directory.path().join("journal.json");
    let (of_buckets, of_journal) =
        (std::fs::read(&buckets).unwrap(), std::fs::read_to_string(&journal).unwrap());
    // A header of one page with other text.
    let damaged = |old: &str, new: &str| {
        let (page, rest) = of_buckets.split_at(4096);
        let at = page.windows(old.len()).position(|some| some == old.as_bytes()).unwrap();
        let mut page = [&page[..at], new.as_bytes(), &page[at + old.len()..]].concat();
        page.resize(4096, b' ');
        [&page, rest].concat()
    };
    let nodes = format!("\"nodes\":{}", table.layout.partitioning().nodes());
    let dim = format!("\"dim\":{}", table.layout.dim());
    for (old, new) in [
        ("\"partitions\":5", "\"partitions\":0"),
        ("\"partitions\":5", "\"partitions\":4000000000"),
        (&*nodes, "\"nodes\":2"),
        (&*nodes, "\"nodes\":18446744073709551615"),
        (&*dim, "\"dim\":0"),
    ] {
        std::fs::write(&journal, of_journal.replacen(old, new, 1)).unwrap();
        let error = table.open(Arc::new(RealDisk), directory.path()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{new}: {error}");
        if old == dim {
            continue;
        }
        std::fs::write(&buckets, damaged(old, new)).unwrap();
        let opened = Buckets::open(&buckets, engine());
        // A different number of nodes has to be detected by the caller.
        if let Err(error) = opened {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{new}: {error}");
        } else {
            assert_eq!(old, nodes, "{new}");
        }
    }
    let triples = format!("\"triples\":{}", table.triples.len());
    std::fs::write(&buckets, damaged(&triples, "\"triples\":18446744073709551615")).unwrap();
    let error = Buckets::open(&buckets, engine()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn rows_are_read_from_memory_and_from_disk_alike_and_no_others() {
    let config = OrderConfig::new(OrderKind::Optimal, 6, 3);
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(&config, 0);
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    executor.advance().unwrap();
    let all = table.layout.slot_rows();
    for partition in 0..6 {
        let whole = executor.read_rows(partition, 0, all).unwrap();
        let dim = table.layout.dim();
        assert_eq!(executor.read_rows(partition, 2, 3).unwrap(), whole[2 * dim..5 * dim]);
    }
    for (partition, first, rows) in [(6, 0, 1), (0, all, 1), (0, u64::MAX, 2)] {
        let error = executor.read_rows(partition, first, rows).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    assert!(executor.advance().is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_shape_of_table_gives_the_bits_of_one_in_memory(
        partitions in 1usize..9, slots in 2usize..5, spare: bool, nodes in 9u64..300,
        dim in 1usize..40, state in 0usize..5, seed: u64,
    ) {
        let mode = if spare { SwapMode::SpareSlot } else { SwapMode::InPlace };
        let slots = slots + usize::from(spare);
        let config = OrderConfig {
            mode,
            ..OrderConfig::new(OrderKind::Optimal, partitions, slots)
        };
        let directory = tempfile::tempdir().unwrap();
        let table = Table::shaped(&config, WalkConfig::default(), nodes, dim, state, seed);
        let mut naive = Naive::new(&table);
        table.create(Arc::new(RealDisk), directory.path()).unwrap();
        let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
        let mut buckets = table.buckets(directory.path());
        for epoch in 0..2 {
            table.train_epoch(&mut executor, &mut buckets, &mut |_| false).unwrap();
            naive.train_epoch(&table, epoch);
        }
        prop_assert_eq!(table.numbers(&mut executor), naive.embeddings(&table));
    }
}
