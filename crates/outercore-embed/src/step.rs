//! Steps of an epoch: what is trained at a time, in which partitions.

use std::collections::VecDeque;

use crate::order::{Bucket, SwapMode};
use crate::walk::{Share, Visit, Visits, Walks};

/// What to train next: buckets, and where their nodes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Buffer state of the epoch, from 0: through all its walks.
    pub state: usize,
    /// Number of the step within the epoch: what its randomness should depend on, since it is the
    /// same in every run.
    pub number: u64,
    /// Buckets to train as one shuffled pool.
    pub buckets: Vec<Bucket>,
    /// Which part of each of these; none twice in an epoch.
    pub shares: Vec<Share>,
    /// Partitions that may be read and changed; no other memory may. In the order of the buffer
    /// state, whatever their slots.
    pub resident: Vec<Resident>,
    /// Which of these the next step may not have any more: who trains copies of them has to bring
    /// these back before it asks for the next step. All at the end of a walk.
    pub leaving: Vec<usize>,
    /// Whether it is the last one of its buffer state, so that a commit may follow.
    pub ends_state: bool,
}

impl Step {
    /// The buckets, each with the part of it that is trained.
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
    /// Rows that are nodes.
    pub rows: u64,
}

/// A step of a buffer state before its partitions are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub number: u64,
    pub visits: Vec<Visit>,
    /// Whether the swap to the next state is under way meanwhile.
    pub during_swap: bool,
    pub ends_state: bool,
}

/// The steps of a buffer state, the epoch's state `index`. Swapping in place, what needs the
/// partition that leaves comes before the swap and the rest while it is under way; in turn, and with
/// a spare slot, it is one.
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

/// The visits of every step of an epoch in turn.
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
