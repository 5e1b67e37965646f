use crate::manifest::{Manifest, TaskKind};

/// The client's view of a model's logits, row-major by seed.
///
/// If features were not finite, the values here are not finite either: a seed's row then contains
/// NaN.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// One class per seed.
    Classes {
        /// The most probable class of each seed; among equals the first.
        classes: Vec<u32>,
        /// `[seeds, classes]`, each row sums to 1: the softmax of the logits.
        probabilities: Vec<f32>,
    },
    /// Several labels per seed.
    Labels {
        /// `[seeds, labels]`, 1 if the probability is above one half.
        labels: Vec<u8>,
        /// `[seeds, labels]`: the logistic function of the logits.
        probabilities: Vec<f32>,
    },
    /// Whether an edge exists, for pairs of nodes.
    Links {
        /// One score per pair: the larger, the more likely.
        scores: Vec<f32>,
        /// The logistic function of the scores.
        probabilities: Vec<f32>,
    },
    /// Values in the unit of the training labels.
    Values {
        /// `[seeds, values]`
        values: Vec<f32>,
    },
}

impl Answer {
    pub(crate) fn read_out(manifest: &Manifest, logits: &[f32]) -> Self {
        let outputs = manifest.outputs();
        match manifest.task.kind {
            TaskKind::Classes => {
                let mut probabilities = logits.to_vec();
                let rows = probabilities.chunks_exact_mut(outputs);
                let classes = rows.map(|row| {
                    let class = largest(row);
                    softmax(row);
                    class as u32
                });
                Self::Classes { classes: classes.collect(), probabilities }
            }
            TaskKind::Labels => Self::Labels {
                labels: logits.iter().map(|&logit| u8::from(logit > 0.0)).collect(),
                probabilities: logits.iter().map(|&logit| logistic(logit)).collect(),
            },
            TaskKind::Links => Self::Links {
                probabilities: logits.iter().map(|&score| logistic(score)).collect(),
                scores: logits.to_vec(),
            },
            TaskKind::Values => {
                let (means, deviations) = (&manifest.task.means, &manifest.task.deviations);
                let scaled = |(place, &logit): (usize, &f32)| match means.len() {
                    0 => logit,
                    count => {
                        let output = place % count;
                        (f64::from(logit) * deviations[output] + means[output]) as f32
                    }
                };
                Self::Values { values: logits.iter().enumerate().map(scaled).collect() }
            }
        }
    }
}

fn logistic(logit: f32) -> f32 {
    (1.0 / (1.0 + (-f64::from(logit)).exp())) as f32
}

/// The index of the first largest value, or of the first NaN if there is one, as in NumPy.
fn largest(row: &[f32]) -> usize {
    let mut best = 0;
    for (place, &value) in row.iter().enumerate() {
        if value.is_nan() {
            return place;
        }
        if value > row[best] {
            best = place;
        }
    }
    best
}

fn softmax(row: &mut [f32]) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = (*value - most).exp();
        sum += f64::from(*value);
    }
    for value in row {
        *value = (f64::from(*value) / sum) as f32;
    }
}
