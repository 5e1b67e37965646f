//! Functions of scores that are not instructions: exponentials and what is made of them.

use crate::lanes::Lanes;

/// Below this an exponential is taken for zero (4e-18). Beside a number of ordinary size it is
/// nothing, and products of two such numbers would leave the normal ones: arithmetic on those takes
/// a hundred times as long.
const LOWEST: f32 = -40.0;
const HIGHEST: f32 = 88.3;

/// The exponential, within 2 units in the last place; 0 below -40, not a number for those.
#[inline(always)]
pub fn exponential<L: Lanes>(lanes: L, x: L::f32s) -> L::f32s {
    // A comparison with what is not a number is false: it passes through.
    let too_low = lanes.less_than_f32s(x, lanes.splat(LOWEST));
    let too_high = lanes.greater_than_f32s(x, lanes.splat(HIGHEST));
    let x = lanes.select_f32s(too_low, lanes.splat(LOWEST), x);
    let x = lanes.select_f32s(too_high, lanes.splat(HIGHEST), x);
    // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the lowest bits; with 127 more
    // they are the exponent of a power of two.
    let magic = lanes.splat(12_582_912.0 + 127.0);
    let shifted = lanes.mul_add_f32s(x, lanes.splat(std::f32::consts::LOG2_E), magic);
    let whole = lanes.sub_f32s(shifted, magic);
    // Cody and Waite: the logarithm of two in two parts, the first with zeros at its end.
    let rest = lanes.negate_mul_add_f32s(whole, lanes.splat(355.0 / 512.0), x);
    let rest = lanes.negate_mul_add_f32s(whole, lanes.splat(-2.121_944_4e-4), rest);
    let mut sum = lanes.splat(1.0 / 5040.0);
    for factor in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = lanes.mul_add_f32s(sum, rest, lanes.splat(factor));
    }
    let bits =
        lanes.wrapping_dyn_shl_u32s(lanes.transmute_u32s_f32s(shifted), lanes.splat_u32s(23));
    let result = lanes.mul_f32s(sum, lanes.transmute_f32s_u32s(bits));
    lanes.select_f32s(too_low, lanes.splat(0.0), result)
}

/// log(1 + exp(x)) and its slope, the sigmoid of x.
#[inline(always)]
pub fn softplus<L: Lanes>(lanes: L, x: L::f32s) -> (L::f32s, L::f32s) {
    let small = exponential(lanes, lanes.sub_f32s(lanes.splat(0.0), lanes.absolute(x)));
    let total = lanes.add_f32s(lanes.splat(1.0), small);
    let share = lanes.div_f32s(lanes.splat(1.0), total);
    let positive = lanes.greater_than_f32s(x, lanes.splat(0.0));
    let slope = lanes.select_f32s(positive, share, lanes.mul_f32s(small, share));
    // log(1 + z) = 2 artanh(z / (2 + z)), whose argument is at most 1/3.
    let s = lanes.div_f32s(small, lanes.add_f32s(lanes.splat(2.0), small));
    let square = lanes.mul_f32s(s, s);
    let mut sum = lanes.splat(2.0 / 15.0);
    for factor in [2.0 / 13.0, 2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0, 2.0] {
        sum = lanes.mul_add_f32s(sum, square, lanes.splat(factor));
    }
    let above = lanes.select_f32s(positive, x, lanes.splat(0.0));
    // What is not a number fails both comparisons; the sum brings it back.
    (lanes.add_f32s(lanes.mul_f32s(sum, s), above), slope)
}

/// log(1 + exp(x)) and its slope, of one number.
pub fn softplus_one(x: f32) -> (f32, f32) {
    let small = (-x.abs()).exp();
    let slope = if x > 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) };
    (x.max(0.0) + small.ln_1p(), slope)
}
