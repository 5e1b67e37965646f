//! Arithmetic of embeddings on NumPy's memory.

use numpy::ndarray::Array2;
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1,
    PyReadwriteArray2, PyUntypedArrayMethods,
};
use outercore_core::{Error, Result};
use outercore_kernels::{
    Distance, DistanceChunk, DistanceGradients, Loss, Piece, Step, distance_gradients,
    distance_scores, gather_rows, loss_rows, step_rows, sum_rows,
};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::rows::{rows, rows_mut};

/// Name, margin and temperature of a loss, as `LossConfig` has them.
pub type LossOptions<'py> = (&'py str, f32, f32);
/// Rows of a table and their gradients.
type Gradients<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray2<'py, f32>);
/// Distinct rows and the sums of their gradients.
type Sums<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray2<f32>>);
/// Rows and columns of pairs.
type Pairs<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>);

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(kernel_distance_gradients, module)?)?;
    module.add_function(wrap_pyfunction!(kernel_distance_scores, module)?)?;
    module.add_function(wrap_pyfunction!(kernel_loss_rows, module)?)?;
    module.add_function(wrap_pyfunction!(kernel_gather_rows, module)?)?;
    module.add_function(wrap_pyfunction!(kernel_sum_rows, module)?)?;
    module.add_function(wrap_pyfunction!(kernel_step_rows, module)?)
}

fn distance(name: &str) -> Result<Distance> {
    match name {
        "manhattan" => Ok(Distance::Manhattan),
        "modulus" => Ok(Distance::Modulus),
        _ => Err(Error::invalid(format!("no distance is called `{name}`"))),
    }
}

pub fn loss((name, margin, temperature): LossOptions<'_>) -> Result<Loss> {
    match name {
        "softmax" => Ok(Loss::Softmax { contrastive: false }),
        "contrastive" => Ok(Loss::Softmax { contrastive: true }),
        "logistic" => Ok(Loss::Logistic { margin }),
        "margin" => Ok(Loss::Margin { margin }),
        "self-adversarial" => Ok(Loss::SelfAdversarial { margin, temperature }),
        _ => Err(Error::invalid(format!("no loss is called `{name}`"))),
    }
}

pub fn step(name: &str) -> Result<Step> {
    match name {
        "adagrad" => Ok(Step::Adagrad),
        "row-adagrad" => Ok(Step::RowAdagrad),
        "adam" => Ok(Step::Adam),
        _ => Err(Error::invalid(format!("no step is called `{name}`"))),
    }
}

/// The loss of a chunk and its gradients.
#[pyfunction]
#[pyo3(signature = (
    name, objective, queries, candidates, positives, weights, masked, bias, to_queries,
    to_positives, to_candidates, threads
))]
#[allow(clippy::too_many_arguments)]
fn kernel_distance_gradients(
    py: Python<'_>,
    name: &str,
    objective: LossOptions<'_>,
    queries: PyReadonlyArray2<'_, f32>,
    candidates: PyReadonlyArray2<'_, f32>,
    positives: PyReadonlyArray1<'_, f32>,
    weights: PyReadonlyArray1<'_, f32>,
    masked: Option<Pairs<'_>>,
    bias: Option<PyReadonlyArray1<'_, f32>>,
    mut to_queries: PyReadwriteArray2<'_, f32>,
    mut to_positives: PyReadwriteArray1<'_, f32>,
    mut to_candidates: PyReadwriteArray2<'_, f32>,
    threads: usize,
) -> PyResult<f32> {
    let masked = match &masked {
        Some((rows, columns)) => (rows.as_slice()?, columns.as_slice()?),
        None => (&[][..], &[][..]),
    };
    let chunk = DistanceChunk {
        distance: distance(name).map_err(to_python)?,
        loss: loss(objective).map_err(to_python)?,
        width: queries.shape()[1],
        queries: rows(&queries)?,
        candidates: rows(&candidates)?,
        positives: positives.as_slice()?,
        weights: weights.as_slice()?,
        masked,
        bias: bias.as_ref().map(|bias| bias.as_slice()).transpose()?,
    };
    let to = DistanceGradients {
        queries: rows_mut(&mut to_queries)?,
        positives: to_positives.as_slice_mut()?,
        candidates: rows_mut(&mut to_candidates)?,
    };
    py.detach(|| distance_gradients(chunk, to, threads)).map_err(to_python)
}

