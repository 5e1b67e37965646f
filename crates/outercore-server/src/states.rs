//! States after the first layer that are kept for later requests (the embedding cache of GLIST 4.2).
//!
//! The state of a node is a function of its sampled in-edges and of the features and degrees at
//! their ends. The sampler draws the same edges for a node in every request of one seed. So a state
//! that is kept has the bits of one that is computed again, and the last hop, which has most of a
//! request's rows, is left out for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use outercore_core::{Bytes, NodeId};
use outercore_store::delta::Delta;

/// Sources of a node whose state is kept, where the graph changes: each is looked at before use.
const MOST_SOURCES: usize = 32;

/// Bytes of an entry besides its state and its sources: the index with its empty places, the entry.
const ENTRY_BYTES: usize = 128;

/// A state that was computed.
pub struct NewState {
    /// The node.
    pub node: NodeId,
    /// Ids of the sources of its sampled edges.
    pub sources: Vec<NodeId>,
    /// Its state.
    pub state: Vec<f32>,
}

/// States of nodes, by the seed of the sampler. Where there is no room the entry goes that was not
/// used since the hand passed it (CLOCK).
pub struct States {
    width: usize,
    capacity: usize,
    /// Sources of a node whose state is kept, at least.
    least_sources: usize,
    /// Key of the features that states depend on.
    features: Option<String>,
    places: HashMap<(u64, NodeId), usize>,
    entries: Vec<Entry>,
    /// `[entries, width]`.
    numbers: Vec<f32>,
    hand: usize,
}

struct Entry {
    key: (u64, NodeId),
    sources: Box<[u32]>,
    /// The update up to which nothing of it has changed.
    lsn: AtomicU64,
    is_used: AtomicBool,
}

impl States {
    /// Room for states of `width` numbers within `memory`.
    ///
    /// A state is kept where the rows of its sources would take more memory, at `row` each: the same
    /// memory then spares more reads.
    pub fn new(width: usize, memory: Bytes, row: Bytes, features: Option<String>) -> Self {
        let bytes = width * size_of::<f32>() + MOST_SOURCES / 2 * size_of::<u32>() + ENTRY_BYTES;
        let capacity = memory.as_usize() / bytes;
        let least_sources = bytes.checked_div(row.as_usize()).unwrap_or(0) + 1;
        Self {
            width,
            capacity,
            least_sources,
            features,
            // All at once: a copy to a larger place would take both for a moment. Pages are taken
            // from the system when they are used.
            places: HashMap::with_capacity(capacity),
            entries: Vec::with_capacity(capacity),
            numbers: Vec::with_capacity(capacity * width),
            hand: 0,
        }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.places.clear();
        self.entries.clear();
        self.numbers.clear();
        self.hand = 0;
    }

    /// Whether the state of a node with so many sampled sources is worth its memory.
    pub fn wants(&self, sources: usize) -> bool {
        sources >= self.least_sources
    }

    /// Whether it holds nothing at all.
    pub fn is_off(&self) -> bool {
        self.capacity == 0
    }

    /// The state of a node, unless it may have changed since it was computed.
    pub fn get(&self, seed: u64, node: NodeId, delta: Option<&Delta>) -> Option<&[f32]> {
        let &place = self.places.get(&(seed, node))?;
        let entry = &self.entries[place];
        if !self.is_current(entry, delta) {
            return None;
        }
        entry.is_used.store(true, Relaxed);
        Some(&self.numbers[place * self.width..][..self.width])
    }

    fn is_current(&self, entry: &Entry, delta: Option<&Delta>) -> bool {
        let Some(delta) = delta else { return true };
        let seen = entry.lsn.load(Relaxed);
        if seen == delta.lsn() {
            return true;
        }
        // Updates before those of the arrays are known no more.
        if seen < delta.base_lsn() || seen > delta.lsn() {
            return false;
        }
        let key = self.features.as_deref();
        let sources = entry.sources.iter().map(|&source| source.into());
        let is_current =
            sources.chain([entry.key.1]).all(|node: NodeId| delta.changed_at(node, key) <= seen);
        if is_current {
            entry.lsn.store(delta.lsn(), Relaxed);
        }
        is_current
    }

