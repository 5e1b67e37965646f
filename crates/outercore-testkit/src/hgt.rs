//! HGT sampling, written directly from its definition.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use outercore_core::Stream;

use crate::typed::{NaiveTypedBatch, TypedGraph, induce};

/// Samples a batch around seeds (node type, id within it); `counts` by node type, then by hop. A
/// count of `None` takes all nodes with an edge into the batch.
///
/// A node outside of the batch scores the sum of `1 / degree` over its edges into the batch. Each
/// draw takes a node in proportion to the square of its score, by the smallest `-ln(u) / score^2`.
pub fn naive_hgt_sample(
    graph: &TypedGraph,
    stream: Stream,
    batch: u64,
    seeds: &[(usize, u64)],
    counts: &[Vec<Option<u64>>],
) -> NaiveTypedBatch {
    let (node_types, edge_types) = (graph.schema.node_types(), graph.schema.edge_types());
    let mut sampled = NaiveTypedBatch {
        nodes: vec![Vec::new(); node_types.len()],
        edges: vec![Vec::new(); edge_types.len()],
        edge_ids: vec![Vec::new(); edge_types.len()],
        edges_per_hop: vec![Vec::new(); edge_types.len()],
        ..NaiveTypedBatch::default()
    };
    let mut local = HashMap::new();
    for &(node_type, seed) in seeds {
        local.entry((0, node_type, seed)).or_insert(sampled.nodes[node_type].len());
        sampled.nodes[node_type].push(seed);
    }
    sampled.nodes_per_hop = sampled.nodes.iter().map(|nodes| vec![nodes.len() as u64]).collect();
    let mut found: Vec<Vec<Range<usize>>> =
        vec![sampled.nodes.iter().map(|nodes| 0..nodes.len()).collect()];
    let hops = counts.first().map_or(0, Vec::len);
    let of_hops = (0..hops).map(|hop| counts.iter().map(|of| of[hop]).collect::<Vec<_>>());
    for (hop, counts) in (0u32..).zip(of_hops) {
        let scores = scores(graph, &sampled, &local, &found);
        let mut newly = Vec::new();
        for (node_type, range) in node_types.iter().enumerate() {
            let key = |(&node, &score): (&u64, &f64)| {
                let global = range.nodes.start + node;
                let draw = stream.uniform(batch, hop | 0x80, global).unit();
                (-(1.0 - draw).ln() / (score * score), node)
            };
            let mut keyed: Vec<(f64, u64)> = scores[node_type].iter().map(key).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            keyed.truncate(counts[node_type].map_or(usize::MAX, |count| count as usize));
            let nodes = &mut sampled.nodes[node_type];
            newly.push(nodes.len()..nodes.len() + keyed.len());
            sampled.nodes_per_hop[node_type].push(keyed.len() as u64);
            for (_, node) in keyed {
                local.insert((0, node_type, node), nodes.len());
                nodes.push(node);
            }
        }
        found.push(newly);
    }
    sampled.trees = sampled.nodes.iter().map(|nodes| vec![0; nodes.len()]).collect();
    induce(graph, &mut sampled, &local);
    sampled
}

/// By node type: the score of each node outside of the batch with an edge into it. Sums run over
/// the hops that found the targets, then over edge types.
fn scores(
    graph: &TypedGraph,
    sampled: &NaiveTypedBatch,
    local: &HashMap<(u64, usize, u64), usize>,
    found: &[Vec<Range<usize>>],
) -> Vec<BTreeMap<u64, f64>> {
    let mut scores = vec![BTreeMap::new(); sampled.nodes.len()];
    for of_hop in found {
        for (edge_type, csc) in graph.schema.edge_types().iter().zip(&graph.edges) {
            for &target in &sampled.nodes[edge_type.target][of_hop[edge_type.target].clone()] {
                let (start, end) =
                    (csc.offsets[target as usize] as usize, csc.offsets[target as usize + 1]);
                let sources = &csc.sources[start..end as usize];
                for &source in sources {
                    if !local.contains_key(&(0, edge_type.source, source)) {
                        *scores[edge_type.source].entry(source).or_default() +=
                            1.0 / sources.len() as f64;
                    }
                }
            }
        }
    }
    scores
}
