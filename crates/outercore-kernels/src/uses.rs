//! Sums the gradients of a batch, row by row. A use is one occurrence of a row in the batch.

use outercore_core::{Error, Result};

use crate::lanes::{Kernel, Lanes, dispatch};
use crate::model::{Size, dot};
use crate::parallel::for_each;

/// Rows that a thread takes at a time.
const ROWS_AT_ONCE: usize = 64;
/// Bits of a row number that one pass of the sort processes.
const DIGIT: u32 = 11;

/// Uses of rows, each with a gradient.
#[derive(Clone, Copy, Debug)]
pub struct Uses<'a> {
    /// Rows of the table, one per use.
    pub rows: &'a [u32],
    /// The gradient of a use is the sum of these.
    pub gradients: [Option<Source<'a>>; 2],
    /// Regularisation weight of each use; `None`: no regularisation.
    pub weights: Option<&'a [f32]>,
}

/// Rows of gradients, each with an optional factor.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Rows in order, `stride` floats apart.
    pub numbers: &'a [f32],
    /// Floats from one row to the next.
    pub stride: usize,
    /// One factor per row; `None`: 1.
    pub factors: Option<&'a [f32]>,
}

/// The order in which uses of all kinds are summed, and the distinct rows.
#[derive(Debug, Default)]
pub struct Order {
    /// Row and number of each use, 32 bits each, ascending.
    uses: Vec<u64>,
    spare: Vec<u64>,
    /// The start of each distinct row in `uses`, and the end of the last one.
    starts: Vec<u32>,
    /// Distinct rows, ascending.
    pub rows: Vec<i64>,
}

impl Order {
    /// Sorts uses by row; uses of the same row keep their order.
    ///
    /// # Errors
    /// Invalid: 2^32 uses or more.
    pub fn sort(&mut self, kinds: &[&[u32]]) -> Result<()> {
        let count: usize = kinds.iter().map(|rows| rows.len()).sum();
        if count > u32::MAX as usize {
            return Err(Error::invalid(format!("batch: {count} uses of rows are too many")));
        }
        let all = kinds.iter().flat_map(|rows| rows.iter());
        self.uses.clear();
        self.uses.extend(all.zip(0_u64..).map(|(&row, number)| u64::from(row) << 32 | number));
        self.spare.resize(count, 0);
        let highest = kinds.iter().flat_map(|rows| rows.iter()).max().map_or(0, |&row| row);
        let mut shift = 0;
        while shift < 32 && highest >> shift > 0 {
            self.pass(32 + shift);
            shift += DIGIT;
        }
        self.rows.clear();
        self.starts.clear();
        for (place, used) in self.uses.iter().enumerate() {
            let row = (used >> 32) as i64;
            if self.rows.last() != Some(&row) {
                self.rows.push(row);
                self.starts.push(place as u32);
            }
        }
        self.starts.push(count as u32);
        Ok(())
    }

    /// One stable pass of the sort, by one digit.
    fn pass(&mut self, shift: u32) {
        let digit = |used: u64| (used >> shift) as usize & ((1 << DIGIT) - 1);
        let mut places = [0_u32; 1 << DIGIT];
        for &used in &self.uses {
            places[digit(used)] += 1;
        }
        let mut before = 0;
        for place in &mut places {
            (*place, before) = (before, before + *place);
        }
        for &used in &self.uses {
            let place = &mut places[digit(used)];
            self.spare[*place as usize] = used;
            *place += 1;
        }
        std::mem::swap(&mut self.uses, &mut self.spare);
    }
}

/// Regularisation of rows.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The cost function of a row.
    pub size: Size,
    /// Factor of the cost.
    pub strength: f32,
}

/// Inputs for summing gradients.
pub struct Sums<'a> {
    /// The uses, in the same order as the arguments of `Order::sort`.
    pub kinds: &'a [Uses<'a>],
    /// The order of these uses.
    pub order: &'a Order,
    /// `[all, width]`
    pub table: &'a [f32],
    /// Floats per row.
    pub width: usize,
    /// `[all, state width]`: the optimiser state, to which squared gradients are added.
    pub state: &'a [f32],
    /// Floats of optimiser state per row.
    pub state_width: usize,
    /// Regularisation, if any.
    pub sizes: Option<Sizes>,
}

impl Sums<'_> {
    /// Writes the gradient of each distinct row, and its regularisation cost.
    ///
    /// The cost is NaN if the gradient is not finite, or if the sum of its squares and the row's
    /// state is not finite.
    ///
    /// # Shapes
    /// `sums` `[distinct rows, width]`, `costs` `[distinct rows]`.
    pub fn write(&self, sums: &mut [f32], costs: &mut [f32], threads: usize) {
        let pieces = sums
            .chunks_mut(ROWS_AT_ONCE * self.width)
            .zip(costs.chunks_mut(ROWS_AT_ONCE))
            .zip((0..).step_by(ROWS_AT_ONCE))
            .map(|((sums, costs), first)| Piece { of: self, first, sums, costs })
            .collect();
        for_each(pieces, threads, dispatch);
    }
}

struct Piece<'a> {
    of: &'a Sums<'a>,
    first: usize,
    sums: &'a mut [f32],
    costs: &'a mut [f32],
}

impl Kernel for Piece<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Sums { kinds, order, table, width, state, state_width, sizes } = *self.of;
        let rows = self.sums.chunks_exact_mut(width).zip(self.costs);
        for (number, (sum, cost)) in rows.enumerate() {
            let number = self.first + number;
            let (start, stop) = (order.starts[number], order.starts[number + 1]);
            sum.fill(0.0);
            let mut weight = 0.0;
            for &used in &order.uses[start as usize..stop as usize] {
                let mut place = (used & u64::from(u32::MAX)) as usize;
                let mut kind = 0;
                while place >= kinds[kind].rows.len() {
                    place -= kinds[kind].rows.len();
                    kind += 1;
                }
                let uses = &kinds[kind];
                for source in uses.gradients.iter().flatten() {
                    let gradient = &source.numbers[place * source.stride..][..width];
                    match source.factors {
                        None => {
                            for (sum, number) in sum.iter_mut().zip(gradient) {
                                *sum += number;
                            }
                        }
                        Some(factors) => {
                            let factor = factors[place];
                            for (sum, number) in sum.iter_mut().zip(gradient) {
                                *sum += factor * number;
                            }
                        }
                    }
                }
                if let Some(weights) = uses.weights {
                    weight += weights[place];
                }
            }
            *cost = 0.0;
            let row = order.rows[number] as usize;
            if let Some(Sizes { size, strength }) = sizes
                && weight * strength != 0.0
            {
                let row = &table[row * width..][..width];
                *cost = size.add(lanes, row, weight * strength, sum);
            }
            let state = &state[row * state_width..][..state_width];
            // If a value or its square is not finite, neither is the sum of squares.
            if !(dot(lanes, sum, sum) + total(lanes, state)).is_finite() {
                *cost = f32::NAN;
            }
        }
    }
}

/// The sum of all values.
#[inline(always)]
fn total<L: Lanes>(lanes: L, numbers: &[f32]) -> f32 {
    let (body, tail) = L::as_simd_f32s(numbers);
    let mut sums = lanes.splat(0.0);
    for &line in body {
        sums = lanes.add_f32s(line, sums);
    }
    tail.iter().fold(lanes.reduce_sum_f32s(sums), |sum, number| sum + number)
}
