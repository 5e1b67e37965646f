//! Triangles and clustering coefficients.

use std::collections::BTreeSet;

use super::cores::neighbours;
use crate::graph::Csc;

/// The number of triangles of each node: sets of three nodes with an arc, in any direction, between
/// each two of them.
pub fn triangles(graph: &Csc) -> Vec<i64> {
    let lists: Vec<BTreeSet<usize>> =
        neighbours(graph, true).into_iter().map(BTreeSet::from_iter).collect();
    let mut found = vec![0; lists.len()];
    for (a, list) in lists.iter().enumerate() {
        for &b in list.range(a + 1..) {
            for c in list.range(b + 1..).filter(|c| lists[b].contains(c)) {
                for corner in [a, b, *c] {
                    found[corner] += 1;
                }
            }
        }
    }
    found
}

/// The share of possible arcs between each node's neighbours that exist. Neighbours are other nodes
/// at either end of an arc; parallel arcs count once.
pub fn local_clustering(graph: &Csc) -> Vec<f64> {
    let arcs: BTreeSet<(usize, usize)> = super::strong::out_lists(graph)
        .into_iter()
        .enumerate()
        .flat_map(|(node, list)| list.into_iter().map(move |other| (node, other)))
        .collect();
    let lists: Vec<BTreeSet<usize>> =
        neighbours(graph, true).into_iter().map(BTreeSet::from_iter).collect();
    let mut found = vec![0.0; lists.len()];
    for (node, list) in lists.iter().enumerate() {
        let others: Vec<usize> = list.iter().copied().filter(|&other| other != node).collect();
        let pairs = others.iter().flat_map(|&a| others.iter().map(move |&b| (a, b)));
        let there = pairs.filter(|pair| pair.0 != pair.1 && arcs.contains(pair)).count() as f64;
        let degree = others.len() as f64;
        found[node] = if degree < 2.0 { 0.0 } else { there / (degree * (degree - 1.0)) };
    }
    found
}
