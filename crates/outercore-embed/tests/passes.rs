//! Passes over the whole table: rows of nodes, copies, export. Training afterwards continues as
//! before.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Naive, Table, engine};
use outercore_core::{ErrorKind, Result};
use outercore_embed::{Executor, OrderConfig, OrderKind, SwapMode, WalkConfig};
use outercore_io::{Backend, Disk, EngineConfig, FaultDisk, FaultKind, FaultPlan, RealDisk};

fn orders() -> [OrderConfig; 3] {
    let spare = |partitions, slots| OrderConfig {
        mode: SwapMode::SpareSlot,
        ..OrderConfig::new(OrderKind::Optimal, partitions, slots)
    };
    [
        OrderConfig::new(OrderKind::Optimal, 6, 3),
        spare(6, 4),
        OrderConfig::new(OrderKind::Optimal, 1, 1),
    ]
}

fn bits(rows: &[f32]) -> Vec<u32> {
    rows.iter().map(|number| number.to_bits()).collect()
}

/// Values of a `.npy` file with a header of one page.
fn npy(path: &Path) -> Vec<u32> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(&bytes[..6], b"\x93NUMPY");
    bytes[4096..].as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

#[test]
fn passes_between_epochs_give_the_table_and_change_nothing() {
    let plain = WalkConfig::default();
    let mixed = WalkConfig { sweeps: 2, spread: true, rename: true, seed: 4, ..plain };
    let grouped = WalkConfig { group: 2, ..mixed };
    for (config, walks) in orders()
        .into_iter()
        .flat_map(|config| [plain, mixed, grouped].map(|walks| (config.clone(), walks)))
    {
        let directory = tempfile::tempdir().unwrap();
        let table = Table::walked(&config, walks, 2);
        let mut naive = Naive::new(&table);
        table.create(Arc::new(RealDisk), directory.path()).unwrap();
        let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
        let mut buckets = table.buckets(directory.path());
        for epoch in 0..4 {
            table.train_epoch(&mut executor, &mut buckets, &mut |_| false).unwrap();
            naive.train_epoch(&table, epoch);
            let expected = naive.embeddings(&table);
            let path = directory.path().join("entities.npy");
            executor.write_npy(&path).unwrap();
            assert_eq!(npy(&path), expected, "{config:?} {epoch}");
            let dim = table.layout.dim();
            let nodes = [5i64, 96, 0, 5, 41];
            let mut rows = vec![0.0; nodes.len() * dim];
            executor.rows_of_nodes(&nodes, &mut rows).unwrap();
            for (node, row) in nodes.iter().zip(rows.chunks(dim)) {
                assert_eq!(bits(row), expected[*node as usize * dim..][..dim]);
            }
            executor.save_embeddings(&directory.path().join("copy.bin")).unwrap();
            assert_eq!(table.numbers(&mut executor), expected);
            if epoch == 1 {
                // Partitions that the export evicted return to the same slots.
                drop(executor);
                executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
            }
        }
    }
}

#[test]
fn a_copy_that_is_loaded_is_the_table_again_and_the_state_stays() {
    for config in orders() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let table = Table::new(&config, 2);
        table.create(Arc::new(RealDisk), root).unwrap();
        let mut executor = table.open(Arc::new(RealDisk), root).unwrap();
        let mut buckets = table.buckets(root);
        table.train_epoch(&mut executor, &mut buckets, &mut |_| false).unwrap();
        let kept = table.numbers(&mut executor);
        let copy = root.join("copy.bin");
        let sum = executor.save_embeddings(&copy).unwrap();
        table.train_epoch(&mut executor, &mut buckets, &mut |_| false).unwrap();
        assert_ne!(table.numbers(&mut executor), kept);
        executor.load_embeddings(&copy, &sum).unwrap();
        assert_eq!(table.numbers(&mut executor), kept, "{config:?}");
        // The change is not durable before the next commit.
        drop(executor);
        let mut executor = table.open(Arc::new(RealDisk), root).unwrap();
        assert_ne!(table.numbers(&mut executor), kept);
        executor.load_embeddings(&copy, &sum).unwrap();
        let relation = common::relation_of(&executor);
        executor.commit(&relation.to_le_bytes()).unwrap();
        table.train_epoch(&mut executor, &mut buckets, &mut |_| false).unwrap();
        let after = table.numbers(&mut executor);
        assert_ne!(after, kept);

        let other = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read(&copy).unwrap();
        bytes[9] ^= 1;
        let damaged = other.path().join("copy.bin");
        std::fs::write(&damaged, bytes).unwrap();
        let error = executor.load_embeddings(&damaged, &sum).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert_eq!(table.numbers(&mut executor), after, "a damaged copy changes nothing");
    }
}

