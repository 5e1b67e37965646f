//! Finds candidates that complete a known triple of the pool: they are not negatives.

use std::ops::Range;

use outercore_core::{Error, Result};

use crate::parallel::both;

/// The triples of a pool, sorted by the questions that they answer.
///
/// **Cost**: 8 bytes per triple.
#[derive(Clone, Debug)]
pub struct Known {
    /// Whether answers of the other side count too, because each triple implies its reverse.
    undirected: bool,
    /// Places of triples by question, then by answer; for tails and for heads.
    orders: [Vec<u32>; 2],
}

/// Columns of a triple: the anchor, and the answer.
const ENDS: [(usize, usize); 2] = [(0, 2), (2, 0)];

impl Known {
    /// Sorts `triples`, `[all, 3]`.
    ///
    /// # Errors
    /// `Invalid`: more than 2^32 triples.
    pub fn new(triples: &[i64], undirected: bool, threads: usize) -> Result<Self> {
        let count = u32::try_from(triples.len() / 3).map_err(|_| {
            Error::invalid(format!("known triples: {} in one pool", triples.len() / 3))
                .hint("choose more partitions")
        })?;
        let sorted = |(anchor, target): (usize, usize)| {
            let key = |&place: &u32| {
                let triple = &triples[3 * place as usize..][..3];
                (triple[anchor], triple[1], triple[target])
            };
            let mut order: Vec<u32> = (0..count).collect();
            order.sort_unstable_by_key(key);
            order
        };
        let (tails, heads) = both(threads, || sorted(ENDS[0]), || sorted(ENDS[1]));
        Ok(Self { undirected, orders: [tails, heads] })
    }

    /// Sets the score to minus infinity for all candidates that answer the question of the triple
    /// at `place`. `candidates` must ascend.
    pub(crate) fn hide(
        &self,
        triples: &[i64],
        side: usize,
        place: usize,
        candidates: &[i64],
        scores: &mut [f32],
    ) {
        let question = (triples[3 * place + ENDS[side].0], triples[3 * place + 1]);
        for answers in [side, 1 - side].into_iter().take(1 + usize::from(self.undirected)) {
            let answers = self.answers(triples, answers, question);
            answers.hide(candidates, scores);
        }
    }

    fn answers<'a>(&'a self, triples: &'a [i64], side: usize, question: (i64, i64)) -> Answers<'a> {
        let order = &self.orders[side];
        let (anchor, target) = ENDS[side];
        let of =
            |place: u32| (triples[3 * place as usize + anchor], triples[3 * place as usize + 1]);
        let first = order.partition_point(|&place| of(place) < question);
        let count = order[first..].partition_point(|&place| of(place) == question);
        Answers { triples, target, places: &order[first..first + count] }
    }
}

/// Answers to a question, ascending.
struct Answers<'a> {
    triples: &'a [i64],
    target: usize,
    places: &'a [u32],
}

impl Answers<'_> {
    fn answer(&self, place: u32) -> i64 {
        self.triples[3 * place as usize + self.target]
    }

    /// Looks up each element of the shorter list in the longer one.
    fn hide(&self, candidates: &[i64], scores: &mut [f32]) {
        if self.places.len() <= candidates.len() {
            for &place in self.places {
                let answer = self.answer(place);
                for hidden in run(candidates, answer) {
                    scores[hidden] = f32::NEG_INFINITY;
                }
            }
            return;
        }
        for (candidate, score) in candidates.iter().zip(scores) {
            if self.places.binary_search_by_key(candidate, |&place| self.answer(place)).is_ok() {
                *score = f32::NEG_INFINITY;
            }
        }
    }
}

/// The range of a row among ascending candidates.
pub(crate) fn run(candidates: &[i64], row: i64) -> Range<usize> {
    let first = candidates.partition_point(|&candidate| candidate < row);
    let same = candidates[first..].iter().take_while(|&&candidate| candidate == row);
    first..first + same.count()
}
