//! State shared by the threads of a run: the current pass, the arrived segments, the parts read
//! ahead.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outercore_core::{Error, Result, StageCounters};

use super::layout::{Layout, Part, ReadList};
use super::loaded::Loaded;
use crate::schedule::Schedule;
use crate::task::Task;

/// Longest wait of a thread before it checks for a stop request and for the time.
pub(super) const LOOK_AROUND: Duration = Duration::from_millis(100);

/// A run as seen by its threads.
pub(super) struct Shared {
    pub layout: Layout,
    state: Mutex<State>,
    /// Signals that a task can be claimed, or that no more tasks will follow.
    pub work: Condvar,
    /// Signals that a segment was freed, or that no tasks remain.
    pub room: Condvar,
    /// Signals that a worker has ended, or that the reader is idle.
    pub ended: Condvar,
    /// Signals that there is something to read, or that no more reads will follow.
    pub reads: Condvar,
}

/// State that changes during a run.
pub(super) struct State {
    /// Number of the current pass, or of the last one between passes.
    pub pass: u64,
    /// Whether a pass is in progress.
    on: bool,
    pub schedule: Schedule,
    /// By segment: data that stays, and data that the current pass has read.
    pub data: Vec<Option<Arc<Loaded>>>,
    /// Parts for the next pass, in file order.
    ahead: Vec<Ahead>,
    /// Number of parts that are in slots or are being read.
    pub admitted: usize,
    /// Number of parts that are being read.
    pub loading: usize,
    /// Number of tasks that are being executed.
    pub running: usize,
    pub error: Option<Error>,
    pub stop: bool,
    /// Arcs that the pass has applied.
    pub arcs: u64,
    pub workers: usize,
    pub reader: ReaderState,
}

/// State of the reading thread for other threads.
#[derive(Default)]
pub(super) struct ReaderState {
    pub lists: VecDeque<ReadList>,
    pub busy: bool,
    /// Whether the current reads are no longer needed.
    pub abandon: bool,
    /// Whether the run is over.
    pub quit: bool,
    pub counters: StageCounters,
    /// Bytes that have arrived.
    pub bytes: u64,
}

/// A part that is read before its pass begins.
struct Ahead {
    part: Part,
    /// `None` while it is being read.
    loaded: Option<Loaded>,
}

