//! The server's end: accepts clients, and opens regions to their sessions.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_far::auth::random;
use outercore_far::{Access, PlaneListener, RegionKey};

use crate::blob::{Grant, Offer, TICKET, Ticket};
use crate::ffi;
use crate::library::{Info, Library, Side};
use crate::mapping::Mapping;
use crate::objects::{
    Completion, CompletionQueue, Domain, Endpoint, EndpointId, Event, EventQueue, Fabric, Listener,
    Registration, Request,
};
use crate::wake::{Wake, sleep};

/// Lifetime of an unused invitation.
const TICKET_LIFE: Duration = Duration::from_secs(30);

/// Most regions whose addresses one session keeps reserved; see [`Mapping::bury`].
const MAX_BURIED: usize = 4096;

/// The same limit in bytes of address space, of which a process has 128 TiB.
const MAX_BURIED_BYTES: usize = 16 << 40;

/// Size of the server's completion queue, which only receives errors.
const COMPLETIONS: usize = 64;

/// Accepts queues and holds the grants of the sessions.
pub(crate) struct FabricListener {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Whether the thread should end.
    closed: AtomicBool,
    wake: Wake,
    provider: String,
    port: u16,
    host: String,
    /// Most queues and invitations of one session.
    most_queues: usize,
    listener: Listener,
    events: Arc<EventQueue>,
    fabric: Arc<Fabric>,
}

#[derive(Default)]
struct State {
    invited: HashMap<Ticket, Invitation>,
    sessions: HashMap<u64, Session>,
    /// Endpoints that other threads have closed, whose events may still be queued.
    retired: HashSet<EndpointId>,
    /// Why no more clients are accepted, or `None`.
    broken: Option<String>,
}

struct Invitation {
    session: u64,
    until: Instant,
}

/// State of one session. Its regions are registered in a separate domain, so that no key gives
/// another session access. Fields are dropped in this order.
struct Session {
    _progress: Progress,
    queues: Vec<Endpoint>,
    granted: HashMap<RegionKey, Granted>,
    buried: Vec<Mapping>,
    done: Arc<CompletionQueue>,
    /// The provider's requirements for registering memory.
    mode: i32,
    /// Bits of a key that the provider uses.
    key_mask: u64,
}

struct Granted {
    registration: Registration,
    mapping: Mapping,
    access: Access,
    grant: Grant,
}

impl FabricListener {
    pub(crate) fn open(
        library: &Arc<Library>,
        host: &str,
        provider: Option<&str>,
        most_queues: usize,
    ) -> Result<Self> {
        let info = library.info(host, 0, Side::Server, provider)?;
        let fabric = Fabric::open(library, &info)?;
        let events = EventQueue::open(&fabric)?;
        let listener = Listener::open(&fabric, &info, &events)
            .with_context(|| format!("fabric://{host} over {}", info.provider()))?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            closed: AtomicBool::new(false),
            wake: Wake::new()?,
            provider: info.provider(),
            port: listener.port()?,
            host: host.to_owned(),
            most_queues,
            listener,
            events,
            fabric,
        });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("fabric-listen".into())
                .spawn(move || shared.listen())
                .context("a thread for the fabric")?
        };
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for FabricListener {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake.ring();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
        let state = std::mem::take(&mut *self.shared.state());
        drop(state);
    }
}

impl fmt::Debug for FabricListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { host, port, provider, .. } = &*self.shared;
        write!(f, "FabricListener({host}:{port} over {provider})")
    }
}

impl PlaneListener for FabricListener {
    fn offer(&self, session: u64) -> Result<Vec<u8>> {
        let mut state = self.shared.state();
        if let Some(why) = &state.broken {
            return Err(Error::new(ErrorKind::Io, format!("the fabric takes no queues: {why}")));
        }
        let now = Instant::now();
        state.invited.retain(|_, invitation| invitation.until > now);
        let open = state.sessions.get(&session).map_or(0, |session| session.queues.len());
        let invited = state.invited.values().filter(|other| other.session == session).count();
        let most = self.shared.most_queues;
        if open + invited >= most {
            return Err(Error::new(
                ErrorKind::Io,
                format!("{open} queues are open and {invited} offered, at most {most} a session"),
            )
            .hint("use fewer queues"));
        }
        let mut ticket: Ticket = [0; TICKET];
        random(&mut ticket)?;
        state.invited.insert(ticket, Invitation { session, until: now + TICKET_LIFE });
        let provider = self.shared.provider.clone();
        Ok(Offer { port: self.shared.port, provider, ticket }.to_bytes())
    }

