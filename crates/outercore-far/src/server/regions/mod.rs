//! The lent memory of a server: its regions, access to them, and the remaining amount.

mod memory;
mod region;
mod room;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use outercore_core::{Bytes, Error, ErrorKind, Result, hint};

use self::memory::new_memory;
pub(super) use self::region::Region;
use self::region::sealed;
pub(super) use self::room::Room;
use crate::auth::random_number;
use crate::protocol::{MAX_NAME, check_name};
use crate::region::RegionKey;
use crate::remote::RegionInfo;

/// Memory is lent in pages.
const PAGE: u64 = 4096;

/// All regions of a server.
///
/// A session allocates and ends on one thread, so no region is allocated for an ended session.
#[derive(Debug)]
pub(super) struct Regions {
    size: u64,
    regions_per_session: usize,
    /// Most regions at a time, including kept ones: each takes a file descriptor.
    most: u64,
    used: Arc<AtomicU64>,
    open: Arc<AtomicU64>,
    table: RwLock<Table>,
    /// Regions that are unusable and whose memory cannot be freed.
    written_off: Mutex<Vec<Arc<Region>>>,
}

#[derive(Debug, Default)]
struct Table {
    by_key: BTreeMap<u64, Arc<Region>>,
    /// Names in use, including names of regions that are not yet sealed.
    names: HashMap<String, u64>,
    /// Number of regions of each session.
    owned: HashMap<u64, usize>,
}

impl Regions {
    pub(super) fn new(size: Bytes, regions_per_session: usize, most: u64) -> Self {
        Self {
            size: size.0,
            regions_per_session,
            most,
            used: Arc::default(),
            open: Arc::default(),
            table: RwLock::default(),
            written_off: Mutex::default(),
        }
    }

    /// Counts the memory of a region as used for ever, because a data plane could not unmap it.
    pub(super) fn write_off(&self, region: Arc<Region>) {
        self.written_off.lock().unwrap_or_else(PoisonError::into_inner).push(region);
    }

