//! Grids, algorithms over them, and arrays added to a data set.

use std::path::Path;

use numpy::PyReadonlyArray1;
use outercore_core::{Context, Result};
use outercore_format::{DType, keys};
use outercore_io::RealDisk;
use outercore_store::editor::ManifestEditor;
use outercore_store::npy::ArrayWriter;
use pyo3::prelude::*;

use crate::errors::to_python;

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(add_array, module)?)
}

/// Writes an array under `key`, replacing one that is there; `origin` goes into the provenance.
#[pyfunction]
fn add_array(
    py: Python<'_>,
    path: &str,
    key: &str,
    dtype: &str,
    row_shape: Vec<u64>,
    bytes: PyReadonlyArray1<'_, u8>,
    origin: &str,
) -> PyResult<()> {
    let bytes = bytes.as_slice()?;
    py.detach(|| -> Result<()> {
        let dtype: DType = dtype.parse()?;
        let root = Path::new(path);
        keys::validate(key).with_context(|| format!("array `{key}`"))?;
        let mut editor = ManifestEditor::open(&RealDisk, root)?;
        let file = editor.free_file(key);
        let mut writer = ArrayWriter::create(&RealDisk, root, &file, dtype, &row_shape)?;
        writer.write(bytes)?;
        editor.insert(key, writer.finish()?);
        if !origin.is_empty() {
            editor.manifest_mut().provenance.options.insert(key.to_owned(), origin.into());
        }
        editor.commit()
    })
    .map_err(to_python)
}
