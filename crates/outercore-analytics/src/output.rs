//! What algorithms need and return.

use outercore_core::Bytes;

/// Values of all nodes, by node id.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Levels and distances in hops.
    I32(Vec<i32>),
    /// Ids and counts.
    I64(Vec<i64>),
    /// Ranks and distances.
    F64(Vec<f64>),
}

/// What an algorithm takes; pure, beside each algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Bytes of state for each connected node.
    pub state_per_node: u64,
    /// Bytes whatever the graph.
    pub fixed: Bytes,
    /// Bytes of the result.
    pub output: Bytes,
    /// Memory in which more saves passes, where there is any.
    pub working: Option<Working>,
    /// Passes over the grid, where they are known beforehand.
    pub passes: Option<u64>,
}

/// Working memory: from what works at all to where more does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Working {
    /// The least that works.
    pub least: Bytes,
    /// More than this does not help.
    pub most: Bytes,
}

/// The values of the nodes without arcs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Isolated<T> {
    /// The same for all.
    Same(T),
    /// Its own id.
    Itself,
    /// `scale` times the teleport vector's entry of the node.
    Teleport(T),
}

/// A result in the numbering of the grid.
#[derive(Clone, Debug)]
pub struct Raw<T> {
    /// By partition, by local id.
    pub by_partition: Vec<Vec<T>>,
    /// The nodes without arcs.
    pub isolated: Isolated<T>,
    /// What is worth saying beside the values.
    pub facts: serde_json::Map<String, serde_json::Value>,
}