    pub(super) fn used(&self) -> Bytes {
        Bytes(self.used.load(Ordering::Relaxed))
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_table(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates a region for a session. `alive` is called from time to time while the kernel
    /// provides the memory; its error stops the allocation.
    pub(super) fn allocate(
        &self,
        session: u64,
        len: u64,
        name: Option<&str>,
        alive: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Arc<Region>> {
        if len == 0 {
            return Err(Error::invalid("a region of no bytes"));
        }
        if let Some(name) = name {
            check_name(name)?;
        }
        let key = self.reserve_key(session, name)?;
        let region = self.find_memory(session, key, len, name, alive);
        let mut table = self.change_table();
        match region {
            Ok(region) => {
                let region = Arc::new(region);
                table.by_key.insert(key, Arc::clone(&region));
                Ok(region)
            }
            Err(error) => {
                table.forget(name, Some(session));
                Err(error)
            }
        }
    }

    /// Reserves a name and a table entry, before the memory is allocated.
    fn reserve_key(&self, session: u64, name: Option<&str>) -> Result<u64> {
        let key = random_number()?;
        let mut table = self.change_table();
        if let Some(name) = name
            && table.names.contains_key(name)
        {
            return Err(Error::invalid(format!("the name `{name}` is taken"))
                .hint("drop that region first, or take another name"));
        }
        let owned = table.owned.entry(session).or_default();
        if *owned >= self.regions_per_session {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!("this client has {owned} regions, more are not allowed"),
            )
            .hint("take fewer and larger regions"));
        }
        *owned += 1;
        if let Some(name) = name {
            table.names.insert(name.to_owned(), key);
        }
        Ok(key)
    }

    fn find_memory(
        &self,
        session: u64,
        key: u64,
        len: u64,
        name: Option<&str>,
        alive: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Region> {
        let place = self.take_place()?;
        let room = self.take_room(len)?;
        let memory = new_memory(len, alive)?;
        Ok(Region::new(session, RegionKey(key), len, name, memory, place, room))
    }

    fn take_place(&self) -> Result<Room> {
        Room::take(&self.open, 1, self.most).map_err(|open| {
            Error::new(
                ErrorKind::NoSpace,
                format!(
                    "the memory server has {open} regions, more it has no file descriptors for"
                ),
            )
            .hint("raise its hard limit (`ulimit -Hn`), or take fewer and larger regions")
        })
    }

    fn take_room(&self, len: u64) -> Result<Room> {
        let full = |used: u64| {
            Error::new(
                ErrorKind::NoSpace,
                format!(
                    "the memory server is full: {} wanted, {} left of {}",
                    Bytes(len),
                    Bytes(self.size - used),
                    Bytes(self.size)
                ),
            )
            .hint(hint!(
                "start it with a larger " {size} ", or drop regions: `outercore far list`"
            ))
        };
        let bytes = len
            .checked_next_multiple_of(PAGE)
            .ok_or_else(|| full(self.used.load(Ordering::Relaxed)))?;
        Room::take(&self.used, bytes, self.size).map_err(full)
    }

    /// The region, if the session may read it.
    pub(super) fn readable(&self, session: u64, key: RegionKey) -> Result<Arc<Region>> {
        let region = self.get(key)?;
        let state = *region.state();
        if state.sealed || state.owner == Some(session) { Ok(region) } else { Err(not_there()) }
    }

    /// The region, if the session may write it.
    pub(super) fn writable(&self, session: u64, key: RegionKey) -> Result<Arc<Region>> {
        let region = self.get(key)?;
        let state = *region.state();
        if state.sealed {
            return Err(sealed());
        }
        if state.owner == Some(session) { Ok(region) } else { Err(not_there()) }
    }

    fn get(&self, key: RegionKey) -> Result<Arc<Region>> {
        self.table().by_key.get(&key.0).cloned().ok_or_else(not_there)
    }

    /// The sealed region with this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Region>> {
        let table = self.table();
        let region = table.by_key.get(table.names.get(name)?)?;
        region.state().sealed.then(|| Arc::clone(region))
    }

    /// Checks that a session may seal this region, before its data plane unmaps it.
    pub(super) fn check_seal(&self, session: u64, key: RegionKey, keep: bool) -> Result<()> {
        let region = self.get(key)?;
        let state = *region.state();
        if state.owner != Some(session) {
            return Err(if state.sealed { sealed() } else { not_there() });
        }
        if state.sealed {
            return Err(sealed());
        }
        if keep && region.name.is_none() {
            return Err(Error::invalid("a region that is to be kept needs a name")
                .hint("nobody could find it again"));
        }
        Ok(())
    }

    /// Makes the content of a region final.
    pub(super) fn seal(&self, session: u64, key: RegionKey, keep: bool) -> Result<()> {
        self.check_seal(session, key, keep)?;
        self.get(key)?.seal(keep)?;
        if keep {
            self.change_table().disown(session);
        }
        Ok(())
    }

    /// Removes a region, if the session may free it. Its memory is freed when the region is
    /// dropped.
    pub(super) fn free(&self, session: u64, key: RegionKey) -> Result<Arc<Region>> {
        let mut table = self.change_table();
        let region = table.by_key.get(&key.0).cloned().ok_or_else(not_there)?;
        let state = *region.state();
        if state.owner != Some(session) && !state.kept {
            return Err(if state.sealed {
                Error::invalid("the region belongs to another client, which still uses it")
            } else {
                not_there()
            });
        }
        table.by_key.remove(&key.0);
        table.forget(region.name.as_deref(), state.owner);
        Ok(region)
    }

    /// Removes the regions of an ended session.
    pub(super) fn session_ended(&self, session: u64) -> Vec<Arc<Region>> {
        let mut table = self.change_table();
        let mut left = Vec::new();
        table.by_key.retain(|_, region| {
            let stays = region.state().owner != Some(session);
            if !stays {
                left.push(Arc::clone(region));
            }
            stays
        });
        for region in &left {
            if let Some(name) = &region.name {
                table.names.remove(name);
            }
        }
        table.owned.remove(&session);
        left
    }

    /// Regions that a session may see, in the order of their keys, starting after `after`; as many
    /// as fit in `room` bytes. Also returns the last key if there are more.
    pub(super) fn list(
        &self,
        session: u64,
        after: Option<u64>,
        room: usize,
    ) -> (Vec<RegionInfo>, Option<u64>) {
        /// Bytes of a region's other fields in JSON.
        const FIELDS: usize = 100;
        let table = self.table();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut listed = Vec::new();
        let (mut taken, mut last) = (0, None);
        for (&key, region) in table.by_key.range((from, Bound::Unbounded)) {
            let state = *region.state();
            let public = state.sealed && region.name.is_some();
            if !public && state.owner != Some(session) {
                continue;
            }
            // Escaping may double each byte of a name.
            taken += FIELDS + 2 * region.name.as_ref().map_or(0, String::len);
            if taken > room.max(FIELDS + 2 * MAX_NAME) {
                return (listed, last);
            }
            last = Some(key);
            listed.push(RegionInfo {
                name: region.name.clone(),
                len: Bytes(region.len),
                sealed: state.sealed,
                kept: state.kept,
            });
        }
        (listed, None)
    }
}

impl Table {
    /// Frees the name and the place of a region.
    fn forget(&mut self, name: Option<&str>, owner: Option<u64>) {
        if let Some(name) = name {
            self.names.remove(name);
        }
        if let Some(owner) = owner {
            self.disown(owner);
        }
    }

    fn disown(&mut self, session: u64) {
        if let Some(owned) = self.owned.get_mut(&session) {
            *owned = owned.saturating_sub(1);
        }
    }
}

fn not_there() -> Error {
    Error::new(ErrorKind::NotFound, "no such region on the memory server")
}