    fn grant(
        &self,
        session: u64,
        key: RegionKey,
        memory: BorrowedFd<'_>,
        len: Bytes,
        access: Access,
    ) -> Result<Vec<u8>> {
        let mut state = self.shared.state();
        let State { sessions, retired, .. } = &mut *state;
        let session = sessions.get_mut(&session).ok_or_else(|| {
            Error::new(ErrorKind::Io, "a grant for a session that has no queue yet")
        })?;
        if session.granted.get(&key).is_some_and(|granted| granted.access != access) {
            session.withdraw(key, retired)?;
        }
        session.grant(key, memory, len, access).map(Grant::to_bytes)
    }

    fn withdraw(&self, key: RegionKey) -> Result<()> {
        let State { sessions, retired, .. } = &mut *self.shared.state();
        let mut withdrawn = Ok(());
        for session in sessions.values_mut() {
            // Withdraw from all sessions, even after an error.
            withdrawn = withdrawn.and(session.withdraw(key, retired));
        }
        withdrawn
    }

    fn session_ended(&self, session: u64) {
        let ended = {
            let mut state = self.shared.state();
            state.invited.retain(|_, invitation| invitation.session != session);
            let ended = state.sessions.remove(&session);
            let queues = ended.iter().flat_map(|session| &session.queues);
            let closing: Vec<_> = queues.map(Endpoint::id).collect();
            state.retired.extend(closing);
            ended
        };
        // Closed without the lock, so that other threads need not wait.
        drop(ended);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A panic cannot leave it inconsistent: each change is one insertion or removal.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The listening thread.
    fn listen(&self) {
        let mut retired = HashSet::new();
        while !self.closed.load(Ordering::Acquire) {
            if let Err(error) = self.turn(&mut retired) {
                self.state().broken = Some(error.to_string());
                return;
            }
        }
    }

    /// Handles an event, or sleeps until one arrives.
    ///
    /// Only this thread opens endpoints. A new endpoint may get the address of one that another
    /// thread has closed. So an event with an address in `retired` belongs to the old endpoint.
    /// Once the event queue is empty, no old events are left.
    fn turn(&self, retired: &mut HashSet<EndpointId>) -> Result<()> {
        self.wake.hear();
        retired.extend(self.state().retired.drain());
        match self.events.read()? {
            Some(Event::Requested(request)) => self.admit(&request),
            // A client left, or its connection failed: close this end, too.
            Some(Event::Shutdown(gone) | Event::Failed(gone, _)) => {
                if !retired.remove(&gone) {
                    self.close(gone);
                }
            }
            Some(Event::Connected | Event::Other) => {}
            None => {
                retired.clear();
                self.rest()?;
            }
        }
        Ok(())
    }

    /// Sleeps until an event arrives or the listener is dropped.
    fn rest(&self) -> Result<()> {
        let closed = self.closed.load(Ordering::Acquire);
        if closed || !self.fabric.may_sleep(Some(&self.events), None) {
            return Ok(());
        }
        sleep(&[self.events.descriptor(), self.wake.as_fd()], None)
    }

    /// Accepts a client with a valid ticket; rejects all others.
    fn admit(&self, request: &Request) {
        let mut state = self.state();
        let ticket: Option<&Ticket> = request.data.first_chunk();
        let invitation = ticket.and_then(|ticket| state.invited.remove(ticket));
        let valid = invitation.filter(|invitation| invitation.until > Instant::now());
        let Some(Invitation { session, .. }) = valid else {
            return self.reject(request);
        };
        let session = match state.sessions.entry(session) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => match Session::open(&self.fabric, &request.info) {
                Ok(opened) => free.insert(opened),
                Err(_) => return self.reject(request),
            },
        };
        // If this fails, the client sees that its connection is closed.
        if let Ok(queue) = session.accept(request, &self.events) {
            session.queues.push(queue);
        }
    }

    fn reject(&self, request: &Request) {
        // If even this fails, the client's time-out ends its wait.
        let _ = self.listener.reject(request);
    }

    fn close(&self, gone: EndpointId) {
        for session in self.state().sessions.values_mut() {
            session.queues.retain(|queue| queue.id() != gone);
        }
    }
}

