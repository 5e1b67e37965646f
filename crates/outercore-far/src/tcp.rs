//! The data queue over a socket: requests are pipelined, answers come in order.
//!
//! One thread owns the socket and all transfers in flight. It sends requests and receives straight
//! into the leases, never blocks on either, and waits for both at once; so a server that does not
//! answer, or does not take what is sent, is found by one time-out.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use rustix::event::PollFlags;

use crate::client::greet::{Door, closed, no_answer, plain};
use crate::protocol::{
    self, DataReply, DataRequest, MAX_TEXT, Operation, REPLY_HEADER, REQUEST_HEADER, Role,
    decode_error,
};
use crate::queue::{Arrivals, Queue, Transfer, Transferred, refuse};
use crate::socket::{Socket, Wake, wait_for};

#[cfg(test)]
mod tests;

/// Requests are gathered up to so many bytes before they are sent.
const GATHERED: usize = 4096;

/// How long a transfer may take once all earlier ones have ended, even if bytes come all the time:
/// whoever waits for it has a deadline, and the disk needs the rest of that. An engine gives every
/// read 30 seconds.
const LONGEST_TRANSFER: Duration = Duration::from_secs(20);

/// A data queue over TCP or a Unix socket.
#[derive(Debug)]
pub(crate) struct SocketQueue {
    inbox: Arc<Inbox>,
    arrivals: Arrivals,
    length: usize,
    /// What the kernel buffers of the socket.
    buffered: u64,
    thread: Option<JoinHandle<()>>,
}

/// Transfers on their way to the thread.
#[derive(Debug)]
struct Inbox {
    state: Mutex<State>,
    wake: Wake,
    /// The server, for messages.
    server: String,
}

#[derive(Debug, Default)]
struct State {
    started: Vec<Started>,
    /// The thread waits and has to be woken; waking costs a system call.
    asleep: bool,
    closing: bool,
    /// Why nothing more can be started.
    dead: Option<String>,
}

#[derive(Debug)]
struct Started {
    operation: Operation,
    transfer: Transfer,
}

