//! Distances: relaxes every arc until no distance changes.

use crate::Csc;

/// The least sum of `weight(arc)` along arcs from `source` to every node.
pub fn distances(graph: &Csc, source: u64, weight: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut distance = vec![f64::INFINITY; graph.num_nodes() as usize];
    distance[source as usize] = 0.0;
    loop {
        let mut changed = false;
        for target in 0..distance.len() {
            for arc in graph.offsets[target] as usize..graph.offsets[target + 1] as usize {
                let through = distance[graph.sources[arc] as usize] + weight(arc);
                if through < distance[target] {
                    distance[target] = through;
                    changed = true;
                }
            }
        }
        if !changed {
            return distance;
        }
    }
}

/// Fewest arcs from `source` to every node; -1 if there is no path.
pub fn levels(graph: &Csc, source: u64) -> Vec<i32> {
    let level = |&distance: &f64| if distance.is_finite() { distance as i32 } else { -1 };
    distances(graph, source, |_| 1.0).iter().map(level).collect()
}
