use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::IntoPyArray;
use outercore_core::{Bytes, Error, Result};
use outercore_text::{Cells, Dialect, Purpose, Rows, Table, TextOptions, Texts, detect};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::{Value, json};

use crate::errors::to_python;
use crate::values::{core_value, python_value};

/// Memory for the window of a decompressor.
const WINDOW: Bytes = Bytes::mib(512);

/// The format of the text at `path`.
#[pyfunction]
pub fn detect_text<'py>(
    py: Python<'py>,
    path: PathBuf,
    purpose: &Bound<'py, PyAny>,
    options: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let purpose: Purpose = core_value("purpose of a text", purpose)?;
    let options: TextOptions = core_value("options of a text", options)?;
    let detected = py.detach(|| detect(&path, purpose, &options, WINDOW)).map_err(to_python)?;
    python_value(py, &detected)
}

/// Rows of a text; its public interface is `outercore.importing.table.text`.
#[pyclass(module = "outercore._core", frozen)]
pub struct TextTable {
    table: Mutex<Table>,
}

#[pymethods]
impl TextTable {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, dialect: &Bound<'_, PyAny>) -> PyResult<Self> {
        let dialect: Dialect = core_value("how the text is written", dialect)?;
        let table =
            py.detach(|| Table::open("table", &path, dialect, WINDOW)).map_err(to_python)?;
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

    /// Reads to the end; returns rows, comment lines and the content of each column.
    fn profile<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let profile = py.detach(|| -> Result<Value> {
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
            Ok(json!({
                "rows": table.rows(),
                "comments": table.comments(),
                "repeated_headers": table.repeated_headers(),
                "columns": columns,
            }))
        });
        python_value(py, &profile.map_err(to_python)?)
    }

    /// Bytes of the file read so far.
    fn consumed(&self) -> u64 {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).consumed()
    }
}
