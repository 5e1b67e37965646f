//! The partition executor: steps and views of its memory.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use numpy::ndarray::{ArrayView2, ShapeBuilder};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use outercore_core::{Bytes, Error, Result};
use outercore_embed::buckets::Source;
use outercore_embed::{
    Buckets, Executor, ExecutorCounters, ExecutorMemory, Order, Partitioning, PoolReader, Pools,
    SlotViews, Step, TableLayout, WalkConfig, Walks, build_buckets, plan_memory,
};
use outercore_io::{EngineConfig, RealDisk};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::sources::TripleSource;
use crate::errors::{interrupted, to_python};
use crate::process::OfProcess;
use crate::progress::Callback;
use crate::rows::rows as in_rows;
use crate::values::{core_value, python_value};

const BUCKETS: &str = "buckets.bin";
/// Values that are filled at once when a table is created.
const FILL_NUMBERS: usize = 1 << 21;
/// Staging for reading the table of buckets, before the memory is planned.
const LEAST_STAGING: Bytes = Bytes::kib(128);

/// Source of buckets.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sorting {
    nodes: u64,
    relations: u64,
    partitions: usize,
    seed: u64,
    source: TripleSource,
    memory: Bytes,
}

/// Options for creating a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Creation {
    sorting: Sorting,
    dim: usize,
    state_width: usize,
    #[serde(default)]
    walks: WalkConfig,
}

impl Sorting {
    fn partitioning(&self) -> Result<Partitioning> {
        Partitioning::new(self.nodes, self.partitions, self.seed)
    }

    /// Creates the file of buckets in a directory, if it does not exist yet.
    fn make(&self, directory: &Path, callback: &mut Callback) -> Result<PathBuf> {
        let source = Source {
            partitioning: self.partitioning()?,
            relations: self.relations,
            identity: self.source.identity()?,
        };
        let mut triples = self.source.open()?;
        let path = directory.join(BUCKETS);
        let mut told = callback.of_triples();
        build_buckets(&RealDisk, &path, &mut *triples, &source, self.memory, &mut told)?;
        Ok(path)
    }
}

/// Sorts triples into the buckets of a future table in a directory; returns the number of triples
/// in each bucket.
#[pyfunction]
#[pyo3(signature = (directory, sorting, progress))]
pub fn sort_triples<'py>(
    py: Python<'py>,
    directory: PathBuf,
    sorting: &Bound<'py, PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let sorting: Sorting = core_value("buckets", sorting)?;
    let mut callback = Callback::new(progress);
    let counted = py.detach(|| {
        let path = sorting.make(&directory, &mut callback)?;
        Ok(Buckets::open(&path, engine(LEAST_STAGING))?.counts().edges())
    });
    python_value(py, &callback.settle(counted, to_python)?)
}

/// Creates a table of partitions in a directory, with its buckets.
///
/// `rows` is called with node ids, int64, and returns their initial rows, float32. `progress` is
/// called while the buckets are built.
#[pyfunction]
#[pyo3(signature = (directory, creation, order, resident, rows, progress))]
pub fn create_partitions(
    py: Python<'_>,
    directory: PathBuf,
    creation: &Bound<'_, PyAny>,
    order: &Bound<'_, PyAny>,
    resident: &[u8],
    rows: Py<PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let creation: Creation = core_value("table of partitions", creation)?;
    let order: Order = core_value(super::ORDER, order)?;
    let mut raised = None;
    let mut callback = Callback::new(progress);
    let result = py.detach(|| {
        let layout =
            TableLayout::new(creation.sorting.partitioning()?, creation.dim, creation.state_width)?;
        let mut prepare = || {
            creation.sorting.make(&directory, &mut callback)?;
            // Plan the memory first, so that a small budget is reported before a table is written.
            let walks = Walks::new(order.clone(), creation.walks)?;
            plan(&directory, &layout, &walks, creation.sorting.memory).map(|_| ())
        };
        let mut fill = |partition: usize, embeddings: &mut [f32], _: &mut [f32]| {
            fill_rows(&layout, partition, embeddings, &rows, &mut raised)
        };
        let disk = Arc::new(RealDisk);
        let walks = creation.walks;
        Executor::create_with(
            disk,
            &directory,
            &layout,
            &order,
            walks,
            resident,
            &mut prepare,
            &mut fill,
        )
    });
    match raised {
        Some(error) => Err(error),
        None => callback.settle(result, to_python),
    }
}

