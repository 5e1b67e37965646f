//! Rules that decide, in addition to degrees, which in-edges of a node may be sampled and how
//! likely each is.

mod candidates;
mod hgt;
mod ladies;
mod latest;
mod pick;

use std::sync::Arc;

use outercore_core::{Error, Result};
use outercore_store::row_values::RowValues;
use serde::{Deserialize, Serialize};

pub(crate) use candidates::{Picked, RuledColumns, Spans, pieces};
pub(crate) use hgt::NodeBudget;

use crate::seeds::Seeds;

/// Rules in addition to the fan-out. By default any in-edge may be sampled, each equally likely.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Samples the neighbourhood of each seed separately: a node that two seeds reach is in the
    /// batch twice.
    pub disjoint: bool,
    /// How likely each edge is to be sampled.
    pub choice: Choice,
    /// Which edges a batch contains.
    pub subgraph: Subgraph,
    /// Times that limit which edges a seed may see. The neighbourhoods of seeds are then disjoint.
    pub times: Option<Times>,
    /// How many edges are examined together. This bounds memory and does not change the result.
    pub together: Together,
}

/// Bytes per edge that rules examine: position, row, weight, time, source and places.
pub const LOOK_BYTES: u64 = 64;

/// A number of edges that rules examine together, or of nodes that have scores at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together(pub u64);

impl Default for Together {
    fn default() -> Self {
        Self::MOST
    }
}

impl Together {
    /// More edges bring no speed.
    pub const MOST: Self = Self(1 << 20);
    /// Fewer edges would need many small reads.
    pub const LEAST: Self = Self(1 << 12);

    /// The number of edges that fit into `bytes`, between [`Self::LEAST`] and [`Self::MOST`].
    #[must_use]
    pub fn within(bytes: u64) -> Self {
        Self((bytes / LOOK_BYTES).clamp(Self::LEAST.0, Self::MOST.0))
    }

    /// Bytes of memory of these edges.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0 * LOOK_BYTES
    }
}

/// Name of a choice of neighbours in configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// For each node separately: [`Choice::Uniform`], or [`Choice::Weighted`] with weights.
    #[default]
    Neighbor,
    /// [`Choice::Labor`].
    Labor,
    /// [`Choice::Ladies`].
    Ladies,
    /// [`Choice::Hgt`]; a fan-out is the number of nodes of one node type in a whole hop.
    Hgt,
}

impl Method {
    /// The choice of this name.
    ///
    /// # Errors
    /// `Invalid` for weights, if the method takes none.
    pub fn choice(self, weights: Option<Vec<Option<Arc<RowValues>>>>) -> Result<Choice> {
        match (self, weights) {
            (Self::Neighbor, Some(weights)) => Ok(Choice::Weighted(weights)),
            (_, Some(_)) => Err(Error::invalid("LABOR, LADIES and HGT sampling take no weights")
                .hint("leave one of the two out")),
            (Self::Neighbor, None) => Ok(Choice::Uniform),
            (Self::Labor, None) => Ok(Choice::Labor),
            (Self::Ladies, None) => Ok(Choice::Ladies),
            (Self::Hgt, None) => Ok(Choice::Hgt),
        }
    }
}

/// How likely each in-edge of a node is to be sampled.
#[derive(Clone, Debug, Default)]
pub enum Choice {
    /// All in-edges are equally likely.
    #[default]
    Uniform,
    /// In proportion to weights, given by edge type and row within it. In an edge type without
    /// weights, each edge has weight 1. An edge of weight 0 is never sampled.
    ///
    /// **Source** without replacement: Efraimidis and Spirakis, "Weighted random sampling with a
    /// reservoir", Information Processing Letters 97(5), 2006.
    Weighted(Vec<Option<Arc<RowValues>>>),
    /// All edges with the same source share one random number, so neighbours of several nodes are
    /// sampled together. This gives fewer nodes for as many edges. A node with `d` in-edges takes
    /// the edges whose source's number is at most `fan-out / d`.
    ///
    /// **Source** LABOR-0 of Balin and Çatalyürek, "Layer-Neighbor Sampling", NeurIPS 2023.
    Labor,
    /// A fan-out is a number of nodes for all nodes of the hop together. Nodes are chosen by their
    /// importance for the nodes of the hop, without replacement, and all edges from them are taken.
    /// A hop examines the in-edges of all nodes found before it. Each edge has a weight that makes
    /// the mean over a node's edges unbiased.
    ///
    /// **Source** LADIES of Zou et al., "Layer-Dependent Importance Sampling for Training Deep and
    /// Large Graph Convolutional Networks", NeurIPS 2019, with the row-normalised adjacency.
    Ladies,
    /// A fan-out is a number of nodes of each node type, for all nodes of the batch together. Nodes
    /// are drawn without replacement by the square of their score, the sum of `1 / degree` over the
    /// edges to nodes found before. `degree` counts the target's in-edges of the edge type. A batch
    /// contains all edges between its nodes.
    ///
    /// **Source** HGSampling of Hu et al., "Heterogeneous Graph Transformer", WWW 2020,
    /// Algorithms 1 and 2. As in PyG, the types of a hop are drawn before the scores change.
    Hgt,
}

