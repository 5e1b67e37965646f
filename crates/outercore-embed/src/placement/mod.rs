//! Where an embedding run keeps everything: in memory, or in partitions of which some are there at
//! a time. Pure.
//!
//! With everything in memory the tables, the triples and what is drawn each epoch must fit the
//! budget. Else the entities are divided into partitions, of which as many are in memory at a time
//! as fit beside the rest.

mod choice;
mod counted;
mod memory;
mod request;

use std::cmp;

use outercore_core::{Bytes, Error, ErrorKind, Result};
use serde::Serialize;

use crate::buckets::{BucketCounts, Pools};
use crate::walk::WalkConfig;

use choice::{Planner, thousands};
use counted::place_counted;
use memory::{filled, in_memory, partitioned};

pub use choice::score_seconds;
pub use memory::{LEAST_QUESTIONS, Parts, question_bytes};
pub use request::{Batches, Budget, Model, Negatives, Ranking, Request, Scores, Size, SwapKind};

/// Where everything is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Bytes of the budget.
    pub memory: u64,
    /// 1: everything is in memory.
    pub partitions: usize,
    /// Partitions in memory, the spare slot included.
    pub slots: usize,
    /// How partitions are swapped.
    pub swap: SwapKind,
    /// Walks through the order that make an epoch.
    pub sweeps: u32,
    /// Parts of a partition, combined anew from walk to walk.
    pub group: usize,
    /// Bytes of a partition: rows and what the optimiser keeps, in whole pages.
    pub partition_bytes: u64,
    /// Triples of the largest pool that there is room for.
    pub pool: u64,
    /// Sets of negatives that the triples of a chunk need.
    pub negative_sets: u64,
    /// Bytes by purpose.
    pub parts: Parts,
}

impl Placement {
    /// Bytes of all parts.
    pub fn needed(&self) -> u64 {
        self.parts.total()
    }

    /// Whether there are no partitions.
    pub fn in_memory(&self) -> bool {
        self.partitions == 1
    }

    /// Whether a slot is kept free.
    pub fn spare(&self) -> bool {
        self.swap == SwapKind::SpareSlot
    }

    /// The share of the entities that triples are compared with at a time.
    ///
    /// Swaps in place count one partition less: a step trains with or without the one that leaves.
    pub fn compared(&self) -> f64 {
        if self.in_memory() {
            return 1.0;
        }
        let together = self.there() - usize::from(self.swap == SwapKind::InPlace);
        cmp::max(together, 1) as f64 / self.partitions as f64
    }

    /// How epochs go through the order.
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

    /// Partitions that are trained at a time.
    fn there(&self) -> usize {
        self.slots - usize::from(self.spare())
    }

    /// Pools of a buffer state: swaps in place divide it.
    fn pools_of_state(&self) -> usize {
        if self.swap == SwapKind::InPlace { 2 } else { 1 }
    }
}

/// A placement, and what people are told beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// What was decided.
    pub placement: Placement,
    /// Bytes that everything in memory would need.
    pub everything: u64,
    /// True answers to what is ranked, counted or estimated, and the bytes of each.
    pub answers: u64,
    /// Bytes of each of these.
    pub answer_bytes: u64,
}

/// Counts the triples in the buckets of a table of so many parts.
pub type Count<'a> = &'a mut dyn FnMut(usize) -> Result<BucketCounts>;

/// Divides the budget: everything in memory if that fits, else the best partitions that do.
///
/// Triples are taken to be spread about evenly. Where a few entities have many of them, the largest
/// pool may have no room beside the partitions that were chosen: with `count` the buckets are
/// counted, and others are looked for that the request leaves open. Tables of as many parts are
/// gone through before triples are counted for others: more parts then, fewer at last.
///
/// **Cost**: a short search for each number of partitions and slots; `count` once for each number
/// of parts that is looked at.
///
/// # Errors
/// `Budget` with the least memory that would do, or one that is enough where the least would take
/// long searches; `Invalid`: options that exclude each other, numbers that there is no order for;
/// those of `count`.
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

/// The partitions of a run that goes on, with pools as large as its buckets make them: what these
/// take more is taken from evaluation and from what was left. `request` says all numbers.
///
/// # Errors
/// `Budget` with the least memory; `Invalid`: a number is left open.
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
    Err(Error::new(ErrorKind::Budget, message)
        .needs(Bytes(needed))
        .hint("give that `--memory`; partitions and slots of a run stay as they are"))
}
