//! How an epoch goes through an order: how often, under which names, and which part of each
//! bucket's triples it trains in which buffer state.
//!
//! Pure: a [`Walks`] says for every epoch and state what is in memory and what is trained.

use outercore_core::{Error, Result, Stream};
use serde::{Deserialize, Serialize};

use crate::layout::Shuffle;
use crate::order::{Bucket, MAX_PARTITIONS, Order, State, Swap, SwapMode};

/// More sweeps than this leave no triples for a state.
pub const MAX_SWEEPS: u32 = 1024;

/// Tells the draws of names from others of the same seed.
const NAMES: u64 = u64::from_be_bytes(*b"renaming");
/// The same for the parts of buckets.
const PARTS: u64 = u64::from_be_bytes(*b"dealing.");

/// How an epoch goes through an order of partitions.
///
/// A buffer state trains few pairs of partitions, and a model trained on few of them for long
/// forgets others. Sweeps, spreading, renaming and groups mix what is trained: the more, the closer
/// to an epoch with everything in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WalkConfig {
    /// Walks through the order that make an epoch, each of which trains another part of every
    /// bucket: so many times the partitions moved.
    pub sweeps: u32,
    /// Deals a bucket's triples evenly to all states that have both its partitions in memory,
    /// instead of leaving them to the first one. Moves no partition; where triples are not kept
    /// in memory, they are read that many times.
    pub spread: bool,
    /// Partitions change their places in the order at random from walk to walk. What a walk leaves
    /// in memory the next one begins with, so that nothing is moved for it.
    pub rename: bool,
    /// Trains all buckets of a state as one pool and swaps after it, instead of training what does
    /// not need the partition that leaves while that is exchanged: more pairs of partitions are in
    /// a pool, and nothing hides a swap. With a spare slot a state is one pool anyway.
    pub in_turn: bool,
    /// Partitions of the table that one partition of the order consists of. They move together,
    /// and which ones do is drawn anew for every walk, but for those that stay in memory between
    /// two: so two nodes that are never in memory together in one walk are in another. Moves no
    /// more bytes, in smaller pieces. (MariusGNN, EuroSys 2023: physical and logical
    /// partitions.)
    pub group: u32,
    /// Of the names and parts.
    pub seed: u64,
}

impl Default for WalkConfig {
    /// One walk, every bucket at once, the same names, swaps during training.
    fn default() -> Self {
        Self { sweeps: 1, spread: false, rename: false, in_turn: false, group: 1, seed: 0 }
    }
}

impl WalkConfig {
    /// Checks the number of sweeps and the size of groups.
    ///
    /// # Errors
    /// `Invalid`: no sweep, or more than [`MAX_SWEEPS`]; groups of nothing, of more than
    /// [`MAX_PARTITIONS`], or of several partitions that keep their places.
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

    /// Whether a bucket is never trained in parts.
    pub(crate) fn keeps_buckets_whole(&self) -> bool {
        !self.spread && !self.rename && self.sweeps == 1
    }

    /// Partitions of the table in one of the order.
    pub(crate) fn group(&self) -> usize {
        self.group as usize
    }

    /// Partitions of the table for which the slots of `order` have room.
    pub(crate) fn slots(&self, order: &Order) -> usize {
        order.slots.min(order.partitions) * self.group()
    }

    /// Partitions of a table that is trained in `order`.
    pub(crate) fn partitions(&self, order: &Order) -> usize {
        order.partitions * self.group()
    }

    /// Whether a bucket is trained before swaps in place begin, not meanwhile.
    pub(crate) fn before(&self, swaps: &[Swap], bucket: Bucket) -> bool {
        let leaves = |swap: &Swap| bucket.needs(swap.evicted);
        self.in_turn || swaps.is_empty() || swaps.iter().any(leaves)
    }
}

/// Which part of a bucket's triples.
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
    /// Parts that the bucket is dealt into.
    pub of: u32,
    /// Of the deal: the same for all parts.
    pub seed: u64,
}

impl Share {
    /// The whole bucket.
    pub const WHOLE: Self = Self { part: 0, of: 1, seed: 0 };

    /// Triples of this part of a bucket of `count`. No two parts differ by more than one.
    pub fn count(&self, count: u64) -> u64 {
        let (first, stop) = self.ranks(count);
        stop - first
    }

    /// Which of a bucket's `count` triples these are. The whole bucket is in its own order, a part
    /// of it in that of a shuffle.
    pub fn places(&self, count: u64) -> impl Iterator<Item = u64> + use<> {
        let (first, stop) = self.ranks(count);
        let shuffle = (self.of > 1).then(|| Shuffle::new(count, self.seed));
        (first..stop).map(move |rank| shuffle.map_or(rank, |shuffle| shuffle.at(rank)))
    }

    /// Places of this part among all in the order of the deal.
    fn ranks(&self, count: u64) -> (u64, u64) {
        let of = u64::from(self.of);
        // Which parts have one more depends on the seed: else a small bucket would be trained in
        // the same states of every epoch.
        let turn = if of > 1 { self.seed % of } else { 0 };
        let part = (u64::from(self.part) + turn) % of;
        let end = |part: u64| (u128::from(count) * u128::from(part) / u128::from(of)) as u64;
        (end(part), end(part + 1))
    }
}

