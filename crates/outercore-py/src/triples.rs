use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use numpy::PyReadonlyArray1;
use outercore_core::{Bytes, Error, Result};
use outercore_format::Provenance;
use outercore_io::RealDisk;
use outercore_store::import::{
    DictionaryImport, Duplicates, NameColumn, Part, TripleArtifacts, TripleBatch, TripleImport,
    TripleImportOptions, Unknown,
};
use outercore_text::Dialect;
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::errors::to_python;
use crate::progress::Callback;
use crate::values::{core_value, python_value, value_and_fields};

/// Options of an import of triples.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Options {
    memory: Bytes,
    columns: String,
    unknown: Unknown,
    duplicates: Duplicates,
    overwrite: bool,
    command: String,
    inputs: Vec<String>,
    /// Further options that identify the import, such as the separator.
    reading: String,
}

impl Default for Options {
    fn default() -> Self {
        let core = TripleImportOptions::default();
        Self {
            memory: core.memory,
            columns: core.columns.to_string(),
            unknown: core.unknown,
            duplicates: core.duplicates,
            overwrite: core.overwrite,
            command: String::new(),
            inputs: Vec::new(),
            reading: String::new(),
        }
    }
}

impl Options {
    fn into_core(self, options: Map<String, Value>) -> Result<TripleImportOptions> {
        Ok(TripleImportOptions {
            memory: self.memory,
            columns: self.columns.parse()?,
            unknown: self.unknown,
            duplicates: self.duplicates,
            overwrite: self.overwrite,
            provenance: Provenance {
                command: self.command,
                outercore: env!("CARGO_PKG_VERSION").to_owned(),
                inputs: self.inputs,
                options,
            },
            tuning: None,
        })
    }
}

/// Builds a data set of triples; its public interface is `outercore.importing.triples`.
#[pyclass(module = "outercore._core", frozen)]
pub struct TripleImporter {
    progress: Py<PyAny>,
    /// `None` once committed.
    import: Mutex<Option<TripleImport>>,
}

/// A column of names: the end of each name, and all bytes.
type Column<'py> = (PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, u8>);

#[pymethods]
impl TripleImporter {
    #[new]
    fn new(
        py: Python<'_>,
        out: PathBuf,
        options: &Bound<'_, PyAny>,
        progress: Py<PyAny>,
    ) -> PyResult<Self> {
        let (options, all): (Options, _) = value_and_fields("options of triples", options)?;
        let import = py
            .detach(|| {
                let fingerprint = format!("{}\n{}", options.inputs.join("\n"), options.reading);
                let core = options.into_core(all)?;
                TripleImport::begin(Arc::new(RealDisk), &out, core, &fingerprint)
            })
            .map_err(to_python)?;
        Ok(Self { progress, import: Mutex::new(Some(import)) })
    }

    /// `dialect`: the format of the text.
    fn text(
        &self,
        py: Python<'_>,
        part: &str,
        path: PathBuf,
        dialect: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let dialect: Dialect = core_value("how the text is written", dialect)?;
        self.run(py, |import, callback| {
            open(import)?.text(part.parse()?, &path, Some(dialect), &mut |at| {
                callback.call(&at.phase.to_string(), at.done, at.total, &at.unit.to_string())
            })
        })
    }

    /// Columns as `(offsets, bytes)`.
    fn push(
        &self,
        py: Python<'_>,
        part: &str,
        heads: Column<'_>,
        relations: Column<'_>,
        tails: Column<'_>,
        weights: Option<PyReadonlyArray1<'_, f32>>,
    ) -> PyResult<()> {
        let batch = TripleBatch {
            heads: column(&heads)?,
            relations: column(&relations)?,
            tails: column(&tails)?,
            weights: weights.as_ref().map(|weights| weights.as_slice()).transpose()?,
        };
        self.run(py, |import, _| {
            let part: Part = part.parse()?;
            open(import)?.push(part, &batch)
        })
    }

