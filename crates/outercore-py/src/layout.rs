//! Building and removing layouts of node arrays; conversion of arrays to a smaller type.

use std::path::PathBuf;

use outercore_core::{Bytes, Result};
use outercore_io::RealDisk;
use outercore_layout::BuildOptions;
use outercore_store::convert::convert;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::dataset::{open_current, tidy_after};
use crate::errors::to_python;
use crate::progress::Callback;
use crate::values::{core_value, python_value};

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(build_layout, module)?)?;
    module.add_function(wrap_pyfunction!(convert_arrays, module)?)?;
    module.add_function(wrap_pyfunction!(remove_layouts, module)?)
}

/// Options for building a layout.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayoutOptions {
    array: Option<String>,
    order: String,
    precision: String,
    memory: Bytes,
}

/// Builds a layout of an array; returns the summary.
#[pyfunction]
fn build_layout<'py>(
    py: Python<'py>,
    path: PathBuf,
    options: &Bound<'py, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options: LayoutOptions = core_value("layout options", options)?;
    let mut callback = Callback::new(progress);
    let result = py.detach(|| {
        let options = BuildOptions {
            array: options.array,
            method: options.order.parse()?,
            precision: options.precision.parse()?,
            memory: options.memory,
        };
        let data_set = open_current(&path, &mut callback)?;
        let summary = outercore_layout::build(
            &RealDisk,
            &data_set,
            &options,
            &mut |phase, done, total, unit| callback.call(phase, done, total, unit),
        )?;
        tidy_after(data_set);
        Ok(summary)
    });
    python_value(py, &callback.settle(result, to_python)?)
}

/// Converts arrays to a smaller type; returns results for each.
#[pyfunction]
fn convert_arrays<'py>(
    py: Python<'py>,
    path: PathBuf,
    arrays: Vec<String>,
    to: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let mut callback = Callback::new(progress);
    let result = py.detach(|| {
        convert(&RealDisk, &path, &arrays, to.parse()?, &mut |phase, done, total, unit| {
            callback.call(phase, done, total, unit)
        })
    });
    python_value(py, &callback.settle(result, to_python)?)
}

/// Removes the layouts of an array; returns their number.
#[pyfunction]
fn remove_layouts(py: Python<'_>, path: PathBuf, array: Option<&str>) -> PyResult<u64> {
    let mut callback = Callback::new(None);
    let result = py.detach(|| -> Result<u64> {
        let data_set = open_current(&path, &mut callback)?;
        let count = outercore_layout::remove(&RealDisk, &data_set, array)?;
        tidy_after(data_set);
        Ok(count)
    });
    callback.settle(result, to_python)
}
