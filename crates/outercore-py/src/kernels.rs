//! Embedding arithmetic on NumPy's memory.

use numpy::{PyReadonlyArray2, PyReadwriteArray2, PyUntypedArrayMethods};
use outercore_core::{Error, Result};
use outercore_kernels::{Distance, Loss, Step, distance_scores};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::rows::{rows, rows_mut};

/// Name, margin and temperature of a loss, as `LossConfig` has them.
pub type LossOptions<'py> = (&'py str, f32, f32);
/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(kernel_distance_scores, module)?)
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

/// Negative distances of all pairs.
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
