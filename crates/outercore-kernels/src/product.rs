//! Products of matrices that stay in the cache, between other passes over the same rows.
//!
//! For each small product, a general library would wake threads and pack matrices again. Here, one
//! thread multiplies a block of rows while it has them in its cache.

use crate::lanes::{Kernel, Lanes, dispatch};

/// Vectors per panel: with 8 rows of 3 vectors, the sums of a tile fill most registers of AVX-512.
const MOST_VECTORS: usize = 3;
/// Terms that are summed in registers before the sums are written to memory.
const DEPTH_AT_ONCE: usize = 256;

/// Floats in a vector of this processor.
pub fn lane_count() -> usize {
    struct Count;
    impl Kernel for Count {
        type Output = usize;

        #[inline(always)]
        fn run<L: Lanes>(self, _lanes: L) -> usize {
            L::F32_LANES
        }
    }
    dispatch(Count)
}

/// `width` rounded up to whole vectors.
pub fn padded(width: usize) -> usize {
    width.next_multiple_of(lane_count())
}

/// Floats in a row of a full panel.
pub fn panel_width() -> usize {
    MOST_VECTORS * lane_count()
}

/// The left factor of a product.
#[derive(Clone, Copy, Debug)]
pub enum Left<'a> {
    /// Rows in order, `stride` floats apart.
    Rows {
        /// The values.
        numbers: &'a [f32],
        /// Floats from one row to the next.
        stride: usize,
    },
    /// The transpose of rows; its first row is their column `first`.
    Columns {
        /// The values.
        numbers: &'a [f32],
        /// Floats from one row to the next.
        stride: usize,
        /// The column that becomes the first row.
        first: usize,
    },
}

/// The right factor of a product; its width is a multiple of whole vectors.
#[derive(Clone, Copy, Debug)]
pub enum Right<'a> {
    /// Rows in order, without gaps.
    Rows(&'a [f32]),
    /// Panels of `panel_width` columns in order (the last may have fewer), each stored row by row.
    Panels(&'a [f32]),
}

/// Sizes of a product: `[rows, depth] x [depth, width]`, where `width` is a multiple of whole
/// vectors.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Rows of the left factor and of the result.
    pub rows: usize,
    /// Number of terms per sum.
    pub depth: usize,
    /// Width of the right factor and of the result.
    pub width: usize,
}

/// Writes a product to `out`, `[rows, width]` without gaps, on the calling thread.
///
/// The terms of a sum are added in order, `DEPTH_AT_ONCE` at a time, for any block of rows.
pub fn product(left: Left<'_>, right: Right<'_>, extent: Extent, out: &mut [f32]) {
    dispatch(Product { left, right, extent, out });
}

struct Product<'a> {
    left: Left<'a>,
    right: Right<'a>,
    extent: Extent,
    out: &'a mut [f32],
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Extent { rows, depth, width } = self.extent;
        if depth == 0 {
            self.out.fill(0.0);
            return;
        }
        let vectors = width / L::F32_LANES;
        for first in (0..depth).step_by(DEPTH_AT_ONCE) {
            let terms = DEPTH_AT_ONCE.min(depth - first);
            for column in (0..vectors).step_by(MOST_VECTORS) {
                let count = MOST_VECTORS.min(vectors - column);
                let (numbers, stride, offset) = match self.right {
                    Right::Rows(numbers) => {
                        (&numbers[first * width..][..terms * width], vectors, column)
                    }
                    Right::Panels(numbers) => {
                        let lanes = L::F32_LANES;
                        let panel = &numbers[column * lanes * depth..][..count * lanes * depth];
                        (&panel[first * count * lanes..][..terms * count * lanes], count, 0)
                    }
                };
                let right = Strip { lines: L::as_simd_f32s(numbers).0, stride, offset };
                let out = &mut *self.out;
                let strip = Part { left: self.left, first, terms, rows, width, column };
                match count {
                    1 => strip.multiply::<L, 1>(lanes, right, out),
                    2 => strip.multiply::<L, 2>(lanes, right, out),
                    _ => strip.multiply::<L, 3>(lanes, right, out),
                }
            }
        }
    }
}

/// Some columns of the right factor.
#[derive(Clone, Copy)]
struct Strip<'a, V> {
    lines: &'a [V],
    /// Vectors from one row to the next.
    stride: usize,
    /// Vectors in a row before these columns.
    offset: usize,
}

/// Some columns of the result, and a part of their terms.
#[derive(Clone, Copy)]
struct Part<'a> {
    left: Left<'a>,
    first: usize,
    terms: usize,
    rows: usize,
    width: usize,
    /// First column, counted in vectors.
    column: usize,
}

