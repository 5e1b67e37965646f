//! A block of triples: computes query, scores, loss and gradient.

use super::job::{Job, first_mut};
use super::{Batch, RowsOf, SideSpace, Tables};
use crate::distance::{Columns, Distance};
use crate::euclidean::{distances, scale_by, squared_distance};
use crate::known::run;
use crate::lanes::{Kernel, Lanes, dispatch};
use crate::loss::row_loss;
use crate::model::{Side, Similarity, dot};
use crate::product::{Extent, Left, Right, product};

/// Triples that pass through all steps together.
pub(super) const ROWS_AT_ONCE: usize = 64;

/// The rest of a side's buffers, after the blocks cut off so far.
pub(super) struct Remains<'a> {
    rows: &'a RowsOf,
    done: usize,
    queries: &'a mut [f32],
    to_anchors: &'a mut [f32],
    to_relations: &'a mut [f32],
    to_positives: &'a mut [f32],
    pulls: &'a mut [f32],
    values: &'a mut [f32],
}

impl<'a> Remains<'a> {
    pub fn new(side: &'a mut SideSpace, rows: &'a RowsOf) -> Self {
        Self {
            rows,
            done: 0,
            queries: &mut side.queries,
            to_anchors: &mut side.to_anchors,
            to_relations: &mut side.to_relations,
            to_positives: &mut side.to_positives,
            pulls: &mut side.pulls,
            values: &mut side.values,
        }
    }

    /// Cuts off the blocks of a chunk.
    pub fn blocks(
        &mut self,
        job: &Job,
        chunk: Scored<'a>,
        mut scores: &'a mut [f32],
    ) -> Vec<Block<'a>> {
        self.block(job.triples.start - self.done, chunk, &mut []);
        let starts = job.triples.clone().step_by(ROWS_AT_ONCE);
        let block = |start| {
            let count = ROWS_AT_ONCE.min(job.triples.end - start);
            let scores = first_mut(&mut scores, count * job.width);
            self.block(count, chunk, scores)
        };
        starts.map(block).collect()
    }

    fn block(&mut self, count: usize, chunk: Scored<'a>, scores: &'a mut [f32]) -> Block<'a> {
        let (stride, first) = (chunk.from.stride(), self.done);
        self.done += count;
        Block {
            chunk,
            of: self.rows,
            first,
            queries: first_mut(&mut self.queries, count * stride),
            to_anchors: first_mut(&mut self.to_anchors, count * stride),
            to_relations: first_mut(&mut self.to_relations, count * chunk.from.relations.width),
            to_positives: first_mut(&mut self.to_positives, count),
            pulls: first_mut(&mut self.pulls, count),
            values: first_mut(&mut self.values, count),
            scores,
        }
    }
}

/// Data shared by the blocks of a chunk.
#[derive(Clone, Copy)]
pub(super) struct Scored<'a> {
    pub from: &'a Tables<'a>,
    pub batch: &'a Batch<'a>,
    /// Which of the batch's two sets of questions the chunk belongs to.
    pub side_number: usize,
    pub side: Side,
    pub candidates: &'a [i64],
    /// `[kinds, candidates]`
    pub bias: Option<&'a [f32]>,
    /// Floats per row of scores.
    pub width: usize,
    pub packed: Packed<'a>,
}

/// Candidates in the layout for computing scores.
#[derive(Clone, Copy)]
pub(super) enum Packed<'a> {
    /// For matrix products.
    Panels {
        /// As columns, in panels.
        columns: &'a [f32],
        /// As rows, in panels.
        rows: &'a [f32],
        /// Squared norms of the candidates, for Euclidean distances.
        squares: &'a [f32],
    },
    /// For distances computed pair by pair.
    Columns(Distance, Columns, &'a [f32]),
}

/// Some triples of a chunk, with their buffers for all steps.
pub(super) struct Block<'a> {
    chunk: Scored<'a>,
    of: &'a RowsOf,
    /// Index of the first triple among all triples of the side.
    first: usize,
    queries: &'a mut [f32],
    to_anchors: &'a mut [f32],
    to_relations: &'a mut [f32],
    to_positives: &'a mut [f32],
    pulls: &'a mut [f32],
    values: &'a mut [f32],
    scores: &'a mut [f32],
}

impl Block<'_> {
    /// Computes all steps for the block. For distances computed pair by pair, adds the gradients of
    /// the candidates to `to_columns`.
    pub fn train(&mut self, to_columns: &mut [f32]) {
        dispatch(Forward(self));
        let (from, rows) = (self.chunk.from, self.values.len());
        let (depth, stride) = (from.entities.width, from.stride());
        match self.chunk.packed {
            Packed::Panels { columns, rows: by_rows, .. } => {
                let width = self.chunk.width;
                let left = Left::Rows { numbers: self.queries, stride };
                let extent = Extent { rows, depth, width };
                product(left, Right::Panels(columns), extent, self.scores);
                dispatch(Lose(self));
                let left = Left::Rows { numbers: self.scores, stride: width };
                let extent = Extent { rows, depth: self.chunk.candidates.len(), width: stride };
                product(left, Right::Panels(by_rows), extent, self.to_anchors);
            }
            Packed::Columns(distance, columns, numbers) => {
                dispatch(Compare { block: self, distance, columns, numbers });
                dispatch(Lose(self));
                dispatch(Pull { block: self, distance, columns, numbers, to_columns });
            }
        }
        dispatch(Backward(self));
    }
}

/// Computes the queries, and their scores with the targets.
struct Forward<'a, 'b>(&'a mut Block<'b>);

