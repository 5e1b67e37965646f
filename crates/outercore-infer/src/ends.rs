//! Inputs and outputs of the network: embeddings of categories, heads for pairs and graphs.

use std::borrow::Cow;

use outercore_core::{Error, Result};

use crate::convolution::rectify;
use crate::linear::Linear;
use crate::manifest::{Head, Manifest, PairScore, Readout};
use crate::matrix::{Matrix, Rows};
use crate::tensors::Tensors;

/// The input of the network.
#[derive(Debug)]
pub(crate) enum Inputs {
    /// The features.
    Features,
    /// The sum of one embedding per column.
    Categories {
        /// For each column, `[categories, width]`.
        tables: Vec<Vec<f32>>,
        width: usize,
        /// Whether the only column is the in-degree.
        degree: bool,
    },
    /// A learnt row per node.
    Table { rows: Vec<f32>, width: usize },
}

impl Inputs {
    pub fn take(manifest: &Manifest, tensors: &mut Tensors) -> Self {
        let (input, width) = (&manifest.input, manifest.network.features);
        if input.table > 0 {
            return Self::Table { rows: tensors.take("table"), width };
        }
        if input.categories.is_empty() {
            return Self::Features;
        }
        let columns = 0..input.categories.len();
        let tables = columns.map(|column| tensors.take(&format!("categories.{column}"))).collect();
        Self::Categories { tables, width, degree: input.degree }
    }

    /// The input for `nodes` with features `x`. `picked` has the number of in-edges of each node in
    /// the subgraph.
    pub fn of<'x>(&self, x: &'x [f32], nodes: &[u64], picked: &[u32]) -> Result<Cow<'x, [f32]>> {
        match self {
            Self::Features => Ok(Cow::Borrowed(x)),
            Self::Table { rows, width } => {
                let mut out = Vec::with_capacity(nodes.len() * width);
                for &node in nodes {
                    let row = (node as usize).checked_mul(*width).and_then(|at| rows.get(at..));
                    let row = row.and_then(|rest| rest.get(..*width)).ok_or_else(|| {
                        Error::invalid(format!(
                            "node {node}: the model has no embedding for it, it was added later"
                        ))
                    })?;
                    out.extend_from_slice(row);
                }
                Ok(Cow::Owned(out))
            }
            Self::Categories { tables, width, degree: true } => {
                // In whole graphs, every node has all its in-edges here. Nodes outside `picked`
                // have none.
                let last = tables[0].len() / width - 1;
                let degree = |place: usize| picked.get(place).map_or(0, |&count| count as usize);
                let mut out = Vec::with_capacity(nodes.len() * width);
                for place in 0..nodes.len() {
                    let category = degree(place).min(last);
                    out.extend_from_slice(&tables[0][category * width..][..*width]);
                }
                Ok(Cow::Owned(out))
            }
            Self::Categories { tables, width, .. } => {
                let mut out = vec![0.0; nodes.len() * width];
                let rows = out.chunks_exact_mut(*width).zip(x.chunks_exact(tables.len()));
                for ((sum, row), node) in rows.zip(nodes) {
                    for (column, (table, &value)) in tables.iter().zip(row).enumerate() {
                        let category = value as usize;
                        let known = table.len() / width;
                        if category as f32 != value || category >= known {
                            return Err(Error::invalid(format!(
                                "node {node}, column {column}: category {value}, expected 0 to {}",
                                known - 1
                            )));
                        }
                        let embedding = &table[category * width..][..*width];
                        sum.iter_mut().zip(embedding).for_each(|(sum, value)| *sum += value);
                    }
                }
                Ok(Cow::Owned(out))
            }
        }
    }
}

/// Converts states to logits.
#[derive(Debug)]
pub(crate) enum Outputs {
    /// The states are the logits.
    Nodes,
    Dot,
    Diagonal(Vec<f32>),
    Pairs {
        first: Linear,
        second: Linear,
    },
    Graphs {
        readout: Readout,
        first: Linear,
        second: Linear,
    },
}

