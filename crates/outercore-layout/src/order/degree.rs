//! Order by falling in-degree.

use std::cmp::Reverse;

use outercore_core::{Bytes, Result};
use outercore_store::Topology;

use super::lists::in_degrees;
use super::require;

/// Bytes of memory per node.
const NODE: u64 = 8;

/// The nodes by falling in-degree, then by id.
pub(super) fn by_degree(topology: &dyn Topology, room: Bytes) -> Result<Vec<u32>> {
    require(topology.num_nodes() * NODE, room)?;
    let degrees = in_degrees(topology)?;
    let mut nodes: Vec<u32> = (0..degrees.len() as u32).collect();
    nodes.sort_unstable_by_key(|&node| (Reverse(degrees[node as usize]), node));
    Ok(nodes)
}
