use std::collections::VecDeque;

use crate::order::{Bucket, Order, State, SwapMode};

/// What to train next: buckets, and where their nodes lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Epoch, from 0.
    pub epoch: u64,
    /// Buffer state of the epoch, from 0.
    pub state: usize,
    /// Number of the step within the epoch: what its randomness should depend on, since it is the
    /// same in every run.
    pub number: u64,
    /// Buckets to train as one shuffled pool; none twice in an epoch.
    pub buckets: Vec<Bucket>,
    /// Partitions that may be read and changed; no other memory may. In the order of the buffer
    /// state, whatever their slots.
    pub resident: Vec<Resident>,
    /// Whether it is the last one of its buffer state, so that a commit may follow.
    pub ends_state: bool,
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
pub(super) struct Part {
    pub number: u64,
    pub buckets: Vec<Bucket>,
    /// Whether the swap to the next state is under way meanwhile.
    pub during_swap: bool,
    pub ends_state: bool,
}

/// The steps of a buffer state. Swapping in place, what needs the partition that leaves comes
/// before the swap and the rest while it is under way; with a spare slot it is one.
pub(super) fn parts(state: &State, index: usize, mode: SwapMode) -> VecDeque<Part> {
    let (before, during) = match mode {
        SwapMode::InPlace => (state.before_swap(), state.during_swap()),
        SwapMode::SpareSlot => (&[][..], &state.buckets[..]),
    };
    let part = |place: u64, buckets: &[Bucket]| Part {
        number: 2 * index as u64 + place,
        buckets: buckets.to_vec(),
        during_swap: place == 1,
        ends_state: false,
    };
    let mut parts = VecDeque::from([part(0, before), part(1, during)]);
    parts.retain(|part| !part.buckets.is_empty());
    if let Some(last) = parts.back_mut() {
        last.ends_state = true;
    }
    parts
}

/// The buckets of every step of an epoch in turn, forwards.
pub(crate) fn pools(order: &Order) -> impl Iterator<Item = Vec<Bucket>> + '_ {
    let states = order.states.iter().enumerate();
    states.flat_map(|(index, state)| parts(state, index, order.mode)).map(|part| part.buckets)
}
