//! Adds pushed arrays to a data set.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use numpy::PyReadonlyArrayDyn;
use outercore_core::{Error, Result};
use outercore_format::DType;
use outercore_io::RealDisk;
use outercore_store::addition::Addition;
use outercore_store::arrays::{ArrayBuilder, ArraySpec};
use pyo3::prelude::*;
use serde_json::{Map, Value};

use crate::errors::to_python;
use crate::import::{ArrayOptions, no_array, noted, target_of};
use crate::progress::Callback;
use crate::values::{core_value, python_value};

/// Adds pushed arrays to a data set; takes arrays in the same way as `Importer`.
#[pyclass(module = "outercore._core", name = "Addition", frozen)]
pub struct PyAddition {
    progress: Py<PyAny>,
    /// Boxed, because it holds hashes whose alignment exceeds the alignment of Python objects.
    state: Mutex<Box<State>>,
}

struct State {
    /// `None` once committed.
    addition: Option<Addition<'static>>,
    builder: Option<ArrayBuilder>,
    /// Results for each array, for the summary.
    found: Map<String, Value>,
}

#[pymethods]
impl PyAddition {
    #[new]
    fn new(py: Python<'_>, root: PathBuf, overwrite: bool, progress: Py<PyAny>) -> PyResult<Self> {
        let mut callback = Callback::new(Some(progress.clone_ref(py)));
        let begun = py.detach(|| {
            let on_wait = &mut || callback.call("waiting for another writer", 0, 0, "");
            Addition::begin(&RealDisk, &root, overwrite, on_wait)
        });
        let addition = Some(callback.settle(begun, to_python)?);
        let state = State { addition, builder: None, found: Map::new() };
        Ok(Self { progress, state: Mutex::new(Box::new(state)) })
    }

    /// A whole `.npy` file: copied, or with the option `in_place` registered in place.
    fn array_npy(
        &self,
        py: Python<'_>,
        role: &str,
        name: &str,
        path: PathBuf,
        options: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let options: ArrayOptions = core_value("array options", options)?;
        self.run(py, |state, callback| {
            let spec = state.spec(role, name, &options)?;
            let progress = &mut |done, total| callback.call("array", done, total, "bytes");
            let addition = state.addition()?;
            let summary = if options.in_place {
                addition.array_in_place(&spec, &path, progress)?
            } else {
                addition.array_from_npy(&spec, &path, progress)?
            };
            state.found.insert(spec.key(), noted(&spec, summary));
            Ok(())
        })
    }

    /// Starts an array with rows of `dtype`; `width` is `None` for one value per row.
    fn array_begin(
        &self,
        py: Python<'_>,
        role: &str,
        name: &str,
        dtype: &str,
        width: Option<u64>,
        options: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let options: ArrayOptions = core_value("array options", options)?;
        self.run(py, |state, _| {
            let spec = state.spec(role, name, &options)?;
            let dtype: DType = dtype.parse()?;
            let row_shape: Vec<u64> = width.into_iter().collect();
            state.builder = Some(state.addition()?.builder(&spec, dtype, &row_shape)?);
            Ok(())
        })
    }

    /// The bytes of the next `rows` rows.
    fn array_push(
        &self,
        py: Python<'_>,
        bytes: PyReadonlyArrayDyn<'_, u8>,
        rows: u64,
    ) -> PyResult<()> {
        let bytes = bytes.as_slice()?;
        self.run(py, |state, _| state.builder.as_mut().ok_or_else(no_array)?.push_rows(bytes, rows))
    }

    fn array_end(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |state, _| {
            let builder = state.builder.take().ok_or_else(no_array)?;
            let spec = builder.spec().clone();
            let summary = state.addition()?.add(builder)?;
            state.found.insert(spec.key(), noted(&spec, summary));
            Ok(())
        })
    }

    /// Removes uncommitted files, and releases the data set.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (state.addition, state.builder) = (None, None);
        });
    }

    /// Commits all arrays, which were made from `inputs`; returns results for each array.
    fn finish<'py>(&self, py: Python<'py>, inputs: Vec<String>) -> PyResult<Bound<'py, PyAny>> {
        let found = self.run(py, |state, _| {
            state.addition.take().ok_or_else(committed)?.commit(&inputs)?;
            Ok(state.found.clone())
        })?;
        python_value(py, &found)
    }
}

impl PyAddition {
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        step: impl FnOnce(&mut State, &mut Callback) -> Result<T> + Send,
    ) -> PyResult<T> {
        let mut callback = Callback::new(Some(self.progress.clone_ref(py)));
        let result = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            step(&mut state, &mut callback)
        });
        callback.settle(result, to_python)
    }
}

impl State {
    fn addition(&mut self) -> Result<&mut Addition<'static>> {
        self.addition.as_mut().ok_or_else(committed)
    }

    fn spec(&mut self, role: &str, name: &str, options: &ArrayOptions) -> Result<ArraySpec> {
        let target = target_of(role, name)?;
        let rows = self.addition()?.rows(&target, options.of_type.as_deref())?;
        options.spec(target, rows)
    }
}

fn committed() -> Error {
    Error::invalid("the arrays are added").hint("begin again")
}
