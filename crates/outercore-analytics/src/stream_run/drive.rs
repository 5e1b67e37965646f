//! One pass: its reads and computations, and their cost.

use std::sync::Arc;
use std::time::Instant;

use outercore_core::{Error, Result};

use super::StreamRun;
use super::work::Hands;
use crate::checkpoint::Checkpoints;
use crate::output::PassCounters;
use crate::state::SpillCounters;
use crate::task::Task;

/// With fewer arcs than this, all in memory, threads cost more than they gain: passes over road
/// networks are tiny, and there are thousands.
const FEW_ARCS: u64 = 1 << 17;

/// Number of passes with separate counters.
const COUNTED_PASSES: usize = 1_000;

impl StreamRun<'_> {
    /// Executes the tasks of a pass, list by list in order.
    pub(super) fn drive(
        &mut self,
        tasks: Vec<Vec<Task>>,
        weights: bool,
        hands: Hands<'_>,
    ) -> Result<()> {
        if weights && !self.plan.weighted {
            return Err(Error::internal("a pass over weights that the plan knows nothing of"));
        }
        self.dealt = None;
        let expected = self.expected.take();
        let began = Instant::now();
        let shared = Arc::clone(&self.shared);
        let layout = &shared.layout;
        let state = shared.lock();
        let held: Vec<bool> = state.data.iter().map(Option::is_some).collect();
        let pass = state.pass + 1;
        let reader_before = state.reader.counters;
        drop(state);

        let wanted = layout.parts(&tasks, weights, &held, pass);
        let next = expected.map_or_else(Vec::new, |(tasks, weights)| {
            layout.first_parts(layout.parts(&tasks, weights, &held, pass + 1))
        });
        let pinned_bytes = self.note_wanted(&tasks, &held, weights);
        let pieces = layout.grid.pieces();
        let arcs: u64 =
            tasks.iter().flatten().map(|task| u64::from(pieces[task.piece()].edges)).sum();
        let lists = tasks.iter().filter(|list| !list.is_empty()).count();
        let few = arcs < FEW_ARCS && wanted.is_empty();
        let one = few || matches!(hands, Hands::One(_));
        let threads = if one { 1 } else { self.threads.min(lists.max(1)) };
        if !wanted.is_empty() || !next.is_empty() {
            self.reader.start()?;
        }

        let phase = &self.phase;
        let (on_progress, checkpoints) = (&mut *self.on_progress, &mut self.checkpoints);
        let mut look_around = |done: u64| {
            let told = match phase.total {
                0 => on_progress("pass", done, arcs, "arcs"),
                total => on_progress(&phase.what, phase.done, total, "passes"),
            };
            heed(told, checkpoints)
        };
        let ahead_bytes = shared.begin(tasks, wanted, next, threads);
        let decoders = &mut self.decoders[..threads];
        let compute = shared.compute(hands, weights, decoders, &mut look_around);
        let error = shared.end();

        let state = shared.lock();
        let reader = state.reader.counters;
        let bytes_before = std::mem::replace(&mut self.bytes_seen, state.reader.bytes);
        let moved = self.moved();
        self.count(PassCounters {
            spill_read: moved.read.0,
            spill_written: moved.written.0,
            seconds: began.elapsed().as_secs_f64(),
            bytes: state.reader.bytes - bytes_before,
            pinned_bytes,
            ahead_bytes,
            arcs: state.arcs,
            device_seconds: reader.busy_s + reader.starved_s
                - reader_before.busy_s
                - reader_before.starved_s,
            blocked_seconds: reader.blocked_s - reader_before.blocked_s,
            compute_seconds: compute.busy_s,
            threads: threads as u64,
        });
        self.counters.compute += compute;
        error.map_or(Ok(()), Err)
    }

    /// Counts the segments that a pass needs; returns the bytes of those in memory.
    fn note_wanted(&mut self, tasks: &[Vec<Task>], held: &[bool], weights: bool) -> u64 {
        let layout = &self.shared.layout;
        let mut served = vec![false; held.len()];
        for task in tasks.iter().flatten() {
            served[layout.segment_of[task.piece()] as usize] = true;
        }
        if let Some(wanted) = &mut self.wanted {
            for (wanted, _) in wanted.iter_mut().zip(&served).filter(|pair| *pair.1) {
                *wanted = wanted.saturating_add(1);
            }
        }
        (0..held.len())
            .filter(|&segment| served[segment] && held[segment])
            .map(|segment| layout.segments[segment].bytes(weights))
            .sum()
    }

    /// Transfers to and from scratch files since the last call.
    pub(super) fn moved(&mut self) -> SpillCounters {
        let Some(spill) = &self.spill else { return SpillCounters::default() };
        let now = spill.counters();
        now.since(&std::mem::replace(&mut self.spilled, now))
    }

    /// Adds a pass to the counters, or a portion to its pass.
    pub(super) fn count(&mut self, pass: PassCounters) {
        if let Some(portions) = &mut self.portions {
            *portions += pass;
            return;
        }
        let counters = &mut self.counters;
        counters.passes += 1;
        counters.pinned_bytes += pass.pinned_bytes;
        counters.arcs += pass.arcs;
        counters.pass_seconds += pass.seconds;
        counters.device_seconds += pass.device_seconds;
        counters.compute_seconds += pass.compute_seconds;
        let share = |seconds: f64, of: f64| if of > 0.0 { (seconds / of).min(1.0) } else { 0.0 };
        counters.device_busy = share(counters.device_seconds, counters.pass_seconds);
        let all_threads = counters.pass_seconds * self.threads as f64;
        counters.cores_busy = share(counters.compute_seconds, all_threads);
        if counters.by_pass.len() < COUNTED_PASSES {
            counters.by_pass.push(pass);
        }
    }
}

/// Handles the caller's answer to a progress report: a stop request waits for a checkpoint, if one
/// will be written.
pub(super) fn heed(told: Result<()>, checkpoints: &mut Option<Checkpoints>) -> Result<()> {
    match (told, checkpoints) {
        (Err(error), Some(checkpoints)) => checkpoints.wait_for_pass(error),
        (told, _) => told,
    }
}
