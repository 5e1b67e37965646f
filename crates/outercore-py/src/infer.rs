//! Exported models, for comparison with the original networks.

use std::path::PathBuf;

use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use outercore_core::Error;
use outercore_infer::{Model as Native, Precision, Subgraph};
use pyo3::prelude::*;

use crate::errors::to_python;

/// An open exported model.
#[pyclass(module = "outercore._core", frozen)]
pub struct Model {
    model: Native,
}

#[pymethods]
impl Model {
    /// Opens a model for float32.
    #[new]
    fn new(py: Python<'_>, directory: PathBuf) -> PyResult<Self> {
        py.detach(|| Native::open(&directory, Precision::Float32))
            .map(|model| Self { model })
            .map_err(to_python)
    }

    /// States of the seeds of a sampled subgraph, row-major. They are logits, unless a head
    /// computes the logits.
    ///
    /// `hops` holds the number of nodes and edges of each hop; `edges` holds local sources by
    /// destination, and the number of sources of each destination.
    #[pyo3(signature = (nodes, hops, edges, x, degrees))]
    fn forward<'py>(
        &self,
        py: Python<'py>,
        nodes: PyReadonlyArray1<'_, u64>,
        hops: (Vec<u64>, Vec<u64>),
        edges: (PyReadonlyArray1<'_, u32>, PyReadonlyArray1<'_, u32>),
        x: PyReadonlyArray2<'_, f32>,
        degrees: Option<PyReadonlyArray1<'_, f32>>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let contiguous = |_| to_python(Error::invalid("expected arrays in C order"));
        let degrees = degrees.as_ref().map(|degrees| degrees.as_slice()).transpose();
        let subgraph = Subgraph {
            nodes: nodes.as_slice().map_err(contiguous)?,
            nodes_per_hop: &hops.0,
            edges_per_hop: &hops.1,
            sources: edges.0.as_slice().map_err(contiguous)?,
            picked: edges.1.as_slice().map_err(contiguous)?,
            degrees: degrees.map_err(contiguous)?,
        };
        let x = x.as_slice().map_err(contiguous)?;
        let states = py.detach(|| self.model.forward(&subgraph, x)).map_err(to_python)?;
        Ok(PyArray1::from_vec(py, states))
    }

    /// Scores of pairs of seeds, given as indices; `states` as returned by `forward`.
    fn score<'py>(
        &self,
        py: Python<'py>,
        states: PyReadonlyArray1<'_, f32>,
        pairs: Vec<(u32, u32)>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let contiguous = |_| to_python(Error::invalid("expected arrays in C order"));
        let states = states.as_slice().map_err(contiguous)?;
        let scores = self.model.score(states, &pairs).map_err(to_python)?;
        Ok(PyArray1::from_vec(py, scores))
    }

    /// Logits of graphs, row-major. `sizes` gives the number of consecutive seeds of each graph.
    fn of_graphs<'py>(
        &self,
        py: Python<'py>,
        states: PyReadonlyArray1<'_, f32>,
        sizes: Vec<usize>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let contiguous = |_| to_python(Error::invalid("expected arrays in C order"));
        let states = states.as_slice().map_err(contiguous)?;
        let logits = self.model.of_graphs(states, &sizes).map_err(to_python)?;
        Ok(PyArray1::from_vec(py, logits))
    }
}
