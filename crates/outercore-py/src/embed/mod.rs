//! Orders of partitions and their cost.

mod answers;
mod executor;
mod placement;
mod rows;
mod sources;

pub use answers::KnownAnswers;
pub use executor::PartitionExecutor;
use outercore_core::Result;
use outercore_embed::{
    Order, OrderConfig, OrderFacts, PlanInput, check,
    iteration_order as buckets_as_late_as_possible, partition_order as make_order,
    plan_order as make_plan,
};
use pyo3::prelude::*;
use serde::Serialize;
pub use sources::{PyTripleReader, PyTripleSource};

use crate::dataset::parse;
use crate::errors::to_python;
use crate::loader::to_json;

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(partition_order, module)?)?;
    module.add_function(wrap_pyfunction!(reverse_order, module)?)?;
    module.add_function(wrap_pyfunction!(iteration_order, module)?)?;
    module.add_function(wrap_pyfunction!(plan_order, module)?)?;
    placement::register(module)?;
    module.add_function(wrap_pyfunction!(rows::initial_rows, module)?)?;
    module.add_class::<executor::PartitionExecutor>()?;
    module.add_class::<answers::KnownAnswers>()?;
    module.add_class::<sources::PyTripleSource>()?;
    module.add_class::<sources::PyTripleReader>()?;
    module.add_function(wrap_pyfunction!(executor::sort_triples, module)?)?;
    module.add_function(wrap_pyfunction!(executor::create_partitions, module)?)
}

/// An order and the counts of its check.
#[derive(Serialize)]
struct Checked {
    order: Order,
    facts: OrderFacts,
}

impl Checked {
    fn to_json(order: Order) -> Result<String> {
        let facts = check(&order)?;
        to_json(&Self { order, facts })
    }
}

/// An order of partitions, checked, as JSON.
#[pyfunction]
fn partition_order(py: Python<'_>, config: &str) -> PyResult<String> {
    py.detach(|| {
        let config: OrderConfig = parse("order of partitions", config)?;
        Checked::to_json(make_order(&config)?)
    })
    .map_err(to_python)
}

/// The reverse of an order, checked, as JSON.
#[pyfunction]
fn reverse_order(py: Python<'_>, order: &str) -> PyResult<String> {
    py.detach(|| {
        let order: Order = parse("order of partitions", order)?;
        check(&order)?;
        Checked::to_json(order.reversed())
    })
    .map_err(to_python)
}

/// The buckets of each state, as late as they can be trained, as JSON.
#[pyfunction]
fn iteration_order(py: Python<'_>, order: &str) -> PyResult<String> {
    py.detach(|| {
        let order: Order = parse("order of partitions", order)?;
        check(&order)?;
        to_json(&buckets_as_late_as_possible(&order))
    })
    .map_err(to_python)
}

/// The cost of an epoch in an order, as JSON.
#[pyfunction]
fn plan_order(py: Python<'_>, order: &str, input: &str) -> PyResult<String> {
    py.detach(|| {
        let order: Order = parse("order of partitions", order)?;
        let input: PlanInput = parse("plan of an order", input)?;
        to_json(&make_plan(&order, &input)?)
    })
    .map_err(to_python)
}
