//! How nodes get their ranks: by falling degree, or in the given order. Pure.

use std::cmp::Reverse;

use crate::header::MAX_PARTITION_LOG2;
use crate::shape::{GridShape, Order};

/// Place of nodes without arcs.
pub(crate) const ISOLATED: u32 = u32::MAX;

/// A graph that fills fewer partitions than this is small, and gets smaller partitions.
const WANTED_PARTITIONS: u64 = 16;

/// The partition size of small graphs.
const LEAST_LOG2: u32 = 9;

/// Arcs between nodes whose ids are closer than this are near.
pub(crate) const NEAR: u64 = 1 << 16;

/// A suitable order for a graph of `nodes` nodes, of whose `sampled` arcs `near` are near (see
/// [`NEAR`]).
///
/// Order by degree is better, unless most arcs stay within one or two partitions in the given
/// order, as in web crawls and road maps. In a graph of at most two partitions, all arcs do, so
/// that says nothing.
pub(crate) fn choose(nodes: u64, near: u64, sampled: u64) -> Order {
    if nodes > 2 * NEAR && 2 * near > sampled { Order::Natural } else { Order::Degree }
}

/// The largest partition, as a power of two, that gives at least 16 partitions; at least 512 nodes.
pub(crate) fn partition_log2(connected: u64) -> u32 {
    (LEAST_LOG2..=MAX_PARTITION_LOG2)
        .rev()
        .find(|log2| connected.div_ceil(1 << log2) >= WANTED_PARTITIONS)
        .unwrap_or(LEAST_LOG2)
}

/// Nodes by falling `degree`, ties by id; nodes of degree 0 last, by id.
///
/// **Cost**: a counting sort for degrees below 65,536, and a comparison sort for the few higher
/// ones; 4 bytes per node for the result.
pub(crate) fn by_degree(nodes: usize, degree: impl Fn(usize) -> u64) -> Vec<u32> {
    const LARGE: usize = 1 << 16;
    let bucket = |node: usize| (degree(node) as usize).min(LARGE);
    let mut starts = vec![0u32; LARGE + 1];
    (0..nodes).for_each(|node| starts[bucket(node)] += 1);
    let large = starts[LARGE] as usize;
    let mut start = 0;
    for count in starts.iter_mut().rev() {
        start += std::mem::replace(count, start);
    }
    let mut order = vec![0; nodes];
    for node in 0..nodes {
        let place = &mut starts[bucket(node)];
        order[*place as usize] = node as u32;
        *place += 1;
    }
    order[..large].sort_by_key(|node| Reverse(degree(*node as usize)));
    order
}

/// The place of a rank: its partition in the upper half, its local id in the lower half.
pub(crate) fn packed_place(shape: &GridShape, rank: u64) -> u32 {
    let (partition, local) = shape.place(rank);
    (partition << 16 | local) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_go_by_falling_degree_and_ties_by_id() {
        let degrees = [0, 3, 70_000, 3, 0, 80_000, 1, 70_000];
        assert_eq!(by_degree(8, |node| degrees[node]), [5, 2, 7, 1, 3, 6, 0, 4]);
        assert_eq!(by_degree(0, |_| 0), [0u32; 0]);
    }

    #[test]
    fn partitions_grow_with_the_graph_up_to_16_bits() {
        for (connected, log2) in [
            (0, 9),
            (1, 9),
            (15 * 512, 9),
            (16 * 512, 9),
            (15 * 1024 + 1, 10),
            (1 << 20, 16),
            ((1 << 19) + 1, 15),
            (1 << 32, 16),
        ] {
            assert_eq!(partition_log2(connected), log2, "{connected}");
        }
    }

    #[test]
    fn the_given_order_is_kept_where_most_arcs_are_short() {
        assert_eq!(choose(1 << 20, 51, 100), Order::Natural);
        assert_eq!(choose(1 << 20, 50, 100), Order::Degree);
        assert_eq!(choose(1 << 17, 100, 100), Order::Degree);
        assert_eq!(choose(1 << 20, 0, 0), Order::Degree);
    }
}
