//! Holds triples and links out for validation and test.

use outercore_core::{Error, Result, Stream};
use serde::{Deserialize, Serialize};

/// A part of the triples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TriplePart {
    /// Triples for training.
    Train,
    /// Held out for validation.
    Valid,
    /// Held out for the final test.
    Test,
}

/// Rule for holding out triples. It is a function of the triple, or of a link's unordered pair of
/// nodes. So nothing is stored, and equal triples or both directions of a link fall into the same
/// part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// Share for validation.
    pub valid: f64,
    /// Share for the test.
    pub test: f64,
    /// Random seed.
    pub seed: u64,
}

impl HeldOut {
    /// Separates these random draws from other draws with the same seed.
    const STREAM: u64 = u64::from_be_bytes(*b"held out");

    /// Checks the shares.
    ///
    /// # Errors
    /// `Invalid`: a share is not between 0 and 1, or nothing is left for training.
    pub fn validate(&self) -> Result<()> {
        let share = |value: f64| (0.0..1.0).contains(&value);
        if share(self.valid) && share(self.test) && self.valid + self.test < 1.0 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "held-out shares {} and {}, expected 0 or more and together less than 1",
            self.valid, self.test
        )))
    }

    /// Whether anything is held out.
    pub(crate) fn any(&self) -> bool {
        self.valid + self.test > 0.0
    }

    /// The part that a link belongs to.
    ///
    /// # Example
    /// ```
    /// use outercore_embed::{HeldOut, TriplePart};
    /// let held_out = HeldOut { valid: 0.0, test: 0.2, seed: 1 };
    /// assert_eq!(held_out.part_of(3, 8), held_out.part_of(8, 3));
    /// let tests = (0..1000).filter(|&node| held_out.part_of(node, 1) == TriplePart::Test);
    /// assert!((150..250).contains(&tests.count()));
    /// ```
    pub fn part_of(&self, source: u64, target: u64) -> TriplePart {
        if !self.any() {
            return TriplePart::Train;
        }
        let (low, high) = (source.min(target), source.max(target));
        self.part_at(Stream::new(self.seed, Self::STREAM).uniform(low, 0, high).unit())
    }

    /// The part of a triple of a knowledge graph. The function `parts_of` in
    /// `tests/python/test_embed_held_out.py` defines it.
    pub fn part_of_triple(&self, triple: &[i64; 3]) -> TriplePart {
        let mixed =
            triple.iter().fold(self.seed ^ Self::STREAM, |word, &number| mix(word) ^ number as u64);
        // 53 bits, as many as a float64 holds: the result is at least 0 and less than 1.
        self.part_at((mix(mixed) >> 11) as f64 / (1u64 << 53) as f64)
    }

    fn part_at(&self, draw: f64) -> TriplePart {
        if draw < self.test {
            TriplePart::Test
        } else if draw < self.test + self.valid {
            TriplePart::Valid
        } else {
            TriplePart::Train
        }
    }
}

/// One step of SplitMix64.
fn mix(word: u64) -> u64 {
    outercore_core::mix(word.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_triples_are_the_same_in_every_release() {
        let held_out = HeldOut { valid: 0.1, test: 0.2, seed: 7 };
        let part = |at: i64| held_out.part_of_triple(&[3 * at, 3 * at + 1, 3 * at + 2]);
        let held: Vec<_> =
            (0..20).map(|at| (at, part(at))).filter(|found| found.1 != TriplePart::Train).collect();
        assert_eq!(held, [(6, TriplePart::Valid), (12, TriplePart::Test)]);
    }
}
