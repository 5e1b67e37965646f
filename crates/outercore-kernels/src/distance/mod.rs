//! Scores that are minus a distance which no matrix product computes, and their gradients.
//!
//! Candidates are turned into columns once. Then rows go through in blocks whose scores stay in the
//! cache. How rows are grouped follows from the sizes, not from the number of threads, and so the
//! bits of a result do not depend on it.

mod columns;
mod pairs;

use outercore_core::{Error, Result};

use crate::lanes::{Kernel, Lanes, dispatch};
use crate::parallel::for_each;
use pairs::{
    Absolute, Modulus, Panel, add_gradients, pair_distance, part_pair, subtract_distances,
};

pub(crate) use columns::{Columns, LINE};

/// Numbers of scores that a thread works on at once: 128 KiB.
const SCORES_AT_ONCE: usize = 1 << 15;
/// Candidates that are compared before the next unit is looked at: 4 KiB a column.
const CANDIDATES_AT_ONCE: usize = 1024;
/// Rows that a thread takes at a time, at least.
const LEAST_GROUP: usize = 128;
/// Numbers that all groups' gradients of candidates may take together: 64 MiB.
const GROUP_NUMBERS: usize = 1 << 24;

/// How far two rows are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// The sum of absolute differences.
    Manhattan,
    /// The sum of moduli of complex differences; a row holds real parts, then imaginary parts.
    Modulus,
}

/// Minus the distances of all pairs.
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
    /// Takes the distances of all pairs from `scores`.
    #[inline(always)]
    pub(crate) fn subtract<L: Lanes>(self, lanes: L, panel: Panel<'_>, scores: &mut [f32]) {
        match self {
            Self::Manhattan => subtract_distances::<L, Absolute, 1>(lanes, panel, scores),
            Self::Modulus => subtract_distances::<L, Modulus, 2>(lanes, panel, scores),
        }
    }

    /// Adds the gradients that `slopes` of scores are of queries and of candidates.
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

    /// How far a row is from another.
    #[inline(always)]
    pub(crate) fn of_pair<L: Lanes>(self, lanes: L, one: &[f32], other: &[f32]) -> f32 {
        match self {
            Self::Manhattan => pair_distance::<L, Absolute, 1>(lanes, one, other),
            Self::Modulus => pair_distance::<L, Modulus, 2>(lanes, one, other),
        }
    }

    /// Given the slope of the score of a query and its target, takes the gradient off that of the
    /// query, and leaves the target's in place of the query.
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

/// Rows of a group: enough of them that its own gradients of candidates cost little.
pub(crate) fn group_rows(rows: usize, numbers: usize) -> usize {
    let groups = (rows / LEAST_GROUP).min(GROUP_NUMBERS / numbers.max(1)).max(1);
    rows.div_ceil(groups)
}

/// Rows whose scores fit the cache, a multiple of those that share registers.
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
