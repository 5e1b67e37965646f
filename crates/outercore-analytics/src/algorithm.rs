//! Which algorithm, with which options.

use outercore_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::algorithms::degrees::DegreeName;
use crate::algorithms::hits::{HitsOptions, Score};
use crate::algorithms::louvain;
use crate::algorithms::pagerank::PagerankOptions;
use crate::program::Flow;

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

/// An algorithm with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "algorithm", rename_all = "snake_case", deny_unknown_fields)]
pub enum Algorithm {
    /// [`pagerank`](crate::algorithms::pagerank).
    Pagerank {
        /// Share that follows the arcs.
        #[serde(default = "damping")]
        damping: f64,
        /// Iterations at most.
        #[serde(default = "max_iterations")]
        max_iterations: u32,
        /// Largest change of a result at rest.
        #[serde(default = "tolerance")]
        tolerance: f64,
        /// Edge array by which ranks are shared out.
        #[serde(default)]
        weights: Option<String>,
        /// Against the arcs.
        #[serde(default)]
        reverse: bool,
    },
    /// [`bfs`](crate::algorithms::bfs).
    Bfs {
        /// Where it begins.
        source: Source,
        /// Which way.
        #[serde(default, rename = "direction")]
        flow: FlowName,
        /// Levels at most.
        #[serde(default)]
        cutoff: Option<u32>,
        /// Levels or predecessors.
        #[serde(default)]
        result: PathResult,
    },
    /// [`sssp`](crate::algorithms::sssp).
    Sssp {
        /// Where paths begin.
        source: Source,
        /// Edge array of lengths.
        #[serde(default)]
        weights: Option<String>,
        /// Which way.
        #[serde(default, rename = "direction")]
        flow: FlowName,
        /// The longest paths.
        #[serde(default)]
        cutoff: Option<f64>,
        /// Distances or predecessors.
        #[serde(default)]
        result: PathResult,
    },
    /// [`wcc`](crate::algorithms::wcc).
    Wcc {},
    /// [`scc`](crate::algorithms::scc).
    Scc {},
    /// [`radii`](crate::algorithms::radii).
    Radii {
        /// Nodes to search from.
        #[serde(default = "radii_sources")]
        sources: u32,
        /// Of their draw.
        #[serde(default)]
        seed: u64,
        /// Which way.
        #[serde(default, rename = "direction")]
        flow: FlowName,
    },
    /// [`betweenness`](crate::algorithms::betweenness).
    Betweenness {
        /// Nodes from which paths are counted; all by default.
        #[serde(default)]
        sources: Option<Vec<u64>>,
        /// So many nodes instead.
        #[serde(default)]
        samples: Option<u32>,
        /// Of their draw.
        #[serde(default)]
        seed: u64,
        /// Edge array of lengths.
        #[serde(default)]
        weights: Option<String>,
        /// Divided by the number of pairs.
        #[serde(default = "yes")]
        normalized: bool,
    },
    /// [`closeness`](crate::algorithms::closeness).
    Closeness {
        /// Nodes whose closeness is wanted; all by default.
        #[serde(default)]
        nodes: Option<Vec<u64>>,
        /// Which way.
        #[serde(default = "inwards", rename = "direction")]
        flow: FlowName,
        /// Times the share of nodes reached.
        #[serde(default = "yes")]
        improved: bool,
    },
    /// [`hits`](crate::algorithms::hits).
    Hits {
        /// Iterations at most.
        #[serde(default = "max_iterations")]
        max_iterations: u32,
        /// Largest change of a result at rest.
        #[serde(default = "hits_tolerance")]
        tolerance: f64,
        /// Edge array by which arcs count.
        #[serde(default)]
        weights: Option<String>,
        /// Hubs or authorities.
        #[serde(default)]
        score: Score,
    },
    /// [`kcore`](crate::algorithms::kcore).
    Kcore {},
    /// [`label_propagation`](crate::algorithms::label_propagation).
    LabelPropagation {
        /// Iterations at most.
        #[serde(default = "label_iterations")]
        max_iterations: u32,
    },
    /// [`louvain`](crate::algorithms::louvain).
    Louvain {
        /// How small communities are.
        #[serde(default = "resolution")]
        resolution: f64,
        /// Edge array by which edges count.
        #[serde(default)]
        weights: Option<String>,
    },
    /// [`triangles`](crate::algorithms::triangles).
    Triangles {},
    /// [`local_clustering`](crate::algorithms::local_clustering).
    LocalClustering {},
    /// [`degrees`](crate::algorithms::degrees).
    Degrees {
        /// Which.
        #[serde(default)]
        which: DegreeName,
    },
}

// Default options. A test compares them with `outercore.analytics`.

fn damping() -> f64 {
    0.85
}

fn max_iterations() -> u32 {
    100
}

fn tolerance() -> f64 {
    1e-6
}

fn hits_tolerance() -> f64 {
    1e-8
}

fn label_iterations() -> u32 {
    10
}

fn resolution() -> f64 {
    1.0
}

