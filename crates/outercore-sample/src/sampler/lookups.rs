//! The sampler's requests to a topology, step by step.

use std::ops::Range;

use outercore_core::NodeId;
use outercore_store::Extent;

use super::work::Work;
use crate::stored::Stored;

/// The look-ups of some steps; kept to save allocations.
///
/// A *share* is the request of one step for one batch. Shares are ordered by step, then by batch.
#[derive(Default)]
pub(super) struct Lookups {
    pub columns: Vec<NodeId>,
    /// The coordinate of each column's draws if it differs from the column: for disjoint trees.
    pub coordinates: Vec<u64>,
    /// The tree of each column, if trees are disjoint.
    pub trees: Vec<u32>,
    /// Number of edges of each column, if trees are disjoint.
    pub counts: Vec<u32>,
    /// Number of columns of each share.
    pub shares: Vec<usize>,
    pub extents: Vec<Extent>,
    /// Number of edges picked for each share.
    pub picked: Vec<usize>,
    pub positions: Vec<u64>,
    pub answers: Vec<u64>,
}

/// The undecided blocks of a step.
pub(super) struct Blocks {
    /// Destinations of these blocks.
    pub rest: Range<usize>,
    /// Number of destinations per block.
    pub len: usize,
}

impl Blocks {
    /// The destinations of the first block; empty if no block is left.
    pub fn first(&self) -> Range<usize> {
        self.rest.start..(self.rest.start + self.len).min(self.rest.end)
    }

    pub fn take(&mut self) -> Range<usize> {
        let block = self.first();
        self.rest.start = block.end;
        block
    }
}

impl Lookups {
    /// Prepares for other columns; extents, positions and answers are overwritten later.
    pub fn clear(&mut self) {
        self.columns.clear();
        self.coordinates.clear();
        self.trees.clear();
        self.shares.clear();
    }

    /// Adds the share of a batch's `block`; each tree has `of_tree` columns.
    pub fn add(&mut self, work: &Work<impl Stored>, block: Range<usize>, of_tree: u64) {
        self.shares.push(block.len());
        work.columns(block.clone(), &mut self.columns);
        if work.forest.is_some() {
            let trees = &work.trees[block.clone()];
            let columns = &self.columns[self.columns.len() - block.len()..];
            let pairs = columns.iter().zip(trees);
            self.coordinates
                .extend(pairs.map(|(&column, &tree)| u64::from(tree) * of_tree + column));
            self.trees.extend_from_slice(trees);
        }
    }

    /// Prepares for the `block` of a single batch.
    pub fn ask(&mut self, work: &Work<impl Stored>, block: Range<usize>) {
        self.clear();
        self.add(work, block, 0);
    }
}
