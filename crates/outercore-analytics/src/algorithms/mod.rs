//! The algorithms, each generic over what makes its passes.

pub mod betweenness;
pub mod bfs;
pub mod degrees;
pub mod kcore;
pub mod label_propagation;
pub mod pagerank;
pub mod radii;
pub mod scc;
pub mod sssp;
pub mod triangles;
pub mod wcc;
