//! Counters of reads through far memory.

use outercore_core::Bytes;
use serde::{Deserialize, Serialize};

/// Reads that a [`FarTier`](crate::FarTier) has served from far memory and from the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FarCounters {
    /// Reads from far memory.
    pub far_requests: u64,
    /// Bytes of these reads.
    pub far_bytes: u64,
    /// Reads of the tier from the disk, including reads that failed over.
    pub disk_requests: u64,
    /// Bytes of these reads.
    pub disk_bytes: u64,
    /// Reads that were sent to far memory and then served by the disk.
    pub failed_over: u64,
    /// Bytes that this tier has copied to the server.
    pub placed_bytes: u64,
    /// Bytes that were found on the server under their content name.
    pub found_bytes: u64,
    /// Peak memory of receive buffers and queue entries.
    pub queue_bytes: Bytes,
    /// Why the server counts as gone; `None` while it is alive.
    pub lost: Option<String>,
}

impl FarCounters {
    /// Counts since `before`. `queue_bytes` and `lost` are taken from `self`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            far_requests: self.far_requests - before.far_requests,
            far_bytes: self.far_bytes - before.far_bytes,
            disk_requests: self.disk_requests - before.disk_requests,
            disk_bytes: self.disk_bytes - before.disk_bytes,
            failed_over: self.failed_over - before.failed_over,
            placed_bytes: self.placed_bytes - before.placed_bytes,
            found_bytes: self.found_bytes - before.found_bytes,
            queue_bytes: self.queue_bytes,
            lost: self.lost.clone(),
        }
    }
}
