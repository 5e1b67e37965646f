//! The trait of all algorithms, and options that several of them share.

use outercore_core::{Error, Result};
use outercore_grid::{Grid, GridShape};
use serde::{Deserialize, Serialize};

use crate::output::Need;
use crate::program::{Flow, Passes};
use crate::result::AnyRaw;
use crate::teleport::Teleport;

/// An algorithm with its options as fields: its memory needs, and how it runs. The defaults equal
/// those of the functions of `outercore.analytics`; a test compares them.
pub(crate) trait GraphAlgorithm {
    /// Checks options against a graph of `nodes` nodes.
    ///
    /// # Errors
    /// `Invalid`, naming the option, its value and the accepted range.
    fn validate(&self, _nodes: u64) -> Result<()> {
        Ok(())
    }

    /// The edge array that it reads.
    fn weights(&self) -> Option<&str> {
        None
    }

    /// Whether a run of it writes checkpoints.
    fn leaves_checkpoints(&self) -> Leaves {
        Leaves::Never
    }

    /// The memory that it needs.
    fn need(&self, scale: &Scale<'_>) -> Need;

    /// Runs it.
    ///
    /// # Errors
    /// Errors of the algorithm and of the passes.
    fn run<R: Passes>(&self, run: &mut R, teleport: &Teleport) -> Result<AnyRaw>;

    /// Nodes with value 0 even if they have no arcs, and therefore no place in the grid.
    ///
    /// # Errors
    /// Errors of looking up places.
    fn zeros<R: Passes>(&self, _run: &mut R) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }
}

/// When a run writes checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// It has too few passes, or no state that a run could resume from.
    Never,
    /// Only if its state exceeds memory; otherwise it has a single pass.
    WhereSpilled,
    /// Whenever the caller requests it.
    Always,
}

/// Inputs for the memory of a run, in addition to its options.
pub(crate) struct Scale<'a> {
    /// Sizes of the grid.
    pub(crate) shape: &'a GridShape,
    /// Most arcs at the nodes of one partition.
    pub(crate) largest: u64,
    /// Number of entries of the teleport vector.
    pub(crate) personalized: u64,
}

impl<'a> Scale<'a> {
    /// The scale of a grid, with `personalized` entries in the teleport vector.
    pub(crate) fn of(grid: &'a Grid, personalized: u64) -> Self {
        let shape = grid.shape();
        let mut arcs = vec![0u64; shape.partitions()];
        for piece in grid.pieces() {
            // Counted at its row and at its column, because both are sources of a symmetric grid's
            // edge.
            arcs[piece.row_part as usize] += u64::from(piece.edges);
            arcs[piece.col_part as usize] += u64::from(piece.edges);
        }
        Self { shape, largest: arcs.into_iter().max().unwrap_or(0), personalized }
    }
}

/// Checks nodes given in an option.
///
/// # Errors
/// `Invalid`: no nodes, or an id that is not below `nodes`.
pub(crate) fn require_nodes(name: &str, option: &str, given: &[u64], nodes: u64) -> Result<()> {
    if given.is_empty() {
        return Err(Error::invalid(format!(
            "{name}: `{option}` is empty, expected at least one node"
        )));
    }
    // An empty graph has an empty result, and no start node.
    match given.iter().find(|&&node| nodes > 0 && node >= nodes) {
        Some(source) => Err(Error::invalid(format!(
            "{name}: source {source}, the graph has {nodes} nodes (0 to {})",
            nodes - 1
        ))),
        None => Ok(()),
    }
}

/// The direction in which to follow arcs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowName {
    /// From source to target.
    #[default]
    Out,
    /// From target to source.
    In,
    /// In both directions.
    Both,
}

impl From<FlowName> for Flow {
    fn from(name: FlowName) -> Self {
        match name {
            FlowName::Out => Self::Along,
            FlowName::In => Self::Against,
            FlowName::Both => Self::Both,
        }
    }
}

/// One node, or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a node or a list of nodes")]
pub enum Source {
    /// One node.
    Node(u64),
    /// Several nodes; the nearest one counts.
    Nodes(Vec<u64>),
}

impl Source {
    /// The ids of the source nodes.
    pub fn nodes(&self) -> &[u64] {
        match self {
            Self::Node(node) => std::slice::from_ref(node),
            Self::Nodes(nodes) => nodes,
        }
    }
}

/// The result of a search for each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathResult {
    /// The distance from the source.
    #[default]
    Distances,
    /// The previous node on a shortest path.
    Predecessors,
}

impl PathResult {
    /// Whether this is [`PathResult::Predecessors`].
    pub(crate) fn is_before(self) -> bool {
        self == Self::Predecessors
    }
}
