//! Triangles.

use std::collections::BTreeSet;

use super::cores::neighbours;
use crate::graph::Csc;

/// In how many triangles each node is: sets of three nodes with an arc, whichever way, between
/// every two of them.
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
