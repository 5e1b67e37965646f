//! Slots on their way to the worker and back, and which copy of a partition is the newest.

use std::time::Instant;

use outercore_core::{Error, Result};

use super::Executor;
use super::worker::{Answer, Exchange, Job, Load, Store, Swapped};
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
    /// Hands slots to the worker, when none is in flight: to write back what has changed in each,
    /// and to read another partition into it where one is named.
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

    /// Waits for the slots in flight, if there are any.
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

    /// Notes what a slot holds that has come back, and which copy of what it held is the newest.
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

    /// Exchanges what slots hold, and waits for it.
    pub(super) fn exchange(&mut self, exchanges: &[(usize, Option<usize>)]) -> Result<()> {
        self.finish()?;
        self.begin(exchanges)?;
        self.finish()
    }

    /// Writes back whatever has changed in memory, one slot after the other, so that no more than
    /// that is in the page cache.
    pub(super) fn write_back(&mut self) -> Result<()> {
        for slot in 0..self.slots.len() {
            if self.held[slot].is_some_and(|held| held.changed) {
                self.exchange(&[(slot, None)])?;
            }
        }
        Ok(())
    }

    /// Brings back what lay in memory at the last commit, each partition into its slot.
    pub(super) fn load_again(&mut self, slots: &[Option<usize>]) -> Result<()> {
        let resident = self.state().resident.clone();
        let there = |partition: &usize| resident.contains(partition);
        let loads = slots.iter().map(|partition| partition.filter(there)).enumerate();
        self.exchange(&loads.filter(|(_, load)| load.is_some()).collect::<Vec<_>>())
    }

    /// The newest copy of a partition, as the worker is asked for it.
    pub(super) fn read_of(&self, partition: usize) -> Load {
        let Copies { latest, sums, .. } = &self.copies[partition];
        Load { partition, copy: *latest, sums: sums.clone() }
    }
}
