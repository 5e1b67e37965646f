//! Results of an import of edges, and the columns of an edge in a text.

use std::collections::BTreeMap;

use outercore_format::{ArrayEntry, EdgeType, keys};
use outercore_text::Dialect;
use serde::{Deserialize, Serialize};

/// The edges of a data set: arrays that are complete on disk, and counts of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeArtifacts {
    /// Number of nodes.
    pub num_nodes: u64,
    /// Number of arcs in the CSC.
    pub num_edges: u64,
    /// Number of input edges.
    pub input_edges: u64,
    /// Whether every input edge gave an arc in each direction.
    pub undirected: bool,
    /// All edge ids are below this.
    pub edge_rows: u64,
    /// Self-loops of the input that were dropped.
    pub loops_dropped: u64,
    /// Self-loops that were added.
    pub loops_added: u64,
    /// Arcs that were dropped because another arc has the same source and target.
    pub duplicates_dropped: u64,
    /// Comment lines in edge texts.
    #[serde(default)]
    pub comment_lines: u64,
    /// Lines of edge texts that repeat the header of their file.
    #[serde(default)]
    pub repeated_headers: u64,
    /// Ids in edge texts with leading zeros, such as `007`.
    #[serde(default)]
    pub padded_ids: u64,
    /// The manifest's entries by key.
    pub arrays: BTreeMap<String, ArrayEntry>,
}

impl EdgeArtifacts {
    /// The manifest's entry for the edge type.
    pub fn edge_type(&self) -> EdgeType {
        EdgeType {
            source: keys::NODE.to_owned(),
            target: keys::NODE.to_owned(),
            count: self.num_edges,
            undirected: self.undirected,
            rows: Some(self.edge_rows),
        }
    }
}

/// Format of an edge text, and the columns of an edge's ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeText {
    /// Format of the text.
    pub dialect: Dialect,
    /// The column of the source.
    pub source: usize,
    /// The column of the target.
    pub target: usize,
}
