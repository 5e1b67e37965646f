//! Reverse Cuthill-McKee: breadth first from nodes of low degree, reversed.

use outercore_core::{Bytes, Result};
use outercore_store::Topology;

use super::lists::{Lists, in_degrees};
use super::{STEP, require};
use crate::OnProgress;

/// Bytes of memory per node: its degree, its rank by degree, its place, and whether it has a place.
const NODE: u64 = 13;

/// The nodes in reverse Cuthill-McKee order.
///
/// A component begins with its node of least in-degree, and the neighbours of a node follow by
/// rising in-degree; ties by id. In a directed graph, neighbours are in-neighbours.
pub(super) fn reverse_cuthill_mckee(
    topology: &dyn Topology,
    room: Bytes,
    on_progress: OnProgress<'_>,
) -> Result<Vec<u32>> {
    let count = topology.num_nodes();
    require(count * NODE, room)?;
    let degrees = in_degrees(topology)?;
    let rank = |node: u32| (degrees[node as usize], node);
    let mut roots: Vec<u32> = (0..count as u32).collect();
    roots.sort_unstable_by_key(|&node| rank(node));
    let mut lists = Lists::new(topology);
    let mut nodes: Vec<u32> = Vec::with_capacity(count as usize);
    let mut has_place = vec![false; count as usize];
    let mut next = 0;
    for root in roots {
        if std::mem::replace(&mut has_place[root as usize], true) {
            continue;
        }
        nodes.push(root);
        while let Some(&node) = nodes.get(next) {
            if next.is_multiple_of(STEP) {
                on_progress("ordering", next as u64, count, "nodes")?;
            }
            next += 1;
            let first = nodes.len();
            for &neighbour in lists.of(node)? {
                if !std::mem::replace(&mut has_place[neighbour as usize], true) {
                    nodes.push(neighbour as u32);
                }
            }
            nodes[first..].sort_unstable_by_key(|&node| rank(node));
        }
    }
    nodes.reverse();
    Ok(nodes)
}
