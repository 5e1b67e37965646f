use pulp::Simd;

use super::pairs::{Pairs, WithPairs, dispatch, pair};
use crate::matrix::{LANES, Matrix, Rows};

/// Largest magnitude of a weight: 11 bits with its sign. Products take 16-bit factors in any case,
/// and the remaining bits of a 32-bit sum are for the inputs. With 127, errors were 13 times as
/// large.
const MOST_WEIGHT: u64 = 1023;

/// Rows whose largest magnitude is below this count as zero, so that the inverse of their scale is
/// finite.
const LEAST: f32 = 1e-30;

/// A linear map in integers, for models with 8-bit features.
///
/// The weights of each output have a scale, and each input row has a scale. Inputs become integers
/// of at most 16 bits, or fewer so that no sum overflows. Products and sums are 32-bit integers,
/// which are equal on every processor.
///
/// Products of 8 x 8 bits would be twice as fast, but `vpmaddubsw` saturates their sums at 16 bits,
/// so results would differ between processors.
///
/// **Source** Jacob et al., "Quantization and Training of Neural Networks for Efficient
/// Integer-Arithmetic-Only Inference", CVPR 2018, section 2, with a scale per output and per row.
#[derive(Debug)]
pub(crate) struct Map {
    /// Panels of `LANES` outputs each, by pairs of inputs. The two halves of an `i32` hold the
    /// weights of a pair.
    panels: Vec<i32>,
    /// Step size of the weights of each output.
    scales: Vec<f32>,
    bias: Option<Vec<f32>>,
    /// Largest magnitude of an input.
    most: i32,
    inputs: usize,
    pub outputs: usize,
}

impl Map {
    /// **Shapes** `weight` `[outputs, inputs]`, `bias` `[outputs]`.
    pub fn new(weight: &[f32], bias: Option<&[f32]>, inputs: usize) -> Self {
        let outputs = weight.len() / inputs;
        let pairs = inputs.div_ceil(2);
        let mut panels = vec![0; outputs.next_multiple_of(LANES) * pairs];
        let mut scales = Vec::with_capacity(outputs);
        // A sum over this many inputs fits, even if all weights have the largest magnitude and all
        // inputs are 1.
        let most_weight = (i32::MAX as u64 / inputs as u64).min(MOST_WEIGHT) as f64;
        let mut largest_sum = 1;
        for (output, row) in weight.chunks_exact(inputs).enumerate() {
            let (numbers, scale) = quantised(row, most_weight);
            scales.push(scale);
            let sum = numbers.iter().map(|&number| i64::from(number).abs()).sum();
            largest_sum = largest_sum.max(sum);
            let panel = &mut panels[output / LANES * LANES * pairs..][..LANES * pairs];
            for (line, two) in panel.chunks_exact_mut(LANES).zip(numbers.chunks(2)) {
                line[output % LANES] = pair(two[0], two.get(1).copied().unwrap_or(0));
            }
        }
        let most = (i64::from(i32::MAX) / largest_sum).min(i16::MAX.into()) as i32;
        let bias = bias.map(super::padded);
        Self { panels, scales: super::padded(&scales), bias, most, inputs, outputs }
    }

    /// Adds the map of `x` to `out`. A row that is not finite becomes NaN.
    ///
    /// **Shapes** `x` `[rows, inputs]`, `out` `[rows, outputs]`.
    pub fn add(&self, x: Rows<'_>, out: &mut Matrix) {
        debug_assert_eq!((x.count, x.width), (out.rows(), self.inputs));
        let x = Quantised::of(x, self.most);
        dispatch(Product { map: self, x: &x, out });
        for (row, _) in out.iter_mut().zip(&x.scales).filter(|(_, scale)| scale.is_nan()) {
            row.fill(f32::NAN);
        }
    }
}

/// The nearest integers with magnitudes up to `most`, and their step size.
fn quantised(row: &[f32], most: f64) -> (Vec<i16>, f32) {
    let largest = row.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
    if largest == 0.0 {
        return (vec![0; row.len()], 0.0);
    }
    // In double precision the quotient cannot overflow.
    let scale = f64::from(largest) / most;
    let number = |&number: &f32| (f64::from(number) / scale).round_ties_even() as i16;
    (row.iter().map(number).collect(), scale as f32)
}

/// Rows of integers.
struct Quantised {
    /// Two 16-bit integers in the halves of each `i32`.
    pairs: Vec<i32>,
    width: usize,
    /// Step size of each row; NaN if the row is not finite.
    scales: Vec<f32>,
}

