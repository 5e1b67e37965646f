//! A region: its memory, and whether it can still be written.

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
    /// One of the file descriptors that are available for regions.
    _place: Room,
    room: Arc<Room>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) sealed: bool,
    pub(super) kept: bool,
    /// The session that allocated it; `None` once it is kept.
    pub(super) owner: Option<u64>,
}

impl Region {
    /// An unsealed region of `session` in `memory`.
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

    /// The share of memory that it takes. A session that receives the memory itself must hold it,
    /// too.
    pub(in crate::server) fn room(&self) -> Arc<Room> {
        Arc::clone(&self.room)
    }

    /// Checks that a range is within the region.
    pub(in crate::server) fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::invalid(format!(
                "{len} bytes at {offset} of a region of {} bytes",
                self.len
            ))),
        }
    }

    /// Writes to an unsealed region; call `check_range` first.
    pub(in crate::server) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        // Sealing waits for this lock, so that nothing changes afterwards.
        let state = self.state();
        if state.sealed {
            return Err(sealed());
        }
        self.memory.write_all_at(bytes, offset).context("memory of the region")
    }

    /// Reads from a region; call `check_range` first.
    pub(in crate::server) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read_exact_at(bytes, offset)
    }

    /// Makes the content final.
    pub(super) fn seal(&self, keep: bool) -> Result<()> {
        // Waits for writes in progress; later writes are refused.
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
        // After the lock, because the kernel may take time and other threads need not wait. The
        // kernel refuses while a writable mapping exists. Until it succeeds, no client receives the
        // memory itself.
        let _ = self.forbid_writing();
        Ok(())
    }

    /// The memory itself, if it can no longer be changed.
    pub(in crate::server) fn unchangeable(&self) -> Result<BorrowedFd<'_>> {
        if self.is_sealed() && self.forbid_writing().is_ok() {
            return Ok(self.memory.as_fd());
        }
        Err(Error::new(ErrorKind::Unsupported, "the region can still be written: not shared"))
    }

    fn forbid_writing(&self) -> rustix::io::Result<()> {
        // A client with the memory may have forbidden further seals, so check first.
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

/// The error for a write to a sealed region.
pub(super) fn sealed() -> Error {
    Error::invalid("the region is sealed")
}
