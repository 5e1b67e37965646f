//! Far memory: servers, connections, arrays of a data set on a server, and measurements.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outercore_core::{Bytes, Context, ErrorKind, Result};
use outercore_fabric::FabricPlane;
use outercore_far::segments::{FarSegment, add_transferable_flag as flag_transferable};
use outercore_far::{
    Connection, Contents, FarAddress, FarOptions, FarProbeConfig, FarProbeStep, FarTier, Placed,
    Remote, Token, placement,
};
use outercore_format::keys;
use outercore_grid::Grid;
use outercore_io::{Engine, EngineConfig};
use outercore_store::dataset::{ArrayRef, DataSet};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::errors::to_python;
use crate::progress::Callback;
use crate::values::{core_value, python_value};

/// Concurrent reads while a file is copied; each read is long.
const COPY_DEPTH: usize = 16;

/// Adds classes and functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(far_address, module)?)?;
    module.add_function(wrap_pyfunction!(far_new_token, module)?)?;
    module.add_function(wrap_pyfunction!(add_transferable_flag, module)?)?;
    module.add_function(wrap_pyfunction!(far_arrays, module)?)?;
    module.add_function(wrap_pyfunction!(far_put, module)?)?;
    module.add_function(wrap_pyfunction!(far_probe, module)?)
}

/// The full form of an address.
#[pyfunction]
fn far_address(text: &str) -> PyResult<String> {
    let address: Result<FarAddress> = text.parse();
    address.map(|address| address.to_string()).map_err(to_python)
}

/// Writes a new random token to a new file.
#[pyfunction]
fn far_new_token(path: PathBuf) -> PyResult<()> {
    Token::create_file(&path).map(|_| ()).map_err(to_python)
}

/// Which of the segments belong in far memory.
#[pyfunction]
fn add_transferable_flag(segments: &Bound<'_, PyAny>, far_ratio: f64) -> PyResult<Vec<bool>> {
    let mut segments: Vec<FarSegment> = core_value("segments", segments)?;
    flag_transferable(&mut segments, far_ratio).map_err(to_python)?;
    Ok(segments.iter().map(|segment| segment.transferable).collect())
}

/// An array that far memory can hold.
#[derive(Serialize)]
struct FarArray {
    what: &'static str,
    key: String,
    /// Names of the regions that hold it; long files have several.
    names: Vec<String>,
    /// Size of its file in bytes.
    bytes: u64,
}

/// The arrays of a data set that far memory can hold.
#[pyfunction]
fn far_arrays(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyAny>> {
    let described = py.detach(|| -> Result<Vec<FarArray>> {
        found_arrays(&path)?.into_iter().map(|(what, array)| describe(what, array)).collect()
    });
    python_value(py, &described.map_err(to_python)?)
}

fn found_arrays(path: &Path) -> Result<Vec<(&'static str, ArrayRef)>> {
    let data_set = DataSet::open(path)?;
    let mut found = Vec::new();
    if let Some(grid) = usable_grid(&data_set)? {
        let whole = [grid.weights(), grid.order(), Some(grid.out_degrees())];
        let mut arrays = vec![grid.blocks()];
        arrays.extend(whole.into_iter().flatten());
        if !grid.shape().symmetric {
            arrays.push(grid.in_degrees());
        }
        found.extend(arrays.into_iter().map(|array| ("grid", array.clone())));
    }
    if data_set.manifest().roles.features.is_some() {
        found.push(("features", data_set.features()?));
    }
    for key in [keys::OFFSETS, keys::SOURCES, keys::EDGE_IDS] {
        if data_set.has_array(key) {
            found.push(("topology", data_set.array(key)?));
        }
    }
    Ok(found)
}

/// The grid of a data set; `None` if it has no grid, or one that must be rebuilt before use.
fn usable_grid(data_set: &DataSet) -> Result<Option<Grid>> {
    match Grid::open(data_set) {
        Ok(grid) => Ok(Some(grid)),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::Invalid | ErrorKind::Version => Ok(None),
            _ => Err(error),
        },
    }
}

fn describe(what: &'static str, array: ArrayRef) -> Result<FarArray> {
    let metadata = std::fs::metadata(&array.path)
        .with_context(|| format!("file `{}`", array.path.display()))?;
    let parts = placement::parts(&array.content_name(), metadata.len());
    let names = parts.into_iter().map(|(name, _)| name).collect();
    Ok(FarArray { what, key: array.key, names, bytes: metadata.len() })
}

/// Copies arrays of a data set, given by keys, to a memory server and keeps them there. Returns for
/// each `kept`, `there` if it was already kept, or `full` if the server had no room.
#[pyfunction]
fn far_put(
    py: Python<'_>,
    path: PathBuf,
    options: &Bound<'_, PyAny>,
    keys: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<&'static str>> {
    let options: FarOptions = core_value("far memory", options)?;
    let mut callback = Callback::new(progress);
    let result = py.detach(|| -> Result<Vec<&'static str>> {
        let data_set = DataSet::open(&path)?;
        let tier = FarTier::connect_with(&options, Some(&FabricPlane::default()))?;
        let mut engine =
            Engine::open(EngineConfig { depth: COPY_DEPTH, ..EngineConfig::default() })?;
        keys.iter()
            .map(|key| {
                let array = data_set.array(key)?;
                let mut on_progress = |done: u64, total: u64| {
                    callback.call(&format!("put {key}"), done, total, "bytes")
                };
                let contents = Contents {
                    name: &array.content_name(),
                    checksum: &array.checksum,
                    data: array.data_offset..array.data_offset + array.data_len(),
                };
                Ok(match tier.keep(&array.path, &contents, &mut engine, &mut on_progress)? {
                    Placed { refused: 1.., .. } => "full",
                    Placed { bytes: 0, .. } => "there",
                    Placed { .. } => "kept",
                })
            })
            .collect()
    });
    callback.settle(result, to_python)
}

/// Options for measuring a memory server.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProbeOptions {
    /// Size of the region; by default the free memory of the server, up to a limit.
    size: Option<Bytes>,
    seconds_per_point: f64,
}

/// Measures a memory server; returns the profile.
#[pyfunction]
fn far_probe<'py>(
    py: Python<'py>,
    options: &Bound<'py, PyAny>,
    config: &Bound<'py, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options: FarOptions = core_value("far memory", options)?;
    let chosen: ProbeOptions = core_value("probe options", config)?;
    let mut callback = Callback::new(progress);
    let result = py.detach(|| {
        let remote = Connection::build_with(&options, Some(&FabricPlane::default()))?;
        let config = FarProbeConfig {
            size: match chosen.size {
                Some(size) => size,
                None => room_for_probe(&remote)?,
            },
            per_point: Duration::try_from_secs_f64(chosen.seconds_per_point).unwrap_or_default(),
            // The queue itself fails after the time-out; this deadline covers a queue that does
            // not.
            deadline: 2 * options.timeout() + Duration::from_secs(1),
            ..FarProbeConfig::default()
        };
        outercore_far::probe(&remote, &config, &mut |step| match step {
            FarProbeStep::Written { done, of } => callback.call("write", done.0, of.0, "bytes"),
            FarProbeStep::Measured { number, of, .. } => {
                callback.call("measure", number as u64, of as u64, "points")
            }
        })
    });
    python_value(py, &callback.settle(result, to_python)?)
}

/// The default size of the measured region, or the free memory of the server if that is smaller.
fn room_for_probe(remote: &dyn Remote) -> Result<Bytes> {
    let status = remote.status()?;
    let left = Bytes(status.size.0.saturating_sub(status.used.0));
    Ok(left.min(FarProbeConfig::default().size))
}