/// Requests the rows of a partition from Python, in batches.
fn fill_rows(
    layout: &TableLayout,
    partition: usize,
    embeddings: &mut [f32],
    rows: &Py<PyAny>,
    raised: &mut Option<PyErr>,
) -> Result<()> {
    let dim = layout.dim();
    let step = (FILL_NUMBERS / dim).max(1);
    let mut nodes = layout.partitioning().nodes_of(partition);
    for some in embeddings.chunks_mut(step * dim) {
        let numbers: Vec<i64> =
            nodes.by_ref().take(some.len() / dim).map(|node| node as i64).collect();
        let count = numbers.len();
        let filled = Python::attach(|py| -> PyResult<()> {
            let given = rows.call1(py, (numbers.into_pyarray(py),))?;
            let given = given.bind(py).cast::<PyArray2<f32>>()?.readonly();
            let given = in_rows(&given)?;
            if given.len() != some.len() {
                return Err(to_python(Error::internal(format!("{count} rows were asked for"))));
            }
            some.copy_from_slice(given);
            Ok(())
        });
        if let Err(error) = filled {
            let stopped = interrupted(&error);
            *raised = Some(error);
            return Err(stopped);
        }
    }
    Ok(())
}

/// Rows of float32.
type Table<'py> = Bound<'py, PyArray2<f32>>;

/// Trains a table larger than memory; used by
/// `outercore.embedding.tables.partitions.PartitionStore`.
#[pyclass(module = "outercore._core", frozen)]
pub struct PartitionExecutor {
    state: OfProcess<Mutex<State>>,
}

struct State {
    executor: Executor,
    pools: PoolReader,
    memory: ExecutorMemory,
    /// Triples of the largest pool, and of buckets that are read whole because a pool takes a part.
    largest_pool: Pools,
}

#[derive(Serialize)]
struct Counters {
    #[serde(flatten)]
    partitions: ExecutorCounters,
    triples_waited_s: f64,
}

/// Keeps the slots' memory alive while an array refers to it.
#[pyclass(module = "outercore._core", frozen)]
pub struct SlotMemory {
    views: SlotViews,
}

#[pymethods]
impl PartitionExecutor {
    /// Opens the table in `directory` at its last commit.
    #[new]
    fn new(py: Python<'_>, directory: PathBuf, memory: u64) -> PyResult<Self> {
        let state = py.detach(|| open(&directory, Bytes(memory))).map_err(to_python)?;
        Ok(Self { state: OfProcess::new(Mutex::new(state)) })
    }

