use outercore_core::{Error, Result};

use super::{Bucket, Order, Pairs, Swap};

/// Partitions in memory that Legend's algorithm is made for.
pub const RESIDENT: usize = 3;

/// Swaps of Legend's order (algorithm 1) from the state `{0, 1, 2}` on.
///
/// One column of the grid of buckets is completed after the other: its partition stays while the
/// others pass by, each for two states. Where the paper leaves the algorithm open, or what it
/// prints does not end, we read it so:
/// - line 13: the largest and the smallest partition do not count the column's own, coverage is
///   that of the new column, and behind `max` there are `n - max - 1` partitions;
/// - lines 13 to 17 choose whom to evict first in the new column; lines 20 to 24 follow in either
///   case, unless the column is complete by then;
/// - line 20: the search begins at (the one that stays + the column + 1) mod n, the column being
///   the new one;
/// - line 21: what is loaded has not met the column; of several, the first that meets the most;
/// - a column that is complete already is passed over, and one whose partition is in memory needs
///   no loading: the old column's partition makes room for what the new column needs;
/// - a column that its own loading completes is not evicted at once if another complete one is
///   there to make room; the old column's partition leaves next.
///
/// # Errors
/// Other than three partitions in memory.
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

    /// Lines 13 to 17.
    fn first_to_evict(&self, column: usize) -> usize {
        let others = self.buffer.into_iter().filter(|&there| there != column);
        let (least, most) = others
            .fold((usize::MAX, 0), |(least, most), there| (least.min(there), most.max(there)));
        let behind = (most + 1..self.partitions).any(|id| self.pairs.missing(column, id));
        if behind { most } else { least }
    }

    /// Line 19: the one that was there before the last swap and is not the column.
    fn older_than_last(&self, column: usize) -> usize {
        let last = self.last();
        let older = self.buffer.into_iter().find(|&there| there != last && there != column);
        older.expect("three partitions are in memory")
    }

    /// The partition loaded last.
    fn last(&self) -> usize {
        self.swaps.last().map_or(RESIDENT - 1, |swap| swap.loaded)
    }

    /// A complete partition to evict in place of a column that was loaded last.
    fn done_beside(&self, column: usize) -> Option<usize> {
        let mut others = self.buffer.into_iter().filter(|&there| there != column);
        others.find(|&there| self.last() == column && self.pairs.missing_of(there) == 0)
    }

    /// Lines 20 and 21.
    fn best_to_load(&self, evicted: usize, column: usize) -> usize {
        let stays = self.buffer.into_iter().find(|&there| there != evicted && there != column);
        let stays = stays.expect("three partitions are in memory");
        let begin = stays + column + 1;
        let candidates = (0..self.partitions)
            .map(|step| (begin + step) % self.partitions)
            .filter(|&id| self.pairs.missing(column, id));
        // `max_by_key` would take the last of several.
        candidates
            .rev()
            .max_by_key(|&id| self.pairs.missing(stays, id))
            .expect("the column is not complete")
    }
}

/// The buckets of an order as late as they can be trained, state by state (Legend, algorithm 2).
///
/// In each state come the buckets of the partition to be evicted next: those that can do without
/// the partition just loaded, trained while it is being read, then those that need it. The
/// partition loaded in the first state is its last one, and the last state trains all that is
/// left; the paper's lines 1, 4 and 21 do otherwise and lose or misplace some.
///
/// The states of an [`Order`] hold the same buckets as early as they can be trained: what one
/// trains while the next partition is read, the other trains before the swap or after it.
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
