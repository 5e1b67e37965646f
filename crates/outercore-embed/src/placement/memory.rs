//! Bytes of all data that a run keeps in memory.

use outercore_core::{count_pieces, largest_piece};
use serde::{Serialize, Serializer};

use super::Placement;
use super::request::{Request, Scores, Size, SwapKind};
use crate::buckets::{Pools, READ_TOGETHER};
use crate::layout::slot_rows_of;

/// Candidate numbers of parts per partition, largest first.
pub(super) const GROUPS: [usize; 3] = [8, 4, 2];
/// Most parts of all partitions together. `MOST_PARTS` applies if there are `TRIPLES_OF_PARTS`
/// triples for every two parts.
const PARTS: usize = 64;
const MOST_PARTS: usize = 128;
const TRIPLES_OF_PARTS: u64 = 16;
/// Parts may take at most this factor more rows than an undivided partition, because they are
/// padded to whole pages.
const PADDED: f64 = 1.125;
/// Partitions up to this size may have more padding, if each part has `LEAST_PART` entities.
const SMALL: u64 = 1 << 20;
const LEAST_PART: u64 = 32;
/// Bytes per row for draws by degree: the degrees, their powers and running sums.
const DRAW: u64 = 24;
/// Bytes per negative in addition to its row: ids and the grouping of equal rows. `A_BIAS`: its
/// bias for one kind of anchors.
const A_DRAW: u64 = 64;
const A_BIAS: u64 = 4;
/// For scores that no matrix product computes: the fewest triples of a chunk that share one buffer
/// of candidate gradients, and the limit for all such buffers.
const LEAST_GROUP: u64 = 128;
const GROUP_BYTES: u64 = 64 << 20;
/// Bound of a state's pool, relative to its even share. Nodes are shuffled, so larger pools are
/// unlikely.
const SPREAD: f64 = 1.5;
/// Bytes per triple for the known targets of both ends, while the second end is built: 64 to 80
/// measured for 10 M triples, plus freed memory that is not returned to the system.
const KNOWN: u64 = 96;
/// Bytes for looking up known targets among the negatives of a chunk.
const LOOKING_UP: u64 = 14 << 20;
/// Bytes per triple and negative: a flag whether it counts. `A_PAIR`: the mask for scores that are
/// distances.
const A_FLAG: u64 = 1;
const A_PAIR: u64 = 32;
/// Bookkeeping per bucket.
const BUCKET_BYTES: u64 = 32;
/// Bytes for sorting triples into buckets, and the least for each bucket.
const DEALING: u64 = 512 << 10;
const A_DEALT_BUCKET: u64 = 72;
const STAGING: u64 = 4 << 20;
const BLOCK: u64 = 16 << 20;
/// Other memory of the process: names, records, scores of a block in an evaluation.
const WORKING: u64 = 16 << 20;
const LEAST_EVALUATION: u64 = 4 << 20;
const EVALUATION: u64 = 64 << 20;
const SHARE_FOR_EVALUATION: f64 = 0.1;
/// Bytes per ranked triple; `RANKS`: for the ranks of both ends among one kind of candidates;
/// `QUESTION`: for telling the answers of an end apart.
const HELD_OUT: u64 = 40;
const RANKS: u64 = 64;
const QUESTION: u64 = 16;
/// Bytes per triple in a group of ranked triples, in addition to its rows. `TALLY`: counts of both
/// ends among one kind of candidates.
const ASKED: u64 = 320;
const TALLY: u64 = 96;
/// Fewest triples that are ranked in one pass over the table.
pub const LEAST_QUESTIONS: u64 = 256;
/// Operations of a custom score function whose results are kept, and the most values of each at a
/// time.
const OPERATIONS: u64 = 16;
const A_BLOCK_OF_SCORES: u64 = 1 << 21;

/// Bytes by purpose, in display order, without purposes of zero bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts(Vec<(&'static str, u64)>);

