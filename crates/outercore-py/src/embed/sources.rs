//! Where the triples of an embedding come from.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use outercore_core::{Bytes, Result};
use outercore_embed::{ArrayTriples, GraphTriples, HeldOut, LinkPart, LinkReader, Triples};
use outercore_format::keys::{EDGE_IDS, EDGE_WEIGHTS, OFFSETS, SOURCES};
use outercore_store::dataset::DataSet;
use pyo3::prelude::*;
use serde::Deserialize;

use crate::dataset::parse;
use crate::errors::to_python;

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
    },
    /// Links of a plain graph.
    Graph(GraphSource),
}

/// Links of a plain graph, as JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSource {
    /// The data set.
    path: PathBuf,
    held_out: HeldOut,
    part: LinkPart,
}

impl GraphSource {
    fn open(&self) -> Result<GraphTriples> {
        GraphTriples::open(&DataSet::open(&self.path)?, self.held_out, self.part)
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
            Self::Graph(graph) => graph.identity(),
        }
    }

    /// The triples, to be gone through.
    pub fn open(&self) -> Result<Box<dyn Triples>> {
        match self {
            Self::Array { path, weights, .. } => {
                Ok(Box::new(ArrayTriples::open(path, weights.as_deref())?))
            }
            Self::Graph(graph) => Ok(Box::new(graph.open()?)),
        }
    }
}

/// The links of a plain graph; `outercore.embed.links.Links` is its user.
#[pyclass(module = "outercore._core", frozen)]
pub struct GraphLinks {
    triples: GraphTriples,
}

#[pymethods]
impl GraphLinks {
    #[new]
    fn new(py: Python<'_>, source: &str) -> PyResult<Self> {
        let opened = py.detach(|| parse::<GraphSource>("links of a graph", source)?.open());
        Ok(Self { triples: opened.map_err(to_python)? })
    }

    /// How many there are.
    fn count(&self) -> u64 {
        self.triples.count()
    }

    /// Whether each has a weight.
    fn weighted(&self) -> bool {
        self.triples.weighted()
    }

    /// Their weights, float32 [count], put together within `memory` besides; `None` where there
    /// are none.
    fn weights<'py>(
        &self,
        py: Python<'py>,
        memory: u64,
    ) -> PyResult<Option<Bound<'py, PyArray1<f32>>>> {
        if !self.triples.weighted() {
            return Ok(None);
        }
        let found = py.detach(|| {
            let mut triples = self.triples.clone();
            triples.take_memory(Bytes(memory));
            let mut found = Vec::with_capacity(triples.count() as usize);
            triples.for_each(&mut |_, _, weights| {
                found.extend_from_slice(weights);
                Ok(())
            })?;
            Ok(found)
        });
        Ok(Some(found.map_err(to_python)?.into_pyarray(py)))
    }

    /// Goes through them once.
    fn reader(&self) -> PyResult<GraphLinkReader> {
        let reader = self.triples.reader().map_err(to_python)?;
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
