//! What the threads of a run share: the pass that is on, what has arrived, what is read ahead.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use outercore_core::{Error, Result, StageCounters};

use super::layout::{Layout, Part, ReadList};
use super::loaded::Loaded;
use crate::schedule::Schedule;
use crate::task::Task;

/// How long anybody waits before looking around: for the wish to stop, and for the clock.
pub(super) const LOOK_AROUND: Duration = Duration::from_millis(100);

/// A run as its threads see it.
pub(super) struct Shared {
    pub layout: Layout,
    state: Mutex<State>,
    /// There is something to claim, or nothing more will be.
    pub work: Condvar,
    /// A segment was freed, or nothing is left to compute.
    pub room: Condvar,
    /// A worker went home, or the reader is idle.
    pub ended: Condvar,
    /// There is something to read, or nothing more will be.
    pub reads: Condvar,
}

/// What changes during a run.
pub(super) struct State {
    /// Number of the pass that is on, or else of the last one.
    pub pass: u64,
    /// Whether a pass is on.
    on: bool,
    pub schedule: Schedule,
    /// By segment: what stays, and what the pass that is on has read.
    pub data: Vec<Option<Arc<Loaded>>>,
    /// What is read for the pass after, in the order of the file.
    ahead: Vec<Ahead>,
    /// Parts that are in slots or are being read.
    pub admitted: usize,
    /// Parts that are being read.
    pub loading: usize,
    /// Tasks that are being done.
    pub running: usize,
    pub error: Option<Error>,
    pub stop: bool,
    /// Arcs that the pass has applied.
    pub arcs: u64,
    pub workers: usize,
    pub reader: ReaderState,
}

/// The reading thread as others see it.
#[derive(Default)]
pub(super) struct ReaderState {
    pub lists: VecDeque<ReadList>,
    pub busy: bool,
    /// What is being read is not wanted any more.
    pub abandon: bool,
    /// The run is over.
    pub quit: bool,
    pub counters: StageCounters,
    /// Bytes that have arrived.
    pub bytes: u64,
}

/// A part that is read before the pass that wants it begins.
struct Ahead {
    part: Part,
    /// Empty while it is being read.
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
        // Nothing that can panic runs while this is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who does `new` tasks.
    pub fn call_for(&self, new: usize) {
        match new {
            0 => {}
            1 => self.work.notify_one(),
            _ => self.work.notify_all(),
        }
    }

    /// Ends the pass; the first error is the one that is told.
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

    /// Begins the next pass: `wanted` is what it has to read, `next` what may be read for the one
    /// after as soon as there is room. Returns how many bytes had been asked for before.
    ///
    /// What was read ahead is used as far as it is the beginning of what is wanted. A segment further
    /// on would hold room until those before it are done, which then could not be read.
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
            // Nobody brings what is not there.
            let here = state.ahead.iter().take_while(|ahead| ahead.loaded.is_some()).count();
            usable = usable.min(here);
        }
        let mut bytes = 0;
        for (at, Ahead { part, loaded }) in std::mem::take(&mut state.ahead).into_iter().enumerate()
        {
            if at < usable {
                // What is still on its way arrives as if this pass had asked for it.
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

    /// Ends the pass that is on; its error, if it did not come to its end.
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

    /// Between passes: reads nothing more ahead and drops what was read.
    pub fn drop_ahead(&self) {
        let mut state = self.abandon(self.lock());
        let ahead = std::mem::take(&mut state.ahead);
        state.admitted -= ahead.iter().filter(|ahead| ahead.loaded.is_some()).count();
    }

    /// Between passes: reads `parts`, which stay, and waits for them. `look_around` is told how many
    /// bytes have come.
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

    /// Tells the reader that nothing it reads is wanted, and waits until it is idle: as long as what
    /// is in flight takes.
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
    /// Whether whoever reads must end.
    pub fn unwanted(&self) -> bool {
        self.stop || self.reader.abandon
    }

    /// Takes a part that has been read; which `stays` to the end or is in
    /// a slot; returns how many tasks that made claimable.
    pub fn arrived(&mut self, part: &Part, loaded: Loaded, stays: bool) -> usize {
        self.loading -= 1;
        if stays {
            // It has memory of its own.
            self.admitted -= 1;
        }
        if part.pass > self.pass {
            let ahead = self.ahead.iter_mut().find(|ahead| ahead.part.segment == part.segment);
            // What is not expected has been abandoned, and the reader with it.
            if let Some(ahead) = ahead {
                ahead.loaded = Some(loaded);
            }
            return 0;
        }
        self.data[part.segment] = Some(Arc::new(loaded));
        if self.on { self.schedule.arrived(part.segment) } else { 0 }
    }

    /// The reader has failed with parts of pass number `pass` missing: ends that pass if it is on.
    /// For one that is yet to begin there is time to try again.
    pub fn failed(&mut self, pass: Option<u64>, error: Error) {
        if pass.is_some_and(|pass| pass <= self.pass) && !self.unwanted() {
            self.error.get_or_insert(error);
            self.stop = true;
        }
    }
}
