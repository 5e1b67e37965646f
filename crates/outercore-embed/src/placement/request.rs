//! What a placement is decided from: a run's options as numbers, and the size of its data.

use serde::{Deserialize, Serialize};

use crate::order::OrderKind;

/// What a run asks for, as far as memory depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Memory, and what is said about partitions.
    pub budget: Budget,
    /// Widths of rows.
    pub model: Model,
    /// Triples of a step.
    pub batches: Batches,
    /// What triples are compared with.
    pub negatives: Negatives,
    /// What held-out triples are ranked among.
    pub ranking: Ranking,
    /// Of the order of partitions.
    pub seed: u64,
}

/// Memory, and what is said about partitions; 0 leaves a number open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Bytes.
    pub memory: u64,
    /// Partitions of the entities; 1 keeps everything in memory.
    pub partitions: usize,
    /// Partitions in memory, the spare slot included.
    pub slots: usize,
    /// How the order of partitions is made.
    pub order: OrderKind,
    /// How partitions are swapped; `None` leaves it open.
    pub swap: Option<SwapKind>,
    /// Walks through the order in an epoch.
    pub sweeps: u32,
    /// Whether a bucket is trained in every state that holds both its partitions.
    pub spread: bool,
    /// Whether partitions change places from walk to walk.
    pub rename: bool,
    /// Parts of a partition.
    pub group: usize,
}

/// How partitions are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwapKind {
    /// Where the partition was that leaves, while others are trained.
    InPlace,
    /// The same after the whole state is trained.
    InTurn,
    /// Into a slot that is kept free.
    SpareSlot,
}

/// Widths of a model's rows, in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Of an entity.
    pub dim: u64,
    /// Of what the optimiser keeps of an entity.
    pub state_width: u64,
    /// Of a relation.
    pub relation_width: u64,
    /// Of what the optimiser keeps of a relation.
    pub relation_state_width: u64,
    /// Whether a relation has a second row, for questions about heads.
    pub reciprocal: bool,
    /// How scores are computed.
    pub scores: Scores,
}

/// How scores are computed: what gradients take depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scores {
    /// By matrix products.
    Products,
    /// Distances that no matrix product computes.
    Distances,
    /// By a function of the user, with automatic differentiation.
    Custom,
}

/// Triples of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batches {
    /// In a batch, about.
    pub size: u64,
    /// That share negatives, about.
    pub chunk: u64,
}

/// What triples are compared with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Negatives {
    /// Negatives of a chunk; `None`: every entity.
    pub count: Option<u64>,
    /// Whether some are drawn by degree.
    pub by_degree: bool,
    /// Whether those that make a training triple are left out, which needs whole buckets.
    pub known: bool,
    /// Whether a negative can count for more by a bias of its score.
    pub bias_weighs: bool,
}

/// What held-out triples are ranked among.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ranking {
    /// Kinds of candidates.
    pub kinds: u64,
    /// Kinds of which some are drawn.
    pub drawn: u64,
    /// Candidates that are drawn of each.
    pub count: u64,
    /// Whether some are drawn by degree.
    pub by_degree: bool,
    /// Whether other true answers are left out.
    pub filtered: bool,
}

/// What is embedded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Entities.
    pub entities: u64,
    /// Relations.
    pub relations: u64,
    /// Triples that are trained.
    pub triples: u64,
    /// Whether triples have weights.
    pub weighted: bool,
    /// Triples that are ranked.
    pub held_out: u64,
    /// True answers to both sides of these, where they are counted.
    pub answers: Option<u64>,
    /// Bytes that say what another run's rows are, from which this one starts.
    pub first_rows: u64,
}

impl Size {
    /// Entities have this degree on average; those of triples twice that, about.
    const SKEW: f64 = 2.0;

    /// Bytes of a triple on disk.
    pub(super) fn triple_bytes(&self) -> u64 {
        if self.weighted { 16 } else { 12 }
    }

    /// True answers to what is ranked: as counted, or about as many as there may be.
    pub(super) fn answers(&self) -> u64 {
        self.answers.unwrap_or_else(|| {
            let degree = 2.0 * self.triples as f64 / self.entities.max(1) as f64;
            let found = 2.0 * self.held_out as f64 * Self::SKEW * degree;
            found.min(2.0 * self.triples as f64) as u64
        })
    }

    /// Bytes of a true answer as it is kept.
    pub(super) fn answer_bytes(&self) -> u64 {
        if self.entities < 1 << 31 { 4 } else { 8 }
    }
}

impl Request {
    /// Bytes of an entity: its row and what the optimiser keeps of it.
    pub(super) fn row_bytes(&self) -> u64 {
        4 * (self.model.dim + self.model.state_width)
    }

    /// Negatives of a chunk, of so many rows.
    pub(super) fn negatives(&self, rows: u64) -> u64 {
        self.negatives.count.unwrap_or(rows)
    }

    /// Whether a bucket is trained in every state that holds its partitions.
    pub(super) fn spreads(&self) -> bool {
        self.budget.spread && !self.negatives.known
    }

    /// Whether buckets are never trained in parts, with so many walks an epoch.
    pub(super) fn keeps_buckets_whole(&self, sweeps: u32) -> bool {
        !self.spreads() && !self.budget.rename && sweeps <= 1
    }

    /// Whether the core trains whole batches, in which kinds of anchors share their negatives.
    pub(super) fn trained_by_core(&self) -> bool {
        self.model.scores != Scores::Custom && !self.negatives.known
    }

    /// Draws of negatives for a chunk with `there` parts of the table in memory: anchors share one
    /// if their answers are in the same partitions, and as likely in each or a bias says how likely.
    pub(super) fn draws(&self, there: u64, swap: SwapKind) -> u64 {
        if self.spreads() && !self.negatives.bias_weighs {
            return there;
        }
        // In place the anchors in the partition that leaves have answers in all, others in that
        // alone; so have those in one that has come, where a bucket is trained at once.
        if self.spreads() && swap != SwapKind::InPlace { 1 } else { 2 }
    }

    /// The same request with the walks and groups of a placement.
    pub(super) fn settled(&self, sweeps: u32, group: usize) -> Self {
        let mut request = self.clone();
        (request.budget.sweeps, request.budget.group) = (sweeps, group);
        request
    }
}
