//! Predicts the reads of epochs before anything is read. Runs the cache over the first batches and
//! extrapolates the result.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use outercore_cache::Policy;
use outercore_core::{Bytes, ReadCounters, Result};
use outercore_io::{CostModel, PlannedRead};
use serde::{Deserialize, Serialize};

use crate::MemoryPlan;
use crate::row_cache::{Admitted, Announced, RowCache};
use crate::row_space::{PlannedPart, RowSpace};
use crate::sampling::Sampling;
use crate::stages::{PINNED_GROUPS, no_room};

/// Most nodes of the examined batches: about a second of sampling in memory by degrees only, or
/// about a second from disk or by other rules.
const NODES_FAST: u64 = 1 << 24;
const NODES_SLOW: u64 = 1 << 20;

/// Number of examined epochs: the first starts with an empty dynamic part, the second with a filled
/// one.
const EPOCHS: u64 = 2;

/// The last groups, one in this many, are the basis of the extrapolation.
const TAIL: usize = 4;

/// Reads of feature rows for some batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RowReads {
    /// Batches.
    pub batches: f64,
    /// Row accesses, before deduplication.
    pub accesses: f64,
    /// Distinct rows per group that were not in a slot, summed over groups.
    pub misses: f64,
    /// Read requests.
    pub requests: f64,
    /// Bytes that the device delivers.
    pub bytes: f64,
    /// Time of these reads on a busy device, by its cost model.
    pub device_s: f64,
}

impl RowReads {
    fn add(&mut self, more: &Self) {
        self.batches += more.batches;
        self.accesses += more.accesses;
        self.misses += more.misses;
        self.requests += more.requests;
        self.bytes += more.bytes;
        self.device_s += more.device_s;
    }

    /// The reads of `batches` batches with `misses` misses that are otherwise like these.
    fn like(&self, batches: f64, misses: f64) -> Self {
        let (of_batches, of_misses) = (batches / self.batches, misses / self.misses.max(1.0));
        Self {
            batches,
            accesses: self.accesses * of_batches,
            misses,
            requests: self.requests * of_misses,
            bytes: self.bytes * of_misses,
            device_s: self.device_s * of_misses,
        }
    }
}

/// Expected reads of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpochForecast {
    /// Reads of feature rows.
    pub rows: RowReads,
    /// Share of row accesses that need no read; deduplication counts as a hit.
    pub hit_ratio: f64,
    /// Read requests of a paged topology.
    pub topology_requests: f64,
    /// Bytes read of a paged topology.
    pub topology_bytes: f64,
}

/// Forecast for the epochs of a loader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// Batches of an epoch.
    pub batches: u64,
    /// Number of examined batches. [`Forecast::first`] and [`Forecast::later`] are exact only if
    /// both epochs were examined completely.
    pub traced: u64,
    /// Batches fetched together.
    pub group: u32,
    /// Groups sampled ahead of the group that is being fetched.
    pub look_ahead: u32,
    /// Cost model of the device.
    pub cost: CostModel,
    /// Nodes of a batch.
    pub nodes_per_batch: f64,
    /// Edges of a batch.
    pub edges_per_batch: f64,
    /// Seconds to sample a batch and to find its distinct rows, without other load.
    pub sample_s_per_batch: f64,
    /// Reads that fill the constant part, once.
    pub fill: RowReads,
    /// The first epoch, without filling the constant part.
    pub first: EpochForecast,
    /// A later epoch.
    pub later: EpochForecast,
}

/// The reads of the examined groups, in order, starting with an empty dynamic part.
#[derive(Clone, Debug, Default)]
struct Trace {
    groups: Vec<RowReads>,
    /// Whether the dynamic part was full at the end.
    full: bool,
    /// Slots of the dynamic part.
    capacity: f64,
    nodes: u64,
    edges: u64,
    sample_s: f64,
    topology: ReadCounters,
}

impl Trace {
    fn batches(&self) -> f64 {
        self.groups.iter().map(|group| group.batches).sum()
    }

