//! Loss of accuracy between two precisions of a model.

use std::fmt;

use outercore_infer::Answer;
use serde::Serialize;

use crate::sample::Truth;

/// Loss of int8 against float32, in points: hundredths of a score, or percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Loss {
    /// Measure of the loss.
    pub measure: Measure,
    /// Positive if int8 is worse.
    pub points: f64,
    /// Number of nodes, pairs or graphs in the sample.
    pub sample: usize,
}

/// Measures of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Share of right classes.
    Accuracy,
    /// F1 score of all labels together.
    F1Micro,
    /// Area under the ROC curve, of edges against random pairs.
    RocAuc,
    /// Growth of the root mean squared error, in percent.
    Rmse,
    /// Percentage of predictions that differ, if the true classes are unknown.
    Changed,
    /// Root mean squared difference in percent of the standard deviation, if the true values are
    /// unknown.
    Difference,
}

impl Measure {
    /// The name in metadata and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::F1Micro => "f1_micro",
            Self::RocAuc => "roc_auc",
            Self::Rmse => "rmse",
            Self::Changed => "changed",
            Self::Difference => "difference",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, points, sample } = self;
        let what = match measure {
            Measure::Accuracy => "points of accuracy",
            Measure::F1Micro => "points of micro F1",
            Measure::RocAuc => "points of ROC AUC",
            Measure::Rmse => "% of the RMSE",
            Measure::Changed => "% of the predictions changed",
            Measure::Difference => "% of the standard deviation",
        };
        write!(formatter, "{points:.2} {what} (sample of {sample})")
    }
}

impl Loss {
    /// The loss of `found` against `reference`. Both hold `outputs` values per node, pair or graph.
    ///
    /// If the truth is unknown, it measures how much the two differ.
    pub fn of(reference: &Answer, found: &Answer, truth: &Truth, outputs: usize) -> Self {
        let (measure, loss, sample) = match (reference, found) {
            (Answer::Classes { classes: one, .. }, Answer::Classes { classes: other, .. }) => {
                of_classes(one, other, truth)
            }
            (Answer::Labels { labels: one, .. }, Answer::Labels { labels: other, .. }) => {
                of_labels(one, other, truth, outputs)
            }
            (Answer::Links { scores: one, .. }, Answer::Links { scores: other, .. }) => {
                of_links(one, other, truth)
            }
            (Answer::Values { values: one }, Answer::Values { values: other }) => {
                of_values(one, other, truth, outputs)
            }
            // Does not occur: both answers come from the same manifest.
            _ => (Measure::Changed, 1.0, 0),
        };
        Self { measure, points: 100.0 * loss, sample }
    }
}

fn of_classes(one: &[u32], other: &[u32], truth: &Truth) -> (Measure, f64, usize) {
    match truth {
        Truth::Classes(truth) if truth.iter().any(|&class| class >= 0) => {
            let known = truth.iter().filter(|&&class| class >= 0).count();
            let right = |classes: &[u32]| {
                let pairs = classes.iter().zip(truth);
                pairs.filter(|&(&found, &class)| i64::from(found) == class).count() as f64
            };
            (Measure::Accuracy, (right(one) - right(other)) / known as f64, known)
        }
        _ => (Measure::Changed, changed(one, other), one.len()),
    }
}

fn of_labels(one: &[u8], other: &[u8], truth: &Truth, outputs: usize) -> (Measure, f64, usize) {
    let sample = one.len() / outputs;
    match truth {
        Truth::Labels(truth) if truth.iter().any(|&label| label > 0.0) => {
            let f1 = |labels: &[u8]| f1_micro(labels, truth);
            (Measure::F1Micro, f1(one) - f1(other), sample)
        }
        _ => (Measure::Changed, changed(one, other), sample),
    }
}