impl Part<'_> {
    #[inline(always)]
    fn multiply<L: Lanes, const N: usize>(
        self,
        lanes: L,
        right: Strip<'_, L::f32s>,
        out: &mut [f32],
    ) {
        let mut row = 0;
        // With 16 registers, there is no room for the sums of eight rows.
        if L::F32_LANES > 8 {
            while row + 8 <= self.rows {
                self.tile::<L, 8, N>(lanes, right, row, out);
                row += 8;
            }
        }
        while row + 4 <= self.rows {
            self.tile::<L, 4, N>(lanes, right, row, out);
            row += 4;
        }
        while row < self.rows {
            self.tile::<L, 1, N>(lanes, right, row, out);
            row += 1;
        }
    }

    #[inline(always)]
    fn tile<L: Lanes, const M: usize, const N: usize>(
        self,
        lanes: L,
        right: Strip<'_, L::f32s>,
        row: usize,
        out: &mut [f32],
    ) {
        let mut sums = [[lanes.splat(0.0); N]; M];
        if self.first > 0 {
            for (number, sums) in sums.iter_mut().enumerate() {
                let place = (row + number) * self.width + self.column * L::F32_LANES;
                let line = L::as_simd_f32s(&out[place..][..N * L::F32_LANES]).0;
                sums.copy_from_slice(line);
            }
        }
        match self.left {
            Left::Rows { numbers, stride } => {
                let mut rows: [&[f32]; M] = [&[]; M];
                for (number, one) in rows.iter_mut().enumerate() {
                    *one = &numbers[(row + number) * stride + self.first..][..self.terms];
                }
                for (term, line) in right.lines.chunks_exact(right.stride).enumerate() {
                    let line = &line[right.offset..][..N];
                    for (sums, one) in sums.iter_mut().zip(&rows) {
                        let factor = lanes.splat(one[term]);
                        for (sum, &number) in sums.iter_mut().zip(line) {
                            *sum = lanes.mul_add_f32s(factor, number, *sum);
                        }
                    }
                }
            }
            Left::Columns { numbers, stride, first } => {
                let numbers = &numbers[self.first * stride..][..self.terms * stride];
                let terms = right.lines.chunks_exact(right.stride);
                for (line, column) in terms.zip(numbers.chunks_exact(stride)) {
                    let line = &line[right.offset..][..N];
                    let column = &column[first + row..][..M];
                    for (sums, &one) in sums.iter_mut().zip(column) {
                        let factor = lanes.splat(one);
                        for (sum, &number) in sums.iter_mut().zip(line) {
                            *sum = lanes.mul_add_f32s(factor, number, *sum);
                        }
                    }
                }
            }
        }
        for (number, sums) in sums.iter().enumerate() {
            let place = (row + number) * self.width + self.column * L::F32_LANES;
            let line = L::as_mut_simd_f32s(&mut out[place..][..N * L::F32_LANES]).0;
            line.copy_from_slice(sums);
        }
    }
}

/// Rows of a table, for building a panel.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// `[all, width]`
    pub table: &'a [f32],
    /// Floats per row.
    pub width: usize,
    /// The rows; all must be in the table.
    pub rows: &'a [i64],
}