/// Which edges between its nodes a batch contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subgraph {
    /// The sampled edges.
    #[default]
    Directional,
    /// All edges of the graph between the nodes; for disjoint seeds, all edges within each
    /// neighbourhood. With disjoint seeds this is the sampling of ShaDow.
    ///
    /// **Source** Zeng et al., "Decoupling the Depth and Scope of Graph Neural Networks", NeurIPS
    /// 2021.
    Induced,
}

/// Times of edges and nodes, as whole numbers in any unit.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// By edge type, and row within it; edges of a type without times may always be seen.
    pub edges: Vec<Option<Arc<RowValues>>>,
    /// By node type, and node within it; edges from nodes of a type without times may always be
    /// seen.
    pub nodes: Vec<Option<Arc<RowValues>>>,
    /// Which of the visible edges are taken.
    pub order: TimeOrder,
    /// Whether a seed sees edges and nodes that have the same time as the seed.
    pub equal: EqualTimes,
}

/// Which of the visible edges are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeOrder {
    /// Any visible edges, according to [`Rules::choice`].
    #[default]
    Any,
    /// The latest edges; among equal times those that come last among the node's in-edges. Edges of
    /// a type without times are drawn as for `Any`.
    Last,
}

/// Whether a seed sees edges and nodes that have the same time as the seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EqualTimes {
    /// Visible: `time <= time of the seed`, as in PyG.
    #[default]
    Seen,
    /// Hidden: `time < time of the seed`, as in GraphBolt.
    Hidden,
}

impl Rules {
    /// Whether the neighbourhood of each seed is sampled separately.
    pub fn is_disjoint(&self) -> bool {
        self.disjoint || self.times.is_some()
    }

    /// Whether only degrees matter and each batch is sampled separately in memory. This is the path
    /// with the lowest cost per edge.
    pub fn are_plain(&self) -> bool {
        !(self.is_disjoint() || self.look_at_edges())
    }

    /// Whether the choice depends on more than degrees.
    pub fn look_at_edges(&self) -> bool {
        !matches!(self.choice, Choice::Uniform) || self.times.is_some() || self.is_induced()
    }

    /// Whether a batch contains all edges between its nodes.
    pub(crate) fn is_induced(&self) -> bool {
        self.subgraph == Subgraph::Induced || matches!(self.choice, Choice::Hgt)
    }

    /// Checks that the rules fit together.
    ///
    /// # Errors
    /// `Invalid`: rules that contradict each other.
    pub fn validate(&self, replace: bool) -> Result<()> {
        let last = self.times.as_ref().is_some_and(|times| times.order == TimeOrder::Last);
        let weighted = matches!(self.choice, Choice::Weighted(_));
        let labor = matches!(self.choice, Choice::Labor);
        let ladies = matches!(self.choice, Choice::Ladies);
        let hgt = matches!(self.choice, Choice::Hgt);
        let induced = self.subgraph == Subgraph::Induced;
        let wrong = [
            (last && weighted, "`last` takes the latest edges and does not look at weights"),
            (last && replace, "the latest edges are taken once each, without replacement"),
            (labor && replace, "LABOR takes each edge at most once, without replacement"),
            (
                labor && self.is_disjoint(),
                "LABOR shares neighbours between seeds, and disjoint seeds share none",
            ),
            (ladies && replace, "LADIES takes each node at most once, without replacement"),
            (
                ladies && self.is_disjoint(),
                "LADIES shares neighbours between seeds, and disjoint seeds share none",
            ),
            (hgt && replace, "HGT sampling takes each node at most once, without replacement"),
            (
                hgt && self.is_disjoint(),
                "HGT sampling shares neighbours between seeds, and disjoint seeds share none",
            ),
            (ladies && induced, "LADIES weighs the edges that it samples, and takes no others"),
            (
                induced && self.times.is_some(),
                "a subgraph of all edges may hold edges of a later time",
            ),
        ];
        match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, why)) => Err(Error::invalid(why).hint("leave one of the two out")),
            None => Ok(()),
        }
    }

    /// Checks that seeds have times if the rules need them.
    ///
    /// # Errors
    /// `Invalid`, naming the batch.
    pub(crate) fn check_seeds(&self, seeds: &Seeds) -> Result<()> {
        let expected = if self.times.is_some() { seeds.nodes.len() } else { 0 };
        if seeds.times.len() == expected {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "batch {}: {} times of {} seeds",
            seeds.batch,
            seeds.times.len(),
            seeds.nodes.len()
        )))
    }
}
