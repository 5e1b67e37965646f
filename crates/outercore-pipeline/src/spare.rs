//! Reuses memory for the ids of batches.

use std::sync::{Mutex, PoisonError};

/// Only arrays with at least this many ids are kept. The allocator keeps enough smaller ones, but
/// returns the top of its heap to the kernel from 128 KiB on.
const LEAST_IDS: usize = 4 << 10;

/// Most ids in all spare arrays together: 16 MiB.
const MOST_IDS: usize = 2 << 20;

/// Memory of id arrays that the consumer has returned.
///
/// The ids of a batch take some megabytes. Memory fresh from the kernel would cost a page fault
/// every 4 KiB, in the training thread.
///
/// # Example
/// ```
/// use outercore_pipeline::SpareIds;
/// let spare = SpareIds::default();
/// let ids = spare.take(100_000);
/// let place = ids.as_ptr();
/// spare.give_back(ids);
/// assert_eq!(spare.take(101_000).as_ptr(), place);
/// ```
#[derive(Debug, Default)]
pub struct SpareIds {
    /// Oldest first.
    arrays: Mutex<Vec<Vec<i64>>>,
}

impl SpareIds {
    /// Memory for `count` ids of any value.
    ///
    /// The array has at most twice the requested capacity, so a small array never occupies the
    /// memory of a large one.
    #[must_use]
    pub fn take(&self, count: usize) -> Vec<i64> {
        if count < LEAST_IDS {
            return vec![0; count];
        }
        let mut arrays = self.arrays.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = arrays
            .iter()
            .enumerate()
            .filter(|(_, values)| (count..=2 * count).contains(&values.capacity()))
            .min_by_key(|(_, values)| values.capacity())
            .map(|(at, _)| at);
        let spare = fitting.map(|at| arrays.remove(at));
        drop(arrays);
        // Slightly more than requested, so that it also fits the next batch.
        let mut values = spare.unwrap_or_else(|| Vec::with_capacity(count + count / 8));
        values.resize(count, 0);
        values
    }

    /// Keeps memory for a later array, or frees it.
    pub fn give_back(&self, values: Vec<i64>) {
        if !(LEAST_IDS..=MOST_IDS).contains(&values.capacity()) {
            return;
        }
        let mut arrays = self.arrays.lock().unwrap_or_else(PoisonError::into_inner);
        arrays.push(values);
        while arrays.iter().map(Vec::capacity).sum::<usize>() > MOST_IDS {
            arrays.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_only_where_it_fits() {
        let spare = SpareIds::default();
        let first = spare.take(LEAST_IDS * 2);
        let (place, room) = (first.as_ptr(), first.capacity());
        spare.give_back(first);
        for count in [LEAST_IDS / 2, LEAST_IDS, LEAST_IDS * 3] {
            let other = spare.take(count);
            assert_ne!(other.as_ptr(), place, "{room} for {count}");
            assert!((count..=count * 9 / 8).contains(&other.capacity()));
        }
        let again = spare.take(LEAST_IDS * 2 + 5);
        assert_eq!((again.as_ptr(), again.len()), (place, LEAST_IDS * 2 + 5));
        let beside = spare.take(LEAST_IDS * 2);
        assert_ne!(beside.as_ptr(), place, "in use");
    }

    #[test]
    fn spare_memory_has_a_bound() {
        let spare = SpareIds::default();
        let held: Vec<_> = (0..20).map(|_| spare.take(MOST_IDS / 4)).collect();
        held.into_iter().for_each(|values| spare.give_back(values));
        spare.give_back(Vec::with_capacity(MOST_IDS + 1));
        let kept: usize = spare.arrays.lock().unwrap().iter().map(Vec::capacity).sum();
        assert!((MOST_IDS / 2..=MOST_IDS).contains(&kept), "{kept} ids are kept");
    }
}
