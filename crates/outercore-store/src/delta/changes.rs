//! The changes of an update, and the parts of the arrays that a delta replaces.

use std::collections::BTreeMap;

use outercore_core::{EdgeId, NodeId};

/// A value of the delta, and the LSN of the update that changed it last.
#[derive(Clone, Debug, Default)]
pub(super) struct Changed<T> {
    pub value: T,
    pub lsn: u64,
}

/// The parts of the arrays that a delta replaces. After a fold, a reader has to read only these
/// parts again. Takes far less memory than the delta.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// Nodes with replaced in-edges, ascending, with their new degrees.
    pub lists: Vec<ReplacedList>,
    /// Nodes with replaced rows, ascending, by the key of the array.
    pub rows: BTreeMap<String, Vec<NodeId>>,
}

/// A node whose in-edges a delta replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacedList {
    /// The node.
    pub node: NodeId,
    /// Number of its in-edges.
    pub degree: u32,
    /// Number of its self-loops.
    pub loops: u32,
}

/// Result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// An edge was added, with this id.
    Edge(EdgeId),
    /// A node was added, with this id.
    Node(NodeId),
    /// This many edges were removed.
    Removed(u64),
    /// Rows of a node were replaced.
    Rows,
    /// A graph was added; its nodes have consecutive ids.
    Graph {
        /// Its id.
        graph: u64,
        /// Id of the first of its nodes.
        first_node: NodeId,
    },
}
