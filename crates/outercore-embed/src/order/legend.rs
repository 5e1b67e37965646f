use outercore_core::{Error, Result};

use super::{Bucket, Order, Pairs, Swap};

/// Number of partitions in memory for which Legend's algorithm is defined.
pub const RESIDENT: usize = 3;

/// Swaps of Legend's order (algorithm 1), starting from the state `{0, 1, 2}`.
///
/// The columns of the grid of buckets are completed one after the other. The partition of the
/// column stays while the others pass, each for two states. Where the paper leaves the algorithm
/// open, or its text does not terminate, we interpret it as follows:
/// - line 13: the largest and the smallest partition exclude the column's own, coverage refers to
///   the new column, and there are `n - max - 1` partitions after `max`;
/// - lines 13 to 17 choose the first partition to evict in the new column; lines 20 to 24 follow in
///   either case, unless the column is already complete;
/// - line 20: the search begins at (the partition that stays + the column + 1) mod n, where the
///   column is the new one;
/// - line 21: the loaded partition has not met the column; among several, the first with the most
///   new pairs is chosen;
/// - a column that is already complete is skipped. If the partition of the new column is in memory,
///   it needs no loading: the old column's partition is evicted for the first partition that the
///   new column needs;
/// - a column that is completed by its own loading is not evicted at once if another complete
///   partition can be evicted; the old column's partition leaves next.
///
/// # Errors
/// `resident` is not three.
pub fn swaps(partitions: usize, resident: usize) -> Result<Vec<Swap>> {
    if resident != RESIDENT {
        return Err(Error::invalid(format!(
            "order `legend`: {resident} partitions in memory, expected {RESIDENT}"
        ))
        .hint("choose the order `optimal`, which takes any number"));
    }
    let mut walk = Walk::new(partitions);
    for loaded in RESIDENT..partitions {
        walk.swap(loaded - 2, loaded);
    }
    let mut column = 0;
    while walk.pairs.left() > 0 {
        let evicted = if walk.pairs.missing_of(column) == 0 {
            let old = column;
            column = walk.next_column(old);
            if walk.buffer.contains(&column) {
                old
            } else if let Some(done) = walk.done_beside(old) {
                walk.swap(done, column);
                old
            } else {
                walk.swap(old, column);
                walk.first_to_evict(column)
            }
        } else {
            walk.older_than_last(column)
        };
        if walk.pairs.missing_of(column) > 0 {
            let loaded = walk.best_to_load(evicted, column);
            walk.swap(evicted, loaded);
        }
    }
    Ok(walk.swaps)
}

struct Walk {
    partitions: usize,
    buffer: [usize; RESIDENT],
    pairs: Pairs,
    swaps: Vec<Swap>,
}

impl Walk {
    fn new(partitions: usize) -> Self {
        let buffer = [0, 1, 2];
        let mut pairs = Pairs::new(partitions);
        pairs.cover_all(&buffer);
        Self { partitions, buffer, pairs, swaps: Vec::new() }
    }

    fn swap(&mut self, evicted: usize, loaded: usize) {
        for place in &mut self.buffer {
            if *place == evicted {
                *place = loaded;
            }
        }
        self.pairs.cover_all(&self.buffer);
        self.swaps.push(Swap { evicted, loaded });
    }

    /// The first incomplete column after `column`.
    fn next_column(&self, column: usize) -> usize {
        (column + 1..self.partitions)
            .find(|&next| self.pairs.missing_of(next) > 0)
            .expect("a pair that has yet to meet has a first column")
    }

    /// Lines 13 to 17 of algorithm 1.
    fn first_to_evict(&self, column: usize) -> usize {
        let others = self.buffer.into_iter().filter(|&there| there != column);
        let (least, most) = others
            .fold((usize::MAX, 0), |(least, most), there| (least.min(there), most.max(there)));
        let behind = (most + 1..self.partitions).any(|id| self.pairs.missing(column, id));
        if behind { most } else { least }
    }

    /// Line 19: the partition that was in memory before the last swap and is not the column.
    fn older_than_last(&self, column: usize) -> usize {
        let last = self.last();
        let older = self.buffer.into_iter().find(|&there| there != last && there != column);
        older.expect("three partitions are in memory")
    }

    /// The last loaded partition.
    fn last(&self) -> usize {
        self.swaps.last().map_or(RESIDENT - 1, |swap| swap.loaded)
    }

    /// A complete partition to evict instead of a column that was loaded last.
    fn done_beside(&self, column: usize) -> Option<usize> {
        let mut others = self.buffer.into_iter().filter(|&there| there != column);
        others.find(|&there| self.last() == column && self.pairs.missing_of(there) == 0)
    }

    /// Lines 20 and 21 of algorithm 1.
    fn best_to_load(&self, evicted: usize, column: usize) -> usize {
        let stays = self.buffer.into_iter().find(|&there| there != evicted && there != column);
        let stays = stays.expect("three partitions are in memory");
        let begin = stays + column + 1;
        let candidates = (0..self.partitions)
            .map(|step| (begin + step) % self.partitions)
            .filter(|&id| self.pairs.missing(column, id));
        // Reversed, because `max_by_key` returns the last of several maxima and the first is
        // wanted.
        candidates
            .rev()
            .max_by_key(|&id| self.pairs.missing(stays, id))
            .expect("the column is not complete")
    }
}

/// For each state, the buckets of an order as late as they can be trained (Legend, algorithm 2).
///
/// Each state trains the buckets of the partition that is evicted next: first the buckets that do
/// not need the partition just loaded, trained while it is being read, then the others. The first
/// state counts its last partition as loaded, and the last state trains all remaining buckets. The
/// paper's lines 1, 4 and 21 differ, and lose or misplace some buckets.
///
/// The states of an [`Order`] list the same buckets as early as they can be trained. A bucket that
/// is trained here while the next partition is read is trained there before the swap or after it.
pub fn iteration_order(order: &Order) -> Vec<Vec<Bucket>> {
    let mut trained = vec![false; order.partitions * order.partitions];
    let mut by_state = Vec::with_capacity(order.states.len());
    for (state, evicted) in order.states.iter().zip(order.evictions()) {
        let last = state.resident.last().copied();
        let loaded = state.swap.map(|swap| swap.loaded).or(last);
        let mut buckets = Vec::new();
        for &a in &state.resident {
            for &b in &state.resident {
                let bucket = Bucket { source: a, target: b };
                let due = evicted.is_none_or(|evicted| bucket.needs(evicted));
                if due && !trained[a * order.partitions + b] {
                    trained[a * order.partitions + b] = true;
                    buckets.push(bucket);
                }
            }
        }
        buckets.sort_unstable_by_key(|bucket| {
            (loaded.is_some_and(|loaded| bucket.needs(loaded)), *bucket)
        });
        by_state.push(buckets);
    }
    by_state
}
