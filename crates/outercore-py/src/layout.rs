//! Building and removing layouts of node arrays; conversion of arrays to a smaller type.

use outercore_core::{Bytes, Result};
use outercore_io::RealDisk;
use outercore_layout::BuildOptions;
use outercore_store::convert::convert;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::dataset::{open_current, parse, tidy_after};
use crate::errors::to_python;
use crate::loader::to_json;
use crate::progress::Callback;

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(build_layout, module)?)?;
    module.add_function(wrap_pyfunction!(convert_arrays, module)?)?;
    module.add_function(wrap_pyfunction!(remove_layouts, module)?)
}

/// Options for building a layout, as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayoutOptions {
    array: Option<String>,
    order: String,
    precision: String,
    memory: Bytes,
}

/// Builds a layout of an array; returns the summary as JSON.
#[pyfunction]
fn build_layout(
    py: Python<'_>,
    path: &str,
    options: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut callback = Callback::new(progress);
    let result = py.detach(|| -> Result<String> {
        let options: LayoutOptions = parse("layout options", options)?;
        let options = BuildOptions {
            array: options.array,
            method: options.order.parse()?,
            precision: options.precision.parse()?,
            memory: options.memory,
        };
        let data_set = open_current(path, &mut callback)?;
        let summary = outercore_layout::build(
            &RealDisk,
            &data_set,
            &options,
            &mut |phase, done, total, unit| callback.call(phase, done, total, unit),
        )?;
        tidy_after(data_set);
        to_json(&summary)
    });
    callback.settle(result, to_python)
}

/// Converts arrays to a smaller type; returns results for each as JSON.
#[pyfunction]
fn convert_arrays(
    py: Python<'_>,
    path: &str,
    arrays: Vec<String>,
    to: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut callback = Callback::new(progress);
    let result = py.detach(|| -> Result<String> {
        let found = convert(
            &RealDisk,
            path.as_ref(),
            &arrays,
            to.parse()?,
            &mut |phase, done, total, unit| callback.call(phase, done, total, unit),
        )?;
        to_json(&found)
    });
    callback.settle(result, to_python)
}

/// Removes the layouts of an array; returns their number.
#[pyfunction]
fn remove_layouts(py: Python<'_>, path: &str, array: Option<&str>) -> PyResult<u64> {
    let mut callback = Callback::new(None);
    let result = py.detach(|| -> Result<u64> {
        let data_set = open_current(path, &mut callback)?;
        let count = outercore_layout::remove(&RealDisk, &data_set, array)?;
        tidy_after(data_set);
        Ok(count)
    });
    callback.settle(result, to_python)
}
