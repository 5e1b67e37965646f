//! Counters of a loader's stages, and the times of their work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use outercore_core::{CacheCounters, ReadCounters, StageCounters};
use outercore_far::FarCounters;
use serde::{Deserialize, Serialize};

use crate::timeline::Timeline;

/// Counts since the counters were last taken.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Groups that left the pipeline.
    pub groups: u64,
    /// The sampling stage.
    pub sample: StageCounters,
    /// The fetching stage.
    pub fetch: StageCounters,
    /// Assembly in the consumer's thread; `starved_s` is the time the consumer waited for a batch.
    pub assemble: StageCounters,
    /// Feature reads.
    pub feature_reads: ReadCounters,
    /// Topology reads.
    pub topology_reads: ReadCounters,
    /// Row accesses by source.
    pub cache: CacheCounters,
    /// Reads from far memory, if there is a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<FarCounters>,
}

/// Counters and timeline, written by all stages.
#[derive(Debug)]
pub struct Shared {
    /// Counters since the last take.
    pub counters: Counters,
    /// Spans since the last take.
    pub timeline: Timeline,
}

/// State shared between the stages of one loader.
pub type SharedState = Arc<Mutex<Shared>>;

/// Locks the shared state. A poisoned lock still protects valid counters.
pub fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
