//! The current batch of a loader, as NumPy arrays under the names that batches have in Python.

use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use outercore_core::Error;
use outercore_format::Schema;
use outercore_pipeline::{Epoch, SpareIds};
use outercore_sample::{EdgesOfType, NodesOfType, SampledBatch, Shelf};
use outercore_store::resident::Ids;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::to_python;
use crate::ids::{Id, handed_over, matrix, vector};

/// Values that batches have only if the loader is configured to deliver them.
#[derive(Clone, Copy)]
pub struct Optional {
    /// `e_id`: ids of edges.
    pub edge_ids: bool,
    /// `batch`: the seed that each node belongs to.
    pub trees: bool,
}

/// The values of a batch: `nodes` by node type, `edges` by edge type, and `seeds`.
pub struct Values<'py> {
    nodes: Bound<'py, PyDict>,
    edges: Bound<'py, PyDict>,
    seeds: Bound<'py, PyDict>,
}

impl<'py> Values<'py> {
    /// The current batch. With one type, its ids are in memory of `spare`.
    ///
    /// **Shapes** For a node type with n nodes: `n_id` int64 `[n]`. For an edge type with e edges:
    /// `edge_index` int64 `[2, e]`, `e_id` int64 `[e]`.
    pub fn of(
        py: Python<'py>,
        schema: &Schema,
        epoch: &Epoch,
        spare: &Arc<SpareIds>,
        optional: Optional,
    ) -> PyResult<Self> {
        let batch = epoch.batch().ok_or_else(no_batch)?;
        let sampled = batch.sampled();
        let values = Self::new(py, spare, sampled, batch.input_ids())?;
        if schema.is_typed() {
            let typed = py.detach(|| sampled.by_type(schema));
            for (of_type, range) in typed.nodes.into_iter().zip(schema.node_types()) {
                values.nodes.set_item(&range.name, nodes_of(py, of_type, optional)?)?;
            }
            for (of_type, range) in typed.edges.into_iter().zip(schema.edge_types()) {
                values.edges.set_item(&range.name, edges_of(py, of_type, optional)?)?;
            }
            return Ok(values);
        }
        let (nodes, edges) = values.of_one_type(schema, spare, sampled, optional)?;
        nodes.set_item("n_id", node_vector::<i64>(py, spare, &sampled.nodes)?)?;
        let count = sampled.num_edges();
        let edge_index = matrix(py, spare, [2, count], |values| {
            let (rows, cols) = values.split_at_mut(count);
            sampled.write_edge_index(rows, cols);
        })?;
        edges.set_item("edge_index", edge_index)?;
        Ok(values)
    }

    /// The current batch of a graph with one type, by target: `indptr` and `indices` in place of
    /// `edge_index`. Ids have 32 bits if `narrow`. The epoch loses the batch.
    ///
    /// # Errors
    /// `Invalid` for more edges than 32 bits can number.
    pub fn by_target(
        py: Python<'py>,
        schema: &Schema,
        epoch: &mut Epoch,
        spare: &Arc<SpareIds>,
        optional: Optional,
        narrow: bool,
    ) -> PyResult<Self> {
        let edges = epoch.batch().ok_or_else(no_batch)?.sampled().num_edges();
        if narrow && i32::try_from(edges).is_err() {
            let what = format!("a batch has {edges} edges, more than 32 bits tell apart");
            let hint = "take id_dtype=\"int64\", or smaller batches";
            return Err(to_python(Error::invalid(what).hint(hint)));
        }
        let (mut sampled, input_ids) = epoch.take_batch().ok_or_else(no_batch)?;
        let shelf = epoch.shelf();
        let values = Self::new(py, spare, &sampled, &input_ids)?;
        let (nodes, edges) = values.of_one_type(schema, spare, &sampled, optional)?;
        let starts = sampled.picked.len() + 1;
        if narrow {
            // Nodes and sources are passed on in the memory that they were sampled into.
            edges.set_item("indptr", vector::<i32>(py, spare, starts, sampled.starts())?)?;
            let ids = match std::mem::take(&mut sampled.nodes) {
                Ids::Narrow(ids) => handed_over(py, spare, shelf, ids, Shelf::give_back_nodes)?,
                wide @ Ids::Wide(_) => node_vector(py, spare, &wide)?,
            };
            nodes.set_item("n_id", ids)?;
            let sources = std::mem::take(&mut sampled.sources);
            let sources = handed_over(py, spare, shelf, sources, Shelf::give_back_sources)?;
            edges.set_item("indices", sources)?;
        } else {
            let sources = sampled.sources.iter().map(|&source| source.into());
            nodes.set_item("n_id", node_vector::<i64>(py, spare, &sampled.nodes)?)?;
            edges.set_item("indptr", vector::<i64>(py, spare, starts, sampled.starts())?)?;
            let sources = vector::<i64>(py, spare, sampled.num_edges(), sources)?;
            edges.set_item("indices", sources)?;
        }
        shelf.give_back(sampled);
        Ok(values)
    }

