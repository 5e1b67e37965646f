use serde::{Deserialize, Serialize};

/// Cost of moving partitions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorCounters {
    /// Buffer states entered.
    pub states: u64,
    /// Partitions read.
    pub loads: u64,
    /// Partitions written, including commits.
    pub stores: u64,
    /// Bytes read, alignment included.
    pub bytes_read: u64,
    /// Bytes written, including commits.
    pub bytes_written: u64,
    /// Seconds of reading and writing partitions for swaps.
    pub swap_s: f64,
    /// Seconds of `swap_s` in which the caller had to wait.
    pub waited_s: f64,
    /// Commits.
    pub commits: u64,
    /// Seconds of all commits.
    pub commit_s: f64,
}

impl ExecutorCounters {
    /// Share of the swap time during which the caller computed, in `0.0..=1.0`; 1 without swaps.
    pub fn hidden(&self) -> f64 {
        if self.swap_s <= 0.0 {
            return 1.0;
        }
        (1.0 - self.waited_s / self.swap_s).clamp(0.0, 1.0)
    }
}
