//! What the sampler asks a topology for, step by step.

use std::ops::Range;

use outercore_core::NodeId;
use outercore_store::Extent;

use super::work::Work;
use crate::stored::Stored;

/// The lookups of some steps, kept to spare allocations.
///
/// A *share* is what one step asks for one batch. Shares follow each other by step, then by batch.
#[derive(Default)]
pub(super) struct Lookups {
    pub columns: Vec<NodeId>,
    /// What the draws of each column belong to, where that is not the column: of disjoint trees.
    pub coordinates: Vec<u64>,
    /// The tree of each column, where these are disjoint.
    pub trees: Vec<u32>,
    /// Edges of each column, where trees are disjoint.
    pub counts: Vec<u32>,
    /// Columns of each share.
    pub shares: Vec<usize>,
    pub extents: Vec<Extent>,
    /// Edges picked for each share.
    pub picked: Vec<usize>,
    pub positions: Vec<u64>,
    pub answers: Vec<u64>,
}

/// The blocks of a step that are still to be decided.
pub(super) struct Blocks {
    /// Their destinations.
    pub rest: Range<usize>,
    /// Destinations of a block.
    pub len: usize,
}

impl Blocks {
    /// The first of them; empty once there is none.
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
    /// Makes ready for other columns; extents, positions and answers are overwritten as they are.
    pub fn clear(&mut self) {
        self.columns.clear();
        self.coordinates.clear();
        self.trees.clear();
        self.shares.clear();
    }

    /// Adds the share of a batch's `block`; trees have `of_tree` columns each.
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

    /// Makes ready for the `block` of one batch alone.
    pub fn ask(&mut self, work: &Work<impl Stored>, block: Range<usize>) {
        self.clear();
        self.add(work, block, 0);
    }
}
