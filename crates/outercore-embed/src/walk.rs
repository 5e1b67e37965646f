//! Walks of an epoch through an order: how many, with which renaming of partitions, and which part
//! of each bucket's triples is trained in which buffer state.
//!
//! Pure: a [`Walks`] computes the partitions in memory and the training work of every epoch and
//! state.

use outercore_core::{Error, Result, Stream};
use serde::{Deserialize, Serialize};

use crate::layout::Shuffle;
use crate::order::{Bucket, MAX_PARTITIONS, Order, State, Swap, SwapMode};

/// Most sweeps. With more, a state would have no triples left.
pub const MAX_SWEEPS: u32 = 1024;

/// Separates the random draws of names from other draws with the same seed.
const NAMES: u64 = u64::from_be_bytes(*b"renaming");
/// The same for the parts of buckets.
const PARTS: u64 = u64::from_be_bytes(*b"dealing.");

/// Configuration of the walks through an order of partitions.
///
/// A buffer state trains few pairs of partitions, and a model that is trained on few pairs for long
/// forgets the others. Sweeps, spreading, renaming and groups mix the training. More mixing comes
/// closer to an epoch with everything in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WalkConfig {
    /// Walks through the order per epoch. Each walk trains another part of every bucket, so the I/O
    /// grows by this factor.
    pub sweeps: u32,
    /// Divides a bucket's triples evenly between all states that hold both its partitions, instead
    /// of training them in the first one. This moves no partition. If triples are not kept in
    /// memory, they are read that many times.
    pub spread: bool,
    /// Partitions change their places in the order at random between walks. A walk begins with the
    /// partitions that the previous walk left in memory, so the change moves nothing.
    pub rename: bool,
    /// Trains all buckets of a state as one pool and swaps afterwards, instead of training during
    /// the swap. A pool then has more pairs of partitions, but no swap is hidden. With a spare slot
    /// a state is one pool anyway.
    pub in_turn: bool,
    /// Number of table partitions in one partition of the order. They move together. Each walk
    /// draws new groups, except for the groups that stay in memory between two walks. So two nodes
    /// that never meet in memory in one walk meet in another. This moves no more bytes, but in
    /// smaller pieces. (MariusGNN, EuroSys 2023: physical and logical partitions.)
    pub group: u32,
    /// Random seed of the names and parts.
    pub seed: u64,
}

impl Default for WalkConfig {
    /// One walk, whole buckets, no renaming, swaps during training.
    fn default() -> Self {
        Self { sweeps: 1, spread: false, rename: false, in_turn: false, group: 1, seed: 0 }
    }
}

impl WalkConfig {
    /// Checks the number of sweeps and the size of groups.
    ///
    /// # Errors
    /// `Invalid`: no sweeps, or more than [`MAX_SWEEPS`]; groups of zero or more than
    /// [`MAX_PARTITIONS`] partitions; groups of several partitions without renaming.
    pub fn validate(&self) -> Result<()> {
        if !(1..=MAX_SWEEPS).contains(&self.sweeps) {
            return Err(Error::invalid(format!(
                "sweeps of an epoch: {}, expected 1 to {MAX_SWEEPS}",
                self.sweeps
            )));
        }
        if !(1..=MAX_PARTITIONS).contains(&self.group()) {
            return Err(Error::invalid(format!(
                "groups of {} partitions, expected 1 to {MAX_PARTITIONS}",
                self.group
            )));
        }
        if self.group > 1 && !self.rename {
            return Err(Error::invalid(format!(
                "groups of {} partitions that keep their places from walk to walk",
                self.group
            ))
            .hint("`rename` as well, or groups of 1"));
        }
        Ok(())
    }

    /// Whether buckets are always trained whole.
    pub(crate) fn keeps_buckets_whole(&self) -> bool {
        !self.spread && !self.rename && self.sweeps == 1
    }

    /// Number of table partitions in one partition of the order.
    pub(crate) fn group(&self) -> usize {
        self.group as usize
    }

    /// Number of table partitions that fit in the slots of `order`.
    pub(crate) fn slots(&self, order: &Order) -> usize {
        order.slots.min(order.partitions) * self.group()
    }

    /// Number of partitions of a table that is trained in `order`.
    pub(crate) fn partitions(&self, order: &Order) -> usize {
        order.partitions * self.group()
    }

