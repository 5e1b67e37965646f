//! The data queue over a Unix socket: reads are copies out of memory shared with the server.
//!
//! The server hands out the file descriptor of a region that nobody can change any more; from then
//! on reads of it are `pread`s, of which the server knows nothing and which its death does not
//! hurt. They were measured beside copies out of a mapping: within a fifth of each other, while a
//! mapping counts the whole region as this process's memory, against any budget.

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

/// Regions whose memory is held; each costs a file descriptor.
const MOST_HELD: usize = 256;

/// The memory of regions, shared by all queues of a connection.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    door: Door,
    session: u64,
    held: Mutex<Held>,
    line: Mutex<Line>,
}

/// The data connection that asks for descriptors.
#[derive(Debug, Default)]
enum Line {
    /// Nothing has been asked yet.
    #[default]
    Unopened,
    Open(Socket),
    /// Why nothing more can be asked: whoever asks again would wait for the time-out again.
    Dead(String),
}

/// Least recently asked for first.
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

    /// Gives up the memory of a region.
    pub(crate) fn forget(&self, key: RegionKey) {
        self.held().regions.retain(|(held, _)| *held != key);
    }

    /// The memory of a region; `None` where it is not shared since it can still be written.
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

    /// Asks the server for the memory of a region.
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

/// Receives the first bytes of an answer, and the file descriptor that comes with them.
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
            // At the deadline, setting it fails.
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

/// The memory, if it is as long as the region and nobody can change it.
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

/// A data queue that reads shared memory; everything else goes over a socket.
///
/// One thread copies, so that starting a read does not wait for the copy.
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
    /// The thread waits and has to be woken; waking costs a system call.
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
            // It waits for the server at most as long as the time-out; a panic has been printed.
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

    /// What was started next; `None` once the queue is closing.
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
