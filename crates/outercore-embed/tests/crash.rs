//! A table survives a crash, a full device and a failed write at any operation. It resumes from the
//! last commit and ends with the same bits as an uninterrupted run.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Naive, Table};
use outercore_core::{ErrorKind, Result};
use outercore_embed::{
    Buckets, Executor, OrderConfig, OrderKind, Position, Step, SwapMode, WalkConfig,
};
use outercore_io::{Backend, Disk, EngineConfig, FaultDisk, FaultKind, FaultPlan};

const EPOCHS: u64 = 2;

fn tables() -> [Table; 6] {
    let spare =
        OrderConfig { mode: SwapMode::SpareSlot, ..OrderConfig::new(OrderKind::Optimal, 4, 3) };
    let in_place = OrderConfig::new(OrderKind::Optimal, 5, 3);
    let walks =
        WalkConfig { sweeps: 2, spread: true, rename: true, seed: 9, ..WalkConfig::default() };
    let few = OrderConfig::new(OrderKind::Optimal, 4, 3);
    let two = OrderConfig::new(OrderKind::Optimal, 4, 2);
    [
        Table::new(&in_place, 1),
        Table::new(&spare, 1),
        Table::walked(&few, walks, 1),
        Table::walked(&spare, walks, 1),
        Table::walked(&two, WalkConfig { in_turn: true, ..walks }, 1),
        Table::walked(&few, WalkConfig { sweeps: 1, group: 2, ..walks }, 1),
    ]
}

/// Opens the table with reads through the page cache. Direct reads would wait for earlier writes to
/// reach the device, at every operation of hundreds of runs.
fn open(disk: Arc<dyn Disk>, directory: &Path) -> Result<Executor> {
    Executor::open(disk, directory, EngineConfig { backend: Backend::Mmap, ..common::engine() })
}

/// Creates the table if needed, and trains it to its end with a commit after every second state.
fn train(
    table: &Table,
    buckets: &mut Buckets,
    disk: Arc<dyn Disk>,
    directory: &Path,
) -> Result<Executor> {
    let opened = match open(disk.clone(), directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            table.create(disk.clone(), directory)?;
            open(disk, directory)
        }
        other => other,
    };
    let mut executor = opened?;
    while executor.position().epoch < EPOCHS {
        let mut commit = |step: &Step| step.state % 2 == 1;
        table.train_epoch(&mut executor, buckets, &mut commit)?;
    }
    Ok(executor)
}

fn expected(table: &Table) -> Vec<u32> {
    let mut naive = Naive::new(table);
    (0..EPOCHS).for_each(|epoch| naive.train_epoch(table, epoch));
    naive.embeddings(table)
}

/// For every operation: runs until a fault there, then again without a fault.
fn survives(kind: FaultKind) {
    for table in tables() {
        let expected = expected(&table);
        let elsewhere = tempfile::tempdir().unwrap();
        let mut buckets = table.buckets(elsewhere.path());
        let operations = {
            let directory = tempfile::tempdir().unwrap();
            let disk = Arc::new(FaultDisk::counting(directory.path()));
            train(&table, &mut buckets, disk.clone(), &directory.path().join("table")).unwrap();
            disk.operations()
        };
        assert!(operations > 60, "{operations}");
        let mut resumed = 0;
        for at in 0..operations {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path().join("table");
            let disk = Arc::new(FaultDisk::new(directory.path(), FaultPlan { at, kind }));
            let error = train(&table, &mut buckets, disk, &root).err().expect("the fault shows");
            let known = match kind {
                FaultKind::NoSpace => error.kind() == ErrorKind::NoSpace,
                FaultKind::Crash | FaultKind::Eio => error.kind() == ErrorKind::Io,
            };
            assert!(known, "{kind:?} at {at}: {error}");
            let sound = Arc::new(FaultDisk::counting(directory.path()));
            if let Ok(left) = open(sound.clone(), &root) {
                resumed += u64::from(left.position() > Position::default());
            }
            let mut executor = train(&table, &mut buckets, sound, &root)
                .unwrap_or_else(|error| panic!("{kind:?} at {at}: {error}"));
            assert!(table.numbers(&mut executor) == expected, "{kind:?} at {at}: other numbers");
        }
        assert!(resumed > operations / 2, "{resumed} of {operations} went on from a commit");
    }
}

#[test]
fn a_crash_at_every_operation_leaves_a_run_that_goes_on_exactly() {
    survives(FaultKind::Crash);
}

#[test]
fn a_full_device_at_every_operation_leaves_a_run_that_goes_on_exactly() {
    survives(FaultKind::NoSpace);
}

#[test]
fn a_failed_write_at_every_operation_leaves_a_run_that_goes_on_exactly() {
    survives(FaultKind::Eio);
}

#[test]
fn a_run_that_crashes_again_and_again_ends_with_the_same_numbers() {
    for table in tables() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("table");
        let elsewhere = tempfile::tempdir().unwrap();
        let mut buckets = table.buckets(elsewhere.path());
        // The first commit after a start takes more operations than the swaps before it. The limit
        // must allow for it, or no run would make progress.
        let end = (0..100).find_map(|run| {
            let plan = FaultPlan { at: 40 + run % 17, kind: FaultKind::Crash };
            let disk = Arc::new(FaultDisk::new(directory.path(), plan));
            match train(&table, &mut buckets, disk, &root) {
                Ok(executor) => Some(executor),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Io, "run {run}: {error}");
                    None
                }
            }
        });
        let mut executor = end.expect("a hundred runs of forty operations come to an end");
        assert!(table.numbers(&mut executor) == expected(&table));
    }
}