impl Shared {
    pub fn new(layout: Layout) -> Self {
        let segments = layout.segments.len();
        let state = State {
            pass: 0,
            on: false,
            schedule: Schedule::default(),
            data: (0..segments).map(|_| None).collect(),
            ahead: Vec::new(),
            admitted: 0,
            loading: 0,
            running: 0,
            error: None,
            stop: false,
            arcs: 0,
            workers: 0,
            reader: ReaderState::default(),
        };
        Self {
            layout,
            state: Mutex::new(state),
            work: Condvar::new(),
            room: Condvar::new(),
            ended: Condvar::new(),
            reads: Condvar::new(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs while the lock is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes workers for `new` tasks.
    pub fn call_for(&self, new: usize) {
        match new {
            0 => {}
            1 => self.work.notify_one(),
            _ => self.work.notify_all(),
        }
    }

    /// Ends the pass; only the first error is reported.
    pub fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.error.get_or_insert(error);
        state.stop = true;
        drop(state);
        self.wake_all();
    }

    pub fn wake_all(&self) {
        self.work.notify_all();
        self.room.notify_all();
        self.ended.notify_all();
    }

    /// Begins the next pass. `wanted` are its parts, and `next` are parts for the following pass,
    /// read when there is room. Returns the bytes that had already been requested.
    ///
    /// Parts read ahead are used as long as they match the start of `wanted`. A segment further on
    /// would occupy room until the segments before it are finished, and these could then not be
    /// read.
    pub fn begin(
        &self,
        tasks: Vec<Vec<Task>>,
        mut wanted: Vec<Part>,
        next: Vec<Part>,
        workers: usize,
    ) -> u64 {
        let mut state = self.lock();
        let covers = |(ahead, wanted): &(&Ahead, &Part)| ahead.part.covers(wanted);
        let mut usable = state.ahead.iter().zip(&wanted).take_while(covers).count();
        if usable < state.ahead.len() {
            state = self.abandon(state);
        }
        if !state.reader.busy && state.reader.lists.is_empty() {
            // The reader is idle, so missing parts will not arrive.
            let here = state.ahead.iter().take_while(|ahead| ahead.loaded.is_some()).count();
            usable = usable.min(here);
        }
        let mut bytes = 0;
        for (at, Ahead { part, loaded }) in std::mem::take(&mut state.ahead).into_iter().enumerate()
        {
            if at < usable {
                // Parts that are still being read arrive as if this pass had requested them.
                bytes += part.bytes();
                state.data[part.segment] = loaded.map(Arc::new);
            } else if loaded.is_some() {
                state.admitted -= 1;
            }
        }
        wanted.drain(..usable);
        state.ahead = next.iter().map(|part| Ahead { part: part.clone(), loaded: None }).collect();
        wanted.extend(next);
        let ready = state.data.iter().map(Option::is_some).collect();
        state.schedule = Schedule::new(tasks, Arc::clone(&self.layout.segment_of), ready);
        state.pass += 1;
        state.on = true;
        state.arcs = 0;
        state.workers = workers;
        if !wanted.is_empty() {
            let list = self.layout.reads(wanted);
            state.reader.lists.push_back(list);
            self.reads.notify_one();
        }
        bytes
    }

    /// Ends the current pass; returns its error, if it was not completed.
    pub fn end(&self) -> Option<Error> {
        let mut state = self.lock();
        if state.stop {
            state = self.abandon(state);
            state.ahead.clear();
            (state.admitted, state.loading) = (0, 0);
        }
        state.on = false;
        state.stop = false;
        state.running = 0;
        state.schedule = Schedule::default();
        let State { data, .. } = &mut *state;
        for (data, _) in data.iter_mut().zip(&self.layout.pins).filter(|pair| !pair.1) {
            *data = None;
        }
        state.error.take()
    }

    /// Between passes: stops reading ahead and drops the parts that were read.
    pub fn drop_ahead(&self) {
        let mut state = self.abandon(self.lock());
        let ahead = std::mem::take(&mut state.ahead);
        state.admitted -= ahead.iter().filter(|ahead| ahead.loaded.is_some()).count();
    }

    /// Between passes: reads `parts`, which stay in memory, and waits for them. `look_around` is
    /// called with the number of bytes that have arrived.
    pub fn load(
        &self,
        parts: Vec<Part>,
        look_around: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let list = self.layout.reads(parts);
        let mut state = self.lock();
        let before = state.reader.bytes;
        state.reader.lists.push_back(list);
        self.reads.notify_one();
        while state.reader.busy || !state.reader.lists.is_empty() {
            let (woken, timeout) = match self.ended.wait_timeout(state, LOOK_AROUND) {
                Ok(woken) => woken,
                Err(poisoned) => poisoned.into_inner(),
            };
            state = woken;
            if timeout.timed_out() && !state.stop {
                let done = state.reader.bytes - before;
                drop(state);
                if let Err(error) = look_around(done) {
                    self.fail(error);
                }
                state = self.lock();
            }
        }
        drop(state);
        self.end().map_or(Ok(()), Err)
    }

    /// Makes the reader abandon its reads, and waits until it is idle, for at most the time of the
    /// reads in flight.
    fn abandon<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        state.reader.lists.clear();
        state.reader.abandon = true;
        self.room.notify_all();
        while state.reader.busy {
            state = match self.ended.wait_timeout(state, LOOK_AROUND) {
                Ok(woken) => woken.0,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        state.reader.abandon = false;
        state
    }
}

impl State {
    /// Whether the reader must end.
    pub fn unwanted(&self) -> bool {
        self.stop || self.reader.abandon
    }

    /// Accepts a part that has been read. `stays` means that it stays until the end of the run and
    /// is not in a slot. Returns the number of tasks that became claimable.
    pub fn arrived(&mut self, part: &Part, loaded: Loaded, stays: bool) -> usize {
        self.loading -= 1;
        if stays {
            // It has separate memory, so its slot is free.
            self.admitted -= 1;
        }
        if part.pass > self.pass {
            let ahead = self.ahead.iter_mut().find(|ahead| ahead.part.segment == part.segment);
            // An unexpected part has been abandoned, together with its reads.
            if let Some(ahead) = ahead {
                ahead.loaded = Some(loaded);
            }
            return 0;
        }
        self.data[part.segment] = Some(Arc::new(loaded));
        if self.on { self.schedule.arrived(part.segment) } else { 0 }
    }

    /// The reader has failed, and parts of pass number `pass` are missing: ends that pass if it is
    /// in progress. For a later pass, the reads can be tried again.
    pub fn failed(&mut self, pass: Option<u64>, error: Error) {
        if pass.is_some_and(|pass| pass <= self.pass) && !self.unwanted() {
            self.error.get_or_insert(error);
            self.stop = true;
        }
    }
}
