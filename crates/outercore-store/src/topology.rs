//! The topology seam: what a sampler or an engine may ask of a graph's edges.

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
/// A column is a node; in a graph of several edge types it is a pair of edge type and target, as
/// [`Schema`](outercore_format::Schema) numbers them.
///
/// Where to look is decided by the caller (a sampler picks positions from a degree alone, without
/// seeing a neighbour), so that an implementation on disk reads just the pages that hold picked
/// positions. Implementations are asked for many nodes or positions at once; order and duplicates
/// are free.
pub trait Topology: Send + Sync {
    /// Nodes of the graph.
    fn num_nodes(&self) -> u64;

    /// Columns of the CSC: as many as nodes where there is one edge type.
    fn num_columns(&self) -> u64 {
        self.num_nodes()
    }

    /// Edges of the graph (arcs of the CSC).
    fn num_edges(&self) -> u64;

    /// `extents[i]` becomes the in-edges of `columns[i]`.
    ///
    /// # Errors
    /// A column out of range; a failed read; an offset that contradicts its neighbours.
    fn extents(&self, columns: &[NodeId], extents: &mut [Extent]) -> Result<()>;

    /// `sources[i]` becomes the source node of the edge at `positions[i]`.
    ///
    /// # Errors
    /// A position out of range; a failed read; a source id that is not below `num_nodes`.
    fn sources(&self, positions: &[u64], sources: &mut [NodeId]) -> Result<()>;

    /// `ids[i]` becomes the row in the imported edge list of the edge at `positions[i]`.
    ///
    /// # Errors
    /// As [`Topology::sources`].
    fn edge_ids(&self, positions: &[u64], ids: &mut [EdgeId]) -> Result<()>;

    /// The topology itself if it is in memory, so that many small calls from several threads cost
    /// no more than one large one.
    fn resident(&self) -> Option<&ResidentTopology> {
        None
    }

    /// Reads done so far; zero for a resident topology.
    fn read_counters(&self) -> ReadCounters {
        ReadCounters::default()
    }
}
