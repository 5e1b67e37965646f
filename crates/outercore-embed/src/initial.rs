//! Initial values of rows, which depend only on the seed and the row number.

use outercore_core::Stream;

/// Distribution of the initial values of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Normal, with this standard deviation.
    Normal(f32),
    /// Uniform, between minus and plus this value.
    Uniform(f32),
}

/// Fills rows of `width` values with the initial values of the rows `numbers`.
///
/// `table` separates tables with the same seed. On one machine the result does not depend on the
/// division of rows into partitions.
///
/// # Panics
/// If `out` does not have `numbers.len()` rows.
///
/// # Example
/// ```
/// use outercore_embed::{Spread, initial_rows};
/// let (mut all, mut some) = ([0.0; 12], [0.0; 3]);
/// initial_rows(7, 1, &[0, 1, 2, 3], 3, Spread::Normal(0.1), &mut all);
/// initial_rows(7, 1, &[2], 3, Spread::Normal(0.1), &mut some);
/// assert_eq!(all[6..9], some);
/// ```
pub fn initial_rows(
    seed: u64,
    table: u64,
    numbers: &[i64],
    width: usize,
    spread: Spread,
    out: &mut [f32],
) {
    assert_eq!(out.len(), numbers.len() * width, "rows of {width} numbers");
    if width == 0 {
        return;
    }
    let stream = Stream::new(seed, table);
    for (row, &number) in out.chunks_exact_mut(width).zip(numbers) {
        let mut draws = stream.uniform(0, 0, number as u64);
        for two in row.chunks_mut(2) {
            let values = pair(draws.next_u64(), spread);
            two.copy_from_slice(&values[..two.len()]);
        }
    }
}

/// Two values from 64 random bits; normal values by the Box-Muller method.
fn pair(bits: u64, spread: Spread) -> [f32; 2] {
    const UNIT: f64 = 1.0 / (1u64 << 32) as f64;
    let (low, high) = (f64::from(bits as u32), f64::from((bits >> 32) as u32));
    match spread {
        Spread::Uniform(scale) => {
            [low, high].map(|word| scale * ((word + 0.5) * 2.0 * UNIT - 1.0) as f32)
        }
        Spread::Normal(deviation) => {
            // The argument of the logarithm is never zero.
            let size = (-2.0 * (((low + 1.0) * UNIT) as f32).ln()).sqrt() * deviation;
            let (sine, cosine) = ((high * UNIT) as f32 * std::f32::consts::TAU).sin_cos();
            [size * cosine, size * sine]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(values: &[f32]) -> [f64; 4] {
        let count = values.len() as f64;
        let moment = |power: i32| values.iter().map(|&v| f64::from(v).powi(power)).sum::<f64>();
        [1, 2, 3, 4].map(|power| moment(power) / count)
    }

    #[test]
    fn values_are_spread_as_they_should_be() {
        let numbers: Vec<i64> = (0..20_000).collect();
        let mut values = vec![0.0; 20_000 * 9];
        initial_rows(3, 1, &numbers, 9, Spread::Normal(2.0), &mut values);
        let [mean, square, cube, fourth] = moments(&values);
        assert!(mean.abs() < 0.02 && cube.abs() < 0.2, "{mean} {cube}");
        assert!((square - 4.0).abs() < 0.05 && (fourth - 48.0).abs() < 1.5, "{square} {fourth}");
        initial_rows(3, 1, &numbers, 9, Spread::Uniform(2.0), &mut values);
        let [mean, square, ..] = moments(&values);
        assert!(mean.abs() < 0.02 && (square - 4.0 / 3.0).abs() < 0.02, "{mean} {square}");
        assert!(values.iter().all(|value| value.abs() <= 2.0));
    }

    #[test]
    fn rows_of_other_seeds_tables_and_numbers_differ() {
        let row = |seed, table, number| {
            let mut row = [0.0; 5];
            initial_rows(seed, table, &[number], 5, Spread::Normal(1.0), &mut row);
            row
        };
        let rows = [row(1, 1, 0), row(2, 1, 0), row(1, 2, 0), row(1, 1, 1), row(1, 1, 1 << 40)];
        for (at, one) in rows.iter().enumerate() {
            assert!(rows[..at].iter().all(|other| other[0] != one[0] && other[4] != one[4]));
        }
        assert_eq!(rows[3], row(1, 1, 1));
    }
}
