use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use numpy::{PyReadonlyArray1, PyReadonlyArrayDyn};
use outercore_core::{Bytes, Error, Result};
use outercore_format::{DType, Given, Manifest, Provenance};
use outercore_io::RealDisk;
use outercore_store::arrays::{ArrayBuilder, ArraySpec, ArraySummary, NonFinite, Target};
use outercore_store::generate::{self, PlantedOptions, RmatOptions};
use outercore_store::import::{
    Duplicates, EdgeImportOptions, EdgeText, GraphImport, GraphImportOptions, GraphTypes,
    OnProgress, Progress, SelfLoops,
};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::errors::to_python;
use crate::progress::Callback;
use crate::values::{core_value, parsed, python_value, value_and_fields};

/// Options of an import.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ImportOptions {
    memory: Bytes,
    nodes: Option<u64>,
    undirected: bool,
    self_loops: SelfLoops,
    duplicates: Duplicates,
    overwrite: bool,
    command: String,
    inputs: Vec<String>,
    /// The inputs with edges. They identify the import; other arrays do not.
    edges: Vec<String>,
    /// Further options that identify the import, such as the chosen columns.
    reading: String,
    /// Types of nodes and edges, if there are several.
    types: Option<GraphTypes>,
    /// The id of the first node in the input.
    first_id: u64,
}

impl Default for ImportOptions {
    fn default() -> Self {
        let edges = EdgeImportOptions::default();
        Self {
            memory: edges.memory,
            nodes: edges.num_nodes,
            undirected: edges.undirected,
            self_loops: edges.self_loops,
            duplicates: edges.duplicates,
            overwrite: false,
            command: String::new(),
            inputs: Vec::new(),
            edges: Vec::new(),
            reading: String::new(),
            types: None,
            first_id: 0,
        }
    }
}

impl ImportOptions {
    fn into_core(self, options: Map<String, Value>) -> GraphImportOptions {
        GraphImportOptions {
            edges: EdgeImportOptions {
                memory: self.memory,
                num_nodes: self.nodes,
                undirected: self.undirected,
                self_loops: self.self_loops,
                duplicates: self.duplicates,
                ..EdgeImportOptions::default()
            },
            types: self.types,
            first_id: self.first_id,
            overwrite: self.overwrite,
            provenance: Provenance {
                command: self.command,
                outercore: env!("CARGO_PKG_VERSION").to_owned(),
                inputs: self.inputs,
                options,
            },
        }
    }
}

/// Properties of an array.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArrayOptions {
    allow_nan: bool,
    dtype: Option<String>,
    pub in_place: bool,
    /// Task of labels: `classification`, `multi-label` or `regression`; guessed if absent.
    task: Option<String>,
    /// The node type or edge type of the array, in a graph with several types.
    pub of_type: Option<String>,
    /// The form in batches, if it differs from the stored form.
    given: Option<Given>,
    /// Arrow's name for the type of points in time.
    times: Option<String>,
}

impl ArrayOptions {
    /// The specification of an array for `target` with `rows` rows.
    pub fn spec(&self, target: Target, rows: u64) -> Result<ArraySpec> {
        let mut spec = ArraySpec::new(target, rows);
        if !matches!(spec.target, Target::Split(_) | Target::Names(_)) {
            spec.of_type = self.of_type.clone();
        }
        spec.dtype = self.dtype.as_deref().map(str::parse).transpose()?;
        spec.given.clone_from(&self.given);
        spec.task = self.task.as_deref().map(str::parse).transpose()?;
        spec.times = self.times.clone();
        if self.allow_nan {
            spec.non_finite = NonFinite::Allow;
        }
        Ok(spec)
    }
}

/// The target of an array with the role `role`.
pub fn target_of(role: &str, name: &str) -> Result<Target> {
    Ok(match role {
        "features" => Target::Features,
        "labels" => Target::Labels,
        "split" => Target::Split(name.to_owned()),
        "array" => Target::Node(name.to_owned()),
        "edge" => Target::Edge(name.to_owned()),
        "names" => Target::Names(name.to_owned()),
        _ => return Err(Error::internal(format!("array role `{role}`"))),
    })
}

