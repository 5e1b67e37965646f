//! Types of Prometheus metrics.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// A number that goes up and down.
pub type Level = Gauge<u64, AtomicU64>;

/// A histogram of times, from a tenth of a millisecond to a minute.
pub fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(1e-4, 2.0, 20))
}

/// A histogram of counts up to 4096.
pub fn counts() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 13))
}
