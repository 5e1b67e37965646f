//! The two stages that run ahead of the consumer, each as a loop on a separate thread.
//!
//! The channels between them hold no elements: a stage hands over a group when the next stage is
//! ready. The number of groups that exist at the same time is therefore the number in the memory
//! plan. Every wait ends, because a stage that ends for any reason closes its channels.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use outercore_core::{Error, ErrorKind, Result, StageClock, StageCounters, hint};
use rayon::{Scope, ThreadPool};

use crate::arrays::Arrays;
use crate::counters::{SharedState, lock};
use crate::fetch::{Fetcher, Ready};
use crate::group::{Group, Part};
use crate::room::RowRoom;
use crate::row_cache::Announced;
use crate::sampling::Sampling;
use crate::timeline::Stage;

/// Groups whose slots may be pinned at the same time: one is consumed, one is fetched.
pub const PINNED_GROUPS: usize = 2;

/// The sampling stage: turns seeds into sampled groups.
pub struct SampleStage {
    pub sampling: Arc<Sampling>,
    pub epoch: u64,
    /// Batches of the epoch that are not sampled yet.
    pub batches: Range<u64>,
    /// Batches per group.
    pub group: u64,
    /// Groups started before the current group is complete; 0 samples all batches of a group
    /// together.
    pub ahead: u64,
    /// Limits the rows that several batches need together.
    pub room: RowRoom,
    /// Number of the first group.
    pub next_group: u64,
    pub shared: SharedState,
}

impl SampleStage {
    /// Samples until the epoch is over or the receiver is closed; returns the number of the next
    /// group.
    pub fn run(self, groups: &SyncSender<Result<Group>>) -> u64 {
        let sampling = Arc::clone(&self.sampling);
        sampling.pool.in_place_scope(|scope| self.run_in(scope, &sampling, groups))
    }

    fn run_in<'scope>(
        mut self,
        scope: &Scope<'scope>,
        sampling: &'scope Sampling,
        groups: &SyncSender<Result<Group>>,
    ) -> u64 {
        let mut clock = StageClock::start();
        let mut begun = Begun { next: self.batches.start, batches: VecDeque::new() };
        while self.batches.start < self.batches.end {
            let until = (self.batches.start + self.group).min(self.batches.end);
            let batches = self.batches.start..until;
            self.batches.start = until;

            let started = lock(&self.shared).timeline.now();
            let item = self.next_group;
            let parts = if self.ahead == 0 {
                sampling.sample(self.epoch, batches)
            } else {
                let ahead = (until + self.ahead * self.group).min(self.batches.end);
                begun.begin(scope, sampling, self.epoch, ahead);
                begun.take(batches.end - batches.start)
            };
            let sampled =
                parts.map(|parts| sampling.group(&mut self.next_group, parts, &self.room));
            let mut spent = StageCounters::default();
            clock.lap(&mut spent.busy_s);
            lock(&self.shared).timeline.record(Stage::Sample, item, started);

            let failed = sampled.is_err();
            let outgoing: Vec<Result<Group>> = match sampled {
                Ok(made) => made.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            for group in outgoing {
                spent.items += group.as_ref().map_or(0, |group| group.batches.len() as u64);
                if groups.send(group).is_err() {
                    return self.next_group;
                }
            }
            clock.lap(&mut spent.blocked_s);
            lock(&self.shared).counters.sample += spent;
            if failed {
                break;
            }
        }
        self.next_group
    }
}

/// Batches that the pool samples, each by one thread, in order.
struct Begun {
    /// The next batch to start.
    next: u64,
    batches: VecDeque<Receiver<Result<Vec<Part>>>>,
}

impl Begun {
    /// Starts all batches before `until` that have not been started.
    fn begin<'scope>(
        &mut self,
        scope: &Scope<'scope>,
        sampling: &'scope Sampling,
        epoch: u64,
        until: u64,
    ) {
        for batch in self.next..until {
            let (sender, receiver) = sync_channel(1);
            scope.spawn(move |_| {
                // If an earlier batch has failed, the receiver is closed, and the result is not
                // needed.
                let _ = sender.send(sampling.sample(epoch, batch..batch + 1));
            });
            self.batches.push_back(receiver);
        }
        self.next = self.next.max(until);
    }

    /// Waits for the first `count` batches.
    fn take(&mut self, count: u64) -> Result<Vec<Part>> {
        let mut parts = Vec::with_capacity(count as usize);
        for batch in self.batches.drain(..count as usize) {
            // A thread that panics sends nothing; the end of the scope propagates its panic.
            let part = batch.recv().map_err(|_| Error::internal("a batch was not sampled"))?;
            parts.append(&mut part?);
        }
        Ok(parts)
    }
}

/// The fetching stage: brings the rows of sampled groups into memory.
pub struct FetchStage {
    /// `None` if no features are delivered.
    pub fetcher: Option<Fetcher>,
    /// `None` if no further arrays are delivered.
    pub arrays: Option<Arrays>,
    /// Threads that copy rows of further arrays.
    pub pool: Arc<ThreadPool>,
    pub look_ahead: usize,
    pub shared: SharedState,
}

