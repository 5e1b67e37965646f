//! Selects the smallest keys without copying them, by a radix descent over the bits in which the
//! keys differ.

const DIGIT_BITS: u32 = 11;

/// Picks the keys below `key` and the first `ties` of those equal to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Smallest {
    key: u64,
    ties: usize,
}

impl Smallest {
    /// A rule that picks the `count` smallest of `keys()`; among equals, earlier keys first. `keys`
    /// is walked up to seven times, typically three, and must yield at least `count` keys.
    ///
    /// **Cost** 16 KiB of memory, for any number of keys.
    pub(crate) fn of<I: Iterator<Item = u64>>(count: usize, keys: impl Fn() -> I) -> Self {
        if count == 0 {
            return Self { key: 0, ties: 0 };
        }
        let (all, any) = keys().fold((u64::MAX, 0), |(all, any), key| (all & key, any | key));
        let mut undecided = all ^ any;
        let mut known = !undecided;
        let mut prefix = all & known;
        let mut left = count;
        while undecided != 0 {
            let shift = (u64::BITS - undecided.leading_zeros()).saturating_sub(DIGIT_BITS);
            let digit = (1u64 << DIGIT_BITS) - 1;
            let mut bins = vec![0usize; 1 << DIGIT_BITS];
            for key in keys().filter(|key| key & known == prefix) {
                bins[(key >> shift & digit) as usize] += 1;
            }
            let mut bin = 0;
            while bins[bin] < left {
                left -= bins[bin];
                bin += 1;
            }
            known |= digit << shift;
            prefix = prefix & !(digit << shift) | (bin as u64) << shift;
            undecided &= (1 << shift) - 1;
            if bins[bin] == left {
                // All keys of this bin are picked, for any value of their undecided bits.
                prefix |= undecided;
                break;
            }
        }
        Self { key: prefix, ties: left }
    }

    /// Whether the next key is picked; keys must have the same order as in [`Smallest::of`].
    #[inline]
    pub(crate) fn picks(&mut self, key: u64) -> bool {
        if key != self.key {
            return key < self.key;
        }
        let picked = self.ties > 0;
        self.ties -= usize::from(picked);
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_smallest_keys_are_picked_and_ties_go_to_the_first(
            keys in prop_oneof![
                proptest::collection::vec(any::<u64>(), 1..200),
                proptest::collection::vec(0u64..8, 1..200),
                proptest::collection::vec((0u64..3, 0u64..5).prop_map(|(a, b)| a << 40 | b), 1..200),
            ],
            share in 0.0..=1.0f64,
        ) {
            let count = (keys.len() as f64 * share) as usize;
            let mut order: Vec<usize> = (0..keys.len()).collect();
            order.sort_by_key(|&i| (keys[i], i));
            let mut expected = order[..count].to_vec();
            expected.sort_unstable();
            let mut smallest = Smallest::of(count, || keys.iter().copied());
            let picked: Vec<usize> = (0..keys.len()).filter(|&i| smallest.picks(keys[i])).collect();
            prop_assert_eq!(picked, expected);
        }
    }
}
