//! Reuses memory for the feature rows of batches, allocated directly from the kernel.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use outercore_core::{Bytes, Result};
use outercore_io::{Arena, Lease};

/// Below this size the allocator is as good: it soon reuses small pieces.
const LEAST: usize = 1 << 20;

/// Memory of feature matrices that the consumer has returned.
///
/// The rows of a batch take about ten megabytes. Once an allocator has freed such a piece, it takes
/// the next one from its heap, between small pieces that stay. It then cannot return that memory to
/// the kernel, and the memory counts against the budget. Each matrix is therefore a separate
/// mapping. Because a new mapping costs a page fault per page, returned matrices are kept for later
/// batches. The matrices kept and in use together stay within a bound.
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// use outercore_pipeline::SpareRows;
/// let spare = SpareRows::new(Bytes::mib(8));
/// let rows = spare.take(1 << 20)?.unwrap();
/// let place = rows.as_ptr();
/// spare.give_back(rows);
/// assert_eq!(spare.take((1 << 20) + 1000)?.unwrap().as_ptr(), place);
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[derive(Debug)]
pub struct SpareRows {
    bound: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that are lent.
    lent: usize,
    kept: Vec<RowMemory>,
}

impl SpareRows {
    /// Keeps no memory beyond `bound`, counting the memory in use.
    #[must_use]
    pub fn new(bound: Bytes) -> Self {
        let bound = usize::try_from(bound.0).unwrap_or(usize::MAX);
        Self { bound, state: Mutex::default() }
    }

    /// Memory for `count` float32 of any value, or `None` below 1 MiB, where the caller should use
    /// the allocator.
    ///
    /// The memory starts at a page boundary and has at most twice the requested size, so a small
    /// matrix never occupies the memory of a large one. Kept memory that does not fit is freed.
    ///
    /// # Errors
    /// The operating system does not have that much memory.
    pub fn take(&self, count: usize) -> Result<Option<RowMemory>> {
        let bytes = count.saturating_mul(size_of::<f32>());
        if bytes < LEAST {
            return Ok(None);
        }
        let mut state = self.state();
        let fitting = state
            .kept
            .iter()
            .enumerate()
            .filter(|(_, memory)| (bytes..=2 * bytes).contains(&memory.lease.len()))
            .min_by_key(|(_, memory)| memory.lease.len())
            .map(|(at, _)| at);
        let spare = match fitting {
            Some(at) => Ok(state.kept.swap_remove(at)),
            None => Err(std::mem::take(&mut state.kept)),
        };
        drop(state);
        let mut memory = match spare {
            Ok(memory) => memory,
            Err(unfit) => {
                drop(unfit);
                RowMemory::new(bytes)?
            }
        };
        memory.count = count;
        memory.touched = memory.touched.max(bytes);
        self.state().lent += memory.touched;
        Ok(Some(memory))
    }

    /// Keeps memory lent by [`SpareRows::take`] for the next matrix, or frees it.
    pub fn give_back(&self, memory: RowMemory) {
        let mut state = self.state();
        state.lent -= memory.touched;
        let kept: usize = state.kept.iter().map(|kept| kept.touched).sum();
        if state.lent + kept + memory.touched <= self.bound {
            state.kept.push(memory);
        } else {
            drop(state);
            drop(memory);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The code under the lock does not panic between two writes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory of one matrix of rows, as its float32; unmapped when dropped.
pub struct RowMemory {
    lease: Lease,
    count: usize,
    /// Bytes that have been written at any time: only these use physical memory.
    touched: usize,
}

impl RowMemory {
    fn new(bytes: usize) -> Result<Self> {
        // Slightly more than requested, so that it also fits the next batch.
        let arena = Arena::new(Bytes((bytes + bytes / 16) as u64))?;
        let lease = arena.lease(arena.size().0 as usize).ok_or_else(|| {
            outercore_core::Error::internal(format!("no room in new memory of {}", arena.size()))
        })?;
        Ok(Self { lease, count: 0, touched: 0 })
    }
}

impl Deref for RowMemory {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(&self.lease[..self.count * size_of::<f32>()])
    }
}

impl DerefMut for RowMemory {
    fn deref_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.lease[..self.count * size_of::<f32>()])
    }
}

impl fmt::Debug for RowMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowMemory({} float32 of {} bytes)", self.count, self.lease.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = LEAST / 2;

    fn taken(spare: &SpareRows, count: usize) -> RowMemory {
        spare.take(count).unwrap().unwrap()
    }

    #[test]
    fn small_matrices_are_left_to_the_allocator() {
        let spare = SpareRows::new(Bytes::mib(64));
        assert!(spare.take(LEAST / 4 - 1).unwrap().is_none());
        assert_eq!(taken(&spare, LEAST / 4).len(), LEAST / 4);
    }

    #[test]
    fn memory_is_used_again_only_where_it_fits_and_freed_where_not() {
        let spare = SpareRows::new(Bytes::mib(64));
        let first = taken(&spare, COUNT);
        let place = first.as_ptr();
        spare.give_back(first);
        let again = taken(&spare, COUNT * 33 / 32);
        assert_eq!((again.as_ptr(), again.len()), (place, COUNT * 33 / 32));
        let beside = taken(&spare, COUNT);
        assert_ne!(beside.as_ptr(), place, "in use");
        spare.give_back(again);
        for count in [COUNT * 2, COUNT / 2] {
            let other = taken(&spare, count);
            let room = other.lease.len();
            assert!((count * 4..=count * 4 * 9 / 8).contains(&room), "{room} for {count}");
            assert!(spare.state().kept.is_empty());
            spare.give_back(other);
        }
    }

    #[test]
    fn what_is_kept_and_lent_stays_within_the_bound() {
        let bound = COUNT * 4 * 2;
        let spare = SpareRows::new(Bytes(bound as u64));
        let mut held: Vec<_> = (0..5).map(|_| taken(&spare, COUNT)).collect();
        while let Some(memory) = held.pop() {
            spare.give_back(memory);
            let state = spare.state();
            let kept: usize = state.kept.iter().map(|memory| memory.touched).sum();
            assert_eq!(state.lent, held.len() * COUNT * 4);
            assert_eq!(kept, bound.saturating_sub(state.lent), "{state:?}");
        }
        assert_eq!(spare.state().kept.len(), 2);
        // If a larger matrix has touched the memory, it counts in full.
        let larger = taken(&spare, COUNT * 17 / 16);
        let other = taken(&spare, COUNT);
        spare.give_back(larger);
        assert!(spare.state().kept.is_empty());
        spare.give_back(other);
        assert_eq!(spare.state().kept.len(), 1);
    }
}
