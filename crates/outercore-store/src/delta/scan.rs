//! Finds the targets of a node, which a CSC does not store.

use outercore_core::{NodeId, Result};

use super::Delta;
use crate::topology::{Extent, Topology};

/// Nodes and edges that are examined together.
const CHUNK: u64 = 64 << 10;

impl Delta {
    /// The nodes to which `node` has an arc, ascending.
    ///
    /// **Cost** one pass over the sources of all edges.
    pub(super) fn targets_of(&self, node: NodeId, base: &dyn Topology) -> Result<Vec<NodeId>> {
        let mut targets: Vec<NodeId> = self
            .lists
            .iter()
            .filter(|(_, list)| list.value.count(node) > 0)
            .map(|(&target, _)| target)
            .collect();
        let mut first = 0;
        while first < self.schema.nodes {
            let nodes: Vec<NodeId> = (first..(first + CHUNK).min(self.schema.nodes)).collect();
            let mut extents = vec![Extent::default(); nodes.len()];
            base.extents(&nodes, &mut extents)?;
            self.unchanged_targets(node, &nodes, &extents, base, &mut targets)?;
            first += CHUNK;
        }
        targets.sort_unstable();
        Ok(targets)
    }

    /// Appends the nodes in `nodes` whose unchanged lists have an edge from `source`.
    fn unchanged_targets(
        &self,
        source: NodeId,
        nodes: &[NodeId],
        extents: &[Extent],
        base: &dyn Topology,
        targets: &mut Vec<NodeId>,
    ) -> Result<()> {
        let start = extents.first().map_or(0, |extent| extent.start);
        let end = extents.last().map_or(0, |extent| extent.start + extent.degree);
        let (mut at, mut place) = (start, 0);
        while at < end {
            let positions: Vec<u64> = (at..(at + CHUNK).min(end)).collect();
            let mut sources = vec![0; positions.len()];
            base.sources(&positions, &mut sources)?;
            for (&position, _) in positions.iter().zip(&sources).filter(|(_, s)| **s == source) {
                while extents[place].start + extents[place].degree <= position {
                    place += 1;
                }
                let target = nodes[place];
                if targets.last() != Some(&target) && !self.lists.contains_key(&target) {
                    targets.push(target);
                }
            }
            at += CHUNK;
        }
        Ok(())
    }
}
