//! Orders of partitions: which partitions are in memory at a time, and which edges are trained
//! then.
//!
//! The nodes are divided into partitions, and a few partitions fit in memory at a time: a *buffer
//! state*. An edge from partition `i` to partition `j` belongs to bucket `(i, j)` and is trained
//! while both are in memory. A swap to the next state replaces one partition. A good order needs
//! few states to bring every two partitions together, and always leaves buckets to train while a
//! partition is written back and the next one is read.

mod beta;
mod check;
mod cover;
mod field;
mod kind;
mod legend;
mod optimal;
mod pairs;
mod search;
mod sequential;

use std::mem;

use outercore_core::{Error, Result};
use serde::{Deserialize, Serialize};

pub use check::{OrderFacts, check};
pub use kind::{OrderKind, SwapMode};
pub use legend::iteration_order;
pub use optimal::lower_bound;

use pairs::Pairs;

/// Most partitions. A larger number would give too many buckets to store.
pub const MAX_PARTITIONS: usize = 512;

/// The edges from the nodes of one partition to the nodes of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bucket {
    /// Partition of the sources.
    pub source: usize,
    /// Partition of the targets.
    pub target: usize,
}

impl Bucket {
    /// Whether one of the two partitions is `partition`.
    pub fn needs(self, partition: usize) -> bool {
        self.source == partition || self.target == partition
    }
}

/// One partition is replaced by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Swap {
    /// The partition that is written back.
    pub evicted: usize,
    /// The partition that is read.
    pub loaded: usize,
}

/// The partitions in memory at one time, and the buckets trained then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The swap that led here; `None` for the first state.
    pub swap: Option<Swap>,
    /// The partitions in memory. A loaded partition takes the index of the evicted one.
    pub resident: Vec<usize>,
    /// The buckets trained in this state, each for the only time: first the buckets of the
    /// partition that is evicted next, then the others.
    pub buckets: Vec<Bucket>,
    /// Number of `buckets` that need the partition that is evicted next; all of them in the last
    /// state.
    pub held: usize,
}

impl State {
    /// The buckets to train before the next swap in place.
    pub fn before_swap(&self) -> &[Bucket] {
        &self.buckets[..self.held]
    }

    /// The buckets that can be trained during the next swap in place.
    pub fn during_swap(&self) -> &[Bucket] {
        &self.buckets[self.held..]
    }
}

/// Buffer states that together train every bucket once.
///
/// # Example
/// ```
/// use outercore_embed::{OrderConfig, OrderKind, partition_order};
/// let order = partition_order(&OrderConfig::new(OrderKind::Optimal, 12, 3))?;
/// assert_eq!(order.states.len(), 33);
/// assert_eq!(order.states[0].resident, [0, 1, 2]);
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Method that constructed it.
    pub kind: OrderKind,
    /// Number of partitions.
    pub partitions: usize,
    /// Slots for partitions, including a spare slot.
    pub slots: usize,
    /// Destination of a loaded partition.
    pub mode: SwapMode,
    /// The buffer states, in order.
    pub states: Vec<State>,
}

impl Order {
    /// The order that begins with `first` in memory and follows `swaps`. Every bucket is trained in
    /// the first state that holds its partitions.
    fn new(config: &OrderConfig, first: Vec<usize>, swaps: &[Swap]) -> Self {
        let mut pairs = Pairs::new(config.partitions);
        let mut buckets = Vec::new();
        for (place, &a) in first.iter().enumerate() {
            buckets.push(Bucket { source: a, target: a });
            for &b in &first[..place] {
                pairs.cover(a, b);
                buckets.extend(both_ways(a, b));
            }
        }
        let mut seen = vec![false; config.partitions];
        first.iter().for_each(|&partition| seen[partition] = true);
        let mut states = vec![State { swap: None, resident: first, buckets, held: 0 }];
        for &swap in swaps {
            let mut resident = states[states.len() - 1].resident.clone();
            for place in &mut resident {
                if *place == swap.evicted {
                    *place = swap.loaded;
                }
            }
            let mut buckets = Vec::new();
            if !mem::replace(&mut seen[swap.loaded], true) {
                buckets.push(Bucket { source: swap.loaded, target: swap.loaded });
            }
            for &other in &resident {
                if other != swap.loaded && pairs.cover(swap.loaded, other) {
                    buckets.extend(both_ways(swap.loaded, other));
                }
            }
            states.push(State { swap: Some(swap), resident, buckets, held: 0 });
        }
        let &OrderConfig { kind, partitions, slots, mode, .. } = config;
        let mut order = Self { kind, partitions, slots, mode, states };
        order.hold_back();
        order
    }

