//! The memory that a server lends: regions, who may do what with them, and how much is left.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Bound;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, ftruncate,
    memfd_create,
};

use crate::auth::random_number;
use crate::protocol::{ALLOCATION_STEP, MAX_NAME, check_name};
use crate::remote::{RegionInfo, RegionKey};

/// Memory is lent in pages.
const PAGE: u64 = 4096;

/// All regions of a server.
///
/// A session allocates and ends on one thread: nothing is allocated for a session that has ended.
#[derive(Debug)]
pub(super) struct Regions {
    size: u64,
    regions_per_session: usize,
    /// Regions at a time, kept ones too: each takes a file descriptor.
    most: u64,
    used: Arc<AtomicU64>,
    open: Arc<AtomicU64>,
    table: RwLock<Table>,
    /// Regions that nobody can use, and whose memory does not come back.
    written_off: Mutex<Vec<Arc<Region>>>,
}

#[derive(Debug, Default)]
struct Table {
    by_key: BTreeMap<u64, Arc<Region>>,
    /// Names that are taken, also those of regions that are not sealed yet.
    names: HashMap<String, u64>,
    /// Regions of each session.
    owned: HashMap<u64, usize>,
}

/// A piece of memory.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) key: RegionKey,
    pub(super) len: u64,
    name: Option<String>,
    memory: File,
    state: RwLock<State>,
    /// One of the file descriptors that regions may take.
    _place: Room,
    room: Arc<Room>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    sealed: bool,
    kept: bool,
    /// The session that allocated it, until it is kept.
    owner: Option<u64>,
}

/// A share of what the server has, bytes or file descriptors; it goes back when dropped.
///
/// The bytes of a region are shared by the region and the sessions that have its memory itself:
/// what a client can still read, the kernel cannot give to anybody else.
#[derive(Debug)]
pub(super) struct Room {
    share: u64,
    used: Arc<AtomicU64>,
}

