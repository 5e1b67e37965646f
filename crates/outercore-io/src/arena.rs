//! Staging memory for reads: one mapping of fixed size, lent out piece by piece.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use outercore_core::{Bytes, Context, Error, Result};

/// Leases begin and end at multiples of this. No known device requires a larger alignment for
/// direct I/O.
pub const UNIT: usize = 4096;

/// Size and alignment of a huge page. A kernel with another huge page size uses ordinary pages.
pub const HUGE_PAGE: usize = 2 << 20;

/// Page-aligned memory of fixed size from which buffers are leased.
///
/// Clones share the memory; it is unmapped when the last clone and the last [`Lease`] are dropped.
/// Pages that were never leased use no physical memory. If the kernel has huge pages, memory of 2
/// MiB and more is allocated in pieces of 2 MiB.
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// use outercore_io::Arena;
/// let arena = Arena::new(Bytes::kib(64)).unwrap();
/// let mut lease = arena.lease(5000).unwrap();
/// lease[4999] = 7;
/// assert_eq!((lease.len(), arena.free_bytes()), (8192, Bytes::kib(56)));
/// drop(lease);
/// assert_eq!(arena.free_bytes(), Bytes::kib(64));
/// ```
#[derive(Clone)]
pub struct Arena(Arc<Shared>);

struct Shared {
    memory: Mapping,
    free: Mutex<FreeList>,
    /// Number of threads in [`Arena::lease_before`]; changed and read under the lock.
    waiting: AtomicUsize,
    returned: Condvar,
}

impl Arena {
    /// Reserves memory of `size`, rounded up to whole units of 4 KiB.
    ///
    /// # Errors
    /// `size` is zero or at least 16 TiB, or the operating system does not have that much memory.
    pub fn new(size: Bytes) -> Result<Self> {
        let units = size.0.div_ceil(UNIT as u64);
        let units = u32::try_from(units).ok().filter(|&units| units > 0).ok_or_else(|| {
            Error::invalid(format!("staging memory of {size}, expected between 4.0 KiB and 16 TiB"))
        })?;
        let memory = Mapping::new(units as usize * UNIT)
            .with_context(|| format!("staging memory of {size}"))?;
        Ok(Self(Arc::new(Shared {
            memory,
            free: Mutex::new(FreeList::new(units)),
            waiting: AtomicUsize::new(0),
            returned: Condvar::new(),
        })))
    }

    /// Total size.
    pub fn size(&self) -> Bytes {
        Bytes(self.0.memory.len as u64)
    }

    /// Bytes that are not leased; they need not be contiguous.
    pub fn free_bytes(&self) -> Bytes {
        Bytes(self.0.free_list().free_units() * UNIT as u64)
    }

    /// Leases at least `len` bytes (whole units), or `None` while no free piece is that long.
    ///
    /// The piece contains the bytes of its previous holder, or zeros if it is leased for the first
    /// time.
    ///
    /// **Cost**: a walk over the free pieces; never blocks for long and allocates nothing.
    pub fn lease(&self, len: usize) -> Option<Lease> {
        let units = u32::try_from(len.div_ceil(UNIT).max(1)).ok()?;
        let start = self.0.free_list().take(units)?;
        Some(Lease { arena: Arc::clone(&self.0), start, units })
    }