/// Results for an array, for the summary.
pub fn noted(spec: &ArraySpec, summary: ArraySummary) -> Value {
    json!({
        "rows": summary.rows, "nan": summary.nan, "infinite": summary.infinite,
        "unlabelled": summary.unlabelled, "classes": summary.classes,
        "task": summary.task, "task_guessed": summary.task.is_some() && spec.task.is_none(),
    })
}

/// Builds a data set from pushed data; its public interface is `outercore.importing`.
#[pyclass(module = "outercore._core", frozen)]
pub struct Importer {
    progress: Py<PyAny>,
    /// Boxed, because it holds hashes whose alignment exceeds the alignment of Python objects.
    state: Mutex<Box<State>>,
}

struct State {
    /// `None` once committed.
    import: Option<GraphImport>,
    /// Number of nodes, once the edges are complete.
    nodes: Option<u64>,
    /// Number of input edges, once they are complete.
    edge_rows: u64,
    builder: Option<ArrayBuilder>,
    /// Results for the input, for the summary.
    found: Map<String, Value>,
}

#[pymethods]
impl Importer {
    #[new]
    fn new(
        py: Python<'_>,
        out: PathBuf,
        options: &Bound<'_, PyAny>,
        progress: Py<PyAny>,
    ) -> PyResult<Self> {
        let (options, all): (ImportOptions, _) = value_and_fields("import options", options)?;
        let fingerprint = format!("{}\n{}", options.edges.join("\n"), options.reading);
        let core = options.into_core(all);
        let import = py
            .detach(|| GraphImport::begin(Arc::new(RealDisk), &out, core, &fingerprint))
            .map_err(to_python)?;
        let state = State {
            import: Some(import),
            nodes: None,
            edge_rows: 0,
            builder: None,
            found: Map::new(),
        };
        Ok(Self { progress, state: Mutex::new(Box::new(state)) })
    }

    /// `text`: the dialect and the columns of source and target.
    fn edges_text(&self, py: Python<'_>, path: PathBuf, text: &Bound<'_, PyAny>) -> PyResult<()> {
        let text: EdgeText = core_value("how the text is written", text)?;
        self.run(py, |state, progress| state.import()?.edges().text_as(&path, text, progress))
    }

    fn edges_npy(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.run(py, |state, progress| state.import()?.edges().npy(&path, progress))
    }

    /// `sources` and `targets`: int64 of the same length.
    fn push_edges(
        &self,
        py: Python<'_>,
        sources: PyReadonlyArray1<'_, i64>,
        targets: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<()> {
        let (sources, targets) = (sources.as_slice()?, targets.as_slice()?);
        self.run(py, |state, _| state.import()?.push_edges(sources, targets))
    }

    /// Starts the edges of a type, by its name in keys. Types come in the order of their names.
    fn begin_edge_type(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.run(py, |state, _| state.import()?.begin_edge_type(name))
    }

    /// A whole `.npy` file: copied, or with the option `in_place` registered in place.
    fn array_npy(
        &self,
        py: Python<'_>,
        role: &str,
        name: &str,
        path: PathBuf,
        options: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let options: ArrayOptions = core_value("array options", options)?;
        self.run(py, |state, progress| {
            let spec = state.spec(role, name, &options, progress)?;
            let import = state.import()?;
            let summary = if options.in_place {
                import.array_in_place(&spec, &path, progress)?
            } else {
                import.array_from_npy(&spec, &path, progress)?
            };
            state.note(&spec, summary);
            Ok(())
        })
    }

    /// Starts an array with rows of `dtype`; `width` is `None` for one value per row.
    fn array_begin(
        &self,
        py: Python<'_>,
        role: &str,
        name: &str,
        dtype: &str,
        width: Option<u64>,
        options: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let options: ArrayOptions = core_value("array options", options)?;
        self.run(py, |state, progress| {
            let spec = state.spec(role, name, &options, progress)?;
            let dtype: DType = dtype.parse()?;
            let row_shape: Vec<u64> = width.into_iter().collect();
            state.builder = Some(state.import()?.builder(&spec, dtype, &row_shape)?);
            Ok(())
        })
    }

    /// The bytes of the next `rows` rows.
    fn array_push(
        &self,
        py: Python<'_>,
        bytes: PyReadonlyArrayDyn<'_, u8>,
        rows: u64,
    ) -> PyResult<()> {
        let bytes = bytes.as_slice()?;
        self.run(py, |state, _| state.builder()?.push_rows(bytes, rows))
    }

    fn array_end(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |state, _| {
            let builder = state.builder.take().ok_or_else(no_array)?;
            let spec = builder.spec().clone();
            let summary = state.import()?.add(builder, "pushed rows")?;
            state.note(&spec, summary);
            Ok(())
        })
    }

