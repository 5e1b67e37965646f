//! Initial values of rows.

use numpy::{PyReadonlyArray1, PyReadwriteArray2, PyUntypedArrayMethods};
use outercore_core::Error;
use outercore_embed::{Spread, initial_rows as fill};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::rows::rows_mut;

/// Fills `out` with the initial values of the rows `numbers`.
#[pyfunction]
pub fn initial_rows(
    py: Python<'_>,
    seed: u64,
    table: u64,
    numbers: PyReadonlyArray1<'_, i64>,
    mut out: PyReadwriteArray2<'_, f32>,
    scale: f32,
    uniform: bool,
) -> PyResult<()> {
    let (rows, width) = (out.shape()[0], out.shape()[1]);
    if rows != numbers.len() {
        let text = format!("initial values: {rows} rows for {} numbers", numbers.len());
        return Err(to_python(Error::invalid(text)));
    }
    let (numbers, out) = (numbers.as_slice()?, rows_mut(&mut out)?);
    let spread = if uniform { Spread::Uniform(scale) } else { Spread::Normal(scale) };
    py.detach(|| fill(seed, table, numbers, width, spread, out));
    Ok(())
}
