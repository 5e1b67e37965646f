//! A data queue over a connected endpoint. One thread starts transfers, waits for them and returns
//! them.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_far::queue::refuse;
use outercore_far::{Arrivals, Queue, Transfer, Transferred};

use crate::blob::Grant;
use crate::near::{Grants, Near, RegisteredArena};
use crate::objects::{Completion, CompletionQueue, Endpoint, Event, EventQueue, Piece, Posted};
use crate::wake::{Wake, sleep};

/// Most arenas that a queue keeps registered without a transfer in flight.
const IDLE_ARENAS: usize = 4;

/// The parts of a connected queue, dropped in this order.
pub(crate) struct Connected {
    pub endpoint: Endpoint,
    pub events: Arc<EventQueue>,
    pub done: Arc<CompletionQueue>,
    pub near: Arc<Near>,
    /// Most pieces that the endpoint accepts at once.
    pub in_flight: usize,
    /// Longest piece that it accepts.
    pub longest: usize,
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read,
    Write,
}

/// A [`Queue`] over libfabric.
pub(crate) struct FabricQueue {
    inbox: Arc<Inbox>,
    thread: Option<JoinHandle<()>>,
    length: usize,
    server: String,
}

#[derive(Debug)]
struct Inbox {
    state: Mutex<InboxState>,
    wake: Wake,
}

#[derive(Debug, Default)]
struct InboxState {
    started: VecDeque<(Way, Transfer)>,
    closed: bool,
}

impl FabricQueue {
    pub(crate) fn start(
        connected: Connected,
        grants: Arc<Grants>,
        server: String,
        timeout: Duration,
        length: usize,
        chunk: usize,
        arrivals: &Arrivals,
    ) -> Result<Self> {
        let inbox = Arc::new(Inbox { state: Mutex::default(), wake: Wake::new()? });
        let mover = Mover {
            piece: chunk.min(connected.longest),
            in_flight: connected.in_flight,
            link: Some(connected.endpoint),
            events: connected.events,
            done: connected.done,
            near: connected.near,
            grants,
            inbox: Arc::clone(&inbox),
            arrivals: arrivals.clone(),
            server: server.clone(),
            timeout,
            waiting: VecDeque::new(),
            slots: (0..length).map(|_| None).collect(),
            unposted: VecDeque::with_capacity(length),
            flying: 0,
            moved: Instant::now(),
            arenas: Vec::new(),
            over: None,
        };
        let thread = std::thread::Builder::new()
            .name("fabric-queue".into())
            .spawn(move || mover.run())
            .context("a thread for a data queue")?;
        Ok(Self { inbox, thread: Some(thread), length, server })
    }

    fn put(&self, way: Way, transfer: Transfer) {
        self.inbox.state().started.push_back((way, transfer));
        self.inbox.wake.ring();
    }
}

impl Queue for FabricQueue {
    fn read_start(&mut self, transfer: Transfer) {
        self.put(Way::Read, transfer);
    }

    fn write_start(&mut self, transfer: Transfer) {
        self.put(Way::Write, transfer);
    }

    fn length(&self) -> usize {
        self.length
    }

    /// Memory of the provider is not included, because libfabric does not report it.
    fn memory_bytes(&self) -> Bytes {
        let slots = self.length * (size_of::<Option<Move>>() + size_of::<(Way, Transfer)>());
        Bytes(slots as u64)
    }
}

impl Drop for FabricQueue {
    fn drop(&mut self) {
        self.inbox.state().closed = true;
        self.inbox.wake.ring();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for FabricQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FabricQueue({}, {} in flight)", self.server, self.length)
    }
}

impl Inbox {
    fn state(&self) -> std::sync::MutexGuard<'_, InboxState> {
        // A panic cannot leave it inconsistent: each change is one push, one take or one flag.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Start of a transfer's buffer.
struct Place(NonNull<u8>);

// SAFETY: the bytes belong to the lease of the same transfer, which is `Send`.
unsafe impl Send for Place {}

/// A transfer in progress, split into pieces.
struct Move {
    way: Way,
    transfer: Transfer,
    place: Place,
    grant: Grant,
    arena: Arc<RegisteredArena>,
    /// Bytes of started pieces.
    posted: usize,
    /// Number of pieces in flight.
    flying: usize,
    /// Whether the read that confirms a write was started.
    confirming: bool,
}

impl Move {
    /// The next piece to start, as a range within the transfer.
    ///
    /// A write may be reported as done as soon as it has left this machine. So the last byte is
    /// read back after all bytes were written. On one connection a read is executed after earlier
    /// writes (`FI_ORDER_RAW`), and it stores the value that the buffer already holds.
    fn next(&self, piece: usize) -> Option<(Way, usize, usize)> {
        let left = self.transfer.len - self.posted;
        if left > 0 {
            return Some((self.way, self.posted, left.min(piece)));
        }
        let confirm = self.way == Way::Write && !self.confirming && self.flying == 0;
        confirm.then_some((Way::Read, self.transfer.len - 1, 1))
    }

