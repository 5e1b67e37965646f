//! Candidates as columns.

use super::CANDIDATES_AT_ONCE;
use super::pairs::Panel;

/// Numbers in the longest vector; every column begins and ends at a multiple of it.
pub const LINE: usize = 16;

/// How candidates lie as columns: all first numbers of them, then all second numbers, and so on.
/// What is beyond the candidates in a column is zero.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// Candidates.
    pub count: usize,
    /// Candidates, rounded up to whole vectors.
    pub padded: usize,
    /// Numbers from one column to the next: an odd number of vectors, so that the same candidate
    /// in all columns does not fall on the same place of the cache.
    pub stride: usize,
    /// Numbers of a candidate, and so columns.
    pub width: usize,
}

impl Columns {
    /// Columns of so many candidates.
    pub fn of(count: usize, width: usize) -> Self {
        let lines = count.div_ceil(LINE);
        Self { count, padded: lines * LINE, stride: (lines | 1) * LINE, width }
    }

    /// Numbers of all columns.
    pub fn numbers(&self) -> usize {
        self.width * self.stride
    }

    /// Writes some columns, from number `first` on, of the candidates that `row` has.
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

    /// What rows, `row` numbers apart, are compared with: a part of the candidates after the other.
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

    /// Adds columns of several groups, one after the other, to candidates from number `first` on,
    /// a multiple of `LINE`: rows of `stride` numbers each.
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
