//! The inner loops: distances of queries and candidates, and their gradients.
//!
//! Vectors run along candidates, so a score needs no sum over lanes. Candidates are stored as
//! columns: the first dimension of all candidates, then the second, and so on.

use crate::lanes::Lanes;

/// Units that are summed before the sum is added to a score; this keeps the rounding error of a
/// long sum small.
const UNITS_AT_ONCE: usize = 32;
/// Queries that share the candidates in registers.
const QUERIES: usize = 4;
/// Vectors of candidates that share the queries in registers.
const LINES: usize = 2;

/// A distance that is a sum over units of `PARTS` values.
///
/// The parts of a unit are half a row apart, like real and imaginary parts.
pub trait Unit<const PARTS: usize> {
    /// The contribution of a unit to the distance.
    fn distance<L: Lanes>(lanes: L, difference: [L::f32s; PARTS]) -> L::f32s;

    /// `gradient` times the slope of `distance`; zero if the difference is zero.
    fn slope<L: Lanes>(
        lanes: L,
        difference: [L::f32s; PARTS],
        gradient: L::f32s,
    ) -> [L::f32s; PARTS];
}

/// Absolute values.
pub struct Absolute;

impl Unit<1> for Absolute {
    #[inline(always)]
    fn distance<L: Lanes>(lanes: L, [difference]: [L::f32s; 1]) -> L::f32s {
        lanes.absolute(difference)
    }

    #[inline(always)]
    fn slope<L: Lanes>(lanes: L, [difference]: [L::f32s; 1], gradient: L::f32s) -> [L::f32s; 1] {
        let sign =
            lanes.and_u32s(lanes.transmute_u32s_f32s(difference), lanes.splat_u32s(0x8000_0000));
        let turned = lanes.xor_u32s(lanes.transmute_u32s_f32s(gradient), sign);
        let zero = lanes.splat(0.0);
        let equal = lanes.equal_f32s(difference, zero);
        [lanes.select_f32s(equal, zero, lanes.transmute_f32s_u32s(turned))]
    }
}

/// Moduli of complex numbers.
pub struct Modulus;

impl Modulus {
    #[inline(always)]
    fn square_and_inverse<L: Lanes>(lanes: L, [re, im]: [L::f32s; 2]) -> (L::f32s, L::f32s) {
        // Adding the smallest positive number prevents a division of zero by zero.
        let square = lanes.mul_add_f32s(re, re, lanes.splat(f32::MIN_POSITIVE));
        let square = lanes.mul_add_f32s(im, im, square);
        (square, lanes.inverse_root(square))
    }
}

impl Unit<2> for Modulus {
    #[inline(always)]
    fn distance<L: Lanes>(lanes: L, difference: [L::f32s; 2]) -> L::f32s {
        let (square, inverse) = Self::square_and_inverse(lanes, difference);
        lanes.mul_f32s(square, inverse)
    }

    #[inline(always)]
    fn slope<L: Lanes>(lanes: L, difference: [L::f32s; 2], gradient: L::f32s) -> [L::f32s; 2] {
        let (_, inverse) = Self::square_and_inverse(lanes, difference);
        let slope = lanes.mul_f32s(gradient, inverse);
        [lanes.mul_f32s(difference[0], slope), lanes.mul_f32s(difference[1], slope)]
    }
}

/// Rows, and the columns that they are compared with.
#[derive(Clone, Copy)]
pub struct Panel<'a> {
    /// `[rows, row]`, of which the first `width` floats per row are used.
    pub queries: &'a [f32],
    /// Floats from one query to the next.
    pub row: usize,
    pub width: usize,
    /// `[width, stride]`
    pub columns: &'a [f32],
    /// Floats from one column to the next; a multiple of the lanes.
    pub stride: usize,
    /// Start and end of the used part of a column; multiples of the lanes.
    pub first: usize,
    pub last: usize,
}

