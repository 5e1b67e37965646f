//! Tensors of an answer.

use serde::Serialize;

/// A tensor of an answer.
#[derive(Debug, Serialize)]
pub struct Output {
    pub name: &'static str,
    datatype: &'static str,
    shape: Vec<usize>,
    data: Values,
}

/// Values of a tensor, written as JSON numbers.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Values {
    /// Integers.
    Whole(Vec<i64>),
    /// Single-precision floats.
    Single(Vec<f32>),
}

impl Output {
    /// A tensor of integers.
    pub fn whole(name: &'static str, shape: Vec<usize>, data: Vec<i64>) -> Self {
        Self { name, datatype: "INT64", shape, data: Values::Whole(data) }
    }

    /// A tensor of single-precision floats.
    pub fn single(name: &'static str, shape: Vec<usize>, data: Vec<f32>) -> Self {
        Self { name, datatype: "FP32", shape, data: Values::Single(data) }
    }
}