    /// Releases the directory. Durable data stays, so that the same import can resume. `refused`
    /// says that the input is wrong, so that only other input can follow.
    fn close(&self, py: Python<'_>, refused: bool) {
        py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.builder = None;
            if let Some(import) = state.import.take()
                && refused
            {
                import.end_refused();
            }
        });
    }

    /// Commits the data set; returns the summary.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let summary = self.run(py, |state, progress| {
            state.nodes(progress)?;
            let import = state.import.take().ok_or_else(committed)?;
            Ok(summary(&import.commit()?, std::mem::take(&mut state.found)))
        })?;
        python_value(py, &summary)
    }
}

impl Importer {
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        step: impl FnOnce(&mut State, OnProgress<'_>) -> Result<T> + Send,
    ) -> PyResult<T> {
        let mut callback = Callback::new(Some(self.progress.clone_ref(py)));
        let result = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            step(&mut state, &mut |at| report(&mut callback, at))
        });
        callback.settle(result, to_python)
    }
}

impl State {
    fn import(&mut self) -> Result<&mut GraphImport> {
        self.import.as_mut().ok_or_else(committed)
    }

    fn builder(&mut self) -> Result<&mut ArrayBuilder> {
        self.builder.as_mut().ok_or_else(no_array)
    }

    /// Completes the edges before the first array, because they determine the number of nodes.
    fn nodes(&mut self, progress: OnProgress<'_>) -> Result<u64> {
        if let Some(nodes) = self.nodes {
            return Ok(nodes);
        }
        let edges = self.import()?.finish_edges(progress)?;
        let found = json!({
            "input_edges": edges.input_edges,
            "loops_dropped": edges.loops_dropped,
            "loops_added": edges.loops_added,
            "duplicates_dropped": edges.duplicates_dropped,
            "comment_lines": edges.comment_lines,
            "repeated_headers": edges.repeated_headers,
            "padded_ids": edges.padded_ids,
        });
        let (nodes, rows) = (edges.num_nodes, edges.edge_rows);
        self.edge_rows = rows;
        if let Value::Object(found) = found {
            self.found.extend(found);
        }
        self.nodes = Some(nodes);
        Ok(nodes)
    }

    fn spec(
        &mut self,
        role: &str,
        name: &str,
        options: &ArrayOptions,
        progress: OnProgress<'_>,
    ) -> Result<ArraySpec> {
        let target = target_of(role, name)?;
        let nodes = self.nodes(progress)?;
        let is_edge = matches!(target, Target::Edge(_));
        let rows = match &options.of_type {
            Some(of_type) if is_edge => self.import()?.rows_of(of_type)?,
            Some(of_type) => self.import()?.nodes_of(of_type)?,
            None if is_edge => self.edge_rows,
            None => nodes,
        };
        options.spec(target, rows)
    }

    fn note(&mut self, spec: &ArraySpec, summary: ArraySummary) {
        self.found.insert(spec.key(), noted(spec, summary));
    }
}

