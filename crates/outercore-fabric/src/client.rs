//! The client's end: opens queues, and remembers what it was granted.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_far::{Arrivals, PlaneClient, PlaneControl, Queue, RegionKey};
use outercore_io::{Arena, Lease};

use crate::blob::{Grant, Offer};
use crate::ffi;
use crate::library::{Info, Library, Side};
use crate::objects::{CompletionQueue, Domain, Endpoint, Event, EventQueue, Fabric, Registration};
use crate::queue::{Connected, FabricQueue};
use crate::wake::sleep;

/// Queues to one server.
pub(crate) struct FabricClient {
    library: Arc<Library>,
    /// Host without the port.
    host: String,
    /// The address as the user wrote it.
    server: String,
    timeout: Duration,
    grants: Arc<Grants>,
    /// Opened with the first queue, shared by all.
    near: Mutex<Option<Arc<Near>>>,
}

impl FabricClient {
    pub(crate) fn new(
        library: Arc<Library>,
        host: String,
        server: String,
        timeout: Duration,
        control: Arc<dyn PlaneControl>,
    ) -> Self {
        let grants = Arc::new(Grants { control, known: Mutex::default() });
        Self { library, host, server, timeout, grants, near: Mutex::default() }
    }

    fn near(&self, info: &Arc<Info>) -> Result<Arc<Near>> {
        let mut near = self.near.lock().unwrap_or_else(PoisonError::into_inner);
        match &*near {
            Some(near) if near.provider == info.provider() => Ok(Arc::clone(near)),
            _ => {
                let opened = Arc::new(Near::open(&self.library, info)?);
                *near = Some(Arc::clone(&opened));
                Ok(opened)
            }
        }
    }

    fn connect(&self, length: usize) -> Result<Connected> {
        let offer = Offer::from_bytes(&self.grants.control.offer()?)?;
        let info =
            self.library.info(&self.host, offer.port, Side::Client, Some(&offer.provider))?;
        let near = self.near(&info)?;
        let events = EventQueue::open(&near.fabric)?;
        let in_flight = length.min(info.queue_size());
        let done = CompletionQueue::open(&near.domain, in_flight + 1)?;
        let endpoint = Endpoint::open(&info, &events, &done)?;
        endpoint.connect(&info, &offer.ticket)?;
        self.wait_for_connection(&near.fabric, &events)?;
        Ok(Connected { endpoint, events, done, near, in_flight, longest: info.longest() })
    }

    fn wait_for_connection(&self, fabric: &Fabric, events: &EventQueue) -> Result<()> {
        let end = Instant::now() + self.timeout;
        loop {
            match events.read()? {
                Some(Event::Connected) => return Ok(()),
                Some(Event::Failed(_, error)) => return Err(error),
                Some(Event::Shutdown(_)) => {
                    return Err(Error::new(ErrorKind::Io, "the connection was closed"));
                }
                Some(_) => {}
                None => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        let waited = self.timeout.as_secs_f64();
                        let text = format!("no answer for {waited} s");
                        return Err(Error::new(ErrorKind::Io, text));
                    }
                    if fabric.may_sleep(Some(events), None) {
                        sleep(&[events.descriptor()], Some(left))?;
                    }
                }
            }
        }
    }
}

impl PlaneClient for FabricClient {
    fn open_queue(
        &self,
        length: usize,
        chunk: Bytes,
        arrivals: &Arrivals,
    ) -> Result<Box<dyn Queue>> {
        let chunk = usize::try_from(chunk.0).ok().filter(|&chunk| chunk > 0);
        let chunk = chunk.ok_or_else(|| Error::invalid("a chunk of 0 bytes"))?;
        if length == 0 {
            return Err(Error::invalid("a queue with no transfers in flight"));
        }
        let connected =
            self.connect(length).with_context(|| format!("memory server {}", self.server))?;
        let queue = FabricQueue::start(
            connected,
            Arc::clone(&self.grants),
            self.server.clone(),
            self.timeout,
            length,
            chunk,
            arrivals,
        )?;
        Ok(Box::new(queue))
    }

    fn forget(&self, key: RegionKey) {
        self.grants.known().remove(&key);
    }
}

impl fmt::Debug for FabricClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FabricClient({})", self.server)
    }
}

/// Grants by region, shared by all queues of a connection.
pub(crate) struct Grants {
    control: Arc<dyn PlaneControl>,
    known: Mutex<HashMap<RegionKey, Grant>>,
}

impl Grants {
    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<RegionKey, Grant>> {
        // Each change is one insertion or removal.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The grant of a region; asks the server where it is not known.
    pub(crate) fn of(&self, key: RegionKey) -> Result<Grant> {
        if let Some(grant) = self.known().get(&key) {
            return Ok(*grant);
        }
        let grant = Grant::from_bytes(&self.control.grant(key)?)?;
        self.known().insert(key, grant);
        Ok(grant)
    }
}

/// Our own end of every connection: one domain, and the memory registered in it.
pub(crate) struct Near {
    provider: String,
    /// Arenas that some queue uses.
    arenas: Mutex<Vec<Weak<RegisteredArena>>>,
    /// Keys are drawn here where the provider does not; nobody needs to know them.
    next_key: AtomicU64,
    domain: Arc<Domain>,
    fabric: Arc<Fabric>,
}

/// An arena that transfers may read and write; alive as long as its registration.
pub(crate) struct RegisteredArena {
    registration: Registration,
    arena: Arena,
}

impl RegisteredArena {
    pub(crate) fn registration(&self) -> &Registration {
        &self.registration
    }

    pub(crate) fn owns(&self, lease: &Lease) -> bool {
        self.arena.owns(lease)
    }
}

impl Near {
    fn open(library: &Arc<Library>, info: &Arc<Info>) -> Result<Self> {
        let fabric = Fabric::open(library, info)?;
        let domain = Domain::open(&fabric, info)?;
        Ok(Self {
            provider: info.provider(),
            arenas: Mutex::default(),
            next_key: AtomicU64::new(1),
            domain,
            fabric,
        })
    }

    /// The registered arena of a lease; registers it where no queue has used it yet.
    pub(crate) fn arena_of(&self, lease: &Lease) -> Result<Arc<RegisteredArena>> {
        let mut arenas = self.arenas.lock().unwrap_or_else(PoisonError::into_inner);
        arenas.retain(|arena| arena.strong_count() > 0);
        if let Some(found) = arenas.iter().filter_map(Weak::upgrade).find(|arena| arena.owns(lease))
        {
            return Ok(found);
        }
        let arena = lease.arena();
        let range = arena.address_range();
        let len = range.end.addr() - range.start.addr();
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        let access = ffi::FI_READ | ffi::FI_WRITE;
        // SAFETY: `RegisteredArena` keeps the memory mapped until the registration is closed; who
        // may touch which bytes is decided by the leases.
        let registration =
            unsafe { self.domain.register(range.start.cast_mut(), len, access, key) };
        let registered = Arc::new(RegisteredArena { registration: registration?, arena });
        arenas.push(Arc::downgrade(&registered));
        Ok(registered)
    }
}