    fn is_done(&self) -> bool {
        self.posted == self.transfer.len
            && self.flying == 0
            && (self.way == Way::Read || self.confirming)
    }
}

/// The thread of a queue. The endpoint is dropped before the leases that it writes to.
struct Mover {
    /// `None` once the queue has failed.
    link: Option<Endpoint>,
    slots: Vec<Option<Move>>,
    /// Slots with pieces to start, at least one each.
    unposted: VecDeque<usize>,
    /// Transfers that wait for a slot.
    waiting: VecDeque<(Way, Transfer)>,
    /// Number of pieces in flight, of all transfers.
    flying: usize,
    /// Longest piece.
    piece: usize,
    in_flight: usize,
    /// Time of the last progress.
    moved: Instant,
    timeout: Duration,
    arenas: Vec<Arc<RegisteredArena>>,
    /// Why the queue has failed, or `None`.
    over: Option<String>,
    events: Arc<EventQueue>,
    done: Arc<CompletionQueue>,
    near: Arc<Near>,
    grants: Arc<Grants>,
    inbox: Arc<Inbox>,
    arrivals: Arrivals,
    server: String,
}

impl Mover {
    fn run(mut self) {
        let mut ended = Vec::new();
        loop {
            self.inbox.wake.hear();
            let closed = {
                let mut state = self.inbox.state();
                self.waiting.append(&mut state.started);
                state.closed
            };
            if closed {
                return self.die("the queue was closed");
            }
            if let Err(error) = self.turn(&mut ended) {
                self.die(&error.to_string());
            }
        }
    }

