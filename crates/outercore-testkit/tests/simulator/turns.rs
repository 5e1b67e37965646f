//! Decides which actor runs next: one at a time, until its next turn, chosen by a seed.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use outercore_core::{Error, ErrorKind, Result, Stream, Uniform};

thread_local! {
    /// The actor of this thread; `None` for a thread that an actor started.
    static ACTOR: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Most turns of one life; after these, an actor waits for an event that never happens.
const MOST_TURNS: u64 = 100_000;

/// The process of an actor; all actors of a process end together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// Accepts updates, folds and answers.
    Server,
    /// A separate command.
    Command,
}

/// The work of an actor.
pub type Part<'a> = Box<dyn FnOnce() -> Result<()> + Send + 'a>;

struct Actor {
    name: &'static str,
    process: Process,
    is_running: bool,
}

struct State {
    actors: Vec<Actor>,
    /// The running actor.
    current: usize,
    draws: Uniform,
    /// Of 1,000 turns, how many switch to another actor.
    restlessness: u64,
    /// Turns left until all actors must end.
    left: u64,
    /// Number of turns so far.
    taken: u64,
    is_server_killed: bool,
    is_machine_down: bool,
    events: Vec<String>,
    failures: Vec<String>,
}

/// The order of the actors in one life of a machine.
///
/// Actors are threads, of which only one runs at a time. At each change of a file, and wherever it
/// could wait, an actor calls [`Turns::take`], which may let another one run first. The seed
/// therefore decides every interleaving.
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

impl Turns {
    /// Allows at most `turns` turns; `seed` decides their order.
    pub fn new(seed: u64, turns: u64) -> Self {
        let mut draws = Stream::new(seed, 1).uniform(0, 0, 0);
        let restlessness = [20, 100, 300, 700][draws.below(4) as usize];
        let state = State {
            actors: Vec::new(),
            current: 0,
            draws,
            restlessness,
            left: turns,
            taken: 0,
            is_server_killed: false,
            is_machine_down: false,
            events: Vec::new(),
            failures: Vec::new(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `actors`, each on a separate thread, until all have ended.
    pub fn play<'a>(&self, actors: Vec<(&'static str, Process, Part<'a>)>) {
        let named =
            actors.iter().map(|&(name, process, _)| Actor { name, process, is_running: true });
        self.lock().actors = named.collect();
        std::thread::scope(|scope| {
            for (place, (name, process, play)) in actors.into_iter().enumerate() {
                scope.spawn(move || {
                    ACTOR.set(Some(place));
                    self.wait(place);
                    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(play));
                    let mut state = self.lock();
                    let is_over = state.is_over(process);
                    match done {
                        Err(panic) => state.fail(name, &said(&*panic)),
                        Ok(Err(error)) if !is_over => state.fail(name, &error.to_string()),
                        Ok(_) => state.events.push(format!("{name} ends")),
                    }
                    state.actors[place].is_running = false;
                    state.pass_on();
                    drop(state);
                    self.changed.notify_all();
                });
            }
        });
    }

    fn wait(&self, place: usize) {
        let state = self.lock();
        drop(
            self.changed
                .wait_while(state, |state| state.current != place)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// May let another actor run.
    ///
    /// # Errors
    /// The actor's process was killed, or the machine stopped.
    pub fn take(&self) -> Result<()> {
        let Some(place) = ACTOR.get() else { return Ok(()) };
        let mut state = self.lock();
        state.left = state.left.saturating_sub(1);
        state.taken += 1;
        if state.taken == MOST_TURNS {
            let name = state.actors[place].name;
            state.fail(name, "waits for ever");
        }
        let restlessness = state.restlessness;
        if state.draws.below(1000) < restlessness {
            state.pass_on();
            if state.current != place {
                self.changed.notify_all();
                state = self
                    .changed
                    .wait_while(state, |state| state.current != place)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
        match state.is_over(state.actors[place].process) {
            true => Err(Error::new(ErrorKind::Interrupted, "simulated end of the process")),
            false => Ok(()),
        }
    }

    /// Lets other actors run until `is_there` returns a value.
    ///
    /// # Errors
    /// As [`Turns::take`].
    pub fn until<T>(&self, mut is_there: impl FnMut() -> Option<T>) -> Result<T> {
        loop {
            if let Some(found) = is_there() {
                return Ok(found);
            }
            if let Some(place) = ACTOR.get() {
                let mut state = self.lock();
                state.pass_on_from(place);
                self.changed.notify_all();
                drop(state);
                self.wait(place);
            }
            self.take()?;
        }
    }

    /// A number below `bound`.
    pub fn draw(&self, bound: u64) -> u64 {
        self.lock().draws.below(bound)
    }

    /// Records an event for the report of a failure.
    pub fn note(&self, event: String) {
        let mut state = self.lock();
        let name = ACTOR.get().map_or("", |place| state.actors[place].name);
        state.events.push(format!("{name}: {event}"));
    }

    /// Whether all actors must end.
    pub fn is_late(&self) -> bool {
        self.lock().left == 0
    }

    /// Whether a command is still running.
    pub fn has_commands(&self) -> bool {
        let state = self.lock();
        let mut actors = state.actors.iter();
        actors.any(|actor| actor.is_running && actor.process == Process::Command)
    }

    /// Whether the running actor belongs to the server.
    pub fn is_server(&self) -> bool {
        let state = self.lock();
        ACTOR.get().is_some_and(|place| state.actors[place].process == Process::Server)
    }

    /// `kill -9` of the server.
    pub fn kill_server(&self) {
        let mut state = self.lock();
        state.is_server_killed = true;
        state.events.push("the server is killed".into());
    }

    /// The machine stops.
    pub fn stop_machine(&self) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_machine_down, true) {
            state.events.push("the machine stops".into());
        }
    }

    /// The recorded events and failures.
    pub fn ended(self) -> (Vec<String>, Vec<String>) {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (state.events, state.failures)
    }
}

impl State {
    fn is_over(&self, process: Process) -> bool {
        self.is_machine_down || (self.is_server_killed && process == Process::Server)
    }

    fn fail(&mut self, name: &str, what: &str) {
        self.failures.push(format!("{name}: {what}"));
        self.events.push(format!("{name} fails: {what}"));
        // The other actors end without reporting failures.
        self.is_machine_down = true;
    }

    /// Draws the actor that runs next.
    fn pass_on(&mut self) {
        let running: Vec<usize> =
            (0..self.actors.len()).filter(|&place| self.actors[place].is_running).collect();
        if !running.is_empty() {
            self.current = running[self.draws.below(running.len() as u64) as usize];
        }
    }

    /// Draws the actor that runs next, and avoids `place` if another actor is available.
    fn pass_on_from(&mut self, place: usize) {
        let others = self.actors.iter().enumerate();
        let others: Vec<usize> = others
            .filter(|(at, actor)| actor.is_running && *at != place)
            .map(|(at, _)| at)
            .collect();
        if !others.is_empty() {
            self.current = others[self.draws.below(others.len() as u64) as usize];
        }
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
}
