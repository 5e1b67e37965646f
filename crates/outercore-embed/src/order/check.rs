use outercore_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{Bucket, Order, SwapMode};

/// Counts of a checked order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderFacts {
    /// Buffer states: one more than swaps. Legend, table 8, calls it "I/O times" for Legend and
    /// BETA.
    pub states: usize,
    /// Partitions read by an epoch that starts with empty memory.
    pub loads: usize,
    /// Partitions written by an epoch that empties the memory at its end.
    pub stores: usize,
    /// Swaps that evict the partition loaded last (violations of property 1 of Legend 4).
    pub evicts_last_loaded: usize,
    /// Swaps that evict another partition, although all pairs of the last loaded partition with the
    /// remaining ones are already trained (violations of property 2).
    pub nothing_new_stays: usize,
    /// Swaps during which a bucket can be trained.
    pub prefetchable: usize,
}

/// Checks that an order trains every bucket correctly, and counts its cost.
///
/// It simulates the order slot by slot and trusts nothing that the order says about itself. Each
/// swap replaces one partition in memory by one that is not in memory. Every bucket is trained
/// exactly once, with both partitions in memory. The buckets marked as held are exactly those that
/// the next swap would prevent. All changed partitions are written back, including the last state.
///
/// **Cost**: proportional to the square of the partitions, and to states times slots.
///
/// # Errors
/// The first fault, of kind `Internal`, because orders come from this crate.
pub fn check(order: &Order) -> Result<OrderFacts> {
    let mut follower = Follower::new(order)?;
    for (place, state) in order.states.iter().enumerate() {
        let swap = state.swap.filter(|_| place > 0);
        if (place > 0) != state.swap.is_some() {
            return Err(wrong(place, "every state but the first begins with a swap"));
        }
        if let Some(swap) = swap {
            follower.swap(place, swap.evicted, swap.loaded)?;
        }
        if follower.resident != state.resident {
            let found = format!("{:?} in memory, {:?} claimed", follower.resident, state.resident);
            return Err(wrong(place, &found));
        }
        let next = order.states.get(place + 1).and_then(|next| next.swap);
        if state.held > state.buckets.len() {
            return Err(wrong(place, "more buckets held back than there are"));
        }
        for (at, &bucket) in state.buckets.iter().enumerate() {
            follower.train(place, bucket)?;
            let held = next.is_none_or(|next| bucket.needs(next.evicted));
            if held != (at < state.held) {
                return Err(wrong(place, &format!("{bucket:?} is on the wrong side of the swap")));
            }
        }
        if let Some(next) = next {
            let last = swap.map(|swap| swap.loaded);
            let free = &state.buckets[state.held..];
            let stays_new = free.iter().any(|bucket| bucket.source != bucket.target);
            if last == Some(next.evicted) {
                follower.facts.evicts_last_loaded += 1;
            } else if !stays_new && order.mode == SwapMode::InPlace {
                follower.facts.nothing_new_stays += 1;
            }
            let meanwhile = match order.mode {
                SwapMode::InPlace => !free.is_empty(),
                SwapMode::SpareSlot => !state.buckets.is_empty(),
            };
            follower.facts.prefetchable += usize::from(meanwhile);
        }
    }
    follower.finish()
}

struct Follower<'a> {
    order: &'a Order,
    resident: Vec<usize>,
    /// Whether the copy in memory is newer than the copy on disk.
    changed: Vec<bool>,
    trained: Vec<bool>,
    facts: OrderFacts,
}

impl<'a> Follower<'a> {
    fn new(order: &'a Order) -> Result<Self> {
        let Some(first) = order.states.first() else {
            return Err(Error::internal("order of partitions: no state"));
        };
        let resident = first.resident.clone();
        let room = match order.mode {
            SwapMode::InPlace => order.slots,
            SwapMode::SpareSlot => order.slots.saturating_sub(1),
        };
        if resident.len() != room.min(order.partitions) && order.partitions > 1 {
            return Err(wrong(0, &format!("{} partitions in {room} slots", resident.len())));
        }
        let mut seen = vec![false; order.partitions];
        for &partition in &resident {
            if partition >= order.partitions || std::mem::replace(&mut seen[partition], true) {
                return Err(wrong(0, &format!("partition {partition} twice, or not there")));
            }
        }
        let facts = OrderFacts {
            states: order.states.len(),
            loads: resident.len(),
            stores: 0,
            evicts_last_loaded: 0,
            nothing_new_stays: 0,
            prefetchable: 0,
        };
        let changed = vec![false; order.partitions];
        let trained = vec![false; order.partitions * order.partitions];
        Ok(Self { order, resident, changed, trained, facts })
    }

    fn swap(&mut self, place: usize, evicted: usize, loaded: usize) -> Result<()> {
        if loaded >= self.order.partitions || self.resident.contains(&loaded) {
            return Err(wrong(place, &format!("partition {loaded} is loaded but is there")));
        }
        let Some(slot) = self.resident.iter().position(|&there| there == evicted) else {
            return Err(wrong(place, &format!("partition {evicted} is evicted but is not there")));
        };
        self.changed[evicted] = false;
        self.facts.stores += 1;
        self.resident[slot] = loaded;
        self.facts.loads += 1;
        Ok(())
    }

    fn train(&mut self, place: usize, bucket: Bucket) -> Result<()> {
        for partition in [bucket.source, bucket.target] {
            if !self.resident.contains(&partition) {
                return Err(wrong(place, &format!("{bucket:?} needs {partition}, not there")));
            }
            self.changed[partition] = true;
        }
        let at = bucket.source * self.order.partitions + bucket.target;
        if std::mem::replace(&mut self.trained[at], true) {
            return Err(wrong(place, &format!("{bucket:?} is trained twice")));
        }
        Ok(())
    }

    fn finish(mut self) -> Result<OrderFacts> {
        let end = self.order.states.len() - 1;
        if let Some(missed) = self.trained.iter().position(|trained| !trained) {
            let (source, target) = (missed / self.order.partitions, missed % self.order.partitions);
            return Err(wrong(end, &format!("bucket ({source}, {target}) is never trained")));
        }
        for &partition in &self.resident {
            self.changed[partition] = false;
            self.facts.stores += 1;
        }
        if let Some(lost) = self.changed.iter().position(|&changed| changed) {
            return Err(wrong(end, &format!("partition {lost} is not written back")));
        }
        Ok(self.facts)
    }
}

fn wrong(state: usize, what: &str) -> Error {
    Error::internal(format!("order of partitions, state {state}: {what}"))
}
