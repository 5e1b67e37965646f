//! Computes a layer's state of a node from the node and its neighbours, for each kind of layer.
//!
//! Neighbours are summed before the linear map, not after it: in a sampled subgraph, a layer
//! computes only about a tenth of the nodes that it reads.

use crate::linear::Linear;
use crate::manifest::{Kind, Network};
use crate::matrix::{Matrix, Rows};
use crate::norm::Norm;
use crate::precision::Precision;
use crate::subgraph::Hop;
use crate::tensors::Tensors;

/// Slope of LeakyReLU below 0.
const SLOPE: f32 = 0.2;

#[derive(Debug)]
pub(crate) enum Convolution {
    Sage {
        neighbours: Linear,
        own: Linear,
    },
    Gcn(Linear),
    Gin {
        /// 1 + eps
        own: f32,
        first: Linear,
        norm: Norm,
        second: Linear,
    },
    Gat(Attention),
    Mlp(Linear),
}

#[derive(Debug)]
pub(crate) struct Attention {
    /// Scores of a node by head: as a source, then as a target. Always in float32: there are few of
    /// them, and the exponential function would magnify their errors.
    scores: Linear,
    heads: Vec<Linear>,
    bias: Vec<f32>,
    /// Whether the output is the mean over the heads; otherwise the heads are concatenated.
    averages: bool,
}

impl Convolution {
    pub fn take(network: &Network, layer: usize, tensors: &mut Tensors) -> Self {
        let (before, after) = network.widths(layer);
        let name = |part: &str| format!("layers.{layer}.{part}");
        match network.kind {
            Kind::Sage => Self::Sage {
                neighbours: tensors.take_linear(&name("neighbours"), before),
                own: {
                    let weight = tensors.take(&name("own.weight"));
                    tensors.linear(&weight, None, before)
                },
            },
            Kind::Gcn => Self::Gcn(tensors.take_linear(&name("linear"), before)),
            Kind::Mlp => Self::Mlp(tensors.take_linear(&name("linear"), before)),
            Kind::Gin => Self::Gin {
                own: 1.0 + tensors.take(&name("eps"))[0],
                first: tensors.take_linear(&name("first"), before),
                norm: Norm::take(network.norm, tensors, &name("inner_norm")),
                second: tensors.take_linear(&name("second"), after),
            },
            Kind::Gat => Self::Gat(Attention::take(network, layer, tensors)),
        }
    }

    /// The targets' states.
    ///
    /// **Shapes** `x` `[sources, width before]`; result `[targets, width after]`.
    pub fn apply(&self, x: Rows<'_>, hop: &Hop<'_>) -> Matrix {
        match self {
            Self::Sage { neighbours, own } => {
                let mut out = neighbours.apply(mean(x, hop).first(hop.targets));
                own.add(x.take(hop.targets), &mut out);
                out
            }
            Self::Gcn(linear) => linear.apply(normalised_sum(x, hop).first(hop.targets)),
            Self::Gin { own, first, norm, second } => {
                let mut inner = first.apply(scaled_sum(x, hop, *own).first(hop.targets));
                norm.apply(&mut inner);
                rectify(&mut inner);
                second.apply(inner.first(hop.targets))
            }
            Self::Gat(attention) => attention.apply(x, hop),
            Self::Mlp(linear) => linear.apply(x.take(hop.targets)),
        }
    }
}

impl Attention {
    fn take(network: &Network, layer: usize, tensors: &mut Tensors) -> Self {
        let (before, _) = network.widths(layer);
        let mut take = |part: &str| tensors.take(&format!("layers.{layer}.{part}"));
        let averages = network.ends_at(layer);
        let mut weight = take("linear.weight");
        let attention = [take("source_attention"), take("target_attention")];
        let bias = take("bias");
        let width = weight.len() / before / network.heads;
        // The score of a node is linear in its state. It is therefore one dot product per head,
        // computed only once here.
        let scores: Vec<f32> = attention
            .iter()
            .flat_map(|vectors| vectors.chunks_exact(width))
            .zip(weight.chunks_exact(width * before).cycle())
            .flat_map(|(vector, weight)| folded(vector, weight, before))
            .collect();
        if averages {
            for number in &mut weight {
                *number /= network.heads as f32;
            }
        }
        let heads = weight
            .chunks_exact(width * before)
            .map(|weight| tensors.linear(weight, None, before))
            .collect();
        Self {
            scores: Linear::new(&scores, None, before, Precision::Float32),
            heads,
            bias,
            averages,
        }
    }