impl<'a> Rows<'a> {
    fn row(self, number: usize) -> &'a [f32] {
        &self.table[self.rows[number] as usize * self.width..][..self.width]
    }

    /// Writes panel `number` of the rows as columns: one dimension of all rows after the other.
    pub fn pack_columns(self, number: usize, panel: &mut [f32]) {
        const AT_ONCE: usize = 64;
        let first = number * panel_width();
        let width = panel.len() / self.width;
        let count = width.min(self.rows.len() - first);
        for start in (0..self.width).step_by(AT_ONCE) {
            let stop = self.width.min(start + AT_ONCE);
            let lines = &mut panel[start * width..stop * width];
            for place in 0..count {
                let row = &self.row(first + place)[start..stop];
                for (line, &number) in lines.chunks_exact_mut(width).zip(row) {
                    line[place] = number;
                }
            }
            for line in lines.chunks_exact_mut(width) {
                line[count..].fill(0.0);
            }
        }
    }

    /// Writes panel `number` of the rows in row order: a range of dimensions of each row.
    pub fn pack_rows(self, number: usize, panel: &mut [f32]) {
        let first = number * panel_width();
        let width = panel.len() / self.rows.len();
        let count = width.min(self.width - first);
        for (place, line) in panel.chunks_exact_mut(width).enumerate() {
            line[..count].copy_from_slice(&self.row(place)[first..first + count]);
            line[count..].fill(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32)
            .map(|place| {
                let mixed = (place + seed).wrapping_mul(0x9e37_79b9) >> 8;
                mixed as f32 / (1 << 23) as f32 - 1.0
            })
            .collect()
    }

    fn naive(left: impl Fn(usize, usize) -> f32, right: &[f32], extent: Extent) -> Vec<f64> {
        let Extent { rows, depth, width } = extent;
        (0..rows * width)
            .map(|place| {
                let (row, column) = (place / width, place % width);
                (0..depth)
                    .map(|term| {
                        f64::from(left(row, term)) * f64::from(right[term * width + column])
                    })
                    .sum()
            })
            .collect()
    }

    fn close(actual: &[f32], expected: &[f64], what: &str) {
        assert_eq!(actual.len(), expected.len(), "{what}");
        for (place, (&one, &other)) in actual.iter().zip(expected).enumerate() {
            assert!((f64::from(one) - other).abs() < 1e-4, "{what}: place {place}: {one}, {other}");
        }
    }

    #[test]
    fn products_of_odd_sizes_are_those_of_the_definition() {
        for (rows, depth, wide) in
            [(1, 1, 1), (3, 7, 16), (13, 100, 40), (21, 515, 97), (64, 5, 48)]
        {
            let width = padded(wide);
            let extent = Extent { rows, depth, width };
            let what = format!("{rows} x {depth} x {width}");
            let right = numbers(depth * width, 7);
            let left = numbers(rows * (depth + 3), 1);
            let expected = naive(|row, term| left[row * (depth + 3) + term], &right, extent);
            let mut out = vec![f32::NAN; rows * width];
            let by_rows = Left::Rows { numbers: &left, stride: depth + 3 };
            product(by_rows, Right::Rows(&right), extent, &mut out);
            close(&out, &expected, &what);
            // The same factor, as a part of a transpose.
            let turned: Vec<f32> = (0..depth * (rows + 5))
                .map(|place| {
                    let (term, row) = (place / (rows + 5), place % (rows + 5));
                    if row < 2 || row >= rows + 2 {
                        9.0
                    } else {
                        left[(row - 2) * (depth + 3) + term]
                    }
                })
                .collect();
            let columns = Left::Columns { numbers: &turned, stride: rows + 5, first: 2 };
            let mut again = vec![f32::NAN; rows * width];
            product(columns, Right::Rows(&right), extent, &mut again);
            assert_eq!(again, out, "{what}");
        }
    }

    #[test]
    fn panels_hold_rows_and_columns_of_a_table() {
        let (width, count) = (29, 70);
        let table = numbers(90 * width, 3);
        let rows: Vec<i64> = (0..count).map(|place| (place * 17 % 90) as i64).collect();
        let from = Rows { table: &table, width, rows: &rows };
        let left = numbers(5 * count.max(width), 5);
        // Rows times the table's rows: [5, 70] x [70, 29].
        let wide = padded(width);
        let mut panels = vec![f32::NAN; wide * count];
        for (number, panel) in panels.chunks_mut(panel_width() * count).enumerate() {
            from.pack_rows(number, panel);
        }
        let extent = Extent { rows: 5, depth: count, width: wide };
        let plain: Vec<f32> = (0..count * wide)
            .map(|place| {
                let (row, column) = (place / wide, place % wide);
                if column < width { table[rows[row] as usize * width + column] } else { 0.0 }
            })
            .collect();
        let expected = naive(|row, term| left[row * count + term], &plain, extent);
        let mut out = vec![f32::NAN; 5 * wide];
        let by_rows = Left::Rows { numbers: &left, stride: count };
        product(by_rows, Right::Panels(&panels), extent, &mut out);
        close(&out, &expected, "rows");
        // And times their transpose: [5, 29] x [29, 70].
        let wide = padded(count);
        let mut panels = vec![f32::NAN; wide * width];
        for (number, panel) in panels.chunks_mut(panel_width() * width).enumerate() {
            from.pack_columns(number, panel);
        }
        let extent = Extent { rows: 5, depth: width, width: wide };
        let plain: Vec<f32> = (0..width * wide)
            .map(|place| {
                let (term, column) = (place / wide, place % wide);
                if column < count { table[rows[column] as usize * width + term] } else { 0.0 }
            })
            .collect();
        let by_rows = Left::Rows { numbers: &left, stride: width };
        let expected = naive(|row, term| left[row * width + term], &plain, extent);
        let mut out = vec![f32::NAN; 5 * wide];
        product(by_rows, Right::Panels(&panels), extent, &mut out);
        close(&out, &expected, "columns");
    }
}