impl FetchStage {
    /// Fetches until the sampling stage ends or the receiver is closed. Returns the fetcher,
    /// without pinned slots, and the arrays.
    pub fn run(
        self,
        sampled: &Receiver<Result<Group>>,
        ready: &SyncSender<Result<Ready>>,
        released: &Receiver<u64>,
    ) -> (Option<Fetcher>, Option<Arrays>) {
        let mut extras = Extras { arrays: self.arrays, pool: self.pool };
        match self.fetcher {
            None => {
                pass_through(sampled, ready, released, &mut extras, &self.shared);
                (None, extras.arrays)
            }
            Some(fetcher) => {
                let mut run = FetchRun {
                    fetcher,
                    extras,
                    pending: VecDeque::new(),
                    held: VecDeque::new(),
                    spent: StageCounters::default(),
                    clock: StageClock::start(),
                };
                if let Err(error) =
                    run.fetch_all(sampled, ready, released, self.look_ahead, &self.shared)
                {
                    // If the consumer has already ended, the error is not needed.
                    let _ = ready.send(Err(error));
                }
                while run.held.front().is_some() && run.wait_for_release(released).is_ok() {}
                if !run.held.is_empty() || !run.pending.is_empty() {
                    run.fetcher.reset();
                }
                (Some(run.fetcher), run.extras.arrays)
            }
        }
    }
}

/// Further arrays of batches, if any.
struct Extras {
    arrays: Option<Arrays>,
    pool: Arc<ThreadPool>,
}

impl Extras {
    /// Adds the rows of the arrays to the batches of a group.
    fn fill(&mut self, group: &mut Group, shared: &SharedState) -> Result<()> {
        let Some(arrays) = &mut self.arrays else { return Ok(()) };
        arrays.fetch(group, &self.pool)?;
        lock(shared).counters.feature_reads += arrays.take_counters();
        Ok(())
    }
}

struct FetchRun {
    fetcher: Fetcher,
    extras: Extras,
    /// Groups announced but not fetched.
    pending: VecDeque<Announced>,
    /// Numbers of the groups that the consumer holds.
    held: VecDeque<u64>,
    spent: StageCounters,
    clock: StageClock,
}

impl FetchRun {
    fn fetch_all(
        &mut self,
        sampled: &Receiver<Result<Group>>,
        ready: &SyncSender<Result<Ready>>,
        released: &Receiver<u64>,
        look_ahead: usize,
        shared: &SharedState,
    ) -> Result<()> {
        let mut ended = false;
        loop {
            // Waits for the whole look-ahead instead of using the groups that are ready by chance.
            // Hits and reads are then the same in every run.
            while !ended && self.pending.len() <= look_ahead {
                match sampled.recv() {
                    Ok(group) => {
                        let announced = self.fetcher.announce(group?);
                        self.pending.push_back(announced);
                    }
                    Err(_) => ended = true,
                }
            }
            self.clock.lap(&mut self.spent.starved_s);
            let Some(mut next) = self.pending.pop_front() else { return Ok(()) };
            while self.held.len() >= PINNED_GROUPS {
                if self.wait_for_release(released).is_err() {
                    return Ok(());
                }
            }
            self.clock.lap(&mut self.spent.blocked_s);
            let started = lock(shared).timeline.now();
            let mut group = loop {
                match self.fetcher.fetch(next)? {
                    Ok(group) => break group,
                    Err(announced) => next = announced,
                }
                if self.held.is_empty() {
                    return Err(no_room(&next.group));
                }
                if self.wait_for_release(released).is_err() {
                    return Ok(());
                }
            };
            self.extras.fill(&mut group.group, shared)?;
            self.clock.lap(&mut self.spent.busy_s);
            let number = group.group.number;
            self.spent.items += group.group.batches.len() as u64;
            {
                let mut shared = lock(shared);
                shared.timeline.record(Stage::Fetch, number, started);
                let (reads, cache) = self.fetcher.take_counters();
                shared.counters.feature_reads += reads;
                shared.counters.cache += cache;
                shared.counters.groups += 1;
                shared.counters.fetch += std::mem::take(&mut self.spent);
            }
            self.held.push_back(number);
            if ready.send(Ok(group)).is_err() {
                return Ok(());
            }
            self.clock.lap(&mut self.spent.blocked_s);
        }
    }

    /// Waits until the consumer releases its oldest group; fails if the consumer has ended.
    fn wait_for_release(&mut self, released: &Receiver<u64>) -> std::result::Result<(), ()> {
        let number = released.recv().map_err(|_| ())?;
        self.held.retain(|&held| held != number);
        self.fetcher.release(number);
        Ok(())
    }
}

/// The error for a batch that does not fit into the slots.
pub fn no_room(group: &Group) -> Error {
    Error::new(
        ErrorKind::Budget,
        format!(
            "{} batches from batch {} on need {} distinct rows, more than the budget has slots for",
            group.batches.len(),
            group.batches[0].sampled.batch,
            group.rows.len()
        ),
    )
    .hint(hint!("raise " {memory} ", or lower the batch size or the fan-outs"))
}

fn pass_through(
    sampled: &Receiver<Result<Group>>,
    ready: &SyncSender<Result<Ready>>,
    released: &Receiver<u64>,
    extras: &mut Extras,
    shared: &SharedState,
) {
    for group in sampled {
        let group = group.and_then(|mut group| {
            extras.fill(&mut group, shared)?;
            Ok(group)
        });
        let failed = group.is_err();
        lock(shared).counters.groups += 1;
        if ready.send(group.map(|group| Ready { group, slots: Vec::new() })).is_err() || failed {
            return;
        }
        while released.try_recv().is_ok() {}
    }
}
