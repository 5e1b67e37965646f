//! The algorithms, each generic over the implementation of its passes.

pub mod betweenness;
pub mod bfs;
pub mod closeness;
pub mod degrees;
pub mod hits;
pub mod kcore;
pub mod label_propagation;
pub mod local_clustering;
pub mod louvain;
pub mod pagerank;
mod predecessors;
pub mod radii;
pub mod scc;
pub mod sssp;
mod starts;
pub mod triangles;
pub mod wcc;

use outercore_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::algorithm::{GraphAlgorithm, Leaves, Scale};
use crate::output::Need;
use crate::program::Passes;
use crate::result::AnyRaw;
use crate::teleport::Teleport;

/// Builds [`Algorithm`] from modules and their options.
macro_rules! algorithms {
    ($($module:ident :: $name:ident),+ $(,)?) => {
        /// An algorithm with its options.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "algorithm", rename_all = "snake_case")]
        pub enum Algorithm {
            $(#[doc = concat!("See [`", stringify!($module), "`].")] $name($module::$name),)+
        }

        impl Algorithm {
            /// The name of the algorithm.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => stringify!($module),)+
                }
            }

            /// When a run of it writes checkpoints.
            pub fn leaves_checkpoints(&self) -> Leaves {
                match self {
                    $(Self::$name(one) => one.leaves_checkpoints(),)+
                }
            }

            /// The edge array that it reads.
            pub fn weights(&self) -> Option<&str> {
                match self {
                    $(Self::$name(one) => one.weights(),)+
                }
            }

            /// Checks options against a graph of `nodes` nodes.
            ///
            /// # Errors
            /// `Invalid`, naming the option, its value and the accepted range.
            pub fn validate(&self, nodes: u64) -> Result<()> {
                match self {
                    $(Self::$name(one) => one.validate(nodes),)+
                }
            }

            pub(crate) fn need(&self, scale: &Scale<'_>) -> Need {
                match self {
                    $(Self::$name(one) => one.need(scale),)+
                }
            }

            pub(crate) fn run<R: Passes>(&self, run: &mut R, teleport: &Teleport) -> Result<AnyRaw> {
                match self {
                    $(Self::$name(one) => one.run(run, teleport),)+
                }
            }

            pub(crate) fn zeros<R: Passes>(&self, run: &mut R) -> Result<Vec<u64>> {
                match self {
                    $(Self::$name(one) => one.zeros(run),)+
                }
            }
        }
    };
}

// Each algorithm needs a module above, and a line here.
algorithms! {
    pagerank::Pagerank,
    bfs::Bfs,
    sssp::Sssp,
    wcc::Wcc,
    scc::Scc,
    radii::Radii,
    betweenness::Betweenness,
    closeness::Closeness,
    hits::Hits,
    kcore::Kcore,
    label_propagation::LabelPropagation,
    louvain::Louvain,
    triangles::Triangles,
    local_clustering::LocalClustering,
    degrees::Degrees,
}

/// The error for a checkpoint with more iterations than the run's maximum.
pub(crate) fn beyond(name: &str, iterations: u64, maximum: u32) -> Error {
    Error::invalid(format!(
        "{name}: the checkpoint is after iteration {iterations}, max_iterations is {maximum}"
    ))
    .hint("resume with a higher max_iterations, or begin a new run")
}
