//! A block of triples on its way through query, scores, loss and gradient.

use super::passes::{Job, first_mut};
use super::{RowsOf, SideSpace, Tables};
use crate::euclidean::{distances, scale_by, squared_distance};
use crate::lanes::{Kernel, Lanes, dispatch};
use crate::loss::row_loss;
use crate::model::{Side, Similarity, dot};
use crate::product::{Extent, Left, Right, padded, product};

/// Triples that go through all passes at once.
const ROWS_AT_ONCE: usize = 64;

/// What is left of a side's buffers behind the blocks that were cut off.
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
        to: &mut Vec<Block<'a>>,
    ) {
        self.block(job.triples.start - self.done, chunk, &mut []);
        for start in job.triples.clone().step_by(ROWS_AT_ONCE) {
            let count = ROWS_AT_ONCE.min(job.triples.end - start);
            let scores = first_mut(&mut scores, count * job.width());
            to.push(self.block(count, chunk, scores));
        }
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

/// What the blocks of a chunk share.
#[derive(Clone, Copy)]
pub(super) struct Scored<'a> {
    pub from: &'a Tables<'a>,
    pub side: Side,
    pub candidates: &'a [i64],
    /// `[kinds, candidates]`
    pub bias: Option<&'a [f32]>,
    /// Candidates as columns, in panels.
    pub columns: &'a [f32],
    /// Candidates as rows, in panels.
    pub rows: &'a [f32],
    /// Squares of the candidates, where they are compared by distance.
    pub squares: &'a [f32],
}

/// Some triples of a chunk on their way through all passes.
pub(super) struct Block<'a> {
    chunk: Scored<'a>,
    of: &'a RowsOf,
    /// Place of the first triple among all of the side.
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
    pub fn train(&mut self) {
        let (from, rows) = (self.chunk.from, self.values.len());
        let (width, count) = (from.entities.width, self.chunk.candidates.len());
        dispatch(Forward(self));
        let left = Left::Rows { numbers: self.queries, stride: from.stride() };
        let extent = Extent { rows, depth: width, width: padded(count) };
        product(left, Right::Panels(self.chunk.columns), extent, self.scores);
        dispatch(Lose(self));
        let left = Left::Rows { numbers: self.scores, stride: padded(count) };
        let extent = Extent { rows, depth: count, width: from.stride() };
        product(left, Right::Panels(self.chunk.rows), extent, self.to_anchors);
        dispatch(Backward(self));
    }
}

/// Queries, and how they fit their own targets.
struct Forward<'a, 'b>(&'a mut Block<'b>);

impl Kernel for Forward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let block = self.0;
        let (from, side) = (block.chunk.from, block.chunk.side);
        for (place, query) in block.queries.chunks_exact_mut(from.stride()).enumerate() {
            let query = &mut query[..from.entities.width];
            let of = block.first + place;
            let anchor = from.entity(block.of.anchors[of]);
            let relation = from.relation(block.of.relations[of]);
            from.objective.model.query(side, anchor, relation, query);
            let target = from.entity(block.of.targets[of]);
            block.to_positives[place] = match from.objective.model.similarity() {
                Similarity::Inner => dot(lanes, query, target),
                Similarity::Euclidean => -squared_distance(lanes, query, target).sqrt(),
            };
        }
    }
}

/// Scores become derivatives of the loss.
struct Lose<'a, 'b>(&'a mut Block<'b>);

impl Kernel for Lose<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let block = self.0;
        let Scored { from, candidates, bias, squares, .. } = block.chunk;
        let (count, width) = (candidates.len(), from.entities.width);
        let mut inverses = vec![0.0; squares.len()];
        for (place, scores) in block.scores.chunks_exact_mut(padded(count)).enumerate() {
            let (scores, of) = (&mut scores[..count], block.first + place);
            if from.by_distance() {
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
                let own = i64::from(block.of.targets[of]);
                let mut hidden = candidates.partition_point(|&row| row < own);
                while hidden < count && candidates[hidden] == own {
                    scores[hidden] = f32::NEG_INFINITY;
                    hidden += 1;
                }
            }
            let (positive, weight) = (block.to_positives[place], block.of.weights[of]);
            let found = row_loss(lanes, from.objective.loss, positive, weight, scores, count);
            block.values[place] = found.value;
            block.to_positives[place] = found.positive;
            if from.by_distance() {
                // All derivatives by scores become those by the difference of two rows.
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

/// Gradients of queries become those of anchors and relations.
struct Backward<'a, 'b>(&'a mut Block<'b>);

impl Kernel for Backward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _lanes: L) {
        let block = self.0;
        let (from, side) = (block.chunk.from, block.chunk.side);
        let relation_width = from.relations.width;
        for (place, gradient) in block.to_anchors.chunks_exact_mut(from.stride()).enumerate() {
            let gradient = &mut gradient[..from.entities.width];
            let (slope, of) = (block.to_positives[place], block.first + place);
            let target = from.entity(block.of.targets[of]);
            for (number, target) in gradient.iter_mut().zip(target) {
                *number += slope * target;
            }
            if from.by_distance() {
                let (query, pull) = (&block.queries[place * from.stride()..], block.pulls[place]);
                for (number, query) in gradient.iter_mut().zip(query) {
                    *number -= (slope + pull) * query;
                }
            }
            let anchor = from.entity(block.of.anchors[of]);
            let relation = from.relation(block.of.relations[of]);
            let to_relation = &mut block.to_relations[place * relation_width..][..relation_width];
            from.objective.model.backward(side, anchor, relation, gradient, to_relation);
        }
    }
}
