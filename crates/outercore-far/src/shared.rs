//! The data queue over a Unix socket: reads are copies out of memory shared with the server.
//!
//! The server sends the file descriptor of a sealed region, whose content can no longer change.
//! From then on, reads are `pread`s without the server, which work even after its death. Copies
//! from a mapping were measured, too: the speeds are within a fifth of each other, but a mapping
//! counts the whole region as memory of this process, against its budget.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::client::greet::Door;
use crate::protocol::{
    self, DataReply, DataRequest, MAX_TEXT, Operation, REPLY_HEADER, Role, decode_error,
};
use crate::queue::{Arrivals, Queue, Transfer, Transferred, refuse};
use crate::region::{Region, RegionKey};
use crate::socket::Socket;
use crate::tcp::{SocketQueue, check};

/// Most regions whose memory is held; each takes a file descriptor.
const MOST_HELD: usize = 256;

/// Memory of regions, shared by all queues of a connection.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    door: Door,
    session: u64,
    held: Mutex<Held>,
    line: Mutex<Line>,
}

/// The data connection that requests descriptors.
#[derive(Debug, Default)]
enum Line {
    /// No request so far.
    #[default]
    Unopened,
    Open(Socket),
    /// Why no more requests are possible. Another one would wait for the time-out again.
    Dead(String),
}

/// Held regions, the least recently used first.
#[derive(Debug, Default)]
struct Held {
    regions: VecDeque<(RegionKey, Arc<File>)>,
}

impl SharedMemory {
    pub(crate) fn new(door: Door, session: u64) -> Self {
        Self { door, session, held: Mutex::default(), line: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the memory of a region.
    pub(crate) fn forget(&self, key: RegionKey) {
        self.held().regions.retain(|(held, _)| *held != key);
    }

    /// The memory of a region; `None` if it is not shared because it can still be written.
    fn get(&self, region: &Region) -> Result<Option<Arc<File>>> {
        if let Some(memory) = self.held().get(region.key) {
            return Ok(Some(memory));
        }
        let memory = match self.ask(region.key)? {
            Answer::Memory(memory) => checked(memory, region),
            Answer::Refused(error) if error.kind() == ErrorKind::Unsupported => return Ok(None),
            Answer::Refused(error) => Err(error),
        };
        let memory = Arc::new(memory.map_err(|error| self.door.named(error))?);
        self.held().put(region.key, Arc::clone(&memory));
        Ok(Some(memory))
    }

    /// Requests the memory of a region from the server.
    fn ask(&self, key: RegionKey) -> Result<Answer> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = match std::mem::take(&mut *line) {
            Line::Open(socket) => Ok(socket),
            Line::Unopened => self.door.enter(Role::Data, self.session).map(|door| door.socket),
            Line::Dead(message) => {
                let error = Error::new(ErrorKind::Io, message.clone());
                *line = Line::Dead(message);
                return Err(error);
            }
        };
        let deadline = Instant::now() + self.door.timeout;
        let answered = socket.and_then(|socket| {
            let answer = ask(&socket, key, deadline).map_err(|error| self.door.named(error))?;
            Ok((socket, answer))
        });
        match answered {
            Ok((socket, answer)) => {
                *line = Line::Open(socket);
                Ok(answer)
            }
            Err(error) => {
                *line = Line::Dead(error.to_string());
                Err(error)
            }
        }
    }
}

impl Held {
    fn get(&mut self, key: RegionKey) -> Option<Arc<File>> {
        let place = self.regions.iter().rposition(|(held, _)| *held == key)?;
        if place + 1 < self.regions.len() {
            let found = self.regions.remove(place)?;
            self.regions.push_back(found);
        }
        self.regions.back().map(|(_, memory)| Arc::clone(memory))
    }

    fn put(&mut self, key: RegionKey, memory: Arc<File>) {
        if self.regions.len() >= MOST_HELD {
            self.regions.pop_front();
        }
        self.regions.push_back((key, memory));
    }
}

enum Answer {
    Memory(OwnedFd),
    Refused(Error),
}

fn ask(socket: &Socket, key: RegionKey, deadline: Instant) -> Result<Answer> {
    let request = DataRequest { operation: Operation::Map, len: 0, tag: key.0, key, offset: 0 };
    socket.write_before(&request.encode(), deadline)?;
    let mut header = [0; REPLY_HEADER];
    let (received, memory) = receive_descriptor(socket, &mut header, deadline)?;
    socket.read_before(&mut header[received..], deadline)?;
    let reply = DataReply::decode(&header);
    let len = reply.len as usize;
    match (reply.status, memory) {
        (protocol::OK, Some(memory)) if reply.tag == key.0 && len == 0 => Ok(Answer::Memory(memory)),
        (protocol::OK, None) => Err(Error::new(
            ErrorKind::Io,
            "its memory did not come with the answer: this process may have no file descriptor left",
        )
        .hint("raise the limit with `ulimit -n`")),
        (status, None) if reply.tag == key.0 && len <= MAX_TEXT => {
            let mut text = vec![0; len];
            socket.read_before(&mut text, deadline)?;
            Ok(Answer::Refused(decode_error(status, &text)))
        }
        _ => Err(Error::new(ErrorKind::Io, "it answers what was not asked")),
    }
}

/// Receives the first bytes of an answer and the file descriptor in it.
fn receive_descriptor(
    socket: &Socket,
    header: &mut [u8],
    deadline: Instant,
) -> Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        socket.set_deadline(deadline)?;
        let mut parts = [IoSliceMut::new(header)];
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes == 0 => {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            Ok(message) => break message.bytes,
            // After the deadline, `set_deadline` fails.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    };
    let mut descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received, descriptors.next().and_then(|mut descriptors| descriptors.next())))
}