impl Parts {
    fn new(parts: impl IntoIterator<Item = (&'static str, u64)>) -> Self {
        Self(parts.into_iter().filter(|&(_, bytes)| bytes > 0).collect())
    }

    /// Bytes of a purpose.
    pub fn get(&self, name: &str) -> u64 {
        self.0.iter().find(|(part, _)| *part == name).map_or(0, |&(_, bytes)| bytes)
    }

    /// Total bytes.
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

/// A saturating product: options have no upper limit, and no budget reaches the largest number.
fn product(factors: impl IntoIterator<Item = u64>) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

/// A saturating sum.
fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

/// Memory per ranked triple: the rows of both ends and of its relation (two rows with reciprocal
/// relations), which both sides share; ids, scores and counts.
pub fn question_bytes(request: &Request) -> u64 {
    let model = &request.model;
    let relations = (1 + u64::from(model.reciprocal)) * model.relation_width;
    4 * (2 * model.dim + relations) + ASKED + TALLY * request.ranking.kinds
}

/// Bytes per pool triple in training, including its place in the order of batches.
pub(super) fn trained_bytes(request: &Request, size: &Size) -> u64 {
    let known = if request.negatives.known { KNOWN } else { 0 };
    24 + 8 + if size.weighted { 4 } else { 0 } + known
}

/// The placement of everything in memory, regardless of the budget.
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

/// A placement with these partitions and slots, regardless of the budget. `pools` is the size of
/// the pools; by default triples count as evenly spread.
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
    // Sorting triples into buckets uses the memory of all three.
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
        // Relations and their state, serialised for the write.
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

/// Pool sizes for evenly spread triples, with `there` partitions in memory.
fn even_pools(
    request: &Request,
    size: &Size,
    partitions: usize,
    there: u64,
    group: usize,
) -> Pools {
    // A state enables at most the loaded partition's own bucket, and its buckets with the other
    // partitions in both directions. The first state enables all buckets of its partitions.
    let buckets = (there * there).max(2 * there - 1);
    let group = group as u64;
    let pairs = |parts: u64| (parts * parts) as f64;
    let share = SPREAD * size.triples as f64 * buckets as f64 / pairs(partitions as u64);
    let most = (share / f64::from(request.budget.sweeps.max(1))) as u64 + buckets * group * group;
    // If pools take parts of buckets, whole buckets are read, several together. The number of walks
    // may still be open.
    if request.budget.sweeps == 1 && request.keeps_buckets_whole(1) {
        return Pools { most, beside: 0 };
    }
    let largest = (SPREAD * size.triples as f64 / pairs(partitions as u64 * group)) as u64 + 1;
    Pools { most, beside: largest.max(READ_TOGETHER.min(size.triples)) }
}

/// Uses some of the remaining memory for larger groups of questions, which means fewer passes over
/// the table.
pub(super) fn filled(mut placement: Placement) -> Placement {
    let most = EVALUATION.max((placement.memory as f64 * SHARE_FOR_EVALUATION) as u64);
    let left = placement.memory.saturating_sub(placement.needed()) / 2;
    let evaluation = placement.parts.get("evaluation");
    let more = most.saturating_sub(evaluation).min(left);
    placement.parts.add("evaluation", more);
    placement
}

/// Sizes that matter with and without partitions.
struct Shared {
    /// Triples of the largest pool.
    pool: u64,
    /// Number of sets of negatives per chunk.
    sets: u64,
    /// Number of anchor kinds for which negatives count differently.
    kinds: u64,
    /// Number of rows that negatives are drawn from.
    rows: u64,
}

impl Shared {
    /// Memory by purpose; relations come first.
    fn parts(&self, request: &Request, size: &Size) -> [(&'static str, u64); 10] {
        let (model, ranking) = (&request.model, &request.ranking);
        let relations = size.relations * (1 + u64::from(model.reciprocal));
        let negatives = request.negatives(self.rows);
        let batch = self.pool.min(largest_piece(request.batches.size));
        let chunk = largest_piece(request.batches.chunk).min(batch);
        let pieces = count_pieces(batch as usize, request.batches.chunk as usize) as u64;
        let chunks = pieces + self.sets - 1;
        // For each side: gradients of anchors, relations, targets and candidates; then the touched
        // rows, their state and values computed from them; and twice the scores. Sets beyond the
        // first need memory only for their candidates.
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

/// Memory for gradients of candidates in groups of a chunk's triples. Each group has its own if no
/// matrix product computes them.
fn group_bytes(request: &Request, chunk: u64, negatives: u64) -> u64 {
    if request.model.scores != Scores::Distances {
        return 0;
    }
    let of_one = product([4, request.model.dim, negatives]);
    product([(chunk / LEAST_GROUP).max(1), of_one]).min(GROUP_BYTES.max(of_one))
}

/// Memory for marking known triples among a chunk's negatives, if requested. For a hub, all
/// negatives may be known.
fn known_negatives(request: &Request, chunk: u64, negatives: u64) -> u64 {
    if !request.negatives.known {
        return 0;
    }
    let distances = request.model.scores == Scores::Distances;
    let of_pair = A_FLAG + if distances { A_PAIR } else { 0 };
    sum([LOOKING_UP, product([of_pair, chunk, negatives])])
}

/// Memory of a custom score function for a block of triples and negatives: every operation keeps a
/// value for each pair.
fn score_function(request: &Request, chunk: u64, negatives: u64) -> u64 {
    if request.model.scores != Scores::Custom {
        return 0;
    }
    let a_triple = product([negatives, request.model.dim]);
    let a_block = product([chunk, a_triple]).min(A_BLOCK_OF_SCORES);
    product([OPERATIONS, 4, a_triple.max(a_block)])
}

/// Memory for held-out triples, their ranks, their questions, and the true answers.
fn ranked(request: &Request, size: &Size) -> u64 {
    let ranks = (HELD_OUT + RANKS * request.ranking.kinds) * size.held_out;
    if !request.ranking.filtered {
        return ranks;
    }
    ranks + 2 * QUESTION * size.held_out + size.answer_bytes() * size.answers()
}

/// Number of parts of a partition: the requested number, or as many as there are enough rows for.
///
/// With renaming and spreading, pairs of parts meet unequally often, so the negatives of their
/// anchors need different weights. If the core cannot apply these as a bias, each part would need
/// separate negatives; then partitions are not divided.
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

/// Whether the padding of the parts is small, relative to the partition or in bytes.
fn roomy(request: &Request, size: &Size, partitions: usize, group: usize) -> bool {
    let rows = partition_rows(request, size, partitions, group);
    let whole = partition_rows(request, size, partitions, 1);
    if rows as f64 <= PADDED * whole as f64 {
        return true;
    }
    let parts = (partitions * group) as u64;
    product([rows, request.row_bytes()]) <= SMALL && size.entities.div_ceil(parts) >= LEAST_PART
}

/// Rows in memory of a partition with `group` parts.
fn partition_rows(request: &Request, size: &Size, partitions: usize, group: usize) -> u64 {
    let rows = size.entities.div_ceil((partitions * group) as u64);
    group as u64 * slot_rows_of(rows, request.model.dim, request.model.state_width)
}