    /// Whether a bucket is trained before the swaps in place begin, and not during them.
    pub(crate) fn before(&self, swaps: &[Swap], bucket: Bucket) -> bool {
        let leaves = |swap: &Swap| bucket.needs(swap.evicted);
        self.in_turn || swaps.is_empty() || swaps.iter().any(leaves)
    }
}

/// A part of a bucket's triples.
///
/// # Example
/// ```
/// use outercore_embed::Share;
/// let parts = (0..3).map(|part| Share { part, of: 3, seed: 7 });
/// let mut all: Vec<u64> = parts.flat_map(|share| share.places(100)).collect();
/// all.sort_unstable();
/// assert_eq!(all, (0..100).collect::<Vec<_>>());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of the part, from 0.
    pub part: u32,
    /// Number of parts of the bucket.
    pub of: u32,
    /// Random seed of the division, the same for all parts.
    pub seed: u64,
}

impl Share {
    /// The whole bucket.
    pub const WHOLE: Self = Self { part: 0, of: 1, seed: 0 };

    /// Number of triples in this part of a bucket of `count` triples. Parts differ by at most one.
    pub fn count(&self, count: u64) -> u64 {
        let (first, stop) = self.ranks(count);
        stop - first
    }

    /// Indices of this part among the `count` triples of the bucket: in stored order for a whole
    /// bucket, in shuffled order for a part.
    pub fn places(&self, count: u64) -> impl Iterator<Item = u64> + use<> {
        let (first, stop) = self.ranks(count);
        let shuffle = (self.of > 1).then(|| Shuffle::new(count, self.seed));
        (first..stop).map(move |rank| shuffle.map_or(rank, |shuffle| shuffle.at(rank)))
    }

    /// The range of this part in the shuffled order.
    fn ranks(&self, count: u64) -> (u64, u64) {
        let of = u64::from(self.of);
        // The seed decides which parts have one triple more. Otherwise a small bucket would be
        // trained in the same states of every epoch.
        let turn = if of > 1 { self.seed % of } else { 0 };
        let part = (u64::from(self.part) + turn) % of;
        let end = |part: u64| (u128::from(count) * u128::from(part) / u128::from(of)) as u64;
        (end(part), end(part + 1))
    }
}

/// A bucket in a state, and the part of it that is trained there.
pub type Visit = (Bucket, Share);

/// Visits of a state before the next swap in place, and visits during it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// Visits that need the partition that is evicted next, or all visits.
    pub before_swap: Vec<Visit>,
    /// The other visits.
    pub during_swap: Vec<Visit>,
}

/// The walks of every epoch through an order. They depend only on the order and the configuration.
///
/// # Example
/// ```
/// use outercore_embed::{OrderConfig, OrderKind, WalkConfig, Walks, partition_order};
/// let order = partition_order(&OrderConfig::new(OrderKind::Optimal, 8, 3))?;
/// let config = WalkConfig { sweeps: 2, rename: true, ..WalkConfig::default() };
/// let mut walks = Walks::new(order, config)?;
/// let last = walks.walk(0).states.last().map(|state| state.resident.clone());
/// let mut first = walks.walk(1).states[0].resident.clone();
/// first.sort_unstable();
/// assert_eq!(last.map(|mut last| { last.sort_unstable(); last }), Some(first));
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Walks {
    /// The order and its reverse.
    orders: [Order; 2],
    config: WalkConfig,
    /// Number of the current walk.
    number: u64,
    /// For each place in the order: the table partitions at that place in the current walk, group
    /// after group.
    names: Vec<usize>,
    current: Walk,
}

/// One walk: buffer states of table partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Destination of a loaded partition.
    pub mode: SwapMode,
    /// The buffer states, in order.
    pub states: Vec<WalkState>,
}

/// The partitions in memory at one time of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkState {
    /// The swaps that led here, one for each partition of a group; empty for the first state.
    pub swaps: Vec<Swap>,
    /// The partitions in memory, group after group.
    pub resident: Vec<usize>,
    /// The buckets whose partitions meet here for the first time in the walk.
    pub buckets: Vec<Bucket>,
}

