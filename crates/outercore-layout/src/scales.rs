//! `int8` columns: converts values to steps, and steps to values.

use outercore_core::{Bytes, Error, Result};

/// The least and the largest step.
const STEPS: (f32, f32) = (i8::MIN as f32, i8::MAX as f32);

/// Number of steps between the two.
const RANGE: f64 = 255.0;

/// Up to this value, `float32` represents the whole numbers around a column's values and their sums
/// exactly.
const MOST_WHOLE: f32 = (1 << 23) as f32;

/// Scale and offset of each column: a stored `q` represents `offset + scale * q`.
#[derive(Clone, Debug, PartialEq)]
pub struct Scales {
    scale: Vec<f32>,
    offset: Vec<f32>,
}

impl Scales {
    /// Scales from their stored values.
    ///
    /// # Errors
    /// `Corrupt`: a negative scale, or a number that is not finite.
    pub fn new(scale: Vec<f32>, offset: Vec<f32>) -> Result<Self> {
        assert_eq!(scale.len(), offset.len(), "a scale and an offset a column");
        let is_sound = |(scale, offset): &(&f32, &f32)| {
            scale.is_finite() && **scale >= 0.0 && offset.is_finite()
        };
        match scale.iter().zip(&offset).enumerate().find(|(_, column)| !is_sound(column)) {
            None => Ok(Self { scale, offset }),
            Some((column, (scale, offset))) => {
                Err(Error::corrupt(format!("column {column}: scale {scale}, offset {offset}")))
            }
        }
    }

    /// The scale of each column.
    pub fn scale(&self) -> &[f32] {
        &self.scale
    }

    /// The offset of each column.
    pub fn offset(&self) -> &[f32] {
        &self.offset
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.scale.len()
    }

    /// Memory of the scales and offsets.
    pub fn memory(&self) -> Bytes {
        Bytes(8 * self.width() as u64)
    }

    /// Converts the steps in `row`, given as floats, to values: `offset + scale * q`, with the
    /// product and the sum each rounded to `float32`.
    ///
    /// # Panics
    /// If `row` does not have one element per column.
    pub fn restore(&self, row: &mut [f32]) {
        assert_eq!(row.len(), self.width(), "a row of another width");
        for ((value, scale), offset) in row.iter_mut().zip(&self.scale).zip(&self.offset) {
            *value = offset + scale * *value;
        }
    }

    /// Converts the values in `row` to steps, as floats: `(value - offset) / scale`, rounded to the
    /// nearest, ties to even, and clamped to the range of `int8`. The step is 0 in a column of
    /// scale 0, and for NaN.
    ///
    /// # Panics
    /// If `row` does not have one element per column.
    pub fn quantise(&self, row: &mut [f32]) {
        assert_eq!(row.len(), self.width(), "a row of another width");
        for ((value, scale), offset) in row.iter_mut().zip(&self.scale).zip(&self.offset) {
            let steps = (*value - offset) / scale;
            let is_step = *scale > 0.0 && !steps.is_nan();
            *value = if is_step { steps.round_ties_even().clamp(STEPS.0, STEPS.1) } else { 0.0 };
        }
    }
}

/// Statistics of a column's values so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    least: f32,
    largest: f32,
    /// Whether all values are whole numbers.
    whole: bool,
}

impl Default for Column {
    fn default() -> Self {
        Self { least: f32::INFINITY, largest: f32::NEG_INFINITY, whole: true }
    }
}

impl Column {
    /// Adds a finite value.
    pub fn add(&mut self, value: f32) {
        self.least = self.least.min(value);
        self.largest = self.largest.max(value);
        self.whole &= value.fract() == 0.0;
    }

    /// The scale and offset that represent the values best.
    ///
    /// Whole numbers within a range of 255 are represented exactly, and so is a column with a
    /// single value. Otherwise 255 steps divide the range from the least value to the largest.
    fn scale_and_offset(self) -> (f32, f32) {
        if self.least > self.largest {
            // The array has no rows.
            return (0.0, 0.0);
        }
        let (least, largest) = (f64::from(self.least), f64::from(self.largest));
        let is_small = self.least.abs().max(self.largest.abs()) <= MOST_WHOLE;
        let scale = match self.whole && is_small && largest - least <= RANGE {
            true => 1.0,
            false => ((largest - least) / RANGE) as f32,
        };
        (scale, (least - f64::from(STEPS.0) * f64::from(scale)) as f32)
    }
}

/// Scales of measured columns.
pub fn scales_of(columns: &[Column]) -> Scales {
    let (scale, offset) = columns.iter().map(|column| column.scale_and_offset()).unzip();
    Scales { scale, offset }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored(values: &[f32]) -> Vec<f32> {
        let mut column = Column::default();
        values.iter().for_each(|&value| column.add(value));
        let scales = scales_of(&[column]);
        values
            .iter()
            .map(|&value| {
                let mut row = [value];
                scales.quantise(&mut row);
                assert!(row[0].fract() == 0.0 && (-128.0..=127.0).contains(&row[0]));
                scales.restore(&mut row);
                row[0]
            })
            .collect()
    }

    #[test]
    fn whole_numbers_close_together_and_constants_are_exact() {
        for values in [
            vec![0.0, 1.0, 1.0],
            vec![1.0],
            vec![0.3; 5],
            vec![-0.0],
            vec![f32::MAX],
            vec![f32::MIN_POSITIVE],
            vec![-100.0, 155.0, 3.0],
            (0..256).map(|value| value as f32).collect(),
            vec![8_388_608.0, 8_388_400.0],
        ] {
            assert_eq!(stored(&values), values);
        }
    }

    #[test]
    fn what_an_update_brings_stays_within_the_column() {
        let mut column = Column::default();
        [0.0, 0.5].iter().for_each(|&value| column.add(value));
        let scales = scales_of(&[column]);
        let step = |value: f32| {
            let mut row = [value];
            scales.quantise(&mut row);
            row[0]
        };
        assert_eq!(
            [9.0, f32::INFINITY, -9.0, f32::NEG_INFINITY, f32::NAN].map(step),
            [127.0, 127.0, -128.0, -128.0, 0.0]
        );
    }

    #[test]
    fn scales_that_were_never_written_are_refused() {
        for (scale, offset) in [(-1.0, 0.0), (f32::NAN, 0.0), (1.0, f32::INFINITY)] {
            Scales::new(vec![1.0, scale], vec![0.0, offset]).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn no_value_is_off_by_more_than_half_a_step(
            values in prop::collection::vec(-1e6f32..1e6, 1..50),
            shrink in prop::sample::select(vec![1.0f32, 1e-3, 1e-9, 1e-20, 1e30]),
        ) {
            let values: Vec<f32> = values.iter().map(|value| value * shrink).collect();
            let largest = values.iter().fold(0f32, |most, value| most.max(value.abs()));
            let least = values.iter().copied().fold(f32::INFINITY, f32::min);
            let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let step = (f64::from(most) - f64::from(least)) / RANGE;
            for (found, value) in stored(&values).iter().zip(&values) {
                let error = (f64::from(*found) - f64::from(*value)).abs();
                let rounding = 4.0 * f64::from(largest) * f64::from(f32::EPSILON);
                prop_assert!(error <= step / 2.0 + rounding, "{value} became {found}");
            }
        }
    }
}
