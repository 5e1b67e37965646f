//! Reports the work of a live graph, for metrics.

use std::time::Duration;

use outercore_core::Bytes;

/// Statistics of records that were made durable together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Number of records; 0 if every write was rejected before the disk was used.
    pub records: u64,
    /// Number of updates in the records.
    pub updates: u64,
    /// Bytes added to the log.
    pub bytes: Bytes,
    /// Duration of the write and the sync.
    pub took: Duration,
    /// Whether they failed; then none of the records is valid.
    pub failed: bool,
}

/// Observer of commits and folds, called by the thread that did the work.
///
/// Implementations must return quickly, because updates and folds wait for them.
pub trait Watch: Send + Sync {
    /// Called after records became durable, or failed to.
    fn committed(&self, commit: &Commit);

    /// Called after the log was folded into the arrays, or the fold failed.
    fn folded(&self, took: Duration, failed: bool);
}

/// An observer that ignores all reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn committed(&self, _: &Commit) {}

    fn folded(&self, _: Duration, _: bool) {}
}
