//! Label propagation.

use std::collections::BTreeMap;

use super::cores::neighbours;
use crate::graph::Csc;

/// The label of each node after `iterations`: at first its own id, then the most frequent of its
/// neighbours' labels, of equally frequent ones the smallest.
///
/// `directed`: in- and out-neighbours count; otherwise every edge is there as two arcs.
pub fn label_propagation(graph: &Csc, directed: bool, iterations: u32) -> Vec<i64> {
    let lists = neighbours(graph, directed);
    let mut labels: Vec<i64> = (0..lists.len() as i64).collect();
    for _ in 0..iterations {
        labels = lists
            .iter()
            .zip(&labels)
            .map(|(list, &own)| {
                let mut counts = BTreeMap::new();
                for &other in list {
                    *counts.entry(labels[other]).or_insert(0u64) += 1;
                }
                let most = counts.values().max();
                let first = counts.iter().find(|(_, count)| Some(*count) == most);
                first.map_or(own, |(&label, _)| label)
            })
            .collect();
    }
    labels
}
