//! A chunk to score, and functions that cut pieces from buffers.

use std::mem::take;
use std::ops::Range;

/// A chunk of a side.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub side: usize,
    pub triples: Range<usize>,
    pub candidates: Range<usize>,
    pub biases: Range<usize>,
    /// Floats per row of scores.
    pub width: usize,
}

impl Job {
    pub fn scores(&self) -> usize {
        self.triples.len() * self.width
    }
}

/// Takes the first `count` elements of a slice, which keeps the rest.
pub(super) fn first_mut<'a, T>(of: &mut &'a mut [T], count: usize) -> &'a mut [T] {
    let (taken, rest) = take(of).split_at_mut(count);
    *of = rest;
    taken
}
