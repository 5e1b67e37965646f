//! Cache of node states after the first layer (the embedding cache of GLIST 4.2).
//!
//! The state of a node depends only on its sampled in-edges and on the features and degrees at
//! their ends. The sampler draws the same edges for a node in all requests with the same seed. So a
//! cached state is equal to the bit to a recomputed one. With it, the node is left out of the last
//! hop, which reads most rows of a request.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use outercore_core::{Bytes, NodeId};
use outercore_store::delta::Delta;

/// Most sources of a cached node, if the graph changes: each source is checked for changes before
/// use.
const MOST_SOURCES: usize = 32;

/// Bytes of an entry in addition to its state and its sources: the entry, and the index with its
/// empty places.
const ENTRY_BYTES: usize = 128;

/// A newly computed state.
pub struct NewState {
    /// The node.
    pub node: NodeId,
    /// Ids of the sources of the node's sampled edges.
    pub sources: Vec<NodeId>,
    /// The state of the node.
    pub state: Vec<f32>,
}

/// Cache of states by seed and node. When it is full, the CLOCK algorithm evicts an entry that was
/// not used since the hand last passed it.
pub struct States {
    width: usize,
    capacity: usize,
    /// Fewest sources of a node whose state is cached.
    least_sources: usize,
    /// Key of the feature array that the states depend on.
    features: Option<String>,
    places: HashMap<(u64, NodeId), usize>,
    entries: Vec<Entry>,
    /// The states, `[entries, width]`.
    numbers: Vec<f32>,
    hand: usize,
}

struct Entry {
    key: (u64, NodeId),
    sources: Box<[u32]>,
    /// LSN up to which none of the node's inputs has changed.
    lsn: AtomicU64,
    is_used: AtomicBool,
}

impl States {
    /// Room for states of `width` values within `memory`.
    ///
    /// A state is cached only if the feature rows of its sources, of `row` bytes each, take more
    /// memory than the state: then the state saves more reads than cached rows would.
    pub fn new(width: usize, memory: Bytes, row: Bytes, features: Option<String>) -> Self {
        let bytes = width * size_of::<f32>() + MOST_SOURCES / 2 * size_of::<u32>() + ENTRY_BYTES;
        let capacity = memory.as_usize() / bytes;
        let least_sources = bytes.checked_div(row.as_usize()).unwrap_or(0) + 1;
        Self {
            width,
            capacity,
            least_sources,
            features,
            // Allocate everything at once. Growing would copy, and for a moment take both sizes.
            // The system provides the pages only when they are used.
            places: HashMap::with_capacity(capacity),
            entries: Vec::with_capacity(capacity),
            numbers: Vec::with_capacity(capacity * width),
            hand: 0,
        }
    }

    /// Removes all states.
    pub fn clear(&mut self) {
        self.places.clear();
        self.entries.clear();
        self.numbers.clear();
        self.hand = 0;
    }

    /// Whether the state of a node with `sources` sampled sources is worth its memory.
    pub fn wants(&self, sources: usize) -> bool {
        sources >= self.least_sources
    }

    /// Whether the cache has no room at all.
    pub fn is_off(&self) -> bool {
        self.capacity == 0
    }

    /// The state of a node; `None` if it may have changed since it was computed.
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
        // The delta does not know updates older than the arrays.
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

    /// Stores states that were computed on the graph at `delta`.
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

    /// Finds a place for an entry: its old place, a new place, or the place of an evicted entry.
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

    /// The next entry that was not used since the hand last passed it.
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
        // An entry takes 16 bytes for values, 64 for sources and 128 more; a feature row takes 64
        // bytes.
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
