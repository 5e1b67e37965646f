//! Functions without a processor instruction: exponentials and functions based on them, sines and
//! cosines.

use crate::lanes::Lanes;

/// Below this value, an exponential (4e-18) becomes zero. It has no effect next to a number of
/// ordinary size, and products of two such numbers would be subnormal: arithmetic on those takes a
/// hundred times as long.
const LOWEST: f32 = -40.0;
const HIGHEST: f32 = 88.3;
/// From this angle on, `f32` is too coarse for an angle.
const FARTHEST: f32 = 1e6;

/// The exponential, within 2 units in the last place; 0 below -40, and NaN for NaN.
#[inline(always)]
pub fn exponential<L: Lanes>(lanes: L, x: L::f32s) -> L::f32s {
    // Comparisons with NaN are false, so NaN passes through.
    let too_low = lanes.less_than_f32s(x, lanes.splat(LOWEST));
    let too_high = lanes.greater_than_f32s(x, lanes.splat(HIGHEST));
    let x = lanes.select_f32s(too_low, lanes.splat(LOWEST), x);
    let x = lanes.select_f32s(too_high, lanes.splat(HIGHEST), x);
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the lowest bits. With 127 more, these
    // bits are the exponent of a power of two.
    let magic = lanes.splat(12_582_912.0 + 127.0);
    let shifted = lanes.mul_add_f32s(x, lanes.splat(std::f32::consts::LOG2_E), magic);
    let whole = lanes.sub_f32s(shifted, magic);
    // Cody and Waite: subtract the logarithm of two in two parts, the first of which ends in zero
    // bits.
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
    // log(1 + z) = 2 artanh(z / (2 + z)), with an argument of at most 1/3.
    let s = lanes.div_f32s(small, lanes.add_f32s(lanes.splat(2.0), small));
    let square = lanes.mul_f32s(s, s);
    let mut sum = lanes.splat(2.0 / 15.0);
    for factor in [2.0 / 13.0, 2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0, 2.0] {
        sum = lanes.mul_add_f32s(sum, square, lanes.splat(factor));
    }
    let above = lanes.select_f32s(positive, x, lanes.splat(0.0));
    // NaN fails both comparisons; adding the sum restores it.
    (lanes.add_f32s(lanes.mul_f32s(sum, s), above), slope)
}

/// The sine and the cosine, within 2e-7 for angles up to 1,000. NaN from a million on, where angles
/// are rounded to sixteenths.
#[inline(always)]
pub fn sine_and_cosine<L: Lanes>(lanes: L, x: L::f32s) -> (L::f32s, L::f32s) {
    // The number of quarter turns, in the same way as the powers of two in `exponential`.
    let magic = lanes.splat(12_582_912.0);
    let shifted = lanes.mul_add_f32s(x, lanes.splat(std::f32::consts::FRAC_2_PI), magic);
    let whole = lanes.sub_f32s(shifted, magic);
    // Subtract the quarter turns in three parts, so that the rest is exact up to its own rounding.
    let mut rest = x;
    for part in [std::f32::consts::FRAC_PI_2, -4.371_139e-8, -1.715_124_5e-15] {
        rest = lanes.negate_mul_add_f32s(whole, lanes.splat(part), rest);
    }
    let square = lanes.mul_f32s(rest, rest);
    let mut odd = lanes.splat(1.0 / 362_880.0);
    for factor in [-1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0] {
        odd = lanes.mul_add_f32s(odd, square, lanes.splat(factor));
    }
    odd = lanes.mul_f32s(odd, rest);
    let mut even = lanes.splat(-1.0 / 3_628_800.0);
    for factor in [1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0] {
        even = lanes.mul_add_f32s(even, square, lanes.splat(factor));
    }
    // After one quarter turn, sine and cosine exchange places. After two, the sine changes its
    // sign, and the cosine after one and two.
    let (quarters, one) = (lanes.transmute_u32s_f32s(shifted), lanes.splat_u32s(1));
    let change = lanes.equal_u32s(lanes.and_u32s(quarters, one), one);
    let too_far = lanes.greater_than_or_equal_f32s(lanes.absolute(x), lanes.splat(FARTHEST));
    let mut found = [lanes.select_f32s(change, even, odd), lanes.select_f32s(change, odd, even)];
    for (number, quarters) in found.iter_mut().zip([quarters, lanes.add_u32s(quarters, one)]) {
        let second = lanes.and_u32s(quarters, lanes.splat_u32s(2));
        let sign = lanes.wrapping_dyn_shl_u32s(second, lanes.splat_u32s(30));
        let turned = lanes.xor_u32s(lanes.transmute_u32s_f32s(*number), sign);
        let turned = lanes.transmute_f32s_u32s(turned);
        *number = lanes.select_f32s(too_far, lanes.splat(f32::NAN), turned);
    }
    (found[0], found[1])
}

/// log(1 + exp(x)) and its slope, for a single value.
pub fn softplus_one(x: f32) -> (f32, f32) {
    let small = (-x.abs()).exp();
    let slope = if x > 0.0 { 1.0 / (1.0 + small) } else { small / (1.0 + small) };
    (x.max(0.0) + small.ln_1p(), slope)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{Kernel, dispatch};

    struct Turn(f32);

    impl Kernel for Turn {
        type Output = (f32, f32);

        #[inline(always)]
        fn run<L: Lanes>(self, lanes: L) -> (f32, f32) {
            let (sine, cosine) = sine_and_cosine(lanes, lanes.splat(self.0));
            let lane = 1.0 / L::F32_LANES as f32;
            (lane * lanes.reduce_sum_f32s(sine), lane * lanes.reduce_sum_f32s(cosine))
        }
    }

    #[test]
    fn sines_and_cosines_are_within_their_rounding() {
        let near = (-40_000..=40_000).map(|place| place as f32 * 2.5e-4);
        let quarters = (-700..700).flat_map(|quarter| {
            let edge = quarter as f32 * std::f32::consts::FRAC_PI_4;
            [edge.next_down(), edge, edge.next_up()]
        });
        for x in near.chain(quarters).chain([0.0, -0.0, 1e-30, 999.9]) {
            let (sine, cosine) = dispatch(Turn(x));
            let (exact_sine, exact_cosine) = f64::from(x).sin_cos();
            assert!((f64::from(sine) - exact_sine).abs() < 2e-7, "sine of {x}: {sine}");
            assert!((f64::from(cosine) - exact_cosine).abs() < 2e-7, "cosine of {x}: {cosine}");
        }
        for x in [1e6, -3e7, f32::INFINITY, f32::NAN] {
            let (sine, cosine) = dispatch(Turn(x));
            assert!(sine.is_nan() && cosine.is_nan(), "{x}: {sine}, {cosine}");
        }
    }
}
