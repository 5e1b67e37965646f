//! The reading thread: reads as far ahead as the window allows, even past the end of a pass.

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use outercore_core::{Error, ErrorKind, Result};
use outercore_io::{Engine, Kept};

use super::layout::ReadList;
use super::loaded::Loaded;
use super::shared::{LOOK_AROUND, Shared, State};

/// The engine of a run, and the thread that reads with it from the first segment to the end of the
/// run.
pub(super) struct Reader {
    shared: Arc<Shared>,
    engine: Arc<Mutex<Engine>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    pub fn new(shared: Arc<Shared>, engine: Engine) -> Self {
        Self { shared, engine: Arc::new(Mutex::new(engine)), thread: None }
    }

    /// Starts the thread, unless it is running.
    pub fn start(&mut self) -> Result<()> {
        if self.thread.is_some() {
            return Ok(());
        }
        let (shared, engine) = (Arc::clone(&self.shared), Arc::clone(&self.engine));
        let thread = std::thread::Builder::new()
            .name("outercore-reader".into())
            .spawn(move || follow(&shared, &engine))
            .map_err(|error| Error::new(ErrorKind::Io, format!("no thread to read: {error}")))?;
        self.thread = Some(thread);
        Ok(())
    }

    /// The engine, after the thread has finished its reads.
    pub fn engine(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.reader.quit = true;
        state.reader.abandon = true;
        drop(state);
        self.shared.reads.notify_all();
        self.shared.room.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread has no result, and its panics are caught.
            let _ = thread.join();
        }
    }
}

/// Reads one list after the other until the run is over.
fn follow(shared: &Shared, engine: &Mutex<Engine>) {
    let mut state = shared.lock();
    loop {
        if state.reader.quit {
            return;
        }
        let Some(list) = state.reader.lists.pop_front() else {
            state = shared.reads.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.reader.busy = true;
        drop(state);
        let mut progress = Progress::new(&list);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut engine = engine.lock().unwrap_or_else(PoisonError::into_inner);
            read(shared, &mut engine, &list, &mut progress)
        }));
        let outcome =
            outcome.unwrap_or_else(|_| Err(Error::internal("the reader of a pass panicked")));
        state = shared.lock();
        progress.spent.tell(&mut state);
        if let Err(error) = outcome {
            let missing = progress.give_up(&list, &mut state);
            state.failed(missing, error);
        }
        state.reader.busy = false;
        shared.wake_all();
    }
}

/// Progress of a list of reads.
struct Progress {
    /// Number of parts that may be read.
    begun: usize,
    /// By part: whether all of it has arrived.
    arrived: Vec<bool>,
    spent: Spent,
}

impl Progress {
    fn new(list: &ReadList) -> Self {
        Self { begun: 0, arrived: vec![false; list.parts.len()], spent: Spent::new() }
    }

    /// Frees the room of parts that will not arrive; returns the first pass that misses a part.
    fn give_up(&self, list: &ReadList, state: &mut State) -> Option<u64> {
        let missing = || (0..list.parts.len()).filter(|&part| !self.arrived[part]);
        let begun = missing().filter(|&part| part < self.begun).count();
        state.admitted -= begun;
        state.loading -= begun;
        missing().map(|part| list.parts[part].pass).min()
    }
}

/// Work of the thread since the counters were last updated. Both the admission of reads and the
/// handling of their bytes add to it.
struct Spent {
    since: Cell<Instant>,
    /// Seconds.
    copying: Cell<f64>,
    /// Seconds spent waiting for room.
    blocked: Cell<f64>,
    bytes: Cell<u64>,
}

impl Spent {
    fn new() -> Self {
        Self {
            since: Cell::new(Instant::now()),
            copying: Cell::new(0.0),
            blocked: Cell::new(0.0),
            bytes: Cell::new(0),
        }
    }

    /// Updates the counters, so that each pass can compute its share.
    fn tell(&self, state: &mut State) {
        let total = self.since.replace(Instant::now()).elapsed().as_secs_f64();
        let (copying, blocked) = (self.copying.take(), self.blocked.take());
        let counters = &mut state.reader.counters;
        counters.busy_s += copying;
        counters.blocked_s += blocked;
        counters.starved_s += (total - copying - blocked).max(0.0);
        state.reader.bytes += self.bytes.take();
    }
}

/// Adds the seconds since `since`.
fn add(seconds: &Cell<f64>, since: Instant) {
    seconds.set(seconds.get() + since.elapsed().as_secs_f64());
}

/// Reads the parts of a list, each as soon as there is room for it.
fn read(
    shared: &Shared,
    engine: &mut Engine,
    list: &ReadList,
    progress: &mut Progress,
) -> Result<()> {
    let layout = &shared.layout;
    let stopped = || Error::new(ErrorKind::Interrupted, "stopped");
    let mut loading: HashMap<usize, (Loaded, u32)> = HashMap::new();
    let Progress { begun, arrived, spent } = progress;
    let mut may_begin = |index: usize, idle: bool| {
        let number = list.places[index].part;
        if number < *begun {
            return Ok(true);
        }
        let has_room = |state: &State| match layout.buffering {
            true => state.admitted < layout.slots.count,
            false => state.loading == 0 && state.running == 0 && !state.schedule.has_work(),
        };
        let mut state = shared.lock();
        let since = Instant::now();
        loop {
            if state.unwanted() {
                return Err(stopped());
            }
            if has_room(&state) {
                break;
            }
            if !idle {
                return Ok(false);
            }
            state = match shared.room.wait_timeout(state, LOOK_AROUND) {
                Ok(woken) => woken.0,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        add(&spent.blocked, since);
        state.admitted += 1;
        state.loading += 1;
        *begun = number + 1;
        Ok(true)
    };
    let mut on_data = |index: usize, bytes: Kept| {
        let began = Instant::now();
        let place = &list.places[index];
        let part = &list.parts[place.part];
        let (loaded, missing) = loading.entry(place.part).or_insert_with(|| {
            (
                Loaded::new(layout.grid.pieces(), part, layout.grid.weight_bytes()),
                list.reads_of[place.part],
            )
        });
        spent.bytes.set(spent.bytes.get() + bytes.len() as u64);
        loaded.put(place.into, bytes, layout.pins[part.segment]);
        *missing -= 1;
        if *missing == 0
            && let Some((loaded, _)) = loading.remove(&place.part)
        {
            let mut state = shared.lock();
            if state.unwanted() {
                return Err(stopped());
            }
            let new = state.arrived(part, loaded, layout.pins[part.segment]);
            arrived[place.part] = true;
            add(&spent.copying, began);
            spent.tell(&mut state);
            state.reader.counters.items += 1;
            drop(state);
            shared.call_for(new);
            return Ok(());
        }
        add(&spent.copying, began);
        Ok(())
    };
    engine.read_kept(&list.reads, &mut may_begin, &mut on_data)?;
    Ok(())
}
