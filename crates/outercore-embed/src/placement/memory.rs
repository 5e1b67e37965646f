//! Bytes of everything that a run keeps in memory.

use outercore_core::{count_pieces, largest_piece};
use serde::{Serialize, Serializer};

use super::Placement;
use super::request::{Request, Scores, Size, SwapKind};
use crate::buckets::{Pools, READ_TOGETHER};
use crate::layout::slot_rows_of;

/// Numbers of parts of a partition that are tried, most first.
pub(super) const GROUPS: [usize; 3] = [8, 4, 2];
/// Most parts of all partitions; the larger number if `TRIPLES_OF_PARTS` lie between every two.
const PARTS: usize = 64;
const MOST_PARTS: usize = 128;
const TRIPLES_OF_PARTS: u64 = 16;
/// Parts take no more rows than a partition in one piece, by this factor: they are whole pages.
const PADDED: f64 = 1.125;
/// Partitions up to so many bytes may be padded more, where each part has so many entities.
const SMALL: u64 = 1 << 20;
const LEAST_PART: u64 = 32;
/// Bytes a row to draw by degree: degrees as they are put together, their powers, running sums.
const DRAW: u64 = 24;
/// Bytes of a negative besides its row: ids and what puts equal rows together; its bias for a kind
/// of anchors.
const A_DRAW: u64 = 64;
const A_BIAS: u64 = 4;
/// Triples of a chunk that have gradients of candidates for themselves where scores are distances
/// that no product computes, and what all of these may take.
const LEAST_GROUP: u64 = 128;
const GROUP_BYTES: u64 = 64 << 20;
/// A state's pool is no larger than its even share by this factor: partitions are shuffled.
const SPREAD: f64 = 1.5;
/// Bytes that known targets of both ends take of a triple while the second of them are made: 64 to
/// 80 of 10 M triples, and what is freed and not given back.
const KNOWN: u64 = 96;
/// Bytes that known targets among a chunk's negatives take while they are looked for.
const LOOKING_UP: u64 = 14 << 20;
/// Bytes of a triple and a negative: whether it counts; what says so where scores are distances.
const A_FLAG: u64 = 1;
const A_PAIR: u64 = 32;
/// What is known of a bucket.
const BUCKET_BYTES: u64 = 32;
/// Bytes to deal triples into buckets, and of each of these at least.
const DEALING: u64 = 512 << 10;
const A_DEALT_BUCKET: u64 = 72;
const STAGING: u64 = 4 << 20;
const BLOCK: u64 = 16 << 20;
/// What a process takes besides: names, records, scores of an evaluation's block.
const WORKING: u64 = 16 << 20;
const LEAST_EVALUATION: u64 = 4 << 20;
const EVALUATION: u64 = 64 << 20;
const SHARE_FOR_EVALUATION: f64 = 0.1;
/// Bytes of a triple that is ranked; of the ranks of both ends among candidates of one kind; of
/// what tells the answers of an end apart.
const HELD_OUT: u64 = 40;
const RANKS: u64 = 64;
const QUESTION: u64 = 16;
/// Bytes of a triple in a group that is ranked besides its rows; of what is counted of both ends
/// among candidates of one kind.
const ASKED: u64 = 320;
const TALLY: u64 = 96;
/// Triples that are ranked in one pass over the table at least.
pub const LEAST_QUESTIONS: u64 = 256;
/// Operations of a score function by the user whose results are kept, and the numbers that each of
/// them may have at a time.
const OPERATIONS: u64 = 16;
const A_BLOCK_OF_SCORES: u64 = 1 << 21;

/// Bytes by purpose, in the order in which they are shown; what takes none is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(Vec<(&'static str, u64)>);

