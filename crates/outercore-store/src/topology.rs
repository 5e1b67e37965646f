//! The trait for access to a graph's edges.

use std::ops::Range;

use outercore_core::{EdgeId, NodeId, ReadCounters, Result};

pub mod resident;

use resident::ResidentTopology;

/// The in-edges of one node in CSC order: positions `start .. start + degree`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Position of the first in-edge.
    pub start: u64,
    /// Number of in-edges.
    pub degree: u64,
}

impl Extent {
    /// The positions of the in-edges.
    pub fn positions(&self) -> Range<u64> {
        self.start..self.start + self.degree
    }
}

/// In-neighbours by position in CSC order.
///
/// A column is a node; in a graph with several edge types it is a pair of edge type and target,
/// numbered as in [`Schema`](outercore_format::Schema).
///
/// The caller chooses the positions: a sampler picks them from a degree, without reading a
/// neighbour. So an implementation on disk reads only the pages with the chosen positions. Calls
/// take many nodes or positions at once, in any order and with duplicates.
pub trait Topology: Send + Sync {
    /// Number of nodes.
    fn num_nodes(&self) -> u64;

    /// Number of CSC columns, which is the number of nodes if there is one edge type.
    fn num_columns(&self) -> u64 {
        self.num_nodes()
    }

    /// Number of edges (arcs of the CSC).
    fn num_edges(&self) -> u64;

    /// Writes the extent of `columns[i]` to `extents[i]`.
    ///
    /// # Errors
    /// A column out of range; a failed read; an offset that contradicts its neighbours.
    fn extents(&self, columns: &[NodeId], extents: &mut [Extent]) -> Result<()>;

    /// Writes the source node of the edge at `positions[i]` to `sources[i]`.
    ///
    /// # Errors
    /// A position out of range; a failed read; a source id of `num_nodes` or more.
    fn sources(&self, positions: &[u64], sources: &mut [NodeId]) -> Result<()>;

    /// Writes the edge id of the edge at `positions[i]`, its row in the imported edge list, to
    /// `ids[i]`.
    ///
    /// # Errors
    /// As [`Topology::sources`].
    fn edge_ids(&self, positions: &[u64], ids: &mut [EdgeId]) -> Result<()>;

    /// The topology in memory, if it is resident. Many small calls from several threads then cost
    /// no more than one large call.
    fn resident(&self) -> Option<&ResidentTopology> {
        None
    }

    /// Counters of reads so far; zero for a resident topology.
    fn read_counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}
