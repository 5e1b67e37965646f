//! What was built, or was there.

use outercore_core::Bytes;
use serde::Serialize;

use super::encode::Written;
use crate::shape::{GridShape, Order};

/// What was built, or was there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BuildSummary {
    /// Nodes of the graph.
    pub nodes: u64,
    /// Nodes with an arc.
    pub connected: u64,
    /// Arcs of the CSC.
    pub arcs: u64,
    /// Stored edges: half the arcs of a symmetric graph, loops apart.
    pub edges: u64,
    /// Partitions of the nodes.
    pub partitions: u64,
    /// Blocks that have edges.
    pub blocks: u64,
    /// Pieces of those blocks.
    pub pieces: u64,
    /// How the nodes are numbered.
    pub order: Order,
    /// Whether every edge is stored once for two arcs.
    pub symmetric: bool,
    /// Bytes of the pieces, weights and tables apart.
    pub bytes: Bytes,
    /// `bytes` for each arc of the CSC; 0 without arcs.
    pub bytes_per_arc: f64,
    /// Bytes of the arrays that the grid is made of.
    pub input: Bytes,
    /// Bytes written, the temporary file included; 0 if the grid was there.
    pub written: Bytes,
    /// Wall-clock seconds.
    pub seconds: f64,
}

/// The summary of a grid made of `input` bytes, for which `bytes` were written.
pub(super) fn summary(
    shape: &GridShape,
    written: &Written,
    input: u64,
    bytes: u64,
) -> BuildSummary {
    BuildSummary {
        nodes: shape.nodes,
        connected: shape.connected,
        arcs: shape.arcs,
        edges: shape.edges,
        partitions: shape.partitions() as u64,
        blocks: written.blocks,
        pieces: written.pieces,
        order: shape.order,
        symmetric: shape.symmetric,
        bytes: Bytes(written.bytes),
        bytes_per_arc: written.bytes as f64 / shape.arcs.max(1) as f64,
        input: Bytes(input),
        written: Bytes(bytes),
        seconds: 0.0,
    }
}
