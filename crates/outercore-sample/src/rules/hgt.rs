//! Nodes drawn for each type from budgets.

use std::collections::HashMap;

use outercore_core::{NodeId, Stream};

use super::pick::OF_SOURCES;
use crate::config::FanOut;

/// The nodes that a batch may draw next, and their scores.
///
/// A node's score is the sum of `1 / degree` over the edges to nodes of the batch, where `degree`
/// counts the in-edges of the target of that edge type.
#[derive(Debug, Default)]
pub(crate) struct NodeBudget {
    /// By node type.
    of_types: Vec<HashMap<NodeId, f64>>,
}

impl NodeBudget {
    /// An empty budget for so many node types.
    pub fn new(node_types: usize) -> Self {
        Self { of_types: vec![HashMap::new(); node_types] }
    }

    /// Adds `share` to the score of a node.
    pub fn add(&mut self, node_type: usize, node: NodeId, share: f64) {
        *self.of_types[node_type].entry(node).or_default() += share;
    }

    /// Nodes in the budget, of all types.
    pub fn len(&self) -> usize {
        self.of_types.iter().map(HashMap::len).sum()
    }

    /// Takes so many nodes of each type out of the budget, or all there are.
    ///
    /// Each draw takes one of the nodes left, in proportion to the square of its score. Drawn are
    /// those with the smallest `-ln(u) / score^2`, in this order; `u` is drawn for each node. Types
    /// come in order.
    pub fn draw(&mut self, stream: Stream, batch: u64, hop: u32, counts: &[FanOut]) -> Vec<NodeId> {
        let mut drawn = Vec::new();
        for (scores, &count) in self.of_types.iter_mut().zip(counts) {
            let count = match count {
                FanOut::All => scores.len(),
                FanOut::Take(count) => scores.len().min(count as usize),
            };
            if count == 0 {
                continue;
            }
            let key = |(&node, &score): (&NodeId, &f64)| {
                let draw = stream.uniform(batch, hop | OF_SOURCES, node).unit();
                (-(1.0 - draw).ln() / (score * score), node)
            };
            let mut keyed: Vec<(f64, NodeId)> = scores.iter().map(key).collect();
            let by_key =
                |a: &(f64, NodeId), b: &(f64, NodeId)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
            if count < keyed.len() {
                keyed.select_nth_unstable_by(count, by_key);
                keyed.truncate(count);
            }
            keyed.sort_unstable_by(by_key);
            for (_, node) in keyed {
                scores.remove(&node);
                drawn.push(node);
            }
        }
        drawn
    }
}
