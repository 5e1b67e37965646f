//! Draws negatives from the rows that hold entities.

use outercore_core::{Error, Result, Stream};

/// Separates these draws from other draws with the same seed.
const NEGATIVES: u64 = 0x4E45_4741_5449_5645;

/// The rows to draw from.
#[derive(Clone, Copy, Debug)]
pub struct Population<'a> {
    /// First row and end of each range. A place counts the rows of all ranges.
    pub ranges: &'a [(i64, i64)],
    /// Weight of each place of a range in even draws; `None`: all are equal.
    pub shares: Option<&'a [f64]>,
    /// Weight of each place in weighted draws, and the cumulative sums of these weights.
    pub weights: Option<(&'a [f64], &'a [f64])>,
    /// Number of draws in which all places of a range are equally likely.
    pub even: usize,
    /// Number of weighted draws.
    pub weighted: usize,
}

/// Identifies a draw: its result depends only on these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occasion {
    /// Seed of the run.
    pub seed: u64,
    /// Epoch, counted from 0.
    pub epoch: u64,
    /// Number of the pool in the epoch.
    pub pool: u32,
    /// Number of the batch in the pool.
    pub batch: u32,
    /// Number of the draw in the batch.
    pub number: u32,
}

/// The drawn rows, ascending; a row drawn twice occurs twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawn {
    /// The rows.
    pub rows: Vec<i64>,
    /// For each row, the negative logarithm of its expected number of occurrences in a draw.
    pub bias: Vec<f32>,
    /// For each row, the index of its range.
    pub ranges: Vec<u32>,
}

impl Drawn {
    /// Bias to add to the scores of the rows, for each kind of anchor in turn. It is the entry of
    /// `logs` `[kinds, ranges]` for the row's range, plus `bias` if `biased`.
    ///
    /// # Errors
    /// Invalid: `logs` does not have `ranges` entries per kind.
    pub fn bias_by_kind(&self, logs: &[f32], ranges: usize, biased: bool) -> Result<Vec<f32>> {
        if ranges == 0 || !logs.len().is_multiple_of(ranges) {
            let count = logs.len();
            return Err(Error::invalid(format!(
                "negatives: {count} logarithms of {ranges} ranges"
            )));
        }
        let of_kind = |logs: &[f32]| -> Vec<f32> {
            let of_rows = self.ranges.iter().map(|&range| logs[range as usize]);
            let of_draws = self.bias.iter().map(|&bias| if biased { bias } else { 0.0 });
            of_rows.zip(of_draws).map(|(of_row, of_draw)| of_row + of_draw).collect()
        };
        Ok(logs.chunks_exact(ranges).flat_map(of_kind).collect())
    }
}

