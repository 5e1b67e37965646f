use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use numpy::{PyArray1, PyArray2, PyReadonlyArray1, PyReadwriteArray2};
use outercore_core::{Error, Permutation, Result};
use outercore_pipeline::{
    Advance, Epoch, Forecast, Loader as CoreLoader, LoaderConfig, Measured, SeedList, SpareIds,
    SpareRows,
};
use outercore_store::dataset::DataSet as CoreDataSet;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;

use crate::batch::{Optional, Values, no_batch};
use crate::dataset::{DataSet, numpy_array};
use crate::errors::to_python;
use crate::ids::node_ids;
use crate::process::OfProcess;
use crate::row_arrays::row_array;
use crate::rows::rows_mut;
use crate::values::{core_value, python_value};

/// How often a waiting consumer checks for Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Batches of a data set; its public classes are `outercore.NeighborLoader` and `NeighborSampler`.
#[pyclass(module = "outercore._core", frozen)]
pub struct Loader {
    state: OfProcess<Mutex<State>>,
    data_set: CoreDataSet,
    optional: Optional,
}

struct State {
    /// Memory of ids from batches that Python has dropped.
    spare: Arc<SpareIds>,
    /// The same for feature rows, within the planned amount; `None` before the first epoch.
    spare_rows: Option<Arc<SpareRows>>,
    /// `None` once closed.
    loader: Option<CoreLoader>,
    epoch: Option<Epoch>,
}

#[pymethods]
impl Loader {
    /// `config` describes the core's `LoaderConfig`. `input` holds the seeds, or is `None` for
    /// all nodes. `times` holds the time of each seed, if it differs from the time of its node.
    #[new]
    #[pyo3(signature = (data_set, config, input, times = None))]
    fn new(
        data_set: PyRef<'_, DataSet>,
        config: &Bound<'_, PyAny>,
        input: Option<PyReadonlyArray1<'_, i64>>,
        times: Option<PyReadonlyArray1<'_, i64>>,
    ) -> PyResult<Self> {
        let config: LoaderConfig = core_value("loader configuration", config)?;
        let input = input.map(|ids| node_ids(&ids)).transpose().map_err(to_python)?;
        let dataset = data_set.opened().clone();
        let trees = config.disjoint || config.has_times();
        let optional = Optional { edge_ids: config.edge_ids, trees };
        let mut loader = CoreLoader::new(dataset.clone(), input, config).map_err(to_python)?;
        if let Some(times) = times {
            loader = loader.with_times(times.as_slice()?.to_vec()).map_err(to_python)?;
        }
        let (spare, spare_rows) = (Arc::default(), None);
        let state = State { spare, spare_rows, loader: Some(loader), epoch: None };
        Ok(Self { state: OfProcess::new(Mutex::new(state)), data_set: dataset, optional })
    }

    /// Sets other seeds, by global ids, until the next call. Batch `i` gets the seeds from
    /// `bounds[i]` to `bounds[i + 1]` and the number `first + i`. Stops a running epoch.
    fn reseed(
        &self,
        py: Python<'_>,
        seeds: PyReadonlyArray1<'_, i64>,
        times: Option<PyReadonlyArray1<'_, i64>>,
        bounds: PyReadonlyArray1<'_, i64>,
        first: u64,
    ) -> PyResult<()> {
        let seeds = node_ids(&seeds).map_err(to_python)?;
        let bounds = node_ids(&bounds).map_err(to_python)?;
        let times = times.map(|times| times.as_slice().map(<[i64]>::to_vec)).transpose()?;
        py.detach(|| {
            let seeds = SeedList::at(seeds, times.unwrap_or_default(), bounds, first)?;
            let mut state = self.lock();
            state.stop()?;
            state.loader()?.reseed(seeds);
            Ok(())
        })
        .map_err(to_python)
    }

    /// Batches per epoch.
    fn num_batches(&self) -> PyResult<u64> {
        Ok(self.lock().loader().map_err(to_python)?.num_batches())
    }