impl Kernel for Forward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let block = self.0;
        let (from, side) = (block.chunk.from, block.chunk.side);
        let model = from.objective.model;
        let mut space = vec![0.0; from.entities.width];
        for (place, query) in block.queries.chunks_exact_mut(from.stride()).enumerate() {
            let query = &mut query[..from.entities.width];
            let of = block.first + place;
            let anchor = from.entity(block.of.anchors[of]);
            let relation = from.relation(block.of.relations[of]);
            model.query(side, anchor, model.relation(lanes, relation, &mut space), query);
            let target = from.entity(block.of.targets[of]);
            block.to_positives[place] = match model.similarity() {
                Similarity::Inner => dot(lanes, query, target),
                Similarity::Euclidean => -squared_distance(lanes, query, target).sqrt(),
                Similarity::Apart(distance) => -distance.of_pair(lanes, query, target),
            };
        }
    }
}

/// Computes scores that are distances, pair by pair.
struct Compare<'a, 'b> {
    block: &'a mut Block<'b>,
    distance: Distance,
    columns: Columns,
    numbers: &'a [f32],
}

impl Kernel for Compare<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Block { chunk, queries, scores, .. } = self.block;
        scores.fill(0.0);
        for panel in self.columns.panels(self.numbers, queries, chunk.from.stride()) {
            self.distance.subtract(lanes, panel, scores);
        }
    }
}

/// Computes gradients of queries and candidates from such distances.
struct Pull<'a, 'b> {
    block: &'a mut Block<'b>,
    distance: Distance,
    columns: Columns,
    numbers: &'a [f32],
    to_columns: &'a mut [f32],
}

impl Kernel for Pull<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Block { chunk, queries, to_anchors, scores, .. } = self.block;
        to_anchors.fill(0.0);
        for panel in self.columns.panels(self.numbers, queries, chunk.from.stride()) {
            self.distance.add_gradients(lanes, panel, scores, to_anchors, self.to_columns);
        }
    }
}

/// Replaces scores by derivatives of the loss.
struct Lose<'a, 'b>(&'a mut Block<'b>);

impl Kernel for Lose<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let block = self.0;
        let Scored { from, batch, side_number: side, candidates, bias, packed, .. } = block.chunk;
        let questions = &batch.questions[side];
        let (count, width) = (candidates.len(), from.entities.width);
        let squares = match packed {
            Packed::Panels { squares, .. } => squares,
            Packed::Columns(..) => &[],
        };
        let mut inverses = vec![0.0; squares.len()];
        for (place, scores) in block.scores.chunks_exact_mut(block.chunk.width).enumerate() {
            let (scores, beyond) = scores.split_at_mut(count);
            beyond.fill(0.0);
            let of = block.first + place;
            if from.euclidean() {
                let query = &block.queries[place * from.stride()..][..width];
                distances(lanes, dot(lanes, query, query), squares, scores, &mut inverses);
            }
            if let Some(bias) = bias {
                let bias = &bias[block.of.kinds[of] as usize * count..][..count];
                for (score, bias) in scores.iter_mut().zip(bias) {
                    *score += bias;
                }
            }
            if from.objective.hides_own {
                for hidden in run(candidates, i64::from(block.of.targets[of])) {
                    scores[hidden] = f32::NEG_INFINITY;
                }
            }
            if let Some(known) = batch.known {
                let place = questions.places[of] as usize;
                known.hide(batch.triples, side, place, candidates, scores);
            }
            let (positive, weight) = (block.to_positives[place], block.of.weights[of]);
            let found = row_loss(lanes, from.objective.loss, positive, weight, scores, count);
            block.values[place] = found.value;
            block.to_positives[place] = found.positive;
            if from.euclidean() {
                // Convert derivatives with respect to scores to derivatives with respect to the
                // difference of two rows.
                block.pulls[place] = scale_by(lanes, scores, &inverses);
                if positive < 0.0 {
                    block.to_positives[place] /= -positive;
                } else {
                    block.to_positives[place] = 0.0;
                }
            }
        }
    }
}

/// Converts gradients of queries to gradients of anchors and relations.
struct Backward<'a, 'b>(&'a mut Block<'b>);

impl Kernel for Backward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let block = self.0;
        let (from, side) = (block.chunk.from, block.chunk.side);
        let (model, width) = (from.objective.model, from.entities.width);
        let relation_width = from.relations.width;
        let mut space = vec![0.0; width];
        for (place, gradient) in block.to_anchors.chunks_exact_mut(from.stride()).enumerate() {
            let gradient = &mut gradient[..width];
            let query = &mut block.queries[place * from.stride()..][..width];
            let (slope, of) = (&mut block.to_positives[place], block.first + place);
            let target = from.entity(block.of.targets[of]);
            match model.similarity() {
                Similarity::Inner => add_times(gradient, *slope, target),
                Similarity::Euclidean => {
                    add_times(gradient, *slope, target);
                    add_times(gradient, -(*slope + block.pulls[place]), query);
                }
                Similarity::Apart(distance) => {
                    distance.part_pair(lanes, *slope, query, target, gradient);
                    *slope = 1.0;
                }
            }
            let anchor = from.entity(block.of.anchors[of]);
            let relation = from.relation(block.of.relations[of]);
            let relation = model.relation(lanes, relation, &mut space);
            let to_relation = &mut block.to_relations[place * relation_width..][..relation_width];
            model.backward(side, anchor, relation, gradient, to_relation);
        }
    }
}

/// Adds a multiple of a row to another.
#[inline(always)]
fn add_times(to: &mut [f32], factor: f32, row: &[f32]) {
    for (to, number) in to.iter_mut().zip(row) {
        *to += factor * number;
    }
}
