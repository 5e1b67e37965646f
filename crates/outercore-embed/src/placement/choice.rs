//! Chooses among the placements that fit, by seconds at nominal rates.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use outercore_core::{Bytes, Error, ErrorKind, Result, hint};

use super::Placement;
use super::memory::{GROUPS, filled, group_of, in_memory, partitioned};
use super::request::{Request, Size, SwapKind};
use crate::buckets::Pools;
use crate::order::{MAX_PARTITIONS, Order, OrderConfig, OrderKind, SwapMode, partition_order};
use crate::plan::{BucketEdges, OrderPlan, PlanInput, plan_order};

/// Candidate numbers of partitions.
const COUNTS: [usize; 9] = [4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Two placements within this factor count as equally fast. Then fewer partitions win, because
/// their pools are larger.
const NEARLY: f64 = 1.05;
/// Candidate numbers of walks per epoch, largest first.
const SWEEPS: [u32; 4] = [16, 8, 4, 2];
/// I/O counts as hidden if an epoch takes at most this factor of its computing time.
const HIDDEN: f64 = 1.1;
/// Quality drops if triples are compared with a smaller share of the entities (design 0018).
const FEW_COMPARED: f64 = 0.1;
/// Extra seconds that an epoch may take for larger pools or more walks.
const SOON: f64 = 0.5;
/// Smallest pool of a state, as a fraction of a batch: one over this number. Smaller batches cost
/// time.
const BATCH_PARTS: f64 = 4.0;
/// Most swaps that the search for an order examines while placements are compared.
const SEARCH: u64 = 2_000_000;
/// FLOP/s of training, and extra seconds per triple and per pool. They are only used to choose a
/// placement, which should not depend on the machine.
const NOMINAL_RATE: f64 = 1e11;
const NOMINAL_TRIPLE: f64 = 5e-7;
const NOMINAL_POOL: f64 = 2e-3;
/// Seconds per score in ranking, in addition to its product.
const NOMINAL_SCORE: f64 = 2e-9;
/// Bytes per second of a device.
const NOMINAL_BANDWIDTH: f64 = 1e9;
/// Bytes of partitions per second that the cores copy and check, if they do nothing else.
const NOMINAL_MOVED: f64 = 6e9;
/// Cost of a second of hidden device time, because moved bytes are not free even then.
const A_HIDDEN_SECOND: f64 = 0.3;

/// Chooses placements for one request, and caches the orders that it has searched for.
pub(super) struct Planner<'a> {
    pub(super) request: &'a Request,
    pub(super) size: &'a Size,
    orders: RefCell<HashMap<(usize, usize, SwapMode), Rc<Order>>>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(request: &'a Request, size: &'a Size) -> Self {
        Self { request, size, orders: RefCell::default() }
    }

    /// Everything in memory if it fits, otherwise the best partitions that fit, for evenly spread
    /// triples.
    ///
    /// # Errors
    /// `Budget`, with the smallest sufficient amount; `Invalid`: no order exists for the given
    /// numbers.
    pub(super) fn place(&self) -> Result<Placement> {
        let (asked, memory) = (&self.request.budget, self.request.budget.memory);
        self.require_one_walk()?;
        let open = asked.partitions == 0 && asked.slots == 0;
        let whole = in_memory(self.request, self.size);
        if (open || asked.partitions == 1) && whole.needed() <= memory {
            return Ok(filled(whole));
        }
        if asked.partitions == 1 {
            return Err(too_small(memory, whole.needed(), "everything in memory"));
        }
        self.require_parts()?;
        let possible = self.partitioned();
        let Some(least) = possible.iter().map(Placement::needed).min() else {
            return Err(match open {
                true => too_small(memory, whole.needed(), "everything in memory"),
                false => self.no_order(),
            });
        };
        let fits = |one: &Placement| one.needed() <= memory;
        let fitting: Vec<Placement> = possible.into_iter().filter(fits).collect();
        if fitting.is_empty() {
            // Everything in memory was only an option if all numbers were open.
            let least = if open { least.min(whole.needed()) } else { least };
            return Err(too_small(memory, least, "the smallest partitions"));
        }
        // A state should train at least one batch. If that is impossible, use the fewest
        // partitions.
        let batch = self.request.batches.size as f64;
        let fewest = fitting.iter().map(|one| one.partitions).min();
        let (large, small): (Vec<_>, Vec<_>) =
            fitting.into_iter().partition(|one| self.pool(one) >= batch);
        let choices = if large.is_empty() {
            small.into_iter().filter(|one| Some(one.partitions) == fewest).collect()
        } else {
            large
        };
        let timed = choices.into_iter().map(|one| Ok((self.seconds(&one)?, one)));
        let best = fastest(timed.collect::<Result<_>>()?);
        let mut best = self.in_turn(&best)?.unwrap_or(best);
        best.sweeps = match asked.sweeps {
            0 => self.hidden_sweeps(&best)?,
            sweeps => sweeps,
        };
        Ok(filled(best))
    }

    /// Several walks train parts of buckets, but the filter for known triples needs whole buckets.
    fn require_one_walk(&self) -> Result<()> {
        let sweeps = self.request.budget.sweeps;
        if sweeps <= 1 || !self.request.negatives.known {
            return Ok(());
        }
        let message = format!(
            "budget.sweeps: {sweeps} with the filter `known`, which needs all of a bucket's \
             triples at once"
        );
        Err(Error::invalid(message).hint("leave `sweeps` out, or filter `own`"))
    }

    /// Refuses more parts of partitions than possible.
    fn require_parts(&self) -> Result<()> {
        let (asked, entities) = (&self.request.budget, self.size.entities);
        let (partitions, group) = (asked.partitions, asked.group.max(1));
        let (found, most) = (partitions * group, entities.min(MAX_PARTITIONS as u64));
        if found as u64 <= most {
            return Ok(());
        }
        let parts = if group > 1 { format!(" of {group} parts each") } else { String::new() };
        let message = format!(
            "{partitions} partitions{parts}: expected at most {most} parts of {} entities, found \
             {}",
            thousands(entities),
            thousands(found as u64)
        );
        let smaller = if group > 1 { ", or a smaller group" } else { "" };
        let hint = format!("every part needs an entity; choose fewer partitions{smaller}");
        Err(Error::invalid(message).hint(hint))
    }

    /// For each number of partitions and kind of swap: the largest number of slots that fits, or
    /// else the smallest.
    fn partitioned(&self) -> Vec<Placement> {
        let mut found = Vec::new();
        for partitions in self.numbers_of_partitions() {
            for swap in self.swaps() {
                let mut best = None;
                for (slots, way) in self.slots(partitions, swap) {
                    let one = self.with(partitions, slots, way, None);
                    let fits = one.needed() <= one.memory;
                    best = Some(one);
                    if fits {
                        break;
                    }
                }
                found.extend(best);
            }
        }
        found
    }

    /// A placement with these numbers, regardless of the budget.
    pub(super) fn with(
        &self,
        partitions: usize,
        slots: usize,
        swap: SwapKind,
        pools: Option<Pools>,
    ) -> Placement {
        partitioned(self.request, self.size, (partitions, slots, swap), pools)
    }

    /// Numbers of partitions to choose from.
    pub(super) fn numbers_of_partitions(&self) -> Vec<usize> {
        let asked = &self.request.budget;
        let counts = if asked.partitions > 0 { vec![asked.partitions] } else { COUNTS.to_vec() };
        let most = self.size.entities.min(MAX_PARTITIONS as u64);
        let fits = |&partitions: &usize| (partitions * asked.group.max(1)) as u64 <= most;
        counts.into_iter().filter(fits).collect()
    }

    /// Kinds of swaps to choose from. If the choice is open, kinds that hide the I/O.
    pub(super) fn swaps(&self) -> Vec<SwapKind> {
        let open = || vec![SwapKind::InPlace, SwapKind::SpareSlot];
        self.request.budget.swap.map_or_else(open, |swap| vec![swap])
    }

    /// Numbers of parts of a partition to choose from, largest first.
    pub(super) fn groups(&self, partitions: usize) -> Vec<usize> {
        let most = group_of(self.request, self.size, partitions);
        if self.request.budget.group > 0 {
            return vec![most];
        }
        GROUPS.into_iter().chain([1]).filter(|&group| group <= most).collect()
    }

    /// Numbers of walks per epoch to choose from, smallest first.
    pub(super) fn sweeps(&self) -> Vec<u32> {
        let asked = self.request.budget.sweeps;
        if asked > 0 || self.request.negatives.known {
            return vec![asked.max(1)];
        }
        SWEEPS.into_iter().chain([1]).rev().collect()
    }

    /// Numbers of slots to choose from, largest first, each with its kind of swap.
    pub(super) fn slots(
        &self,
        partitions: usize,
        swap: SwapKind,
    ) -> impl Iterator<Item = (usize, SwapKind)> {
        let asked = &self.request.budget;
        let fewest = fewest_slots(swap);
        let numbers = match asked.slots {
            0 => fewest..=partitions,
            slots => slots.max(fewest)..=slots.min(partitions),
        };
        numbers.rev().filter(move |&slots| self.exists(partitions, slots, swap)).map(move |slots| {
            // With two slots, only the remaining partition could be trained during a swap, without
            // other partitions. So swap in turn.
            let turns = asked.swap.is_none() && swap == SwapKind::InPlace && slots == 2;
            (slots, if turns { SwapKind::InTurn } else { swap })
        })
    }

    /// Whether an order exists for these numbers; Legend's needs three slots.
    fn exists(&self, partitions: usize, slots: usize, swap: SwapKind) -> bool {
        let kind = self.request.budget.order;
        kind == OrderKind::Optimal
            || partition_order(&self.order_config(partitions, slots, swap)).is_ok()
    }

    fn order_config(&self, partitions: usize, slots: usize, swap: SwapKind) -> OrderConfig {
        let new = OrderConfig::new(self.request.budget.order, partitions, slots);
        OrderConfig { mode: mode(swap), seed: self.request.seed, work: SEARCH, ..new }
    }

    /// The order of a placement, from a short search.
    fn order(&self, placement: &Placement) -> Result<Rc<Order>> {
        let Placement { partitions, slots, swap, .. } = *placement;
        let key = (partitions, slots, mode(swap));
        if let Some(order) = self.orders.borrow().get(&key) {
            return Ok(Rc::clone(order));
        }
        let order = Rc::new(partition_order(&self.order_config(partitions, slots, swap))?);
        self.orders.borrow_mut().insert(key, Rc::clone(&order));
        Ok(order)
    }

    /// The plan of an epoch at nominal rates.
    fn plan(&self, placement: &Placement) -> Result<OrderPlan> {
        let order = self.order(placement)?;
        let input = PlanInput {
            nodes: self.size.entities,
            row_bytes: self.request.row_bytes(),
            partition_bytes: Some(placement.partition_bytes),
            edges: BucketEdges::Even(self.size.triples),
            seconds_per_edge: triple_seconds(self.request, self.size),
            read_bandwidth: NOMINAL_BANDWIDTH,
            write_bandwidth: NOMINAL_BANDWIDTH,
            walks: placement.walks(self.request),
        };
        plan_order(&order, &input)
    }

    /// Expected seconds of an epoch at nominal rates.
    fn seconds(&self, placement: &Placement) -> Result<f64> {
        let plan = self.plan(placement)?;
        Ok(plan.epoch_seconds + A_HIDDEN_SECOND * plan.swap_seconds)
    }

    /// The same, plus the cost of pools, which matters with many walks.
    pub(super) fn seconds_with_pools(&self, placement: &Placement) -> Result<f64> {
        let states = self.order(placement)?.states.len() * placement.sweeps as usize;
        Ok(self.seconds(placement)? + NOMINAL_POOL * (states * placement.pools_of_state()) as f64)
    }

    /// The same placement with swaps in turn with training, if that is better. The kind of swap
    /// must be open and the result must fit. It is better if waiting costs little, or if few
    /// entities would be compared otherwise.
    ///
    /// Its pools contain all pairs of a state, so half as many walks give the same quality, and a
    /// chunk needs one set of negatives.
    pub(super) fn in_turn(&self, placement: &Placement) -> Result<Option<Placement>> {
        let few = placement.compared() < FEW_COMPARED;
        let apart = placement.swap == SwapKind::InPlace || (few && placement.spare());
        if self.request.budget.swap.is_some() || !apart {
            return Ok(None);
        }
        let found = self.with(placement.partitions, placement.slots, SwapKind::InTurn, None);
        if found.needed() > found.memory {
            return Ok(None);
        }
        Ok((few || self.waits_little(&found)?).then_some(found))
    }

    fn waits_little(&self, placement: &Placement) -> Result<bool> {
        let plan = self.plan(placement)?;
        Ok(plan.epoch_seconds <= HIDDEN * plan.compute_seconds + SOON)
    }

    /// The most walks per epoch that training hides at nominal rates. The time that the walks take
    /// on the cores is added.
    pub(super) fn hidden_sweeps(&self, placement: &Placement) -> Result<u32> {
        if self.request.negatives.known {
            return Ok(1);
        }
        let states = self.order(placement)?.states.len();
        for sweeps in SWEEPS {
            let plan = self.plan(&Placement { sweeps, ..placement.clone() })?;
            let read = (self.size.triple_bytes() * plan.triples_read) as f64 / NOMINAL_BANDWIDTH;
            let pools = NOMINAL_POOL * (plan.states * placement.pools_of_state()) as f64;
            let mut seconds = plan.epoch_seconds + read + pools;
            if placement.swap != SwapKind::InTurn {
                // Swaps in turn already include this time as waiting.
                seconds += 2.0 * plan.bytes_between.0 as f64 / NOMINAL_MOVED;
            }
            let pool = self.size.triples as f64 / (states * sweeps as usize) as f64;
            let enough = pool >= self.request.batches.size as f64 / BATCH_PARTS;
            if enough && seconds <= HIDDEN * plan.compute_seconds + SOON {
                return Ok(sweeps);
            }
        }
        Ok(1)
    }

    /// Triples that a buffer state trains: both directions between the loaded partition and the
    /// others, and its own bucket.
    fn pool(&self, placement: &Placement) -> f64 {
        let there = placement.there();
        let pairs = (placement.partitions as f64).powi(2);
        (self.size.triples * (2 * there as u64 - 1)) as f64 / pairs
    }

    /// The error if no order exists for the requested numbers, for the first combination.
    fn no_order(&self) -> Error {
        let asked = &self.request.budget;
        let or_any = |number: usize| match number {
            0 => "any number of".to_owned(),
            number => number.to_string(),
        };
        let parts = match asked.group {
            0 | 1 => String::new(),
            group => format!(" {group} parts each,"),
        };
        let comma = if parts.is_empty() { "" } else { "," };
        let what = format!(
            "budget: {} partitions of {} entities{comma}{parts} in {} slots: there is no such order",
            or_any(asked.partitions),
            thousands(self.size.entities),
            or_any(asked.slots)
        );
        let swap = asked.swap.unwrap_or(SwapKind::InPlace);
        let slots = if asked.slots > 0 { asked.slots } else { fewest_slots(swap) };
        let tried = if asked.partitions > 0 { vec![asked.partitions] } else { COUNTS.to_vec() };
        let Some(&partitions) = tried.iter().find(|&&count| count >= slots) else {
            let most = tried.last().copied().unwrap_or(1);
            return Error::invalid(what)
                .hint(format!("choose {most} `slots` at most, or more `partitions`"));
        };
        match partition_order(&self.order_config(partitions, slots, swap)) {
            Err(reason) => reason.context(what),
            Ok(_) => Error::invalid(what).hint("choose other `partitions`, `slots` or `group`"),
        }
    }
}

