//! Candidates stored as columns.

use super::CANDIDATES_AT_ONCE;
use super::pairs::Panel;

/// Floats in the longest vector; every column starts and ends at a multiple of it.
pub const LINE: usize = 16;

/// Layout of candidates as columns: the first dimension of all candidates, then the second
/// dimension, and so on. Columns are padded with zeros.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// Number of candidates.
    pub count: usize,
    /// Number of candidates, rounded up to whole vectors.
    pub padded: usize,
    /// Floats from one column to the next. This is an odd number of vectors, so that a candidate's
    /// values in different columns do not map to the same cache set.
    pub stride: usize,
    /// Floats per candidate, and therefore number of columns.
    pub width: usize,
}

impl Columns {
    /// The layout of `count` candidates.
    pub fn of(count: usize, width: usize) -> Self {
        let lines = count.div_ceil(LINE);
        Self { count, padded: lines * LINE, stride: (lines | 1) * LINE, width }
    }

    /// Floats in all columns.
    pub fn numbers(&self) -> usize {
        self.width * self.stride
    }

    /// Writes columns, starting with number `first`, of the candidates given by `row`.
    pub fn write<'a>(&self, first: usize, row: impl Fn(usize) -> &'a [f32], columns: &mut [f32]) {
        let count = columns.len() / self.stride;
        for start in (0..self.stride).step_by(LINE) {
            let candidates = start..self.count.min(start + LINE);
            for column in 0..count {
                columns[column * self.stride + start..][..LINE].fill(0.0);
            }
            for candidate in candidates {
                let numbers = &row(candidate)[first..][..count];
                for (column, &number) in numbers.iter().enumerate() {
                    columns[column * self.stride + candidate] = number;
                }
            }
        }
    }

    /// Panels for comparing queries, `row` floats apart, with the candidates, one part of the
    /// candidates after the other.
    pub fn panels<'a>(
        self,
        columns: &'a [f32],
        queries: &'a [f32],
        row: usize,
    ) -> impl Iterator<Item = Panel<'a>> {
        (0..self.padded).step_by(CANDIDATES_AT_ONCE).map(move |first| Panel {
            queries,
            row,
            width: self.width,
            columns,
            stride: self.stride,
            first,
            last: (first + CANDIDATES_AT_ONCE).min(self.padded),
        })
    }

    /// Adds the columns of several groups, stored one after the other, to rows of `stride` floats.
    /// The rows belong to candidates starting at `first`, a multiple of `LINE`.
    pub fn add_rows(&self, groups: &[f32], first: usize, stride: usize, rows: &mut [f32]) {
        let mut sums = vec![0.0_f32; LINE * self.width];
        for (line, rows) in rows.chunks_mut(LINE * stride).enumerate() {
            for (column, sums) in sums.chunks_mut(LINE).enumerate() {
                sums.fill(0.0);
                for group in groups.chunks(self.numbers()) {
                    let start = column * self.stride + first + line * LINE;
                    for (sum, value) in sums.iter_mut().zip(&group[start..start + LINE]) {
                        *sum += value;
                    }
                }
            }
            for (candidate, row) in rows.chunks_mut(stride).enumerate() {
                for (number, sums) in row.iter_mut().zip(sums.chunks(LINE)) {
                    *number += sums[candidate];
                }
            }
        }
    }
}