impl Room {
    /// Takes `share` of `size`.
    ///
    /// # Errors
    /// What is used already, where too little is left.
    fn take(used: &Arc<AtomicU64>, share: u64, size: u64) -> std::result::Result<Self, u64> {
        let more = |used: u64| used.checked_add(share).filter(|&after| after <= size);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)?;
        Ok(Self { share, used: Arc::clone(used) })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.fetch_sub(self.share, Ordering::Relaxed);
    }
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

    /// Counts the memory of a region as used for ever: a data plane could not let go of it.
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

    /// A new region of a session. `alive` is called from time to time while the kernel finds the
    /// memory; its error ends the search.
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

    /// Takes a name and a place in the table, before memory is looked for.
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
        Ok(Region {
            key: RegionKey(key),
            len,
            name: name.map(str::to_owned),
            memory,
            state: RwLock::new(State { sealed: false, kept: false, owner: Some(session) }),
            _place: place,
            room: Arc::new(room),
        })
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
            .hint("start it with a larger `--size`, or drop regions: `outercore far list`")
        };
        let bytes = len
            .checked_next_multiple_of(PAGE)
            .ok_or_else(|| full(self.used.load(Ordering::Relaxed)))?;
        Room::take(&self.used, bytes, self.size).map_err(full)
    }

    /// A region that a session may read.
    pub(super) fn readable(&self, session: u64, key: RegionKey) -> Result<Arc<Region>> {
        let region = self.get(key)?;
        let state = *region.state();
        if state.sealed || state.owner == Some(session) { Ok(region) } else { Err(not_there()) }
    }

    /// A region that a session may write.
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

    /// The sealed region of a name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<Region>> {
        let table = self.table();
        let region = table.by_key.get(table.names.get(name)?)?;
        region.state().sealed.then(|| Arc::clone(region))
    }

    /// Whether a session could seal this region; to be asked before its data plane lets go of it.
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

    /// Takes a region back from whoever may give it back; its memory goes when it is dropped.
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

    /// Takes back what a session leaves behind.
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

    /// Regions that a session may see, in the order of their keys, those after `after`, as many as
    /// `room` bytes can name; and the last key where there are more.
    pub(super) fn list(
        &self,
        session: u64,
        after: Option<u64>,
        room: usize,
    ) -> (Vec<RegionInfo>, Option<u64>) {
        /// What the other fields of a region take as JSON.
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
            // Each byte of a name may need one more to escape it.
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

impl Region {
    fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the content is final.
    pub(super) fn is_sealed(&self) -> bool {
        self.state().sealed
    }

    /// The bytes that it takes, to be held by whoever is given the memory itself.
    pub(super) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }

    /// Checks that a range lies within the region.
    pub(super) fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::invalid(format!(
                "{len} bytes at {offset} of a region of {} bytes",
                self.len
            ))),
        }
    }

    /// Writes into a region that is not sealed; `check_range` first.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        // Sealing waits until the write is done, so that nothing changes afterwards.
        let state = self.state();
        if state.sealed {
            return Err(sealed());
        }
        self.memory.write_all_at(bytes, offset).context("memory of the region")
    }

    /// Reads from a region; `check_range` first.
    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(bytes, offset)
    }

    fn seal(&self, keep: bool) -> Result<()> {
        // Waits for writes that have begun; from then on there are no others.
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.sealed {
            return Err(sealed());
        }
        state.sealed = true;
        if keep {
            state.kept = true;
            state.owner = None;
        }
        drop(state);
        // The kernel may take its time, for which nobody else has to wait. Where a writable mapping
        // is left it refuses; as long as it does, nobody but us gets the memory itself.
        let _ = self.forbid_writing();
        Ok(())
    }

    /// The memory itself, where nobody can change it any more.
    pub(super) fn unchangeable(&self) -> Result<BorrowedFd<'_>> {
        if self.is_sealed() && self.forbid_writing().is_ok() {
            return Ok(self.memory.as_fd());
        }
        Err(Error::new(ErrorKind::Unsupported, "the region can still be written: not shared"))
    }

    fn forbid_writing(&self) -> rustix::io::Result<()> {
        // A client with the memory may have forbidden further seals.
        if fcntl_get_seals(&self.memory)?.contains(SealFlags::WRITE) {
            return Ok(());
        }
        fcntl_add_seals(&self.memory, SealFlags::WRITE)
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

/// Memory of the kernel, all of it found, of a length that stays.
fn new_memory(len: u64, alive: &mut dyn FnMut() -> Result<()>) -> Result<File> {
    let named = |error: rustix::io::Errno| {
        let error = io::Error::from(error);
        let memory = format!("{} of memory for a region", Bytes(len));
        match error.kind() {
            io::ErrorKind::OutOfMemory | io::ErrorKind::StorageFull => {
                Error::new(ErrorKind::NoSpace, format!("{memory}: {error}")).hint(
                    "the machine has less memory than the server may lend: lower its `--size`",
                )
            }
            _ => Error::from(error).context(memory),
        }
    };
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let memory = memfd_create("outercore-far", flags).map_err(|error| match error {
        rustix::io::Errno::MFILE | rustix::io::Errno::NFILE => {
            Error::new(ErrorKind::NoSpace, "the memory server has no file descriptor left")
                .hint("raise its limit with `ulimit -n`, or take fewer and larger regions")
        }
        other => named(other),
    })?;
    ftruncate(&memory, len).map_err(named)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW).map_err(named)?;
    let mut at = 0;
    while at < len {
        let step = ALLOCATION_STEP.min(len - at);
        match fallocate(&memory, FallocateFlags::empty(), at, step) {
            Ok(()) => at += step,
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(named(error)),
        }
        if at < len {
            alive()?;
        }
    }
    Ok(memory.into())
}

fn not_there() -> Error {
    Error::new(ErrorKind::NotFound, "no such region on the memory server")
}

