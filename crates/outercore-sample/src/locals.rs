//! Global to local node ids.

use outercore_core::NodeId;
use outercore_io::prefetch;

/// Sources whose slots are computed together.
const AT_ONCE: usize = 1024;

/// How many sources ahead their slots are called for.
const AHEAD: usize = 16;

/// Places that leave a bit for one generation.
pub(crate) const MOST_PLACES: usize = 1 << 31;

/// A table from the nodes of a batch to their places in it, open addressing, at most half full.
///
/// A slot is one word: the low half of the node; then the batch's generation and the node's place,
/// which has as many bits as the table may hold places. What other generations left is as good as
/// empty, so that a table is cleared once in thousands of batches. Where node ids need more than 32
/// bits, the batch's node list settles what the low half leaves open.
#[derive(Debug)]
pub(crate) struct Locals {
    slots: Vec<u64>,
    /// The most slots of a sparse table: a quarter full at most, so that fewer nodes find their slot
    /// taken, which no branch could foresee.
    most_sparse: usize,
    shift: u32,
    /// Places that fit; a power of two.
    places: u32,
    /// The generation, above all places; at least `places`.
    generation: u32,
    wide: bool,
    /// Nodes that the table has room for, as far as it was needed.
    entered: usize,
}

impl Locals {
    /// A table that takes no memory yet; up to `most_sparse` slots it will be sparse.
    pub(crate) fn new(most_sparse: usize) -> Self {
        Self {
            slots: Vec::new(),
            most_sparse,
            shift: 0,
            places: 0,
            generation: 0,
            wide: false,
            entered: 0,
        }
    }

    /// Empties the table and makes room for `room` nodes of a graph of `graph_nodes`.
    ///
    /// It begins as large as the last batch made it, so that batches alike never rebuild it.
    pub(crate) fn reset(&mut self, room: usize, graph_nodes: u64) {
        self.wide = graph_nodes > 1 << 32;
        let room = room.max(self.entered);
        match self.generation.checked_add(self.places) {
            Some(next) if self.table_len(room) == self.slots.len() => self.generation = next,
            _ => self.allocate(room),
        }
        self.entered = 0;
    }

    /// Enters the seeds; of duplicates the first.
    pub(crate) fn enter_seeds(&mut self, seeds: &[NodeId]) {
        self.reserve(seeds, 0);
        self.enter_all(seeds);
    }

    /// Appends the places of `sources` to `places`, and to `nodes` those that are new.
    ///
    /// With each of them it calls `meanwhile`, which may hide reads of its own behind this work.
    ///
    /// The caller sees to it that there are at most [`MOST_PLACES`].
    pub(crate) fn relabel(
        &mut self,
        sources: &[NodeId],
        nodes: &mut Vec<NodeId>,
        places: &mut Vec<u32>,
        meanwhile: impl Fn(usize),
    ) {
        for (chunk, sources) in sources.chunks(AT_ONCE).enumerate() {
            self.reserve(nodes, sources.len());
            let meanwhile = |i| meanwhile(chunk * AT_ONCE + i);
            if self.wide {
                self.relabel_few::<true>(sources, nodes, places, meanwhile);
            } else {
                self.relabel_few::<false>(sources, nodes, places, meanwhile);
            }
        }
    }

    fn relabel_few<const WIDE: bool>(
        &mut self,
        sources: &[NodeId],
        nodes: &mut Vec<NodeId>,
        places: &mut Vec<u32>,
        meanwhile: impl Fn(usize),
    ) {
        let mut homes = [0u32; AT_ONCE + AHEAD];
        for (home, &source) in homes.iter_mut().zip(sources) {
            *home = self.home(source) as u32;
        }
        // Whether a node is new no branch could foresee: it is always written at the end, and the
        // end moves on by whether it was.
        let (mut count, first) = (nodes.len(), places.len());
        nodes.resize(count + sources.len(), 0);
        places.resize(first + sources.len(), 0);
        for (i, (&source, place)) in sources.iter().zip(&mut places[first..]).enumerate() {
            prefetch(&self.slots, homes[i + AHEAD] as usize);
            meanwhile(i);
            let home = homes[i] as usize;
            let (at, held) = self.find::<WIDE>(home, source, nodes);
            let new = held >= self.places;
            *place = if new { count as u32 } else { held };
            self.slots[at] = self.entry(source, *place);
            nodes[count] = source;
            count += usize::from(new);
        }
        nodes.truncate(count);
    }

