//! Trains a whole batch: scores, loss, gradients, and optimiser steps of the rows used.
//!
//! Queries, scores, losses and gradients are computed in blocks that stay in the cache. The blocks
//! and the order of all sums depend only on the sizes, so the result has the same bits for every
//! number of threads.

mod blocks;
mod job;
mod passes;
mod sums;

use outercore_core::{Error, Result};

use self::passes::{Space, jobs};
use self::sums::{entity_uses, relation_uses, sum};
use crate::distance::{Columns, Distance};
use crate::known::Known;
use crate::loss::Loss;
use crate::model::{Model, Similarity, Size};
use crate::parallel::{both, in_pool};
use crate::product::padded;
use crate::rows::{Step, step_rows};
use crate::uses::Order;

/// The training objective: the same for all batches of a run.
#[derive(Clone, Copy, Debug)]
pub struct Objective {
    /// The score function.
    pub model: Model,
    /// Loss of a positive score against the scores of the candidates.
    pub loss: Loss,
    /// Regularisation: the cost of the sizes of a triple's rows.
    pub size: Option<Size>,
    /// Factors of the cost for entities and for relations.
    pub strengths: (f32, f32),
    /// Offset from a relation to its reciprocal relation, which is used for predicting heads;
    /// `None`: heads are predicted with the relation itself.
    pub reverse: Option<usize>,
    /// Whether a candidate that equals the triple's own entity is ignored.
    pub hides_own: bool,
    /// Optimiser steps of entities and of relations.
    pub steps: (Step, Step),
}

/// Rows and the state of their optimiser.
#[derive(Debug)]
pub struct Table<'a> {
    /// `[all, width]`
    pub rows: &'a mut [f32],
    /// `[all, state width]`
    pub state: &'a mut [f32],
    /// Floats per row.
    pub width: usize,
}

/// Triples that share their candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of triples.
    pub triples: usize,
    /// Number of candidates.
    pub candidates: usize,
    /// Number of weightings of the candidates: each kind has a separate bias for every candidate.
    pub kinds: usize,
}

/// Questions for one end of a batch's triples: the other end and the relation are given.
#[derive(Clone, Copy, Debug)]
pub struct Questions<'a> {
    /// Places of the triples; each triple of the batch occurs once.
    pub places: &'a [i64],
    /// The chunks, in the order of the triples.
    pub chunks: &'a [Chunk],
    /// Rows of the candidates of all chunks, ascending within each.
    pub candidates: &'a [i64],
    /// Added to the scores of candidates: `[kinds, candidates]` per chunk.
    pub bias: Option<&'a [f32]>,
    /// The kind of each triple in its chunk; `None`: all have the first kind.
    pub kinds: Option<&'a [i64]>,
}

/// A batch, with the triples of its pool.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// `[all, 3]`: row of the head, relation, row of the tail.
    pub triples: &'a [i64],
    /// Weight of each triple; `None`: 1.
    pub weights: Option<&'a [f32]>,
    /// Known triples of the pool: a candidate that completes a known triple is ignored. `None`:
    /// none are ignored.
    pub known: Option<&'a Known>,
    /// Additional factor of each triple's weight, on each side.
    pub unit: f32,
    /// The questions for tails, and those for heads.
    pub questions: [Questions<'a>; 2],
    /// Learning rates of entities and of relations.
    pub rates: (f32, f32),
}

/// Memory that the next batch reuses.
#[derive(Debug, Default)]
pub struct Workspace {
    rows: [RowsOf; 2],
    sides: [SideSpace; 2],
    scores: Vec<f32>,
    /// Candidates of the current chunks, as columns and as rows.
    panels: [Vec<f32>; 2],
    /// Squared norms of the current chunks' candidates, for Euclidean distances.
    squares: Vec<f32>,
    /// Gradients of the current chunks' candidates as columns, per group of triples, for distances
    /// computed pair by pair.
    columns: Vec<f32>,
    entities: Summed,
    relations: Summed,
}

/// Rows of the tables that the questions of a side use.
#[derive(Debug, Default)]
struct RowsOf {
    anchors: Vec<u32>,
    relations: Vec<u32>,
    targets: Vec<u32>,
    candidates: Vec<u32>,
    weights: Vec<f32>,
    kinds: Vec<u32>,
}

/// Results for the questions of a side. A row of entities takes `stride` floats.
#[derive(Debug, Default)]
struct SideSpace {
    queries: Vec<f32>,
    to_anchors: Vec<f32>,
    to_relations: Vec<f32>,
    /// `[candidates of all chunks, stride]`
    to_candidates: Vec<f32>,
    to_positives: Vec<f32>,
    /// For Euclidean distances: the factor of the query itself in its gradient.
    pulls: Vec<f32>,
    values: Vec<f32>,
}

