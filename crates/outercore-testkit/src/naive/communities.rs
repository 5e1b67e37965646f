//! Quality of communities.

use std::collections::BTreeMap;

use crate::graph::Csc;

/// The modularity of the communities `labels`, with the weight `weight(arc)` for the arc at
/// position `arc` in the columns. This is the sum, over all ordered pairs of nodes in the same
/// community, of the weight between them minus the expected weight. Directions are ignored.
///
/// `directed`: each arc is an edge; otherwise every edge has two arcs, and a loop has one.
pub fn modularity(
    graph: &Csc,
    directed: bool,
    labels: &[i64],
    resolution: f64,
    weight: impl Fn(usize) -> f64,
) -> f64 {
    let nodes = graph.num_nodes() as usize;
    let mut between: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for target in 0..nodes {
        for arc in graph.offsets[target] as usize..graph.offsets[target + 1] as usize {
            let source = graph.sources[arc] as usize;
            let mut add = |pair| *between.entry(pair).or_default() += weight(arc);
            add((source, target));
            // A loop counts at both ends.
            if directed || source == target {
                add((target, source));
            }
        }
    }
    let mut strength = vec![0.0; nodes];
    between.iter().for_each(|(pair, weight)| strength[pair.0] += weight);
    let all: f64 = strength.iter().sum();
    let mut sum = 0.0;
    for a in 0..nodes {
        for b in (0..nodes).filter(|&b| labels[a] == labels[b]) {
            let there = between.get(&(a, b)).copied().unwrap_or(0.0);
            sum += there - resolution * strength[a] * strength[b] / all;
        }
    }
    if all > 0.0 { sum / all } else { 0.0 }
}