    /// The slot of `node` and its place; no place that fits if it has none yet.
    #[inline(always)]
    fn find<const WIDE: bool>(&self, home: usize, node: NodeId, nodes: &[NodeId]) -> (usize, u32) {
        let mask = self.slots.len() - 1;
        let mut at = home;
        loop {
            let slot = self.slots[at];
            let differs = (slot >> 32) as u32 ^ node as u32;
            // Of an earlier generation it is above all places, too.
            let place = (slot as u32).wrapping_sub(self.generation);
            let held = place < self.places;
            // Another node's slot: held, and its id differs. Taken together it is one branch, rarely
            // taken; as two conditions the first would be a toss of a coin.
            let mut other = held & (differs != 0);
            if WIDE && !other && held {
                other = nodes[place as usize] != node;
            }
            if !other {
                return (at, place);
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
        if self.table_len(room) > self.slots.len() {
            self.allocate(room);
            self.enter_all(nodes);
        }
    }

    fn allocate(&mut self, room: usize) {
        let len = self.table_len(room);
        self.slots.clear();
        self.slots.resize(len, 0);
        self.shift = u64::BITS - len.trailing_zeros();
        self.places = (len / 2).min(MOST_PLACES) as u32;
        self.generation = self.places;
    }

    fn enter_all(&mut self, nodes: &[NodeId]) {
        for (place, &node) in nodes.iter().enumerate() {
            let home = self.home(node);
            let (at, held) = if self.wide {
                self.find::<true>(home, node, nodes)
            } else {
                self.find::<false>(home, node, nodes)
            };
            if held >= self.places {
                self.slots[at] = self.entry(node, place as u32);
            }
        }
    }

    /// Slots for `room` nodes.
    fn table_len(&self, room: usize) -> usize {
        let dense = (room * 2).next_power_of_two().max(64);
        (dense * 2).min(self.most_sparse).max(dense)
    }

    #[inline(always)]
    fn entry(&self, node: NodeId, place: u32) -> u64 {
        u64::from(node as u32) << 32 | u64::from(self.generation + place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn what_earlier_batches_left_is_as_good_as_empty(
            batches in proptest::collection::vec(
                proptest::collection::vec((0u64..9, 0u64..9), 1..31), 8..12,
            ),
            wide in any::<bool>(),
            most_sparse in prop_oneof![Just(0usize), Just(256), Just(1 << 20)],
        ) {
            let mut locals = Locals::new(most_sparse);
            locals.reset(0, 100);
            // Within these batches the generations come to their end and begin anew.
            locals.generation = u32::MAX - (4 * locals.places - 1);
            for sources in batches {
                // Wide ids agree in their low halves.
                let id = |(low, high)| low | high << if wide { 32 } else { 8 };
                let sources: Vec<u64> = sources.into_iter().map(id).collect();
                locals.reset(0, 9 << if wide { 32 } else { 8 });
                prop_assert_eq!(locals.wide, wide);
                let (mut nodes, mut places) = (vec![sources[0]], Vec::new());
                locals.enter_seeds(&nodes);
                locals.relabel(&sources, &mut nodes, &mut places, |_| ());
                let mut distinct: Vec<u64> = Vec::new();
                for &source in &sources {
                    if !distinct.contains(&source) {
                        distinct.push(source);
                    }
                }
                prop_assert_eq!(&nodes, &distinct);
                let found: Vec<u64> = places.iter().map(|&place| nodes[place as usize]).collect();
                prop_assert_eq!(found, sources);
            }
        }

        #[test]
        fn places_equal_those_of_a_hash_map(
            seeds in proptest::collection::vec(0u64..50, 0..20),
            sources in proptest::collection::vec(0u64..300, 0..600),
            high in 0u32..40,
            most_sparse in prop_oneof![Just(0usize), Just(256), Just(1 << 20)],
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

            let mut locals = Locals::new(most_sparse);
            locals.reset(0, 8 << high);
            locals.wide = high > 20;
            let (mut nodes, mut places) = (seeds.clone(), Vec::new());
            locals.enter_seeds(&seeds);
            for sources in sources.chunks(100) {
                locals.relabel(sources, &mut nodes, &mut places, |_| ());
            }
            prop_assert_eq!(places, expected);
            prop_assert_eq!(nodes, expected_nodes);
        }
    }
}