#[derive(Debug, Default)]
struct Summed {
    order: Order,
    sums: Vec<f32>,
    costs: Vec<f32>,
}

/// Trains one batch and returns its loss. Returns `None`, with unchanged tables, if the loss, a
/// gradient, or the optimiser state plus squared gradients is not finite.
///
/// # Errors
/// Invalid: sizes that do not fit each other, places or rows out of range, candidates that do not
/// ascend. The tables are then unchanged.
pub fn train_batch(
    objective: &Objective,
    entities: Table<'_>,
    relations: Table<'_>,
    batch: &Batch<'_>,
    workspace: &mut Workspace,
    threads: usize,
) -> Result<Option<f32>> {
    check(objective, &entities, &relations, batch)?;
    in_pool(threads, || {
        let from = Tables { objective, entities: &entities, relations: &relations };
        let Workspace {
            rows,
            sides,
            scores,
            panels,
            squares,
            columns,
            entities: of_entities,
            relations: of_relations,
        } = workspace;
        let [tails, heads] = &mut *rows;
        let (of_tails, of_heads) =
            both(threads, || tails.look_up(&from, batch, 0), || heads.look_up(&from, batch, 1));
        of_tails.and(of_heads)?;
        for (side, questions) in sides.iter_mut().zip(&batch.questions) {
            side.make_room(&from, questions);
        }
        // If the questions of both sides have the same order, they share the uses of their rows.
        let shared = batch.questions[0].places == batch.questions[1].places;
        let (sorted, ()) = both(
            threads,
            || {
                of_entities.order.sort(&entity_uses(rows, shared))?;
                of_relations.order.sort(&relation_uses(rows, shared && objective.reverse.is_none()))
            },
            || {
                let mut space = Space { rows, sides, scores, panels, squares, columns };
                for group in jobs(&from, batch) {
                    space.score(&from, batch, &group, threads);
                }
            },
        );
        sorted?;
        let loss = sum(&from, rows, sides, (of_entities, of_relations), shared, threads);
        if !loss.is_finite() {
            return Ok(None);
        }
        let steps = [
            (entities, &*of_entities, objective.steps.0, batch.rates.0),
            (relations, &*of_relations, objective.steps.1, batch.rates.1),
        ];
        for (table, found, step, rate) in steps {
            let rows = &found.order.rows;
            let sums = &found.sums[..rows.len() * table.width];
            if !sums.is_empty() {
                step_rows(step, table.rows, table.state, rows, sums, rate, threads)?;
            }
        }
        Ok(Some(loss))
    })
}

struct Tables<'a> {
    objective: &'a Objective,
    entities: &'a Table<'a>,
    relations: &'a Table<'a>,
}

impl Tables<'_> {
    fn entity(&self, row: u32) -> &[f32] {
        &self.entities.rows[row as usize * self.entities.width..][..self.entities.width]
    }

    fn relation(&self, row: u32) -> &[f32] {
        &self.relations.rows[row as usize * self.relations.width..][..self.relations.width]
    }

    /// Whether scores are Euclidean distances, computed from inner products.
    fn euclidean(&self) -> bool {
        self.objective.model.similarity() == Similarity::Euclidean
    }

    /// The layout of `candidates` candidates, if distances are computed pair by pair.
    fn apart(&self, candidates: usize) -> Option<(Distance, Columns)> {
        match self.objective.model.similarity() {
            Similarity::Apart(distance) => {
                Some((distance, Columns::of(candidates, self.entities.width)))
            }
            Similarity::Inner | Similarity::Euclidean => None,
        }
    }

    /// Floats per row of entities, with padding to whole vectors.
    fn stride(&self) -> usize {
        padded(self.entities.width)
    }
}

impl RowsOf {
    /// Errors: invalid for a place, a row or a relation out of range.
    fn look_up(&mut self, from: &Tables<'_>, batch: &Batch<'_>, side: usize) -> Result<()> {
        let questions = &batch.questions[side];
        let entities = from.entities.rows.len() / from.entities.width;
        let reverse = if side == 0 { None } else { from.objective.reverse };
        let relations = match from.relations.width {
            0 => usize::MAX,
            width => from.relations.rows.len() / width,
        };
        let within = |row: i64, count: usize, what: &str| match u32::try_from(row) {
            Ok(row) if (row as usize) < count => Ok(row),
            _ => Err(Error::invalid(format!("batch: {what} {row}: expected one of {count}"))),
        };
        self.anchors.clear();
        self.relations.clear();
        self.targets.clear();
        self.weights.clear();
        let all = batch.triples.len() / 3;
        for &place in questions.places {
            let place = within(place, all, "triple")? as usize;
            let [head, relation, tail] = [0, 1, 2].map(|part| batch.triples[3 * place + part]);
            let (anchor, target) = if side == 0 { (head, tail) } else { (tail, head) };
            self.anchors.push(within(anchor, entities, "row")?);
            self.targets.push(within(target, entities, "row")?);
            let relation = relation + reverse.unwrap_or(0) as i64;
            self.relations.push(within(relation, relations, "relation")?);
            self.weights.push(batch.weights.map_or(1.0, |weights| weights[place]) * batch.unit);
        }
        self.candidates.clear();
        for &row in questions.candidates {
            self.candidates.push(within(row, entities, "row")?);
        }
        self.kinds.clear();
        for chunk in questions.chunks {
            let triples = self.kinds.len()..self.kinds.len() + chunk.triples;
            for place in triples {
                let kind = questions.kinds.map_or(0, |kinds| kinds[place]);
                self.kinds.push(within(kind, chunk.kinds, "kind")?);
            }
        }
        Ok(())
    }
}

