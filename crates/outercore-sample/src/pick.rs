//! Picks the in-edges of a node: a function only of its degree and its draws.
//!
//! [`crate::floyd`] does the same for many nodes at once if the fan-out is small.

use outercore_core::Uniform;

use crate::config::{FanOut, SampleConfig, Step};
use crate::floyd::MOST_PICKS;

/// The rule of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picker {
    fan_out: FanOut,
    replace: bool,
}

impl Picker {
    pub(crate) fn of_step(config: &SampleConfig, step: Step) -> Self {
        Self { fan_out: step.fan_out, replace: config.replace }
    }

    /// Whether an edge may be drawn several times.
    pub(crate) fn replaces(&self) -> bool {
        self.replace
    }

    /// The fan-out if it is small enough to draw for many nodes at once.
    pub(crate) fn few_distinct(&self) -> Option<usize> {
        match self.fan_out {
            FanOut::Take(count) if !self.replace => Some(count as usize),
            _ => None,
        }
        .filter(|&count| count <= MOST_PICKS)
    }

    /// How many in-edges of a node with `degree` are picked.
    #[inline]
    pub(crate) fn count(&self, degree: u64) -> u64 {
        match self.fan_out {
            FanOut::All => degree,
            FanOut::Take(count) if self.replace && degree > 0 => u64::from(count),
            FanOut::Take(count) => degree.min(u64::from(count)),
        }
    }

    /// Fills `places`, whose length is the result of [`Picker::count`], with numbers below
    /// `degree`. Without replacement they are ascending and distinct, with replacement in order of
    /// draw. `draws` is called only if the choice is random.
    ///
    /// # Source
    /// Robert Floyd's sampling algorithm, in Bentley, "Programming pearls: a sample of brilliance",
    /// Communications of the ACM 30(9), 1987.
    #[inline]
    pub(crate) fn pick(
        &self,
        degree: u64,
        draws: impl FnOnce() -> Uniform,
        places: &mut [u64],
        taken: &mut Taken,
    ) {
        if self.replace && self.fan_out != FanOut::All {
            let mut draws = draws();
            places.fill_with(|| draws.below(degree));
        } else if places.len() as u64 == degree {
            for (place, i) in places.iter_mut().zip(0..) {
                *place = i;
            }
        } else {
            floyd(degree, draws(), places, taken);
        }
    }
}

fn floyd(degree: u64, mut draws: Uniform, places: &mut [u64], taken: &mut Taken) {
    taken.reset(places.len());
    let first_last = degree - places.len() as u64;
    for (place, last) in places.iter_mut().zip(first_last..degree) {
        let drawn = draws.below(last + 1);
        *place = if taken.insert(drawn) {
            drawn
        } else {
            // `last` is greater than all numbers drawn before.
            taken.insert(last);
            last
        };
    }
    places.sort_unstable();
}

/// A set of numbers with open addressing; kept to save its allocation.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Number + 1; 0 is empty. At most half full.
    slots: Vec<u64>,
    shift: u32,
}

impl Taken {
    fn reset(&mut self, room: usize) {
        let len = (room * 2).next_power_of_two().max(2);
        self.slots.clear();
        self.slots.resize(len, 0);
        self.shift = u64::BITS - len.trailing_zeros();
    }

    /// Adds `number` and returns whether it is new.
    fn insert(&mut self, number: u64) -> bool {
        let mask = self.slots.len() - 1;
        let mut at = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize;
        loop {
            match self.slots[at] {
                0 => {
                    self.slots[at] = number + 1;
                    return true;
                }
                held if held == number + 1 => return false,
                _ => at = (at + 1) & mask,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outercore_core::Stream;
    use proptest::prelude::*;

    fn picks(config: &SampleConfig, degree: u64, node: u64) -> Vec<u64> {
        let picker = Picker::of_step(config, config.steps(0)[0]);
        let mut places = vec![0; picker.count(degree) as usize];
        let draws = || Stream::new(0, 0).uniform(0, 0, node);
        picker.pick(degree, draws, &mut places, &mut Taken::default());
        places
    }

    fn without_replacement(count: u32) -> SampleConfig {
        SampleConfig { fan_outs: vec![FanOut::Take(count)], ..SampleConfig::full_neighbours() }
    }

    proptest! {
        #[test]
        fn picks_without_replacement_are_distinct_sorted_and_in_range(
            count in 0u32..400,
            degree in prop_oneof![0u64..500, Just(u64::MAX / 2), Just(u64::from(u32::MAX))],
            node in any::<u64>(),
        ) {
            let found = picks(&without_replacement(count), degree, node);
            prop_assert_eq!(found.len() as u64, degree.min(u64::from(count)));
            prop_assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
            prop_assert!(found.last().is_none_or(|&last| last < degree));
        }

    }

    #[test]
    fn every_pair_of_edges_is_equally_likely() {
        let mut counts = [[0u32; 5]; 5];
        let config = without_replacement(2);
        for node in 0..100_000 {
            let found = picks(&config, 5, node);
            counts[found[0] as usize][found[1] as usize] += 1;
        }
        for (first, row) in counts.iter().enumerate() {
            for &count in &row[first + 1..] {
                assert!(count.abs_diff(10_000) < 500, "{counts:?}");
            }
        }
    }
}
