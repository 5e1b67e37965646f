//! Exchanges slots with the worker, and tracks which copy of a partition is the newest.

use std::time::Instant;

use outercore_core::{Error, Result};

use super::Executor;
use super::worker::{Answer, Exchange, Job, Load, Store, Swapped};
use crate::journal::PartitionRecord;
use crate::partition::{CopyIndex, Sums};

/// The partition in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) partition: usize,
    /// Whether it is newer than both copies on disk.
    pub(super) changed: bool,
}

/// The two copies of a partition on disk.
#[derive(Clone, Debug)]
pub(super) struct Copies {
    /// The copy in the journal.
    pub(super) committed: PartitionRecord,
    /// The newest copy.
    pub(super) latest: CopyIndex,
    pub(super) sums: Sums,
    /// Whether `latest` was written after the commit.
    pub(super) newer: bool,
}

/// A slot that the worker holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    slot: usize,
    stores: Option<usize>,
    loads: Option<usize>,
}

impl Copies {
    /// The copies of a partition that was not written since the commit.
    pub(super) fn of(committed: PartitionRecord) -> Self {
        Self { latest: committed.copy, sums: committed.sums.clone(), newer: false, committed }
    }
}

impl Executor {
    /// Sends slots to the worker; none may be in flight. The worker writes back the changed
    /// partition in each slot, and reads the given partition into it, if any.
    pub(super) fn begin(&mut self, exchanges: &[(usize, Option<usize>)]) -> Result<()> {
        let mut asked = Vec::with_capacity(exchanges.len());
        for &(slot, loads) in exchanges {
            let missing = || Error::internal(format!("slot {slot} is in flight"));
            let stores = self.held[slot].filter(|held| held.changed).map(|held| held.partition);
            let memory = self.slots[slot].take().ok_or_else(missing)?;
            let copy_of = |partition: usize| 1 - self.copies[partition].committed.copy;
            let store = stores.map(|partition| Store { partition, copy: copy_of(partition) });
            let load = loads.map(|partition| self.read_of(partition));
            self.in_flight.push(Flight { slot, stores, loads });
            asked.push(Exchange { slot: memory, store, load });
        }
        if asked.is_empty() { Ok(()) } else { self.worker.ask(Job::Swap(asked)) }
    }

    /// Waits for the slots in flight.
    pub(super) fn finish(&mut self) -> Result<()> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let start = Instant::now();
        let Answer::Swap(Swapped { slots, result, busy_s, bytes_read, bytes_written }) =
            self.worker.answer()?
        else {
            return Err(Error::internal("rows instead of slots"));
        };
        self.counters.waited_s += start.elapsed().as_secs_f64();
        self.counters.swap_s += busy_s;
        self.counters.bytes_read += bytes_read;
        self.counters.bytes_written += bytes_written;
        for (flight, (memory, stored)) in std::mem::take(&mut self.in_flight).into_iter().zip(slots)
        {
            self.slots[flight.slot] = Some(memory);
            if result.is_ok() {
                self.land(flight, stored);
            }
        }
        result
    }

    /// Records the partition in a returned slot, and the newest copy of the partition that left.
    fn land(&mut self, Flight { slot, stores, loads }: Flight, stored: Option<Sums>) {
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
    }

    /// Exchanges the partitions in slots and waits for the result.
    pub(super) fn exchange(&mut self, exchanges: &[(usize, Option<usize>)]) -> Result<()> {
        self.finish()?;
        self.begin(exchanges)?;
        self.finish()
    }

    /// Writes back all changed partitions in memory, one slot at a time, so that the page cache
    /// holds no more than one.
    pub(super) fn write_back(&mut self) -> Result<()> {
        for slot in 0..self.slots.len() {
            if self.held[slot].is_some_and(|held| held.changed) {
                self.exchange(&[(slot, None)])?;
            }
        }
        Ok(())
    }

    /// Reads the partitions of the last commit back into their slots.
    pub(super) fn load_again(&mut self, slots: &[Option<usize>]) -> Result<()> {
        let resident = self.state().resident.clone();
        let there = |partition: &usize| resident.contains(partition);
        let loads = slots.iter().map(|partition| partition.filter(there)).enumerate();
        self.exchange(&loads.filter(|(_, load)| load.is_some()).collect::<Vec<_>>())
    }

    /// The request to read the newest copy of a partition.
    pub(super) fn read_of(&self, partition: usize) -> Load {
        let Copies { latest, sums, .. } = &self.copies[partition];
        Load { partition, copy: *latest, sums: sums.clone() }
    }
}
