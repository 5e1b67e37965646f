//! Divides the seeds into batches if several processes share an epoch. Pure.

use std::ops::Range;

use outercore_core::{Error, Result};

use crate::config::LoaderConfig;

/// The seeds of one rank, batch by batch, as places in the epoch's order.
///
/// The order is the same on all ranks. The ranks take full batches from it in turn: batch `b` of
/// rank `r` is batch `b * world_size + r` of a single process. The rest is cut into equal parts,
/// which differ by at most one seed. If the rest is too small to give each rank a seed, the
/// previous round is cut together with it. All ranks therefore have the same number of batches, no
/// batch is empty, and every seed is in exactly one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    batch_size: u64,
    rank: u64,
    world_size: u64,
    /// Rounds in which every rank takes a full batch.
    full: u64,
    /// Rounds after the full ones, 0 to 2.
    cut: u64,
    /// Seeds of the rounds that are cut.
    left: u64,
}

impl Share {
    /// The seeds of the configured rank, out of `seeds` seeds.
    ///
    /// # Errors
    /// `Invalid` if the seeds are too few to give every rank a non-empty batch.
    pub fn new(seeds: u64, config: &LoaderConfig) -> Result<Self> {
        let LoaderConfig { batch_size, rank, world_size, .. } = *config;
        let round = batch_size * world_size;
        let (mut full, mut left) = (seeds / round, seeds % round);
        let mut cut = u64::from(left > 0);
        if config.drop_last {
            (cut, left) = (0, 0);
        } else if left > 0 && left < world_size {
            if full == 0 {
                return Err(Error::invalid(format!(
                    "{seeds} seeds for {world_size} ranks, expected at least one for each rank"
                ))
                .hint("use fewer processes, or more input nodes"));
            }
            if batch_size == 1 {
                return Err(Error::invalid(format!(
                    "{seeds} seeds in batches of 1 leave {left} for {world_size} ranks"
                ))
                .hint("use a batch size of 2 or more, or drop_last=True"));
            }
            full -= 1;
            left += round;
            cut = 2;
        }
        Ok(Self { batch_size, rank, world_size, full, cut, left })
    }

    /// Batches per epoch, the same on every rank.
    pub fn num_batches(&self) -> u64 {
        self.full + self.cut
    }

    /// Places of the seeds of a batch in the order of the epoch.
    pub fn places(&self, batch: u64) -> Range<u64> {
        let round = self.batch_size * self.world_size;
        if batch < self.full {
            let start = batch * round + self.rank * self.batch_size;
            return start..start + self.batch_size;
        }
        let of_round = part(0..self.left, self.cut, batch - self.full);
        let own = part(of_round, self.world_size, self.rank);
        let first = self.full * round;
        first + own.start..first + own.end
    }

    /// Number of a batch among the batches of all ranks: a coordinate of the randomness.
    pub fn number(&self, batch: u64) -> u64 {
        batch * self.world_size + self.rank
    }
}

/// Part `index` of `whole` cut into `parts`; the first parts are the longer ones.
fn part(whole: Range<u64>, parts: u64, index: u64) -> Range<u64> {
    let len = whole.end - whole.start;
    let (each, longer) = (len / parts, len % parts);
    let start = whole.start + index * each + index.min(longer);
    start..start + each + u64::from(index < longer)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(seeds: u64, batch_size: u64, world_size: u64, drop_last: bool) -> Result<Vec<Share>> {
        let config = LoaderConfig { batch_size, world_size, drop_last, ..LoaderConfig::default() };
        (0..world_size)
            .map(|rank| Share::new(seeds, &LoaderConfig { rank, ..config.clone() }))
            .collect()
    }

    proptest! {
        #[test]
        fn ranks_share_every_seed_once_in_equally_many_batches(
            seeds in 0u64..300, batch_size in 1u64..20, world_size in 1u64..7,
        ) {
            let Ok(shares) = shares(seeds, batch_size, world_size, false) else {
                prop_assert!(seeds < world_size || batch_size == 1);
                return Ok(());
            };
            let batches = shares[0].num_batches();
            prop_assert_eq!(batches, seeds.div_ceil(batch_size * world_size));
            let mut seen = Vec::new();
            for batch in 0..batches {
                let places: Vec<_> = shares.iter().map(|share| share.places(batch)).collect();
                let sizes = || places.iter().map(|places| places.end - places.start);
                prop_assert!(sizes().min() >= Some(1));
                prop_assert!(sizes().max() <= Some(batch_size));
                prop_assert!(sizes().max().unwrap() - sizes().min().unwrap() <= 1);
                seen.extend(places.into_iter().flatten());
            }
            prop_assert_eq!(seen, (0..seeds).collect::<Vec<_>>());
            prop_assert!(shares.iter().all(|share| share.num_batches() == batches));
        }

        #[test]
        fn full_batches_are_those_of_one_process_in_turn(
            seeds in 0u64..300, batch_size in 1u64..20, world_size in 1u64..7,
        ) {
            let alone = shares(seeds, batch_size, 1, true).unwrap()[0];
            let mut numbers = Vec::new();
            for share in shares(seeds, batch_size, world_size, true).unwrap() {
                for batch in 0..share.num_batches() {
                    let number = share.number(batch);
                    prop_assert_eq!(share.places(batch), alone.places(number));
                    numbers.push(number);
                }
            }
            numbers.sort_unstable();
            prop_assert_eq!(numbers, (0..seeds / (batch_size * world_size) * world_size)
                .collect::<Vec<_>>());
        }
    }

    #[test]
    fn too_few_seeds_for_the_ranks_are_refused() {
        let error = shares(3, 8, 4, false).unwrap_err();
        assert!(error.to_string().contains("3 seeds for 4 ranks"), "{error}");
        let error = shares(7, 1, 2, false).unwrap_err();
        assert!(error.to_string().contains("leave 1 for 2 ranks"), "{error}");
        assert_eq!(shares(0, 8, 4, false).unwrap()[3].num_batches(), 0);
    }
}
