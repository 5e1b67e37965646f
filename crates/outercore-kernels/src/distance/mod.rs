//! Scores that are minus a distance which no matrix product computes, their loss and its gradients.
//!
//! Candidates are turned into columns once. Then rows go through scores, loss and gradients in
//! blocks whose scores stay in the cache. Rows are cut into groups, each with gradients of the
//! candidates of its own, which are added up in order: how many groups there are follows from the
//! sizes, not from the number of threads, and so the bits of a result do not depend on it.

mod columns;
mod pairs;

use outercore_core::{Error, Result};

use crate::lanes::{Kernel, Lanes, dispatch};
use crate::loss::{Loss, row_loss, total};
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

/// Queries that share their candidates; see `outercore.embedding.kernels.query_gradients`.
#[derive(Clone, Copy, Debug)]
pub struct DistanceChunk<'a> {
    /// What a candidate is compared by.
    pub distance: Distance,
    /// What the scores are for.
    pub loss: Loss,
    /// Numbers in a row.
    pub width: usize,
    /// `[rows, width]`
    pub queries: &'a [f32],
    /// `[negatives, width]`
    pub candidates: &'a [f32],
    /// `[rows]`: each row's score with its own target.
    pub positives: &'a [f32],
    /// `[rows]`
    pub weights: &'a [f32],
    /// Pairs (row, candidate) that do not count, rows ascending.
    pub masked: (&'a [i64], &'a [i64]),
    /// `[negatives]`, added to their scores.
    pub bias: Option<&'a [f32]>,
}

/// Where gradients go.
#[derive(Debug)]
pub struct DistanceGradients<'a> {
    /// `[rows, width]`, overwritten.
    pub queries: &'a mut [f32],
    /// `[rows]`, overwritten.
    pub positives: &'a mut [f32],
    /// `[negatives, width]`, added to.
    pub candidates: &'a mut [f32],
}

/// The loss of a chunk and its gradients.
///
/// # Errors
/// Invalid: slices that do not fit each other, an odd width for moduli, no candidates, a masked
/// pair out of range.
///
/// # Source
/// Legend 6, for distances.
pub fn distance_gradients(
    chunk: DistanceChunk<'_>,
    to: DistanceGradients<'_>,
    threads: usize,
) -> Result<f32> {
    let rows = chunk.positives.len();
    check(&chunk, &to, rows)?;
    if rows == 0 {
        return Ok(0.0);
    }
    let (of, columns) = columns_of(chunk.candidates, chunk.width);
    let group_rows = group_rows(rows, of.numbers());
    let groups = rows.div_ceil(group_rows);
    let mut sums = vec![0.0_f32; groups * of.numbers()];
    let mut values = vec![0.0_f32; rows];
    let pieces: Vec<_> = to
        .queries
        .chunks_mut(group_rows * chunk.width)
        .zip(to.positives.chunks_mut(group_rows))
        .zip(sums.chunks_mut(of.numbers()))
        .zip(values.chunks_mut(group_rows))
        .enumerate()
        .map(|(group, (((to_queries, to_positives), to_columns), values))| Group {
            chunk,
            of,
            columns: &columns,
            first: group * group_rows,
            to_queries,
            to_positives,
            to_columns,
            values,
        })
        .collect();
    for_each(pieces, threads, dispatch);
    of.add_rows(&sums, 0, chunk.width, to.candidates);
    Ok(total(&values))
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

/// Scores `[rows, stride]` before any distance is taken from them. Those beyond `count` do not
/// count.
fn start_scores(of: Columns, bias: Option<&[f32]>, scores: &mut [f32]) {
    for scores in scores.chunks_mut(of.stride) {
        let (counted, beyond) = scores.split_at_mut(of.count);
        match bias {
            Some(bias) => counted.copy_from_slice(bias),
            None => counted.fill(0.0),
        }
        beyond.fill(f32::NEG_INFINITY);
    }
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

fn check(chunk: &DistanceChunk<'_>, to: &DistanceGradients<'_>, rows: usize) -> Result<()> {
    check_width(chunk.distance, chunk.width)?;
    let negatives = chunk.candidates.len() / chunk.width;
    let fits = [
        (chunk.queries.len(), rows * chunk.width),
        (chunk.candidates.len(), negatives * chunk.width),
        (chunk.weights.len(), rows),
        (chunk.masked.1.len(), chunk.masked.0.len()),
        (chunk.bias.map_or(negatives, <[f32]>::len), negatives),
        (to.queries.len(), chunk.queries.len()),
        (to.positives.len(), rows),
        (to.candidates.len(), chunk.candidates.len()),
    ]
    .iter()
    .all(|(found, expected)| found == expected);
    if !fits || negatives == 0 {
        return Err(Error::invalid(format!(
            "distances: sizes do not fit {rows} rows of {} numbers and {negatives} candidates",
            chunk.width
        )));
    }
    let (masked_rows, masked_columns) = chunk.masked;
    let inside = |value: &i64, end: usize| usize::try_from(*value).is_ok_and(|value| value < end);
    if !masked_rows.is_sorted()
        || !masked_rows.iter().all(|row| inside(row, rows))
        || !masked_columns.iter().all(|column| inside(column, negatives))
    {
        return Err(Error::invalid(format!(
            "distances: masked pairs are not ascending or not within {rows} x {negatives}"
        )));
    }
    Ok(())
}

struct Group<'a> {
    chunk: DistanceChunk<'a>,
    of: Columns,
    columns: &'a [f32],
    first: usize,
    to_queries: &'a mut [f32],
    to_positives: &'a mut [f32],
    to_columns: &'a mut [f32],
    values: &'a mut [f32],
}

impl Kernel for Group<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let (chunk, of) = (self.chunk, self.of);
        let step = block_rows(of.stride);
        let mut scores = vec![0.0; step * of.stride];
        for block in (0..self.values.len()).step_by(step) {
            let rows = block..(block + step).min(self.values.len());
            let first = self.first + rows.start;
            let scores = &mut scores[..rows.len() * of.stride];
            let queries = &chunk.queries[first * chunk.width..][..rows.len() * chunk.width];
            start_scores(of, chunk.bias, scores);
            for panel in of.panels(self.columns, queries, chunk.width) {
                chunk.distance.subtract(lanes, panel, scores);
            }
            hide(chunk.masked, first, of.stride, scores);
            for (row, scores) in rows.clone().zip(scores.chunks_mut(of.stride)) {
                let at = self.first + row;
                let (positive, weight) = (chunk.positives[at], chunk.weights[at]);
                let scores = &mut scores[..of.padded];
                let found = row_loss(lanes, chunk.loss, positive, weight, scores, of.count);
                self.values[row] = found.value;
                self.to_positives[row] = found.positive;
            }
            let to_queries = &mut self.to_queries[rows.start * chunk.width..rows.end * chunk.width];
            to_queries.fill(0.0);
            for panel in of.panels(self.columns, queries, chunk.width) {
                chunk.distance.add_gradients(lanes, panel, scores, to_queries, self.to_columns);
            }
        }
    }
}

/// Gives masked pairs of the block the score minus infinity.
fn hide((rows, candidates): (&[i64], &[i64]), first: usize, stride: usize, scores: &mut [f32]) {
    let start = rows.partition_point(|&row| (row as usize) < first);
    for (&row, &candidate) in rows[start..].iter().zip(&candidates[start..]) {
        let place = (row as usize - first) * stride;
        if place >= scores.len() {
            break;
        }
        scores[place + candidate as usize] = f32::NEG_INFINITY;
    }
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
