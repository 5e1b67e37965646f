//! Optimiser steps of the table rows that a batch used.

use outercore_core::{Error, Result};

use crate::lanes::{Kernel, Lanes, dispatch};
use crate::parallel::for_each;

/// Rows that a thread takes at a time.
const ROWS_AT_ONCE: usize = 256;
/// Prevents division by zero for values that never had a gradient.
const EPSILON: f32 = 1e-10;
/// Decay rates of Adam's moments, and the least divisor.
const FIRST: f32 = 0.9;
const SECOND: f32 = 0.999;
const ADAM_EPSILON: f32 = 1e-8;

/// An optimiser rule for the step of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Adagrad with one sum of squares per value.
    Adagrad,
    /// Adagrad with one sum per row: of the mean of its squared gradients.
    RowAdagrad,
    /// Adam with both moments per value, and the number of steps per row.
    Adam,
}

impl Step {
    /// Floats of optimiser state per row.
    #[must_use]
    pub fn state_width(self, width: usize) -> usize {
        match self {
            Self::Adagrad => width,
            Self::RowAdagrad => 1,
            Self::Adam => 2 * width + 1,
        }
    }
}

/// Moves rows of a table against their gradients.
///
/// # Shapes
/// `table` `[all, width]`, `state` `[all, state width]`, `rows` ascending and unique, `gradients`
/// `[rows, width]`.
///
/// # Errors
/// Invalid: sizes that do not fit, rows that do not ascend or are not in the table.
pub fn step_rows(
    step: Step,
    table: &mut [f32],
    state: &mut [f32],
    rows: &[i64],
    gradients: &[f32],
    rate: f32,
    threads: usize,
) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let width = gradients.len() / rows.len();
    check_rows(table, width, rows)?;
    let state_width = step.state_width(width);
    let all = table.len() / width;
    if gradients.len() != rows.len() * width || state.len() != all * state_width {
        return Err(Error::invalid(format!(
            "step: expected {} gradients of {width} numbers and state of {all} rows of \
             {state_width}, found {} and {} numbers",
            rows.len(),
            gradients.len(),
            state.len()
        )));
    }
    if !rows.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err(Error::invalid("step: rows do not ascend, or one stands twice"));
    }
    // Each thread gets the part of the table that contains its rows.
    let mut work = Vec::with_capacity(rows.len().div_ceil(ROWS_AT_ONCE));
    let (mut table, mut state, mut first) = (table, state, 0);
    for (rows, gradients) in rows.chunks(ROWS_AT_ONCE).zip(gradients.chunks(ROWS_AT_ONCE * width)) {
        let end = rows[rows.len() - 1] as usize + 1;
        let (own_table, rest) = table.split_at_mut((end - first) * width);
        let (own_state, rest_of_state) = state.split_at_mut((end - first) * state_width);
        (table, state) = (rest, rest_of_state);
        work.push(Steps {
            step,
            first,
            width,
            table: own_table,
            state: own_state,
            rows,
            gradients,
            rate,
        });
        first = end;
    }
    for_each(work, threads, dispatch);
    Ok(())
}

struct Steps<'a> {
    step: Step,
    /// The table row at the start of this part.
    first: usize,
    width: usize,
    table: &'a mut [f32],
    state: &'a mut [f32],
    rows: &'a [i64],
    gradients: &'a [f32],
    rate: f32,
}

impl Kernel for Steps<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (&row, gradient) in self.rows.iter().zip(self.gradients.chunks(self.width)) {
            let row = row as usize - self.first;
            let values = &mut self.table[row * self.width..][..self.width];
            match self.step {
                Step::Adagrad => {
                    let sums = &mut self.state[row * self.width..][..self.width];
                    for ((value, sum), gradient) in values.iter_mut().zip(sums).zip(gradient) {
                        *sum += gradient * gradient;
                        *value -= self.rate * gradient / (sum.sqrt() + EPSILON);
                    }
                }
                Step::RowAdagrad => {
                    let mean = sum_of_squares(lanes, gradient) / self.width as f32;
                    let sum = &mut self.state[row];
                    *sum += mean;
                    let factor = self.rate / (sum.sqrt() + EPSILON);
                    for (value, gradient) in values.iter_mut().zip(gradient) {
                        *value -= factor * gradient;
                    }
                }
                Step::Adam => {
                    let state_width = self.step.state_width(self.width);
                    let state = &mut self.state[row * state_width..][..state_width];
                    adam(values, state, gradient, self.rate);
                }
            }
        }
    }
}

/// Kingma and Ba, "Adam", ICLR 2015. The bias correction counts the steps of each row separately.
#[inline(always)]
fn adam(values: &mut [f32], state: &mut [f32], gradient: &[f32], rate: f32) {
    let (means, rest) = state.split_at_mut(values.len());
    let (squares, steps) = rest.split_at_mut(values.len());
    steps[0] += 1.0;
    let of_mean = 1.0 - FIRST.powf(steps[0]);
    let of_square = 1.0 - SECOND.powf(steps[0]);
    for (((value, mean), square), gradient) in
        values.iter_mut().zip(means).zip(squares).zip(gradient)
    {
        *mean += (1.0 - FIRST) * (gradient - *mean);
        *square = SECOND * *square + (1.0 - SECOND) * gradient * gradient;
        *value -= rate * (*mean / of_mean / ((*square / of_square).sqrt() + ADAM_EPSILON));
    }
}

#[inline(always)]
fn sum_of_squares<L: Lanes>(lanes: L, numbers: &[f32]) -> f32 {
    let (body, tail) = L::as_simd_f32s(numbers);
    let mut sums = lanes.splat(0.0);
    for &line in body {
        sums = lanes.mul_add_f32s(line, line, sums);
    }
    tail.iter().fold(lanes.reduce_sum_f32s(sums), |sum, number| sum + number * number)
}

fn check_rows(table: &[f32], width: usize, rows: &[i64]) -> Result<()> {
    if width == 0 || !table.len().is_multiple_of(width) {
        return Err(Error::invalid(format!(
            "table: expected rows of {width} numbers, found {} numbers",
            table.len()
        )));
    }
    let all = table.len() / width;
    match rows.iter().find(|&&row| !usize::try_from(row).is_ok_and(|row| row < all)) {
        Some(row) => Err(Error::invalid(format!("row {row}: expected one of {all} rows"))),
        None => Ok(()),
    }
}
