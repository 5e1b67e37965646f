use std::ops::AddAssign;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Cost of reading: requests sent to the device and bytes that came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadCounters {
    /// Read requests completed.
    pub requests: u64,
    /// Bytes read, gaps and alignment included.
    pub bytes: u64,
    /// Bytes that callers requested; `bytes / useful_bytes` is the read amplification.
    pub useful_bytes: u64,
}

impl ReadCounters {
    /// The reads since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            bytes: self.bytes - before.bytes,
            useful_bytes: self.useful_bytes - before.useful_bytes,
        }
    }
}

impl AddAssign for ReadCounters {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.useful_bytes += other.useful_bytes;
    }
}

/// Where the rows of the batches came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheCounters {
    /// Row accesses, before deduplication.
    pub accesses: u64,
    /// Distinct rows per fetch group, summed over groups.
    pub distinct: u64,
    /// Distinct rows found in the constant part.
    pub constant_hits: u64,
    /// Distinct rows found in the dynamic part.
    pub dynamic_hits: u64,
    /// Distinct rows read from the device.
    pub misses: u64,
}

impl CacheCounters {
    /// Share of row accesses that needed no read, in `0.0..=1.0`; deduplication counts as a hit.
    pub fn hit_ratio(&self) -> f64 {
        if self.accesses == 0 {
            return 0.0;
        }
        1.0 - self.misses as f64 / self.accesses as f64
    }
}

impl AddAssign for CacheCounters {
    fn add_assign(&mut self, other: Self) {
        self.accesses += other.accesses;
        self.distinct += other.distinct;
        self.constant_hits += other.constant_hits;
        self.dynamic_hits += other.dynamic_hits;
        self.misses += other.misses;
    }
}

/// How a pipeline stage spent its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageCounters {
    /// Items that left the stage.
    pub items: u64,
    /// Seconds spent working.
    pub busy_s: f64,
    /// Seconds spent waiting for the previous stage.
    pub starved_s: f64,
    /// Seconds spent waiting for room in the next stage.
    pub blocked_s: f64,
}

impl AddAssign for StageCounters {
    fn add_assign(&mut self, other: Self) {
        self.items += other.items;
        self.busy_s += other.busy_s;
        self.starved_s += other.starved_s;
        self.blocked_s += other.blocked_s;
    }
}

/// A stopwatch that splits one thread's time between the fields of [`StageCounters`].
#[derive(Debug)]
pub struct StageClock {
    last: Instant,
}

impl StageClock {
    /// Starts now.
    pub fn start() -> Self {
        Self { last: Instant::now() }
    }

    /// Adds the time since the last lap to `seconds` and returns it.
    pub fn lap(&mut self, seconds: &mut f64) -> Duration {
        let now = Instant::now();
        let elapsed = now - self.last;
        self.last = now;
        *seconds += elapsed.as_secs_f64();
        elapsed
    }
}
