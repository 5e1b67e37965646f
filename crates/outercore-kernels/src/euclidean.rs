//! Euclidean distances of rows, computed from their inner products.

use crate::lanes::Lanes;

/// The squared distance of two rows.
#[inline(always)]
pub fn squared_distance<L: Lanes>(lanes: L, one: &[f32], other: &[f32]) -> f32 {
    let (body, tail) = L::as_simd_f32s(one);
    let (other_body, other_tail) = L::as_simd_f32s(other);
    let mut sums = lanes.splat(0.0);
    for (&x, &y) in body.iter().zip(other_body) {
        let apart = lanes.sub_f32s(x, y);
        sums = lanes.mul_add_f32s(apart, apart, sums);
    }
    let rest = tail.iter().zip(other_tail);
    rest.fold(lanes.reduce_sum_f32s(sums), |sum, (x, y)| sum + (x - y) * (x - y))
}

/// Replaces the inner products of a query and candidates by negative distances. Writes the inverse
/// distances to `inverses`, or 0 if a distance is below the rounding error of the product.
///
/// `square` is the squared norm of the query, and `squares` are those of the candidates.
#[inline(always)]
pub fn distances<L: Lanes>(
    lanes: L,
    square: f32,
    squares: &[f32],
    products: &mut [f32],
    inverses: &mut [f32],
) {
    let (body, tail) = L::as_simd_f32s(squares);
    let (to, to_tail) = L::as_mut_simd_f32s(products);
    let (over, over_tail) = L::as_mut_simd_f32s(inverses);
    let (own, minus_two) = (lanes.splat(square), lanes.splat(-2.0));
    let (least, unit) = (lanes.splat(f32::MIN_POSITIVE), lanes.splat(f32::EPSILON));
    let none = lanes.splat(0.0);
    for ((&other, to), over) in body.iter().zip(to).zip(over) {
        let sum = lanes.add_f32s(own, other);
        let found = at_least(lanes, none, lanes.mul_add_f32s(minus_two, *to, sum));
        let inverse = lanes.inverse_root(at_least(lanes, least, found));
        *to = lanes.neg_f32s(lanes.mul_f32s(found, inverse));
        let noise = lanes.less_than_or_equal_f32s(found, lanes.mul_f32s(unit, sum));
        *over = lanes.select_f32s(noise, none, inverse);
    }
    for ((other, to), over) in tail.iter().zip(to_tail).zip(over_tail) {
        let sum = square + other;
        let found = sum - 2.0 * *to;
        let found = if found < 0.0 { 0.0 } else { found };
        *to = -found.sqrt();
        *over = if found <= f32::EPSILON * sum { 0.0 } else { 1.0 / found.sqrt() };
    }
}

/// The larger of two values. NaN stays NaN, so it never becomes the shortest distance.
#[inline(always)]
fn at_least<L: Lanes>(lanes: L, least: L::f32s, found: L::f32s) -> L::f32s {
    lanes.select_f32s(lanes.less_than_f32s(found, least), least, found)
}

/// Multiplies values by factors in place; returns the sum of the products.
#[inline(always)]
pub fn scale_by<L: Lanes>(lanes: L, numbers: &mut [f32], factors: &[f32]) -> f32 {
    let (body, tail) = L::as_mut_simd_f32s(numbers);
    let (by, by_tail) = L::as_simd_f32s(factors);
    let mut sums = lanes.splat(0.0);
    for (number, &factor) in body.iter_mut().zip(by) {
        *number = lanes.mul_f32s(*number, factor);
        sums = lanes.add_f32s(sums, *number);
    }
    let mut sum = lanes.reduce_sum_f32s(sums);
    for (number, factor) in tail.iter_mut().zip(by_tail) {
        *number *= factor;
        sum += *number;
    }
    sum
}