    /// The memory plan.
    fn plan<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let plan = py.detach(|| self.lock().loader()?.plan().cloned()).map_err(to_python)?;
        python_value(py, &plan)
    }

    /// Expected reads of an epoch. Call it before the first epoch.
    fn forecast<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let forecast = py.detach(|| self.lock().loader()?.forecast()).map_err(to_python)?;
        python_value(py, &forecast)
    }

    /// Starts some batches to measure the stages. Call it before the first epoch.
    fn start_trial(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut state = self.lock();
            state.stop()?;
            state.epoch = Some(state.loader()?.time_stages()?);
            Ok(())
        })
        .map_err(to_python)
    }

    /// Ends a trial or an epoch.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.lock().stop()).map_err(to_python)
    }

    /// Width of a feature row by node type; 0 without features.
    fn widths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let widths = py.detach(|| self.lock().loader()?.widths()).map_err(to_python)?;
        let result = PyDict::new(py);
        for (range, width) in self.data_set.schema().node_types().iter().zip(widths) {
            result.set_item(&range.name, width)?;
        }
        Ok(result)
    }

    /// Starts an epoch at a batch, and stops a running one.
    fn start(&self, py: Python<'_>, epoch: u64, first_batch: u64) -> PyResult<()> {
        py.detach(|| {
            let mut state = self.lock();
            state.stop()?;
            state.epoch = Some(state.loader()?.epoch(epoch, first_batch)?);
            if state.spare_rows.is_none() {
                let rows = state.loader()?.plan()?.delivered_rows();
                state.spare_rows = Some(Arc::new(SpareRows::new(rows)));
            }
            Ok(())
        })
        .map_err(to_python)
    }

    /// Moves to the next batch; returns `False` at the end of the epoch.
    fn advance(&self, py: Python<'_>) -> PyResult<bool> {
        loop {
            let advanced = py.detach(|| {
                let mut state = self.lock();
                let Some(epoch) = &mut state.epoch else { return Ok(Advance::End) };
                let advanced = epoch.advance(SIGNAL_INTERVAL);
                if !matches!(advanced, Ok(Advance::Batch | Advance::NotYet)) {
                    let stopped = state.stop();
                    return advanced.and_then(|end| stopped.map(|()| end));
                }
                advanced
            });
            match advanced.map_err(to_python)? {
                Advance::Batch => return Ok(true),
                Advance::End => return Ok(false),
                Advance::NotYet => py.check_signals()?,
            }
        }
    }

    /// The values of the current batch by node type and edge type, of the seeds, and the rows of
    /// further arrays, as NumPy arrays that Python owns. With `by_target`, `int64` or `int32`, edges
    /// are in compressed form with ids of this type; available only once per batch. The caller
    /// guarantees that ids fit into 32 bits.
    #[pyo3(signature = (by_target = None))]
    fn batch<'py>(&self, py: Python<'py>, by_target: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
        let mut state = self.lock();
        let arrays = arrays_of(py, &mut state)?;
        let State { spare, epoch, .. } = &mut *state;
        let epoch = epoch.as_mut().ok_or_else(no_batch)?;
        let (schema, optional) = (self.data_set.schema(), self.optional);
        let values = match by_target {
            None => Values::of(py, schema, epoch, spare, optional)?,
            Some(ids) => Values::by_target(py, schema, epoch, spare, optional, ids == "int32")?,
        };
        let result = values.into_dict(py)?;
        result.set_item("arrays", arrays)?;
        Ok(result)
    }

    /// A new array for the feature rows of a batch (nodes x width), page-aligned and uninitialised;
    /// `None` below 1 MiB, where the caller's memory works equally well.
    fn row_array<'py>(
        &self,
        py: Python<'py>,
        nodes: usize,
        width: usize,
    ) -> PyResult<Option<Bound<'py, PyArray2<f32>>>> {
        let spare = self.lock().spare_rows.clone();
        spare.map_or(Ok(None), |spare| row_array(py, &spare, nodes, width))
    }

    /// Writes the feature rows of the current batch's nodes of one type to `out` (nodes x width).
    #[pyo3(signature = (out, node_type = "node"))]
    fn gather(
        &self,
        py: Python<'_>,
        mut out: PyReadwriteArray2<'_, f32>,
        node_type: &str,
    ) -> PyResult<()> {
        let node_type = self.data_set.schema().node_type(node_type).map_err(to_python)?;
        let out = rows_mut(&mut out)?;
        py.detach(|| {
            let mut state = self.lock();
            let Some(epoch) = &mut state.epoch else {
                return Err(Error::invalid("there is no batch to gather"));
            };
            epoch.gather(node_type, out)
        })
        .map_err(to_python)
    }

    /// Counters and timeline since the last call.
    fn take_counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (counters, spans, dropped) = self.lock().loader().map_err(to_python)?.take_counters();
        let taken = json!({
            "counters": counters,
            "hit_ratio": counters.cache.hit_ratio(),
            "timeline": spans,
            "timeline_dropped": dropped,
        });
        python_value(py, &taken)
    }

    /// Stops a running epoch and frees all memory.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut state = self.lock();
            let stopped = state.stop();
            state.loader = None;
            // Arrays that Python still holds free their memory, because their weak reference is now
            // dead.
            state.spare = Arc::default();
            state.spare_rows = None;
            stopped
        })
        .map_err(to_python)
    }
}