impl Quantised {
    fn of(x: Rows<'_>, most: i32) -> Self {
        let width = x.width.div_ceil(2);
        let mut pairs = vec![0; x.count * width];
        let mut scales = Vec::with_capacity(x.count);
        let rows = pairs.chunks_exact_mut(width);
        pulp::Arch::new().dispatch(|| {
            scales.extend(rows.zip(x.iter()).map(|(pairs, row)| quantise(row, most, pairs)));
        });
        Self { pairs, width, scales }
    }

    #[inline(always)]
    fn row(&self, row: usize) -> &[i32] {
        &self.pairs[row * self.width..][..self.width]
    }
}

/// Writes the nearest integers to `row`, with magnitudes up to `most`, and returns their step size.
#[inline(always)]
fn quantise(row: &[f32], most: i32, pairs: &mut [i32]) -> f32 {
    // Compared as integer bit patterns, which order NaN above all other values.
    let bits = row.iter().fold(0, |largest, number| largest.max(number.abs().to_bits()));
    let largest = f32::from_bits(bits);
    if !largest.is_finite() {
        return f32::NAN;
    }
    let largest = largest.max(LEAST);
    let inverse = most as f32 / largest;
    let (twos, last) = row.as_chunks::<2>();
    for (two, &[low, high]) in pairs.iter_mut().zip(twos) {
        *two = pair(nearest(low * inverse), nearest(high * inverse));
    }
    if let (Some(one), Some(&low)) = (pairs.get_mut(twos.len()), last.first()) {
        *one = pair(nearest(low * inverse), 0);
    }
    largest / most as f32
}

/// Rounds a number with magnitude below 2^15 to the nearest integer, ties to even.
#[inline(always)]
fn nearest(number: f32) -> i16 {
    // Between 2^23 and 2^24, every float is an integer, and its last bits are the integer's bits. A
    // cast with `as` checks the range, which vector registers cannot do.
    (number + 12_582_912.0).to_bits() as i16
}

struct Product<'a> {
    map: &'a Map,
    x: &'a Quantised,
    out: &'a mut Matrix,
}

impl WithPairs for Product<'_> {
    #[inline(always)]
    fn run<S: Pairs>(self, simd: S) {
        // As many rows at once as have sums in registers.
        match S::I32_LANES {
            16 => self.multiply::<S, 8, 1>(simd),
            8 => self.multiply::<S, 4, 2>(simd),
            _ => self.multiply::<S, 1, LANES>(simd),
        }
    }
}

impl Product<'_> {
    /// Tiles of `M` rows by one panel of `N` vectors.
    #[inline(always)]
    fn multiply<S: Pairs, const M: usize, const N: usize>(self, simd: S) {
        let Self { map, x, out } = self;
        let stride = out.stride();
        let out = out.padded_mut();
        for (panel, lines) in map.panels.chunks_exact(LANES * x.width).enumerate() {
            let columns = panel * LANES..(panel + 1) * LANES;
            let tile = Tile {
                lines: S::as_simd_i32s(lines).0,
                scales: &map.scales[columns.clone()],
                bias: map.bias.as_ref().map(|bias| &bias[columns.clone()]),
                x,
                stride,
                column: columns.start,
            };
            let mut row = 0;
            while row + M <= x.scales.len() {
                tile.multiply::<M, N>(simd, row, out);
                row += M;
            }
            while row < x.scales.len() {
                tile.multiply::<1, N>(simd, row, out);
                row += 1;
            }
        }
    }
}

/// A panel and the place of its results.
struct Tile<'a, S: Simd> {
    lines: &'a [S::i32s],
    scales: &'a [f32],
    bias: Option<&'a [f32]>,
    x: &'a Quantised,
    stride: usize,
    column: usize,
}

