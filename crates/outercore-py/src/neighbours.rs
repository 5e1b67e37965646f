//! Sums over in-neighbours on NumPy's memory.

use numpy::{
    PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1, PyReadwriteArray2, PyUntypedArrayMethods,
};
use outercore_core::Error;
use outercore_kernels::{
    Attention, Block, Incoming, Likeness, add_alike, add_neighbours, attention_totals,
};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::rows::{rows, rows_mut};

/// Attention scores of all sources and of the targets, and the negative slope of the leaky ReLU.
type Scores<'py> = (PyReadonlyArray2<'py, f32>, PyReadonlyArray2<'py, f32>, f32);

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(kernel_add_neighbours, module)?)?;
    module.add_function(wrap_pyfunction!(kernel_add_alike, module)?)?;
    module.add_function(wrap_pyfunction!(kernel_attention_totals, module)?)
}

/// The sources of arcs, in the type that a topology stores.
#[derive(FromPyObject)]
enum Sources<'py> {
    Narrow(PyReadonlyArray1<'py, u32>),
    Wide(PyReadonlyArray1<'py, u64>),
}

/// Runs the same code for arcs with 32-bit or 64-bit sources.
macro_rules! with_arcs {
    ($sources:expr, $next:expr, $ends:expr, $loops:expr, |$incoming:ident| $work:expr) => {
        match $sources {
            Sources::Narrow(sources) => {
                let sources: &[u32] = sources.as_slice()?;
                let $incoming = Incoming { sources, next: $next, ends: $ends, loops: $loops };
                $work
            }
            Sources::Wide(sources) => {
                let sources: &[u64] = sources.as_slice()?;
                let $incoming = Incoming { sources, next: $next, ends: $ends, loops: $loops };
                $work
            }
        }
    };
}

/// Adds the rows of a block to the sums of the nodes with arcs from the block.
#[pyfunction]
#[pyo3(signature = (sources, next, ends, loops, block, rows_of, places, attention, totals, sums, threads))]
#[allow(clippy::too_many_arguments)]
fn kernel_add_neighbours(
    py: Python<'_>,
    sources: Sources<'_>,
    mut next: PyReadwriteArray1<'_, u64>,
    ends: PyReadonlyArray1<'_, u64>,
    loops: Option<PyReadonlyArray1<'_, u64>>,
    block: (u64, u64),
    rows_of: PyReadonlyArray2<'_, f32>,
    places: Option<PyReadonlyArray1<'_, u32>>,
    attention: Option<Scores<'_>>,
    totals: Option<PyReadonlyArray2<'_, f32>>,
    mut sums: PyReadwriteArray2<'_, f32>,
    threads: usize,
) -> PyResult<()> {
    let width = sums.shape()[1];
    let block = block_of(block, &rows_of, places.as_ref(), width)?;
    let totals = totals.as_ref().map(rows).transpose()?.unwrap_or_default();
    let attention = attention.as_ref().map(|scores| attention_of(scores, totals)).transpose()?;
    let (next, ends) = (next.as_slice_mut()?, ends.as_slice()?);
    let loops = loops.as_ref().map(|loops| loops.as_slice()).transpose()?;
    let sums = rows_mut(&mut sums)?;
    let (block, attention) = (&block, attention.as_ref());
    with_arcs!(sources, next, ends, loops, |incoming| {
        py.detach(|| add_neighbours(incoming, block, attention, sums, width, threads))
    })
    .map_err(to_python)
}

/// Adds the values of a block to the sums of the nodes, weighted by the similarity of keys and
/// queries.
#[pyfunction]
#[pyo3(signature = (sources, next, ends, block, rows_of, places, queries, most, totals, sums, threads))]
#[allow(clippy::too_many_arguments)]
fn kernel_add_alike(
    py: Python<'_>,
    sources: Sources<'_>,
    mut next: PyReadwriteArray1<'_, u64>,
    ends: PyReadonlyArray1<'_, u64>,
    block: (u64, u64),
    rows_of: PyReadonlyArray2<'_, f32>,
    places: Option<PyReadonlyArray1<'_, u32>>,
    queries: PyReadonlyArray2<'_, f32>,
    mut most: PyReadwriteArray2<'_, f32>,
    mut totals: PyReadwriteArray2<'_, f32>,
    mut sums: PyReadwriteArray2<'_, f32>,
    threads: usize,
) -> PyResult<()> {
    let (width, heads) = (sums.shape()[1], most.shape()[1]);
    let block = block_of(block, &rows_of, places.as_ref(), 2 * width)?;
    let (next, ends, loops) = (next.as_slice_mut()?, ends.as_slice()?, None);
    let (queries, sums) = (rows(&queries)?, rows_mut(&mut sums)?);
    let (most, totals) = (rows_mut(&mut most)?, rows_mut(&mut totals)?);
    let likeness = Likeness { queries, most, totals, heads };
    with_arcs!(sources, next, ends, loops, |incoming| {
        py.detach(|| add_alike(incoming, &block, likeness, sums, width, threads))
    })
    .map_err(to_python)
}

/// The largest score and the sum of exponentials, for each node and head.
#[pyfunction]
#[pyo3(signature = (sources, next, ends, loops, attention, totals, threads))]
#[allow(clippy::too_many_arguments)]
fn kernel_attention_totals(
    py: Python<'_>,
    sources: Sources<'_>,
    mut next: PyReadwriteArray1<'_, u64>,
    ends: PyReadonlyArray1<'_, u64>,
    loops: Option<PyReadonlyArray1<'_, u64>>,
    attention: Scores<'_>,
    mut totals: PyReadwriteArray2<'_, f32>,
    threads: usize,
) -> PyResult<()> {
    let attention = attention_of(&attention, &[])?;
    let loops = loops.as_ref().map(|loops| loops.as_slice()).transpose()?;
    let totals = rows_mut(&mut totals)?;
    let (next, ends) = (next.as_slice_mut()?, ends.as_slice()?);
    with_arcs!(sources, next, ends, loops, |incoming| {
        py.detach(|| attention_totals(&incoming, &attention, totals, threads))
    })
    .map_err(to_python)
}

fn block_of<'a>(
    (first, last): (u64, u64),
    rows_of: &'a PyReadonlyArray2<'_, f32>,
    places: Option<&'a PyReadonlyArray1<'_, u32>>,
    width: usize,
) -> PyResult<Block<'a>> {
    if rows_of.shape()[1] != width {
        let text = format!("rows of {} numbers, expected {width}", rows_of.shape()[1]);
        return Err(to_python(Error::invalid(text)));
    }
    let places = places.map(|places| places.as_slice()).transpose()?;
    Ok(Block { nodes: first..last, rows: rows(rows_of)?, places })
}

fn attention_of<'a>(scores: &'a Scores<'_>, totals: &'a [f32]) -> PyResult<Attention<'a>> {
    let heads = scores.0.shape()[1];
    let (sources, nodes) = (rows(&scores.0)?, rows(&scores.1)?);
    Ok(Attention { sources, nodes, totals, heads, slope: scores.2 })
}
