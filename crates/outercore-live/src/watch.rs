//! What a live graph reports of its work, for metrics.

use std::time::Duration;

use outercore_core::Bytes;

/// Records that were made durable together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Records; 0 where every write was refused before the disk was touched.
    pub records: u64,
    /// Updates in them.
    pub updates: u64,
    /// Bytes that the log grew by.
    pub bytes: Bytes,
    /// How long the write and the sync took.
    pub took: Duration,
    /// Whether they failed: none of the records counts then.
    pub failed: bool,
}

/// Is told of work once it is done, by the thread that did it.
///
/// Must return soon: updates and folds wait meanwhile.
pub trait Watch: Send + Sync {
    /// Records became durable, or could not be.
    fn committed(&self, commit: &Commit);

    /// The log was folded into the arrays, or could not be.
    fn folded(&self, took: Duration, failed: bool);
}

/// Nobody measures.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn committed(&self, _: &Commit) {}

    fn folded(&self, _: Duration, _: bool) {}
}
