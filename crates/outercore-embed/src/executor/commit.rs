//! Commits of a table: making the training durable.

use std::time::Instant;

use outercore_core::{Error, Result};

use super::{Copies, Executor};
use crate::journal::{self, Journal, PartitionRecord, ResidentRecord};

impl Executor {
    /// Makes all training so far durable, together with `resident`, the caller's state in memory.
    ///
    /// Allowed before the first step, after a step that ends its state, and at the end of an epoch.
    /// A run that is opened from here continues exactly.
    ///
    /// **Cost**: waits for the swap in progress; writes the changed partitions in memory.
    ///
    /// # Errors
    /// `Invalid`: within a state. As [`Executor::advance`]. If the disk fails, the table is at this
    /// commit or at the previous one.
    pub fn commit(&mut self, resident: &[u8]) -> Result<()> {
        if !self.parts.is_empty() {
            return Err(Error::invalid(format!(
                "commit in the midst of state {} of epoch {}",
                self.position.state, self.position.epoch
            ))
            .hint("commit after a step that ends its state"));
        }
        self.guarded(|executor| executor.make_durable(resident))
    }

    fn make_durable(&mut self, resident: &[u8]) -> Result<()> {
        if self.entered {
            self.leave()?;
        }
        let (start, before) = (Instant::now(), self.counters);
        self.write_back()?;
        let generation = self.generation + 1;
        let record = |copies: &Copies| {
            if copies.newer {
                PartitionRecord { copy: copies.latest, generation, sums: copies.sums.clone() }
            } else {
                copies.committed.clone()
            }
        };
        let partitions: Vec<PartitionRecord> = self.copies.iter().map(record).collect();
        let journal = Journal {
            version: journal::VERSION,
            generation,
            layout: self.layout,
            order: self.order_checksum.clone(),
            walks: self.walks.config(),
            position: self.position,
            slots: match &self.brings_back {
                Some(partitions) => partitions.clone(),
                None => self.held.iter().map(|held| held.map(|held| held.partition)).collect(),
            },
            partitions,
            resident: ResidentRecord::of(resident),
        };
        journal.commit(&*self.disk, &self.directory, resident)?;
        (self.generation, self.resident) = (generation, journal.resident);
        for (copies, committed) in self.copies.iter_mut().zip(journal.partitions) {
            *copies = Copies::of(committed);
        }
        self.counters.commits += 1;
        self.counters.commit_s += start.elapsed().as_secs_f64();
        // Writes for a commit are not swaps: they count as commit time only.
        (self.counters.swap_s, self.counters.waited_s) = (before.swap_s, before.waited_s);
        Ok(())
    }
}