    fn apply(&self, x: Rows<'_>, hop: &Hop<'_>) -> Matrix {
        let scores = self.scores.apply(x);
        let scores = scores.first(hop.sources);
        let mut out = Matrix::zeros(hop.targets, self.bias.len());
        for (head, linear) in self.heads.iter().enumerate() {
            let attended = self.attended(x, hop, scores, head);
            let attended = attended.first(hop.targets);
            if self.averages {
                linear.add(attended, &mut out);
                continue;
            }
            let part = linear.apply(attended);
            let columns = head * linear.outputs()..(head + 1) * linear.outputs();
            for (row, part) in out.iter_mut().zip(part.first(hop.targets).iter()) {
                row[columns.clone()].copy_from_slice(part);
            }
        }
        for row in out.iter_mut() {
            add_scaled(row, 1.0, &self.bias);
        }
        out
    }

    /// For each target, the mean of its neighbours and itself, weighted by the attention of one
    /// head.
    fn attended(&self, x: Rows<'_>, hop: &Hop<'_>, scores: Rows<'_>, head: usize) -> Matrix {
        let mut out = Matrix::zeros(hop.targets, x.width);
        let mut weights = Vec::new();
        vectorised(|| {
            for (target, row) in out.iter_mut().enumerate() {
                let of_target = scores.row(target)[self.heads.len() + head];
                let sources = || hop.edges_of_others(target).chain([target]);
                weights.clear();
                weights.extend(sources().map(|source| {
                    let score = scores.row(source)[head] + of_target;
                    if score < 0.0 { SLOPE * score } else { score }
                }));
                let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let mut sum = 0.0;
                for weight in &mut weights {
                    *weight = (*weight - most).exp();
                    sum += *weight;
                }
                for (source, &weight) in sources().zip(&weights) {
                    add_scaled(row, weight / sum, x.row(source));
                }
            }
        });
        out
    }
}

/// Sets negative values to 0; NaN stays NaN.
pub(crate) fn rectify(state: &mut Matrix) {
    for value in state.padded_mut() {
        if *value < 0.0 {
            *value = 0.0;
        }
    }
}

/// The mean of each target's neighbours; 0 for a target without neighbours.
fn mean(x: Rows<'_>, hop: &Hop<'_>) -> Matrix {
    let mut out = Matrix::zeros(hop.targets, x.width);
    vectorised(|| {
        for (target, row) in out.iter_mut().enumerate() {
            let edges = hop.edges(target);
            let count = edges.len().max(1) as f32;
            for source in edges {
                add_scaled(row, 1.0, x.row(source));
            }
            for value in row {
                *value /= count;
            }
        }
    });
    out
}

/// The sum of each target's neighbours, scaled up if only some were sampled, plus `own` times the
/// target's state.
fn scaled_sum(x: Rows<'_>, hop: &Hop<'_>, own: f32) -> Matrix {
    let mut out = Matrix::zeros(hop.targets, x.width);
    vectorised(|| {
        for (target, row) in out.iter_mut().enumerate() {
            let edges = hop.edges(target);
            let scale = hop.sample_scale(target, edges.len());
            for source in edges {
                add_scaled(row, 1.0, x.row(source));
            }
            for (value, &state) in row.iter_mut().zip(x.row(target)) {
                *value = *value * scale + own * state;
            }
        }
    });
    out
}

/// Rows of D^-1/2 (A + I) D^-1/2 x, with in-degrees of the whole graph; sums over sampled edges are
/// scaled up.
fn normalised_sum(x: Rows<'_>, hop: &Hop<'_>) -> Matrix {
    let mut out = Matrix::zeros(hop.targets, x.width);
    let root = |node: usize| (hop.degrees[node] + 1.0).sqrt().recip();
    vectorised(|| {
        for (target, row) in out.iter_mut().enumerate() {
            let edges = hop.edges_of_others(target);
            let scale = root(target) * hop.sample_scale(target, edges.clone().count());
            for source in edges {
                add_scaled(row, root(source) * scale, x.row(source));
            }
            add_scaled(row, root(target) * root(target), x.row(target));
        }
    });
    out
}

#[inline(always)]
fn add_scaled(out: &mut [f32], factor: f32, row: &[f32]) {
    for (sum, &value) in out.iter_mut().zip(row) {
        *sum += factor * value;
    }
}

/// Runs loops compiled for the widest vectors of this processor.
fn vectorised(work: impl FnOnce()) {
    pulp::Arch::new().dispatch(work);
}

/// `vector` times the rows of `weight`, `[len of vector, width]`.
fn folded(vector: &[f32], weight: &[f32], width: usize) -> Vec<f32> {
    let mut sums = vec![0.0; width];
    for (&factor, row) in vector.iter().zip(weight.chunks_exact(width)) {
        for (sum, &number) in sums.iter_mut().zip(row) {
            *sum += f64::from(factor) * f64::from(number);
        }
    }
    sums.into_iter().map(|sum| sum as f32).collect()
}