    /// Memory by purpose.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let memory = self.lock().memory;
        python_value(py, &memory)
    }

    /// Triples of the largest possible pool, and of buckets that are read whole because a pool
    /// takes a part.
    fn largest_pool(&self) -> (u64, u64) {
        let Pools { most, beside } = self.lock().largest_pool;
        (most, beside)
    }

    /// Sizes of the table.
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut state = self.lock();
        let State { executor, pools, .. } = &mut *state;
        let (layout, buckets) = (executor.layout(), pools.buckets().map_err(to_python)?);
        let shape = json!({
            "nodes": layout.partitioning().nodes(),
            "relations": buckets.made_from().relations,
            "partitions": layout.partitioning().partitions(),
            "dim": layout.dim(),
            "state_width": layout.state_width(),
            "slot_rows": layout.slot_rows(),
            "slots": executor.slots(),
            "partition_bytes": layout.partition_bytes().0,
            "triples": buckets.triples(),
            "weighted": buckets.weighted(),
            "walks": executor.walk_config(),
        });
        drop(state);
        python_value(py, &shape)
    }

    /// The slots' embeddings [slots x slot rows, dim] and state, as arrays on the slots' memory.
    ///
    /// Only rows of the last step's partitions may be used, until the next step is requested or
    /// another method moves partitions: a thread reads and writes the other rows meanwhile.
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<(Table<'py>, Table<'py>)> {
        let (views, layout, slots) = {
            let state = self.lock();
            let executor = &state.executor;
            (executor.slot_views(), *executor.layout(), executor.slots())
        };
        let rows = layout.slot_rows() as usize * slots;
        let memory = Bound::new(py, SlotMemory { views })?;
        let [embeddings, of_state] = memory.get().views.address_ranges();
        let embeddings = array_over(&memory, embeddings, rows, layout.dim())?;
        let of_state = array_over(&memory, of_state, rows, layout.state_width())?;
        Ok((embeddings, of_state))
    }

    /// The next epoch and buffer state.
    fn position(&self) -> (u64, usize) {
        let position = self.lock().executor.position();
        (position.epoch, position.state)
    }

    /// The caller's resident state at the last commit.
    fn resident<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.lock().executor.resident_state().map_err(to_python)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The next step as a dictionary, `None` at the end of an epoch.
    fn advance<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let next = py.detach(|| self.lock().next()).map_err(to_python)?;
        let Some((step, pool)) = next else { return Ok(None) };
        let found = PyDict::new(py);
        let resident: Vec<_> =
            step.resident.iter().map(|r| (r.partition, r.slot, r.rows)).collect();
        found.set_item("epoch", step.epoch)?;
        found.set_item("state", step.state)?;
        found.set_item("number", step.number)?;
        found.set_item("ends_state", step.ends_state)?;
        let buckets: Vec<_> = step.buckets.iter().map(|b| (b.source, b.target)).collect();
        found.set_item("buckets", buckets)?;
        // Number of parts of each bucket; the step trains one of them.
        let parts: Vec<u32> = step.shares.iter().map(|share| share.of).collect();
        found.set_item("parts", parts)?;
        found.set_item("resident", resident)?;
        found.set_item("leaving", step.leaving)?;
        let count = pool.triples.len() / 3;
        let triples = pool.triples.into_pyarray(py).reshape([count, 3])?;
        found.set_item("triples", triples)?;
        let weights = (pool.weighted).then(|| pool.weights.into_pyarray(py));
        found.set_item("weights", weights)?;
        Ok(Some(found))
    }

    /// Makes all training so far durable.
    fn commit(&self, py: Python<'_>, resident: &[u8]) -> PyResult<()> {
        py.detach(|| self.lock().executor.commit(resident)).map_err(to_python)
    }

    /// Embeddings of `count` rows of a partition, starting at `first`, and the nodes of these rows.
    fn read_rows<'py>(
        &self,
        py: Python<'py>,
        partition: usize,
        first: u64,
        count: u64,
    ) -> PyResult<(Bound<'py, PyArray1<i64>>, Table<'py>)> {
        let (nodes, rows, dim) = py
            .detach(|| {
                let mut state = self.lock();
                let rows = state.executor.read_rows(partition, first, count)?;
                let layout = *state.executor.layout();
                let dealer = layout.partitioning().dealer();
                let nodes: Vec<i64> = (first..first + count)
                    .map(|row| dealer.node_at(partition, row) as i64)
                    .collect();
                Ok((nodes, rows, layout.dim()))
            })
            .map_err(to_python)?;
        let count = nodes.len();
        Ok((nodes.into_pyarray(py), rows.into_pyarray(py).reshape([count, dim])?))
    }

    /// Embeddings of nodes, in the given order.
    fn rows_of<'py>(
        &self,
        py: Python<'py>,
        nodes: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Table<'py>> {
        let nodes = nodes.as_slice()?;
        let (rows, dim) = py
            .detach(|| {
                let mut state = self.lock();
                let dim = state.executor.layout().dim();
                let mut rows = vec![0.0; nodes.len() * dim];
                state.executor.rows_of_nodes(nodes, &mut rows)?;
                Ok((rows, dim))
            })
            .map_err(to_python)?;
        rows.into_pyarray(py).reshape([nodes.len(), dim])
    }

    /// Writes all embeddings in the order of the partitions; returns their checksum.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<String> {
        py.detach(|| self.lock().executor.save_embeddings(&path)).map_err(to_python)
    }

    /// Replaces all embeddings by those that `save` wrote.
    fn load(&self, py: Python<'_>, path: PathBuf, checksum: &str) -> PyResult<()> {
        py.detach(|| self.lock().executor.load_embeddings(&path, checksum)).map_err(to_python)
    }

    /// Writes all embeddings in the order of the nodes, as a `.npy` file.
    fn write_npy(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.lock().executor.write_npy(&path)).map_err(to_python)
    }

    /// Cost of moving partitions and waiting for triples since the table was opened.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.lock();
        let counters = Counters {
            partitions: state.executor.counters(),
            triples_waited_s: state.pools.waited().as_secs_f64(),
        };
        drop(state);
        python_value(py, &counters)
    }

    /// Degree of every node, with the nodes of a partition after each other; one pass over the
    /// triples.
    #[pyo3(signature = (progress))]
    fn degrees<'py>(
        &self,
        py: Python<'py>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let mut callback = Callback::new(progress);
        let degrees = py.detach(|| {
            let mut told = callback.of_triples();
            self.lock().pools.buckets()?.degrees(&mut told)
        });
        Ok(callback.settle(degrees, to_python)?.into_pyarray(py))
    }

    /// Triples in each bucket.
    fn edges<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let edges = self.lock().pools.buckets().map(|buckets| buckets.counts().edges());
        python_value(py, &edges.map_err(to_python)?)
    }

    /// The order of walks that run forwards.
    fn order<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let order = self.lock().executor.order(0).clone();
        python_value(py, &order)
    }
}

