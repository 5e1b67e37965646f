//! A batch in the memory of its epoch.

use crate::fetch::Ready;
use crate::group::{Group, GroupBatch};
use outercore_sample::SampledBatch;

/// A batch, borrowed from its epoch.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub(super) ready: &'a Ready,
    pub(super) batch: &'a GroupBatch,
}

impl<'a> Batch<'a> {
    /// The sampled subgraph.
    pub fn sampled(&self) -> &'a SampledBatch {
        &self.batch.sampled
    }

    /// Places of the seeds in the input.
    pub fn input_ids(&self) -> &'a [u64] {
        &self.batch.input_ids
    }

    /// The group of the batch.
    pub fn group(&self) -> &'a Group {
        &self.ready.group
    }
}
