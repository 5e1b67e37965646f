//! A topology with the changes of a delta.

use outercore_core::{EdgeId, NodeId, ReadCounters, Result};

use super::{CHANGED, Delta, INDEX_BITS};
use crate::ids::{no_such_node, no_such_position};
use crate::topology::resident::ResidentTopology;
use crate::topology::{Extent, Topology};

/// The topology of a snapshot: unchanged lists from the arrays, changed ones from the delta.
///
/// Positions of edges in changed lists are beyond the positions of any file.
#[derive(Clone, Copy)]
pub struct Overlay<'a> {
    base: &'a dyn Topology,
    delta: &'a Delta,
}

impl<'a> Overlay<'a> {
    /// `base` with the changes of `delta`.
    pub fn new(base: &'a dyn Topology, delta: &'a Delta) -> Self {
        Self { base, delta }
    }

    /// The base topology if it is unchanged, which avoids the cost of the overlay.
    pub fn topology(&'a self) -> &'a dyn Topology {
        if self.delta.keeps_topology() { self.base } else { self }
    }

    fn extent(&self, node: NodeId) -> Option<Extent> {
        match self.delta.list(node) {
            Some(list) => Some(Extent { start: CHANGED | node << INDEX_BITS, degree: list.len() }),
            None => (node >= self.base.num_nodes()).then(Extent::default),
        }
    }

    fn edge(&self, position: u64) -> Result<(NodeId, EdgeId)> {
        let node = (position & !CHANGED) >> INDEX_BITS;
        let index = position & ((1 << INDEX_BITS) - 1);
        let found = self.delta.list(node).and_then(|list| list.get(index));
        found.ok_or_else(|| no_such_position(position, self.delta.num_edges()))
    }

    /// Looks up positions of changed lists in the delta, and all others in the arrays.
    fn look_up(
        &self,
        positions: &[u64],
        answers: &mut [u64],
        changed: impl Fn((NodeId, EdgeId)) -> u64,
        ask: impl Fn(&[u64], &mut [u64]) -> Result<()>,
    ) -> Result<()> {
        assert_eq!(positions.len(), answers.len(), "one place in the answer for each position");
        if positions.iter().all(|position| position & CHANGED == 0) {
            return ask(positions, answers);
        }
        let (mut places, mut others) = (Vec::new(), Vec::new());
        for (place, &position) in positions.iter().enumerate() {
            if position & CHANGED == 0 {
                places.push(place);
                others.push(position);
            } else {
                answers[place] = changed(self.edge(position)?);
            }
        }
        let mut found = vec![0; others.len()];
        ask(&others, &mut found)?;
        places.into_iter().zip(found).for_each(|(place, answer)| answers[place] = answer);
        Ok(())
    }
}

impl Topology for Overlay<'_> {
    fn num_nodes(&self) -> u64 {
        self.delta.num_nodes()
    }

    fn num_edges(&self) -> u64 {
        self.delta.num_edges()
    }

    fn extents(&self, nodes: &[NodeId], extents: &mut [Extent]) -> Result<()> {
        assert_eq!(nodes.len(), extents.len(), "one place in the answer for each node");
        let count = self.num_nodes();
        if let Some(&node) = nodes.iter().find(|&&node| node >= count) {
            return Err(no_such_node(node, count));
        }
        let (mut places, mut others) = (Vec::new(), Vec::new());
        for (place, &node) in nodes.iter().enumerate() {
            match self.extent(node) {
                Some(extent) => extents[place] = extent,
                None => {
                    places.push(place);
                    others.push(node);
                }
            }
        }
        let mut found = vec![Extent::default(); others.len()];
        self.base.extents(&others, &mut found)?;
        places.into_iter().zip(found).for_each(|(place, extent)| extents[place] = extent);
        Ok(())
    }

    fn sources(&self, positions: &[u64], sources: &mut [NodeId]) -> Result<()> {
        self.look_up(
            positions,
            sources,
            |edge| edge.0,
            |wanted, found| self.base.sources(wanted, found),
        )
    }

    fn edge_ids(&self, positions: &[u64], ids: &mut [EdgeId]) -> Result<()> {
        self.look_up(
            positions,
            ids,
            |edge| edge.1,
            |wanted, found| self.base.edge_ids(wanted, found),
        )
    }

    fn resident(&self) -> Option<&ResidentTopology> {
        self.delta.keeps_topology().then(|| self.base.resident()).flatten()
    }

    fn read_counters(&self) -> ReadCounters {
        self.base.read_counters()
    }
}