    /// The reads of the batches in `range`, counted from the first batch of the first epoch.
    ///
    /// The reads of examined batches are summed. If the dynamic part was full at the end, the
    /// remaining batches are assumed to read like the last quarter of the examined ones. If it was
    /// not full, no row has been evicted, and all misses so far are distinct rows. Their number is
    /// then extrapolated as a power of the number of batches, until the dynamic part is full.
    fn reads(&self, range: Range<f64>) -> RowReads {
        let (mut sum, mut at) = (RowReads::default(), 0.0);
        for group in &self.groups {
            if at >= range.start && at < range.end {
                sum.add(group);
            }
            at += group.batches;
        }
        let from = range.start.max(at);
        if from >= range.end || self.groups.is_empty() {
            return sum;
        }
        let mut tail = RowReads::default();
        for group in self.groups.iter().rev().take(self.groups.len().div_ceil(TAIL)) {
            tail.add(group);
        }
        let misses = if self.full || tail.misses == 0.0 {
            tail.misses / tail.batches * (range.end - from)
        } else {
            self.growing(range.end) - self.growing(from)
        };
        sum.add(&tail.like(range.end - from, misses));
        sum
    }

    /// Expected misses of the first `batches` batches, beyond the examined ones, if these did not
    /// fill the dynamic part.
    fn growing(&self, batches: f64) -> f64 {
        let (mut all, mut half, mut at) = (0.0, 0.0, 0.0);
        let traced = self.batches();
        for group in &self.groups {
            // A group across the middle counts in part.
            let share = ((traced / 2.0 - at) / group.batches).clamp(0.0, 1.0);
            all += group.misses;
            half += group.misses * share;
            at += group.batches;
        }
        let power = (all / half.max(1.0)).log2().clamp(0.01, 1.0);
        // From this point on the dynamic part is full, and the rate of misses stays constant.
        let full = traced * (self.capacity.max(all) / all).powf(1.0 / power);
        let grown = |batches: f64| all * (batches / traced).powf(power);
        if batches <= full {
            return grown(batches);
        }
        grown(full) + power * grown(full) / full * (batches - full)
    }

    /// The forecast for epochs of `batches` batches, as far as this trace determines it.
    fn forecast(&self, batches: u64) -> Forecast {
        let traced = self.batches();
        let of_batch = |value: f64| if traced == 0.0 { 0.0 } else { value / traced };
        let count = batches as f64;
        let epoch = |range| {
            let rows = self.reads(range);
            let hits = if rows.accesses == 0.0 { 0.0 } else { 1.0 - rows.misses / rows.accesses };
            EpochForecast {
                rows,
                hit_ratio: hits,
                topology_requests: of_batch(self.topology.requests as f64) * count,
                topology_bytes: of_batch(self.topology.bytes as f64) * count,
            }
        };
        Forecast {
            batches,
            traced: traced as u64,
            nodes_per_batch: of_batch(self.nodes as f64),
            edges_per_batch: of_batch(self.edges as f64),
            sample_s_per_batch: of_batch(self.sample_s),
            first: epoch(0.0..count),
            later: epoch(count..2.0 * count),
            ..Forecast::default()
        }
    }
}

/// Inputs for running a cache over batches.
pub struct Tracing<'a> {
    /// The batches.
    pub sampling: &'a Sampling,
    /// The plan of the run.
    pub plan: &'a MemoryPlan,
    /// The features, if any are delivered.
    pub rows: Option<&'a RowSpace>,
    /// Rows of the constant part, ascending.
    pub constant: &'a [u64],
    /// Cost model of the device.
    pub cost: &'a CostModel,
    /// Longest single read.
    pub max_read: Bytes,
    /// Eviction policy of the dynamic part.
    pub policy: Policy,
    /// Heat of each row, if known.
    pub heat: Option<&'a Arc<[u8]>>,
}

/// Receives the reads of a group: part of the rows, and its reads.
pub type OnReads<'a> = &'a mut dyn FnMut(usize, Vec<PlannedRead>);

