//! Losses of a positive score against negative scores: value and gradient in place, row by row.

use crate::lanes::Lanes;
use crate::scalar::{exponential, softplus, softplus_one};

/// Smaller derivatives of a score become zero.
const LEAST: f32 = 1e-30;

/// A loss function of a row's scores; `outercore.embedding.gradients.losses` is the same in
/// PyTorch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// The negative logarithm of the positive's share in the softmax of all scores.
    Softmax {
        /// Whether the sum leaves out the positive (Legend, equation 1).
        contrastive: bool,
    },
    /// Binary cross entropy of the positive, plus the average over the negatives.
    Logistic {
        /// Added to every score.
        margin: f32,
    },
    /// Average amount by which negatives violate the margin to the positive.
    Margin {
        /// Required distance of the positive from each negative.
        margin: f32,
    },
    /// Logistic loss whose negatives are weighted by the softmax of their scores; the weights are
    /// treated as constants.
    SelfAdversarial {
        /// Added to every score.
        margin: f32,
        /// How strongly higher-scored negatives are preferred.
        temperature: f32,
    },
}

/// Results for a row's positive.
#[derive(Clone, Copy, Debug)]
pub struct RowLoss {
    /// Weighted loss of the row.
    pub value: f32,
    /// Derivative with respect to the positive score.
    pub positive: f32,
}

/// The sum, computed in double precision from first to last.
pub fn total(values: &[f32]) -> f32 {
    values.iter().map(|&value| f64::from(value)).sum::<f64>() as f32
}

/// The loss of one row. `count` is the number of negatives, including hidden ones; hidden scores
/// are minus infinity.
#[inline(always)]
pub fn row_loss<L: Lanes>(
    lanes: L,
    loss: Loss,
    positive: f32,
    weight: f32,
    scores: &mut [f32],
    count: usize,
) -> RowLoss {
    match loss {
        Loss::Softmax { contrastive } => softmax(lanes, contrastive, positive, weight, scores),
        Loss::Logistic { margin } => {
            let share = weight / count as f32;
            let (costs, _) = replace(lanes, scores, &Logistic { margin: lanes.splat(margin) });
            scale(lanes, scores, share);
            let (cost, slope) = softplus_one(-(positive + margin));
            RowLoss { value: weight * cost + share * costs, positive: -weight * slope }
        }
        Loss::Margin { margin } => {
            let share = weight / count as f32;
            let edge = lanes.splat(positive - margin);
            let change = Violation { edge, factor: lanes.splat(share) };
            let (missing, violated) = replace(lanes, scores, &change);
            RowLoss { value: share * missing, positive: -violated }
        }
        Loss::SelfAdversarial { margin, temperature } => {
            self_adversarial(lanes, margin, temperature, positive, weight, scores)
        }
    }
}

#[inline(always)]
fn softmax<L: Lanes>(
    lanes: L,
    contrastive: bool,
    positive: f32,
    weight: f32,
    scores: &mut [f32],
) -> RowLoss {
    let largest = largest(lanes, scores);
    let empty = largest == f32::NEG_INFINITY;
    let shift = lanes.splat(if empty { 0.0 } else { largest });
    let (sum, _) = replace(lanes, scores, &Exponential { shift });
    if empty && contrastive {
        return RowLoss { value: 0.0, positive: 0.0 };
    }
    if contrastive {
        scale(lanes, scores, weight / sum);
        return RowLoss { value: weight * (largest + sum.ln() - positive), positive: -weight };
    }
    let (cost, others) = cross_entropy(sum, largest, positive);
    if !empty {
        scale(lanes, scores, weight * others / sum);
    }
    RowLoss { value: weight * cost, positive: -weight * others }
}

/// log(1 + z) for z = sum * exp(largest - positive), and the share z / (1 + z) of the scores in
/// `sum`.
///
/// Uses the one of two exponentials that cannot overflow, and one logarithm.
#[inline(always)]
fn cross_entropy(sum: f32, largest: f32, positive: f32) -> (f32, f32) {
    let ahead = largest - positive;
    if ahead > 0.0 {
        let total = sum + (-ahead).exp();
        (ahead + total.ln(), sum / total)
    } else {
        let others = sum * ahead.exp();
        (others.ln_1p(), others / (1.0 + others))
    }
}

#[inline(always)]
fn self_adversarial<L: Lanes>(
    lanes: L,
    margin: f32,
    temperature: f32,
    positive: f32,
    weight: f32,
    scores: &mut [f32],
) -> RowLoss {
    let half = weight / 2.0;
    let (cost, slope) = softplus_one(-(positive + margin));
    let largest = largest(lanes, scores);
    let mut costs = 0.0;
    if largest == f32::NEG_INFINITY {
        scores.fill(0.0);
    } else {
        let change = Weighted {
            shift: lanes.splat(largest),
            steep: lanes.splat(temperature),
            margin: lanes.splat(margin),
        };
        let found = replace(lanes, scores, &change);
        scale(lanes, scores, half / found.1);
        costs = found.0 / found.1;
    }
    RowLoss { value: half * (cost + costs), positive: -half * slope }
}

