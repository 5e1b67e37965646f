//! The computing threads: claim a task, decode its piece, apply it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use outercore_core::{Context, Error, Result, StageClock, StageCounters};
use outercore_grid::{Arcs, Decoder};

use super::loaded::Loaded;
use super::shared::{LOOK_AROUND, Shared};
use crate::task::Task;

/// The threads that apply the tasks of a pass.
pub(super) enum Hands<'h> {
    /// Several threads: `apply(list, task, arcs)`.
    Many(&'h (dyn Fn(usize, Task, &Arcs<'_>) -> Result<()> + Sync)),
    /// The calling thread.
    One(&'h mut dyn FnMut(usize, Task, &Arcs<'_>) -> Result<()>),
}

impl Shared {
    /// Executes the tasks of the current pass; `decoders` has one decoder per thread that may be
    /// used. `look_around` is called regularly on the calling thread.
    pub fn compute(
        &self,
        hands: Hands<'_>,
        weights: bool,
        decoders: &mut [Decoder],
        look_around: &mut dyn FnMut(u64) -> Result<()>,
    ) -> StageCounters {
        let apply = match hands {
            Hands::One(apply) => {
                return self.work(weights, &mut decoders[0], apply, look_around);
            }
            Hands::Many(apply) if decoders.len() == 1 => {
                let mut apply = |list: usize, task, arcs: &Arcs<'_>| apply(list, task, arcs);
                return self.work(weights, &mut decoders[0], &mut apply, look_around);
            }
            Hands::Many(apply) => apply,
        };
        std::thread::scope(|scope| {
            let start = |decoder| {
                scope.spawn(move || {
                    let counters = catch_unwind(AssertUnwindSafe(|| {
                        let mut apply =
                            |list: usize, task, arcs: &Arcs<'_>| apply(list, task, arcs);
                        self.work(weights, decoder, &mut apply, &mut |_| Ok(()))
                    }));
                    if counters.is_err() {
                        self.fail(Error::internal("a worker panicked"));
                    }
                    self.lock().workers -= 1;
                    self.ended.notify_all();
                    counters.unwrap_or_default()
                })
            };
            let workers: Vec<_> = decoders.iter_mut().map(start).collect();
            self.watch(look_around);
            let mut total = StageCounters::default();
            for worker in workers {
                total += worker.join().unwrap_or_default();
            }
            total
        })
    }

    /// Claims and executes tasks until none are left or the pass is stopped. `look_around` is
    /// called regularly, without the lock.
    fn work(
        &self,
        weights: bool,
        decoder: &mut Decoder,
        apply: &mut dyn FnMut(usize, Task, &Arcs<'_>) -> Result<()>,
        look_around: &mut dyn FnMut(u64) -> Result<()>,
    ) -> StageCounters {
        let layout = &self.layout;
        let mut counters = StageCounters::default();
        let mut clock = StageClock::start();
        let mut state = self.lock();
        let mut looked = Instant::now();
        loop {
            if state.stop || state.schedule.tasks_left() == 0 {
                break;
            }
            if looked.elapsed() >= LOOK_AROUND {
                let arcs = state.arcs;
                drop(state);
                looked = Instant::now();
                if let Err(error) = look_around(arcs) {
                    self.fail(error);
                }
                state = self.lock();
                continue;
            }
            let Some((list, task)) = state.schedule.claim() else {
                clock.lap(&mut counters.busy_s);
                state = match self.work.wait_timeout(state, LOOK_AROUND) {
                    Ok(woken) => woken.0,
                    Err(poisoned) => poisoned.into_inner().0,
                };
                clock.lap(&mut counters.starved_s);
                continue;
            };
            let edges = layout.grid.pieces()[task.piece()].edges;
            let loaded = state.data[layout.segment_of[task.piece()] as usize].clone();
            state.running += 1;
            drop(state);

            let outcome = match &loaded {
                Some(loaded) => {
                    self.apply(task, loaded, weights, decoder, &mut |arcs| apply(list, task, arcs))
                }
                None => Err(Error::internal("a task was handed out before its bytes were there")),
            };
            drop(loaded);
            counters.items += 1;
            if let Err(error) = outcome {
                self.fail(error);
                state = self.lock();
                break;
            }
            state = self.lock();
            state.running -= 1;
            state.arcs += u64::from(edges);
            if let Some(segment) = state.schedule.finish(list, task)
                && !layout.pins[segment]
                && let Some(loaded) = state.data[segment].take()
            {
                // No other thread uses it, so its slot is free after this.
                drop(loaded);
                state.admitted -= 1;
                self.room.notify_one();
            }
            if state.schedule.tasks_left() == 0 {
                self.wake_all();
            } else if state.schedule.has_work() {
                self.work.notify_one();
            } else if !layout.buffering && state.running == 0 {
                self.room.notify_one();
            }
        }
        drop(state);
        clock.lap(&mut counters.busy_s);
        counters
    }

    /// Decodes the piece of a task and applies its arcs.
    fn apply(
        &self,
        task: Task,
        loaded: &Loaded,
        weights: bool,
        decoder: &mut Decoder,
        apply: &mut dyn FnMut(&Arcs<'_>) -> Result<()>,
    ) -> Result<()> {
        let grid = &self.layout.grid;
        let piece = &grid.pieces()[task.piece()];
        // The other direction of the piece may be decoded at the same time without verification.
        // This is safe, and a bad checksum still ends the pass.
        let verify = loaded.to_verify(task.piece());
        let weights = loaded.weights(piece, weights);
        let arcs = decoder
            .decode(piece, grid.shape(), loaded.body(piece), weights, verify)
            .with_context(|| format!("piece {}", task.piece()))?;
        let arcs = Arcs { side: task.side(), ..arcs };
        catch_unwind(AssertUnwindSafe(|| apply(&arcs)))
            .unwrap_or_else(|_| Err(Error::internal("an edge program panicked")))
    }

    /// Waits for the workers, and calls `look_around` regularly.
    fn watch(&self, look_around: &mut dyn FnMut(u64) -> Result<()>) {
        let mut state = self.lock();
        while state.workers > 0 {
            let (woken, timeout) = match self.ended.wait_timeout(state, LOOK_AROUND) {
                Ok(woken) => woken,
                Err(poisoned) => poisoned.into_inner(),
            };
            state = woken;
            if timeout.timed_out() && !state.stop {
                let arcs = state.arcs;
                drop(state);
                if let Err(error) = look_around(arcs) {
                    self.fail(error);
                }
                state = self.lock();
            }
        }
    }
}
