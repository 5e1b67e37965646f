//! Number of triples in every bucket, and the memory that pools of them need.

use std::cmp::Reverse;

use outercore_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::order::Bucket;
use crate::plan::BucketEdges;
use crate::step::pools;
use crate::walk::{Visit, Walks};

/// When pools take parts of buckets, small buckets are read together up to this many triples, so
/// that they wait for the device only once.
pub const READ_TOGETHER: u64 = 1 << 16;

/// Number of triples in the largest pool, and in the buffer for reading parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pools {
    /// Triples of the largest pool.
    pub most: u64,
    /// Triples of buckets that are read whole because a pool takes a part of them.
    pub beside: u64,
}

/// Number of triples in every bucket of a table.
///
/// # Example
/// ```
/// use outercore_embed::BucketCounts;
/// let counts = BucketCounts::new(2, vec![5, 1, 2, 7])?;
/// assert_eq!(counts.most_among(1, 1), 7);
/// assert_eq!(counts.most_among(2, 1), 15);
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketCounts {
    partitions: usize,
    /// The count of bucket `(source, target)` is at `source * partitions + target`.
    triples: Vec<u64>,
}

impl BucketCounts {
    /// Counts by bucket; the buckets of the first source come first.
    ///
    /// # Errors
    /// `Invalid`: not one count for every bucket.
    pub fn new(partitions: usize, triples: Vec<u64>) -> Result<Self> {
        let expected = partitions.pow(2);
        if triples.len() != expected {
            return Err(Error::invalid(format!(
                "{} counts of buckets, expected {expected} of {partitions} partitions",
                triples.len()
            )));
        }
        Ok(Self::of_table(partitions, triples))
    }

    /// Counts that are known to be complete.
    pub(super) fn of_table(partitions: usize, triples: Vec<u64>) -> Self {
        Self { partitions, triples }
    }

    /// The counts in the form that [`plan_order`](crate::plan_order) takes.
    pub fn edges(self) -> BucketEdges {
        BucketEdges::Counted(self.triples)
    }

    /// Memory, in triples, for any pool of any epoch, and for buckets that are read whole because a
    /// pool takes a part of them.
    pub fn pools(&self, walks: &Walks) -> Pools {
        let config = walks.config();
        if config.keeps_buckets_whole() {
            let of = |bucket: Bucket| self.triples[bucket.source * self.partitions + bucket.target];
            let size = |visits: Vec<Visit>| visits.iter().map(|&(bucket, _)| of(bucket)).sum();
            let mut walks = walks.clone();
            let all = [0, 1].map(|epoch| pools(&mut walks, epoch));
            return Pools {
                most: all.into_iter().flatten().map(size).max().unwrap_or(0),
                beside: 0,
            };
        }
        let there = walks.order(0).states.first().map_or(0, |state| state.resident.len());
        let most = self.most_among(there * config.group(), config.sweeps);
        Pools { most, beside: self.read_beside() }
    }

    /// Largest number of triples that are read at once because pools take parts of their buckets:
    /// several small buckets together, or the largest bucket.
    pub(crate) fn read_beside(&self) -> u64 {
        let largest = self.triples.iter().max().copied().unwrap_or(0);
        largest.max(READ_TOGETHER.min(self.triples.iter().sum()))
    }

    /// Upper bound of the triples between any `resident` partitions, if a pool takes at most one of
    /// `parts` parts of every bucket.
    pub fn most_among(&self, resident: usize, parts: u32) -> u64 {
        let count = |source: usize, target: usize| {
            self.triples[source * self.partitions + target].div_ceil(u64::from(parts))
        };
        // For each partition, sum twice its own bucket and its largest buckets with other
        // partitions. Half of this bounds its contribution, because each bucket between two
        // partitions counts for both.
        let mut most: Vec<u64> = (0..self.partitions)
            .map(|one| {
                let others = (0..self.partitions).filter(|&other| other != one);
                let mut with: Vec<u64> =
                    others.map(|other| count(one, other) + count(other, one)).collect();
                with.sort_unstable_by_key(|&triples| Reverse(triples));
                2 * count(one, one) + with.iter().take(resident.saturating_sub(1)).sum::<u64>()
            })
            .collect();
        most.sort_unstable_by_key(|&triples| Reverse(triples));
        most.iter().take(resident).sum::<u64>().div_ceil(2)
    }
}