/// Draws rows.
///
/// # Errors
/// Invalid: no row to draw from; weights or shares that do not fit the ranges or are all zero.
///
/// # Example
/// ```
/// use outercore_kernels::{Occasion, Population, draw};
/// let ranges = [(10, 14), (0, 2)];
/// let from = Population { ranges: &ranges, shares: None, weights: None, even: 5, weighted: 0 };
/// let occasion = Occasion { seed: 7, epoch: 0, pool: 0, batch: 3, number: 1 };
/// let drawn = draw(from, occasion).unwrap();
/// assert!(drawn.rows.iter().all(|row| [0, 1, 10, 11, 12, 13].contains(row)));
/// assert_eq!(drawn, draw(from, occasion).unwrap());
/// ```
pub fn draw(from: Population<'_>, occasion: Occasion) -> Result<Drawn> {
    let places: u64 = from.ranges.iter().map(|(start, stop)| (stop - start).max(0) as u64).sum();
    if places == 0 {
        return Err(Error::invalid("negatives: no row to draw from"));
    }
    let total = match from.weights {
        _ if from.weighted == 0 => 1.0,
        Some((weights, sums)) if weights.len() as u64 == places && sums.len() == weights.len() => {
            sums[sums.len() - 1]
        }
        _ => return Err(Error::invalid(format!("negatives: expected weights of {places} places"))),
    };
    if total <= 0.0 || !total.is_finite() {
        return Err(Error::invalid(format!("negatives: expected weights above 0, found {total}")));
    }
    let shares = from.shares.map(|shares| Shares::new(from.ranges, shares)).transpose()?;
    let Occasion { seed, epoch, pool, batch, number } = occasion;
    let node = u64::from(pool) << 32 | u64::from(number);
    let mut random = Stream::new(seed ^ NEGATIVES, epoch).uniform(u64::from(batch), 0, node);
    let mut drawn = Vec::with_capacity(from.even + from.weighted);
    drawn.extend((0..from.even).map(|_| match &shares {
        Some(shares) => shares.at(random.unit()),
        None => random.below(places),
    }));
    if let Some((_, sums)) = from.weights {
        drawn.extend((0..from.weighted).map(|_| {
            let height = random.unit() * total;
            (sums.partition_point(|&sum| sum <= height) as u64).min(places - 1)
        }));
    }
    let even = |place: u64| match &shares {
        Some(shares) => from.even as f64 * shares.chance(place),
        None => from.even as f64 / places as f64,
    };
    let share = from.weighted as f64 / total;
    let expected = |place: u64| match from.weights {
        Some((weights, _)) if from.weighted > 0 => even(place) + weights[place as usize] * share,
        _ => even(place),
    };
    // Ranges need not be in the order of their rows.
    let found = drawn.into_iter().map(|place| {
        let (range, row) = row(from.ranges, place);
        (row, place, range)
    });
    let mut found: Vec<(i64, u64, u32)> = found.collect();
    found.sort_unstable();
    Ok(Drawn {
        rows: found.iter().map(|&(row, ..)| row).collect(),
        bias: found.iter().map(|&(_, place, _)| -expected(place).ln() as f32).collect(),
        ranges: found.iter().map(|&(.., range)| range).collect(),
    })
}

/// Even draws with a different weight per range.
struct Shares<'a> {
    shares: &'a [f64],
    /// For each range, the number of places and the mass of all ranges up to and including it.
    up_to: Vec<(u64, f64)>,
}

impl<'a> Shares<'a> {
    fn new(ranges: &[(i64, i64)], shares: &'a [f64]) -> Result<Self> {
        if shares.len() != ranges.len() || !shares.iter().all(|&share| share >= 0.0) {
            return Err(Error::invalid(format!(
                "negatives: expected {} shares of 0 or more, found {shares:?}",
                ranges.len()
            )));
        }
        let mut last = (0, 0.0);
        let up_to: Vec<_> = ranges
            .iter()
            .zip(shares)
            .map(|(&(start, stop), share)| {
                let places = (stop - start).max(0) as u64;
                last = (last.0 + places, last.1 + places as f64 * share);
                last
            })
            .collect();
        if !(last.1 > 0.0 && last.1.is_finite()) {
            return Err(Error::invalid(format!(
                "negatives: expected shares above 0, found {last:?}"
            )));
        }
        Ok(Self { shares, up_to })
    }

    fn mass(&self) -> f64 {
        self.up_to[self.up_to.len() - 1].1
    }

    /// The place at the fraction `unit`, in 0..1, of the total mass.
    fn at(&self, unit: f64) -> u64 {
        let height = unit * self.mass();
        // Rounding may exceed the end; clamp to the last range with mass.
        let full = |range: usize| self.before(range).1 < self.up_to[range].1;
        let last = (0..self.up_to.len()).rev().find(|&range| full(range)).unwrap_or(0);
        let range = self.up_to.partition_point(|&(_, mass)| mass <= height).min(last);
        let (first, mass) = self.before(range);
        let place = first + ((height - mass) / self.shares[range]) as u64;
        place.min(self.up_to[range].0 - 1)
    }

    /// The probability that one draw takes this place.
    fn chance(&self, place: u64) -> f64 {
        let range = self.up_to.partition_point(|&(places, _)| places <= place);
        self.shares[range] / self.mass()
    }

    /// Number of places and mass before a range.
    fn before(&self, range: usize) -> (u64, f64) {
        range.checked_sub(1).map_or((0, 0.0), |before| self.up_to[before])
    }
}

/// The range of a place, and its row.
fn row(ranges: &[(i64, i64)], place: u64) -> (u32, i64) {
    let mut left = place as i64;
    for (number, &(start, stop)) in (0..).zip(ranges) {
        let count = (stop - start).max(0);
        if left < count {
            return (number, start + left);
        }
        left -= count;
    }
    unreachable!("place {place} is within the ranges")
}
