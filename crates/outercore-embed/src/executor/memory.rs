//! Plans the memory of training in partitions. Pure.

use outercore_core::{Bytes, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::buckets::{Buckets, pool_bytes};
use crate::layout::{PAGE, TableLayout};
use crate::walk::Walks;

/// Smallest staging with which reads work, although slowly.
const LEAST_STAGING: u64 = 128 << 10;
/// Largest useful staging: more did not speed up any tested device.
const MOST_STAGING: u64 = 8 << 20;
/// Bytes per bucket for the table of buckets and for bookkeeping of their parts.
const BUCKET: u64 = 32;

/// Memory by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutorMemory {
    /// Partitions in memory, the spare one included.
    pub slots: Bytes,
    /// Reads of partitions in flight.
    pub staging: Bytes,
    /// Reads of triples in flight.
    pub bucket_staging: Bytes,
    /// The triples of a step, and the table of buckets.
    pub pool: Bytes,
    /// All triples, if they are kept in memory.
    pub triples: Bytes,
}

impl ExecutorMemory {
    /// Total memory.
    pub fn total(&self) -> Bytes {
        let Self { slots, staging, bucket_staging, pool, triples } = self;
        Bytes(slots.0 + staging.0 + bucket_staging.0 + pool.0 + triples.0)
    }

    /// Whether the triples are kept in memory.
    pub fn keeps_triples(&self) -> bool {
        self.triples.0 > 0
    }
}

/// Divides `memory`. Slots, the largest pool of triples and a little staging come first, then more
/// staging, then all triples if they fit. Only speed depends on it.
///
/// `memory` does not include the memory of the caller: copies of a step's triples, relations,
/// batches, gradients.
///
/// # Errors
/// `Budget`: too little memory, with the smallest sufficient amount.
pub fn plan_memory(
    layout: &TableLayout,
    walks: &Walks,
    buckets: &Buckets,
    memory: Bytes,
) -> Result<ExecutorMemory> {
    let slots = walks.slots();
    let (weighted, pools) = (buckets.weighted(), buckets.largest_pool(walks));
    let table = BUCKET * (walks.partitions() as u64).pow(2);
    let mut plan = ExecutorMemory {
        slots: Bytes(layout.partition_bytes().0 * slots as u64),
        staging: Bytes(LEAST_STAGING),
        bucket_staging: Bytes(LEAST_STAGING),
        pool: Bytes(pool_bytes(pools.most + pools.beside, weighted).0 + table),
        triples: Bytes(0),
    };
    let least = plan.total();
    if memory < least {
        return Err(Error::new(
            ErrorKind::Budget,
            format!(
                "{slots} slots of {} and a pool of {} within {memory}: at least {least}, which is \
                 {} bytes",
                layout.partition_bytes(),
                plan.pool,
                least.0
            ),
        )
        .needs(least)
        .hint("give more memory, or choose more partitions or fewer slots"));
    }
    let page = PAGE as u64;
    let share = (memory.0 - least.0) / 4 / page * page;
    plan.staging.0 += share.min(MOST_STAGING - LEAST_STAGING);
    plan.bucket_staging.0 += share.min(MOST_STAGING - LEAST_STAGING);
    let all = pool_bytes(buckets.triples(), weighted);
    if plan.total().0 + all.0 <= memory.0 {
        plan.triples = all;
    }
    Ok(plan)
}
