//! Errors of the core as exceptions of `outercore.errors`.

use outercore_core::{Error, Part};
use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyList;

/// The exception that mirrors the error's kind.
pub fn to_python(error: Error) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import("outercore.errors")
            .and_then(|module| {
                let (kind, needed) = (format!("{:?}", error.kind()), error.needed());
                let needed = needed.map(|memory| memory.0);
                let hint = PyList::empty(py);
                for part in error.next_step().map_or(&[][..], |hint| hint.0.as_slice()) {
                    match part {
                        Part::Text(text) => hint.append(text)?,
                        Part::Option { name, value } => hint.append((*name, value))?,
                    }
                }
                module.call_method1("from_core", (kind, error.message(), hint, needed))
            })
            .map(|exception| PyErr::from_value(exception));
        made.unwrap_or_else(|_| PyRuntimeError::new_err(error.to_string()))
    })
}

/// Converts an exception of a callback to an error, to pass it through the core.
pub fn interrupted(error: &PyErr) -> Error {
    Error::new(outercore_core::ErrorKind::Interrupted, error.to_string())
}
