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

/// Requests are gathered up to so many bytes before they are sent.
const GATHERED: usize = 4096;

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
        Self::over(socket, server, door.timeout, length, chunk, arrivals)
    }

    /// A queue over a connection on which both ends know each other.
    fn over(
        socket: Socket,
        server: String,
        timeout: Duration,
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
            timeout,
            flight: VecDeque::new(),
            first: 0,
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
    match offset.checked_add(*len as u64) {
        Some(end) if end <= region.len.0 => Ok(()),
        _ => Err(Error::invalid(format!(
            "a transfer of {len} bytes at {offset} of a region of {} bytes",
            region.len.0
        ))),
    }
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

/// The thread's side of a queue.
struct Worker {
    socket: Socket,
    inbox: Arc<Inbox>,
    arrivals: Arrivals,
    chunk: usize,
    timeout: Duration,
    /// Transfers in flight in the order of their requests; the first one's number is `first`.
    flight: VecDeque<InFlight>,
    first: u64,
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
            Err(error) => plain(error, self.timeout),
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
        }
    }

    /// Takes what was started; returns whether the queue is closing.
    fn take_started(&mut self) -> bool {
        let mut state = self.inbox.state();
        if self.flight.is_empty() && !state.started.is_empty() {
            self.progress = Instant::now();
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
            false => Some(self.timeout.saturating_sub(self.progress.elapsed())),
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
        if ready.is_empty() && !self.flight.is_empty() && self.progress.elapsed() >= self.timeout {
            return Err(no_answer(self.timeout));
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use outercore_io::Arena;
    use proptest::prelude::*;

    use super::*;
    use crate::remote::{Region, RegionKey};

    const CHUNK: usize = 4096;
    const PATIENCE: Duration = Duration::from_secs(20);
    const REGION: Region = Region { key: RegionKey(7), len: Bytes(1 << 20) };

    /// A queue whose server is the test.
    struct Pair {
        queue: SocketQueue,
        arrivals: Arrivals,
        arena: Arena,
        peer: UnixStream,
    }

    impl Pair {
        fn new(timeout: Duration) -> Self {
            let (ours, peer) = UnixStream::pair().unwrap();
            peer.set_read_timeout(Some(PATIENCE)).unwrap();
            let arrivals = Arrivals::default();
            let chunk = Bytes(CHUNK as u64);
            let name = "memory server test".to_owned();
            let socket = Socket::Unix(ours);
            let queue = SocketQueue::over(socket, name, timeout, 8, chunk, &arrivals).unwrap();
            Self { queue, arrivals, arena: Arena::new(Bytes::kib(256)).unwrap(), peer }
        }

        fn transfer(&self, tag: u64, len: usize) -> Transfer {
            Transfer { tag, region: REGION, offset: 0, len, lease: self.arena.lease(len).unwrap() }
        }

        fn read_start(&mut self, tag: u64, len: usize) {
            let transfer = self.transfer(tag, len);
            self.queue.read_start(transfer);
        }

        fn write_start(&mut self, tag: u64, len: usize) {
            let transfer = self.transfer(tag, len);
            self.queue.write_start(transfer);
        }

        /// The next request that the queue sends.
        fn request(&mut self) -> DataRequest {
            let mut header = [0; REQUEST_HEADER];
            self.peer.read_exact(&mut header).unwrap();
            DataRequest::decode(&header).unwrap()
        }

        fn answer(&mut self, status: u16, tag: u64, payload: &[u8]) {
            let reply = DataReply { status, len: payload.len() as u32, tag };
            // It fails where the queue has ended already.
            let _ = self.peer.write_all(&[&reply.encode()[..], payload].concat());
        }

        fn arrived(&self, count: usize) -> Vec<Transferred> {
            let mut done = Vec::new();
            while done.len() < count {
                assert!(self.arrivals.take(count - done.len(), PATIENCE, &mut done) > 0);
            }
            done
        }

        fn error(&self) -> String {
            let error = self.arrived(1).remove(0).result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            error.to_string()
        }
    }

    #[test]
    fn a_transfer_is_cut_into_chunks_and_arrives_whole() {
        let mut pair = Pair::new(PATIENCE);
        pair.read_start(5, CHUNK + 10);
        let asked: Vec<_> =
            (0..2).map(|_| pair.request()).map(|asked| (asked.offset, asked.len)).collect();
        assert_eq!(asked, [(0, CHUNK as u32), (CHUNK as u64, 10)]);
        pair.answer(protocol::OK, 0, &[1; CHUNK]);
        pair.answer(protocol::OK, 0, &[2; 10]);
        let done = pair.arrived(1).remove(0);
        done.result.unwrap();
        assert_eq!((done.tag, done.lease[CHUNK - 1], done.lease[CHUNK + 9]), (5, 1, 2));
    }

    #[test]
    fn one_refused_chunk_fails_its_transfer_and_no_other() {
        let mut pair = Pair::new(PATIENCE);
        pair.read_start(0, 2 * CHUNK);
        pair.read_start(1, 3);
        let (status, text) = protocol::encode_error(&Error::new(ErrorKind::NotFound, "no region"));
        pair.answer_when_asked(3, |pair| {
            pair.answer(status, 0, text.as_bytes());
            pair.answer(protocol::OK, 0, &[0; CHUNK]);
            pair.answer(protocol::OK, 1, b"yes");
        });
        let mut done = pair.arrived(2);
        done.sort_by_key(|done| done.tag);
        let error = done.remove(0).result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(error.to_string(), "memory server test: no region");
        assert_eq!(&done[0].lease[..3], b"yes");
    }

    impl Pair {
        fn answer_when_asked(&mut self, requests: usize, answer: impl FnOnce(&mut Self)) {
            for _ in 0..requests {
                self.request();
            }
            answer(self);
        }
    }

    #[test]
    fn silence_ends_all_that_is_in_flight_and_the_queue() {
        let mut pair = Pair::new(Duration::from_millis(20));
        for tag in 0..3 {
            pair.read_start(tag, 9000);
        }
        for done in pair.arrived(3) {
            let error = done.result.unwrap_err();
            assert_eq!(error.to_string(), "memory server test: no answer for 0.02 s");
        }
        pair.read_start(9, 1);
        assert!(pair.error().contains("no answer"));
        assert_eq!(pair.arena.free_bytes(), pair.arena.size());
    }

    #[test]
    fn a_server_that_takes_nothing_is_silent_too() {
        let mut pair = Pair::new(Duration::from_millis(20));
        for tag in 0..8 {
            // Together more than the socket buffers.
            pair.write_start(tag, 8 * CHUNK);
        }
        for done in pair.arrived(8) {
            assert!(done.result.unwrap_err().to_string().contains("no answer"));
        }
    }

    #[test]
    fn a_server_that_dies_between_transfers_is_noticed_by_the_next() {
        let mut pair = Pair::new(PATIENCE);
        pair.peer.shutdown(std::net::Shutdown::Both).unwrap();
        pair.read_start(0, 1);
        assert!(pair.error().contains("closed the connection"));
    }

    #[test]
    fn bytes_that_nobody_asked_for_end_the_queue() {
        let mut pair = Pair::new(PATIENCE);
        pair.answer(protocol::OK, 0, b"surprise");
        pair.read_start(0, 1);
        assert!(pair.error().contains("not asked"));
    }

    #[test]
    fn answers_that_do_not_fit_their_request_end_the_queue() {
        type Answer = fn(&mut Pair);
        let answers: [(&str, Answer); 5] = [
            ("of another request", |pair| pair.answer(protocol::OK, 1, &[0; 100])),
            ("too short", |pair| pair.answer(protocol::OK, 0, &[0; 99])),
            ("too long", |pair| pair.answer(protocol::OK, 0, &[0; 101])),
            ("a text without end", |pair| pair.answer(3, 0, &[0; MAX_TEXT + 1])),
            ("cut", |pair| {
                let reply = DataReply { status: protocol::OK, len: 100, tag: 0 };
                pair.peer.write_all(&reply.encode()).unwrap();
                pair.peer.write_all(&[0; 50]).unwrap();
                pair.peer.shutdown(std::net::Shutdown::Both).unwrap();
            }),
        ];
        for (what, answer) in answers {
            let mut pair = Pair::new(PATIENCE);
            pair.read_start(0, 100);
            pair.answer_when_asked(1, answer);
            let error = pair.error();
            assert!(error.contains("not asked") || error.contains("closed"), "{what}: {error}");
        }
    }

    #[test]
    fn a_write_that_is_answered_before_it_is_sent_ends_the_queue() {
        let mut pair = Pair::new(PATIENCE);
        for tag in 0..8 {
            pair.write_start(tag, 8 * CHUNK);
        }
        // The last of them does not fit the buffers of the socket, which nobody reads.
        let answer = |tag| DataReply { status: protocol::OK, len: 0, tag }.encode();
        let answers: Vec<u8> = (0..64).flat_map(|number| answer(number / 8)).collect();
        // It fails where the queue has ended already.
        let _ = pair.peer.write_all(&answers);
        let failed = pair.arrived(8).into_iter().filter(|done| done.result.is_err()).count();
        assert!(failed > 0, "writes that were never taken cannot all have been done");
    }

    #[test]
    fn transfers_outside_their_buffer_or_region_are_refused_at_once() {
        let mut pair = Pair::new(PATIENCE);
        for (offset, len) in [(0, 0), (0, 4097), (REGION.len.0, 1), (u64::MAX, 2)] {
            let lease = pair.arena.lease(4096).unwrap();
            pair.queue.read_start(Transfer { tag: 0, region: REGION, offset, len, lease });
            let error = pair.arrived(1).remove(0).result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{len} bytes at {offset}");
        }
    }

    #[test]
    fn a_dropped_queue_gives_every_lease_back() {
        let mut pair = Pair::new(PATIENCE);
        for tag in 0..4 {
            pair.read_start(tag, 9000);
            pair.write_start(10 + tag, 9000);
        }
        let Pair { queue, arrivals, arena, peer } = pair;
        drop(queue);
        let mut done = Vec::new();
        assert_eq!(arrivals.take(8, PATIENCE, &mut done), 8);
        assert!(done.iter().all(|done| done.result.is_err()));
        drop((done, peer));
        assert_eq!(arena.free_bytes(), arena.size());
    }

    proptest! {
        #[test]
        fn whatever_a_server_says_every_transfer_arrives(
            bytes in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200),
            right_header: bool,
            reads in prop::collection::vec((any::<bool>(), 1usize..9000), 1..6),
        ) {
            let mut pair = Pair::new(PATIENCE);
            for (tag, &(write, len)) in reads.iter().enumerate() {
                if write { pair.write_start(tag as u64, len) } else { pair.read_start(tag as u64, len) }
            }
            if right_header {
                let (write, len) = reads[0];
                let len = if write { 0 } else { len.min(CHUNK) as u32 };
                let reply = DataReply { status: protocol::OK, len, tag: 0 };
                let _ = pair.peer.write_all(&reply.encode());
            }
            let _ = pair.peer.write_all(&bytes);
            let _ = pair.peer.shutdown(std::net::Shutdown::Write);
            let mut tags: Vec<_> = pair.arrived(reads.len()).iter().map(|done| done.tag).collect();
            tags.sort_unstable();
            prop_assert_eq!(tags, (0..reads.len() as u64).collect::<Vec<_>>());
            prop_assert_eq!(pair.arena.free_bytes(), pair.arena.size());
        }
    }
}