    /// As a dictionary.
    pub fn into_dict(self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let result = PyDict::new(py);
        result.set_item("nodes", self.nodes)?;
        result.set_item("edges", self.edges)?;
        result.set_item("seeds", self.seeds)?;
        Ok(result)
    }

    /// The seeds of a batch, and no nodes and edges yet.
    fn new(
        py: Python<'py>,
        spare: &Arc<SpareIds>,
        sampled: &SampledBatch,
        input_ids: &[u64],
    ) -> PyResult<Self> {
        let [nodes, edges, seeds] = [(); 3].map(|()| PyDict::new(py));
        seeds.set_item("input_id", signed(py, spare, input_ids)?)?;
        seeds.set_item("batch_size", sampled.num_seeds)?;
        Ok(Self { nodes, edges, seeds })
    }

    /// Adds the one node type and edge type, with the values that do not depend on the form.
    fn of_one_type(
        &self,
        schema: &Schema,
        spare: &Arc<SpareIds>,
        sampled: &SampledBatch,
        optional: Optional,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyDict>)> {
        let py = self.nodes.py();
        let (nodes, edges) = (PyDict::new(py), PyDict::new(py));
        if optional.trees {
            let trees = sampled.trees.iter().map(|&tree| tree.into());
            nodes.set_item("batch", vector::<i64>(py, spare, sampled.trees.len(), trees)?)?;
        }
        nodes.set_item("num_sampled_nodes", sampled.nodes_per_hop.clone())?;
        if optional.edge_ids {
            edges.set_item("e_id", signed(py, spare, &sampled.edge_ids)?)?;
        }
        if !sampled.edge_weights.is_empty() {
            edges.set_item("edge_norm", PyArray1::from_slice(py, &sampled.edge_weights))?;
        }
        edges.set_item("num_sampled_edges", sampled.edges_per_hop.clone())?;
        self.nodes.set_item(&schema.node_types()[0].name, &nodes)?;
        self.edges.set_item(&schema.edge_types()[0].name, &edges)?;
        Ok((nodes, edges))
    }
}

fn nodes_of(py: Python<'_>, nodes: NodesOfType, optional: Optional) -> PyResult<Bound<'_, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("n_id", nodes.ids.into_pyarray(py))?;
    if optional.trees {
        result.set_item("batch", nodes.trees.into_pyarray(py))?;
    }
    result.set_item("num_sampled_nodes", nodes.per_hop)?;
    Ok(result)
}

fn edges_of(py: Python<'_>, edges: EdgesOfType, optional: Optional) -> PyResult<Bound<'_, PyDict>> {
    let EdgesOfType { mut sources, targets, ids, per_hop } = edges;
    let count = sources.len();
    sources.extend(targets);
    let edge_index: Bound<'_, PyArray2<i64>> = sources.into_pyarray(py).reshape([2, count])?;
    let result = PyDict::new(py);
    result.set_item("edge_index", edge_index)?;
    if optional.edge_ids {
        result.set_item("e_id", ids.into_pyarray(py))?;
    }
    result.set_item("num_sampled_edges", per_hop)?;
    Ok(result)
}

fn node_vector<'py, T: Id>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    nodes: &Ids,
) -> PyResult<Bound<'py, PyArray1<T>>> {
    match nodes {
        Ids::Narrow(ids) => vector(py, spare, ids.len(), ids.iter().map(|&id| id.into())),
        Ids::Wide(ids) => vector(py, spare, ids.len(), ids.iter().copied()),
    }
}

fn signed<'py>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    ids: &[u64],
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    vector(py, spare, ids.len(), ids.iter().copied())
}

/// The error of a loader without a current batch.
pub fn no_batch() -> PyErr {
    to_python(Error::invalid("there is no current batch"))
}