/// Subtracts the distances of all pairs from `scores` `[rows, stride]`.
#[inline(always)]
pub fn subtract_distances<L: Lanes, U: Unit<PARTS>, const PARTS: usize>(
    lanes: L,
    panel: Panel<'_>,
    scores: &mut [f32],
) {
    let units = panel.width / PARTS;
    let step = LINES * L::F32_LANES;
    for unit in (0..units).step_by(UNITS_AT_ONCE) {
        let units = unit..(unit + UNITS_AT_ONCE).min(units);
        for at in (panel.first..panel.last).step_by(step) {
            let several = at + step <= panel.last;
            let mut queries = panel.queries.chunks_exact(QUERIES * panel.row);
            let mut rows = scores.chunks_exact_mut(QUERIES * panel.stride);
            for (queries, rows) in queries.by_ref().zip(rows.by_ref()) {
                if several {
                    tile::<L, U, PARTS, QUERIES, LINES>(lanes, panel, queries, &units, at, rows);
                } else {
                    tile::<L, U, PARTS, QUERIES, 1>(lanes, panel, queries, &units, at, rows);
                }
            }
            let queries = queries.remainder().chunks_exact(panel.row);
            let rows = rows.into_remainder().chunks_exact_mut(panel.stride);
            for (query, row) in queries.zip(rows) {
                if several {
                    tile::<L, U, PARTS, 1, LINES>(lanes, panel, query, &units, at, row);
                } else {
                    tile::<L, U, PARTS, 1, 1>(lanes, panel, query, &units, at, row);
                }
            }
        }
    }
}

#[inline(always)]
fn tile<L: Lanes, U: Unit<PARTS>, const PARTS: usize, const Q: usize, const T: usize>(
    lanes: L,
    panel: Panel<'_>,
    queries: &[f32],
    units: &std::ops::Range<usize>,
    at: usize,
    scores: &mut [f32],
) {
    let half = panel.width / PARTS;
    let mut sums = [[lanes.splat(0.0); T]; Q];
    for unit in units.clone() {
        let mut candidates = [[lanes.splat(0.0); T]; PARTS];
        for (part, candidates) in candidates.iter_mut().enumerate() {
            let start = (unit + part * half) * panel.stride + at;
            let lines = L::as_simd_f32s(&panel.columns[start..start + T * L::F32_LANES]).0;
            candidates.copy_from_slice(&lines[..T]);
        }
        for (query, sums) in sums.iter_mut().enumerate() {
            let mut own = [lanes.splat(0.0); PARTS];
            for (part, own) in own.iter_mut().enumerate() {
                *own = lanes.splat(queries[query * panel.row + unit + part * half]);
            }
            for (line, sum) in sums.iter_mut().enumerate() {
                let mut difference = own;
                for (difference, candidates) in difference.iter_mut().zip(&candidates) {
                    *difference = lanes.sub_f32s(*difference, candidates[line]);
                }
                *sum = lanes.add_f32s(*sum, U::distance(lanes, difference));
            }
        }
    }
    for (query, sums) in sums.iter().enumerate() {
        let start = query * panel.stride + at;
        let kept = L::as_mut_simd_f32s(&mut scores[start..start + T * L::F32_LANES]).0;
        for (kept, &sum) in kept.iter_mut().zip(sums) {
            *kept = lanes.sub_f32s(*kept, sum);
        }
    }
}

/// Adds gradients, given the `slopes` `[rows, stride]` of the scores computed by
/// `subtract_distances`.
///
/// `to_queries` has the layout of the panel's queries; `to_columns` is `[width, stride]`.
#[inline(always)]
pub fn add_gradients<L: Lanes, U: Unit<PARTS>, const PARTS: usize>(
    lanes: L,
    panel: Panel<'_>,
    slopes: &[f32],
    to_queries: &mut [f32],
    to_columns: &mut [f32],
) {
    for unit in 0..panel.width / PARTS {
        let mut queries = panel.queries.chunks_exact(QUERIES * panel.row);
        let mut slopes = slopes.chunks_exact(QUERIES * panel.stride);
        let mut to_queries = to_queries.chunks_exact_mut(QUERIES * panel.row);
        for ((queries, slopes), to_queries) in
            queries.by_ref().zip(slopes.by_ref()).zip(to_queries.by_ref())
        {
            column::<L, U, PARTS, QUERIES>(
                lanes, panel, queries, slopes, unit, to_queries, to_columns,
            );
        }
        let queries = queries.remainder().chunks_exact(panel.row);
        let slopes = slopes.remainder().chunks_exact(panel.stride);
        let to_queries = to_queries.into_remainder().chunks_exact_mut(panel.row);
        for ((query, slopes), to_query) in queries.zip(slopes).zip(to_queries) {
            column::<L, U, PARTS, 1>(lanes, panel, query, slopes, unit, to_query, to_columns);
        }
    }
}