impl Tracing<'_> {
    /// The forecast for a run that follows the plan. Passes the reads of each examined group to
    /// `on_reads`.
    ///
    /// # Errors
    /// As for [`Tracing::trace`].
    pub fn forecast(&self, on_reads: OnReads<'_>) -> Result<Forecast> {
        let parts = self.rows.map(RowSpace::planned).transpose()?.unwrap_or_default();
        let trace = self.trace(&parts, on_reads)?;
        let group = self.plan.split.group;
        let (look_ahead, cost, fill) = (self.plan.look_ahead, *self.cost, self.fill(&parts));
        let batches = self.sampling.num_batches();
        Ok(Forecast { group, look_ahead, cost, fill, ..trace.forecast(batches) })
    }

    /// Runs the cache over the batches of two epochs, or of the first ones, in the order of a run's
    /// stages. Reads no rows. Passes the reads of each group to `on_reads`.
    ///
    /// **Cost** samples the batches, for a second or two. Memory: within the plan's memory for
    /// groups, and the bookkeeping of its slots.
    ///
    /// # Errors
    /// Errors of sampling; `Budget` for a batch without enough room.
    fn trace(&self, parts: &[PlannedPart], on_reads: OnReads<'_>) -> Result<Trace> {
        let split = self.plan.split;
        let mut run = Run {
            cache: RowCache::new(split, self.policy, self.heat.cloned()),
            parts,
            pending: VecDeque::new(),
            held: VecDeque::new(),
            trace: Trace { capacity: split.dynamic_slots.into(), ..Trace::default() },
            on_reads,
            tracing: self,
        };
        run.cache.fill_constant(self.constant.to_vec());
        let most = if self.sampling.is_fast() { NODES_FAST } else { NODES_SLOW };
        let before = self.sampling.topology.read_counters();
        for epoch in 0..EPOCHS {
            if !run.epoch(epoch, most)? {
                break;
            }
        }
        run.trace.topology = self.sampling.topology.read_counters().since(&before);
        run.trace.full = run.cache.is_full();
        Ok(run.trace)
    }

    /// The reads that fill the constant part.
    fn fill(&self, parts: &[PlannedPart]) -> RowReads {
        let mut fill = RowReads { misses: self.constant.len() as f64, ..RowReads::default() };
        for part in parts {
            self.add_reads(&mut fill, part, self.constant);
        }
        fill
    }

    fn add_reads(&self, sum: &mut RowReads, part: &PlannedPart, rows: &[u64]) -> Vec<PlannedRead> {
        let (reads, seconds) = part.reads(rows, self.cost, self.max_read);
        let bytes = |read| self.cost.device_bytes(read, part.layout.file_len).0;
        sum.requests += reads.len() as f64;
        sum.bytes += reads.iter().map(bytes).sum::<u64>() as f64;
        sum.device_s += seconds;
        reads
    }
}

struct Run<'a> {
    tracing: &'a Tracing<'a>,
    cache: RowCache,
    parts: &'a [PlannedPart],
    /// Groups announced but not admitted.
    pending: VecDeque<Announced>,
    /// Numbers of the groups whose slots are pinned.
    held: VecDeque<u64>,
    trace: Trace,
    on_reads: OnReads<'a>,
}

