//! Reads the in-neighbours of nodes, one node at a time.

use outercore_core::{NodeId, Result};
use outercore_store::{Extent, Topology};

/// Nodes whose degrees are requested together.
const CHUNK: u64 = 1 << 16;

/// Reads adjacency lists into reused buffers.
pub(super) struct Lists<'a> {
    topology: &'a dyn Topology,
    positions: Vec<u64>,
    sources: Vec<NodeId>,
}

impl<'a> Lists<'a> {
    pub(super) fn new(topology: &'a dyn Topology) -> Self {
        Self { topology, positions: Vec::new(), sources: Vec::new() }
    }

    /// The in-neighbours of a node, ascending.
    pub(super) fn of(&mut self, node: u32) -> Result<&[NodeId]> {
        let mut extent = [Extent::default()];
        self.topology.extents(&[node.into()], &mut extent)?;
        let [Extent { start, degree }] = extent;
        self.positions.clear();
        self.positions.extend(start..start + degree);
        self.sources.resize(degree as usize, 0);
        self.topology.sources(&self.positions, &mut self.sources)?;
        Ok(&self.sources)
    }
}

/// The in-degree of every node, at most 2^32 - 1.
pub(super) fn in_degrees(topology: &dyn Topology) -> Result<Vec<u32>> {
    let nodes = topology.num_nodes();
    let mut degrees = Vec::with_capacity(nodes as usize);
    let mut first = 0;
    while first < nodes {
        let ids: Vec<u64> = (first..(first + CHUNK).min(nodes)).collect();
        let mut extents = vec![Extent::default(); ids.len()];
        topology.extents(&ids, &mut extents)?;
        let degree = |extent: &Extent| u32::try_from(extent.degree).unwrap_or(u32::MAX);
        degrees.extend(extents.iter().map(degree));
        first += CHUNK;
    }
    Ok(degrees)
}
