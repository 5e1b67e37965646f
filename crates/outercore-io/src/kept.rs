//! Reads whose bytes stay in the buffer that the device wrote.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outercore_core::{Bytes, Error, ErrorKind, Result};

use crate::arena::{Arena, Lease};
use crate::plan::PlannedRead;
use crate::reader::FileId;

/// Buffers of one length for kept reads, reserved from an engine's memory.
///
/// Clones share the buffers.
#[derive(Clone)]
pub struct Slots(Arc<Shared>);

struct Shared {
    arena: Arena,
    len: usize,
    count: usize,
    free: Mutex<Vec<Lease>>,
}

impl Slots {
    /// `count` buffers of `len` bytes.
    ///
    /// # Errors
    /// `Budget`: `arena` does not have that much room.
    pub(crate) fn new(arena: &Arena, len: usize, count: usize) -> Result<Self> {
        let free: Option<Vec<Lease>> = (0..count).map(|_| arena.lease(len)).collect();
        let Some(free) = free else {
            return Err(Error::new(
                ErrorKind::Budget,
                format!("{count} buffers of {} in {arena:?}", Bytes(len as u64)),
            )
            .hint("give the engine more staging memory"));
        };
        Ok(Self(Arc::new(Shared { arena: arena.clone(), len, count, free: Mutex::new(free) })))
    }

    /// All free buffers, as writable memory. Until they are dropped, no read gets one of them.
    pub fn take_free(&self) -> Vec<Kept> {
        let free = std::mem::take(&mut *self.0.free());
        free.into_iter().map(|lease| Kept::new(lease, 0..self.0.len, self)).collect()
    }

    /// Length of a buffer.
    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    pub(crate) fn take(&self) -> Option<Lease> {
        // A failed read returned its buffer to the arena, so lease a new one.
        self.0.free().pop().or_else(|| self.0.arena.lease(self.0.len))
    }
}

impl Shared {
    fn free(&self) -> MutexGuard<'_, Vec<Lease>> {
        // Pushing and popping leave nothing half-done.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slots({} free of {} bytes)", self.0.free().len(), self.0.len)
    }
}

/// A read into one of the buffers of a [`Slots`].
#[derive(Clone, Debug)]
pub struct KeptRead {
    /// The registered file.
    pub file: FileId,
    /// The bytes to read.
    pub read: PlannedRead,
    /// The slots that provide the buffer.
    pub into: Slots,
}

/// The bytes of a [`KeptRead`], in the buffer that the device wrote.
///
/// Their position in the buffer is their file offset modulo the engine's alignment. With alignment
/// 1 they begin at a multiple of a page. The buffer is returned when this is dropped.
pub struct Kept(Option<Filled>);

struct Filled {
    lease: Lease,
    range: Range<usize>,
    home: Arc<Shared>,
}

impl Kept {
    pub(crate) fn new(lease: Lease, range: Range<usize>, home: &Slots) -> Self {
        Self(Some(Filled { lease, range, home: Arc::clone(&home.0) }))
    }

    /// No bytes.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }
}

impl Deref for Kept {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |filled| &filled.lease[filled.range.clone()])
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().map_or(&mut [], |filled| &mut filled.lease[filled.range.clone()])
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(Filled { lease, home, .. }) = self.0.take() {
            let mut free = home.free();
            if free.len() < home.count {
                free.push(lease);
            }
        }
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kept({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_those_of_failed_reads_are_replaced() {
        let arena = Arena::new(Bytes::kib(64)).unwrap();
        let slots = Slots::new(&arena, 20_480, 3).unwrap();
        assert_eq!(arena.free_bytes(), Bytes::kib(4));
        assert_eq!(Slots::new(&arena, 8192, 1).unwrap_err().kind(), ErrorKind::Budget);
        let mut lease = slots.take().unwrap();
        lease[7] = 9;
        let kept = Kept::new(lease, 7..9, &slots);
        assert_eq!(kept[..], [9, 0]);
        let failed = [slots.take().unwrap(), slots.take().unwrap()];
        assert!(slots.take().is_none());
        drop(failed);
        assert_eq!(slots.take().unwrap().len(), 20_480);
        drop(kept);
        let mut free = slots.take_free();
        assert_eq!((free.len(), free[0][7]), (1, 9));
        free[0].fill(1);
        drop(free);
        assert_eq!(slots.take().unwrap()[..2], [1, 1]);
        drop(slots);
        assert_eq!(arena.free_bytes(), arena.size());
    }
}
