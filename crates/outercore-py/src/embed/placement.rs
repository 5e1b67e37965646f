//! Placement of the data of an embedding run.

use outercore_core::Error;
use outercore_embed::placement::{
    Count, Request, Size, decide, question_bytes as bytes_of_question,
    score_seconds as seconds_of_score, with_pools,
};
use outercore_embed::{BucketCounts, BucketEdges, Pools};
use pyo3::prelude::*;

use crate::dataset::parse;
use crate::errors::to_python;
use crate::loader::to_json;
use crate::progress::Callback;

const REQUEST: &str = "request for a placement";

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(decide_placement, module)?)?;
    module.add_function(wrap_pyfunction!(placement_with_pools, module)?)?;
    module.add_function(wrap_pyfunction!(question_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(score_seconds, module)?)
}

/// A placement and values for messages, as JSON. `count` is called with a number of parts, and
/// returns the triples in the buckets of such a table, as `sort_triples` does.
#[pyfunction]
#[pyo3(signature = (request, size, count = None))]
fn decide_placement(
    py: Python<'_>,
    request: &str,
    size: &str,
    count: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut callback = Callback::new(count);
    let found = py.detach(|| {
        let (request, size): (Request, Size) = (parse(REQUEST, request)?, parse("size", size)?);
        let has_counts = callback.is_some();
        let mut counted = |parts: usize| {
            let text: String = callback.ask(parts)?;
            match parse("buckets", &text)? {
                BucketEdges::Counted(triples) => BucketCounts::new(parts, triples),
                BucketEdges::Even(_) => Err(Error::internal("buckets that are not counted")),
            }
        };
        let count: Option<Count<'_>> = if has_counts { Some(&mut counted) } else { None };
        to_json(&decide(&request, &size, count)?)
    });
    callback.settle(found, to_python)
}

/// The placement of a resumed run, as JSON. `most` is the size of its largest pool, and `beside`
/// the triples that are read with it.
#[pyfunction]
fn placement_with_pools(request: &str, size: &str, most: u64, beside: u64) -> PyResult<String> {
    let (request, size) = (parse(REQUEST, request), parse("size", size));
    request
        .and_then(|request| with_pools(&request, &size?, Pools { most, beside }))
        .and_then(|found| to_json(&found))
        .map_err(to_python)
}

/// Bytes of memory per ranked triple.
#[pyfunction]
fn question_bytes(request: &str) -> PyResult<u64> {
    parse(REQUEST, request).map(|request| bytes_of_question(&request)).map_err(to_python)
}

/// Seconds per question and candidate in ranking, given the measured training rate.
#[pyfunction]
fn score_seconds(request: &str, size: &str, triples_per_second: f64) -> PyResult<f64> {
    let (request, size) = (parse(REQUEST, request), parse("size", size));
    request
        .and_then(|request| Ok(seconds_of_score(&request, &size?, triples_per_second)))
        .map_err(to_python)
}