fn sealed() -> Error {
    Error::invalid("the region is sealed")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: u64 = 10_000;

    fn regions() -> Regions {
        Regions::new(Bytes::kib(64), 3, 1000)
    }

    fn allocate(regions: &Regions, session: u64, name: Option<&str>) -> Result<Arc<Region>> {
        regions.allocate(session, LEN, name, &mut || Ok(()))
    }

    #[test]
    fn a_region_is_private_until_it_is_sealed_under_its_name() {
        let regions = regions();
        let region = allocate(&regions, 1, Some("x")).unwrap();
        assert!(regions.find("x").is_none());
        assert_eq!(regions.readable(2, region.key).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(regions.writable(2, region.key).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(regions.list(2, None, 9999).0.len(), 0);
        region.write(LEN - 1, &[7]).unwrap();
        assert_eq!(regions.seal(2, region.key, true).unwrap_err().kind(), ErrorKind::NotFound);
        regions.seal(1, region.key, false).unwrap();
        assert_eq!(regions.find("x").unwrap().key, region.key);
        let mut byte = [0];
        regions.readable(2, region.key).unwrap().read(LEN - 1, &mut byte).unwrap();
        assert_eq!(byte, [7]);
        assert_eq!(regions.list(2, None, 9999).0.len(), 1);
        for written in [regions.writable(1, region.key).map(drop), region.write(0, &[1])] {
            assert!(written.unwrap_err().to_string().contains("sealed"));
        }
        assert!(region.unchangeable().is_ok());
        assert_eq!(regions.free(2, region.key).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn a_full_server_says_what_is_left_and_gets_back_what_is_freed() {
        let regions = regions();
        let region = allocate(&regions, 1, None).unwrap();
        assert_eq!(regions.used(), Bytes(3 * PAGE));
        let error = regions.allocate(1, 64 << 10, None, &mut || Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("52.0 KiB left of 64.0 KiB"), "{error}");
        for len in [u64::MAX, u64::MAX - PAGE] {
            let error = regions.allocate(1, len, None, &mut || Ok(())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSpace);
        }
        regions.free(1, region.key).unwrap();
        assert_eq!(regions.used(), Bytes(3 * PAGE), "somebody still reads it");
        drop(region);
        assert_eq!(regions.used(), Bytes(0));
        assert_eq!(regions.table().owned[&1], 0);
    }

    #[test]
    fn a_session_that_ends_leaves_only_what_is_kept() {
        let regions = regions();
        for (name, seal, keep) in [("a", false, false), ("b", true, false), ("c", true, true)] {
            let region = allocate(&regions, 1, Some(name)).unwrap();
            if seal {
                regions.seal(1, region.key, keep).unwrap();
            }
        }
        let error = allocate(&regions, 2, Some("a")).unwrap_err();
        assert!(error.to_string().contains("`a` is taken"), "{error}");
        assert_eq!(regions.session_ended(1).len(), 2);
        assert_eq!(regions.used(), Bytes(3 * PAGE));
        assert!(regions.find("b").is_none());
        let kept = regions.find("c").unwrap().key;
        allocate(&regions, 2, Some("a")).unwrap();
        regions.free(2, kept).unwrap();
        assert!(regions.find("c").is_none());
    }

    #[test]
    fn a_session_has_so_many_regions_and_keeping_one_makes_room() {
        let regions = regions();
        let names = ["a", "b", "c"];
        let all: Vec<_> =
            names.iter().map(|name| allocate(&regions, 1, Some(name)).unwrap()).collect();
        let error = regions.allocate(1, 1, None, &mut || Ok(())).unwrap_err();
        assert!(error.to_string().contains("has 3 regions"), "{error}");
        regions.seal(1, all[0].key, true).unwrap();
        regions.allocate(1, 1, None, &mut || Ok(())).unwrap();
    }

    #[test]
    fn regions_of_all_sessions_together_leave_descriptors_for_others() {
        let regions = Regions::new(Bytes::mib(1), 3, 2);
        let kept = allocate(&regions, 1, Some("kept")).unwrap().key;
        regions.seal(1, kept, true).unwrap();
        allocate(&regions, 2, None).unwrap();
        let error = allocate(&regions, 3, Some("x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        assert!(error.to_string().contains("has 2 regions"), "{error}");
        regions.free(3, kept).unwrap();
        allocate(&regions, 3, Some("x")).unwrap();
    }

    #[test]
    fn bad_names_and_unnamed_regions_to_keep_are_refused() {
        let regions = regions();
        for name in ["", "a\nb", &"x".repeat(256)] {
            assert_eq!(allocate(&regions, 1, Some(name)).unwrap_err().kind(), ErrorKind::Invalid);
        }
        let region = allocate(&regions, 1, None).unwrap();
        let error = regions.seal(1, region.key, true).unwrap_err();
        assert!(error.to_string().contains("needs a name"), "{error}");
        for (offset, len) in [(LEN, 1), (0, LEN as usize + 1), (u64::MAX, 1)] {
            assert!(region.check_range(offset, len).is_err());
        }
        region.check_range(LEN, 0).unwrap();
    }

    #[test]
    fn an_allocation_that_is_given_up_leaves_nothing() {
        let regions = Regions::new(Bytes::mib(256), 3, 1000);
        let mut steps = 0;
        let given_up = regions.allocate(1, 2 * ALLOCATION_STEP, Some("x"), &mut || {
            steps += 1;
            Err(Error::new(ErrorKind::Io, "the client is gone"))
        });
        assert_eq!((given_up.unwrap_err().kind(), steps), (ErrorKind::Io, 1));
        assert_eq!(regions.used(), Bytes(0));
        allocate(&regions, 1, Some("x")).unwrap();
    }

    #[test]
    fn a_long_list_comes_in_pages_without_gaps() {
        let regions = Regions::new(Bytes::mib(4), 1000, 1000);
        for number in 0..100 {
            let name = format!("region {number}");
            regions.allocate(1, 1, Some(&name), &mut || Ok(())).unwrap();
        }
        let (mut names, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let (page, next) = regions.list(1, after, 2000);
            pages += 1;
            names.extend(page.into_iter().filter_map(|region| region.name));
            match next {
                Some(key) => after = Some(key),
                None => break,
            }
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 100);
        assert!(pages > 3, "{pages}");
    }
}