/// Writes an R-MAT graph; returns the summary.
#[pyfunction]
pub fn generate_rmat<'py>(
    py: Python<'py>,
    out: PathBuf,
    options: &Bound<'py, PyAny>,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    #[derive(Deserialize)]
    struct Size {
        scale: u32,
        edge_factor: u64,
        seed: u64,
    }
    const OWN: [&str; 3] = ["scale", "edge_factor", "seed"];
    let Size { scale, edge_factor, seed } = core_value("R-MAT options", options)?;
    let size = RmatOptions { scale, edge_factor, seed };
    generated(py, options, progress, &OWN, |import, progress| {
        generate::rmat(Arc::new(RealDisk), &out, size, import, progress)
    })
}

/// Writes a graph of planted communities; returns the summary.
#[pyfunction]
pub fn generate_planted<'py>(
    py: Python<'py>,
    out: PathBuf,
    options: &Bound<'py, PyAny>,
    progress: Py<PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    #[derive(Deserialize)]
    struct Shape {
        nodes: u64,
        degree: u64,
        features: u64,
        classes: u64,
        seed: u64,
        homophily: Option<f64>,
        noise: Option<f64>,
        dtype: Option<String>,
        splits: Option<[f64; 3]>,
    }
    const OWN: [&str; 9] =
        ["nodes", "degree", "features", "classes", "seed", "homophily", "noise", "dtype", "splits"];
    let shape: Shape = core_value("planted options", options)?;
    generated(py, options, progress, &OWN, |import, progress| {
        let default = PlantedOptions::default();
        let planted = PlantedOptions {
            nodes: shape.nodes,
            degree: shape.degree,
            features: shape.features,
            classes: shape.classes,
            homophily: shape.homophily.unwrap_or(default.homophily),
            noise: shape.noise.unwrap_or(default.noise),
            dtype: shape.dtype.as_deref().map_or(Ok(default.dtype), str::parse)?,
            splits: shape.splits.unwrap_or(default.splits),
            seed: shape.seed,
        };
        generate::planted(Arc::new(RealDisk), &out, planted, import, progress)
    })
}

/// Runs a generator with all options except its `own`.
fn generated<'py>(
    py: Python<'py>,
    options: &Bound<'py, PyAny>,
    progress: Py<PyAny>,
    own: &[&str],
    make: impl FnOnce(GraphImportOptions, OnProgress<'_>) -> Result<Manifest> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let all: Map<String, Value> = core_value("generator options", options)?;
    let mut shared = all.clone();
    shared.retain(|key, _| !own.contains(&key.as_str()));
    let import: ImportOptions =
        parsed("generator options", Value::Object(shared)).map_err(to_python)?;
    let mut callback = Callback::new(Some(progress));
    let result = py.detach(|| make(import.into_core(all), &mut |at| report(&mut callback, at)));
    let manifest = callback.settle(result, to_python)?;
    python_value(py, &summary(&manifest, Map::new()))
}

fn report(callback: &mut Callback, at: Progress) -> Result<()> {
    callback.call(&at.phase.to_string(), at.done, at.total, &at.unit.to_string())
}

fn summary(manifest: &Manifest, found: Map<String, Value>) -> Map<String, Value> {
    let nodes: u64 = manifest.node_types.values().map(|nodes| nodes.count).sum();
    let edges: u64 = manifest.edge_types.values().map(|edges| edges.count).sum();
    let bytes: u64 = manifest.arrays.values().map(|array| array.data_len()).sum();
    let mut summary = Map::new();
    summary.insert("nodes".to_owned(), nodes.into());
    summary.insert("edges".to_owned(), edges.into());
    summary.insert("bytes".to_owned(), bytes.into());
    summary.insert("classes".to_owned(), manifest.roles.classes.into());
    summary.extend(found);
    summary
}

fn committed() -> Error {
    Error::invalid("the import is finished").hint("begin another one")
}

pub fn no_array() -> Error {
    Error::invalid("no array was begun")
}