/// A replacement of scores, lane by lane.
trait Change<L: Lanes> {
    /// The new scores, and two values to sum.
    fn change(&self, lanes: L, scores: L::f32s) -> (L::f32s, L::f32s, L::f32s);
}

struct Exponential<V> {
    shift: V,
}

impl<L: Lanes> Change<L> for Exponential<L::f32s> {
    #[inline(always)]
    fn change(&self, lanes: L, scores: L::f32s) -> (L::f32s, L::f32s, L::f32s) {
        let share = exponential(lanes, lanes.sub_f32s(scores, self.shift));
        (share, share, share)
    }
}

struct Logistic<V> {
    margin: V,
}

impl<L: Lanes> Change<L> for Logistic<L::f32s> {
    #[inline(always)]
    fn change(&self, lanes: L, scores: L::f32s) -> (L::f32s, L::f32s, L::f32s) {
        let (cost, slope) = softplus(lanes, lanes.add_f32s(scores, self.margin));
        (slope, cost, cost)
    }
}

struct Violation<V> {
    edge: V,
    factor: V,
}

impl<L: Lanes> Change<L> for Violation<L::f32s> {
    #[inline(always)]
    fn change(&self, lanes: L, scores: L::f32s) -> (L::f32s, L::f32s, L::f32s) {
        let (zero, missing) = (lanes.splat(0.0), lanes.sub_f32s(scores, self.edge));
        let within = lanes.less_than_or_equal_f32s(missing, zero);
        let gradient = lanes.select_f32s(within, zero, self.factor);
        (gradient, lanes.select_f32s(within, zero, missing), gradient)
    }
}

struct Weighted<V> {
    shift: V,
    steep: V,
    margin: V,
}

impl<L: Lanes> Change<L> for Weighted<L::f32s> {
    #[inline(always)]
    fn change(&self, lanes: L, scores: L::f32s) -> (L::f32s, L::f32s, L::f32s) {
        let difference = lanes.mul_f32s(lanes.sub_f32s(scores, self.shift), self.steep);
        let share = exponential(lanes, difference);
        // With temperature 0, all negatives have the same weight, but masked ones must have weight
        // 0.
        let masked = lanes.equal_f32s(scores, lanes.splat(f32::NEG_INFINITY));
        let share = lanes.select_f32s(masked, lanes.splat(0.0), share);
        let (cost, slope) = softplus(lanes, lanes.add_f32s(scores, self.margin));
        (lanes.mul_f32s(slope, share), lanes.mul_f32s(cost, share), share)
    }
}

/// The largest score; NaN is skipped.
#[inline(always)]
fn largest<L: Lanes>(lanes: L, scores: &[f32]) -> f32 {
    let mut largest = lanes.splat(f32::NEG_INFINITY);
    let (body, tail) = L::as_simd_f32s(scores);
    for &line in body {
        largest = lanes.select_f32s(lanes.greater_than_f32s(line, largest), line, largest);
    }
    tail.iter().fold(lanes.reduce_max_f32s(largest), |largest, &score| largest.max(score))
}

/// Multiplies by a factor. Results below 1e-30 become zero: their products would be subnormal
/// numbers, and arithmetic on those is slow.
#[inline(always)]
fn scale<L: Lanes>(lanes: L, scores: &mut [f32], factor: f32) {
    let (body, tail) = L::as_mut_simd_f32s(scores);
    let (factors, least, zero) = (lanes.splat(factor), lanes.splat(LEAST), lanes.splat(0.0));
    for line in body {
        let scaled = lanes.mul_f32s(*line, factors);
        let small = lanes.less_than_f32s(lanes.absolute(scaled), least);
        *line = lanes.select_f32s(small, zero, scaled);
    }
    for score in tail {
        let scaled = *score * factor;
        *score = if scaled.abs() < LEAST { 0.0 } else { scaled };
    }
}

/// Fills a vector from a shorter piece; the other lanes are minus infinity, a score without effect.
#[inline(always)]
fn padded<L: Lanes>(tail: &[f32]) -> L::f32s {
    let mut line = [f32::NEG_INFINITY; 16];
    line[..tail.len()].copy_from_slice(tail);
    L::as_simd_f32s(&line).0[0]
}

/// Replaces all scores and returns both sums.
#[inline(always)]
fn replace<L: Lanes>(lanes: L, scores: &mut [f32], change: &impl Change<L>) -> (f32, f32) {
    let mut first = lanes.splat(0.0);
    let mut second = lanes.splat(0.0);
    let (body, tail) = L::as_mut_simd_f32s(scores);
    for line in body {
        let found = change.change(lanes, *line);
        *line = found.0;
        first = lanes.add_f32s(first, found.1);
        second = lanes.add_f32s(second, found.2);
    }
    if !tail.is_empty() {
        let found = change.change(lanes, padded::<L>(tail));
        let numbers: &[f32] = bytemuck::cast_slice(std::slice::from_ref(&found.0));
        tail.copy_from_slice(&numbers[..tail.len()]);
        first = lanes.add_f32s(first, found.1);
        second = lanes.add_f32s(second, found.2);
    }
    (lanes.reduce_sum_f32s(first), lanes.reduce_sum_f32s(second))
}
