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
    Order, OrderConfig, OrderFacts, PlanInput, check, partition_order as make_order,
    plan_order as make_plan,
};
use pyo3::prelude::*;
use serde::Serialize;
pub use sources::{PyTripleReader, PyTripleSource};

use crate::errors::to_python;
use crate::values::{core_value, python_value};

const ORDER: &str = "order of partitions";

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(partition_order, module)?)?;
    module.add_function(wrap_pyfunction!(reverse_order, module)?)?;
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
    fn new(order: Order) -> Result<Self> {
        let facts = check(&order)?;
        Ok(Self { order, facts })
    }
}

/// An order of partitions, checked.
#[pyfunction]
fn partition_order<'py>(
    py: Python<'py>,
    config: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let config: OrderConfig = core_value(ORDER, config)?;
    let checked = py.detach(|| Checked::new(make_order(&config)?)).map_err(to_python)?;
    python_value(py, &checked)
}

/// The reverse of an order, checked.
#[pyfunction]
fn reverse_order<'py>(py: Python<'py>, order: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let order: Order = core_value(ORDER, order)?;
    let checked = py.detach(|| {
        check(&order)?;
        Checked::new(order.reversed())
    });
    python_value(py, &checked.map_err(to_python)?)
}

/// The cost of an epoch in an order.
#[pyfunction]
fn plan_order<'py>(
    py: Python<'py>,
    order: &Bound<'py, PyAny>,
    input: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let order: Order = core_value(ORDER, order)?;
    let input: PlanInput = core_value("plan of an order", input)?;
    let plan = py.detach(|| make_plan(&order, &input)).map_err(to_python)?;
    python_value(py, &plan)
}