impl Parts {
    fn new(parts: impl IntoIterator<Item = (&'static str, u64)>) -> Self {
        Self(parts.into_iter().filter(|&(_, bytes)| bytes > 0).collect())
    }

    /// Bytes for a purpose.
    pub fn get(&self, name: &str) -> u64 {
        self.0.iter().find(|(part, _)| *part == name).map_or(0, |&(_, bytes)| bytes)
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        sum(self.0.iter().map(|&(_, bytes)| bytes))
    }

    fn add(&mut self, name: &str, more: u64) {
        if let Some((_, bytes)) = self.0.iter_mut().find(|(part, _)| *part == name) {
            *bytes += more;
        }
    }
}

impl Serialize for Parts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// A product that stops at the largest number, which no budget has: options have no upper limit.
fn product(factors: impl IntoIterator<Item = u64>) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

/// The same for a sum.
fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

/// Memory for a triple that is ranked: the rows of both ends and of its relation, or relations,
/// which both sides share; ids, scores and counts.
pub fn question_bytes(request: &Request) -> u64 {
    let model = &request.model;
    let relations = (1 + u64::from(model.reciprocal)) * model.relation_width;
    4 * (2 * model.dim + relations) + ASKED + TALLY * request.ranking.kinds
}

/// Bytes of a pool's triple as training takes it, with its place in the order of batches.
pub(super) fn trained_bytes(request: &Request, size: &Size) -> u64 {
    let known = if request.negatives.known { KNOWN } else { 0 };
    24 + 8 + if size.weighted { 4 } else { 0 } + known
}

/// Everything in memory, whatever that takes.
pub(super) fn in_memory(request: &Request, size: &Size) -> Placement {
    let (model, entities) = (&request.model, size.entities);
    let draw = if request.negatives.by_degree { DRAW } else { 0 };
    let shared = Shared { pool: size.triples, sets: 1, kinds: 1, rows: entities };
    let parts = [
        ("embeddings", product([4, model.dim, entities])),
        ("optimiser", product([4, model.state_width, entities])),
        ("triples", product([trained_bytes(request, size), size.triples])),
        ("degrees", product([8 + draw, entities])),
    ];
    Placement {
        memory: request.budget.memory,
        partitions: 1,
        slots: 1,
        swap: SwapKind::InPlace,
        sweeps: 1,
        group: 1,
        partition_bytes: product([request.row_bytes(), entities]),
        pool: size.triples,
        negative_sets: 1,
        parts: Parts::new(parts.into_iter().chain(shared.parts(request, size))),
    }
}

/// So many partitions in so many slots, whatever that takes. `pools` says how large they are; by
/// default triples are taken to be spread about evenly.
pub(super) fn partitioned(
    request: &Request,
    size: &Size,
    (partitions, slots, swap): (usize, usize, SwapKind),
    pools: Option<Pools>,
) -> Placement {
    let group = group_of(request, size, partitions);
    let there = (slots - usize::from(swap == SwapKind::SpareSlot)) as u64;
    let parts_there = there * group as u64;
    let pools = pools.unwrap_or_else(|| even_pools(request, size, partitions, there, group));
    let rows = partition_rows(request, size, partitions, group);
    let partition_bytes = product([rows, request.row_bytes()]);
    let draws = request.draws(parts_there, swap);
    let kinds = if request.spreads() { parts_there } else { 1 };
    let sets = if request.trained_by_core() { draws } else { draws.max(kinds) };
    let shared = Shared { pool: pools.most, sets, kinds, rows: there * rows }.parts(request, size);
    let relations = shared[0].1;
    let buckets = (partitions as u64 * group as u64).pow(2);
    let of_slots = product([slots as u64, partition_bytes]);
    let state = size.triple_bytes() * (pools.most + pools.beside) + BUCKET_BYTES * buckets;
    // What deals triples into buckets has the memory of all three.
    let dealing = DEALING + A_DEALT_BUCKET * buckets;
    let degrees = if request.negatives.by_degree {
        8 * size.entities + 4 * slots as u64 * rows + DRAW * draws * there * rows
    } else {
        0
    };
    let parts = [
        ("slots", of_slots),
        ("triples of a state", state),
        ("reads", STAGING.max(dealing.saturating_sub(of_slots.saturating_add(state)))),
        ("triples in training", trained_bytes(request, size) * pools.most),
        ("a block of the table", BLOCK),
        // Relations and their state as the bytes that are written.
        ("a commit", relations),
        ("degrees", degrees),
    ];
    Placement {
        memory: request.budget.memory,
        partitions,
        slots,
        swap,
        sweeps: request.budget.sweeps.max(1),
        group,
        partition_bytes,
        pool: pools.most,
        negative_sets: sets,
        parts: Parts::new(parts.into_iter().chain(shared)),
    }
}

/// Pools of triples that are spread about evenly, with so many partitions in memory.
fn even_pools(
    request: &Request,
    size: &Size,
    partitions: usize,
    there: u64,
    group: usize,
) -> Pools {
    // What a state enables: at most the buckets between what was loaded and what is there, both
    // ways, and its own; the first state enables all of its partitions'.
    let buckets = (there * there).max(2 * there - 1);
    let group = group as u64;
    let pairs = |parts: u64| (parts * parts) as f64;
    let share = SPREAD * size.triples as f64 * buckets as f64 / pairs(partitions as u64);
    let most = (share / f64::from(request.budget.sweeps.max(1))) as u64 + buckets * group * group;
    // Where pools have parts of buckets, these are read whole, some together. How many walks there
    // will be may be open still.
    if request.budget.sweeps == 1 && request.keeps_buckets_whole(1) {
        return Pools { most, beside: 0 };
    }
    let largest = (SPREAD * size.triples as f64 / pairs(partitions as u64 * group)) as u64 + 1;
    Pools { most, beside: largest.max(READ_TOGETHER.min(size.triples)) }
}

/// Of what is left, some goes to larger groups of questions: fewer passes over the table.
pub(super) fn filled(mut placement: Placement) -> Placement {
    let most = EVALUATION.max((placement.memory as f64 * SHARE_FOR_EVALUATION) as u64);
    let left = placement.memory.saturating_sub(placement.needed()) / 2;
    let evaluation = placement.parts.get("evaluation");
    let more = most.saturating_sub(evaluation).min(left);
    placement.parts.add("evaluation", more);
    placement
}

/// What is in memory with and without partitions.
struct Shared {
    /// Triples of the largest pool.
    pool: u64,
    /// Sets of negatives that a chunk needs.
    sets: u64,
    /// Kinds of anchors for which negatives count differently.
    kinds: u64,
    /// Rows that negatives are drawn from.
    rows: u64,
}

impl Shared {
    /// Relations first.
    fn parts(&self, request: &Request, size: &Size) -> [(&'static str, u64); 10] {
        let (model, ranking) = (&request.model, &request.ranking);
        let relations = size.relations * (1 + u64::from(model.reciprocal));
        let negatives = request.negatives(self.rows);
        let batch = self.pool.min(largest_piece(request.batches.size));
        let chunk = largest_piece(request.batches.chunk).min(batch);
        let pieces = count_pieces(batch as usize, request.batches.chunk as usize) as u64;
        let chunks = pieces + self.sets - 1;
        // Of every side: gradients of anchors, relations, targets and candidates; then the rows
        // that they touch, their state and what is computed of them; scores twice. Sets beyond the
        // first need memory for their candidates alone.
        let a_draw = A_DRAW + A_BIAS * self.kinds;
        let rows = sum([3 * batch, product([chunks, negatives])]);
        let a_batch = [
            product([3, 2, rows, model.dim, 4]),
            product([2, chunks, group_bytes(request, chunk, negatives)]),
            product([2, negatives, a_draw * chunks + 4 * chunk]),
        ];
        let drawn = product([ranking.drawn, ranking.count, 4 * model.dim + 16]);
        let degrees = if ranking.by_degree { 8 * size.entities } else { 0 };
        let evaluation = LEAST_EVALUATION.max(LEAST_QUESTIONS * question_bytes(request));
        let row = model.relation_width + model.relation_state_width;
        [
            ("relations", product([4, relations, row])),
            ("a batch", sum(a_batch)),
            ("ranked triples", ranked(request, size)),
            ("evaluation", evaluation),
            ("score function", score_function(request, chunk, negatives)),
            ("known negatives", known_negatives(request, chunk, negatives)),
            ("candidates", drawn),
            ("degrees of candidates", degrees),
            ("another run's rows", size.first_rows),
            ("the process", WORKING),
        ]
    }
}

/// What groups of a chunk's triples need for gradients of candidates, which each of them has where
/// no matrix product makes these.
fn group_bytes(request: &Request, chunk: u64, negatives: u64) -> u64 {
    if request.model.scores != Scores::Distances {
        return 0;
    }
    let of_one = product([4, request.model.dim, negatives]);
    product([(chunk / LEAST_GROUP).max(1), of_one]).min(GROUP_BYTES.max(of_one))
}

/// Which negatives of a chunk's triples are known, if that is asked for: a hub's may be all.
fn known_negatives(request: &Request, chunk: u64, negatives: u64) -> u64 {
    if !request.negatives.known {
        return 0;
    }
    let distances = request.model.scores == Scores::Distances;
    let of_pair = A_FLAG + if distances { A_PAIR } else { 0 };
    sum([LOOKING_UP, product([of_pair, chunk, negatives])])
}

/// What a score function by the user makes of a block of triples and negatives: every operation
/// keeps a number for each of theirs.
fn score_function(request: &Request, chunk: u64, negatives: u64) -> u64 {
    if request.model.scores != Scores::Custom {
        return 0;
    }
    let a_triple = product([negatives, request.model.dim]);
    let a_block = product([chunk, a_triple]).min(A_BLOCK_OF_SCORES);
    product([OPERATIONS, 4, a_triple.max(a_block)])
}

/// Held-out triples, their ranks, the questions that they are, and true answers to these.
fn ranked(request: &Request, size: &Size) -> u64 {
    let ranks = (HELD_OUT + RANKS * request.ranking.kinds) * size.held_out;
    if !request.ranking.filtered {
        return ranks;
    }
    ranks + 2 * QUESTION * size.held_out + size.answer_bytes() * size.answers()
}

/// Parts of a partition: as asked, or as many as there are rows for.
///
/// How often two parts meet differs, and so do the negatives of their anchors. Unless the core
/// counts them by a bias, each part would have negatives of its own; then a partition is one.
pub(super) fn group_of(request: &Request, size: &Size, partitions: usize) -> usize {
    let asked = request.budget.group;
    let shared = request.negatives.bias_weighs && request.trained_by_core();
    if asked > 0 || !request.budget.rename || (request.spreads() && !shared) {
        return asked.max(1);
    }
    let fits = |&group: &usize| {
        let parts = partitions * group;
        let filled =
            parts <= MOST_PARTS && size.triples >= TRIPLES_OF_PARTS * (parts as u64).pow(2);
        (parts <= PARTS || filled) && roomy(request, size, partitions, group)
    };
    GROUPS.into_iter().find(fits).unwrap_or(1)
}

/// Whether parts of a partition are little more than their rows, or little at all.
fn roomy(request: &Request, size: &Size, partitions: usize, group: usize) -> bool {
    let rows = partition_rows(request, size, partitions, group);
    let whole = partition_rows(request, size, partitions, 1);
    if rows as f64 <= PADDED * whole as f64 {
        return true;
    }
    let parts = (partitions * group) as u64;
    product([rows, request.row_bytes()]) <= SMALL && size.entities.div_ceil(parts) >= LEAST_PART
}

/// Rows of memory that a partition of so many parts takes.
fn partition_rows(request: &Request, size: &Size, partitions: usize, group: usize) -> u64 {
    let rows = size.entities.div_ceil((partitions * group) as u64);
    group as u64 * slot_rows_of(rows, request.model.dim, request.model.state_width)
}