    /// Like [`Arena::lease`], but waits until `deadline` for other holders to return memory.
    ///
    /// Returns `None` at once if the whole memory is shorter than `len`.
    pub fn lease_before(&self, len: usize, deadline: Instant) -> Option<Lease> {
        if len > self.0.memory.len {
            return None;
        }
        let units = u32::try_from(len.div_ceil(UNIT).max(1)).ok()?;
        let mut free = self.0.free_list();
        loop {
            if let Some(start) = free.take(units) {
                return Some(Lease { arena: Arc::clone(&self.0), start, units });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.0.waiting.fetch_add(1, Ordering::Relaxed);
            let woken = self.0.returned.wait_timeout(free, left);
            free = woken.unwrap_or_else(PoisonError::into_inner).0;
            self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether `lease` is a piece of this memory.
    pub fn owns(&self, lease: &Lease) -> bool {
        Arc::ptr_eq(&self.0, &lease.arena)
    }

    /// The address range of the memory, for registering it with a device.
    pub fn address_range(&self) -> Range<*const u8> {
        let start = self.0.memory.start.as_ptr().cast_const();
        start..start.wrapping_add(self.0.memory.len)
    }

    /// The whole mapping, for registering it with the kernel.
    pub(crate) fn as_iovec(&self) -> libc::iovec {
        libc::iovec { iov_base: self.0.memory.start.as_ptr().cast(), iov_len: self.0.memory.len }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arena({} free of {})", self.free_bytes(), self.size())
    }
}

impl Shared {
    fn free_list(&self) -> MutexGuard<'_, FreeList> {
        // The list is never left half-changed: its methods do not panic between two writes.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A piece of an [`Arena`], used only by its holder; returned when dropped.
pub struct Lease {
    arena: Arc<Shared>,
    start: u32,
    units: u32,
}

impl Lease {
    /// Offset of the piece within its arena in bytes.
    pub fn offset(&self) -> usize {
        self.start as usize * UNIT
    }

    /// The memory that the piece belongs to.
    pub fn arena(&self) -> Arena {
        Arena(Arc::clone(&self.arena))
    }

    fn range(&self) -> Range<usize> {
        self.offset()..self.offset() + self.units as usize * UNIT
    }

    /// Start of the piece, for the kernel to write to; creates no reference to the bytes.
    pub(crate) fn start(&self) -> *mut u8 {
        self.arena.memory.start.as_ptr().wrapping_add(self.offset())
    }

    /// Length of the piece in bytes; creates no reference to the bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.units as usize * UNIT
    }
}

impl Deref for Lease {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        debug_assert!(self.range().end <= self.arena.memory.len);
        // SAFETY: the range lies in the mapping, which lives as long as `arena`; the free list
        // hands out disjoint ranges, so that only this lease can reach it; its bytes are
        // initialised (anonymous mappings begin as zeros).
        unsafe { std::slice::from_raw_parts(self.start(), self.capacity()) }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        debug_assert!(self.range().end <= self.arena.memory.len);
        // SAFETY: as in `deref`, and `&mut self` excludes any other reference.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.capacity()) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut free = self.arena.free_list();
        free.give_back(self.start, self.units);
        if self.arena.waiting.load(Ordering::Relaxed) > 0 {
            // Wake all waiting threads: each waits for a different length.
            self.arena.returned.notify_all();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:?})", self.range())
    }
}

/// An anonymous private mapping, backed by huge pages as far as it fills them.
///
/// A device receives a read as a list of contiguous pieces of memory, and its queue limits the
/// number of pieces, not the number of reads. With pages of 4 KiB, a read of 1 MiB has 256 pieces.
/// A virtio disk without indirect descriptors has room for 256 pieces in total. The kernel
/// therefore splits every such read, and the disk receives one read at a time, however many are in
/// flight. On a huge page the same read is one piece.
struct Mapping {
    /// Start of the used part; a multiple of [`HUGE_PAGE`] if the used part is at least that long.
    start: NonNull<u8>,
    len: usize,
    /// The whole mapping, alignment included, for unmapping it.
    whole: (NonNull<u8>, usize),
}

// SAFETY: the mapping is plain memory; the leases decide which thread may access which part.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; the mapping never gives out references.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(len: usize) -> Result<Self> {
        let huge = len / HUGE_PAGE * HUGE_PAGE;
        let room = if huge > 0 { len + HUGE_PAGE } else { len };
        // SAFETY: a fresh anonymous mapping touches no memory of ours.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                room,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        let mapped = match NonNull::new(mapped.cast::<u8>()) {
            Some(mapped) if mapped.as_ptr().cast() != libc::MAP_FAILED => mapped,
            _ => return Err(std::io::Error::last_os_error().into()),
        };
        let skip = if huge > 0 { mapped.as_ptr().align_offset(HUGE_PAGE) } else { 0 };
        let start = mapped.map_addr(|address| address.saturating_add(skip));
        #[cfg(target_os = "linux")]
        if huge > 0 {
            // SAFETY: the range lies in the fresh mapping; the advice changes no bytes. A kernel
            // without huge pages refuses it, which only costs time.
            unsafe { libc::madvise(start.as_ptr().cast(), huge, libc::MADV_HUGEPAGE) };
        }
        Ok(Self { start, len, whole: (mapped, room) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let (start, len) = self.whole;
        // SAFETY: the mapping was made by `Mapping::new` with this length, and no lease is left.
        unsafe { libc::munmap(start.as_ptr().cast(), len) };
    }
}

/// Free pieces as `(start, units)`, sorted by start and never adjacent; first fit.
struct FreeList(Vec<(u32, u32)>);