fn radii_sources() -> u32 {
    64
}

fn inwards() -> FlowName {
    FlowName::In
}

fn yes() -> bool {
    true
}

impl Algorithm {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pagerank { .. } => "pagerank",
            Self::Bfs { .. } => "bfs",
            Self::Sssp { .. } => "sssp",
            Self::Wcc {} => "wcc",
            Self::Scc {} => "scc",
            Self::Radii { .. } => "radii",
            Self::Betweenness { .. } => "betweenness",
            Self::Closeness { .. } => "closeness",
            Self::Hits { .. } => "hits",
            Self::Kcore {} => "kcore",
            Self::LabelPropagation { .. } => "label_propagation",
            Self::Louvain { .. } => "louvain",
            Self::Triangles {} => "triangles",
            Self::LocalClustering {} => "local_clustering",
            Self::Degrees { .. } => "degrees",
        }
    }

    /// Whether a run of it can leave checkpoints.
    pub fn leaves_checkpoints(&self) -> bool {
        matches!(
            self,
            Self::Pagerank { .. }
                | Self::Bfs { result: PathResult::Distances, .. }
                | Self::Sssp { result: PathResult::Distances, .. }
                | Self::Wcc {}
                | Self::Kcore {}
                | Self::LabelPropagation { .. }
        )
    }

    /// The edge array that it reads.
    pub fn weights(&self) -> Option<&str> {
        match self {
            Self::Pagerank { weights, .. }
            | Self::Sssp { weights, .. }
            | Self::Betweenness { weights, .. }
            | Self::Hits { weights, .. }
            | Self::Louvain { weights, .. } => weights.as_deref(),
            _ => None,
        }
    }

    /// Checks options against a graph of `nodes` nodes.
    ///
    /// # Errors
    /// `Invalid`, naming the option, its value and the accepted range.
    pub fn validate(&self, nodes: u64) -> Result<()> {
        let name = self.name();
        let is_node = |source: u64| {
            if source < nodes {
                return Ok(());
            }
            let last = nodes.saturating_sub(1);
            Err(Error::invalid(format!(
                "{name}: source {source}, the graph has {nodes} nodes (0 to {last})"
            )))
        };
        let are_nodes = |option: &str, given: &[u64]| {
            if given.is_empty() {
                let text = format!("{name}: `{option}` is empty, expected at least one node");
                return Err(Error::invalid(text));
            }
            // An empty graph has an empty result and no node to begin with.
            given.iter().filter(|_| nodes > 0).try_for_each(|&node| is_node(node))
        };
        match self {
            Self::Pagerank { .. } => {
                self.pagerank_options().map_or(Ok(()), |options| options.validate())
            }
            Self::Sssp { cutoff: Some(cutoff), .. } if cutoff.is_nan() || *cutoff < 0.0 => {
                Err(Error::invalid(format!("sssp: cutoff {cutoff}, expected 0 or more")))
            }
            Self::Bfs { source, .. } | Self::Sssp { source, .. } => {
                are_nodes("source", source.nodes())
            }
            Self::Hits { .. } => self.hits_options().map_or(Ok(()), |options| options.validate()),
            Self::Louvain { resolution, .. } => louvain::validate(*resolution),
            Self::Closeness { nodes: Some(wanted), .. } => are_nodes("nodes", wanted),
            Self::Radii { sources: 0, .. } => {
                Err(Error::invalid("radii: sources 0, expected 1 or more"))
            }
            Self::Betweenness { sources: Some(_), samples: Some(_), .. } => {
                Err(Error::invalid("betweenness: both sources and samples, expected one of them"))
            }
            Self::Betweenness { samples: Some(samples), .. }
                if *samples == 0 || u64::from(*samples) > nodes =>
            {
                Err(Error::invalid(format!(
                    "betweenness: samples {samples}, expected 1 to {nodes}, the nodes of the graph"
                )))
            }
            Self::Betweenness { sources: Some(sources), .. } => are_nodes("sources", sources),
            Self::LabelPropagation { max_iterations: 0 } => {
                Err(Error::invalid("label_propagation: max_iterations 0, expected at least 1"))
            }
            _ => Ok(()),
        }
    }

    /// The options of HITS, if that is what it is.
    pub(crate) fn hits_options(&self) -> Option<HitsOptions> {
        match self {
            Self::Hits { max_iterations, tolerance, weights, score } => Some(HitsOptions {
                max_iterations: *max_iterations,
                tolerance: *tolerance,
                weighted: weights.is_some(),
                score: *score,
            }),
            _ => None,
        }
    }

    /// The options of PageRank, if that is what it is.
    pub(crate) fn pagerank_options(&self) -> Option<PagerankOptions> {
        match self {
            Self::Pagerank { damping, max_iterations, tolerance, weights, reverse } => {
                Some(PagerankOptions {
                    damping: *damping,
                    max_iterations: *max_iterations,
                    tolerance: *tolerance,
                    weighted: weights.is_some(),
                    reverse: *reverse,
                })
            }
            _ => None,
        }
    }
}
