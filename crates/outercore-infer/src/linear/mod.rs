//! Linear maps in single precision or in integers, behind one enum.

mod float32;
mod int8;
mod pairs;

use crate::matrix::{LANES, Matrix, Rows};
use crate::precision::Precision;

/// A linear map.
///
/// A row has the same bits in any batch, and so has a prediction.
#[derive(Debug)]
pub(crate) enum Linear {
    Float32(float32::Map),
    Int8(int8::Map),
}

impl Linear {
    /// **Shapes** `weight` `[outputs, inputs]`, `bias` `[outputs]`.
    pub fn new(weight: &[f32], bias: Option<&[f32]>, inputs: usize, precision: Precision) -> Self {
        match precision {
            Precision::Float32 => Self::Float32(float32::Map::new(weight, bias, inputs)),
            Precision::Int8 => Self::Int8(int8::Map::new(weight, bias, inputs)),
        }
    }

    pub fn outputs(&self) -> usize {
        match self {
            Self::Float32(map) => map.outputs,
            Self::Int8(map) => map.outputs,
        }
    }

    /// The map of `x`.
    pub fn apply(&self, x: Rows<'_>) -> Matrix {
        let mut out = Matrix::zeros(x.count, self.outputs());
        self.add(x, &mut out);
        out
    }

    /// Adds the map of `x` to `out`.
    ///
    /// **Shapes** `x` `[rows, inputs]`, `out` `[rows, outputs]`.
    pub fn add(&self, x: Rows<'_>, out: &mut Matrix) {
        match self {
            Self::Float32(map) => map.add(x, out),
            Self::Int8(map) => map.add(x, out),
        }
    }
}

/// Values by output, padded with zeros to whole vectors.
fn padded(numbers: &[f32]) -> Vec<f32> {
    let mut padded = numbers.to_vec();
    padded.resize(numbers.len().next_multiple_of(LANES), 0.0);
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from -1 to 1.
    pub(super) fn numbers(count: usize, seed: u32) -> Vec<f32> {
        (0..count as u32)
            .map(|place| {
                let mixed = place.wrapping_add(seed).wrapping_mul(0x9e37_79b9) >> 8;
                mixed as f32 / (1 << 23) as f32 - 1.0
            })
            .collect()
    }

    const BOTH: [Precision; 2] = [Precision::Float32, Precision::Int8];

    #[test]
    fn a_row_has_the_same_bits_alone_and_among_others() {
        let (inputs, outputs) = (131, 37);
        let (x, weight) = (numbers(50 * inputs, 3), numbers(outputs * inputs, 4));
        for precision in BOTH {
            let linear = Linear::new(&weight, None, inputs, precision);
            let together = linear.apply(Rows::dense(&x, 50, inputs));
            for row in 0..50 {
                let alone = linear.apply(Rows::dense(&x[row * inputs..], 1, inputs));
                assert_eq!(alone.first(1).row(0), together.first(50).row(row), "row {row}");
            }
        }
    }

    #[test]
    fn padding_stays_zero() {
        for precision in BOTH {
            let linear = Linear::new(&numbers(15, 1), Some(&numbers(5, 2)), 3, precision);
            let mut x = numbers(21, 3);
            x[4] = f32::NAN;
            let mut out = linear.apply(Rows::dense(&x, 7, 3));
            let padding = out.padded_mut().chunks(LANES).map(|row| &row[5..]);
            // The padding of float32 may be NaN if the row is; it is never read.
            assert!(
                padding
                    .enumerate()
                    .all(|(row, one)| { row == 1 || one.iter().all(|&one| one == 0.0) })
            );
            assert!(out.first(7).row(1).iter().all(|one| one.is_nan()), "{precision:?}");
            assert!(out.first(7).row(2).iter().all(|one| one.is_finite()), "{precision:?}");
        }
    }
}
