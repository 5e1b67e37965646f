//! Philox for many nodes at once, one node in each lane of a vector register.
//!
//! The random numbers equal the numbers of [`crate::Uniform`] and [`Permutation::at`]. All
//! functions here except the entry points are `#[inline(always)]`: a function that is not inlined
//! is compiled without the vector instructions.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use crate::random::{MULTIPLIER, Permutation, ROUNDS, Stream, WEYL};

/// One block of Philox 4x32-10 in each lane.
#[inline(always)]
fn philox<S: Simd>(simd: S, mut counter: [S::u32s; 4], mut key: [u32; 2]) -> [S::u32s; 4] {
    #[cfg(target_arch = "x86_64")]
    if let Some(&simd) = (&simd as &dyn std::any::Any).downcast_ref::<pulp::x86::V4>() {
        return halves::philox(simd, counter.map(bytemuck::cast), key).map(bytemuck::cast);
    }
    let multiplier = MULTIPLIER.map(|word| simd.splat_u32s(word));
    for _ in 0..ROUNDS {
        let low = simd.widening_mul_u32s(multiplier[0], counter[0]);
        let high = simd.widening_mul_u32s(multiplier[1], counter[2]);
        counter = [
            simd.xor_u32s(simd.xor_u32s(high.1, counter[1]), simd.splat_u32s(key[0])),
            high.0,
            simd.xor_u32s(simd.xor_u32s(low.1, counter[3]), simd.splat_u32s(key[1])),
            low.0,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// Philox with AVX-512, half of the lanes in each of two registers.
///
/// The product of two 32-bit words has 64 bits. With 64-bit lanes, no words have to be moved before
/// and after each multiplication; moving them costs more than multiplying. Only the low half of
/// each lane counts; the high half may hold anything.
#[cfg(target_arch = "x86_64")]
mod halves {
    use std::arch::x86_64::__m512i;

    use pulp::x86::V4;

    use crate::random::{MULTIPLIER, ROUNDS, WEYL};

    #[inline(always)]
    pub fn philox(simd: V4, counter: [__m512i; 4], key: [u32; 2]) -> [__m512i; 4] {
        let simd512 = simd.avx512f;
        let even = rounds(simd, counter, key);
        let odd = rounds(simd, counter.map(|word| simd512._mm512_srli_epi64::<32>(word)), key);
        std::array::from_fn(|i| {
            let high = simd512._mm512_slli_epi64::<32>(odd[i]);
            simd512._mm512_mask_blend_epi32(0xAAAA, even[i], high)
        })
    }

    #[inline(always)]
    fn rounds(simd: V4, mut counter: [__m512i; 4], mut key: [u32; 2]) -> [__m512i; 4] {
        let simd = simd.avx512f;
        let splat = |word: u32| simd._mm512_set1_epi64(word.into());
        let multiplier = MULTIPLIER.map(splat);
        for _ in 0..ROUNDS {
            let low = simd._mm512_mul_epu32(multiplier[0], counter[0]);
            let high = simd._mm512_mul_epu32(multiplier[1], counter[2]);
            let mixed = |product, word, key| {
                let product = simd._mm512_srli_epi64::<32>(product);
                simd._mm512_xor_si512(simd._mm512_xor_si512(product, word), splat(key))
            };
            counter = [mixed(high, counter[1], key[0]), high, mixed(low, counter[3], key[1]), low];
            key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        }
        counter
    }
}

/// 64 random bits in each lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneBits<S: Simd> {
    low: S::u32s,
    high: S::u32s,
}

impl<S: Simd> LaneBits<S> {
    /// A number below `bound` in each lane, from the same bits and by the same rule as
    /// [`crate::Uniform::below`].
    #[inline(always)]
    pub fn below(self, simd: S, bound: S::u32s) -> S::u32s {
        let (low, high) = simd.widening_mul_u32s(self.high, bound);
        let (_, carried) = simd.widening_mul_u32s(self.low, bound);
        let overflows = simd.less_than_u32s(simd.add_u32s(low, carried), low);
        simd.select_u32s(overflows, simd.add_u32s(high, simd.splat_u32s(1)), high)
    }
}

impl Stream {
    /// Draws `2 * pair` and `2 * pair + 1` of `(batch, hop, node)` for the node of each lane.
    /// `nodes` holds the low and the high halves of the node ids.
    #[inline(always)]
    pub fn pair<S: Simd>(
        &self,
        simd: S,
        batch: u64,
        hop: u32,
        nodes: [S::u32s; 2],
        pair: u32,
    ) -> [LaneBits<S>; 2] {
        let counter = [
            nodes[0],
            nodes[1],
            simd.splat_u32s(batch as u32),
            simd.splat_u32s(((hop & 0xFF) << 24).wrapping_add(pair)),
        ];
        let [a, b, c, d] = philox(simd, counter, self.key);
        [LaneBits { low: a, high: b }, LaneBits { low: c, high: d }]
    }
}

impl Permutation {
    /// The elements at `places`: the results of [`Permutation::at`], several times as fast.
    ///
    /// # Panics
    /// If a place is not below the length.
    ///
    /// # Example
    /// ```
    /// use outercore_core::Permutation;
    /// let order = Permutation::new(100, 1, 0);
    /// assert_eq!(order.range(7..9), [order.at(7), order.at(8)]);
    /// ```
    pub fn range(&self, places: Range<u64>) -> Vec<u64> {
        let len = self.len();
        assert!(places.end <= len, "places to {} of a permutation of {len}", places.end);
        let mut values: Vec<u64> = places.collect();
        Arch::new().dispatch(Encrypt { order: self, values: &mut values });
        // Cycle walking: values outside the range go through the network again, packed together.
        let mut outside: Vec<usize> = (0..values.len()).filter(|&at| values[at] >= len).collect();
        while !outside.is_empty() {
            let mut again: Vec<u64> = outside.iter().map(|&at| values[at]).collect();
            Arch::new().dispatch(Encrypt { order: self, values: &mut again });
            for (&at, &value) in outside.iter().zip(&again) {
                values[at] = value;
            }
            outside.retain(|&at| values[at] >= len);
        }
        values
    }
}

/// Sends every value through the Feistel network once.
struct Encrypt<'a> {
    order: &'a Permutation,
    values: &'a mut [u64],
}

impl WithSimd for Encrypt<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { order, values } = self;
        let (half_bits, zero) = (order.half_bits, simd.splat_u32s(0));
        let mask = ((1u64 << half_bits) - 1) as u32;
        for values in values.chunks_mut(S::U32_LANES) {
            let (mut left, mut right) = (zero, zero);
            let halves =
                values.iter().zip(lanes_mut::<S>(&mut left)).zip(lanes_mut::<S>(&mut right));
            for ((&value, left), right) in halves {
                *left = (value >> half_bits) as u32;
                *right = value as u32 & mask;
            }
            for round in 0..Permutation::FEISTEL_ROUNDS {
                let counter =
                    [right, zero, simd.splat_u32s(round), simd.splat_u32s(Permutation::TWEAK)];
                let noise =
                    simd.and_u32s(philox(simd, counter, order.key)[0], simd.splat_u32s(mask));
                (left, right) = (right, simd.xor_u32s(left, noise));
            }
            let halves =
                values.iter_mut().zip(lanes_mut::<S>(&mut left)).zip(lanes_mut::<S>(&mut right));
            for ((value, left), right) in halves {
                *value = u64::from(*left) << half_bits | u64::from(*right);
            }
        }
    }
}