/// A bucket in a state, and which part of it is trained there.
pub type Visit = (Bucket, Share);

/// Visits of a state before the swap to the next one in place, and those during it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// Those that need the partition to be evicted next, or all.
    pub before_swap: Vec<Visit>,
    /// The others.
    pub during_swap: Vec<Visit>,
}

/// The walks of every epoch through an order. What it says depends on order and configuration only.
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
    /// Forwards and backwards.
    orders: [Order; 2],
    config: WalkConfig,
    /// The walk that was asked for last.
    number: u64,
    /// By place in the order: the partitions that have it in that walk, group after group.
    names: Vec<usize>,
    current: Walk,
}

/// One walk: buffer states of the table's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Where a loaded partition goes.
    pub mode: SwapMode,
    /// What is in memory, in order.
    pub states: Vec<WalkState>,
}

/// What is in memory at one time of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkState {
    /// The swaps that led here, as many as a group has partitions; none to the first state.
    pub swaps: Vec<Swap>,
    /// The partitions in memory, group after group.
    pub resident: Vec<usize>,
    /// The buckets that the walk allows here for the first time.
    pub buckets: Vec<Bucket>,
}

impl Walk {
    /// The walk through `order` in which the partitions at its places are those of `names`.
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

    /// The swaps that lead from a state to the next one; none from the last.
    pub fn swaps_after(&self, state: usize) -> &[Swap] {
        self.states.get(state + 1).map_or(&[], |next| &next.swaps)
    }

    /// The partitions of a state that are there for the next step of another one; none where that
    /// is in another walk.
    pub(crate) fn staying(&self, state: usize, config: &WalkConfig) -> Vec<usize> {
        let mut stays = self.states[state].resident.clone();
        for (index, next) in self.states.iter().enumerate().skip(state + 1) {
            stays.retain(|partition| next.resident.contains(partition));
            let buckets = buckets_of(&next.resident, &next.buckets, config.spread);
            if buckets.is_empty() {
                continue;
            }
            let swaps = self.swaps_after(index);
            // In place a state that trains nothing of what leaves begins with its swap.
            if self.mode == SwapMode::InPlace && !buckets.iter().any(|&b| config.before(swaps, b)) {
                stays.retain(|&partition| swaps.iter().all(|swap| swap.evicted != partition));
            }
            return stays;
        }
        Vec::new()
    }
}

impl Walks {
    /// Goes through `order` as `config` says.
    ///
    /// # Errors
    /// As [`WalkConfig::validate`].
    pub fn new(order: Order, config: WalkConfig) -> Result<Self> {
        config.validate()?;
        let names: Vec<usize> = (0..config.partitions(&order)).collect();
        let current = Walk::new(&order, &names, config.group());
        Ok(Self { orders: [order.clone(), order.reversed()], config, number: 0, names, current })
    }

    /// How.
    pub fn config(&self) -> WalkConfig {
        self.config
    }

    /// The order that walks follow, backwards in odd ones unless partitions are renamed.
    pub fn order(&self, walk: u64) -> &Order {
        let backwards = !self.config.rename && walk % 2 == 1;
        &self.orders[usize::from(backwards)]
    }

    /// Partitions of the table: those of the order, as many times as a group has.
    pub fn partitions(&self) -> usize {
        self.names.len()
    }

    /// Partitions of the table that memory has room for.
    pub fn slots(&self) -> usize {
        self.config.slots(&self.orders[0])
    }

    /// Buffer states of a walk.
    pub fn states_of_walk(&self) -> usize {
        self.orders[0].states.len()
    }

    /// Buffer states of an epoch.
    pub fn states(&self) -> usize {
        self.states_of_walk() * self.config.sweeps as usize
    }

    /// The walk that a state of an epoch belongs to, counted from the first epoch, and the state's
    /// number in it.
    pub fn place_of(&self, epoch: u64, state: usize) -> (u64, usize) {
        let (sweep, state) = (state / self.states_of_walk(), state % self.states_of_walk());
        (epoch * u64::from(self.config.sweeps) + sweep as u64, state)
    }

    /// A walk.
    ///
    /// **Cost**: goes through the names of the walks before; nothing for the last one asked for or
    /// the one after it.
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

    /// Names for the walk `self.number`, whose predecessor has the names `self.names`: the first
    /// state has the groups that are in memory, and with a spare slot the first swap loads the one
    /// that left last and is there still. The others are made anew.
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

    /// What is trained in each state of an epoch, in turn: every triple of every bucket once.
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

/// Follows an epoch state by state and deals buckets to the states.
#[derive(Clone, Debug)]
pub struct EpochVisits {
    epoch: u64,
    config: WalkConfig,
    partitions: usize,
    /// Parts of each bucket.
    parts: Vec<u32>,
    /// Those that are trained.
    seen: Vec<u32>,
    /// Number of the next state.
    next: usize,
}

impl EpochVisits {
    /// Number of the epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The state of the epoch that [`EpochVisits::state`] is to be asked for next.
    pub fn next(&self) -> usize {
        self.next
    }

    /// Visits of the next state, which is state `index` of `walk`.
    ///
    /// # Panics
    /// If there is no such state.
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

/// The buckets that a state has a part of: the `new` ones, which it is the first to allow, or all
/// those of the partitions that are `there`.
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