impl Walk {
    /// The walk through `order` with the table partitions `names` at its places.
    fn new(order: &Order, names: &[usize], group: usize) -> Self {
        let at = |place: usize| &names[place * group..][..group];
        let swaps = |swap: Swap| {
            let pairs = at(swap.evicted).iter().zip(at(swap.loaded));
            pairs.map(|(&evicted, &loaded)| Swap { evicted, loaded }).collect()
        };
        let between = |bucket: &Bucket| {
            let (sources, targets) = (at(bucket.source), at(bucket.target));
            sources.iter().flat_map(move |&source| {
                targets.iter().map(move |&target| Bucket { source, target })
            })
        };
        let state = |state: &State| WalkState {
            swaps: state.swap.map(swaps).unwrap_or_default(),
            resident: state.resident.iter().flat_map(|&place| at(place)).copied().collect(),
            buckets: state.buckets.iter().flat_map(between).collect(),
        };
        Self { mode: order.mode, states: order.states.iter().map(state).collect() }
    }

    /// The swaps from a state to the next one; empty for the last.
    pub fn swaps_after(&self, state: usize) -> &[Swap] {
        self.states.get(state + 1).map_or(&[], |next| &next.swaps)
    }

    /// The partitions of a state that are still in memory for the next step of a later state. Empty
    /// if the next step is in another walk.
    pub(crate) fn staying(&self, state: usize, config: &WalkConfig) -> Vec<usize> {
        let mut stays = self.states[state].resident.clone();
        for (index, next) in self.states.iter().enumerate().skip(state + 1) {
            stays.retain(|partition| next.resident.contains(partition));
            let buckets = buckets_of(&next.resident, &next.buckets, config.spread);
            if buckets.is_empty() {
                continue;
            }
            let swaps = self.swaps_after(index);
            // With swaps in place, a state without buckets of the partition that leaves begins with
            // its swap.
            if self.mode == SwapMode::InPlace && !buckets.iter().any(|&b| config.before(swaps, b)) {
                stays.retain(|&partition| swaps.iter().all(|swap| swap.evicted != partition));
            }
            return stays;
        }
        Vec::new()
    }
}

impl Walks {
    /// Walks through `order` with the configuration `config`.
    ///
    /// # Errors
    /// As [`WalkConfig::validate`].
    pub fn new(order: Order, config: WalkConfig) -> Result<Self> {
        config.validate()?;
        let names: Vec<usize> = (0..config.partitions(&order)).collect();
        let current = Walk::new(&order, &names, config.group());
        Ok(Self { orders: [order.clone(), order.reversed()], config, number: 0, names, current })
    }

    /// The configuration.
    pub fn config(&self) -> WalkConfig {
        self.config
    }

    /// The order of a walk. Without renaming, odd walks run backwards.
    pub fn order(&self, walk: u64) -> &Order {
        let backwards = !self.config.rename && walk % 2 == 1;
        &self.orders[usize::from(backwards)]
    }

    /// Number of table partitions: the partitions of the order times the group size.
    pub fn partitions(&self) -> usize {
        self.names.len()
    }

    /// Number of table partitions that fit in memory.
    pub fn slots(&self) -> usize {
        self.config.slots(&self.orders[0])
    }

    /// Number of buffer states of a walk.
    pub fn states_of_walk(&self) -> usize {
        self.orders[0].states.len()
    }

    /// Number of buffer states of an epoch.
    pub fn states(&self) -> usize {
        self.states_of_walk() * self.config.sweeps as usize
    }

    /// The walk of a state, numbered from the first epoch, and the index of the state in it.
    pub fn place_of(&self, epoch: u64, state: usize) -> (u64, usize) {
        let (sweep, state) = (state / self.states_of_walk(), state % self.states_of_walk());
        (epoch * u64::from(self.config.sweeps) + sweep as u64, state)
    }

    /// A walk.
    ///
    /// **Cost**: computes the names of all earlier walks; nothing for the current walk, and little
    /// for the one after it.
    pub fn walk(&mut self, number: u64) -> &Walk {
        if number == self.number {
            return &self.current;
        }
        if !self.config.rename {
            self.number = number;
        } else {
            if number < self.number {
                (self.number, self.names) = (0, (0..self.names.len()).collect());
            }
            while self.number < number {
                self.number += 1;
                self.names = self.next_names();
            }
        }
        self.current = Walk::new(self.order(number), &self.names, self.config.group());
        &self.current
    }

