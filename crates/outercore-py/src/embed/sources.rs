//! Sources of the triples of an embedding.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_embed::{
    ArrayTriples, GraphLinks, GraphTriples, HeldOut, OnProgress, PartTriples, Pass, TriplePart,
    TripleReader, Triples,
};
use outercore_format::keys::{EDGE_IDS, EDGE_WEIGHTS, OFFSETS, SOURCES};
use outercore_store::dataset::DataSet;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::errors::to_python;
use crate::progress::Callback;
use crate::values::core_value;

/// A location of triples: all of its triples, or one part.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TripleSource {
    of: Place,
    held_out: HeldOut,
    part: TriplePart,
    /// Number of triples, if it is known.
    count: Option<u64>,
    /// Identifies the triples of an array.
    identity: String,
}

/// Location of triples.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Place {
    /// A `.npy` file, int64 [m, 3], with optional weights in another file, float32 [m].
    Array { path: PathBuf, weights: Option<PathBuf> },
    /// The links of a plain graph, in this generation of a data set or in the current one.
    Graph { path: PathBuf, generation: String },
}

impl TripleSource {
    /// Identifies the triples.
    pub fn identity(&self) -> Result<String> {
        let Place::Graph { path, generation } = &self.of else {
            return Ok(self.identity.clone());
        };
        let data_set = opened(path, generation)?;
        let [offsets, sources] = [data_set.array(OFFSETS)?, data_set.array(SOURCES)?];
        let mut identity = format!(
            "{} {} {:?} {:?}",
            offsets.content_name(),
            sources.content_name(),
            self.held_out,
            self.part
        );
        if data_set.has_array(EDGE_WEIGHTS) {
            for key in [EDGE_WEIGHTS, EDGE_IDS].into_iter().filter(|key| data_set.has_array(key)) {
                identity = format!("{identity} {}", data_set.array(key)?.content_name());
            }
        }
        Ok(identity)
    }

    /// Opens the triples for reading.
    pub fn open(&self) -> Result<Box<dyn Triples>> {
        let count = || self.count.map_or_else(|| self.counted(), Ok);
        match &self.of {
            Place::Array { path, weights } => {
                let array = ArrayTriples::open(path, weights.as_deref())?;
                if self.is_all() {
                    return Ok(Box::new(array));
                }
                Ok(Box::new(PartTriples::new(array, self.held_out, self.part, count()?)))
            }
            Place::Graph { path, generation } => {
                Ok(Box::new(GraphTriples::new(self.links(path, generation)?, count()?)))
            }
        }
    }

    /// Numbers of triples for training, validation and test.
    fn counts(&self, on_progress: OnProgress<'_>) -> Result<[u64; 3]> {
        match &self.of {
            Place::Array { path, .. } => {
                ArrayTriples::open(path, None)?.counts(self.held_out, on_progress)
            }
            Place::Graph { path, generation } => self.links(path, generation)?.counts(on_progress),
        }
    }

    fn reader(&self) -> Result<Box<dyn TripleReader>> {
        match &self.of {
            Place::Array { path, .. } => {
                Ok(Box::new(ArrayTriples::open(path, None)?.reader(self.held_out, self.part)?))
            }
            Place::Graph { path, generation } => {
                Ok(Box::new(self.links(path, generation)?.reader()?))
            }
        }
    }

    fn links(&self, path: &Path, generation: &str) -> Result<GraphLinks> {
        GraphLinks::open(&opened(path, generation)?, self.held_out, self.part)
    }

    fn is_all(&self) -> bool {
        self.held_out.valid + self.held_out.test == 0.0
    }

    fn counted(&self) -> Result<u64> {
        Ok(self.counts(&mut |_, _, _| Ok(()))?[self.part as usize])
    }
}

/// The data set in `path` at `generation`, which its graph keeps alive.
fn opened(path: &Path, generation: &str) -> Result<DataSet> {
    match DataSet::open_generation(path, generation)? {
        Some(data_set) => Ok(data_set),
        None if generation.is_empty() => DataSet::open(path),
        None => {
            let text = format!("data set `{}` has changed since it was opened", path.display());
            Err(Error::new(ErrorKind::NotFound, text).hint("open it again"))
        }
    }
}

/// Triples of a data set; used by `outercore.embedding.triples.Triples`.
#[pyclass(module = "outercore._core", name = "TripleSource", frozen)]
pub struct PyTripleSource {
    source: TripleSource,
}

#[pymethods]
impl PyTripleSource {
    #[new]
    fn new(source: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self { source: core_value("source of triples", source)? })
    }

    /// Numbers of triples for training, validation and test.
    #[pyo3(signature = (progress))]
    fn counts(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<[u64; 3]> {
        let mut callback = Callback::new(progress);
        let counts = py.detach(|| self.source.counts(&mut callback.of_triples()));
        callback.settle(counts, to_python)
    }

    /// Whether triples have weights.
    fn weighted(&self) -> PyResult<bool> {
        match &self.source.of {
            Place::Array { weights, .. } => Ok(weights.is_some()),
            Place::Graph { path, generation } => {
                let links = self.source.links(path, generation).map_err(to_python)?;
                Ok(links.weighted())
            }
        }
    }

    /// The weights of all triples, float32 [count]; `None` if they have no weights. Collects them
    /// with `memory` bytes in addition to the result.
    #[pyo3(signature = (memory, progress))]
    fn weights<'py>(
        &self,
        py: Python<'py>,
        memory: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyArray1<f32>>>> {
        let mut callback = Callback::new(progress);
        let found = py.detach(|| {
            let mut triples = self.source.open()?;
            if !triples.weighted() {
                return Ok(None);
            }
            triples.take_memory(Bytes(memory));
            let mut found = Vec::with_capacity(triples.count() as usize);
            let mut told = callback.of_triples();
            let mut pass = Pass::begin("read weights", triples.count(), &mut told)?;
            triples.for_each(&mut |_, _, weights| {
                found.extend_from_slice(weights);
                pass.add(weights.len() as u64)
            })?;
            Ok(Some(found))
        });
        Ok(callback.settle(found, to_python)?.map(|found| found.into_pyarray(py)))
    }

    /// A reader that passes over the triples once.
    fn reader(&self) -> PyResult<PyTripleReader> {
        let reader = self.source.reader().map_err(to_python)?;
        Ok(PyTripleReader { reader: Mutex::new(reader) })
    }
}

/// A position in triples.
#[pyclass(module = "outercore._core", name = "TripleReader", frozen)]
pub struct PyTripleReader {
    reader: Mutex<Box<dyn TripleReader>>,
}

#[pymethods]
impl PyTripleReader {
    /// The next triples, int64 [up to `most`, 3]; empty at the end.
    fn next<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyArray2<i64>>> {
        let found = py.detach(|| {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            reader.next_triples(most)
        });
        let found = found.map_err(to_python)?;
        let rows = found.len();
        bytemuck::allocation::cast_vec(found).into_pyarray(py).reshape([rows, 3])
    }
}
