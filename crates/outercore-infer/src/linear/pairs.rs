//! The only instruction of int8 products that `pulp` has for each processor, but not in its generic
//! interface.

use pulp::{NullaryFnOnce, Scalar, Simd};

/// Registers of 32-bit numbers that are seen as pairs of 16-bit numbers, too.
///
/// All results are integers, so they are bit for bit equal on every processor.
pub(super) trait Pairs: Simd {
    /// `sums` plus, in each lane, the products of both halves of `one` and `other`.
    ///
    /// The caller ensures that no sum overflows.
    fn add_products(self, sums: Self::i32s, one: Self::i32s, other: Self::i32s) -> Self::i32s;

    /// The nearest single-precision values, ties to even.
    fn floats(self, numbers: Self::i32s) -> Self::f32s;
}

/// Work that can be compiled for each processor.
pub(super) trait WithPairs {
    fn run<S: Pairs>(self, simd: S);
}

/// Packs two 16-bit integers into the halves of an `i32`.
#[inline(always)]
pub(super) fn pair(low: i16, high: i16) -> i32 {
    i32::from(low) & 0xffff | i32::from(high) << 16
}

impl Pairs for Scalar {
    #[inline(always)]
    fn add_products(self, sum: i32, one: i32, other: i32) -> i32 {
        let low = i32::from(one as i16) * i32::from(other as i16);
        sum + low + (one >> 16) * (other >> 16)
    }

    #[inline(always)]
    fn floats(self, number: i32) -> f32 {
        number as f32
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use pulp::x86::{V3, V4};
    use pulp::{cast, f32x8, f32x16, i32x8, i32x16};

    use super::Pairs;

    impl Pairs for V3 {
        #[inline(always)]
        fn add_products(self, sums: i32x8, one: i32x8, other: i32x8) -> i32x8 {
            let products = self.multiply_wrapping_add_adjacent_i16x16(cast(one), cast(other));
            self.wrapping_add_i32x8(sums, products)
        }

        #[inline(always)]
        fn floats(self, numbers: i32x8) -> f32x8 {
            self.convert_i32x8_to_f32x8(numbers)
        }
    }

    impl Pairs for V4 {
        #[inline(always)]
        fn add_products(self, sums: i32x16, one: i32x16, other: i32x16) -> i32x16 {
            let products = self.multiply_wrapping_add_adjacent_i16x32(cast(one), cast(other));
            self.wrapping_add_i32x16(sums, products)
        }

        #[inline(always)]
        fn floats(self, numbers: i32x16) -> f32x16 {
            self.convert_i32x16_to_f32x16(numbers)
        }
    }
}

/// Runs `work` with the widest registers of this processor.
pub(super) fn dispatch(work: impl WithPairs) {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(simd) = pulp::x86::V4::try_new() {
            return simd.vectorize(Call { simd, work });
        }
        if let Some(simd) = pulp::x86::V3::try_new() {
            return simd.vectorize(Call { simd, work });
        }
    }
    work.run(Scalar);
}

/// Work, and the processor that it is compiled for.
struct Call<S, W> {
    simd: S,
    work: W,
}

impl<S: Pairs, W: WithPairs> NullaryFnOnce for Call<S, W> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        self.work.run(self.simd);
    }
}
