//! What an update has changed, and what it has replaced.

use std::collections::BTreeMap;

use outercore_core::{EdgeId, NodeId};

/// Something of the delta, and the update that changed it last.
#[derive(Clone, Debug, Default)]
pub(super) struct Changed<T> {
    pub value: T,
    pub lsn: u64,
}

/// Which parts of the arrays a delta replaces. After a fold, a reader needs to read only these parts
/// again. Takes far less memory than the delta.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// Nodes whose in-edges it replaces, ascending, with how many there are then.
    pub lists: Vec<ReplacedList>,
    /// Nodes whose rows it replaces, ascending, by the key of the array.
    pub rows: BTreeMap<String, Vec<NodeId>>,
}

/// In-edges that a delta replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacedList {
    /// The node.
    pub node: NodeId,
    /// Its in-edges.
    pub degree: u32,
    /// Those from itself.
    pub loops: u32,
}

/// What an update has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// An edge was added, with this id.
    Edge(EdgeId),
    /// A node was added, with this id.
    Node(NodeId),
    /// So many edges were removed.
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
