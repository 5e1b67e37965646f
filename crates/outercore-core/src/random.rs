//! Counter-based randomness: each draw depends only on its purpose, never on the order of draws.
//!
//! The generator is Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
//! SC'11). `tests/python/reference.py` holds the same definition in plain Python; a test
//! compares the two.

pub(crate) const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
pub(crate) const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
pub(crate) const ROUNDS: u32 = 10;

/// One block of Philox 4x32-10.
#[inline]
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let low = u64::from(MULTIPLIER[0]) * u64::from(counter[0]);
        let high = u64::from(MULTIPLIER[1]) * u64::from(counter[2]);
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The finaliser of SplitMix64: a bijection of 64-bit words in which every bit depends on all bits.
///
/// **Source** Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
pub const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// The randomness of one epoch of one run: the Philox key made from `(seed, epoch)`.
///
/// # Example
/// ```
/// use outercore_core::Stream;
/// let mut draws = Stream::new(7, 0).uniform(3, 1, 42);
/// let again = Stream::new(7, 0).uniform(3, 1, 42).below(10);
/// assert_eq!(draws.below(10), again);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    pub(crate) key: [u32; 2],
}

impl Stream {
    /// The stream of epoch `epoch` of a run seeded with `seed`.
    pub const fn new(seed: u64, epoch: u64) -> Self {
        let key = mix(mix(seed.wrapping_add(0x9E37_79B9_7F4A_7C15)) ^ epoch);
        Self { key: [key as u32, (key >> 32) as u32] }
    }

    /// The draws that belong to `(batch, hop, node)`.
    ///
    /// `batch` keeps its low 32 bits and `hop` its low 8.
    #[inline]
    pub const fn uniform(&self, batch: u64, hop: u32, node: u64) -> Uniform {
        Uniform {
            key: self.key,
            counter: [node as u32, (node >> 32) as u32, batch as u32, (hop & 0xFF) << 24],
            block: [0; 4],
            left: 0,
        }
    }
}

/// A sequence of uniform draws; at most 2^25 of them are independent.
#[derive(Clone, Debug)]
pub struct Uniform {
    key: [u32; 2],
    counter: [u32; 4],
    block: [u32; 4],
    /// 64-bit words of `block` not yet used.
    left: u8,
}

impl Uniform {
    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        if self.left == 0 {
            self.block = philox(self.counter, self.key);
            self.counter[3] = self.counter[3].wrapping_add(1);
            self.left = 2;
        }
        let word = usize::from(2 - self.left) * 2;
        self.left -= 1;
        u64::from(self.block[word]) | u64::from(self.block[word + 1]) << 32
    }

    /// A number in `0..bound`, by multiply-shift. The bias is below `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A float in `0.0..1.0` with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A pseudo-random permutation of `0..len` in constant memory: a Feistel network over the next
/// even number of bits, cycle-walked into range.
///
/// It shuffles the seeds of an epoch without an array of their size.
///
/// # Example
/// ```
/// use outercore_core::Permutation;
/// let order = Permutation::new(5, 1, 0);
/// let mut seen: Vec<u64> = (0..5).map(|i| order.at(i)).collect();
/// seen.sort();
/// assert_eq!(seen, [0, 1, 2, 3, 4]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    pub(crate) half_bits: u32,
    pub(crate) key: [u32; 2],
}

impl Permutation {
    pub(crate) const FEISTEL_ROUNDS: u32 = 6;
    /// Separates the Philox blocks of permutations from the blocks of samplers.
    pub(crate) const TWEAK: u32 = 0xFE15_7E10;

    /// The order of epoch `epoch` of a run seeded with `seed`.
    pub fn new(len: u64, seed: u64, epoch: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        // The key differs from the sampler's key. With equal keys, order and samples would be
        // correlated.
        let key = Stream::new(seed ^ 0x5EED_0D0E_5EED_0D0E, epoch).key;
        Self { len, half_bits: bits.div_ceil(2).max(1), key }
    }

    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether the permutation is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at place `index`.
    ///
    /// # Panics
    /// If `index` is not below the length.
    pub fn at(&self, index: u64) -> u64 {
        assert!(index < self.len, "place {index} of a permutation of {}", self.len);
        let mut value = self.encrypt(index);
        while value >= self.len {
            value = self.encrypt(value);
        }
        value
    }

    fn encrypt(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..Self::FEISTEL_ROUNDS {
            let block = philox([right as u32, (right >> 32) as u32, round, Self::TWEAK], self.key);
            let noise = u64::from(block[0]) | u64::from(block[1]) << 32;
            (left, right) = (right, left ^ (noise & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_test_vectors() {
        // Random123, kat_vectors, philox4x32 10.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408F_276D, 0x41C8_3B0E, 0xA20B_C7C6, 0x6D54_51FD]
        );
        assert_eq!(
            philox(
                [0x243F_6A88, 0x85A3_08D3, 0x1319_8A2E, 0x0370_7344],
                [0xA409_3822, 0x299F_31D0]
            ),
            [0xD16C_FE09, 0x94FD_CCEB, 0x5001_E420, 0x2412_6EA1]
        );
    }

    #[test]
    fn draws_differ_in_every_coordinate() {
        let base = Stream::new(1, 2).uniform(3, 4, 5).next_u64();
        for (seed, epoch, batch, hop, node) in
            [(9, 2, 3, 4, 5), (1, 9, 3, 4, 5), (1, 2, 9, 4, 5), (1, 2, 3, 9, 5), (1, 2, 3, 4, 9)]
        {
            assert_ne!(Stream::new(seed, epoch).uniform(batch, hop, node).next_u64(), base);
        }
    }

    #[test]
    fn draws_below_a_bound_are_even() {
        let mut counts = [0u32; 10];
        let mut draws = Stream::new(0, 0).uniform(0, 0, 0);
        for _ in 0..100_000 {
            counts[draws.below(10) as usize] += 1;
        }
        for count in counts {
            assert!(count.abs_diff(10_000) < 500, "{counts:?}");
        }
    }

    #[test]
    fn a_permutation_visits_every_element_once() {
        for len in [1, 2, 3, 17, 64, 1000, 4097] {
            for epoch in 0..3 {
                let order = Permutation::new(len, 11, epoch);
                let mut seen: Vec<u64> = (0..len).map(|i| order.at(i)).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..len).collect::<Vec<_>>(), "len {len} epoch {epoch}");
            }
        }
    }

    #[test]
    fn two_epochs_have_different_orders() {
        let (a, b) = (Permutation::new(1000, 5, 0), Permutation::new(1000, 5, 1));
        let same = (0..1000).filter(|&i| a.at(i) == b.at(i)).count();
        assert!(same < 20, "{same} of 1000 places agree");
    }
}