#[inline(always)]
fn lanes_mut<S: Simd>(register: &mut S::u32s) -> &mut [u32] {
    bytemuck::cast_slice_mut(std::slice::from_mut(register))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first four draws below `bound`, `bound + 1`, ... of each node.
    struct Draw<'a> {
        stream: Stream,
        nodes: &'a [u64],
        bound: u32,
        drawn: Vec<[u32; 4]>,
    }

    impl WithSimd for Draw<'_> {
        type Output = Vec<[u32; 4]>;

        #[inline(always)]
        fn with_simd<S: Simd>(mut self, simd: S) -> Self::Output {
            for nodes in self.nodes.chunks(S::U32_LANES) {
                let mut halves = [simd.splat_u32s(0); 2];
                let mut drawn = [simd.splat_u32s(0); 4];
                let [low, high] = &mut halves;
                let lanes = lanes_mut::<S>(low).iter_mut().zip(lanes_mut::<S>(high));
                for ((low, high), &node) in lanes.zip(nodes) {
                    (*low, *high) = (node as u32, (node >> 32) as u32);
                }
                for pair in 0..2 {
                    let bits = self.stream.pair(simd, 1 << 33 | 5, 3, halves, pair);
                    for (i, bits) in (2 * pair..).zip(bits) {
                        drawn[i as usize] = bits.below(simd, simd.splat_u32s(self.bound + i));
                    }
                }
                for lane in 0..nodes.len() {
                    self.drawn.push(std::array::from_fn(|i| lanes_mut::<S>(&mut drawn[i])[lane]));
                }
            }
            self.drawn
        }
    }

    #[test]
    fn lanes_draw_what_one_node_after_the_other_draws() {
        let stream = Stream::new(11, 3);
        let nodes: Vec<u64> = (0..77).map(|i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        for bound in [1, 2, 10, 1 << 20, (1 << 31) + 12_345, u32::MAX - 3] {
            let expected: Vec<[u32; 4]> = nodes
                .iter()
                .map(|&node| {
                    let mut draws = stream.uniform(1 << 33 | 5, 3, node);
                    std::array::from_fn(|i| draws.below(u64::from(bound) + i as u64) as u32)
                })
                .collect();
            let draw = || Draw { stream, nodes: &nodes, bound, drawn: Vec::new() };
            assert_eq!(Arch::new().dispatch(draw()), expected, "bound {bound}");
            assert_eq!(Arch::Scalar.dispatch(draw()), expected, "bound {bound}, no vectors");
        }
    }

    #[test]
    fn a_range_of_a_permutation_is_its_elements_one_by_one() {
        for len in [1, 2, 17, 1000, 1025, 4097, (1 << 33) + 1, u64::MAX] {
            let order = Permutation::new(len, 11, 2);
            for places in [0..len.min(70), len - len.min(33)..len, 0..0] {
                let expected: Vec<u64> = places.clone().map(|place| order.at(place)).collect();
                assert_eq!(order.range(places), expected, "len {len}");
            }
        }
    }
}
