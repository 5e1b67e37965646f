//! Where the ends of an edge are in a text.

use crate::dialect::Dialect;

/// Which columns of a text are the ends of an edge.
#[derive(Clone, Debug)]
pub struct EdgeLayout {
    /// How the text is written.
    pub dialect: Dialect,
    /// The column of the source.
    pub source: usize,
    /// The column of the target.
    pub target: usize,
    /// Nodes of the graph, where known; larger ids are refused.
    pub num_nodes: Option<u64>,
    /// Whether an entry of a symmetric matrix also gives its reverse, as the next edge.
    pub mirrored: bool,
}

impl EdgeLayout {
    /// Source and target in the first two columns, any number of nodes.
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, source: 0, target: 1, num_nodes: None, mirrored: true }
    }
}
