//! Global to local node ids.

use outercore_core::NodeId;
use outercore_io::prefetch;

/// Sources whose slots are computed together.
const AT_ONCE: usize = 256;

/// How many sources ahead their slots are called for.
const AHEAD: usize = 16;

/// A table from the nodes of a batch to their places in it, open addressing, at most half full.
///
/// A slot is one word: the low half of the node and its place + 1. Where node ids need more than 32
/// bits, the batch's node list settles what the low half leaves open.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    slots: Vec<u64>,
    shift: u32,
    wide: bool,
    /// Nodes that the table has room for, as far as it was needed.
    entered: usize,
}

impl Locals {
    /// Empties the table and makes room for `room` nodes of a graph of `graph_nodes`.
    ///
    /// It begins as large as the last batch made it, so that batches alike never rebuild it.
    pub(crate) fn reset(&mut self, room: usize, graph_nodes: u64) {
        self.wide = graph_nodes > 1 << 32;
        self.allocate(room.max(self.entered));
        self.entered = 0;
    }

    /// Enters the seeds; of duplicates the first.
    pub(crate) fn enter_seeds(&mut self, seeds: &[NodeId]) {
        self.reserve(seeds, 0);
        self.enter_all(seeds);
    }

    /// Appends the places of `sources` to `places`, and to `nodes` those that are new.
    ///
    /// The caller sees to it that places fit into 32 bits.
    pub(crate) fn relabel(
        &mut self,
        sources: &[NodeId],
        nodes: &mut Vec<NodeId>,
        places: &mut Vec<u32>,
    ) {
        for sources in sources.chunks(AT_ONCE) {
            self.reserve(nodes, sources.len());
            if self.wide {
                self.relabel_few::<true>(sources, nodes, places);
            } else {
                self.relabel_few::<false>(sources, nodes, places);
            }
        }
    }

    fn relabel_few<const WIDE: bool>(
        &mut self,
        sources: &[NodeId],
        nodes: &mut Vec<NodeId>,
        places: &mut Vec<u32>,
    ) {
        let mut homes = [0usize; AT_ONCE + AHEAD];
        for (home, &source) in homes.iter_mut().zip(sources) {
            *home = self.home(source);
        }
        // Whether a node is new no branch could foresee: it is always written at the end, and the
        // end moves on by whether it was.
        let (mut count, first) = (nodes.len(), places.len());
        nodes.resize(count + sources.len(), 0);
        places.resize(first + sources.len(), 0);
        for (i, (&source, place)) in sources.iter().zip(&mut places[first..]).enumerate() {
            prefetch(&self.slots, homes[i + AHEAD]);
            let home = homes[i];
            let (at, held) = self.find::<WIDE>(home, source, nodes);
            let new = held == 0;
            let slot = if new { entry(source, count as u32) } else { held };
            self.slots[at] = slot;
            *place = slot as u32 - 1;
            nodes[count] = source;
            count += usize::from(new);
        }
        nodes.truncate(count);
    }

    /// The slot of `node` and what it holds: its entry, or 0 if it has none yet.
    #[inline(always)]
    fn find<const WIDE: bool>(&self, home: usize, node: NodeId, nodes: &[NodeId]) -> (usize, u64) {
        let mask = self.slots.len() - 1;
        let mut at = home;
        loop {
            let slot = self.slots[at];
            let differs = (slot >> 32) as u32 ^ node as u32;
            // Another node's slot: not empty, and its id differs. As a product it is one branch,
            // rarely taken; as two conditions the first would be a toss of a coin.
            let mut other = u64::from(differs) * u64::from(slot as u32) != 0;
            if WIDE && !other && slot != 0 {
                other = nodes[slot as u32 as usize - 1] != node;
            }
            if !other {
                return (at, slot);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn home(&self, node: NodeId) -> usize {
        (node.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// Makes room for `more` nodes beside `nodes`, which are all there are.
    fn reserve(&mut self, nodes: &[NodeId], more: usize) {
        let room = nodes.len() + more;
        self.entered = self.entered.max(room);
        if room * 2 > self.slots.len() {
            self.allocate(room);
            self.enter_all(nodes);
        }
    }

    fn allocate(&mut self, room: usize) {
        let len = (room * 2).next_power_of_two().max(64);
        self.slots.clear();
        self.slots.resize(len, 0);
        self.shift = u64::BITS - len.trailing_zeros();
    }

    fn enter_all(&mut self, nodes: &[NodeId]) {
        for (place, &node) in nodes.iter().enumerate() {
            let home = self.home(node);
            let (at, held) = if self.wide {
                self.find::<true>(home, node, nodes)
            } else {
                self.find::<false>(home, node, nodes)
            };
            if held == 0 {
                self.slots[at] = entry(node, place as u32);
            }
        }
    }
}

#[inline]
fn entry(node: NodeId, place: u32) -> u64 {
    u64::from(node as u32) << 32 | u64::from(place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn places_equal_those_of_a_hash_map(
            seeds in proptest::collection::vec(0u64..50, 0..20),
            sources in proptest::collection::vec(0u64..300, 0..600),
            high in 0u32..40,
        ) {
            // Ids that agree in their low half, where `high` shifts them.
            let id = |small: u64| ((small % 7) << high) | (small / 7);
            let seeds: Vec<u64> = seeds.into_iter().map(id).collect();
            let sources: Vec<u64> = sources.into_iter().map(id).collect();

            let mut expected_nodes = seeds.clone();
            let mut map = HashMap::new();
            for (place, &seed) in seeds.iter().enumerate() {
                map.entry(seed).or_insert(place as u32);
            }
            let mut expected = Vec::new();
            for &source in &sources {
                expected.push(*map.entry(source).or_insert_with(|| {
                    expected_nodes.push(source);
                    expected_nodes.len() as u32 - 1
                }));
            }

            let mut locals = Locals::default();
            locals.reset(0, 8 << high);
            locals.wide = high > 20;
            let (mut nodes, mut places) = (seeds.clone(), Vec::new());
            locals.enter_seeds(&seeds);
            for sources in sources.chunks(100) {
                locals.relabel(sources, &mut nodes, &mut places);
            }
            prop_assert_eq!(places, expected);
            prop_assert_eq!(nodes, expected_nodes);
        }
    }
}
