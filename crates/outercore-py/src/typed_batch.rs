//! Batches of a graph with several types, as NumPy arrays by type.

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use outercore_pipeline::Epoch;
use outercore_sample::{EdgesOfType, NodesOfType};
use outercore_store::dataset::DataSet;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::to_python;

/// The subgraph of the current batch by node type and edge type; `None` if there is no batch.
///
/// **Shapes** For a node type with n nodes: `n_id` int64 `[n]`. For an edge type with e edges:
/// `edge_index` int64 `[2, e]`, and if requested `e_id` int64 `[e]`.
pub fn typed_batch<'py>(
    py: Python<'py>,
    data_set: &DataSet,
    epoch: &Epoch,
    edge_ids: bool,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let Some(batch) = epoch.batch() else { return Ok(None) };
    let schema = data_set.schema();
    let sampled = batch.sampled();
    let typed = py.detach(|| sampled.by_type(schema));
    let (nodes, edges) = (PyDict::new(py), PyDict::new(py));
    for (of_type, range) in typed.nodes.into_iter().zip(schema.node_types()) {
        nodes.set_item(&range.name, nodes_of(py, of_type)?)?;
    }
    for (of_type, range) in typed.edges.into_iter().zip(schema.edge_types()) {
        edges.set_item(&range.name, edges_of(py, of_type, edge_ids)?)?;
    }
    let result = PyDict::new(py);
    result.set_item("nodes", nodes)?;
    result.set_item("edges", edges)?;
    let places = batch.input_ids().iter().map(|&place| place as i64).collect::<Vec<_>>();
    result.set_item("input_id", places.into_pyarray(py))?;
    result.set_item("batch_size", sampled.num_seeds)?;
    result.set_item("batch", sampled.batch)?;
    Ok(Some(result))
}

fn nodes_of(py: Python<'_>, nodes: NodesOfType) -> PyResult<Bound<'_, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("n_id", nodes.ids.into_pyarray(py))?;
    result.set_item("trees", nodes.trees.into_pyarray(py))?;
    result.set_item("num_sampled_nodes", nodes.per_hop)?;
    Ok(result)
}

fn edges_of(py: Python<'_>, edges: EdgesOfType, ids: bool) -> PyResult<Bound<'_, PyDict>> {
    let EdgesOfType { mut sources, targets, ids: of_edges, per_hop } = edges;
    let count = sources.len();
    sources.extend(targets);
    let edge_index: Bound<'_, PyArray2<i64>> = sources.into_pyarray(py).reshape([2, count])?;
    let edge_ids: Option<Bound<'_, PyArray1<i64>>> = ids.then(|| of_edges.into_pyarray(py));
    let result = PyDict::new(py);
    result.set_item("edge_index", edge_index)?;
    result.set_item("e_id", edge_ids)?;
    result.set_item("num_sampled_edges", per_hop)?;
    Ok(result)
}

/// Index of a node type, by its name.
///
/// # Errors
/// `NotFoundError`, listing the existing types.
pub fn node_type(data_set: &DataSet, name: &str) -> PyResult<usize> {
    data_set.schema().node_type(name).map_err(to_python)
}
