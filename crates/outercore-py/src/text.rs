use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use numpy::IntoPyArray;
use outercore_core::{Bytes, Error, Result};
use outercore_text::{Cells, Dialect, Purpose, Rows, Table, TextOptions, Texts, detect};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::json;

use crate::dataset::parse;
use crate::errors::to_python;
use crate::loader::to_json;

/// Memory for the window of a decompressor.
const WINDOW: Bytes = Bytes::mib(512);

/// The format of the text at `path`, as JSON; `purpose` and `options` are JSON, too.
#[pyfunction]
pub fn detect_text(py: Python<'_>, path: &str, purpose: &str, options: &str) -> PyResult<String> {
    py.detach(|| {
        let purpose: Purpose = parse("purpose of a text", purpose)?;
        let options: TextOptions = parse("options of a text", options)?;
        to_json(&detect(Path::new(path), purpose, &options, WINDOW)?)
    })
    .map_err(to_python)
}

/// Rows of a text; its public interface is `outercore.importing.table.text`.
#[pyclass(module = "outercore._core", frozen)]
pub struct TextTable {
    table: Mutex<Table>,
}

#[pymethods]
impl TextTable {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, dialect: &str) -> PyResult<Self> {
        let table = py
            .detach(|| {
                let dialect: Dialect = parse("how the text is written", dialect)?;
                Table::open("table", &path, dialect, WINDOW)
            })
            .map_err(to_python)?;
        Ok(Self { table: Mutex::new(table) })
    }

    /// The next rows of `columns`, or `None` at the end: int64 or float64 [rows * columns], or a
    /// tuple of (offsets, bytes) for each column.
    #[pyo3(signature = (columns, cells, missing=None))]
    fn next<'py>(
        &self,
        py: Python<'py>,
        columns: Vec<usize>,
        cells: &str,
        missing: Option<i64>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let rows = py
            .detach(|| {
                let cells = match cells {
                    "integers" => Cells::Integers(missing),
                    "floats" => Cells::Floats,
                    "texts" => Cells::Texts,
                    other => return Err(Error::internal(format!("cells `{other}`"))),
                };
                self.table.lock().unwrap_or_else(PoisonError::into_inner).next(&columns, cells)
            })
            .map_err(to_python)?;
        Ok(match rows {
            None => None,
            Some(Rows::Integers(values)) => Some(values.into_pyarray(py).into_any()),
            Some(Rows::Floats(values)) => Some(values.into_pyarray(py).into_any()),
            Some(Rows::Texts(columns)) => {
                let pairs: Vec<_> = columns
                    .into_iter()
                    .map(|Texts { offsets, bytes }| {
                        (offsets.into_pyarray(py), bytes.into_pyarray(py))
                    })
                    .collect();
                Some(PyTuple::new(py, pairs)?.into_any())
            }
        })
    }

    /// Reads to the end; returns rows, comment lines and the content of each column, as JSON.
    fn profile(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| -> Result<String> {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            let columns = table.profile()?;
            let columns: Vec<_> = columns
                .iter()
                .map(|column| {
                    json!({
                        "kind": column.kind,
                        "missing": column.missing,
                        "first_missing": column.first_missing,
                        "padded": column.padded,
                    })
                })
                .collect();
            to_json(&json!({
                "rows": table.rows(),
                "comments": table.comments(),
                "repeated_headers": table.repeated_headers(),
                "columns": columns,
            }))
        })
        .map_err(to_python)
    }

    /// Bytes of the file read so far.
    fn consumed(&self) -> u64 {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).consumed()
    }
}
