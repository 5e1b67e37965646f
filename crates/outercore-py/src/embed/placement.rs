//! Placement of the data of an embedding run.

use outercore_core::Error;
use outercore_embed::placement::{
    Count, Request, Size, decide, question_bytes as bytes_of_question,
    score_seconds as seconds_of_score, with_pools,
};
use outercore_embed::{BucketCounts, BucketEdges, Pools};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::progress::Callback;
use crate::values::{core_value, python_value};

const REQUEST: &str = "request for a placement";
const SIZE: &str = "size";

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(decide_placement, module)?)?;
    module.add_function(wrap_pyfunction!(placement_with_pools, module)?)?;
    module.add_function(wrap_pyfunction!(question_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(score_seconds, module)?)
}

/// A placement and values for messages. `count` is called with a number of parts, and
/// returns the triples in the buckets of such a table, as `sort_triples` does.
#[pyfunction]
#[pyo3(signature = (request, size, count = None))]
fn decide_placement<'py>(
    py: Python<'py>,
    request: &Bound<'py, PyAny>,
    size: &Bound<'py, PyAny>,
    count: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (request, size): (Request, Size) = (core_value(REQUEST, request)?, core_value(SIZE, size)?);
    let mut callback = Callback::new(count);
    let found = py.detach(|| {
        let has_counts = callback.is_some();
        let mut counted = |parts: usize| match callback.ask("buckets", parts)? {
            BucketEdges::Counted(triples) => BucketCounts::new(parts, triples),
            BucketEdges::Even(_) => Err(Error::internal("buckets that are not counted")),
        };
        let count: Option<Count<'_>> = if has_counts { Some(&mut counted) } else { None };
        decide(&request, &size, count)
    });
    python_value(py, &callback.settle(found, to_python)?)
}

/// The placement of a resumed run. `most` is the size of its largest pool, and `beside` the triples
/// that are read with it.
#[pyfunction]
fn placement_with_pools<'py>(
    py: Python<'py>,
    request: &Bound<'py, PyAny>,
    size: &Bound<'py, PyAny>,
    most: u64,
    beside: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let (request, size) = (core_value(REQUEST, request)?, core_value(SIZE, size)?);
    let found = with_pools(&request, &size, Pools { most, beside }).map_err(to_python)?;
    python_value(py, &found)
}

/// Bytes of memory per ranked triple.
#[pyfunction]
fn question_bytes(request: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(bytes_of_question(&core_value(REQUEST, request)?))
}

/// Seconds per question and candidate in ranking, given the measured training rate.
#[pyfunction]
fn score_seconds(
    request: &Bound<'_, PyAny>,
    size: &Bound<'_, PyAny>,
    triples_per_second: f64,
) -> PyResult<f64> {
    let (request, size) = (core_value(REQUEST, request)?, core_value(SIZE, size)?);
    Ok(seconds_of_score(&request, &size, triples_per_second))
}
