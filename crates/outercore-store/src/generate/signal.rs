//! Strength of the class signal in the features.

use std::f64::consts::PI;

/// Share of nodes that the best classifier gets right from the features alone, with standard noise.
pub(super) const FEATURES_ALONE: f64 = 0.62;

/// The norm of the class centroids at which the best classifier of `classes` classes reaches
/// `accuracy`, with standard normal noise.
///
/// Centroids are treated as orthogonal, which random vectors in many dimensions nearly are. Then
/// the score of the right class is normal around the norm, and the other scores are normal around
/// zero. The classifier is right if the score of the right class is the largest.
pub(super) fn centroid_norm(classes: u64, accuracy: f64) -> f64 {
    let (mut low, mut high) = (0.0, 10.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if best_accuracy(middle, classes) < accuracy { low = middle } else { high = middle }
    }
    high
}

/// The integral of `pdf(x - norm) cdf(x)^(classes - 1)`, by the trapezoidal rule.
fn best_accuracy(norm: f64, classes: u64) -> f64 {
    const STEP: f64 = 0.01;
    const FROM: f64 = -8.0;
    let pdf = |x: f64| (-x * x / 2.0).exp() / (2.0 * PI).sqrt();
    let steps = ((norm + 8.0 - FROM) / STEP) as u32;
    let (mut cdf, mut sum) = (0.0, 0.0);
    for step in 0..steps {
        let x = FROM + f64::from(step) * STEP;
        cdf += STEP * (pdf(x) + pdf(x + STEP)) / 2.0;
        sum += STEP * pdf(x + STEP - norm) * f64::min(cdf, 1.0).powf(classes as f64 - 1.0);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_is_chance_without_a_signal_and_grows_with_it() {
        for classes in [2, 10, 1000] {
            let chance = best_accuracy(0.0, classes);
            assert!((chance - 1.0 / classes as f64).abs() < 1e-3, "{classes}: {chance}");
            assert!(best_accuracy(8.0, classes) > 0.99);
        }
        // For two classes, it is the cumulative normal distribution at norm / sqrt(2).
        assert!((best_accuracy(2f64.sqrt(), 2) - 0.841_34).abs() < 1e-3);
    }

    #[test]
    fn the_norm_gives_the_accuracy_asked_for() {
        for classes in [2, 7, 40] {
            let norm = centroid_norm(classes, FEATURES_ALONE);
            assert!((best_accuracy(norm, classes) - FEATURES_ALONE).abs() < 1e-6);
        }
    }
}
