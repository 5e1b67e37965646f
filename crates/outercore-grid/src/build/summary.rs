//! The summary of a built or existing grid.

use outercore_core::Bytes;
use serde::Serialize;

use super::encode::Written;
use crate::shape::{GridShape, Order};

/// The summary of a built or existing grid.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BuildSummary {
    /// Nodes of the graph.
    pub nodes: u64,
    /// Nodes with an arc.
    pub connected: u64,
    /// Arcs of the CSC.
    pub arcs: u64,
    /// Stored edges: in a symmetric graph half of the arcs, with each loop counted once.
    pub edges: u64,
    /// Number of partitions.
    pub partitions: u64,
    /// Number of blocks with edges.
    pub blocks: u64,
    /// Number of pieces of these blocks.
    pub pieces: u64,
    /// How the nodes are numbered.
    pub order: Order,
    /// Whether every edge is stored once for two arcs.
    pub symmetric: bool,
    /// Bytes of the pieces, without weights and tables.
    pub bytes: Bytes,
    /// `bytes` per arc of the CSC; 0 without arcs.
    pub bytes_per_arc: f64,
    /// Bytes of the input arrays.
    pub input: Bytes,
    /// Bytes written, including the temporary file; 0 if the grid already existed.
    pub written: Bytes,
    /// Wall-clock seconds.
    pub seconds: f64,
}

/// The summary of a grid built from `input` bytes, with `bytes` written.
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
