//! Draws nodes for each node type from budgets.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use outercore_core::{NodeId, Stream, mix};

use super::pick::{OF_SOURCES, first, key};
use crate::config::FanOut;

/// Bytes per node with a score: its entry in the table, up to three times while the table grows, or
/// its key.
pub(super) const SCORE_BYTES: u64 = 64;

type Scores = HashMap<NodeId, f64, BuildHasherDefault<SpreadIds>>;

/// Hashes node ids: with the standard hash, hashing would take most of the time per edge.
#[derive(Default)]
struct SpreadIds(u64);

impl Hasher for SpreadIds {
    fn write(&mut self, _: &[u8]) {
        unreachable!("ids are hashed as whole numbers");
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = mix(id);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The nodes that a batch may draw next, with their scores.
///
/// A node's score is the sum of `1 / degree` over its edges to nodes of the batch. `degree` counts
/// the in-edges of the target of that edge type.
#[derive(Debug, Default)]
pub(crate) struct NodeBudget {
    /// By node type.
    of_types: Vec<Scores>,
}

impl NodeBudget {
    /// An empty budget for `node_types` node types.
    pub fn new(node_types: usize) -> Self {
        Self { of_types: vec![Scores::default(); node_types] }
    }

    /// Adds `share` to the score of a node.
    pub fn add(&mut self, node_type: usize, node: NodeId, share: f64) {
        *self.of_types[node_type].entry(node).or_default() += share;
    }

    /// Bytes that the scores need while they grow or are drawn from.
    pub fn scratch(&self) -> u64 {
        self.len() as u64 * SCORE_BYTES
    }

    /// Number of nodes in the budget, of all types.
    pub fn len(&self) -> usize {
        self.of_types.iter().map(Scores::len).sum()
    }

    /// Removes the given number of nodes of each type from the budget, or all of them if there are
    /// fewer.
    ///
    /// Each draw takes one of the remaining nodes, in proportion to the square of its score. This
    /// is done by taking the nodes with the smallest `-ln(u) / score^2`, in this order, with one
    /// random `u` per node. Types are processed in order.
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
            let keyed = scores.iter().map(|(&node, &score)| {
                let draw = stream.uniform(batch, hop | OF_SOURCES, node).unit();
                (key(draw, score * score), node)
            });
            for node in first(keyed.collect(), count) {
                scores.remove(&node);
                drawn.push(node);
            }
        }
        drawn
    }
}