impl SocketQueue {
    pub(crate) fn open(
        door: &Door,
        session: u64,
        length: usize,
        chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Self> {
        let socket = door.enter(Role::Data, session)?.socket;
        let server = format!("memory server {}", door.address);
        let limits = Limits { silence: door.timeout, transfer: LONGEST_TRANSFER };
        Self::over(socket, server, limits, length, chunk, arrivals)
    }

    /// A queue over a connection on which both ends know each other.
    fn over(
        socket: Socket,
        server: String,
        limits: Limits,
        length: usize,
        chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Self> {
        socket.set_nonblocking(true)?;
        let buffered = socket.buffered_bytes()?;
        let inbox = Arc::new(Inbox {
            state: Mutex::default(),
            wake: Wake::new().context("data queue")?,
            server,
        });
        let worker = Worker {
            socket,
            inbox: Arc::clone(&inbox),
            arrivals: arrivals.clone(),
            chunk: chunk.0 as usize,
            limits,
            flight: VecDeque::new(),
            first: 0,
            first_since: Instant::now(),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            answerable: 0,
            progress: Instant::now(),
        };
        let thread = thread::Builder::new()
            .name("outercore-far-queue".to_owned())
            .stack_size(128 << 10)
            .spawn(move || worker.run())
            .context("thread of a data queue")?;
        Ok(Self { inbox, arrivals: arrivals.clone(), length, buffered, thread: Some(thread) })
    }

    fn start(&self, operation: Operation, transfer: Transfer) {
        if let Err(error) = check(&transfer) {
            return refuse(&self.arrivals, transfer, error);
        }
        let mut state = self.inbox.state();
        if let Some(dead) = &state.dead {
            let error = Error::new(ErrorKind::Io, dead.clone());
            drop(state);
            return refuse(&self.arrivals, transfer, error);
        }
        state.started.push(Started { operation, transfer });
        if std::mem::take(&mut state.asleep) {
            drop(state);
            self.inbox.wake.wake();
        }
    }
}

/// Checks what no server has to be asked for.
pub(crate) fn check(transfer: &Transfer) -> Result<()> {
    let Transfer { region, offset, len, lease, .. } = transfer;
    if *len == 0 || *len > lease.len() {
        return Err(Error::invalid(format!(
            "a transfer of {len} bytes with a buffer of {}, expected at least 1 and no more",
            lease.len()
        )));
    }
    region.check_range(*offset, *len)
}

impl Queue for SocketQueue {
    fn read_start(&mut self, transfer: Transfer) {
        self.start(Operation::Read, transfer);
    }

    fn write_start(&mut self, transfer: Transfer) {
        self.start(Operation::Write, transfer);
    }

    fn length(&self) -> usize {
        self.length
    }

    fn memory_bytes(&self) -> Bytes {
        let entries = self.length * size_of::<InFlight>();
        Bytes(self.buffered + (GATHERED + entries) as u64)
    }
}

impl Drop for SocketQueue {
    fn drop(&mut self) {
        self.inbox.state().closing = true;
        self.inbox.wake.wake();
        if let Some(thread) = self.thread.take() {
            // The thread blocks on nothing but its wait, and a panic there has been printed.
            let _ = thread.join();
        }
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// After how long the server counts as gone.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Without a byte in either direction.
    silence: Duration,
    /// In the first transfer in line.
    transfer: Duration,
}

/// The thread's side of a queue.
struct Worker {
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

/// What is being sent: headers, then the payload of the last of them where it is a write.
#[derive(Default)]
struct Outgoing {
    headers: Vec<u8>,
    headers_sent: usize,
    payload: Option<Payload>,
    /// The socket takes no more at the moment.
    blocked: bool,
}

/// A piece of a lease that is being sent.
struct Payload {
    number: u64,
    from: usize,
    to: usize,
}

/// The answer that is being received.
#[derive(Default)]
struct Incoming {
    header: [u8; REPLY_HEADER],
    header_bytes: usize,
    body: Body,
}

#[derive(Default)]
enum Body {
    /// The header first.
    #[default]
    Header,
    /// Into the first lease in flight, from `at` until `to`.
    Lease { at: usize, to: usize },
    /// The text of an error for `len` bytes of the first transfer.
    Text { status: u16, text: Vec<u8>, filled: usize, len: usize },
}

/// What became of an attempt to receive.
#[derive(PartialEq, Eq)]
enum Received {
    Something,
    Nothing,
}

impl Worker {
    fn run(mut self) {
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

    /// Sends requests until there are none left or the socket takes no more.
    fn send(&mut self) -> Result<()> {
        while !self.outgoing.blocked {
            if self.outgoing.is_empty() {
                self.prepare();
                if self.outgoing.is_empty() {
                    return Ok(());
                }
            }
            let out = &self.outgoing;
            let payload = out.payload.as_ref().map_or(&[][..], |payload| {
                let lease = &self.flight[(payload.number - self.first) as usize].transfer.lease;
                &lease[payload.from..payload.to]
            });
            let parts = [IoSlice::new(&out.headers[out.headers_sent..]), IoSlice::new(payload)];
            match (&mut &self.socket).write_vectored(&parts) {
                Ok(0) => return Err(closed()),
                Ok(bytes) => self.sent(bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.outgoing.blocked = true;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Makes the next requests: those for reads up to some length, or to the end of one for a write.
    fn prepare(&mut self) {
        self.outgoing.headers.clear();
        self.outgoing.headers_sent = 0;
        // All transfers before the first incomplete one are wholly requested.
        let from = self.flight.partition_point(|one| one.requested == one.transfer.len);
        for (index, one) in self.flight.iter_mut().enumerate().skip(from) {
            let number = self.first + index as u64;
            while one.requested < one.transfer.len {
                let len = self.chunk.min(one.transfer.len - one.requested);
                let request = DataRequest {
                    operation: one.operation,
                    len: len as u32,
                    tag: number,
                    key: one.transfer.region.key,
                    offset: one.transfer.offset + one.requested as u64,
                };
                self.outgoing.headers.extend(request.encode());
                let at = one.requested;
                one.requested += len;
                if one.operation == Operation::Write {
                    self.outgoing.payload = Some(Payload { number, from: at, to: at + len });
                    return;
                }
                self.answerable += 1;
                if self.outgoing.headers.len() + REQUEST_HEADER > GATHERED {
                    return;
                }
            }
        }
    }

    fn sent(&mut self, bytes: usize) {
        self.progress = Instant::now();
        let out = &mut self.outgoing;
        let of_headers = bytes.min(out.headers.len() - out.headers_sent);
        out.headers_sent += of_headers;
        if let Some(payload) = &mut out.payload {
            payload.from += bytes - of_headers;
            if payload.from == payload.to {
                out.payload = None;
                self.answerable += 1;
            }
        }
    }

    /// Receives once.
    fn receive(&mut self) -> Result<Received> {
        let incoming = &mut self.incoming;
        let rest_of_header = &mut incoming.header[incoming.header_bytes..];
        let mut socket = &self.socket;
        let result = match &mut incoming.body {
            Body::Header => socket.read(rest_of_header),
            // What follows the bytes of one answer is the header of the next.
            Body::Lease { at, to } => {
                let lease = &mut self.flight[0].transfer.lease[*at..*to];
                socket.read_vectored(&mut [IoSliceMut::new(lease), IoSliceMut::new(rest_of_header)])
            }
            Body::Text { text, filled, .. } => socket.read(&mut text[*filled..]),
        };
        match result {
            Ok(0) => Err(closed()),
            Ok(bytes) => {
                self.progress = Instant::now();
                self.received(bytes)?;
                Ok(Received::Something)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Received::Nothing),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Received::Something),
            Err(error) => Err(error.into()),
        }
    }

    fn received(&mut self, bytes: usize) -> Result<()> {
        let incoming = &mut self.incoming;
        match &mut incoming.body {
            Body::Header => incoming.header_bytes += bytes,
            Body::Lease { at, to } => {
                let of_lease = bytes.min(*to - *at);
                *at += of_lease;
                incoming.header_bytes += bytes - of_lease;
                if at == to {
                    let to = *to;
                    incoming.body = Body::Header;
                    self.answer(to, None);
                }
            }
            Body::Text { status, text, filled, len } => {
                *filled += bytes;
                if *filled == text.len() {
                    let error = decode_error(*status, text);
                    let to = self.flight[0].answered + *len;
                    incoming.body = Body::Header;
                    self.answer(to, Some(error));
                }
            }
        }
        if self.incoming.header_bytes == REPLY_HEADER {
            self.incoming.header_bytes = 0;
            let reply = DataReply::decode(&self.incoming.header);
            self.begin_answer(reply)?;
        }
        Ok(())
    }

    /// Looks at the header of an answer, which must be that to the oldest request.
    fn begin_answer(&mut self, reply: DataReply) -> Result<()> {
        let Some(one) = self.flight.front() else { return Err(out_of_step()) };
        if self.answerable == 0 || reply.tag != self.first {
            return Err(out_of_step());
        }
        self.answerable -= 1;
        let len = self.chunk.min(one.transfer.len - one.answered);
        let to = one.answered + len;
        let expected = match one.operation {
            Operation::Read => len,
            _ => 0,
        };
        let bytes = reply.len as usize;
        match (reply.status, bytes) {
            (protocol::OK, bytes) if bytes == expected => {
                if expected == 0 {
                    self.answer(to, None);
                } else {
                    self.incoming.body = Body::Lease { at: one.answered, to };
                }
            }
            (protocol::OK, _) => return Err(out_of_step()),
            (_, bytes) if bytes > MAX_TEXT => return Err(out_of_step()),
            (status, 0) => self.answer(to, Some(decode_error(status, b"refused"))),
            (status, bytes) => {
                let text = vec![0; bytes];
                self.incoming.body = Body::Text { status, text, filled: 0, len };
            }
        }
        Ok(())
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

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.headers_sent == self.headers.len() && self.payload.is_none()
    }
}

fn out_of_step() -> Error {
    Error::new(ErrorKind::Io, "it answers what was not asked")
}
