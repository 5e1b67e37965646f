//! Placement of an embedding run: everything in memory, or partitions of which a few are in memory
//! at a time. Pure.
//!
//! With everything in memory, the tables, the triples and the data drawn in each epoch must fit the
//! budget. Otherwise the entities are divided into partitions. As many partitions are in memory at
//! a time as fit with the other data.

mod choice;
mod counted;
mod memory;
mod request;

use std::cmp;

use outercore_core::{Bytes, Error, ErrorKind, Result, hint};
use serde::Serialize;

use crate::buckets::{BucketCounts, Pools};
use crate::walk::WalkConfig;

use choice::{Planner, thousands};
use counted::place_counted;
use memory::{filled, in_memory, partitioned};

pub use choice::score_seconds;
pub use memory::{LEAST_QUESTIONS, Parts, question_bytes};
pub use request::{Batches, Budget, Model, Negatives, Ranking, Request, Scores, Size, SwapKind};

/// The placement of a run's data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Bytes of the budget.
    pub memory: u64,
    /// Number of partitions; 1 means that everything is in memory.
    pub partitions: usize,
    /// Slots for partitions, including the spare slot.
    pub slots: usize,
    /// Kind of swap.
    pub swap: SwapKind,
    /// Walks through the order per epoch.
    pub sweeps: u32,
    /// Parts of a partition, which are combined differently in each walk.
    pub group: usize,
    /// Bytes of a partition: rows and the optimiser's state, in whole pages.
    pub partition_bytes: u64,
    /// Largest pool that fits, in triples.
    pub pool: u64,
    /// Sets of negatives per chunk.
    pub negative_sets: u64,
    /// Bytes by purpose.
    pub parts: Parts,
}

impl Placement {
    /// Bytes of all parts.
    pub fn needed(&self) -> u64 {
        self.parts.total()
    }

    /// Whether everything is in memory.
    pub fn in_memory(&self) -> bool {
        self.partitions == 1
    }

    /// Whether a spare slot is kept free.
    pub fn spare(&self) -> bool {
        self.swap == SwapKind::SpareSlot
    }

    /// The share of the entities that a triple can be compared with at a time.
    ///
    /// With swaps in place one partition less counts, because a step may lack the partition that
    /// leaves.
    pub fn compared(&self) -> f64 {
        if self.in_memory() {
            return 1.0;
        }
        let together = self.there() - usize::from(self.swap == SwapKind::InPlace);
        cmp::max(together, 1) as f64 / self.partitions as f64
    }

    /// Configuration of the walks.
    pub fn walks(&self, request: &Request) -> WalkConfig {
        WalkConfig {
            sweeps: self.sweeps,
            spread: request.spreads(),
            rename: request.budget.rename,
            in_turn: self.swap == SwapKind::InTurn,
            group: self.group as u32,
            seed: request.seed,
        }
    }

    /// Number of partitions that are trained at a time.
    fn there(&self) -> usize {
        self.slots - usize::from(self.spare())
    }

    /// Number of pools of a buffer state: swaps in place divide it in two.
    fn pools_of_state(&self) -> usize {
        if self.swap == SwapKind::InPlace { 2 } else { 1 }
    }
}

/// A placement, and further values for messages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The placement.
    pub placement: Placement,
    /// Bytes that are needed for everything in memory.
    pub everything: u64,
    /// Number of true answers to the ranked questions, counted or estimated.
    pub answers: u64,
    /// Bytes of each answer.
    pub answer_bytes: u64,
}

/// Callback that counts the triples in the buckets of a table with the given number of partitions.
pub type Count<'a> = &'a mut dyn FnMut(usize) -> Result<BucketCounts>;

/// Divides the budget: everything in memory if it fits, otherwise the best partitions that fit.
///
/// Triples count as evenly spread at first. If a few entities have many triples, the largest pool
/// may not fit with the chosen partitions. With `count`, the buckets are then counted, and other
/// placements are tried that the request leaves open. All placements for one number of parts are
/// tried before triples are counted for another number: first larger numbers, then smaller ones.
///
/// **Cost**: a short search for each number of partitions and slots; one call of `count` for each
/// number of parts that is tried.
///
/// # Errors
/// `Budget`, with the least sufficient memory, or with a sufficient amount if finding the least
/// would take long searches. `Invalid`: options that exclude each other, or numbers without an
/// order. Errors of `count`.
///
/// # Example
/// ```
/// use outercore_embed::placement::{Request, Size, decide};
/// let request: Request = serde_json::from_str(
///     r#"{
///         "budget": {"memory": 209715200, "partitions": 0, "slots": 0, "order": "optimal",
///             "swap": null, "sweeps": 0, "spread": true, "rename": true, "group": 0},
///         "model": {"dim": 64, "state_width": 64, "relation_width": 64,
///             "relation_state_width": 64, "reciprocal": false, "scores": "products"},
///         "batches": {"size": 1000, "chunk": 1000},
///         "negatives": {"count": 1000, "by_degree": false, "known": false, "bias_weighs": true},
///         "ranking": {"kinds": 1, "drawn": 0, "count": 1000, "by_degree": false, "filtered": true},
///         "seed": 0
///     }"#,
/// )
/// .unwrap();
/// let size = Size {
///     entities: 1_000_000, relations: 50, triples: 8_000_000, weighted: false, held_out: 0,
///     answers: None, first_rows: 0,
/// };
/// let placement = decide(&request, &size, None)?.placement;
/// assert!(placement.partitions > 1 && placement.needed() <= 209_715_200);
/// # Ok::<(), outercore_core::Error>(())
/// ```
pub fn decide(request: &Request, size: &Size, count: Option<Count<'_>>) -> Result<Decision> {
    let planner = Planner::new(request, size);
    let first = planner.place()?;
    let placement = match count {
        Some(count) if !first.in_memory() => place_counted(&planner, first, count)?,
        _ => first,
    };
    Ok(Decision {
        placement,
        everything: in_memory(request, size).needed(),
        answers: size.answers(),
        answer_bytes: size.answer_bytes(),
    })
}

/// The placement of a resumed run, with its actual pools. Their additional memory is taken from the
/// evaluation and from unused memory. `request` must set all numbers.
///
/// # Errors
/// `Budget`, with the least sufficient memory; `Invalid`: a number is left open.
pub fn with_pools(request: &Request, size: &Size, pools: Pools) -> Result<Placement> {
    let asked = &request.budget;
    let Some(swap) = asked.swap.filter(|_| asked.partitions > 1 && asked.slots > 1) else {
        return Err(Error::invalid("pools of a run whose partitions are not known"));
    };
    let found = partitioned(request, size, (asked.partitions, asked.slots, swap), Some(pools));
    let needed = found.needed();
    if needed <= found.memory {
        return Ok(filled(found));
    }
    let message = format!(
        "{} partitions within {}: some have up to {} triples in one pool, which needs at least {}, \
         which is {needed} bytes",
        found.partitions,
        Bytes(found.memory),
        thousands(pools.most),
        Bytes(needed)
    );
    Err(Error::new(ErrorKind::Budget, message).needs(Bytes(needed)).hint(hint!(
        "give that " {memory} "; partitions and slots of a run stay as they are"
    )))
}
