//! The neighbour sampler, written directly from its definition, one simple step after the other.

use std::collections::{BTreeSet, HashMap};

use outercore_core::Stream;

use crate::Csc;

/// A sampled batch with explicit edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NaiveBatch {
    /// Seeds, then new nodes in order of first appearance.
    pub nodes: Vec<u64>,
    /// Number of seeds, then number of new nodes per hop.
    pub nodes_per_hop: Vec<u64>,
    /// Number of edges per hop.
    pub edges_per_hop: Vec<u64>,
    /// `(local source, local destination)` of every edge.
    pub edges: Vec<(usize, usize)>,
    /// Id of every edge.
    pub edge_ids: Vec<u64>,
}

/// Samples batch `batch`. A fan-out of `None` takes all in-edges.
pub fn naive_sample(
    graph: &Csc,
    stream: Stream,
    batch: u64,
    seeds: &[u64],
    fan_outs: &[Option<u64>],
    replace: bool,
) -> NaiveBatch {
    let mut sampled = NaiveBatch { nodes: seeds.to_vec(), ..NaiveBatch::default() };
    sampled.nodes_per_hop.push(seeds.len() as u64);
    let mut local = HashMap::new();
    for (slot, &seed) in seeds.iter().enumerate() {
        local.entry(seed).or_insert(slot);
    }
    let mut frontier = 0..seeds.len();
    for (hop, &fan_out) in (0..).zip(fan_outs) {
        let edges_before = sampled.edges.len();
        for destination in frontier.clone() {
            let node = sampled.nodes[destination];
            let start = graph.offsets[node as usize];
            let degree = graph.offsets[node as usize + 1] - start;
            for place in pick(stream, batch, hop, node, degree, fan_out, replace) {
                let position = (start + place) as usize;
                let source = graph.sources[position];
                let next = sampled.nodes.len();
                let slot = *local.entry(source).or_insert(next);
                if slot == next {
                    sampled.nodes.push(source);
                }
                sampled.edges.push((slot, destination));
                sampled.edge_ids.push(graph.ids[position]);
            }
        }
        frontier = frontier.end..sampled.nodes.len();
        sampled.nodes_per_hop.push(frontier.len() as u64);
        sampled.edges_per_hop.push((sampled.edges.len() - edges_before) as u64);
    }
    sampled
}

/// The picked places among a node's `degree` in-edges.
pub(crate) fn pick(
    stream: Stream,
    batch: u64,
    hop: u32,
    node: u64,
    degree: u64,
    fan_out: Option<u64>,
    replace: bool,
) -> Vec<u64> {
    let mut draws = stream.uniform(batch, hop, node);
    match fan_out {
        None => (0..degree).collect(),
        Some(_) if degree == 0 => Vec::new(),
        Some(count) if replace => (0..count).map(|_| draws.below(degree)).collect(),
        Some(count) if count >= degree => (0..degree).collect(),
        Some(count) => {
            // Floyd's algorithm.
            let mut taken = BTreeSet::new();
            for last in degree - count..degree {
                let drawn = draws.below(last + 1);
                if !taken.insert(drawn) {
                    taken.insert(last);
                }
            }
            taken.into_iter().collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_walked_one_node_a_hop() {
        let sampled =
            naive_sample(&Csc::path(5), Stream::new(0, 0), 0, &[4, 2], &[Some(1), None], false);
        assert_eq!(sampled.nodes, [4, 2, 3, 1, 0]);
        assert_eq!(sampled.edges, [(2, 0), (3, 1), (1, 2), (4, 3)]);
    }
}