    /// In every state, puts the buckets of the next evicted partition first.
    fn hold_back(&mut self) {
        let evicted: Vec<Option<usize>> = self.evictions().collect();
        for (state, evicted) in self.states.iter_mut().zip(evicted) {
            let is_held = |bucket: &Bucket| evicted.is_none_or(|gone| bucket.needs(gone));
            state.buckets.sort_unstable_by_key(|bucket| (!is_held(bucket), *bucket));
            state.held = state.buckets.iter().filter(|bucket| is_held(bucket)).count();
        }
    }

    /// The partition that is evicted after each state; `None` for the last.
    fn evictions(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        let swaps = self.states.iter().skip(1).map(|state| state.swap.map(|swap| swap.evicted));
        swaps.chain([None])
    }

    /// The same states in reverse.
    ///
    /// A reversed epoch begins with the partitions that the previous epoch left in memory, so
    /// nothing has to be written back and read again in between.
    #[must_use]
    pub fn reversed(&self) -> Self {
        let first = self.states.last().map_or_else(Vec::new, |state| state.resident.clone());
        let swaps: Vec<Swap> = self
            .states
            .iter()
            .rev()
            .filter_map(|state| state.swap)
            .map(|swap| Swap { evicted: swap.loaded, loaded: swap.evicted })
            .collect();
        let config = OrderConfig {
            mode: self.mode,
            ..OrderConfig::new(self.kind, self.partitions, self.slots)
        };
        Self::new(&config, first, &swaps)
    }

    /// Number of swaps: the states without the first.
    pub fn swaps(&self) -> usize {
        self.states.len() - 1
    }

    /// Partitions read by an epoch that starts with empty memory.
    pub fn loads(&self) -> usize {
        self.states[0].resident.len() + self.swaps()
    }

    /// Partitions written by an epoch that empties the memory at its end: as many as are read.
    pub fn stores(&self) -> usize {
        self.loads()
    }
}

fn both_ways(a: usize, b: usize) -> [Bucket; 2] {
    [Bucket { source: a, target: b }, Bucket { source: b, target: a }]
}

/// Kind and size of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderConfig {
    /// Method that constructs the order.
    pub kind: OrderKind,
    /// Number of partitions.
    pub partitions: usize,
    /// Slots for partitions, including a spare slot.
    pub slots: usize,
    /// Destination of a loaded partition.
    #[serde(default)]
    pub mode: SwapMode,
    /// Random seed of the search; other methods are deterministic.
    #[serde(default)]
    pub seed: u64,
    /// Most swaps that the search examines; by default twenty million, about two seconds.
    #[serde(default = "default_work")]
    pub work: u64,
}

fn default_work() -> u64 {
    20_000_000
}

impl OrderConfig {
    /// An order with swaps in place, seed 0 and the default search work.
    pub fn new(kind: OrderKind, partitions: usize, slots: usize) -> Self {
        let (mode, seed, work) = (SwapMode::InPlace, 0, default_work());
        Self { kind, partitions, slots, mode, seed, work }
    }

    /// Number of partitions in memory at a time.
    fn resident(&self) -> usize {
        match self.mode {
            SwapMode::InPlace => self.slots,
            SwapMode::SpareSlot => self.slots.saturating_sub(1),
        }
    }

    fn validate(&self) -> Result<()> {
        let &Self { partitions, slots, .. } = self;
        if partitions == 0 || partitions > MAX_PARTITIONS {
            return Err(Error::invalid(format!(
                "order of partitions: expected 1 to {MAX_PARTITIONS} partitions, found {partitions}"
            ))
            .hint("sixteen to sixty-four are usual"));
        }
        if partitions > 1 && self.resident() < 2 {
            let (least, why) = match self.mode {
                SwapMode::InPlace => (2, "the two ends of an edge"),
                SwapMode::SpareSlot => (3, "the two ends of an edge and one to load into"),
            };
            return Err(Error::invalid(format!(
                "order of partitions: {slots} slots, expected at least {least}: {why}"
            ))
            .hint("choose more slots, or one partition"));
        }
        Ok(())
    }
}

/// Constructs the order of a configuration.
///
/// **Cost**: `optimal` starts from the best order of the other methods and examines at most `work`
/// swaps; the other methods take milliseconds.
///
/// # Errors
/// No order of this kind exists for the number of partitions or slots.
pub fn partition_order(config: &OrderConfig) -> Result<Order> {
    config.validate()?;
    let (partitions, resident) = (config.partitions, config.resident());
    if partitions <= resident.max(1) {
        return Ok(Order::new(config, (0..partitions).collect(), &[]));
    }
    let swaps = match config.kind {
        OrderKind::Legend => legend::swaps(partitions, resident)?,
        OrderKind::Beta => beta::swaps(partitions, resident),
        OrderKind::Cover => return cover::order(config, resident),
        OrderKind::Optimal => optimal::swaps(config, resident),
    };
    Ok(Order::new(config, (0..resident).collect(), &swaps))
}
