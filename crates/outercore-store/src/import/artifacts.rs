//! What an import of edges makes, and where the ends of an edge are in a text.

use std::collections::BTreeMap;

use outercore_format::{ArrayEntry, EdgeType, keys};
use outercore_text::Dialect;
use serde::{Deserialize, Serialize};

/// The edges of a data set: arrays that are complete on disk, and what became of the input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeArtifacts {
    /// Nodes of the graph.
    pub num_nodes: u64,
    /// Arcs of the CSC.
    pub num_edges: u64,
    /// Edges of the input.
    pub input_edges: u64,
    /// Whether every input edge gave an arc in either direction.
    pub undirected: bool,
    /// All edge ids are below this.
    pub edge_rows: u64,
    /// Self-loops of the input that were left out.
    pub loops_dropped: u64,
    /// Self-loops that were added.
    pub loops_added: u64,
    /// Arcs left out because another one has the same source and target.
    pub duplicates_dropped: u64,
    /// Comment lines that texts of edges hold.
    #[serde(default)]
    pub comment_lines: u64,
    /// Lines of texts of edges that repeat the header of their file.
    #[serde(default)]
    pub repeated_headers: u64,
    /// Ids in texts of edges with zeros in front, such as `007`.
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

/// Where the ends of an edge are in a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdgeText {
    /// How the text is written.
    pub dialect: Dialect,
    /// The column of the source.
    pub source: usize,
    /// The column of the target.
    pub target: usize,
}