#[test]
fn passes_in_the_midst_of_a_state_and_nodes_that_there_are_not_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(&OrderConfig::new(OrderKind::Optimal, 6, 3), 0);
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    let step = executor.advance().unwrap().unwrap();
    assert!(!step.ends_state);
    let path = directory.path().join("x");
    assert_eq!(executor.write_npy(&path).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(executor.save_embeddings(&path).unwrap_err().kind(), ErrorKind::Invalid);
    for node in [-1, 97, i64::MAX] {
        let error = executor.rows_of_nodes(&[node], &mut [0.0; 5]).unwrap_err();
        assert!(error.to_string().contains(&format!("node {node}, expected 0 to 96")), "{error}");
    }
    assert!(executor.advance().unwrap().unwrap().ends_state);
    assert!(!path.exists());
}

#[test]
fn a_table_is_held_by_one_executor_and_free_when_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(&OrderConfig::new(OrderKind::Optimal, 6, 3), 0);
    table.create(Arc::new(RealDisk), directory.path()).unwrap();
    let first = table.open(Arc::new(RealDisk), directory.path()).unwrap();
    let views = first.slot_views();
    let error = table.open(Arc::new(RealDisk), directory.path()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("another process holds it"), "{error}");
    drop(first);
    // The views keep the memory alive, but not the lock.
    table.open(Arc::new(RealDisk), directory.path()).unwrap();
    assert!(!views.address_ranges()[0].is_empty());
}

#[test]
fn degrees_are_counted_by_row() {
    let directory = tempfile::tempdir().unwrap();
    let table = Table::new(&OrderConfig::new(OrderKind::Optimal, 6, 3), 0);
    let mut buckets = table.buckets(directory.path());
    let found = buckets.degrees(&mut |_, _, _| Ok(())).unwrap();
    let dealt = table.layout.partitioning();
    let nodes: Vec<u64> = (0..6).flat_map(|partition| dealt.nodes_of(partition)).collect();
    assert_eq!(found.len(), nodes.len());
    for (node, degree) in nodes.into_iter().zip(found) {
        let ends = table.triples.iter().flat_map(|&[head, _, tail]| [head, tail]);
        assert_eq!(ends.filter(|&end| end == node as i64).count() as u32, degree);
    }
}

#[test]
fn a_partition_that_lost_bytes_is_neither_copied_nor_exported() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let table = Table::new(&OrderConfig::new(OrderKind::Optimal, 6, 3), 1);
    table.create(Arc::new(RealDisk), root).unwrap();
    let path = root.join("partitions.bin");
    let mut bytes = std::fs::read(&path).unwrap();
    // An untrained table uses the first copy of every partition, and none is in memory.
    let place = 4096 + 2 * 4 * table.layout.partition_bytes().as_usize();
    bytes[place + 3] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut executor = table.open(Arc::new(RealDisk), root).unwrap();
    let rows = table.layout.partitioning().rows(4);
    let corrupt = |result: Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("embeddings of partition 4"), "{error}");
    };
    executor.read_rows(4, 1, rows - 1).unwrap();
    let executor_of = || table.open(Arc::new(RealDisk), root).unwrap();
    executor.read_rows(4, 0, 1).unwrap();
    corrupt(executor.read_rows(4, 1, rows - 1).map(drop));
    drop(executor);
    corrupt(executor_of().save_embeddings(&root.join("copy.bin")).map(drop));
    corrupt(executor_of().write_npy(&root.join("entities.npy")));
    let left = |name: &str| root.join(name).exists();
    assert!(!left("entities.npy") && !left("entities.tmp"), "half a table is left");
}

