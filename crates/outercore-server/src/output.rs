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

/// Values as JSON numbers.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Values {
    /// Whole numbers.
    Whole(Vec<i64>),
    /// Single precision.
    Single(Vec<f32>),
}

impl Output {
    /// Whole numbers.
    pub fn whole(name: &'static str, shape: Vec<usize>, data: Vec<i64>) -> Self {
        Self { name, datatype: "INT64", shape, data: Values::Whole(data) }
    }

    /// Single precision.
    pub fn single(name: &'static str, shape: Vec<usize>, data: Vec<f32>) -> Self {
        Self { name, datatype: "FP32", shape, data: Values::Single(data) }
    }
}
