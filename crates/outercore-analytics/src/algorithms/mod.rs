//! The algorithms, each generic over what makes its passes.

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

use outercore_core::Error;

/// Of a checkpoint that has gone further than a run is to go.
pub(crate) fn beyond(name: &str, iterations: u64, maximum: u32) -> Error {
    Error::invalid(format!(
        "{name}: the checkpoint is after iteration {iterations}, max_iterations is {maximum}"
    ))
    .hint("resume with a higher max_iterations, or begin a new run")
}