#[inline(always)]
fn column<L: Lanes, U: Unit<PARTS>, const PARTS: usize, const Q: usize>(
    lanes: L,
    panel: Panel<'_>,
    queries: &[f32],
    slopes: &[f32],
    unit: usize,
    to_queries: &mut [f32],
    to_columns: &mut [f32],
) {
    let half = panel.width / PARTS;
    let Panel { first, last, .. } = panel;
    let count = (last - first) / L::F32_LANES;
    let mut own = [[lanes.splat(0.0); PARTS]; Q];
    let mut gradients: [&[L::f32s]; Q] = [&[]; Q];
    for query in 0..Q {
        for part in 0..PARTS {
            own[query][part] = lanes.splat(queries[query * panel.row + unit + part * half]);
        }
        let start = query * panel.stride;
        gradients[query] = &L::as_simd_f32s(&slopes[start + first..start + last]).0[..count];
    }
    let mut columns: [&[L::f32s]; PARTS] = [&[]; PARTS];
    for (part, columns) in columns.iter_mut().enumerate() {
        let start = (unit + part * half) * panel.stride;
        *columns = &L::as_simd_f32s(&panel.columns[start + first..start + last]).0[..count];
    }
    let mut pieces = to_columns.chunks_exact_mut(half * panel.stride);
    // A closure that computes with lanes would be compiled without vector instructions; this one
    // only borrows.
    let moved: [&mut [L::f32s]; PARTS] = std::array::from_fn(|_| {
        let piece = pieces.next().unwrap_or_default();
        let start = unit * panel.stride;
        &mut L::as_mut_simd_f32s(&mut piece[start + first..start + last]).0[..count]
    });
    let mut sums = [[lanes.splat(0.0); PARTS]; Q];
    for line in 0..count {
        let mut candidate = [lanes.splat(0.0); PARTS];
        let mut column = candidate;
        for part in 0..PARTS {
            candidate[part] = columns[part][line];
            column[part] = moved[part][line];
        }
        for query in 0..Q {
            let mut difference = own[query];
            for part in 0..PARTS {
                difference[part] = lanes.sub_f32s(difference[part], candidate[part]);
            }
            let slope = U::slope(lanes, difference, gradients[query][line]);
            for part in 0..PARTS {
                sums[query][part] = lanes.sub_f32s(sums[query][part], slope[part]);
                column[part] = lanes.add_f32s(column[part], slope[part]);
            }
        }
        for part in 0..PARTS {
            moved[part][line] = column[part];
        }
    }
    for query in 0..Q {
        for part in 0..PARTS {
            let sum = lanes.reduce_sum_f32s(sums[query][part]);
            to_queries[query * panel.row + unit + part * half] += sum;
        }
    }
}

/// The distance of two rows.
#[inline(always)]
pub fn pair_distance<L: Lanes, U: Unit<PARTS>, const PARTS: usize>(
    lanes: L,
    one: &[f32],
    other: &[f32],
) -> f32 {
    let half = one.len() / PARTS;
    let mut sum = lanes.splat(0.0);
    for start in (0..half).step_by(L::F32_LANES) {
        let difference = difference::<L, PARTS>(lanes, one, other, start);
        sum = lanes.add_f32s(sum, U::distance(lanes, difference));
    }
    lanes.reduce_sum_f32s(sum)
}

/// See `Distance::part_pair`.
#[inline(always)]
pub fn part_pair<L: Lanes, U: Unit<PARTS>, const PARTS: usize>(
    lanes: L,
    slope: f32,
    query: &mut [f32],
    target: &[f32],
    to_query: &mut [f32],
) {
    let half = query.len() / PARTS;
    for start in (0..half).step_by(L::F32_LANES) {
        let difference = difference::<L, PARTS>(lanes, query, target, start);
        let gradients = U::slope(lanes, difference, lanes.splat(slope));
        for (part, gradient) in gradients.into_iter().enumerate() {
            let places = places::<L>(half, part, start);
            let to = &mut to_query[places.clone()];
            let less = lanes.sub_f32s(lanes.partial_load_f32s(to), gradient);
            lanes.partial_store_f32s(to, less);
            lanes.partial_store_f32s(&mut query[places], gradient);
        }
    }
}

/// The difference of two rows for one vector of units from `start` on; zero after the last unit.
#[inline(always)]
fn difference<L: Lanes, const PARTS: usize>(
    lanes: L,
    one: &[f32],
    other: &[f32],
    start: usize,
) -> [L::f32s; PARTS] {
    let half = one.len() / PARTS;
    let mut found = [lanes.splat(0.0); PARTS];
    for (part, found) in found.iter_mut().enumerate() {
        let places = places::<L>(half, part, start);
        let own = lanes.partial_load_f32s(&one[places.clone()]);
        *found = lanes.sub_f32s(own, lanes.partial_load_f32s(&other[places]));
    }
    found
}

/// The range of a part's values for one vector of units from `start` on.
#[inline(always)]
fn places<L: Lanes>(half: usize, part: usize, start: usize) -> std::ops::Range<usize> {
    part * half + start..part * half + half.min(start + L::F32_LANES)
}
