//! Maps global to local node ids.

use outercore_core::NodeId;
use outercore_io::prefetch;

use crate::stored::Stored;

/// Sources whose slots are computed together.
const AT_ONCE: usize = 1024;

/// How many sources ahead the slots are prefetched.
const AHEAD: usize = 16;

/// Most places that leave at least one bit for the generation.
pub(crate) const MOST_PLACES: usize = 1 << 31;

/// A hash table from the nodes of a batch to their places in it: open addressing, at most half
/// full.
///
/// A slot has 32 bits: the place of a node, and above it the batch's generation. The place has as
/// many bits as the table can hold places. The node itself is found in the batch's list. Slots of
/// other generations count as empty, so the table is cleared only once in thousands of batches.
#[derive(Debug)]
pub(crate) struct Locals {
    slots: Vec<u32>,
    /// The most slots of a sparse table, which is at most an eighth full. Fewer nodes then find
    /// their slot occupied, which a branch predictor cannot foresee.
    most_sparse: usize,
    shift: u32,
    /// Number of places; a power of two.
    places: u32,
    /// The generation, stored in the bits above the place; a multiple of `places`.
    generation: u32,
    /// The highest number of nodes that the current batch needed room for.
    entered: usize,
}

impl Locals {
    /// An empty table without memory; it is sparse as long as it has at most `most_sparse` slots.
    pub(crate) fn new(most_sparse: usize) -> Self {
        Self { slots: Vec::new(), most_sparse, shift: 0, places: 0, generation: 0, entered: 0 }
    }

    /// Empties the table and makes room for `room` nodes.
    ///
    /// It starts as large as the last batch made it, so that similar batches never rebuild it.
    pub(crate) fn reset(&mut self, room: usize) {
        let room = room.max(self.entered);
        match self.generation.checked_add(self.places) {
            Some(next) if self.table_len(room) == self.slots.len() => self.generation = next,
            _ => self.allocate(room),
        }
        self.entered = 0;
    }

    /// Adds the seeds; a duplicate keeps the place of its first occurrence.
    pub(crate) fn enter_seeds<N: Stored>(&mut self, seeds: &[N]) {
        self.reserve(seeds, 0);
        self.enter_all(seeds);
    }

    /// Appends the places of `sources` to `places`, and the new nodes among them to `nodes`.
    ///
    /// Calls `meanwhile` for each source, so the caller can overlap memory reads with this work.
    ///
    /// The caller ensures that there are at most [`MOST_PLACES`].
    pub(crate) fn relabel<N: Stored>(
        &mut self,
        sources: &[NodeId],
        nodes: &mut Vec<N>,
        places: &mut Vec<u32>,
        meanwhile: impl Fn(usize) + Copy,
    ) {
        for (chunk, sources) in sources.chunks(AT_ONCE).enumerate() {
            self.reserve(nodes, sources.len());
            self.relabel_few(sources, nodes, places, move |i| meanwhile(chunk * AT_ONCE + i));
        }
    }

    /// Whether `node` is among `nodes`, which must be all nodes added so far.
    pub(crate) fn contains<N: Stored>(&self, node: NodeId, nodes: &[N]) -> bool {
        if nodes.is_empty() {
            return false;
        }
        let (mut at, mask) = (self.home(node), self.slots.len() - 1);
        loop {
            // A slot of an earlier generation gives a number above all places.
            let place = self.slots[at].wrapping_sub(self.generation) as usize;
            match nodes.get(place) {
                None => return false,
                Some(&found) if found.into() == node => return true,
                Some(_) => at = (at + 1) & mask,
            }
        }
    }

    fn relabel_few<N: Stored>(
        &mut self,
        sources: &[NodeId],
        nodes: &mut Vec<N>,
        places: &mut Vec<u32>,
        meanwhile: impl Fn(usize) + Copy,
    ) {
        let mut homes = [0u32; AT_ONCE + AHEAD];
        for (home, &source) in homes.iter_mut().zip(sources) {
            *home = self.home(source) as u32;
        }
        let (mut count, first) = (nodes.len(), places.len());
        nodes.resize(count + sources.len(), N::default());
        places.resize(first + sources.len(), 0);
        for (i, (&source, place)) in sources.iter().zip(&mut places[first..]).enumerate() {
            prefetch(&self.slots, homes[i + AHEAD] as usize);
            meanwhile(i);
            // No branch predictor can foresee whether a node is new. The node is therefore always
            // written at the end. If it has no earlier place, the search finds it there, and the
            // end advances by one.
            nodes[count] = N::of(source);
            let (at, found) = self.find(homes[i] as usize, count, nodes);
            *place = found;
            self.slots[at] = self.generation + found;
            count += usize::from(found as usize == count);
        }
        nodes.truncate(count);
    }

    /// The slot and the first place of the node at place `last`; all nodes before it have been
    /// added.
    #[inline(always)]
    fn find<N: Stored>(&self, home: usize, last: usize, nodes: &[N]) -> (usize, u32) {
        let (node, mask) = (nodes[last], self.slots.len() - 1);
        let mut at = home;
        loop {
            // A slot of an earlier generation gives a number above all places.
            let place = self.slots[at].wrapping_sub(self.generation).min(last as u32);
            if nodes[place as usize] == node {
                return (at, place);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline]
    fn home(&self, node: NodeId) -> usize {
        (node.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize
    }

    /// Makes room for `more` nodes in addition to `nodes`, which must be all nodes added so far.
    fn reserve<N: Stored>(&mut self, nodes: &[N], more: usize) {
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

    fn enter_all<N: Stored>(&mut self, nodes: &[N]) {
        for (last, &node) in nodes.iter().enumerate() {
            let (at, place) = self.find(self.home(node.into()), last, nodes);
            self.slots[at] = self.generation + place;
        }
    }

    /// Number of slots for `room` nodes.
    fn table_len(&self, room: usize) -> usize {
        let dense = (room * 2).next_power_of_two().max(64);
        (dense * 4).min(self.most_sparse).max(dense)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// The places of `sources` after `seeds`, and the resulting nodes.
    fn relabelled<N: Stored>(
        locals: &mut Locals,
        seeds: &[u64],
        sources: &[u64],
    ) -> (Vec<u64>, Vec<u32>) {
        let mut nodes: Vec<N> = seeds.iter().map(|&seed| N::of(seed)).collect();
        let mut places = Vec::new();
        locals.reset(0);
        locals.enter_seeds(&nodes);
        for sources in sources.chunks(100) {
            locals.relabel(sources, &mut nodes, &mut places, |_| ());
        }
        (nodes.into_iter().map(Into::into).collect(), places)
    }

    proptest! {
        #[test]
        fn what_earlier_batches_left_is_as_good_as_empty(
            batches in proptest::collection::vec(
                proptest::collection::vec(0u64..81, 1..31), 8..12,
            ),
            most_sparse in prop_oneof![Just(0usize), Just(256), Just(1 << 20)],
        ) {
            let mut locals = Locals::new(most_sparse);
            locals.reset(0);
            // The generations run out within these batches and start again.
            locals.generation = u32::MAX - (4 * locals.places - 1);
            for sources in batches {
                let (nodes, places) =
                    relabelled::<u32>(&mut locals, &sources[..1], &sources);
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
            // Ids that agree in their low half if `high` shifts them that far.
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
            let found = relabelled::<u64>(&mut locals, &seeds, &sources);
            prop_assert_eq!(&found, &(expected_nodes, expected));
            if high < 28 {
                prop_assert_eq!(relabelled::<u32>(&mut locals, &seeds, &sources), found);
            }
        }
    }
}