/// Minus the distances of all pairs.
#[pyfunction]
fn kernel_distance_scores(
    py: Python<'_>,
    name: &str,
    queries: PyReadonlyArray2<'_, f32>,
    candidates: PyReadonlyArray2<'_, f32>,
    mut out: PyReadwriteArray2<'_, f32>,
    threads: usize,
) -> PyResult<()> {
    let distance = distance(name).map_err(to_python)?;
    let width = queries.shape()[1];
    let (queries, candidates) = (rows(&queries)?, rows(&candidates)?);
    let out = rows_mut(&mut out)?;
    py.detach(|| distance_scores(distance, width, queries, candidates, out, threads))
        .map_err(to_python)
}

/// A loss of scores, and its gradients in their place.
#[pyfunction]
fn kernel_loss_rows(
    py: Python<'_>,
    objective: LossOptions<'_>,
    positives: PyReadonlyArray1<'_, f32>,
    weights: PyReadonlyArray1<'_, f32>,
    mut scores: PyReadwriteArray2<'_, f32>,
    mut to_positives: PyReadwriteArray1<'_, f32>,
    threads: usize,
) -> PyResult<f32> {
    let loss = loss(objective).map_err(to_python)?;
    let (positives, weights) = (positives.as_slice()?, weights.as_slice()?);
    let (scores, to_positives) = (rows_mut(&mut scores)?, to_positives.as_slice_mut()?);
    py.detach(|| loss_rows(loss, positives, weights, scores, to_positives, threads))
        .map_err(to_python)
}

/// Copies rows of a table.
#[pyfunction]
fn kernel_gather_rows(
    py: Python<'_>,
    table: PyReadonlyArray2<'_, f32>,
    numbers: PyReadonlyArray1<'_, i64>,
    mut out: PyReadwriteArray2<'_, f32>,
    threads: usize,
) -> PyResult<()> {
    let width = table.shape()[1];
    let (table, numbers, out) = (rows(&table)?, numbers.as_slice()?, rows_mut(&mut out)?);
    py.detach(|| gather_rows(table, width, numbers, out, threads)).map_err(to_python)
}

/// Distinct rows, ascending, and the sums of their gradients.
#[pyfunction]
fn kernel_sum_rows<'py>(
    py: Python<'py>,
    pieces: Vec<Gradients<'py>>,
    threads: usize,
) -> PyResult<Sums<'py>> {
    let width = pieces.first().map_or(0, |(_, gradients)| gradients.shape()[1]);
    let pieces = pieces
        .iter()
        .map(|(numbers, gradients)| {
            Ok(Piece { rows: numbers.as_slice()?, gradients: rows(gradients)? })
        })
        .collect::<PyResult<Vec<_>>>()?;
    let (numbers, sums) = py
        .detach(|| {
            let found = sum_rows(&pieces, width, threads)?;
            let sums = Array2::from_shape_vec((found.rows.len(), width), found.sums)
                .map_err(|error| Error::internal(error.to_string()))?;
            Ok((found.rows, sums))
        })
        .map_err(to_python)?;
    Ok((numbers.into_pyarray(py), sums.into_pyarray(py)))
}

/// Moves rows of a table against their gradients.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn kernel_step_rows(
    py: Python<'_>,
    name: &str,
    mut table: PyReadwriteArray2<'_, f32>,
    mut state: PyReadwriteArray2<'_, f32>,
    numbers: PyReadonlyArray1<'_, i64>,
    gradients: PyReadonlyArray2<'_, f32>,
    rate: f32,
    threads: usize,
) -> PyResult<()> {
    let step = step(name).map_err(to_python)?;
    let (table, state) = (rows_mut(&mut table)?, rows_mut(&mut state)?);
    let (numbers, gradients) = (numbers.as_slice()?, rows(&gradients)?);
    py.detach(|| step_rows(step, table, state, numbers, gradients, rate, threads))
        .map_err(to_python)
}
