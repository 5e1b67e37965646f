//! Shares of the server's resources: bytes or file descriptors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A share of the server's bytes or file descriptors, returned when dropped.
///
/// The bytes of a region are shared by the region and by the sessions that have received its
/// memory. As long as a client can read the memory, the kernel cannot reuse it.
#[derive(Debug)]
pub(in crate::server) struct Room {
    share: u64,
    used: Arc<AtomicU64>,
}

impl Room {
    /// Takes `share` of `size`.
    ///
    /// # Errors
    /// The used amount, if too little is left.
    pub(super) fn take(
        used: &Arc<AtomicU64>,
        share: u64,
        size: u64,
    ) -> std::result::Result<Self, u64> {
        let more = |used: u64| used.checked_add(share).filter(|&after| after <= size);
        used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)?;
        Ok(Self { share, used: Arc::clone(used) })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.fetch_sub(self.share, Ordering::Relaxed);
    }
}