    /// As [`Importer::close`](crate::import::Importer).
    fn close(&self, py: Python<'_>, refused: bool) {
        py.detach(|| {
            let import = self.import.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(import) = import
                && refused
            {
                import.end_refused();
            }
        });
    }

    /// Commits the data set; returns the summary.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let summary = self.run(py, |import, callback| {
            let found = open(import)?.finish(&mut |at| {
                callback.call(&at.phase.to_string(), at.done, at.total, &at.unit.to_string())
            })?;
            let summary = summary(found);
            if let Some(import) = import.take() {
                import.commit()?;
            }
            Ok(summary)
        })?;
        python_value(py, &summary)
    }
}

impl TripleImporter {
    fn run<T: Send>(
        &self,
        py: Python<'_>,
        step: impl FnOnce(&mut Option<TripleImport>, &mut Callback) -> Result<T> + Send,
    ) -> PyResult<T> {
        run(py, &self.progress, &self.import, step)
    }
}

/// Builds a dictionary of names; its public interface is `outercore.importing.build.dictionary`.
#[pyclass(module = "outercore._core", frozen)]
pub struct DictionaryImporter {
    progress: Py<PyAny>,
    /// `None` once committed. In a box because checksums need a larger alignment than Python's.
    import: Mutex<Option<Box<DictionaryImport>>>,
}

#[pymethods]
impl DictionaryImporter {
    #[new]
    fn new(py: Python<'_>, out: PathBuf, memory: u64, progress: Py<PyAny>) -> PyResult<Self> {
        let begin = || DictionaryImport::begin(Arc::new(RealDisk), &out, Bytes(memory));
        let import = Box::new(py.detach(begin).map_err(to_python)?);
        Ok(Self { progress, import: Mutex::new(Some(import)) })
    }

    /// Names as `(offsets, bytes)`.
    fn push(&self, py: Python<'_>, names: Column<'_>) -> PyResult<()> {
        let names = column(&names)?;
        run(py, &self.progress, &self.import, |import, callback| {
            callback.look()?;
            open(import)?.push(names)
        })
    }

    /// Commits the dictionary; without `inputs` it is removed.
    fn close(&self, py: Python<'_>, inputs: Option<Vec<String>>) -> PyResult<()> {
        run(py, &self.progress, &self.import, |import, callback| match (import.take(), inputs) {
            (Some(import), Some(inputs)) => import.finish(inputs, &mut |at| {
                callback.call(&at.phase.to_string(), at.done, at.total, &at.unit.to_string())
            }),
            _ => Ok(()),
        })
    }
}

/// Runs a step of an import without the lock of Python.
fn run<I: Send, T: Send>(
    py: Python<'_>,
    progress: &Py<PyAny>,
    import: &Mutex<Option<I>>,
    step: impl FnOnce(&mut Option<I>, &mut Callback) -> Result<T> + Send,
) -> PyResult<T> {
    let mut callback = Callback::new(Some(progress.clone_ref(py)));
    let result = py.detach(|| {
        let mut import = import.lock().unwrap_or_else(PoisonError::into_inner);
        step(&mut import, &mut callback)
    });
    callback.settle(result, to_python)
}

fn open<I>(import: &mut Option<I>) -> Result<&mut I> {
    let finished = || Error::invalid("the import is finished").hint("begin another one");
    import.as_mut().ok_or_else(finished)
}

fn column<'a>(column: &'a Column<'_>) -> PyResult<NameColumn<'a>> {
    Ok(NameColumn { offsets: column.0.as_slice()?, bytes: column.1.as_slice()? })
}

fn summary(found: &TripleArtifacts) -> Value {
    let bytes: u64 = found.arrays.values().map(|array| array.data_len()).sum();
    json!({
        "entities": found.entities,
        "relations": found.relations,
        "bytes": bytes,
        "parts": found.parts,
    })
}
