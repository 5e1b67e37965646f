//! One region: its memory, and whether it may still be written.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use outercore_core::{Context, Error, ErrorKind, Result};
use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals};

use super::room::Room;
use crate::region::RegionKey;

/// A piece of memory.
#[derive(Debug)]
pub(in crate::server) struct Region {
    pub(in crate::server) key: RegionKey,
    pub(in crate::server) len: u64,
    pub(super) name: Option<String>,
    memory: File,
    state: RwLock<State>,
    /// One of the file descriptors that regions may take.
    _place: Room,
    room: Arc<Room>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) sealed: bool,
    pub(super) kept: bool,
    /// The session that allocated it, until it is kept.
    pub(super) owner: Option<u64>,
}

impl Region {
    /// A region of `session` in `memory`, not sealed.
    pub(super) fn new(
        session: u64,
        key: RegionKey,
        len: u64,
        name: Option<&str>,
        memory: File,
        place: Room,
        room: Room,
    ) -> Self {
        Self {
            key,
            len,
            name: name.map(str::to_owned),
            memory,
            state: RwLock::new(State { sealed: false, kept: false, owner: Some(session) }),
            _place: place,
            room: Arc::new(room),
        }
    }

    pub(super) fn state(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the content is final.
    pub(in crate::server) fn is_sealed(&self) -> bool {
        self.state().sealed
    }

    /// The bytes that it takes, to be held by whoever is given the memory itself.
    pub(in crate::server) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }

    /// Checks that a range lies within the region.
    pub(in crate::server) fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::invalid(format!(
                "{len} bytes at {offset} of a region of {} bytes",
                self.len
            ))),
        }
    }

    /// Writes into a region that is not sealed; `check_range` first.
    pub(in crate::server) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        // Sealing waits until the write is done, so that nothing changes afterwards.
        let state = self.state();
        if state.sealed {
            return Err(sealed());
        }
        self.memory.write_all_at(bytes, offset).context("memory of the region")
    }

    /// Reads from a region; `check_range` first.
    pub(in crate::server) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(bytes, offset)
    }

    /// Makes the content final.
    pub(super) fn seal(&self, keep: bool) -> Result<()> {
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
    pub(in crate::server) fn unchangeable(&self) -> Result<BorrowedFd<'_>> {
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

/// Why a region takes no more writes.
pub(super) fn sealed() -> Error {
    Error::invalid("the region is sealed")
}
