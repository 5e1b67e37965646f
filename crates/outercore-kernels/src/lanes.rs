//! Vector instructions, chosen once for each call of a kernel.

use pulp::{NullaryFnOnce, Simd};

/// The lanes of a vector register, with the operations that kernels are written in.
pub trait Lanes: Simd {
    /// 1 / sqrt(x) to the rounding of a number, for x from the smallest normal number up.
    fn inverse_root(self, x: Self::f32s) -> Self::f32s;

    /// Without the sign.
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

/// Work that is written once for all kinds of lanes.
pub trait Kernel {
    /// What it computes.
    type Output;

    /// Does the work.
    ///
    /// It and all that it calls with `lanes` must be `#[inline(always)]`, and no closure may
    /// compute with them: a function that is not inlined is compiled without their instructions.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Runs a kernel with the widest vectors of this machine.
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

/// One step of Newton's method doubles the digits of `y`, a rough 1 / sqrt(x).
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
        // 14 digits of the 24 that a number has.
        let rough = self.avx512f._mm512_rsqrt14_ps(bytemuck::cast(x));
        refine(self, x, bytemuck::cast(rough))
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes for pulp::x86::V3 {
    #[inline(always)]
    fn inverse_root(self, x: Self::f32s) -> Self::f32s {
        // 12 digits: two steps.
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
