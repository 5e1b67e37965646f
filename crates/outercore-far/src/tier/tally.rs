//! Counters of all readers of a tier.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of all readers of a tier.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) far: Pair,
    pub(crate) disk: Pair,
    pub(crate) failed_over: AtomicU64,
    pub(super) placed_bytes: AtomicU64,
    pub(super) found_bytes: AtomicU64,
    pub(super) queue_bytes: AtomicU64,
    pub(super) most_queue_bytes: AtomicU64,
}

/// Number of requests and of their bytes.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    pub(super) requests: AtomicU64,
    pub(super) bytes: AtomicU64,
}

impl Pair {
    pub(crate) fn add(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Tally {
    pub(crate) fn take_memory(&self, bytes: u64) {
        let now = self.queue_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most_queue_bytes.fetch_max(now, Ordering::Relaxed);
    }

    pub(crate) fn give_memory(&self, bytes: u64) {
        self.queue_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}
