use pulp::{Simd, WithSimd};

use crate::matrix::{LANES, Matrix, Rows};

/// A linear map; its weights are stored in the layout of [`Map::add`].
///
/// This replaces a general matrix library, whose interface is `unsafe` and which sums a single row
/// in another order than many rows. Here, a row has the same bits in any batch, and so has a
/// prediction.
#[derive(Debug)]
pub(crate) struct Map {
    /// Panels of `LANES` outputs each, input by input.
    panels: Vec<f32>,
    bias: Option<Vec<f32>>,
    inputs: usize,
    pub outputs: usize,
}

impl Map {
    /// **Shapes** `weight` `[outputs, inputs]`, `bias` `[outputs]`.
    pub fn new(weight: &[f32], bias: Option<&[f32]>, inputs: usize) -> Self {
        let outputs = weight.len() / inputs;
        let wide = outputs.next_multiple_of(LANES);
        let mut panels = vec![0.0; wide * inputs];
        for (output, row) in weight.chunks_exact(inputs).enumerate() {
            let panel = &mut panels[output / LANES * LANES * inputs..][..LANES * inputs];
            for (line, &number) in panel.chunks_exact_mut(LANES).zip(row) {
                line[output % LANES] = number;
            }
        }
        let bias = bias.map(super::padded);
        Self { panels, bias, inputs, outputs }
    }

    /// Adds the map of `x` to `out`.
    ///
    /// **Shapes** `x` `[rows, inputs]`, `out` `[rows, outputs]`.
    pub fn add(&self, x: Rows<'_>, out: &mut Matrix) {
        debug_assert_eq!((x.count, x.width), (out.rows(), self.inputs));
        pulp::Arch::new().dispatch(Product { map: self, x, out });
    }
}

struct Product<'a> {
    map: &'a Map,
    x: Rows<'a>,
    out: &'a mut Matrix,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // As many rows at once as have sums in registers.
        match S::F32_LANES {
            16 => self.multiply::<S, 8, 1>(simd),
            8 => self.multiply::<S, 6, 2>(simd),
            4 => self.multiply::<S, 2, 4>(simd),
            _ => self.multiply::<S, 1, LANES>(simd),
        }
    }
}

impl Product<'_> {
    /// Tiles of `M` rows by one panel of `N` vectors.
    #[inline(always)]
    fn multiply<S: Simd, const M: usize, const N: usize>(self, simd: S) {
        let Self { map, x, out } = self;
        let stride = out.stride();
        let out = out.padded_mut();
        for (panel, lines) in map.panels.chunks_exact(LANES * map.inputs).enumerate() {
            let tile = Tile {
                lines: S::as_simd_f32s(lines).0,
                bias: map.bias.as_ref().map(|bias| &bias[panel * LANES..][..LANES]),
                x,
                stride,
                column: panel * LANES,
            };
            let mut row = 0;
            while row + M <= x.count {
                tile.multiply::<M, N>(simd, row, out);
                row += M;
            }
            while row < x.count {
                tile.multiply::<1, N>(simd, row, out);
                row += 1;
            }
        }
    }
}

/// A panel and the place of its results.
struct Tile<'a, S: Simd> {
    lines: &'a [S::f32s],
    bias: Option<&'a [f32]>,
    x: Rows<'a>,
    stride: usize,
    column: usize,
}

impl<S: Simd> Tile<'_, S> {
    /// Sums are added in the same order for every `M`.
    #[inline(always)]
    fn multiply<const M: usize, const N: usize>(&self, simd: S, row: usize, out: &mut [f32]) {
        let mut sums = [[simd.splat_f32s(0.0); N]; M];
        let mut rows: [&[f32]; M] = [&[]; M];
        for (number, one) in rows.iter_mut().enumerate() {
            *one = self.x.row(row + number);
        }
        for (term, line) in self.lines.chunks_exact(N).enumerate() {
            for (sums, one) in sums.iter_mut().zip(&rows) {
                let factor = simd.splat_f32s(one[term]);
                for (sum, &number) in sums.iter_mut().zip(line) {
                    *sum = simd.mul_add_f32s(factor, number, *sum);
                }
            }
        }
        for (number, sums) in sums.iter().enumerate() {
            let place = (row + number) * self.stride + self.column;
            let line = S::as_mut_simd_f32s(&mut out[place..][..LANES]).0;
            for (vector, &sum) in line.iter_mut().zip(sums) {
                *vector = simd.add_f32s(*vector, sum);
            }
            if let Some(bias) = self.bias {
                for (vector, &bias) in line.iter_mut().zip(S::as_simd_f32s(bias).0) {
                    *vector = simd.add_f32s(*vector, bias);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::numbers;
    use super::*;

    #[test]
    fn maps_of_odd_sizes_are_those_of_the_definition() {
        for (rows, inputs, outputs) in
            [(1, 1, 1), (3, 7, 16), (13, 100, 40), (21, 515, 97), (64, 5, 48), (0, 3, 2)]
        {
            let (x, weight) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 9));
            let bias = numbers(outputs, 5);
            let map = Map::new(&weight, Some(&bias), inputs);
            let mut out = Matrix::zeros(rows, outputs);
            map.add(Rows::dense(&x, rows, inputs), &mut out);
            for (row, found) in out.first(rows).iter().enumerate() {
                for (output, &found) in found.iter().enumerate() {
                    let terms = x[row * inputs..].iter().zip(&weight[output * inputs..]);
                    let expected = terms
                        .take(inputs)
                        .map(|(&one, &other)| f64::from(one) * f64::from(other))
                        .sum::<f64>()
                        + f64::from(bias[output]);
                    assert!(
                        (f64::from(found) - expected).abs() < 1e-5 * (1.0 + expected.abs()),
                        "{rows} x {inputs} x {outputs}, {row}, {output}: {found}, {expected}"
                    );
                }
            }
        }
    }
}
