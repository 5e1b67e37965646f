//! Scores that are negative distances without a matrix product, and their gradients.
//!
//! Candidates are converted to columns once. Rows are then processed in blocks whose scores stay in
//! the cache. The grouping of rows depends on the sizes and not on the number of threads, so
//! neither do the bits of a result.

mod columns;
mod pairs;

use outercore_core::{Error, Result};

use crate::lanes::{Kernel, Lanes, dispatch};
use crate::parallel::for_each;
use pairs::{
    Absolute, Modulus, Panel, add_gradients, pair_distance, part_pair, subtract_distances,
};

pub(crate) use columns::{Columns, LINE};

/// Scores that a thread processes at a time: 128 KiB.
const SCORES_AT_ONCE: usize = 1 << 15;
/// Candidates compared before the next dimension is processed: 4 KiB per column.
const CANDIDATES_AT_ONCE: usize = 1024;
/// Least number of rows that a thread takes at a time.
const LEAST_GROUP: usize = 128;
/// Most floats in the candidates' gradients of all groups: 64 MiB.
const GROUP_NUMBERS: usize = 1 << 24;

/// A distance of two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// The sum of absolute differences.
    Manhattan,
    /// The sum of the moduli of complex differences; a row has the real parts, then the imaginary
    /// parts.
    Modulus,
}

/// Computes the negative distances of all pairs.
///
/// # Shapes
/// `queries` `[rows, width]`, `candidates` `[candidates, width]`, `out` `[rows, candidates]`.
///
/// # Errors
/// Invalid: slices that do not fit each other, an odd width for moduli.
pub fn distance_scores(
    distance: Distance,
    width: usize,
    queries: &[f32],
    candidates: &[f32],
    out: &mut [f32],
    threads: usize,
) -> Result<()> {
    check_width(distance, width)?;
    let (rows, count) = (queries.len() / width, candidates.len() / width);
    let fits = queries.len() == rows * width && candidates.len() == count * width;
    if !fits || out.len() != rows * count {
        return Err(Error::invalid(format!(
            "distances: expected rows of {width} numbers and {rows} x {count} scores, found {} \
             and {} numbers and {} scores",
            queries.len(),
            candidates.len(),
            out.len()
        )));
    }
    if out.is_empty() {
        return Ok(());
    }
    let (of, columns) = columns_of(candidates, width);
    let group_rows = block_rows(of.stride);
    let pieces = queries
        .chunks(group_rows * width)
        .zip(out.chunks_mut(group_rows * count))
        .map(|(queries, out)| Scores { distance, of, columns: &columns, queries, out })
        .collect();
    for_each(pieces, threads, dispatch);
    Ok(())
}

impl Distance {
    /// Subtracts the distances of all pairs from `scores`.
    #[inline(always)]
    pub(crate) fn subtract<L: Lanes>(self, lanes: L, panel: Panel<'_>, scores: &mut [f32]) {
        match self {
            Self::Manhattan => subtract_distances::<L, Absolute, 1>(lanes, panel, scores),
            Self::Modulus => subtract_distances::<L, Modulus, 2>(lanes, panel, scores),
        }
    }

    /// Adds the gradients of queries and of candidates, given the `slopes` of scores.
    #[inline(always)]
    pub(crate) fn add_gradients<L: Lanes>(
        self,
        lanes: L,
        panel: Panel<'_>,
        slopes: &[f32],
        to_queries: &mut [f32],
        to_columns: &mut [f32],
    ) {
        match self {
            Self::Manhattan => {
                add_gradients::<L, Absolute, 1>(lanes, panel, slopes, to_queries, to_columns);
            }
            Self::Modulus => {
                add_gradients::<L, Modulus, 2>(lanes, panel, slopes, to_queries, to_columns);
            }
        }
    }

    /// The distance of one pair of rows.
    #[inline(always)]
    pub(crate) fn of_pair<L: Lanes>(self, lanes: L, one: &[f32], other: &[f32]) -> f32 {
        match self {
            Self::Manhattan => pair_distance::<L, Absolute, 1>(lanes, one, other),
            Self::Modulus => pair_distance::<L, Modulus, 2>(lanes, one, other),
        }
    }

    /// Given the slope of the score of a query and its target, subtracts the gradient from
    /// `to_query`, and replaces the query by the target's gradient.
    #[inline(always)]
    pub(crate) fn part_pair<L: Lanes>(
        self,
        lanes: L,
        slope: f32,
        query: &mut [f32],
        target: &[f32],
        to_query: &mut [f32],
    ) {
        match self {
            Self::Manhattan => part_pair::<L, Absolute, 1>(lanes, slope, query, target, to_query),
            Self::Modulus => part_pair::<L, Modulus, 2>(lanes, slope, query, target, to_query),
        }
    }
}

/// Candidates as columns.
fn columns_of(candidates: &[f32], width: usize) -> (Columns, Vec<f32>) {
    let of = Columns::of(candidates.len() / width, width);
    let mut columns = vec![0.0; of.numbers()];
    of.write(0, |candidate| &candidates[candidate * width..][..width], &mut columns);
    (of, columns)
}

/// Number of rows per group: enough that the group's separate gradients of candidates cost little.
pub(crate) fn group_rows(rows: usize, numbers: usize) -> usize {
    let groups = (rows / LEAST_GROUP).min(GROUP_NUMBERS / numbers.max(1)).max(1);
    rows.div_ceil(groups)
}

/// Number of rows whose scores fit into the cache: a multiple of the rows that share registers.
fn block_rows(stride: usize) -> usize {
    (SCORES_AT_ONCE / stride).clamp(4, 64) / 4 * 4
}

fn check_width(distance: Distance, width: usize) -> Result<()> {
    if width == 0 || (distance == Distance::Modulus && !width.is_multiple_of(2)) {
        return Err(Error::invalid(format!("distances: {distance:?} of rows of {width} numbers")));
    }
    Ok(())
}

struct Scores<'a> {
    distance: Distance,
    of: Columns,
    columns: &'a [f32],
    queries: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Scores<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let of = self.of;
        let mut scores = vec![0.0; self.out.len() / of.count * of.stride];
        for panel in of.panels(self.columns, self.queries, of.width) {
            self.distance.subtract(lanes, panel, &mut scores);
        }
        for (out, scores) in self.out.chunks_mut(of.count).zip(scores.chunks(of.stride)) {
            out.copy_from_slice(&scores[..of.count]);
        }
    }
}
