//! State that the queues of a connection share: grants, one domain, and the memory registered in
//! it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use outercore_core::Result;
use outercore_far::{PlaneControl, RegionKey};
use outercore_io::{Arena, Lease};

use crate::blob::Grant;
use crate::ffi;
use crate::library::{Info, Library};
use crate::objects::{Domain, Fabric, Registration};

/// Grants by region, shared by all queues of a connection.
pub(crate) struct Grants {
    pub(crate) control: Arc<dyn PlaneControl>,
    known: Mutex<HashMap<RegionKey, Grant>>,
}

impl Grants {
    pub(crate) fn new(control: Arc<dyn PlaneControl>) -> Self {
        Self { control, known: Mutex::default() }
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, HashMap<RegionKey, Grant>> {
        // A panic cannot leave it inconsistent: each change is one insertion or removal.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The grant of a region; requests it from the server if it is unknown.
    pub(crate) fn of(&self, key: RegionKey) -> Result<Grant> {
        if let Some(grant) = self.known().get(&key) {
            return Ok(*grant);
        }
        let grant = Grant::from_bytes(&self.control.grant(key)?)?;
        self.known().insert(key, grant);
        Ok(grant)
    }
}

/// Our end of all connections: one domain, and the memory registered in it.
pub(crate) struct Near {
    pub(crate) provider: String,
    /// Arenas that a queue uses.
    arenas: Mutex<Vec<Weak<RegisteredArena>>>,
    /// Source of keys, if the provider does not choose them. Other code never needs these keys.
    next_key: AtomicU64,
    pub(crate) domain: Arc<Domain>,
    pub(crate) fabric: Arc<Fabric>,
}

/// An arena that transfers may read and write. It stays alive as long as its registration.
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
    pub(crate) fn open(library: &Arc<Library>, info: &Arc<Info>) -> Result<Self> {
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

    /// The registered arena of a lease; registers it if no queue has used it yet.
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
        // SAFETY: `RegisteredArena` keeps the memory mapped until the registration is closed; the
        // leases decide which code may access which bytes.
        let registration =
            unsafe { self.domain.register(range.start.cast_mut(), len, access, key) };
        let registered = Arc::new(RegisteredArena { registration: registration?, arena });
        arenas.push(Arc::downgrade(&registered));
        Ok(registered)
    }
}
