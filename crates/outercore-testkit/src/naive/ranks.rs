//! PageRank and HITS, line by line from their definitions.

use crate::Csc;

/// The ranks after `iterations` from a uniform start. `weight(arc)` is given by position in the
/// columns; `teleport` sums to 1.
pub fn pagerank(
    graph: &Csc,
    damping: f64,
    iterations: u32,
    weight: impl Fn(usize) -> f64,
    teleport: &[f64],
) -> Vec<f64> {
    let nodes = graph.num_nodes() as usize;
    let mut strength = vec![0.0; nodes];
    for (arc, &source) in graph.sources.iter().enumerate() {
        strength[source as usize] += weight(arc);
    }
    let mut rank = vec![1.0 / nodes as f64; nodes];
    for _ in 0..iterations {
        let dangling: f64 = (0..nodes).filter(|&v| strength[v] == 0.0).map(|v| rank[v]).sum();
        let mut next: Vec<f64> =
            teleport.iter().map(|t| t * ((1.0 - damping) + damping * dangling)).collect();
        for (target, next) in next.iter_mut().enumerate() {
            for arc in graph.offsets[target] as usize..graph.offsets[target + 1] as usize {
                let source = graph.sources[arc] as usize;
                if strength[source] > 0.0 {
                    *next += damping * rank[source] * weight(arc) / strength[source];
                }
            }
        }
        rank = next;
    }
    rank
}

/// Hubs and authorities after `iterations` from equal hubs. `weight(arc)` is given by position in
/// the columns.
pub fn hits(graph: &Csc, iterations: u32, weight: impl Fn(usize) -> f64) -> [Vec<f64>; 2] {
    let nodes = graph.num_nodes() as usize;
    let share_out = |scores: Vec<f64>| -> Vec<f64> {
        let sum: f64 = scores.iter().sum();
        scores.into_iter().map(|score| if sum > 0.0 { score / sum } else { 0.0 }).collect()
    };
    let (mut hubs, mut authorities) = (vec![1.0; nodes], vec![0.0; nodes]);
    for _ in 0..iterations {
        let (mut next, mut back) = (vec![0.0; nodes], vec![0.0; nodes]);
        for (target, next) in next.iter_mut().enumerate() {
            for arc in graph.offsets[target] as usize..graph.offsets[target + 1] as usize {
                *next += hubs[graph.sources[arc] as usize] * weight(arc);
            }
        }
        authorities = share_out(next);
        for (target, &authority) in authorities.iter().enumerate() {
            for arc in graph.offsets[target] as usize..graph.offsets[target + 1] as usize {
                back[graph.sources[arc] as usize] += authority * weight(arc);
            }
        }
        hubs = share_out(back);
    }
    [hubs, authorities]
}