impl Session {
    fn open(fabric: &Arc<Fabric>, info: &Arc<Info>) -> Result<Self> {
        let domain = Domain::open(fabric, info)?;
        let done = CompletionQueue::open(&domain, COMPLETIONS)?;
        let (mode, key_size) = info.registration();
        let key_mask = if key_size >= 8 { u64::MAX } else { (1 << (8 * key_size)) - 1 };
        Ok(Self {
            _progress: Progress::start(&done)?,
            queues: Vec::new(),
            granted: HashMap::new(),
            buried: Vec::new(),
            done,
            mode,
            key_mask,
        })
    }

    fn accept(&self, request: &Request, events: &Arc<EventQueue>) -> Result<Endpoint> {
        let queue = Endpoint::open(&request.info, events, &self.done)?;
        queue.accept()?;
        Ok(queue)
    }

    fn grant(
        &mut self,
        key: RegionKey,
        memory: BorrowedFd<'_>,
        len: Bytes,
        access: Access,
    ) -> Result<Grant> {
        if let Some(granted) = self.granted.get(&key) {
            return Ok(granted.grant);
        }
        let buried: usize = self.buried.iter().map(Mapping::len).sum();
        if self.buried.len() >= MAX_BURIED || buried >= MAX_BURIED_BYTES {
            return Err(Error::new(
                ErrorKind::Io,
                format!(
                    "{} regions of this session are gone, which is too many",
                    self.buried.len()
                ),
            )
            .hint("connect again"));
        }
        let mapping = Mapping::new(memory, len, access)?;
        let registration = self.register(&mapping, access)?;
        let virtual_addresses = self.mode & ffi::FI_MR_VIRT_ADDR != 0;
        let address = if virtual_addresses { mapping.start().addr() as u64 } else { 0 };
        let grant = Grant { address, key: registration.key(), len: len.0 };
        self.granted.insert(key, Granted { registration, mapping, access, grant });
        Ok(grant)
    }

    fn register(&self, mapping: &Mapping, access: Access) -> Result<Registration> {
        let access = match access {
            Access::Read => ffi::FI_REMOTE_READ,
            Access::ReadWrite => ffi::FI_REMOTE_READ | ffi::FI_REMOTE_WRITE,
        };
        let provider_draws = self.mode & ffi::FI_MR_PROV_KEY != 0;
        let mut tries = 0;
        loop {
            let mut key = [0; 8];
            if !provider_draws {
                random(&mut key)?;
            }
            let key = u64::from_le_bytes(key) & self.key_mask;
            let domain = self.done.domain();
            // SAFETY: the mapping stays, possibly buried, until the session has closed its queues;
            // our own code holds no reference to its bytes.
            let registered =
                unsafe { domain.register(mapping.start(), mapping.len(), access, key) };
            tries += 1;
            // A short key may already be in use.
            if registered.is_ok() || provider_draws || tries == 4 {
                return registered;
            }
        }
    }

    /// Closes a region to this session. If its memory cannot be released, also closes the queues,
    /// which are then `retired`.
    fn withdraw(&mut self, key: RegionKey, retired: &mut HashSet<EndpointId>) -> Result<()> {
        let Some(Granted { registration, mut mapping, .. }) = self.granted.remove(&key) else {
            return Ok(());
        };
        drop(registration);
        let buried = mapping.bury();
        if buried.is_err() {
            // Late transfers must not reach the region's memory.
            retired.extend(self.queues.iter().map(Endpoint::id));
            self.queues.clear();
        }
        self.buried.push(mapping);
        buried
    }
}

/// A thread that drives a session's transfers if the network card does not do so itself.
struct Progress {
    stop: Arc<(AtomicBool, Wake)>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    fn start(done: &Arc<CompletionQueue>) -> Result<Self> {
        let stop = Arc::new((AtomicBool::new(false), Wake::new()?));
        let thread = {
            let done = Arc::clone(done);
            let stop = Arc::clone(&stop);
            std::thread::Builder::new()
                .name("fabric-progress".into())
                // If the queue fails, the thread ends, and the clients notice by their time-outs.
                .spawn(move || drop(keep_going(&done, &stop.0, &stop.1)))
                .context("a thread for the fabric")?
        };
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Release);
        self.stop.1.ring();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

fn keep_going(done: &CompletionQueue, stop: &AtomicBool, wake: &Wake) -> Result<()> {
    let mut ended: Vec<Completion> = Vec::new();
    while !stop.load(Ordering::Acquire) {
        ended.clear();
        let some = done.read(&mut ended)?;
        if some == 0 && done.domain().fabric().may_sleep(None, Some(done)) {
            sleep(&[done.descriptor(), wake.as_fd()], None)?;
        }
    }
    Ok(())
}