impl Loader {
    /// Ignores poisoning: a panic leaves nothing that `stop` could not clear.
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn loader(&mut self) -> Result<&mut CoreLoader> {
        self.loader.as_mut().ok_or_else(|| {
            Error::invalid("the loader is closed").hint("make a new one over the same graph")
        })
    }

    fn stop(&mut self) -> Result<()> {
        match (self.epoch.take(), &mut self.loader) {
            (Some(epoch), Some(loader)) => loader.finish(epoch),
            _ => Ok(()),
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // The stages end on their own. An unread error is dropped with them.
        let _ = self.stop();
    }
}

/// The rows of the further arrays of the current batch, in the order of the configuration; empty if
/// they were already taken.
fn arrays_of<'py>(py: Python<'py>, state: &mut State) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let types = state.loader().and_then(|loader| loader.array_types()).map_err(to_python)?;
    let rows = state.epoch.as_mut().map(Epoch::take_arrays).unwrap_or_default();
    let typed = rows.into_iter().zip(types);
    let arrays = typed.map(|(bytes, (dtype, shape))| {
        let row: usize = shape[1..].iter().map(|&n| n as usize).product();
        let mut shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
        shape[0] = bytes.len() / (row * dtype.size()).max(1);
        numpy_array(py, dtype, bytes, shape)
    });
    arrays.collect()
}

/// The items at the places `first` to `last` in the shuffled order of an epoch with `count` items.
/// It is the order in which a shuffled epoch visits its seeds.
#[pyfunction]
pub fn shuffled<'py>(
    py: Python<'py>,
    count: u64,
    seed: u64,
    epoch: u64,
    first: u64,
    last: u64,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    if first > last || last > count {
        let text = format!("places {first} to {last} of {count}");
        return Err(to_python(Error::invalid(text)));
    }
    let order = Permutation::new(count, seed, epoch);
    let found: Vec<i64> = order.range(first..last).into_iter().map(|place| place as i64).collect();
    Ok(PyArray1::from_vec(py, found))
}

/// The times of epochs, from the reads that `Loader.forecast` expects and the measured costs.
#[pyfunction]
pub fn expected_epochs<'py>(
    py: Python<'py>,
    forecast: &Bound<'py, PyAny>,
    measured: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let forecast: Forecast = core_value("forecast", forecast)?;
    let measured: Measured = core_value("measured costs", measured)?;
    python_value(py, &forecast.expect(&measured))
}