impl Outputs {
    pub fn take(manifest: &Manifest, tensors: &mut Tensors) -> Self {
        let width = manifest.network.outputs;
        match manifest.head {
            None => Self::Nodes,
            Some(Head::Pairs { score: PairScore::Dot }) => Self::Dot,
            Some(Head::Pairs { score: PairScore::Diagonal }) => {
                Self::Diagonal(tensors.take("pairs.diagonal"))
            }
            Some(Head::Pairs { score: PairScore::Mlp }) => Self::Pairs {
                first: tensors.take_linear("pairs.first", width),
                second: tensors.take_linear("pairs.second", width),
            },
            Some(Head::Graphs { readout, .. }) => Self::Graphs {
                readout,
                first: tensors.take_linear("graphs.first", width),
                second: tensors.take_linear("graphs.second", width),
            },
        }
    }

    pub fn score(&self, states: &[f32], width: usize, pairs: &[(u32, u32)]) -> Result<Vec<f32>> {
        let seeds = states.len() / width.max(1);
        let row = |place: u32| &states[place as usize * width..][..width];
        if let Some((one, other)) = pairs.iter().find(|(a, b)| (*a).max(*b) as usize >= seeds) {
            return Err(Error::invalid(format!("pair {one}, {other}: expected below {seeds}")));
        }
        let product =
            |&(one, other): &(u32, u32)| row(one).iter().zip(row(other)).map(|(a, b)| a * b);
        match self {
            Self::Dot => Ok(pairs.iter().map(|pair| product(pair).sum()).collect()),
            Self::Diagonal(weights) => {
                let score = |pair| product(pair).zip(weights).map(|(value, weight)| value * weight);
                Ok(pairs.iter().map(|pair| score(pair).sum()).collect())
            }
            Self::Pairs { first, second } => {
                let products: Vec<f32> = pairs.iter().flat_map(product).collect();
                let scores = perceptron(first, second, Rows::dense(&products, pairs.len(), width));
                Ok(scores.first(pairs.len()).iter().flatten().copied().collect())
            }
            Self::Nodes | Self::Graphs { .. } => {
                Err(Error::invalid("this model has no score of edges"))
            }
        }
    }

    pub fn of_graphs(&self, states: &[f32], width: usize, sizes: &[usize]) -> Result<Vec<f32>> {
        let Self::Graphs { readout, first, second } = self else {
            return Err(Error::invalid("this model has no prediction of graphs"));
        };
        let nodes = sizes.iter().try_fold(0usize, |sum, &size| sum.checked_add(size));
        if nodes.and_then(|nodes| nodes.checked_mul(width)) != Some(states.len())
            || sizes.contains(&0)
        {
            return Err(Error::invalid("graphs of other sizes than the states"));
        }
        let mut pooled = vec![0.0; sizes.len() * width];
        let mut rest = states;
        for (out, &size) in pooled.chunks_exact_mut(width).zip(sizes) {
            let (own, others) = rest.split_at(size * width);
            rest = others;
            pool(*readout, own, out);
        }
        let logits = perceptron(first, second, Rows::dense(&pooled, sizes.len(), width));
        Ok(logits.first(sizes.len()).iter().flatten().copied().collect())
    }
}

/// Pools several rows into one; there is at least one.
fn pool(readout: Readout, states: &[f32], out: &mut [f32]) {
    let count = states.len() / out.len();
    let mut rows = states.chunks_exact(out.len());
    if let Some(first) = rows.next() {
        out.copy_from_slice(first);
    }
    for row in rows {
        for (out, &value) in out.iter_mut().zip(row) {
            match readout {
                // NaN stays NaN.
                Readout::Max if *out < value || value.is_nan() => *out = value,
                Readout::Max => {}
                Readout::Sum | Readout::Mean => *out += value,
            }
        }
    }
    if readout == Readout::Mean {
        out.iter_mut().for_each(|out| *out /= count as f32);
    }
}

fn perceptron(first: &Linear, second: &Linear, x: Rows<'_>) -> Matrix {
    let mut hidden = first.apply(x);
    rectify(&mut hidden);
    second.apply(hidden.first(x.count))
}