impl SideSpace {
    fn make_room(&mut self, from: &Tables<'_>, questions: &Questions<'_>) {
        let (count, stride) = (questions.places.len(), from.stride());
        grow(&mut self.queries, count * stride);
        grow(&mut self.to_anchors, count * stride);
        grow(&mut self.to_relations, count * from.relations.width);
        grow(&mut self.to_candidates, questions.candidates.len() * stride);
        grow(&mut self.to_positives, count);
        grow(&mut self.pulls, count);
        self.values.resize(count, 0.0);
    }
}

/// Makes the buffer at least `count` elements long.
fn grow(buffer: &mut Vec<f32>, count: usize) {
    if buffer.len() < count {
        buffer.resize(count, 0.0);
    }
}

fn check(
    objective: &Objective,
    entities: &Table<'_>,
    relations: &Table<'_>,
    batch: &Batch<'_>,
) -> Result<()> {
    let width = entities.width;
    if width == 0 || !entities.rows.len().is_multiple_of(width) {
        let count = entities.rows.len();
        return Err(Error::invalid(format!(
            "batch: expected rows of {width} numbers, found {count} numbers"
        )));
    }
    let model = objective.model;
    if (model.halves() && !width.is_multiple_of(2))
        || relations.width != model.relation_width(width)
    {
        return Err(Error::invalid(format!(
            "batch: {model:?} has no rows of {width} numbers with relations of {}",
            relations.width
        )));
    }
    if relations.width > 0 && !relations.rows.len().is_multiple_of(relations.width) {
        return Err(Error::invalid("batch: relations are no whole rows"));
    }
    let steps =
        [(entities, objective.steps.0, "entities"), (relations, objective.steps.1, "relations")];
    for (table, step, what) in steps {
        let state_width = step.state_width(table.width);
        if table.width > 0 && table.state.len() != table.rows.len() / table.width * state_width {
            return Err(Error::invalid(format!(
                "batch: {step:?} of {what}: expected {state_width} numbers of state beside each \
                 of {} rows, found {} numbers",
                table.rows.len() / table.width,
                table.state.len()
            )));
        }
    }
    let triples = batch.triples.len() / 3;
    if !batch.triples.len().is_multiple_of(3)
        || batch.weights.is_some_and(|all| all.len() != triples)
    {
        return Err(Error::invalid("batch: expected three numbers and one weight a triple"));
    }
    for questions in &batch.questions {
        let triples: usize = questions.chunks.iter().map(|chunk| chunk.triples).sum();
        let candidates: usize = questions.chunks.iter().map(|chunk| chunk.candidates).sum();
        let biases = questions.chunks.iter().map(|chunk| chunk.kinds * chunk.candidates).sum();
        let bias = questions.bias.map_or(biases, <[f32]>::len);
        let kinds = questions.kinds.map_or(triples, <[i64]>::len);
        if triples != questions.places.len()
            || candidates != questions.candidates.len()
            || bias != biases
            || kinds != triples
            || questions.chunks.iter().any(|chunk| chunk.candidates == 0)
        {
            return Err(Error::invalid(format!(
                "batch: chunks of {triples} triples, {candidates} candidates and {biases} biases, \
                 found {} triples, {kinds} kinds, {} candidates and {bias} biases",
                questions.places.len(),
                questions.candidates.len()
            )));
        }
        let mut rest = questions.candidates;
        for (number, chunk) in questions.chunks.iter().enumerate() {
            let (candidates, others) = rest.split_at(chunk.candidates);
            // A triple's entity is found among the candidates by binary search.
            if !candidates.is_sorted() {
                return Err(Error::invalid(format!(
                    "batch: candidates of chunk {number}: expected ascending rows"
                )));
            }
            rest = others;
        }
    }
    Ok(())
}
