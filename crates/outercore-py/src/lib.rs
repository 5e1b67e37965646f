//! The Python module `outercore._core`: converts values, releases the GIL and maps errors; contains
//! no logic.
//!
//! Layer 7. `unsafe` is used for PyO3's macros, and for NumPy arrays on the slots of partitions and
//! on reused memory (ids, feature rows).

mod addition;
mod analytics;
mod batch;
mod batches;
mod dataset;
mod embed;
mod errors;
mod far;
mod far_connection;
mod ids;
mod import;
mod infer;
mod kernels;
mod layout;
mod loader;
mod memory_server;
mod neighbours;
mod process;
mod progress;
mod row_arrays;
mod rows;
mod server;
mod text;
mod tools;
mod triples;
mod values;

use pyo3::prelude::*;

/// Python's allocator aligns objects to this many bytes. A class with a larger alignment would be
/// undefined behaviour.
const PYTHON_ALIGNS_TO: usize = 16;

const _: () = {
    assert!(align_of::<batches::BatchTrainer>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<dataset::DataSet>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<loader::Loader>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<import::Importer>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<addition::PyAddition>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<far_connection::FarConnection>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<memory_server::MemoryServer>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<infer::Model>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<server::Server>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<triples::TripleImporter>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<text::TextTable>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<embed::PartitionExecutor>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<embed::KnownAnswers>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<embed::PyTripleSource>() <= PYTHON_ALIGNS_TO);
    assert!(align_of::<embed::PyTripleReader>() <= PYTHON_ALIGNS_TO);
};

/// Native part of Outercore.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<dataset::DataSet>()?;
    module.add_function(wrap_pyfunction!(dataset::tidy, module)?)?;
    module.add_class::<loader::Loader>()?;
    module.add_function(wrap_pyfunction!(loader::shuffled, module)?)?;
    module.add_function(wrap_pyfunction!(loader::expected_epochs, module)?)?;
    module.add_class::<import::Importer>()?;
    module.add_class::<addition::PyAddition>()?;
    module.add_class::<far_connection::FarConnection>()?;
    module.add_class::<triples::TripleImporter>()?;
    module.add_class::<text::TextTable>()?;
    module.add_function(wrap_pyfunction!(text::detect_text, module)?)?;
    module.add_class::<memory_server::MemoryServer>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<infer::Model>()?;
    analytics::register(module)?;
    batches::register(module)?;
    embed::register(module)?;
    far::register(module)?;
    kernels::register(module)?;
    layout::register(module)?;
    neighbours::register(module)?;
    tools::register(module)
}
