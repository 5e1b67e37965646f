//! The thread of a queue: it owns the socket, and waits where there is nothing to send or receive.
//!
//! [`send`] makes requests of what was started, [`receive`] takes the answers.

mod receive;
mod send;

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Error, ErrorKind, Result};
use rustix::event::PollFlags;

use self::receive::{Incoming, Received};
use self::send::{GATHERED, Outgoing};
use super::inbox::{Inbox, Started};
use crate::client::greet::{closed, no_answer, plain};
use crate::protocol::Operation;
use crate::queue::{Arrivals, Transfer, Transferred, refuse};
use crate::socket::{Socket, wait_for};

/// After how long the server counts as gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Without a byte in either direction.
    pub(super) silence: Duration,
    /// In the first transfer in line.
    pub(super) transfer: Duration,
}

/// The thread's side of a queue.
pub(super) struct Worker {
    socket: Socket,
    inbox: Arc<Inbox>,
    arrivals: Arrivals,
    chunk: usize,
    limits: Limits,
    /// Transfers in flight in the order of their requests; the first one's number is `first`.
    flight: VecDeque<InFlight>,
    first: u64,
    /// When it became the first.
    first_since: Instant,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Requests that the server has in whole and has not answered.
    answerable: u64,
    /// When bytes last went either way.
    progress: Instant,
}

struct InFlight {
    operation: Operation,
    transfer: Transfer,
    /// Bytes for which a request has been made.
    requested: usize,
    /// Bytes that have been answered.
    answered: usize,
    /// The first error among its chunks.
    error: Option<Error>,
}

/// What a thread takes for a queue of `length` transfers.
pub(super) fn worker_bytes(length: usize) -> u64 {
    let entries = length * size_of::<InFlight>();
    (GATHERED + entries) as u64
}

impl Worker {
    pub(super) fn new(
        socket: Socket,
        inbox: Arc<Inbox>,
        arrivals: Arrivals,
        chunk: usize,
        limits: Limits,
    ) -> Self {
        Self {
            socket,
            inbox,
            arrivals,
            chunk,
            limits,
            flight: VecDeque::new(),
            first: 0,
            first_since: Instant::now(),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            answerable: 0,
            progress: Instant::now(),
        }
    }

    /// Serves the queue until it is closed or fails.
    pub(super) fn run(mut self) {
        let error = match self.serve() {
            Ok(()) => Error::new(ErrorKind::Io, "the queue was closed"),
            Err(error) => plain(error, self.limits.silence),
        };
        self.fail(error);
    }

    /// Moves bytes until the queue is closed.
    fn serve(&mut self) -> Result<()> {
        loop {
            if self.take_started() {
                return Ok(());
            }
            self.send()?;
            if self.flight.is_empty() || self.receive()? == Received::Nothing {
                self.wait()?;
            }
            if !self.flight.is_empty() && self.first_since.elapsed() >= self.limits.transfer {
                return Err(self.too_slow());
            }
        }
    }

    /// Takes what was started; returns whether the queue is closing.
    fn take_started(&mut self) -> bool {
        let mut state = self.inbox.state();
        if self.flight.is_empty() && !state.started.is_empty() {
            self.progress = Instant::now();
            self.first_since = self.progress;
        }
        self.flight.extend(state.started.drain(..).map(InFlight::new));
        state.closing
    }

    /// Waits until there is something to do.
    fn wait(&mut self) -> Result<()> {
        {
            let mut state = self.inbox.state();
            if state.closing || !state.started.is_empty() {
                return Ok(());
            }
            state.asleep = true;
        }
        let timeout = match self.flight.is_empty() {
            true => None,
            false => Some(
                (self.limits.silence.saturating_sub(self.progress.elapsed()))
                    .min(self.limits.transfer.saturating_sub(self.first_since.elapsed())),
            ),
        };
        let mut events = PollFlags::IN;
        if self.outgoing.blocked {
            events |= PollFlags::OUT;
        }
        let ready = wait_for(&self.socket, events, &self.inbox.wake, timeout)?;
        self.inbox.state().asleep = false;
        self.inbox.wake.clear();
        if ready.contains(PollFlags::OUT) {
            self.outgoing.blocked = false;
        }
        if !ready.is_empty() && self.flight.is_empty() {
            return Err(self.unasked());
        }
        let silent = self.progress.elapsed() >= self.limits.silence;
        if ready.is_empty() && !self.flight.is_empty() && silent {
            return Err(no_answer(self.limits.silence));
        }
        Ok(())
    }

    fn too_slow(&self) -> Error {
        let seconds = self.limits.transfer.as_secs_f64();
        let len = self.flight.front().map_or(0, |one| one.transfer.len);
        let what = format!("a transfer of {} took longer than {seconds} s", Bytes(len as u64));
        Error::new(ErrorKind::Io, what)
            .hint("the network may be too slow for far memory: `outercore far probe` measures it")
    }

    /// Why there is something to receive though nothing is in flight.
    fn unasked(&mut self) -> Error {
        match (&mut &self.socket).read(&mut [0]) {
            Ok(0) => closed(),
            Ok(_) => out_of_step(),
            Err(error) => error.into(),
        }
    }

    /// The first transfer has been answered up to `to`.
    fn answer(&mut self, to: usize, error: Option<Error>) {
        let one = &mut self.flight[0];
        one.answered = to;
        if one.error.is_none() {
            one.error = error;
        }
        if to == one.transfer.len {
            self.first += 1;
            self.first_since = self.progress;
            if let Some(one) = self.flight.pop_front() {
                let result =
                    one.error.map_or(Ok(()), |error| Err(error.context(self.inbox.server.clone())));
                let Transfer { tag, lease, .. } = one.transfer;
                self.arrivals.put(Transferred { tag, lease, result });
            }
        }
    }

    /// Ends everything in flight, and whatever else is started.
    fn fail(mut self, error: Error) {
        self.socket.shutdown();
        let server = &self.inbox.server;
        let message = error.context(server.clone()).to_string();
        let started = {
            let mut state = self.inbox.state();
            state.dead = Some(message.clone());
            std::mem::take(&mut state.started)
        };
        let transfers = self.flight.drain(..).map(|one| one.transfer);
        for transfer in transfers.chain(started.into_iter().map(|one| one.transfer)) {
            refuse(&self.arrivals, transfer, Error::new(ErrorKind::Io, message.clone()));
        }
    }
}

impl InFlight {
    fn new(started: Started) -> Self {
        let Started { operation, transfer } = started;
        Self { operation, transfer, requested: 0, answered: 0, error: None }
    }
}

fn out_of_step() -> Error {
    Error::new(ErrorKind::Io, "it answers what was not asked")
}
