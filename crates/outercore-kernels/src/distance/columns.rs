//! Candidates as columns.

use super::CANDIDATES_AT_ONCE;
use super::pairs::Panel;

/// Numbers in the longest vector; every column begins and ends at a multiple of it.
const LINE: usize = 16;

/// All first numbers of the candidates, then all second numbers, and so on.
#[derive(Debug)]
pub struct Columns {
    /// `[width, stride]`; what is beyond `count` in a column is zero.
    pub numbers: Vec<f32>,
    /// Candidates.
    pub count: usize,
    /// Candidates, rounded up to whole vectors.
    pub padded: usize,
    /// From one column to the next: an odd number of vectors, so that the same candidate in all
    /// columns does not fall on the same place of the cache.
    pub stride: usize,
    width: usize,
}

impl Columns {
    /// The columns of `rows` `[count, width]`.
    pub fn of(rows: &[f32], width: usize) -> Self {
        let count = rows.len() / width;
        let lines = count.div_ceil(LINE);
        let stride = (lines | 1) * LINE;
        let mut numbers = vec![0.0; width * stride];
        for (first, rows) in rows.chunks(LINE * width).enumerate() {
            for (column, numbers) in numbers.chunks_mut(stride).enumerate() {
                let place = &mut numbers[first * LINE..];
                for (place, row) in place.iter_mut().zip(rows.chunks(width)) {
                    *place = row[column];
                }
            }
        }
        Self { numbers, count, padded: lines * LINE, stride, width }
    }

    /// What `rows` are compared with, a part of the candidates after the other.
    pub fn panels<'a>(&'a self, queries: &'a [f32]) -> impl Iterator<Item = Panel<'a>> {
        (0..self.padded).step_by(CANDIDATES_AT_ONCE).map(move |first| Panel {
            queries,
            width: self.width,
            columns: &self.numbers,
            stride: self.stride,
            first,
            last: (first + CANDIDATES_AT_ONCE).min(self.padded),
        })
    }

    /// Scores `[rows, stride]` before any distance is taken from them. Those beyond `count` do not
    /// count.
    pub fn start_scores(&self, bias: Option<&[f32]>, scores: &mut [f32]) {
        for scores in scores.chunks_mut(self.stride) {
            let (counted, beyond) = scores.split_at_mut(self.count);
            match bias {
                Some(bias) => counted.copy_from_slice(bias),
                None => counted.fill(0.0),
            }
            beyond.fill(f32::NEG_INFINITY);
        }
    }

    /// Adds columns `[groups, width, stride]`, one group after the other, to rows
    /// `[count, width]`.
    pub fn add_rows(&self, groups: &[f32], rows: &mut [f32]) {
        let mut sums = vec![0.0_f32; LINE * self.width];
        for (first, rows) in rows.chunks_mut(LINE * self.width).enumerate() {
            for (column, sums) in sums.chunks_mut(LINE).enumerate() {
                sums.fill(0.0);
                for group in groups.chunks(self.numbers.len()) {
                    let start = column * self.stride + first * LINE;
                    for (sum, value) in sums.iter_mut().zip(&group[start..start + LINE]) {
                        *sum += value;
                    }
                }
            }
            for (candidate, row) in rows.chunks_mut(self.width).enumerate() {
                for (number, sums) in row.iter_mut().zip(sums.chunks(LINE)) {
                    *number += sums[candidate];
                }
            }
        }
    }
}
