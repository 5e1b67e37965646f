//! Functions for data sets and devices.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outercore_core::{Bytes, Result};
use outercore_grid::Grid;
use outercore_io::{Backend, ProbeConfig, ProbeStep, RealDisk};
use outercore_store::check::{CheckOptions, Problem, check as check_dataset};
use outercore_store::dataset::DataSet;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::errors::to_python;
use crate::progress::Callback;
use crate::values::{core_value, python_value};

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(probe, module)?)?;
    module.add_function(wrap_pyfunction!(available_backends, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(crate::import::generate_rmat, module)?)?;
    module.add_function(wrap_pyfunction!(crate::import::generate_planted, module)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ProbeOptions {
    backend: String,
    file: Bytes,
    seconds_per_point: f64,
    save: bool,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        let config = ProbeConfig::default();
        Self {
            backend: config.backend.to_string(),
            file: config.file,
            seconds_per_point: config.per_point.as_secs_f64(),
            save: true,
        }
    }
}

/// Measures the device under a directory. Stores the profile there, unless `save` is false.
#[pyfunction]
fn probe<'py>(
    py: Python<'py>,
    directory: PathBuf,
    options: &Bound<'py, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options: ProbeOptions = core_value("probe options", options)?;
    let mut callback = Callback::new(progress);
    let result = py.detach(|| {
        let backend: Backend = options.backend.parse()?;
        let config = ProbeConfig {
            backend,
            file: options.file,
            per_point: Duration::try_from_secs_f64(options.seconds_per_point).unwrap_or_default(),
            ..ProbeConfig::default()
        };
        let profile = outercore_io::probe(&directory, config, &mut |step| match step {
            ProbeStep::Written { done, of } => callback.call("write", done.0, of.0, "bytes"),
            ProbeStep::Measured { number, of, .. } => {
                callback.call("measure", number as u64, of as u64, "points")
            }
        })?;
        if options.save {
            profile.save(&RealDisk, &directory)?;
        }
        Ok(profile)
    });
    python_value(py, &callback.settle(result, to_python)?)
}

/// The back ends, and for each missing one the reason: `[(name, reason or None)]`.
#[pyfunction]
fn available_backends() -> Vec<(String, Option<String>)> {
    outercore_io::available_backends()
        .into_iter()
        .map(|offer| (offer.backend.to_string(), offer.missing))
        .collect()
}

/// Verifies a data set; returns the report, with or without problems.
#[pyfunction]
fn check(py: Python<'_>, path: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<Bound<'_, PyAny>> {
    let mut callback = Callback::new(progress);
    let result = py.detach(|| {
        let report = check_dataset(&path, &CheckOptions::default(), &mut |done, total| {
            callback.call("check", done, total, "bytes")
        })?;
        let of_grid = check_grid(&path, &mut callback)?;
        let of_layouts = check_layouts(&path, &mut callback)?;
        let (updates, of_log) = check_log(&path);
        let problems: Vec<Value> = report
            .problems
            .iter()
            .chain(&of_grid)
            .chain(&of_layouts)
            .chain(&of_log)
            .map(|problem| {
                json!({
                    "array": problem.array,
                    "kind": format!("{:?}", problem.kind),
                    "message": problem.message,
                    "hint": problem.hint,
                })
            })
            .collect();
        Ok(json!({
            "sound": report.is_sound() && problems.is_empty(),
            "arrays": report.arrays,
            "bytes": report.bytes,
            "updates": updates,
            "problems": problems,
            "omitted": report.omitted,
        }))
    });
    python_value(py, &callback.settle(result, to_python)?)
}

/// The number of updates in the log beyond the arrays, and a problem of the log, if any.
fn check_log(path: &Path) -> (u64, Option<Problem>) {
    // Without a manifest there is nothing to add to the report.
    let Ok(data_set) = DataSet::open(path) else { return (0, None) };
    match outercore_live::verify(&data_set) {
        Ok(updates) => (updates, None),
        Err(error) => (0, Some(Problem::of(None, &error))),
    }
}

/// Problems of layouts. Without a manifest there is nothing to add to the report.
fn check_layouts(path: &Path, callback: &mut Callback) -> Result<Vec<Problem>> {
    let Ok(data_set) = DataSet::open(path) else { return Ok(Vec::new()) };
    outercore_layout::verify(&data_set, &mut |phase, done, total, unit| {
        callback.call(phase, done, total, unit)
    })
}

/// Problems of the grid, if there is one. Without a manifest there is nothing to add to the report.
fn check_grid(path: &Path, callback: &mut Callback) -> Result<Vec<Problem>> {
    let Ok(data_set) = DataSet::open(path) else { return Ok(Vec::new()) };
    if !Grid::is_built(&data_set) {
        return Ok(Vec::new());
    }
    outercore_grid::verify(&data_set, &mut |phase, done, total, unit| {
        callback.call(phase, done, total, unit)
    })
}
