//! Distances and betweenness.

use super::strong::{in_lists, out_lists};
use crate::graph::Csc;

/// The direction in which arcs are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// From source to target.
    Out,
    /// From target to source.
    In,
    /// In both directions.
    Both,
}

/// The largest distance to each node from any of `sources` that reaches it; -1 if none does.
pub fn largest_distances(graph: &Csc, sources: &[u64], follow: Follow) -> Vec<i32> {
    let lists = lists(graph, follow);
    let mut largest = vec![-1; lists.len()];
    for &source in sources {
        for (largest, distance) in largest.iter_mut().zip(paths(&lists, source as usize).0) {
            *largest = distance.max(*largest);
        }
    }
    largest
}

/// One over the mean distance from each node to the nodes that it reaches; 0 if it reaches none.
/// With `improved`, multiplied by the share of the other nodes that it reaches.
pub fn closeness(graph: &Csc, follow: Follow, improved: bool) -> Vec<f64> {
    let lists = lists(graph, follow);
    let of = |node| {
        let (distances, _) = paths(&lists, node);
        let reached = distances.iter().filter(|&&distance| distance > 0).count() as f64;
        let sum = distances.iter().filter(|&&distance| distance > 0).sum::<i32>();
        match reached {
            0.0 => 0.0,
            _ if improved => (reached / f64::from(sum)) * (reached / (lists.len() - 1) as f64),
            _ => reached / f64::from(sum),
        }
    };
    (0..lists.len()).map(of).collect()
}

/// [`betweenness`] with path lengths that sum `weight(arc)`, by position in the columns. Weights
/// must be above 0, and sums must be exact.
pub fn weighted_betweenness(
    graph: &Csc,
    sources: &[u64],
    weight: impl Fn(usize) -> f64,
) -> Vec<f64> {
    let nodes = graph.num_nodes() as usize;
    let from: Vec<_> = (0..nodes as u64)
        .map(|node| {
            let distance = super::paths::distances(graph, node, &weight);
            let mut count = vec![0.0; nodes];
            count[node as usize] = 1.0;
            let mut order: Vec<usize> = (0..nodes).filter(|&n| distance[n].is_finite()).collect();
            order.sort_by(|&a, &b| distance[a].total_cmp(&distance[b]));
            for target in order {
                for arc in graph.offsets[target] as usize..graph.offsets[target + 1] as usize {
                    let source = graph.sources[arc] as usize;
                    if distance[source] + weight(arc) == distance[target] {
                        count[target] += count[source];
                    }
                }
            }
            (distance, count)
        })
        .collect();
    let mut found = vec![0.0; nodes];
    for source in sources.iter().map(|&source| source as usize) {
        let (distance, count) = &from[source];
        for (through, found) in found.iter_mut().enumerate().filter(|pair| pair.0 != source) {
            let (onward, ways) = &from[through];
            for end in (0..nodes).filter(|&end| end != through && end != source) {
                let whole = distance[through] + onward[end];
                if whole.is_finite() && whole == distance[end] {
                    *found += count[through] * ways[end] / count[end];
                }
            }
        }
    }
    found
}

/// For each node, the sum over pairs (source, other node) of the share of shortest paths through
/// the node. Ends are not counted, and the result is not scaled. Memory is quadratic in the number
/// of nodes.
pub fn betweenness(graph: &Csc, sources: &[u64]) -> Vec<f64> {
    let lists = out_lists(graph);
    let from: Vec<_> = (0..lists.len()).map(|node| paths(&lists, node)).collect();
    let mut found = vec![0.0; lists.len()];
    for source in sources.iter().map(|&source| source as usize) {
        let (distance, count) = &from[source];
        for (through, found) in found.iter_mut().enumerate() {
            if through == source || distance[through] < 0 {
                continue;
            }
            let (onward, ways) = &from[through];
            for end in (0..lists.len()).filter(|&end| end != through && end != source) {
                if onward[end] >= 0 && distance[through] + onward[end] == distance[end] {
                    *found += count[through] * ways[end] / count[end];
                }
            }
        }
    }
    found
}

/// The ends of each node's arcs in the given direction.
fn lists(graph: &Csc, follow: Follow) -> Vec<Vec<usize>> {
    let mut lists = match follow {
        Follow::In => in_lists(graph),
        Follow::Out | Follow::Both => out_lists(graph),
    };
    if follow == Follow::Both {
        for (list, more) in lists.iter_mut().zip(in_lists(graph)) {
            list.extend(more);
        }
    }
    lists
}

/// Distances from `start` (-1: not reached) and numbers of shortest paths.
fn paths(lists: &[Vec<usize>], start: usize) -> (Vec<i32>, Vec<f64>) {
    let (mut distances, mut counts) = (vec![-1; lists.len()], vec![0.0; lists.len()]);
    (distances[start], counts[start]) = (0, 1.0);
    let mut level = vec![start];
    for distance in 1.. {
        let mut next = Vec::new();
        for &node in &level {
            for &to in &lists[node] {
                if distances[to] < 0 {
                    distances[to] = distance;
                    next.push(to);
                }
                if distances[to] == distance {
                    counts[to] += counts[node];
                }
            }
        }
        if next.is_empty() {
            break;
        }
        level = next;
    }
    (distances, counts)
}
