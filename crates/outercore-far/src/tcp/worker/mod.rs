//! The thread of a queue: it owns the socket, and sleeps if there is nothing to send or receive.
//!
//! [`send`] sends requests for started transfers; [`receive`] receives the answers.

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

/// Time limits after which the server counts as gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Time without a byte in either direction.
    pub(super) silence: Duration,
    /// Time of the first transfer in line.
    pub(super) transfer: Duration,
}

/// The side of the thread.
pub(super) struct Worker {
    socket: Socket,
    inbox: Arc<Inbox>,
    arrivals: Arrivals,
    chunk: usize,
    limits: Limits,
    /// Transfers in flight, in the order of their requests; the first has the number `first`.
    flight: VecDeque<InFlight>,
    first: u64,
    /// When the first transfer became the first.
    first_since: Instant,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Number of requests that were sent completely and are not answered.
    answerable: u64,
    /// Time of the last progress in either direction.
    progress: Instant,
}

struct InFlight {
    operation: Operation,
    transfer: Transfer,
    /// Number of bytes with a request.
    requested: usize,
    /// Number of bytes with an answer.
    answered: usize,
    /// The first error among its chunks.
    error: Option<Error>,
}

/// Memory of the thread for a queue of `length` transfers.
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

    /// Serves the queue until it closes or fails.
    pub(super) fn run(mut self) {
        let error = match self.serve() {
            Ok(()) => Error::new(ErrorKind::Io, "the queue was closed"),
            Err(error) => plain(error, self.limits.silence),
        };
        self.fail(error);
    }

    /// Sends and receives until the queue closes.
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

    /// Takes the started transfers; returns whether the queue is closing.
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

    /// The error for received bytes without a transfer in flight.
    fn unasked(&mut self) -> Error {
        match (&mut &self.socket).read(&mut [0]) {
            Ok(0) => closed(),
            Ok(_) => out_of_step(),
            Err(error) => error.into(),
        }
    }

    /// Records an answer to the first transfer, up to byte `to`.
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

    /// Ends all transfers in flight and all later ones with an error.
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
