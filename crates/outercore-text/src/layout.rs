//! The columns of an edge in a text.

use crate::dialect::Dialect;

/// The format of an edge text, and the columns of source and target.
#[derive(Clone, Debug)]
pub struct EdgeLayout {
    /// Format of the text.
    pub dialect: Dialect,
    /// The column of the source.
    pub source: usize,
    /// The column of the target.
    pub target: usize,
    /// Number of nodes, if known; larger ids are refused.
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
