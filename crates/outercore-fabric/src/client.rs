//! The client's end: opens queues and caches grants.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_far::{Arrivals, PlaneClient, PlaneControl, Queue, RegionKey};

use crate::blob::Offer;
use crate::library::{Info, Library, Side};
use crate::near::{Grants, Near};
use crate::objects::{CompletionQueue, Endpoint, Event, EventQueue, Fabric};
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
    /// Opened with the first queue; shared by all queues.
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
        let grants = Arc::new(Grants::new(control));
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
