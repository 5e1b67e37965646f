//! Negatives: rows drawn from those that hold entities.

use outercore_core::{Error, Result, Stream};

/// What tells these draws apart from others of the same seed.
const NEGATIVES: u64 = 0x4E45_4741_5449_5645;

/// What is drawn from.
#[derive(Clone, Copy, Debug)]
pub struct Population<'a> {
    /// First row of each range, and the first behind it. A place counts the rows of all ranges.
    pub ranges: &'a [(i64, i64)],
    /// How much each place counts in draws by weight, and the sums of these up to it and with it.
    pub weights: Option<(&'a [f64], &'a [f64])>,
    /// Draws in which each place counts the same.
    pub even: usize,
    /// Draws by weight.
    pub weighted: usize,
}

/// When something is drawn, and for what: draws are a function of these numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occasion {
    /// Of the run.
    pub seed: u64,
    /// From 0.
    pub epoch: u64,
    /// Of the epoch's pools.
    pub pool: u32,
    /// Of the pool's batches.
    pub batch: u32,
    /// Of the batch's draws.
    pub number: u32,
}

/// Rows that were drawn, ascending; one drawn twice stands twice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawn {
    /// The rows.
    pub rows: Vec<i64>,
    /// Minus the logarithm of how often a draw is expected to hold each.
    pub bias: Vec<f32>,
}

/// Draws rows.
///
/// # Errors
/// Invalid: no row to draw from, weights that do not fit the ranges or are all zero.
///
/// # Example
/// ```
/// use outercore_kernels::{Occasion, Population, draw};
/// let from = Population { ranges: &[(10, 14), (0, 2)], weights: None, even: 5, weighted: 0 };
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
    let Occasion { seed, epoch, pool, batch, number } = occasion;
    let node = u64::from(pool) << 32 | u64::from(number);
    let mut random = Stream::new(seed ^ NEGATIVES, epoch).uniform(u64::from(batch), 0, node);
    let mut drawn = Vec::with_capacity(from.even + from.weighted);
    drawn.extend((0..from.even).map(|_| random.below(places)));
    if let Some((_, sums)) = from.weights {
        drawn.extend((0..from.weighted).map(|_| {
            let height = random.unit() * total;
            (sums.partition_point(|&sum| sum <= height) as u64).min(places - 1)
        }));
    }
    let even = from.even as f64 / places as f64;
    let share = from.weighted as f64 / total;
    let expected = |place: u64| match from.weights {
        Some((weights, _)) if from.weighted > 0 => even + weights[place as usize] * share,
        _ => even,
    };
    // Ranges need not stand in the order of their rows.
    let mut both: Vec<(i64, u64)> =
        drawn.into_iter().map(|place| (row(from.ranges, place), place)).collect();
    both.sort_unstable();
    Ok(Drawn {
        rows: both.iter().map(|&(row, _)| row).collect(),
        bias: both.iter().map(|&(_, place)| -expected(place).ln() as f32).collect(),
    })
}

fn row(ranges: &[(i64, i64)], place: u64) -> i64 {
    let mut left = place as i64;
    for &(start, stop) in ranges {
        let count = (stop - start).max(0);
        if left < count {
            return start + left;
        }
        left -= count;
    }
    unreachable!("place {place} is within the ranges")
}