    /// Names for the walk `self.number`, after a walk with the names `self.names`. The first state
    /// gets the groups that are in memory. With a spare slot, the first swap loads the group that
    /// left last and is still in memory. The other groups are drawn anew.
    fn next_names(&self) -> Vec<usize> {
        let (order, group) = (&self.orders[0], self.config.group());
        let swap_of = |state: Option<&State>| state.and_then(|state| state.swap);
        let mut draws = Stream::new(self.config.seed, NAMES).uniform(self.number, 0, 0);
        let mut shuffled = |mut some: Vec<usize>| {
            for place in (1..some.len()).rev() {
                some.swap(place, draws.below(place as u64 + 1) as usize);
            }
            some
        };
        let (Some(first), Some(last)) = (order.states.first(), order.states.last()) else {
            return self.names.clone();
        };
        let mut names = vec![usize::MAX; self.names.len()];
        let mut stays = |place: usize, before: usize| {
            let group_before = &self.names[before * group..][..group];
            names[place * group..][..group].copy_from_slice(group_before);
        };
        for (&place, before) in first.resident.iter().zip(shuffled(last.resident.clone())) {
            stays(place, before);
        }
        if order.mode == SwapMode::SpareSlot
            && let (Some(load), Some(left)) =
                (swap_of(order.states.get(1)), swap_of(order.states.last()))
        {
            stays(load.loaded, left.evicted);
        }
        let mut used = vec![false; names.len()];
        names.iter().filter(|&&name| name != usize::MAX).for_each(|&name| used[name] = true);
        let mut others = shuffled((0..names.len()).filter(|&name| !used[name]).collect());
        for name in &mut names {
            if *name == usize::MAX {
                *name = others.pop().unwrap_or(0);
            }
        }
        names
    }

    /// The training work of each state of an epoch, in order: every triple of every bucket once.
    pub fn epoch(&mut self, epoch: u64) -> EpochVisits {
        let partitions = self.partitions();
        let mut parts = vec![0u32; partitions * partitions];
        let sweeps = u64::from(self.config.sweeps);
        let here = (self.number, self.names.clone(), self.current.clone());
        for walk in epoch * sweeps..(epoch + 1) * sweeps {
            let spread = self.config.spread;
            let walked = self.walk(walk);
            for state in &walked.states {
                for bucket in buckets_of(&state.resident, &state.buckets, spread) {
                    parts[bucket.source * partitions + bucket.target] += 1;
                }
            }
        }
        (self.number, self.names, self.current) = here;
        let seen = vec![0; parts.len()];
        EpochVisits { epoch, config: self.config, partitions, parts, seen, next: 0 }
    }
}

/// Follows an epoch state by state and assigns parts of buckets to the states.
#[derive(Clone, Debug)]
pub struct EpochVisits {
    epoch: u64,
    config: WalkConfig,
    partitions: usize,
    /// Number of parts of each bucket.
    parts: Vec<u32>,
    /// Number of parts that are already trained.
    seen: Vec<u32>,
    /// Index of the next state.
    next: usize,
}

impl EpochVisits {
    /// Number of the epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The state that [`EpochVisits::state`] expects next.
    pub fn next(&self) -> usize {
        self.next
    }

    /// The visits of the next state, which is state `index` of `walk`.
    ///
    /// # Panics
    /// If the state does not exist.
    pub fn state(&mut self, walk: &Walk, index: usize) -> Visits {
        self.next += 1;
        let (state, swaps) = (&walk.states[index], walk.swaps_after(index));
        let mut visits = Visits::default();
        for bucket in buckets_of(&state.resident, &state.buckets, self.config.spread) {
            let at = bucket.source * self.partitions + bucket.target;
            let share = self.share(at);
            self.seen[at] += 1;
            let before = self.config.before(swaps, bucket);
            let side = if before { &mut visits.before_swap } else { &mut visits.during_swap };
            side.push((bucket, share));
        }
        visits
    }

    fn share(&self, at: usize) -> Share {
        if self.parts[at] <= 1 {
            return Share::WHOLE;
        }
        let mut draws = Stream::new(self.config.seed, PARTS).uniform(self.epoch, 0, at as u64);
        Share { part: self.seen[at], of: self.parts[at], seed: draws.next_u64() }
    }
}

/// The buckets of which a state trains a part: the `new` ones, which it is the first to allow, or
/// with `spread` all buckets of the partitions `there`.
pub(crate) fn buckets_of(there: &[usize], new: &[Bucket], spread: bool) -> Vec<Bucket> {
    if !spread {
        return new.to_vec();
    }
    let pairs =
        there.iter().flat_map(|&source| there.iter().map(move |&target| Bucket { source, target }));
    let mut buckets: Vec<Bucket> = pairs.collect();
    buckets.sort_unstable();
    buckets
}