impl FreeList {
    fn new(units: u32) -> Self {
        // The list has at most one piece more than there are leases.
        let mut pieces = Vec::with_capacity((units as usize).min(512) + 1);
        pieces.push((0, units));
        Self(pieces)
    }

    fn free_units(&self) -> u64 {
        self.0.iter().map(|&(_, units)| u64::from(units)).sum()
    }

    fn take(&mut self, units: u32) -> Option<u32> {
        let place = self.0.iter().position(|&(_, free)| free >= units)?;
        let (start, free) = self.0[place];
        if free == units {
            self.0.remove(place);
        } else {
            self.0[place] = (start + units, free - units);
        }
        Some(start)
    }

    fn give_back(&mut self, start: u32, units: u32) {
        let place = self.0.partition_point(|&(other, _)| other < start);
        let joins_left = place > 0 && {
            let (left, len) = self.0[place - 1];
            left + len == start
        };
        let joins_right = self.0.get(place).is_some_and(|&(right, _)| start + units == right);
        match (joins_left, joins_right) {
            (true, true) => {
                self.0[place - 1].1 += units + self.0[place].1;
                self.0.remove(place);
            }
            (true, false) => self.0[place - 1].1 += units,
            (false, true) => self.0[place] = (start, units + self.0[place].1),
            (false, false) => self.0.insert(place, (start, units)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_arena_of_no_bytes_is_refused() {
        assert!(Arena::new(Bytes(0)).is_err());
    }

    #[test]
    fn memory_of_a_huge_page_and_more_begins_on_one_and_is_whole() {
        for size in [HUGE_PAGE, HUGE_PAGE + UNIT, 2 * HUGE_PAGE - UNIT, 3 * HUGE_PAGE] {
            let arena = Arena::new(Bytes(size as u64)).unwrap();
            let mut lease = arena.lease(size).unwrap();
            assert_eq!((lease.len(), lease.as_ptr() as usize % HUGE_PAGE), (size, 0));
            lease.fill(1);
        }
    }

    #[test]
    fn a_lease_longer_than_the_free_piece_is_refused_until_others_return() {
        let arena = Arena::new(Bytes::kib(16)).unwrap();
        let small = arena.lease(1).unwrap();
        assert!(arena.lease(16384).is_none());
        drop(small);
        assert_eq!(arena.lease(16384).unwrap().len(), 16384);
    }

    #[test]
    fn a_lease_can_be_waited_for_until_a_deadline() {
        let arena = Arena::new(Bytes::kib(8)).unwrap();
        let soon = || Instant::now() + Duration::from_millis(1);
        let long = || Instant::now() + Duration::from_secs(20);
        assert!(arena.lease_before(8193, long()).is_none(), "longer than all there is");
        let held = arena.lease_before(8192, soon()).unwrap();
        assert!(arena.lease_before(1, soon()).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| arena.lease_before(4096, long()).map(|lease| lease.len()));
            drop(held);
            assert_eq!(waiting.join().unwrap(), Some(4096));
        });
        assert_eq!(arena.free_bytes(), arena.size());
    }

    #[test]
    fn leases_outlive_their_arena_and_cross_threads() {
        let arena = Arena::new(Bytes::kib(8)).unwrap();
        let mut lease = arena.lease(4096).unwrap();
        drop(arena);
        let lease = std::thread::spawn(move || {
            lease.fill(9);
            lease
        });
        assert!(lease.join().unwrap().iter().all(|&byte| byte == 9));
    }

    proptest! {
        #[test]
        fn leases_never_overlap_and_all_memory_comes_back(
            steps in prop::collection::vec((1usize..40_000, 0usize..8), 1..200),
        ) {
            let arena = Arena::new(Bytes::kib(256)).unwrap();
            let mut held: Vec<(u8, Lease)> = Vec::new();
            for (number, (len, drop_at)) in steps.into_iter().enumerate() {
                if let Some(mut lease) = arena.lease(len) {
                    prop_assert!(lease.len() >= len);
                    prop_assert_eq!(lease.as_ptr() as usize % UNIT, 0);
                    lease.fill(number as u8);
                    held.push((number as u8, lease));
                }
                if drop_at < held.len() {
                    held.swap_remove(drop_at);
                }
                for (mark, lease) in &held {
                    prop_assert!(lease.iter().all(|byte| byte == mark));
                }
            }
            drop(held);
            prop_assert_eq!(arena.free_bytes(), arena.size());
            prop_assert!(arena.lease(256 << 10).is_some(), "free memory is in one piece again");
        }
    }
}
