use crate::manifest::NormKind;
use crate::matrix::Matrix;
use crate::tensors::Tensors;

/// Added to variances: PyTorch's default, and fixed in this format.
const EPSILON: f64 = 1e-5;

/// Operation on the states after a layer.
#[derive(Debug)]
pub(crate) enum Norm {
    None,
    /// One factor and one term per column, which combine the statistics and parameters of batch
    /// normalisation.
    Batch {
        scale: Vec<f32>,
        shift: Vec<f32>,
    },
    Layer {
        weight: Vec<f32>,
        bias: Vec<f32>,
    },
}

impl Norm {
    /// The norm whose tensor names start with `prefix`.
    pub fn take(kind: NormKind, tensors: &mut Tensors, prefix: &str) -> Self {
        if kind == NormKind::None {
            return Self::None;
        }
        let mut take = |name: &str| tensors.take(&format!("{prefix}.{name}"));
        let (weight, bias) = (take("weight"), take("bias"));
        if kind == NormKind::Layer {
            return Self::Layer { weight, bias };
        }
        let (mean, variance) = (take("mean"), take("variance"));
        let factors = weight
            .iter()
            .zip(&variance)
            .map(|(&weight, &variance)| f64::from(weight) / (f64::from(variance) + EPSILON).sqrt());
        let (scale, shift) = factors
            .zip(mean.iter().zip(&bias))
            .map(|(factor, (&mean, &bias))| {
                (factor as f32, (f64::from(bias) - f64::from(mean) * factor) as f32)
            })
            .unzip();
        Self::Batch { scale, shift }
    }

    pub fn apply(&self, state: &mut Matrix) {
        match self {
            Self::None => {}
            Self::Batch { scale, shift } => {
                for row in state.iter_mut() {
                    for (value, (scale, shift)) in row.iter_mut().zip(scale.iter().zip(shift)) {
                        *value = *value * scale + shift;
                    }
                }
            }
            Self::Layer { weight, bias } => {
                for row in state.iter_mut() {
                    normalise(row, weight, bias);
                }
            }
        }
    }
}

fn normalise(row: &mut [f32], weight: &[f32], bias: &[f32]) {
    let count = row.len() as f64;
    let mean = row.iter().map(|&value| f64::from(value)).sum::<f64>() / count;
    let squares = row.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum::<f64>();
    let factor = 1.0 / (squares / count + EPSILON).sqrt();
    for (value, (&weight, &bias)) in row.iter_mut().zip(weight.iter().zip(bias)) {
        *value = ((f64::from(*value) - mean) * factor) as f32 * weight + bias;
    }
}
