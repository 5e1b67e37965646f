//! What a batch leaves to be done: gradients of uses of rows, added up row by row.

use outercore_core::{Error, Result};

use crate::lanes::{Kernel, Lanes, dispatch};
use crate::model::{Size, dot};
use crate::parallel::for_each;

/// Rows that a thread takes at a time.
const ROWS_AT_ONCE: usize = 64;
/// Bits of a row that one pass of the sort looks at.
const DIGIT: u32 = 11;

/// Uses of rows, of which each has a gradient.
#[derive(Clone, Copy, Debug)]
pub struct Uses<'a> {
    /// Rows of the table, one a use.
    pub rows: &'a [u32],
    /// The gradient of a use is the sum of these.
    pub gradients: [Option<Source<'a>>; 2],
    /// How much the size of the row counts, by use; `None`: not at all.
    pub weights: Option<&'a [f32]>,
}

/// Rows of gradients, perhaps each times a factor.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Row after row, `stride` numbers apart.
    pub numbers: &'a [f32],
    /// Numbers from a row to the next.
    pub stride: usize,
    /// One a row; `None`: 1.
    pub factors: Option<&'a [f32]>,
}

/// The order in which uses of all kinds are added up, and the distinct rows.
#[derive(Debug, Default)]
pub struct Order {
    /// Row and number of a use, 32 bits each, ascending.
    uses: Vec<u64>,
    spare: Vec<u64>,
    /// Where in `uses` each distinct row begins, and the end.
    starts: Vec<u32>,
    /// Distinct rows, ascending.
    pub rows: Vec<i64>,
}

impl Order {
    /// Sorts uses by row; those of a row stay in their order.
    ///
    /// # Errors
    /// Invalid: more uses than 32 bits count.
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

    /// Sorts by one digit, stably.
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

/// What rows cost by their size.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The cost of a row.
    pub size: Size,
    /// What it is multiplied by.
    pub strength: f32,
}

/// Sums of gradients to be made.
pub struct Sums<'a> {
    /// As `Order::sort` was given their rows.
    pub kinds: &'a [Uses<'a>],
    /// Of these uses.
    pub order: &'a Order,
    /// `[all, width]`
    pub table: &'a [f32],
    /// Numbers of a row.
    pub width: usize,
    /// `[all, state width]`: what the optimiser remembers, and adds squares of gradients to.
    pub state: &'a [f32],
    /// Numbers of a row's state.
    pub state_width: usize,
    /// What the sizes of rows cost.
    pub sizes: Option<Sizes>,
}

impl Sums<'_> {
    /// Writes the gradient of each distinct row, and what its size costs.
    ///
    /// The cost is not a number where the gradient is not finite, or so large that its squares
    /// and the row's state add up to what is not.
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
            // Where a number or its square is not finite, neither is the sum of squares.
            if !(dot(lanes, sum, sum) + total(lanes, state)).is_finite() {
                *cost = f32::NAN;
            }
        }
    }
}

/// The sum of all numbers.
#[inline(always)]
fn total<L: Lanes>(lanes: L, numbers: &[f32]) -> f32 {
    let (body, tail) = L::as_simd_f32s(numbers);
    let mut sums = lanes.splat(0.0);
    for &line in body {
        sums = lanes.add_f32s(line, sums);
    }
    tail.iter().fold(lanes.reduce_sum_f32s(sums), |sum, number| sum + number)
}