impl PartitionExecutor {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic leaves the executor in the same state as an error: the last commit is valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool in the form for Python.
struct Pool {
    triples: Vec<i64>,
    weights: Vec<f32>,
    weighted: bool,
}

impl State {
    fn next(&mut self) -> Result<Option<(Step, Pool)>> {
        let Some(step) = self.executor.advance()? else { return Ok(None) };
        let read = self.pools.read(&step, self.executor.layout().slot_rows())?;
        let triples = read.triples.iter().flatten().map(|&word| i64::from(word)).collect();
        let weights = read.weights.clone();
        let pool = Pool { triples, weights, weighted: self.pools.buckets()?.weighted() };
        if let Some(visits) = self.executor.upcoming() {
            self.pools.begin(visits.to_vec())?;
        }
        Ok(Some((step, pool)))
    }
}

fn engine(staging: Bytes) -> EngineConfig {
    EngineConfig { staging, ..EngineConfig::default() }
}

/// Memory by purpose, given the existing buckets.
fn plan(
    directory: &Path,
    layout: &TableLayout,
    walks: &Walks,
    memory: Bytes,
) -> Result<ExecutorMemory> {
    let path = directory.join(BUCKETS);
    let buckets = Buckets::open(&path, engine(LEAST_STAGING))?;
    if buckets.made_from().partitioning != layout.partitioning() {
        return Err(Error::corrupt(format!(
            "buckets `{}`: of {:?}, expected {:?} as the table has",
            path.display(),
            buckets.made_from().partitioning,
            layout.partitioning()
        ))
        .hint("go on from a copy of the directory, or train again"));
    }
    plan_memory(layout, walks, &buckets, memory)
}

fn open(directory: &Path, memory: Bytes) -> Result<State> {
    let (layout, walks) = Executor::describe(directory)?;
    let plan = plan(directory, &layout, &walks, memory)?;
    let executor = Executor::open(Arc::new(RealDisk), directory, engine(plan.staging))?;
    let mut buckets = Buckets::open(&directory.join(BUCKETS), engine(plan.bucket_staging))?;
    if plan.keeps_triples() {
        buckets.keep_all()?;
    }
    let largest_pool = buckets.largest_pool(&walks);
    let pools = PoolReader::new(buckets)?;
    Ok(State { executor, pools, memory: plan, largest_pool })
}

/// An array on the slots' memory, which `memory` keeps alive.
fn array_over<'py>(
    memory: &Bound<'py, SlotMemory>,
    range: Range<*const u8>,
    rows: usize,
    width: usize,
) -> PyResult<Table<'py>> {
    if width == 0 {
        return Ok(PyArray2::zeros(memory.py(), [rows, 0], false));
    }
    let bytes = range.end as usize - range.start as usize;
    if bytes < rows * width * 4 {
        return Err(to_python(Error::internal("slots are larger than their memory")));
    }
    // SAFETY: the range is one mapping of at least that many initialised bytes, on a page's
    // boundary. It lives as long as `memory`, which the array keeps alive.
    let view = unsafe {
        ArrayView2::from_shape_ptr((rows, width).into_shape_with_order(), range.start.cast::<f32>())
    };
    // SAFETY: `memory` owns the bytes of `view`. The array covers all slots, but Python may access
    // only the rows of the last step's partitions, from the return of `advance` until the next call
    // of any method that moves partitions. Within these calls Rust reads and writes any row;
    // between them its worker stores and loads one slot, which never belongs to the last step. The
    // borrow checker cannot verify this: `PartitionStore` has to respect it, and returns the ranges
    // of rows that may be accessed with every pool.
    Ok(unsafe { PyArray2::borrow_from_array(&view, memory.clone().into_any()) })
}
