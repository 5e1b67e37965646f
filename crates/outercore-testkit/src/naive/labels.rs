//! Label propagation.

use std::collections::BTreeMap;

use outercore_core::{Stream, mix};

use super::cores::neighbours;
use crate::graph::Csc;

/// The label of each node after `iterations`. The first label is the node's id. In each iteration,
/// it becomes the most frequent label of the neighbours, and among equally frequent ones the
/// smallest.
///
/// `directed`: in- and out-neighbours count; otherwise every edge has two arcs.
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

/// Label propagation with asynchronous updates. Also returns whether no node would change its
/// label.
///
/// Among the most frequent labels, a node prefers its current label, then the label with the
/// smallest draw. A node changes in an iteration if the draw of its label is not in the last
/// quarter.
pub fn asynchronous(graph: &Csc, directed: bool, iterations: u32, seed: u64) -> (Vec<i64>, bool) {
    let lists = neighbours(graph, directed);
    let mut labels: Vec<i64> = (0..lists.len() as i64).collect();
    let draw = |label: i64| (mix(seed ^ mix(label as u64)), label);
    let wishes = |labels: &[i64]| -> Vec<i64> {
        let wish = |(list, &own): (&Vec<usize>, &i64)| {
            let mut counts = BTreeMap::new();
            for &other in list {
                *counts.entry(labels[other]).or_insert(0u64) += 1;
            }
            let Some(&most) = counts.values().max() else { return own };
            let best = counts.into_iter().filter(|&(_, count)| count == most);
            best.map(|(label, _)| label).min_by_key(|&label| (label != own, draw(label))).unwrap()
        };
        lists.iter().zip(labels).map(wish).collect()
    };
    for iteration in 0..u64::from(iterations) {
        let wished = wishes(&labels);
        let stream = Stream::new(seed, iteration);
        for (label, wish) in labels.iter_mut().zip(wished) {
            if stream.uniform(0, 0, *label as u64).below(4) > 0 {
                *label = wish;
            }
        }
    }
    let settled = wishes(&labels) == labels;
    (labels, settled)
}
