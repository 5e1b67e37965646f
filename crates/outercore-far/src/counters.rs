//! What reading through far memory cost.

use outercore_core::Bytes;
use serde::{Deserialize, Serialize};

/// What a [`FarTier`](crate::FarTier) has served, and what it has left to the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FarCounters {
    /// Reads that far memory answered.
    pub far_requests: u64,
    /// Bytes of them.
    pub far_bytes: u64,
    /// Reads through the tier that the disk answered, those that failed over included.
    pub disk_requests: u64,
    /// Bytes of them.
    pub disk_bytes: u64,
    /// Reads that far memory was asked for and the disk answered.
    pub failed_over: u64,
    /// Bytes that were copied to the server for this tier.
    pub placed_bytes: u64,
    /// Bytes that were found on the server under their content name.
    pub found_bytes: u64,
    /// Most memory that receive buffers and the entries of queues have taken at once.
    pub queue_bytes: Bytes,
    /// Why the server was given up, where it was.
    pub lost: Option<String>,
}

impl FarCounters {
    /// What has been counted since `before`; memory and the loss of the server stand as they are.
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
