//! Core numbers.

use super::strong::{in_lists, out_lists};
use crate::graph::Csc;

/// The core number of each node: the largest k for which the node remains after nodes with fewer
/// than k neighbours are removed one after the other. Loops are ignored, parallel arcs are counted.
///
/// `directed`: both ends of an arc are neighbours; otherwise every edge has two arcs.
pub fn core_numbers(graph: &Csc, directed: bool) -> Vec<i64> {
    let mut lists = neighbours(graph, directed);
    for (node, list) in lists.iter_mut().enumerate() {
        list.retain(|&other| other != node);
    }
    let mut cores = vec![0; lists.len()];
    let mut here = vec![true; lists.len()];
    for k in 1.. {
        let degree = |node: usize, here: &[bool]| {
            lists[node].iter().filter(|&&other| here[other]).count() as i64
        };
        while let Some(node) = (0..lists.len()).find(|&node| here[node] && degree(node, &here) < k)
        {
            here[node] = false;
        }
        if !here.contains(&true) {
            return cores;
        }
        for node in (0..lists.len()).filter(|&node| here[node]) {
            cores[node] = k;
        }
    }
    unreachable!("a graph is empty after as many rounds as it has arcs")
}

/// The neighbours of each node, with one entry for a loop per arc.
pub fn neighbours(graph: &Csc, directed: bool) -> Vec<Vec<usize>> {
    let mut lists = in_lists(graph);
    if directed {
        for (list, out) in lists.iter_mut().zip(out_lists(graph)) {
            list.extend(out);
        }
    }
    lists
}