/// Checks that the memory is as long as the region and cannot be changed.
fn checked(memory: OwnedFd, region: &Region) -> Result<File> {
    let seals = fcntl_get_seals(&memory).map_err(io::Error::from)?;
    let memory = File::from(memory);
    let len = memory.metadata()?.len();
    if !seals.contains(SealFlags::SHRINK | SealFlags::WRITE) || len != region.len.0 {
        return Err(Error::new(
            ErrorKind::Io,
            format!("memory of {} for a region of {}, sealed {seals:?}", Bytes(len), region.len),
        ));
    }
    Ok(memory)
}

/// A data queue that reads from shared memory; other transfers use a socket.
///
/// A thread makes the copies, so that starting a read does not wait for its copy.
#[derive(Debug)]
pub(crate) struct SharedQueue {
    inbox: Arc<Inbox>,
    length: usize,
    memory: Bytes,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Inbox {
    state: Mutex<State>,
    started: Condvar,
}

#[derive(Debug, Default)]
struct State {
    started: VecDeque<(Operation, Transfer)>,
    /// Whether the thread sleeps and must be woken. Waking costs a system call.
    asleep: bool,
    closing: bool,
}

impl SharedQueue {
    pub(crate) fn open(
        memory: Arc<SharedMemory>,
        socket: SocketQueue,
        arrivals: &Arrivals,
    ) -> Result<Self> {
        let inbox = Arc::new(Inbox::default());
        let (length, memory_bytes) = (socket.length(), socket.memory_bytes());
        let worker =
            Worker { inbox: Arc::clone(&inbox), memory, socket, arrivals: arrivals.clone() };
        let thread = thread::Builder::new()
            .name("outercore-far-copy".to_owned())
            .stack_size(128 << 10)
            .spawn(move || worker.run())
            .context("thread of a data queue")?;
        Ok(Self { inbox, length, memory: memory_bytes, thread: Some(thread) })
    }

    fn start(&self, operation: Operation, transfer: Transfer) {
        let mut state = self.inbox.state();
        state.started.push_back((operation, transfer));
        if std::mem::take(&mut state.asleep) {
            drop(state);
            self.inbox.started.notify_one();
        }
    }
}

impl Queue for SharedQueue {
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
        self.memory
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        self.inbox.state().closing = true;
        self.inbox.started.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread waits for the server at most for the time-out. It has already printed its
            // panic.
            let _ = thread.join();
        }
    }
}

impl Inbox {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side of the thread.
struct Worker {
    inbox: Arc<Inbox>,
    memory: Arc<SharedMemory>,
    socket: SocketQueue,
    arrivals: Arrivals,
}

impl Worker {
    fn run(mut self) {
        while let Some((operation, transfer)) = self.next() {
            match operation {
                Operation::Write => self.socket.write_start(transfer),
                _ => self.read(transfer),
            }
        }
        let left = std::mem::take(&mut self.inbox.state().started);
        for (_, transfer) in left {
            let closed = Error::new(ErrorKind::Io, "the queue was closed");
            refuse(&self.arrivals, transfer, closed);
        }
    }

    /// The next started transfer; `None` when the queue is closing.
    fn next(&self) -> Option<(Operation, Transfer)> {
        let mut state = self.inbox.state();
        loop {
            if state.closing {
                return None;
            }
            if let Some(next) = state.started.pop_front() {
                return Some(next);
            }
            state.asleep = true;
            state = self.inbox.started.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn read(&mut self, mut transfer: Transfer) {
        let memory = match check(&transfer).and_then(|()| self.memory.get(&transfer.region)) {
            Ok(Some(memory)) => memory,
            Ok(None) => return self.socket.read_start(transfer),
            Err(error) => return refuse(&self.arrivals, transfer, error),
        };
        let result = memory
            .read_exact_at(&mut transfer.lease[..transfer.len], transfer.offset)
            .context("memory shared with the memory server");
        self.arrivals.put(Transferred { tag: transfer.tag, lease: transfer.lease, result });
    }
}