/// Chooses among placements and the seconds of their epochs. Of the placements about as fast as the
/// fastest, prefer those that compare triples with enough entities; of these, the one with the
/// fewest partitions.
///
/// # Panics
/// If `timed` is empty.
pub(super) fn fastest(timed: Vec<(f64, Placement)>) -> Placement {
    let least = timed.iter().map(|(seconds, _)| *seconds).fold(f64::INFINITY, f64::min);
    let fast: Vec<_> =
        timed.into_iter().filter(|(seconds, _)| *seconds <= NEARLY * least).collect();
    let enough = fast.iter().any(|(_, one)| one.compared() >= FEW_COMPARED);
    fast.into_iter()
        .filter(|(_, one)| !enough || one.compared() >= FEW_COMPARED)
        .min_by(|(a_seconds, a), (b_seconds, b)| {
            let fewest = a.partitions.cmp(&b.partitions).then(b.group.cmp(&a.group));
            fewest.then(a_seconds.total_cmp(b_seconds))
        })
        .map(|(_, one)| one)
        .expect("no placement to choose from")
}

/// Seconds per trained triple at nominal rates: the scores of both sides, and the gradients of
/// queries and negatives.
fn triple_seconds(request: &Request, size: &Size) -> f64 {
    let numbers = (request.model.dim as f64) * request.negatives(size.entities) as f64;
    2.0 * 6.0 * numbers / NOMINAL_RATE + NOMINAL_TRIPLE
}

