//! Errors of the core as exceptions of `outercore.errors`.

use outercore_core::Error;
use pyo3::PyErr;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// The exception that mirrors the error's kind.
pub fn to_python(error: Error) -> PyErr {
    Python::attach(|py| {
        let made = py
            .import("outercore.errors")
            .and_then(|module| {
                let (kind, needed) = (format!("{:?}", error.kind()), error.needed());
                let needed = needed.map(|memory| memory.0);
                module.call_method1("from_core", (kind, error.to_string(), needed))
            })
            .map(|exception| PyErr::from_value(exception));
        made.unwrap_or_else(|_| PyRuntimeError::new_err(error.to_string()))
    })
}

/// Converts an exception of a callback to an error, to pass it through the core.
pub fn interrupted(error: &PyErr) -> Error {
    Error::new(outercore_core::ErrorKind::Interrupted, error.to_string())
}