/// A run that saves, trains more, restores and exports: every pass, with commits in between.
fn run(table: &Table, disk: Arc<dyn Disk>, root: &Path, elsewhere: &Path) -> Result<Vec<u32>> {
    // Direct reads would wait for the device at every operation of hundreds of runs.
    let config = EngineConfig { backend: Backend::Mmap, ..engine() };
    let open = || Executor::open(disk.clone(), root, config.clone());
    let opened = match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            table.create(disk.clone(), root)?;
            open()
        }
        other => other,
    };
    let mut executor = opened?;
    let mut buckets = table.buckets(elsewhere);
    let copy = root.join("copy.bin");
    while executor.position().epoch < 2 {
        let epoch = executor.position().epoch;
        let relation = executor.resident_state()?[..4].to_vec();
        let mut relation = f32::from_le_bytes(relation.try_into().unwrap());
        while let Some(step) = executor.advance()? {
            common::train(&mut executor, &mut buckets, &step, &mut relation);
        }
        let mut resident = relation.to_le_bytes().to_vec();
        if epoch == 0 {
            resident.extend(executor.save_embeddings(&copy)?.into_bytes());
        } else {
            let sum = String::from_utf8(executor.resident_state()?[4..].to_vec()).unwrap();
            executor.load_embeddings(&copy, &sum)?;
            resident.extend(sum.into_bytes());
        }
        executor.commit(&resident)?;
    }
    let path = root.join("entities.npy");
    executor.write_npy(&path)?;
    Ok(npy(&path))
}

#[test]
fn a_crash_at_every_operation_of_every_pass_leaves_a_run_that_ends_with_the_same_numbers() {
    let spare =
        OrderConfig { mode: SwapMode::SpareSlot, ..OrderConfig::new(OrderKind::Optimal, 4, 3) };
    for config in [OrderConfig::new(OrderKind::Optimal, 4, 3), spare] {
        let table = Table::new(&config, 1);
        let mut naive = Naive::new(&table);
        naive.train_epoch(&table, 0);
        let expected = naive.embeddings(&table);
        let elsewhere = tempfile::tempdir().unwrap();
        let operations = {
            let directory = tempfile::tempdir().unwrap();
            let disk = Arc::new(FaultDisk::counting(directory.path()));
            let root = directory.path().join("table");
            assert!(run(&table, disk.clone(), &root, elsewhere.path()).unwrap() == expected);
            disk.operations()
        };
        for kind in [FaultKind::Crash, FaultKind::NoSpace] {
            for at in 0..operations {
                let directory = tempfile::tempdir().unwrap();
                let root = directory.path().join("table");
                let disk = Arc::new(FaultDisk::new(directory.path(), FaultPlan { at, kind }));
                run(&table, disk, &root, elsewhere.path()).expect_err("the fault shows");
                let npy = root.join("entities.npy");
                let complete = npy.exists().then(|| self::npy(&npy));
                assert!(complete.is_none_or(|found| found == expected), "{kind:?} at {at}: half");
                let sound = Arc::new(FaultDisk::counting(directory.path()));
                let found = run(&table, sound, &root, elsewhere.path())
                    .unwrap_or_else(|error| panic!("{kind:?} at {at}: {error}"));
                assert!(found == expected, "{kind:?} at {at}: other numbers");
            }
        }
    }
}

#[test]
fn an_export_larger_than_the_slots_takes_several_passes() {
    let config = OrderConfig::new(OrderKind::Optimal, 8, 3);
    for state in [0, 1, 4] {
        let directory = tempfile::tempdir().unwrap();
        // Slots without padding rows: 3 of 512, and a few rows in the memory of the state.
        let table = Table::shaped(&config, WalkConfig::default(), 8 * 512, 6, state, 1);
        assert_eq!(table.layout.slot_rows(), if state == 1 { 1024 } else { 512 });
        table.create(Arc::new(RealDisk), directory.path()).unwrap();
        let mut executor = table.open(Arc::new(RealDisk), directory.path()).unwrap();
        let mut buckets = table.buckets(directory.path());
        table.train_epoch(&mut executor, &mut buckets, &mut |_| false).unwrap();
        let path = directory.path().join("entities.npy");
        executor.write_npy(&path).unwrap();
        assert!(npy(&path) == table.numbers(&mut executor), "{state} numbers of state");
    }
}
