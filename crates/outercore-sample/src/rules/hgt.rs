//! Nodes drawn for each type from budgets.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use outercore_core::{NodeId, Stream};

use super::pick::OF_SOURCES;
use crate::config::FanOut;

type Scores = HashMap<NodeId, f64, BuildHasherDefault<SpreadIds>>;

/// Hashes ids of nodes: the standard hash takes most of the time that an edge takes.
#[derive(Default)]
struct SpreadIds(u64);

impl Hasher for SpreadIds {
    fn write(&mut self, _: &[u8]) {
        unreachable!("ids are hashed as whole numbers");
    }

    fn write_u64(&mut self, id: u64) {
        let spread = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        // A table looks at the highest and at the lowest bits.
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The nodes that a batch may draw next, and their scores.
///
/// A node's score is the sum of `1 / degree` over the edges to nodes of the batch, where `degree`
/// counts the in-edges of the target of that edge type.
#[derive(Debug, Default)]
pub(crate) struct NodeBudget {
    /// By node type.
    of_types: Vec<Scores>,
}

impl NodeBudget {
    /// An empty budget for so many node types.
    pub fn new(node_types: usize) -> Self {
        Self { of_types: vec![Scores::default(); node_types] }
    }

    /// Adds `share` to the score of a node.
    pub fn add(&mut self, node_type: usize, node: NodeId, share: f64) {
        *self.of_types[node_type].entry(node).or_default() += share;
    }

    /// Nodes in the budget, of all types.
    pub fn len(&self) -> usize {
        self.of_types.iter().map(Scores::len).sum()
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
