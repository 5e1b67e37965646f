//! Slots on their way to the worker and back, and which copy of a partition is the newest.

use std::time::Instant;

use outercore_core::{Error, Result};

use super::Executor;
use super::worker::{Answer, Job, Load, Store, Swapped};
use crate::journal::PartitionRecord;
use crate::partition::{CopyIndex, Sums};

/// What a slot holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) partition: usize,
    /// Newer than both copies on disk.
    pub(super) changed: bool,
}

/// The two copies of a partition.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    /// What the journal names.
    pub(super) committed: PartitionRecord,
    /// What is to be read.
    pub(super) latest: CopyIndex,
    pub(super) sums: Sums,
    /// Whether `latest` was written since the commit.
    pub(super) newer: bool,
}

/// A slot that the worker has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    slot: usize,
    stores: Option<usize>,
    loads: Option<usize>,
}

impl Copies {
    /// Those of a partition that has not been written since the commit.
    pub(super) fn of(committed: PartitionRecord) -> Self {
        Self { latest: committed.copy, sums: committed.sums.clone(), newer: false, committed }
    }
}

impl Executor {
    /// Hands a slot to the worker: to write back what has changed in it, and to read `load`.
    pub(super) fn begin(&mut self, slot: usize, load: Option<usize>) -> Result<()> {
        let missing = || Error::internal(format!("slot {slot} is in flight"));
        let stores = self.held[slot].filter(|held| held.changed).map(|held| held.partition);
        let memory = self.slots[slot].take().ok_or_else(missing)?;
        let store = stores
            .map(|partition| Store { partition, copy: 1 - self.copies[partition].committed.copy });
        let read = load.map(|partition| self.read_of(partition));
        self.in_flight.push_back(Flight { slot, stores, loads: load });
        self.worker.ask(Job::Swap { slot: memory, store, load: read })
    }

    /// Waits for the slots in flight.
    pub(super) fn finish(&mut self) -> Result<()> {
        while let Some(flight) = self.in_flight.pop_front() {
            self.land(flight)?;
        }
        Ok(())
    }

    /// Waits for a slot, the first of those in flight.
    fn land(&mut self, Flight { slot, stores, loads }: Flight) -> Result<()> {
        let start = Instant::now();
        let Answer::Swap(Swapped {
            slot: memory,
            stored,
            result,
            busy_s,
            bytes_read,
            bytes_written,
        }) = self.worker.answer()?
        else {
            return Err(Error::internal("rows instead of a slot"));
        };
        self.slots[slot] = Some(memory);
        self.counters.waited_s += start.elapsed().as_secs_f64();
        self.counters.swap_s += busy_s;
        self.counters.bytes_read += bytes_read;
        self.counters.bytes_written += bytes_written;
        result?;
        if let (Some(partition), Some(sums)) = (stores, stored) {
            let copies = &mut self.copies[partition];
            copies.latest = 1 - copies.committed.copy;
            copies.sums = sums;
            copies.newer = true;
            self.counters.stores += 1;
            self.held[slot] = Some(Held { partition, changed: false });
        }
        if let Some(partition) = loads {
            self.counters.loads += 1;
            self.held[slot] = Some(Held { partition, changed: false });
        }
        Ok(())
    }

    /// Brings back what lay in memory at the last commit, each partition into its slot.
    pub(super) fn load_again(&mut self, slots: &[Option<usize>]) -> Result<()> {
        let resident = self.state().resident.clone();
        for (slot, partition) in slots.iter().enumerate() {
            if let Some(partition) = partition.filter(|partition| resident.contains(partition)) {
                self.begin(slot, Some(partition))?;
                self.finish()?;
            }
        }
        Ok(())
    }

    /// The newest copy of a partition, as the worker is asked for it.
    pub(super) fn read_of(&self, partition: usize) -> Load {
        let Copies { latest, sums, .. } = &self.copies[partition];
        Load { partition, copy: *latest, sums: sums.clone() }
    }
}