    /// Makes progress if possible, otherwise sleeps.
    fn turn(&mut self, ended: &mut Vec<Completion>) -> Result<()> {
        self.admit();
        if self.link.is_none() {
            return sleep(&[self.inbox.wake.as_fd()], None);
        }
        self.post()?;
        let some = self.done.read(ended)?;
        for completion in ended.drain(..) {
            self.finish(completion)?;
        }
        if let Some(Event::Shutdown(_) | Event::Failed(..)) = self.events.read()? {
            return Err(Error::new(ErrorKind::Io, "the connection was closed"));
        }
        if some == 0 {
            self.sleep()?;
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.flying == 0 && self.unposted.is_empty()
    }

    /// Assigns slots to waiting transfers, in order.
    fn admit(&mut self) {
        while let Some((way, transfer)) = self.waiting.pop_front() {
            if let Some(why) = &self.over {
                let error = self.gone(why);
                refuse(&self.arrivals, transfer, error);
                continue;
            }
            let Some(free) = self.slots.iter().position(Option::is_none) else {
                self.waiting.push_front((way, transfer));
                return;
            };
            if self.is_idle() {
                self.moved = Instant::now();
            }
            match self.prepare(&transfer) {
                Ok((grant, arena)) => {
                    self.slots[free] = Some(Move::new(way, transfer, grant, arena));
                    self.unposted.push_back(free);
                }
                Err(error) => refuse(&self.arrivals, transfer, error),
            }
        }
    }

    /// Checks a transfer and looks up its grant and its registered arena.
    fn prepare(&mut self, transfer: &Transfer) -> Result<(Grant, Arc<RegisteredArena>)> {
        if transfer.len == 0 || transfer.len > transfer.lease.len() {
            return Err(Error::internal(format!(
                "a transfer of {} bytes with a buffer of {}",
                transfer.len,
                transfer.lease.len()
            )));
        }
        let context = || format!("memory server {}", self.server);
        let grant = self.grants.of(transfer.region.key).with_context(context)?;
        let end = transfer.offset.checked_add(transfer.len as u64);
        if end.is_none_or(|end| end > grant.len) {
            return Err(Error::invalid(format!(
                "bytes {} to {} of a region of {}",
                transfer.offset,
                transfer.offset.saturating_add(transfer.len as u64),
                grant.len
            )));
        }
        if let Some(known) = self.arenas.iter().find(|arena| arena.owns(&transfer.lease)) {
            return Ok((grant, Arc::clone(known)));
        }
        if self.arenas.len() >= IDLE_ARENAS {
            self.arenas.retain(|arena| Arc::strong_count(arena) > 1);
        }
        let arena = self.near.arena_of(&transfer.lease)?;
        self.arenas.push(Arc::clone(&arena));
        Ok((grant, arena))
    }

    /// Starts pieces until the endpoint is full.
    fn post(&mut self) -> Result<()> {
        while let (Some(&slot), Some(link)) = (self.unposted.front(), &self.link) {
            if self.flying == self.in_flight {
                return Ok(());
            }
            let moving = self.slots[slot].as_mut().ok_or_else(lost)?;
            let (way, at, len) = moving.next(self.piece).ok_or_else(lost)?;
            let piece = Piece {
                local: moving.place.0.as_ptr().wrapping_add(at),
                len,
                registration: moving.arena.registration(),
                address: moving.grant.address + moving.transfer.offset + at as u64,
                key: moving.grant.key,
                context: slot,
            };
            let posted = match way {
                // SAFETY: the bytes are in the lease, which stays in its slot until the piece has
                // ended or the endpoint is dropped; the lease's arena is registered.
                Way::Read => unsafe { link.read(piece) }?,
                // SAFETY: as above.
                Way::Write => unsafe { link.write(piece) }?,
            };
            if posted == Posted::Full {
                return Ok(());
            }
            match moving.transfer.len - moving.posted {
                0 => moving.confirming = true,
                _ => moving.posted += len,
            }
            moving.flying += 1;
            self.flying += 1;
            if moving.next(self.piece).is_none() {
                self.unposted.pop_front();
            }
        }
        Ok(())
    }

    /// Records a finished piece, and returns its transfer after the last one.
    fn finish(&mut self, completion: Completion) -> Result<()> {
        let Completion { context, result } = completion;
        // After a failed piece the connection is unusable: RDMA closes it, and other providers do
        // not define the result of later pieces.
        result?;
        let moving = self.slots.get_mut(context).and_then(Option::as_mut).ok_or_else(lost)?;
        moving.flying = moving.flying.checked_sub(1).ok_or_else(lost)?;
        self.flying = self.flying.checked_sub(1).ok_or_else(lost)?;
        self.moved = Instant::now();
        if moving.is_done() {
            if let Some(moving) = self.slots[context].take() {
                self.arrivals.put(moving.arrived(Ok(())));
            }
        } else if moving.next(self.piece).is_some() && !self.unposted.contains(&context) {
            self.unposted.push_back(context);
        }
        Ok(())
    }

    /// Sleeps until a transfer has ended, the thread is woken, or the server is overdue.
    fn sleep(&self) -> Result<()> {
        let mut limit = None;
        if !self.is_idle() {
            let left = (self.moved + self.timeout).saturating_duration_since(Instant::now());
            if left.is_zero() {
                let text = format!("no answer for {} s", self.timeout.as_secs_f64());
                return Err(Error::new(ErrorKind::Io, text));
            }
            limit = Some(left);
        }
        if !self.done.domain().fabric().may_sleep(Some(&self.events), Some(&self.done)) {
            return Ok(());
        }
        sleep(&[self.done.descriptor(), self.events.descriptor(), self.inbox.wake.as_fd()], limit)
    }

    /// Ends all transfers with an error and refuses later ones.
    fn die(&mut self, why: &str) {
        // Drop the endpoint first: from then on the provider does not write to the leases.
        self.link = None;
        let why = self.over.get_or_insert_with(|| why.to_owned()).clone();
        for slot in 0..self.slots.len() {
            if let Some(moving) = self.slots[slot].take() {
                let error = self.gone(&why);
                self.arrivals.put(moving.arrived(Err(error)));
            }
        }
        self.unposted.clear();
        self.flying = 0;
        self.arenas.clear();
        self.admit();
    }

    fn gone(&self, why: &str) -> Error {
        Error::new(ErrorKind::Io, format!("memory server {}: {why}", self.server))
    }
}

impl Move {
    fn new(way: Way, mut transfer: Transfer, grant: Grant, arena: Arc<RegisteredArena>) -> Self {
        let place = Place(NonNull::from(&mut *transfer.lease).cast());
        Self { way, transfer, place, grant, arena, posted: 0, flying: 0, confirming: false }
    }

    fn arrived(self, result: Result<()>) -> Transferred {
        Transferred { tag: self.transfer.tag, lease: self.transfer.lease, result }
    }
}

fn lost() -> Error {
    Error::internal("a completion for a transfer that is not in flight")
}
