//! What every algorithm says of itself, and options that several have.

use outercore_core::{Error, Result};
use outercore_grid::{Grid, GridShape};
use serde::{Deserialize, Serialize};

use crate::output::Need;
use crate::program::{Flow, Passes};
use crate::result::AnyRaw;
use crate::teleport::Teleport;

/// An algorithm by its options, which are the fields: what it takes, and how it runs. The defaults
/// are those of the functions of `outercore.analytics`, with which a test compares them.
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

    /// Whether a run of it can leave checkpoints.
    fn leaves_checkpoints(&self) -> Leaves {
        Leaves::Never
    }

    /// What it takes.
    fn need(&self, scale: &Scale<'_>) -> Need;

    /// Runs it.
    ///
    /// # Errors
    /// Those of the algorithm and of the passes.
    fn run<R: Passes>(&self, run: &mut R, teleport: &Teleport) -> Result<AnyRaw>;

    /// Nodes whose value is 0 also where they have no arcs, and so no place in the grid.
    ///
    /// # Errors
    /// Those of looking up places.
    fn zeros<R: Passes>(&self, _run: &mut R) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }
}

/// When a run leaves checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// It has too few passes, or nothing that could be gone on with.
    Never,
    /// Where its state exceeds memory; else it has a single pass.
    WhereSpilled,
    /// Whenever it is asked to.
    Always,
}

/// What the memory of a run depends on beside its options.
pub(crate) struct Scale<'a> {
    /// Sizes of the grid.
    pub(crate) shape: &'a GridShape,
    /// Arcs at the nodes of a partition, at most.
    pub(crate) largest: u64,
    /// Entries of the teleport vector.
    pub(crate) personalized: u64,
}

impl<'a> Scale<'a> {
    /// That of a grid, with `personalized` entries in the teleport vector.
    pub(crate) fn of(grid: &'a Grid, personalized: u64) -> Self {
        let shape = grid.shape();
        let mut arcs = vec![0u64; shape.partitions()];
        for piece in grid.pieces() {
            // At its row and at its column, which for a symmetric grid's edge are both its sources.
            arcs[piece.row_part as usize] += u64::from(piece.edges);
            arcs[piece.col_part as usize] += u64::from(piece.edges);
        }
        Self { shape, largest: arcs.into_iter().max().unwrap_or(0), personalized }
    }
}

/// Checks nodes that an option names.
///
/// # Errors
/// `Invalid`: none at all, or one that is none of `nodes`.
pub(crate) fn require_nodes(name: &str, option: &str, given: &[u64], nodes: u64) -> Result<()> {
    if given.is_empty() {
        return Err(Error::invalid(format!(
            "{name}: `{option}` is empty, expected at least one node"
        )));
    }
    // An empty graph has an empty result and no node to begin with.
    match given.iter().find(|&&node| nodes > 0 && node >= nodes) {
        Some(source) => Err(Error::invalid(format!(
            "{name}: source {source}, the graph has {nodes} nodes (0 to {})",
            nodes - 1
        ))),
        None => Ok(()),
    }
}

/// Which way to follow arcs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowName {
    /// From source to target.
    #[default]
    Out,
    /// From target to source.
    In,
    /// Both ways.
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
    /// One.
    Node(u64),
    /// The nearest of several counts.
    Nodes(Vec<u64>),
}

impl Source {
    /// Their ids.
    pub fn nodes(&self) -> &[u64] {
        match self {
            Self::Node(node) => std::slice::from_ref(node),
            Self::Nodes(nodes) => nodes,
        }
    }
}

/// What a search gives for each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathResult {
    /// How far it is.
    #[default]
    Distances,
    /// The node before it on a shortest path.
    Predecessors,
}

impl PathResult {
    /// Whether it is [`PathResult::Predecessors`].
    pub(crate) fn is_before(self) -> bool {
        self == Self::Predecessors
    }
}