    /// Keeps states that were computed of the graph as it was at `delta`.
    pub fn keep(&mut self, seed: u64, delta: Option<&Delta>, new: Vec<NewState>) {
        for NewState { node, sources, state } in new {
            let sources: Option<Box<[u32]>> = match delta {
                None => Some(Box::default()),
                Some(_) if sources.len() > MOST_SOURCES => None,
                Some(_) => sources.iter().map(|&source| u32::try_from(source).ok()).collect(),
            };
            let Some(sources) = sources else { continue };
            let lsn = delta.map_or(0, Delta::lsn);
            let key = (seed, node);
            let Some(place) = self.place(key) else { return };
            self.numbers[place * self.width..][..self.width].copy_from_slice(&state);
            self.entries[place] =
                Entry { key, sources, lsn: lsn.into(), is_used: AtomicBool::new(false) };
        }
    }

    /// A place for an entry: its own, a new one, or that of another one, which is dropped.
    fn place(&mut self, key: (u64, NodeId)) -> Option<usize> {
        if let Some(&place) = self.places.get(&key) {
            return Some(place);
        }
        if self.capacity == 0 {
            return None;
        }
        let place = if self.entries.len() < self.capacity {
            self.numbers.resize(self.numbers.len() + self.width, 0.0);
            let (lsn, is_used) = (AtomicU64::default(), AtomicBool::default());
            self.entries.push(Entry { key, sources: Box::default(), lsn, is_used });
            self.entries.len() - 1
        } else {
            let place = self.unused();
            self.places.remove(&self.entries[place].key);
            place
        };
        self.places.insert(key, place);
        Some(place)
    }

    /// The next entry that was not used since the hand passed it.
    fn unused(&mut self) -> usize {
        loop {
            let place = self.hand;
            self.hand = (place + 1) % self.entries.len();
            if !self.entries[place].is_used.swap(false, Relaxed) {
                return place;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Bytes = Bytes(64);

    fn new(node: NodeId) -> NewState {
        NewState { node, sources: vec![node + 1], state: vec![node as f32; 4] }
    }

    fn room_for(count: usize) -> Bytes {
        Bytes(((4 + MOST_SOURCES / 2) * 4 * count + ENTRY_BYTES * count) as u64)
    }

    #[test]
    fn a_state_is_found_by_its_seed_and_node() {
        let mut states = States::new(4, room_for(2), ROW, None);
        states.keep(7, None, vec![new(3)]);
        assert_eq!(states.get(7, 3, None), Some(&[3.0; 4][..]));
        assert_eq!(states.get(8, 3, None), None);
        assert_eq!(states.get(7, 4, None), None);
    }

    #[test]
    fn the_entry_that_was_not_used_makes_room() {
        let mut states = States::new(4, room_for(3), ROW, None);
        states.keep(0, None, vec![new(1), new(2), new(3)]);
        assert!(states.get(0, 1, None).is_some() && states.get(0, 3, None).is_some());
        states.keep(0, None, vec![new(4)]);
        let found = [1, 2, 3, 4].map(|node| states.get(0, node, None).is_some());
        assert_eq!(found, [true, false, true, true]);
        assert_eq!(states.entries.len(), 3);
        assert_eq!(states.numbers.len(), 12);
    }

    #[test]
    fn a_state_is_worth_more_rows_than_its_own_memory() {
        let states = States::new(4, room_for(3), ROW, None);
        // 16 bytes of numbers, 64 for sources and 128 more, beside rows of 64.
        assert_eq!([3, 4].map(|sources| states.wants(sources)), [false, true]);
        assert!(States::new(4, room_for(3), Bytes(0), None).wants(1));
    }

    #[test]
    fn without_room_nothing_is_kept() {
        let mut states = States::new(4, Bytes(10), ROW, None);
        assert!(states.is_off());
        states.keep(0, None, vec![new(1)]);
        assert_eq!(states.get(0, 1, None), None);
    }
}
