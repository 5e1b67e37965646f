//! Input of a placement: the options of a run as numbers, and the size of its data.

use serde::{Deserialize, Serialize};

use crate::order::OrderKind;

/// The options of a run that affect its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Memory, and options about partitions.
    pub budget: Budget,
    /// Widths of rows.
    pub model: Model,
    /// Sizes of batches and chunks.
    pub batches: Batches,
    /// Negatives in training.
    pub negatives: Negatives,
    /// Candidates in ranking.
    pub ranking: Ranking,
    /// Random seed of the order of partitions.
    pub seed: u64,
}

/// Memory and options about partitions; 0 leaves a number open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Memory in bytes.
    pub memory: u64,
    /// Number of partitions; 1 keeps everything in memory.
    pub partitions: usize,
    /// Slots for partitions, including the spare slot.
    pub slots: usize,
    /// Method that constructs the order of partitions.
    pub order: OrderKind,
    /// Kind of swap; `None` leaves it open.
    pub swap: Option<SwapKind>,
    /// Walks through the order per epoch.
    pub sweeps: u32,
    /// Whether a bucket is trained in every state that holds both its partitions.
    pub spread: bool,
    /// Whether partitions change places between walks.
    pub rename: bool,
    /// Parts of a partition.
    pub group: usize,
}

/// Kinds of swaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapKind {
    /// Into the slot of the evicted partition, while other partitions are trained.
    InPlace,
    /// Into the slot of the evicted partition, after the whole state is trained.
    InTurn,
    /// Into a slot that is kept free.
    SpareSlot,
}

/// Widths of a model's rows, in values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Width of an entity.
    pub dim: u64,
    /// Width of an entity's optimiser state.
    pub state_width: u64,
    /// Width of a relation.
    pub relation_width: u64,
    /// Width of a relation's optimiser state.
    pub relation_state_width: u64,
    /// Whether a relation has a second row, for questions about heads.
    pub reciprocal: bool,
    /// Method that computes scores.
    pub scores: Scores,
}

/// Method that computes scores, which decides the memory for gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scores {
    /// By matrix products.
    Products,
    /// Distances that no matrix product computes.
    Distances,
    /// A custom function with automatic differentiation.
    Custom,
}

/// Sizes of batches and chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batches {
    /// Approximate triples per batch.
    pub size: u64,
    /// Approximate triples that share negatives.
    pub chunk: u64,
}

/// Negatives in training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Negatives {
    /// Negatives per chunk; `None` stands for all entities.
    pub count: Option<u64>,
    /// Whether some are drawn by degree.
    pub by_degree: bool,
    /// Whether negatives that form a training triple are left out, which needs whole buckets.
    pub known: bool,
    /// Whether a bias on its score can give a negative more weight.
    pub bias_weighs: bool,
}

/// Candidates in ranking.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranking {
    /// Number of candidate kinds.
    pub kinds: u64,
    /// Number of candidate kinds that are drawn at random.
    pub drawn: u64,
    /// Candidates drawn per kind.
    pub count: u64,
    /// Whether some are drawn by degree.
    pub by_degree: bool,
    /// Whether other true answers are filtered out.
    pub filtered: bool,
}

/// Size of the data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Number of entities.
    pub entities: u64,
    /// Number of relations.
    pub relations: u64,
    /// Number of training triples.
    pub triples: u64,
    /// Whether triples have weights.
    pub weighted: bool,
    /// Number of ranked triples.
    pub held_out: u64,
    /// Number of true answers to both sides of the ranked triples, if counted.
    pub answers: Option<u64>,
    /// Bytes that describe the rows of another run from which this run starts.
    pub first_rows: u64,
}

impl Size {
    /// An entity of a random triple has about this many times the mean degree.
    const SKEW: f64 = 2.0;

    /// Bytes of a triple on disk.
    pub(super) fn triple_bytes(&self) -> u64 {
        if self.weighted { 16 } else { 12 }
    }

    /// Number of true answers to the ranked triples: as counted, or an estimate of the most.
    pub(super) fn answers(&self) -> u64 {
        self.answers.unwrap_or_else(|| {
            let degree = 2.0 * self.triples as f64 / self.entities.max(1) as f64;
            let found = 2.0 * self.held_out as f64 * Self::SKEW * degree;
            found.min(2.0 * self.triples as f64) as u64
        })
    }

    /// Bytes of a stored true answer.
    pub(super) fn answer_bytes(&self) -> u64 {
        if self.entities < 1 << 31 { 4 } else { 8 }
    }
}

impl Request {
    /// Bytes of an entity: its row and its optimiser state.
    pub(super) fn row_bytes(&self) -> u64 {
        4 * (self.model.dim + self.model.state_width)
    }

    /// Negatives per chunk, given the number of rows.
    pub(super) fn negatives(&self, rows: u64) -> u64 {
        self.negatives.count.unwrap_or(rows)
    }

    /// Whether a bucket is trained in every state that holds its partitions.
    pub(super) fn spreads(&self) -> bool {
        self.budget.spread && !self.negatives.known
    }

    /// Whether buckets are always trained whole, with this many walks per epoch.
    pub(super) fn keeps_buckets_whole(&self, sweeps: u32) -> bool {
        !self.spreads() && !self.budget.rename && sweeps <= 1
    }

    /// Whether the core trains whole batches, in which kinds of anchors share their negatives.
    pub(super) fn trained_by_core(&self) -> bool {
        self.model.scores != Scores::Custom && !self.negatives.known
    }

    /// Draws of negatives per chunk, with `there` parts of the table in memory. Anchors share a
    /// draw if their answers are in the same partitions. In addition, the answers must be equally
    /// likely in each, or a bias must correct the difference.
    pub(super) fn draws(&self, there: u64, swap: SwapKind) -> u64 {
        if self.spreads() && !self.negatives.bias_weighs {
            return there;
        }
        // With swaps in place, anchors in the partition that leaves have answers in all partitions;
        // other anchors only in that partition. Without spreading, the same holds for anchors in a
        // newly loaded partition.
        if self.spreads() && swap != SwapKind::InPlace { 1 } else { 2 }
    }

    /// The same request with the walks and groups of a placement.
    pub(super) fn settled(&self, sweeps: u32, group: usize) -> Self {
        let mut request = self.clone();
        (request.budget.sweeps, request.budget.group) = (sweeps, group);
        request
    }
}