fn of_links(one: &[f32], other: &[f32], truth: &Truth) -> (Measure, f64, usize) {
    match truth {
        Truth::Edges(truth) if truth.contains(&true) && truth.contains(&false) => {
            let area = |scores: &[f32]| roc_auc(scores, truth);
            (Measure::RocAuc, area(one) - area(other), one.len())
        }
        _ => {
            let likely =
                |scores: &[f32]| -> Vec<bool> { scores.iter().map(|&score| score > 0.0).collect() };
            (Measure::Changed, changed(&likely(one), &likely(other)), one.len())
        }
    }
}

fn of_values(one: &[f32], other: &[f32], truth: &Truth, outputs: usize) -> (Measure, f64, usize) {
    let sample = one.len() / outputs;
    match truth {
        Truth::Values(truth) if truth.iter().any(|value| !value.is_nan()) => {
            let error = |values: &[f32]| rmse(values, truth, outputs);
            let grows = error(other) / error(one).max(f64::MIN_POSITIVE) - 1.0;
            (Measure::Rmse, grows, sample)
        }
        _ => (Measure::Difference, difference(one, other, outputs), sample),
    }
}

/// The share of entries that differ; 0 for empty lists.
fn changed<T: PartialEq>(one: &[T], other: &[T]) -> f64 {
    let differ = one.iter().zip(other).filter(|(one, other)| one != other).count();
    differ as f64 / one.len().max(1) as f64
}

/// F1 over all decisions together; unknown labels are skipped.
fn f1_micro(labels: &[u8], truth: &[f64]) -> f64 {
    let known = || labels.iter().zip(truth).filter(|&(_, &label)| label >= 0.0);
    let right = known().filter(|&(&found, &label)| found == 1 && label > 0.0).count();
    let wrong = known().filter(|&(&found, &label)| (found == 1) != (label > 0.0)).count();
    2.0 * right as f64 / (2 * right + wrong).max(1) as f64
}

/// Mann-Whitney U with average ranks: a tie between an edge and a random pair counts half.
fn roc_auc(scores: &[f32], truth: &[bool]) -> f64 {
    let mut order: Vec<(f32, bool)> = scores.iter().copied().zip(truth.iter().copied()).collect();
    order.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut below, mut wins) = (0.0, 0.0);
    for tied in order.chunk_by(|one, other| one.0 == other.0) {
        let edges = tied.iter().filter(|(_, edge)| *edge).count() as f64;
        let others = tied.len() as f64 - edges;
        wins += edges * (below + others / 2.0);
        below += others;
    }
    let edges = truth.iter().filter(|&&edge| edge).count() as f64;
    wins / (edges * (truth.len() as f64 - edges))
}

/// Root mean squared error per column, averaged over the columns.
fn rmse(values: &[f32], truth: &[f64], columns: usize) -> f64 {
    mean_of_columns(columns, |column| {
        let (mut squares, mut count) = (0.0, 0.0);
        let rows = values.iter().zip(truth).skip(column).step_by(columns);
        for (&value, &label) in rows.filter(|(_, label)| !label.is_nan()) {
            squares += (f64::from(value) - label).powi(2);
            count += 1.0;
        }
        (count > 0.0).then(|| (squares / count).sqrt())
    })
}

/// Root mean squared difference divided by the standard deviation, averaged over the columns.
fn difference(one: &[f32], other: &[f32], columns: usize) -> f64 {
    mean_of_columns(columns, |column| {
        let of = |values: &[f32]| -> Vec<f64> {
            values.iter().skip(column).step_by(columns).map(|&value| value.into()).collect()
        };
        let (one, other) = (of(one), of(other));
        let mean = one.iter().sum::<f64>() / one.len() as f64;
        let spread: f64 = one.iter().map(|value| (value - mean).powi(2)).sum();
        let squares: f64 = one.iter().zip(&other).map(|(a, b)| (a - b).powi(2)).sum();
        // The standard deviation of an almost constant column is too small to divide by.
        let scale = spread.max(1e-12 * one.len() as f64 * mean * mean).max(f64::MIN_POSITIVE);
        (!one.is_empty()).then(|| (squares / scale).sqrt())
    })
}

