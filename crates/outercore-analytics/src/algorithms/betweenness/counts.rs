//! Numbers of paths, which can exceed the range of a double.

/// Binary logarithm of the unit of exponents.
const STEP: i32 = 512;

/// For each node, a number of paths `mantissa * 2^(512 * exponent)`. The mantissa is 0, or at least
/// 1 and below 2^512. A grid of 525 by 525 nodes has 2^1044 paths from corner to corner.
#[derive(Default)]
pub(super) struct Counts {
    mantissa: Vec<f64>,
    exponent: Vec<u32>,
}

/// A number of paths, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Count {
    pub(super) mantissa: f64,
    pub(super) exponent: u32,
}

impl Count {
    pub(super) const ONE: Self = Self { mantissa: 1.0, exponent: 0 };

    fn sum(self, other: Self) -> Self {
        let (high, low) =
            if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        let mantissa = high.mantissa + times_power(low.mantissa, high.exponent - low.exponent);
        if mantissa < 2f64.powi(STEP) {
            return Self { mantissa, ..high };
        }
        Self { mantissa: mantissa * 2f64.powi(-STEP), exponent: high.exponent + 1 }
    }

    /// `part` divided by this number of paths: only the mantissa is divided, the exponent stays.
    pub(super) fn divides(self, part: f64) -> Self {
        Self { mantissa: part / self.mantissa, exponent: self.exponent }
    }

    /// This number times a quotient by a number that is at least as large: see [`Count::divides`].
    pub(super) fn times(self, divided: Self) -> f64 {
        let product = self.mantissa * divided.mantissa;
        times_power(product, divided.exponent - self.exponent)
    }
}

/// `value * 2^(-512 * steps)`.
fn times_power(value: f64, steps: u32) -> f64 {
    match steps {
        0 => value,
        // In several factors, because the whole power would be too small for a double.
        1..=3 => (0..steps).fold(value, |value, _| value * 2f64.powi(-STEP)),
        _ => 0.0,
    }
}

impl Counts {
    pub(super) fn new(len: usize) -> Self {
        Self { mantissa: vec![0.0; len], exponent: vec![0; len] }
    }

    pub(super) fn clear(&mut self) {
        self.mantissa.fill(0.0);
        self.exponent.fill(0);
    }

    pub(super) fn get(&self, local: usize) -> Count {
        Count { mantissa: self.mantissa[local], exponent: self.exponent[local] }
    }

    /// Whether the number of a node is not 0.
    pub(super) fn has(&self, local: usize) -> bool {
        self.mantissa[local] > 0.0
    }

    pub(super) fn set(&mut self, local: usize, count: Count) {
        self.mantissa[local] = count.mantissa;
        self.exponent[local] = count.exponent;
    }

    pub(super) fn reset(&mut self, local: usize) {
        self.mantissa[local] = 0.0;
    }

    pub(super) fn add(&mut self, local: usize, count: Count) {
        let sum = self.get(local).sum(count);
        self.set(local, sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubling_goes_on_beyond_what_a_double_holds() {
        let mut counts = Counts::new(1);
        counts.set(0, Count::ONE);
        for _ in 0..5000 {
            counts.add(0, counts.get(0));
        }
        let found = counts.get(0);
        assert_eq!(found, Count { mantissa: 2f64.powi(5000 % 512), exponent: 5000 / 512 });
        // `half` has half as many paths as `found`, so it gets half of the share of 3.
        let mut half = Count::ONE;
        for _ in 0..4999 {
            half = half.sum(half);
        }
        assert_eq!(half.times(found.divides(3.0)), 1.5);
        assert_eq!(Count::ONE.times(found.divides(3.0)), 0.0);
    }

    #[test]
    fn numbers_far_apart_leave_the_larger_one() {
        let large = Count { mantissa: 3.0, exponent: 7 };
        assert_eq!(large.sum(Count::ONE), large);
        assert_eq!(Count::ONE.sum(large), large);
        let near = Count { mantissa: 2f64.powi(511), exponent: 6 };
        assert_eq!(large.sum(near), Count { mantissa: 3.5, exponent: 7 });
    }
}
