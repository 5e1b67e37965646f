//! Steps of an epoch: the buckets and partitions that are trained at a time.

use std::collections::VecDeque;

use crate::order::{Bucket, SwapMode};
use crate::walk::{Share, Visit, Visits, Walks};

/// The next training work: buckets, and the places of their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Buffer state of the epoch, from 0; numbered through all walks.
    pub state: usize,
    /// Number of the step within the epoch. Use it for random draws, because it is the same in
    /// every run.
    pub number: u64,
    /// Buckets to train as one shuffled pool.
    pub buckets: Vec<Bucket>,
    /// The trained part of each bucket; parts do not repeat within an epoch.
    pub shares: Vec<Share>,
    /// The partitions that may be read and changed; no other memory may. They are in the order of
    /// the buffer state, independent of slots.
    pub resident: Vec<Resident>,
    /// Partitions that the next step may not have. Code that trains copies must write these back
    /// before it requests the next step. At the end of a walk these are all partitions.
    pub leaving: Vec<usize>,
    /// Whether this is the last step of its buffer state, so that a commit may follow.
    pub ends_state: bool,
}

impl Step {
    /// The buckets, each with its trained part.
    pub(crate) fn visits(&self) -> impl Iterator<Item = Visit> {
        self.buckets.iter().copied().zip(self.shares.iter().copied())
    }
}

/// A partition in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Which partition.
    pub partition: usize,
    /// Which slot it lies in.
    pub slot: usize,
    /// Number of rows that belong to nodes.
    pub rows: u64,
}

/// A step of a buffer state, before the places of its partitions are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub number: u64,
    pub visits: Vec<Visit>,
    /// Whether the step runs during the swap to the next state.
    pub during_swap: bool,
    pub ends_state: bool,
}

/// The steps of the buffer state `index` of an epoch. With swaps in place, the buckets of the
/// partition that leaves form a step before the swap, and the others a step during it. In turn and
/// with a spare slot, the state is one step.
pub(crate) fn parts(visits: Visits, index: usize, mode: SwapMode) -> VecDeque<Part> {
    let Visits { mut before_swap, mut during_swap } = visits;
    if mode == SwapMode::SpareSlot {
        before_swap.append(&mut during_swap);
        std::mem::swap(&mut before_swap, &mut during_swap);
    }
    let part = |place: u64, visits: Vec<Visit>| Part {
        number: 2 * index as u64 + place,
        visits,
        during_swap: place == 1,
        ends_state: false,
    };
    let mut parts = VecDeque::from([part(0, before_swap), part(1, during_swap)]);
    parts.retain(|part| !part.visits.is_empty());
    if let Some(last) = parts.back_mut() {
        last.ends_state = true;
    }
    parts
}

/// The visits of all steps of an epoch, in order.
pub(crate) fn pools(walks: &mut Walks, epoch: u64) -> Vec<Vec<Visit>> {
    let mut visits = walks.epoch(epoch);
    let mut found = Vec::new();
    for index in 0..walks.states() {
        let (number, state) = walks.place_of(epoch, index);
        let walk = walks.walk(number);
        let mode = walk.mode;
        found.extend(parts(visits.state(walk, state), index, mode).into_iter().map(|p| p.visits));
    }
    found
}
