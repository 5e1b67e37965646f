//! Grids, algorithms on grids, and adding of arrays to a data set.

use std::os::fd::IntoRawFd;
use std::path::PathBuf;

use numpy::{IntoPyArray, PyReadonlyArray1};
use outercore_analytics::{Algorithm, FlowName, Inputs, Passes, RunConfig, Selection, Values};
use outercore_core::{Bytes, Context, Result};
use outercore_format::{DType, keys};
use outercore_grid::{BuildOptions, GridSource, Order, Side};
use outercore_io::RealDisk;
use outercore_store::editor::ManifestEditor;
use outercore_store::npy::ArrayWriter;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dataset::{DataSet, open_current, tidy_after};
use crate::errors::{interrupted, to_python};
use crate::ids::node_ids;
use crate::progress::Callback;
use crate::values::{core_value, python_value};

/// Size of a block of ids and weights for Python.
const BLOCK_BYTES: u64 = 2 << 20;

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(check_key, module)?)?;
    module.add_function(wrap_pyfunction!(add_array, module)?)?;
    module.add_function(wrap_pyfunction!(build_grid, module)?)?;
    module.add_function(wrap_pyfunction!(plan_algorithm, module)?)?;
    module.add_function(wrap_pyfunction!(run_algorithm, module)?)?;
    module.add_function(wrap_pyfunction!(stream_edges, module)?)
}

/// Checks that an array may have this key.
#[pyfunction]
fn check_key(key: &str) -> PyResult<()> {
    keys::validate(key).with_context(|| format!("array `{key}`")).map_err(to_python)
}

/// Writes an array under `key`, replacing an existing one; `origin` is recorded in the provenance.
/// Waits while another process writes to the data set.
#[pyfunction]
fn add_array(
    py: Python<'_>,
    path: PathBuf,
    key: &str,
    dtype: &str,
    row_shape: Vec<u64>,
    bytes: PyReadonlyArray1<'_, u8>,
    origin: &str,
) -> PyResult<()> {
    let bytes = bytes.as_slice()?;
    let mut signals = Callback::new(None);
    let result = py.detach(|| -> Result<()> {
        let dtype: DType = dtype.parse()?;
        keys::validate(key).with_context(|| format!("array `{key}`"))?;
        let mut editor =
            ManifestEditor::wait(&RealDisk, &path, &mut || signals.call("", 0, 0, ""))?;
        let file = editor.claim_file(key)?;
        let mut writer = ArrayWriter::create(&RealDisk, &path, &file, dtype, &row_shape)?;
        writer.write(bytes)?;
        editor.replace(key, writer.finish()?);
        editor.manifest_mut().roles.times.remove(key);
        if !origin.is_empty() {
            editor.manifest_mut().provenance.options.insert(key.to_owned(), origin.into());
        }
        editor.commit()
    });
    signals.settle(result, to_python)
}

/// Options for building a grid.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GridOptions {
    memory: Bytes,
    threads: Option<usize>,
    relation: Option<String>,
    weights: Option<String>,
    order: Option<Order>,
    partition_log2: Option<u32>,
    overwrite: bool,
}

