//! Where the triples of an embedding come from.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use outercore_core::{Bytes, Result};
use outercore_embed::{
    ArrayTriples, GraphLinks as Links, GraphTriples, HeldOut, LinkReader, PartTriples, Pass,
    TriplePart, Triples,
};
use outercore_format::keys::{EDGE_IDS, EDGE_WEIGHTS, OFFSETS, SOURCES};
use outercore_store::dataset::DataSet;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::dataset::parse;
use crate::errors::to_python;
use crate::progress::Callback;

/// Triples by where they are, as JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TripleSource {
    /// A `.npy` file, int64 [m, 3], and perhaps weights in another, float32 [m].
    Array {
        /// Its path.
        path: PathBuf,
        /// Path of the weights.
        weights: Option<PathBuf>,
        /// What tells it from other triples.
        identity: String,
        /// Of which only these are meant.
        part: Option<ArrayPart>,
    },
    /// Links of a plain graph.
    Graph {
        /// Which ones.
        links: GraphSource,
        /// How many they are.
        count: u64,
    },
}

/// Triples of an array that belong to one part, as JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayPart {
    held_out: HeldOut,
    part: TriplePart,
    count: u64,
}

/// Links of a plain graph, as JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSource {
    /// The data set.
    path: PathBuf,
    held_out: HeldOut,
    part: TriplePart,
}

impl GraphSource {
    fn open(&self) -> Result<Links> {
        Links::open(&DataSet::open(&self.path)?, self.held_out, self.part)
    }

    fn identity(&self) -> Result<String> {
        let data_set = DataSet::open(&self.path)?;
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
}

impl TripleSource {
    /// What tells the triples from others.
    pub fn identity(&self) -> Result<String> {
        match self {
            Self::Array { identity, .. } => Ok(identity.clone()),
            Self::Graph { links, .. } => links.identity(),
        }
    }

    /// The triples, to be gone through.
    pub fn open(&self) -> Result<Box<dyn Triples>> {
        match self {
            Self::Array { path, weights, part, .. } => {
                let array = ArrayTriples::open(path, weights.as_deref())?;
                Ok(match *part {
                    None => Box::new(array),
                    Some(ArrayPart { held_out, part, count }) => {
                        Box::new(PartTriples::new(array, held_out, part, count))
                    }
                })
            }
            Self::Graph { links, count } => Ok(Box::new(GraphTriples::new(links.open()?, *count))),
        }
    }
}

/// The links of a plain graph; `outercore.embedding.links.Links` is its user.
#[pyclass(module = "outercore._core", frozen)]
pub struct GraphLinks {
    links: Links,
}

#[pymethods]
impl GraphLinks {
    #[new]
    fn new(source: &str) -> PyResult<Self> {
        let links = parse::<GraphSource>("links of a graph", source).and_then(|links| links.open());
        Ok(Self { links: links.map_err(to_python)? })
    }

    /// How many links there are to train on, for validation and for the test.
    #[pyo3(signature = (progress))]
    fn counts(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<[u64; 3]> {
        let mut callback = Callback::new(progress);
        let counts = py.detach(|| self.links.counts(&mut callback.of_triples()));
        callback.settle(counts, to_python)
    }

    /// Whether each has a weight.
    fn weighted(&self) -> bool {
        self.links.weighted()
    }

    /// Their weights, float32 [count], put together within `memory` besides; `None` where there
    /// are none.
    #[pyo3(signature = (count, memory, progress))]
    fn weights<'py>(
        &self,
        py: Python<'py>,
        count: u64,
        memory: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyArray1<f32>>>> {
        if !self.links.weighted() {
            return Ok(None);
        }
        let mut callback = Callback::new(progress);
        let found = py.detach(|| {
            let mut triples = GraphTriples::new(self.links.clone(), count);
            triples.take_memory(Bytes(memory));
            let mut found = Vec::with_capacity(count as usize);
            let mut told = callback.of_triples();
            let mut pass = Pass::begin("read weights", count, &mut told)?;
            triples.for_each(&mut |_, _, weights| {
                found.extend_from_slice(weights);
                pass.add(weights.len() as u64)
            })?;
            Ok(found)
        });
        Ok(Some(callback.settle(found, to_python)?.into_pyarray(py)))
    }

    /// Goes through them once.
    fn reader(&self) -> PyResult<GraphLinkReader> {
        let reader = self.links.reader().map_err(to_python)?;
        Ok(GraphLinkReader { reader: Mutex::new(reader) })
    }
}

/// A place in the links of a plain graph.
#[pyclass(module = "outercore._core", frozen)]
pub struct GraphLinkReader {
    reader: Mutex<LinkReader>,
}

#[pymethods]
impl GraphLinkReader {
    /// The next links, int64 [up to `most`, 3]; none at the end.
    fn next<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyArray2<i64>>> {
        let found = py.detach(|| {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let mut found = Vec::new();
            while found.len() < 3 * most {
                let Some(link) = reader.next()? else { break };
                found.extend(link);
            }
            Ok(found)
        });
        let found = found.map_err(to_python)?;
        let rows = found.len() / 3;
        found.into_pyarray(py).reshape([rows, 3])
    }
}