/// Seconds per question and candidate in ranking. The nominal value is scaled by the error of the
/// nominal training rate, given the measured `triples_per_second`.
pub fn score_seconds(request: &Request, size: &Size, triples_per_second: f64) -> f64 {
    let nominal = 2.0 * request.model.dim as f64 / NOMINAL_RATE + NOMINAL_SCORE;
    nominal / (triples_per_second * triple_seconds(request, size))
}

/// The error for a budget that is too small, with a hint to add memory or to keep less in it.
pub(super) fn too_small(budget: u64, least: u64, what: &str) -> Error {
    let message = format!(
        "{what} within {}: needs at least {}, which is {least} bytes",
        Bytes(budget),
        Bytes(least)
    );
    Error::new(ErrorKind::Budget, message).needs(Bytes(least)).hint(hint!(
        "give more " {memory} ", a smaller " {dim} ", or " {"optimiser.kind" = "row-adagrad"}
    ))
}

fn fewest_slots(swap: SwapKind) -> usize {
    if swap == SwapKind::SpareSlot { 3 } else { 2 }
}

fn mode(swap: SwapKind) -> SwapMode {
    if swap == SwapKind::SpareSlot { SwapMode::SpareSlot } else { SwapMode::InPlace }
}

/// Formats a number with a comma between every three digits.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