impl<S: Pairs> Tile<'_, S> {
    #[inline(always)]
    fn multiply<const M: usize, const N: usize>(&self, simd: S, row: usize, out: &mut [f32]) {
        let mut sums = [[simd.splat_i32s(0); N]; M];
        let mut rows: [&[i32]; M] = [&[]; M];
        for (number, one) in rows.iter_mut().enumerate() {
            *one = self.x.row(row + number);
        }
        for (term, line) in self.lines.chunks_exact(N).enumerate() {
            for (sums, one) in sums.iter_mut().zip(&rows) {
                let factor = simd.splat_i32s(one[term]);
                for (sum, &weights) in sums.iter_mut().zip(line) {
                    *sum = simd.add_products(*sum, factor, weights);
                }
            }
        }
        for (number, sums) in sums.iter().enumerate() {
            let place = (row + number) * self.stride + self.column;
            self.write(simd, self.x.scales[row + number], sums, &mut out[place..][..LANES]);
        }
    }

    /// Adds a row's sums as floats. Multiplication and addition are separate steps, because fused
    /// operations would give other bits.
    #[inline(always)]
    fn write<const N: usize>(&self, simd: S, scale: f32, sums: &[S::i32s; N], out: &mut [f32]) {
        let scale = simd.splat_f32s(scale);
        let line = S::as_mut_simd_f32s(out).0;
        let scales = S::as_simd_f32s(self.scales).0;
        for ((vector, &sum), &of_output) in line.iter_mut().zip(sums).zip(scales) {
            let value = simd.mul_f32s(simd.mul_f32s(simd.floats(sum), of_output), scale);
            *vector = simd.add_f32s(*vector, value);
        }
        if let Some(bias) = self.bias {
            for (vector, &bias) in line.iter_mut().zip(S::as_simd_f32s(bias).0) {
                *vector = simd.add_f32s(*vector, bias);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pulp::Scalar;

    use super::super::tests::numbers;
    use super::*;

    /// The map of `x` by every kernel that this processor supports, with the kernel's name.
    fn by_all_kernels(map: &Map, x: Rows<'_>) -> Vec<(&'static str, Matrix)> {
        let x = Quantised::of(x, map.most);
        let zeros = || Matrix::zeros(x.scales.len(), map.outputs);
        let mut found = vec![("dispatched", zeros()), ("portable", zeros())];
        dispatch(Product { map, x: &x, out: &mut found[0].1 });
        Product { map, x: &x, out: &mut found[1].1 }.run(Scalar);
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            let mut out = zeros();
            Product { map, x: &x, out: &mut out }.run(simd);
            found.push(("AVX2", out));
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V4::try_new() {
            let mut out = zeros();
            Product { map, x: &x, out: &mut out }.run(simd);
            found.push(("AVX-512", out));
        }
        found
    }

    /// The definition: 64-bit integers, one term after the other.
    fn definition(
        (weight, bias, inputs): (&[f32], &[f32], usize),
        x: &[f32],
        most: i32,
    ) -> Vec<Vec<f32>> {
        let whole = |row: &[f32], most: f32| -> (Vec<i64>, f32) {
            let largest = row.iter().fold(0.0_f32, |sum, one| sum.max(one.abs()));
            let inverse = most / largest.max(LEAST);
            let whole = row.iter().map(|one| (one * inverse).round_ties_even() as i64).collect();
            (whole, largest.max(LEAST) / most)
        };
        let weights: Vec<(Vec<i16>, f32)> =
            weight.chunks(inputs).map(|row| quantised(row, MOST_WEIGHT as f64)).collect();
        let of_row = |row: &[f32]| -> Vec<f32> {
            let (row, scale) = whole(row, most as f32);
            let one = |((weights, of_output), bias): (&(Vec<i16>, f32), &f32)| {
                let sum: i64 = row.iter().zip(weights).map(|(a, &b)| a * i64::from(b)).sum();
                assert!(i32::try_from(sum).is_ok(), "a sum of {sum} overflows");
                sum as f32 * of_output * scale + bias
            };
            weights.iter().zip(bias).map(one).collect()
        };
        x.chunks(inputs).map(of_row).collect()
    }

    fn assert_defined(rows: usize, inputs: usize, weight: &[f32], x: &[f32]) {
        let outputs = weight.len() / inputs;
        let bias = numbers(outputs, 5);
        let map = Map::new(weight, Some(&bias), inputs);
        let expected = definition((weight, &bias, inputs), x, map.most);
        for (kernel, found) in by_all_kernels(&map, Rows::dense(x, rows, inputs)) {
            for (row, (found, expected)) in found.first(rows).iter().zip(&expected).enumerate() {
                assert_eq!(found, expected, "{kernel}, {rows} x {inputs} x {outputs}, row {row}");
            }
        }
    }

    #[test]
    fn all_kernels_have_the_bits_of_the_definition_for_odd_sizes() {
        for (rows, inputs, outputs) in
            [(1, 1, 1), (3, 7, 16), (13, 100, 40), (21, 515, 97), (64, 5, 48), (0, 3, 2)]
        {
            let (x, weight) = (numbers(rows * inputs, 1), numbers(outputs * inputs, 9));
            assert_defined(rows, inputs, &weight, &x);
        }
    }

    #[test]
    fn the_largest_numbers_of_any_sign_do_not_overflow() {
        for inputs in [1, 2, 127, 255, 256, 515, 516, 517, 518, 1433, 4096, 40_001] {
            // Signs that agree, that disagree, and that alternate within and between pairs.
            for signs in 0..4_u32 {
                let sign = |place: usize| match signs {
                    0 => 1.0,
                    1 => -1.0,
                    2 => [1.0, -1.0][place % 2],
                    _ => [1.0, 1.0, -1.0, -1.0][place % 4],
                };
                let one: Vec<f32> = (0..inputs).map(sign).collect();
                let weight: Vec<f32> =
                    [one.clone(), vec![1.0; inputs], vec![-1.0; inputs]].concat();
                let x: Vec<f32> =
                    [one.clone(), vec![f32::MAX; inputs], vec![-1.0; inputs]].concat();
                assert_defined(3, inputs, &weight, &x[..3 * inputs]);
            }
        }
    }

    #[test]
    fn sums_use_all_bits_that_they_have() {
        for (inputs, expected) in
            [(1, 32_767), (64, 32_767), (65, 32_295), (256, 8_200), (1433, 1_464)]
        {
            assert_eq!(Map::new(&vec![1.0; inputs], None, inputs).most, expected, "{inputs}");
        }
        // With one large weight among small ones, inputs may be larger.
        let mut weight = vec![0.01; 1433];
        weight[0] = 1.0;
        assert_eq!(Map::new(&weight, None, 1433).most, 32_767);
        // The widest map that a model may have.
        let wide = Map::new(&vec![-1.0; 1 << 24], None, 1 << 24);
        assert_eq!(wide.most, 1);
    }

    #[test]
    fn small_numbers_and_zero_are_zero_and_infinity_is_nan() {
        let map = Map::new(&[1.0, 2.0, 0.0, 0.0], None, 2);
        let x = [0.0, -0.0, 1e-38, 1e-45, f32::INFINITY, 1.0, 1.0, f32::NAN, 3.0, 3.0];
        let mut out = Matrix::zeros(5, 2);
        map.add(Rows::dense(&x, 5, 2), &mut out);
        let rows: Vec<&[f32]> = out.first(5).iter().collect();
        assert_eq!(rows[0], [0.0, 0.0]);
        assert!(rows[1][0].abs() < 1e-30, "{:?}", rows[1]);
        assert!(rows[2..4].iter().all(|row| row.iter().all(|one| one.is_nan())), "{rows:?}");
        assert!((rows[4][0] - 9.0).abs() < 0.03 && rows[4][1] == 0.0, "{:?}", rows[4]);
    }

    proptest! {
        #[test]
        fn results_differ_by_half_a_step_of_each_weight_and_input(
            (rows, inputs, outputs) in (1_usize..12, 1_usize..300, 1_usize..40),
            seed in any::<u32>(),
        ) {
            let (x, weight) = (numbers(rows * inputs, seed), numbers(outputs * inputs, !seed));
            assert_defined(rows, inputs, &weight, &x);
            let map = Map::new(&weight, None, inputs);
            let mut out = Matrix::zeros(rows, outputs);
            map.add(Rows::dense(&x, rows, inputs), &mut out);
            let largest = |row: &[f32]| row.iter().fold(0.0_f32, |sum, one| sum.max(one.abs()));
            for (x, found) in x.chunks(inputs).zip(out.first(rows).iter()) {
                let step = f64::from(largest(x) / map.most as f32);
                for (weight, &found) in weight.chunks(inputs).zip(found) {
                    let terms = || x.iter().zip(weight).map(|(&a, &b)| (f64::from(a), f64::from(b)));
                    let exact: f64 = terms().map(|(a, b)| a * b).sum();
                    let of_weight = f64::from(largest(weight) / MOST_WEIGHT as f32);
                    let most: f64 =
                        terms().map(|(a, b)| (a.abs() * of_weight + b.abs() * step) / 2.0).sum();
                    let error = (f64::from(found) - exact).abs();
                    prop_assert!(error <= 1.01 * most + 1e-5, "{} instead of {}", found, exact);
                }
            }
        }
    }
}