fn mean_of_columns(columns: usize, of: impl Fn(usize) -> Option<f64>) -> f64 {
    let found: Vec<f64> = (0..columns).filter_map(of).collect();
    found.iter().sum::<f64>() / found.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(classes: &[u32]) -> Answer {
        Answer::Classes { classes: classes.to_vec(), probabilities: Vec::new() }
    }

    fn labels(labels: &[u8]) -> Answer {
        Answer::Labels { labels: labels.to_vec(), probabilities: Vec::new() }
    }

    fn links(scores: &[f32]) -> Answer {
        Answer::Links { scores: scores.to_vec(), probabilities: Vec::new() }
    }

    fn values(values: &[f32]) -> Answer {
        Answer::Values { values: values.to_vec() }
    }

    fn assert_loss(found: Loss, measure: Measure, points: f64, sample: usize) {
        assert_eq!((found.measure, found.sample), (measure, sample), "{found}");
        assert!((found.points - points).abs() < 1e-9, "{found:?}, expected {points}");
    }

    #[test]
    fn classes_lose_accuracy_where_labels_are_known_and_change_elsewhere() {
        let (one, other) = (classes(&[0, 1, 2, 1]), classes(&[0, 1, 1, 2]));
        let truth = Truth::Classes(vec![0, 1, 2, -1]);
        assert_loss(Loss::of(&one, &other, &truth, 3), Measure::Accuracy, 100.0 / 3.0, 3);
        assert_loss(Loss::of(&other, &one, &truth, 3), Measure::Accuracy, -100.0 / 3.0, 3);
        let unknown = [Truth::Unknown, Truth::Classes(vec![-1; 4])];
        for truth in unknown {
            assert_loss(Loss::of(&one, &other, &truth, 3), Measure::Changed, 50.0, 4);
        }
    }

    #[test]
    fn labels_lose_micro_f1_and_unknown_ones_do_not_count() {
        let (one, other) = (labels(&[1, 0, 1, 1]), labels(&[1, 1, 0, 0]));
        let truth = Truth::Labels(vec![1.0, 0.0, 1.0, f64::NAN]);
        // First sample: all three right. Second: one right, one too many, one missing.
        assert_loss(Loss::of(&one, &other, &truth, 2), Measure::F1Micro, 50.0, 2);
        assert_loss(Loss::of(&one, &other, &Truth::Unknown, 2), Measure::Changed, 75.0, 2);
    }

    #[test]
    fn links_lose_area_under_the_curve_with_ties_by_halves() {
        let truth = Truth::Edges(vec![true, false, true, false]);
        let (one, other) = (links(&[2.0, 1.0, 3.0, -1.0]), links(&[2.0, 2.0, 3.0, -1.0]));
        assert_loss(Loss::of(&one, &other, &truth, 1), Measure::RocAuc, 12.5, 4);
        assert_loss(Loss::of(&one, &other, &Truth::Unknown, 1), Measure::Changed, 0.0, 4);
    }

    #[test]
    fn values_lose_by_their_error_or_differ_by_their_deviation() {
        let (one, other) = (values(&[1.0, 5.0, 3.0, 5.0]), values(&[2.0, 5.0, 2.0, 5.0]));
        let truth = Truth::Values(vec![0.0, 4.0, 4.0, f64::NAN]);
        // The error of the first column grows from 1 to 2; the error of the second stays 1.
        assert_loss(Loss::of(&one, &other, &truth, 2), Measure::Rmse, 50.0, 2);
        // A constant column without differences counts as equal.
        assert_loss(Loss::of(&one, &other, &Truth::Unknown, 2), Measure::Difference, 50.0, 2);
        let broken = values(&[f32::NAN; 4]);
        assert!(Loss::of(&one, &broken, &truth, 2).points.is_nan());
    }
}
