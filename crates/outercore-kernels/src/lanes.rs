//! Vector instructions, selected once per call of a kernel.

use pulp::{NullaryFnOnce, Simd};

/// The lanes of a vector register, with the operations that kernels use.
pub trait Lanes: Simd {
    /// 1 / sqrt(x) to the precision of `f32`, for x at or above the smallest normal number.
    fn inverse_root(self, x: Self::f32s) -> Self::f32s;

    /// The absolute value.
    #[inline(always)]
    fn absolute(self, x: Self::f32s) -> Self::f32s {
        let bits = self.transmute_u32s_f32s(x);
        self.transmute_f32s_u32s(self.and_u32s(bits, self.splat_u32s(0x7fff_ffff)))
    }

    /// One number in every lane.
    #[inline(always)]
    fn splat(self, value: f32) -> Self::f32s {
        self.splat_f32s(value)
    }
}

/// Work written once for all lane widths.
pub trait Kernel {
    /// Result of the work.
    type Output;

    /// Does the work.
    ///
    /// This function and all functions that it calls with `lanes` must be `#[inline(always)]`, and
    /// no closure may compute with lanes: a function that is not inlined is compiled without vector
    /// instructions.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Runs a kernel with the widest vectors of this processor.
pub fn dispatch<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(lanes) = pulp::x86::V4::try_new() {
            return lanes.vectorize(On { kernel, lanes });
        }
        if let Some(lanes) = pulp::x86::V3::try_new() {
            return lanes.vectorize(On { kernel, lanes });
        }
    }
    On { kernel, lanes: pulp::Scalar256b }.call()
}

struct On<K, L> {
    kernel: K,
    lanes: L,
}

impl<K: Kernel, L: Lanes> NullaryFnOnce for On<K, L> {
    type Output = K::Output;

    #[inline(always)]
    fn call(self) -> Self::Output {
        self.kernel.run(self.lanes)
    }
}

/// One step of Newton's method doubles the correct digits of `y`, an approximation of 1 / sqrt(x).
#[inline(always)]
fn refine<S: Simd>(lanes: S, x: S::f32s, y: S::f32s) -> S::f32s {
    let half = lanes.splat_f32s(0.5);
    let root = lanes.mul_f32s(x, y);
    let half_inverse = lanes.mul_f32s(y, half);
    let error = lanes.negate_mul_add_f32s(root, half_inverse, half);
    lanes.mul_add_f32s(y, error, y)
}

#[cfg(target_arch = "x86_64")]
impl Lanes for pulp::x86::V4 {
    #[inline(always)]
    fn inverse_root(self, x: Self::f32s) -> Self::f32s {
        // 14 correct bits of 24.
        let rough = self.avx512f._mm512_rsqrt14_ps(bytemuck::cast(x));
        refine(self, x, bytemuck::cast(rough))
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes for pulp::x86::V3 {
    #[inline(always)]
    fn inverse_root(self, x: Self::f32s) -> Self::f32s {
        // 12 correct bits, so two steps are needed.
        let rough = self.avx._mm256_rsqrt_ps(bytemuck::cast(x));
        let once = refine(self, x, bytemuck::cast(rough));
        refine(self, x, once)
    }
}

impl Lanes for pulp::Scalar256b {
    #[inline(always)]
    fn inverse_root(self, x: Self::f32s) -> Self::f32s {
        let numbers: [f32; 8] = bytemuck::cast(x);
        bytemuck::cast(numbers.map(|number| 1.0 / number.sqrt()))
    }
}