impl Run<'_> {
    /// Examines the batches of an epoch until `most` nodes were seen. Returns whether the epoch was
    /// completed.
    fn epoch(&mut self, epoch: u64, most: u64) -> Result<bool> {
        let Tracing { sampling, plan, .. } = *self.tracing;
        let count = sampling.num_batches();
        let (mut next, mut number) = (0, epoch << 32);
        while next < count && self.trace.nodes < most {
            let until = (next + u64::from(plan.split.group)).min(count);
            let started = Instant::now();
            let parts = sampling.sample(epoch, next..until)?;
            let groups = sampling.group(&mut number, parts, &self.cache.room());
            self.trace.sample_s += started.elapsed().as_secs_f64();
            next = until;
            for group in groups {
                let sampled = || group.batches.iter().map(|batch| &batch.sampled);
                self.trace.nodes += sampled().map(|one| one.nodes.len() as u64).sum::<u64>();
                self.trace.edges += sampled().map(|one| one.num_edges() as u64).sum::<u64>();
                let announced = self.cache.announce(group);
                self.pending.push_back(announced);
                if self.pending.len() > plan.look_ahead as usize {
                    self.admit_next()?;
                }
            }
        }
        while !self.pending.is_empty() {
            self.admit_next()?;
        }
        while self.release_next() {}
        Ok(next == count)
    }

    /// Admits the next group in the same way as the fetching stage.
    fn admit_next(&mut self) -> Result<()> {
        let Some(mut next) = self.pending.pop_front() else { return Ok(()) };
        while self.held.len() >= PINNED_GROUPS {
            self.release_next();
        }
        let admitted = loop {
            match self.cache.admit(next) {
                Ok(admitted) => break admitted,
                Err(announced) => next = announced,
            }
            if !self.release_next() {
                return Err(no_room(&next.group));
            }
        };
        let Admitted { group, missed, .. } = admitted;
        let counted = self.cache.take_counters();
        let mut read = RowReads {
            batches: group.batches.len() as f64,
            accesses: counted.accesses as f64,
            misses: counted.misses as f64,
            ..RowReads::default()
        };
        for (place, part) in self.parts.iter().enumerate() {
            let reads = self.tracing.add_reads(&mut read, part, &missed);
            (self.on_reads)(place, reads);
        }
        self.trace.groups.push(read);
        self.held.push_back(group.number);
        self.tracing.sampling.give_back(group);
        Ok(())
    }

    /// Releases the oldest pinned group. Returns whether there was one.
    fn release_next(&mut self) -> bool {
        let Some(number) = self.held.pop_front() else { return false };
        self.cache.release(number);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of one batch with 10 accesses each, and one request of 4096 bytes per miss.
    fn trace(misses: &[f64], capacity: f64, full: bool) -> Trace {
        let group = |&misses: &f64| RowReads {
            batches: 1.0,
            accesses: 10.0,
            misses,
            requests: misses,
            bytes: misses * 4096.0,
            device_s: misses / 1000.0,
        };
        let groups = misses.iter().map(group).collect();
        Trace { groups, capacity, full, ..Trace::default() }
    }

    #[test]
    fn epochs_that_were_looked_at_are_added_up() {
        let seen = trace(&[8.0, 6.0, 3.0, 1.0], 100.0, false);
        let forecast = seen.forecast(2);
        assert_eq!(forecast.first.rows.misses, 14.0);
        assert_eq!(forecast.first.hit_ratio, 1.0 - 14.0 / 20.0);
        assert_eq!((forecast.later.rows.requests, forecast.later.rows.bytes), (4.0, 4.0 * 4096.0));
        assert_eq!(forecast.later.hit_ratio, 1.0 - 4.0 / 20.0);
    }

    #[test]
    fn behind_a_full_cache_batches_are_like_the_last_quarter() {
        // The last two of eight batches have 2 misses each.
        let seen = trace(&[9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 2.0, 2.0], 30.0, true);
        let forecast = seen.forecast(100);
        assert_eq!(forecast.first.rows.misses, 43.0 + 92.0 * 2.0);
        assert_eq!(forecast.later.rows.misses, 200.0);
        assert_eq!(forecast.later.rows.device_s, 0.2);
        assert_eq!(forecast.later.hit_ratio, 0.8);
    }

    #[test]
    fn a_cache_that_is_not_full_fills_by_a_power_of_the_batches() {
        // Misses 100, 200: twice the batches have twice the misses, until 400 slots are full.
        let line = trace(&[100.0, 100.0], 400.0, false);
        assert!((line.growing(3.0) - 300.0).abs() < 1e-9);
        assert!((line.growing(8.0) - 800.0).abs() < 1e-9);
        // 100 misses after the first batch and 141 after the second: a square root, with slope 100
        // / (2 sqrt(t)). 200 slots are full after four batches, where the slope is 25.
        let root = trace(&[100.0, 100.0 * (2f64.sqrt() - 1.0)], 200.0, false);
        assert!((root.growing(4.0) - 200.0).abs() < 1e-9, "{}", root.growing(4.0));
        assert!((root.growing(8.0) - 300.0).abs() < 1e-9, "{}", root.growing(8.0));
    }

    #[test]
    fn without_batches_there_is_nothing_to_expect() {
        let forecast = Trace::default().forecast(0);
        assert_eq!(forecast, Forecast::default());
    }
}