/// Builds the grid of a data set; returns the summary.
#[pyfunction]
fn build_grid<'py>(
    py: Python<'py>,
    path: PathBuf,
    options: &Bound<'py, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options: GridOptions = core_value("grid options", options)?;
    let options = BuildOptions {
        memory: options.memory,
        threads: options.threads,
        relation: options.relation,
        weights: options.weights,
        order: options.order,
        partition_log2: options.partition_log2,
        overwrite: options.overwrite,
    };
    let mut callback = Callback::new(progress);
    let result = py.detach(|| {
        let data_set = open_current(&path, &mut callback)?;
        let summary = outercore_grid::build(
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

/// An algorithm with its options and resources.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    algorithm: Algorithm,
    config: RunConfig,
}

/// How a run with the same arguments divides its budget.
#[pyfunction]
fn plan_algorithm<'py>(
    py: Python<'py>,
    data_set: PyRef<'py, DataSet>,
    request: &Bound<'py, PyAny>,
    ids: Option<PyReadonlyArray1<'py, i64>>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<Bound<'py, PyAny>> {
    let Request { algorithm, config } = core_value("run", request)?;
    let inputs = inputs(ids.as_ref(), weights.as_ref())?;
    let data_set = data_set.opened().clone();
    let planned = py
        .detach(|| outercore_analytics::plan(&data_set, &algorithm, inputs, &config))
        .map_err(to_python)?;
    python_value(py, &planned)
}

/// Runs an algorithm; returns the values by node id, and the plan, counters and facts. If the
/// values do not fit in memory, returns the descriptor of an open, unnamed `.npy` file instead.
///
/// `weights` of the nodes `ids` are the teleport vector, if given.
#[pyfunction]
fn run_algorithm<'py>(
    py: Python<'py>,
    data_set: PyRef<'py, DataSet>,
    request: &Bound<'py, PyAny>,
    ids: Option<PyReadonlyArray1<'py, i64>>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let Request { algorithm, config } = core_value("run", request)?;
    let inputs = inputs(ids.as_ref(), weights.as_ref())?;
    let mut callback = Callback::new(progress);
    let data_set = data_set.opened().clone();
    let result = py.detach(|| -> Result<(Values, Value)> {
        let outcome = outercore_analytics::run(
            &data_set,
            &algorithm,
            inputs,
            &config,
            &mut |phase, done, total, unit| callback.call(phase, done, total, unit),
        )?;
        let described = json!({
            "plan": outcome.plan,
            "counters": outcome.counters,
            "facts": outcome.facts,
            "profile": outcome.profile,
        });
        Ok((outcome.values, described))
    });
    // A run that finished before it could be stopped has a result, which is returned.
    let (values, described) = match result {
        Ok(done) => done,
        failed => callback.settle(failed, to_python)?,
    };
    let values = match values {
        Values::File(file) => {
            let descriptor = py.detach(|| file.file.try_clone()).map_err(PyErr::from)?;
            // The caller must close it.
            descriptor.into_raw_fd().into_pyobject(py)?.into_any()
        }
        Values::I32(values) => values.into_pyarray(py).into_any(),
        Values::I64(values) => values.into_pyarray(py).into_any(),
        Values::F64(values) => values.into_pyarray(py).into_any(),
    };
    Ok((values, python_value(py, &described)?))
}

/// The teleport vector, if given.
fn inputs(
    ids: Option<&PyReadonlyArray1<'_, i64>>,
    weights: Option<&PyReadonlyArray1<'_, f64>>,
) -> PyResult<Inputs> {
    let personalization = match (ids, weights) {
        (Some(ids), Some(weights)) => {
            Some((node_ids(ids).map_err(to_python)?, weights.as_slice()?.to_vec()))
        }
        _ => None,
    };
    Ok(Inputs { personalization })
}

/// Resources of a pass over all edges.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    weights: Option<String>,
    flow: FlowName,
    config: RunConfig,
}

/// Makes one pass over all arcs in file order. Calls `function(sources, targets, weights)` for each
/// piece, with int64 node ids, and float64 weights or `None`. An exception ends the pass.
#[pyfunction]
fn stream_edges(
    py: Python<'_>,
    data_set: PyRef<'_, DataSet>,
    options: &Bound<'_, PyAny>,
    function: Py<PyAny>,
) -> PyResult<()> {
    let StreamOptions { weights, flow, config } = core_value("edge stream", options)?;
    let mut callback = Callback::new(None);
    let mut raised = None;
    let data_set = data_set.opened().clone();
    let result = py.detach(|| -> Result<()> {
        let nodes = GridSource::of(&data_set, config.relation.as_deref())?.nodes();
        let held = Bytes(4 * nodes + BLOCK_BYTES);
        let mut on_progress = |phase: &str, done: u64, total: u64, unit: &str| {
            callback.call(phase, done, total, unit)
        };
        let mut run = outercore_analytics::stream(
            &data_set,
            weights.as_deref(),
            held,
            &config,
            &mut on_progress,
        )?;
        let partitions = run.shape().partitions();
        let nodes: Vec<Vec<u32>> = (0..partitions).map(|p| run.nodes(p)).collect::<Result<_>>()?;
        let all = vec![true; partitions];
        let select = Selection {
            sources: &all,
            targets: &all,
            flow: flow.into(),
            weights: weights.is_some(),
        };
        run.stream(&select, &mut |row, column, arcs| {
            let (from, to) = match arcs.side {
                Side::ToRows => (&nodes[column], &nodes[row]),
                Side::ToColumns => (&nodes[row], &nodes[column]),
            };
            let count = arcs.columns.len();
            let mut sources: Vec<i64> = Vec::with_capacity(count);
            let mut targets: Vec<i64> = Vec::with_capacity(count);
            let mut lengths = weights.as_ref().map(|_| Vec::with_capacity(count));
            arcs.for_each(|source, target, weight| {
                sources.push(i64::from(from[source]));
                targets.push(i64::from(to[target]));
                if let Some(lengths) = &mut lengths {
                    lengths.push(weight);
                }
            });
            Python::attach(|py| {
                let lengths = lengths.map(|lengths| lengths.into_pyarray(py));
                function.call1(py, (sources.into_pyarray(py), targets.into_pyarray(py), lengths))
            })
            .map(|_| ())
            .map_err(|error| {
                let stop = interrupted(&error);
                raised = Some(error);
                stop
            })
        })
    });
    match raised {
        Some(error) => Err(error),
        None => callback.settle(result, to_python),
    }
}
