use outercore_core::{Error, Result};
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

use crate::errors::interrupted;
use crate::values::core_value;

/// An optional Python callback `callback(phase, done, total, unit)` of a long task.
///
/// An exception in the callback, including Ctrl-C, stops the task with an `Interrupted` error. The
/// exception itself is raised after the task has ended.
pub struct Callback {
    function: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Callback {
    pub fn new(function: Option<Py<PyAny>>) -> Self {
        Self { function, raised: None }
    }

    /// Whether there is a callback.
    pub fn is_some(&self) -> bool {
        self.function.is_some()
    }

    /// Calls the callback and returns its result; errors name `what` it is.
    pub fn ask<T: DeserializeOwned>(&mut self, what: &str, question: usize) -> Result<T> {
        let function = self.function.as_ref().ok_or_else(|| Error::internal("nobody to ask"))?;
        let answer =
            Python::attach(|py| core_value(what, function.call1(py, (question,))?.bind(py)));
        self.keep(answer)
    }

    /// Reports progress and checks for signals.
    pub fn call(&mut self, phase: &str, done: u64, total: u64, unit: &str) -> Result<()> {
        self.look()?;
        let Some(function) = &self.function else { return Ok(()) };
        let called = Python::attach(|py| function.call1(py, (phase, done, total, unit)));
        self.keep(called.map(|_| ()))
    }

    /// Checks for signals.
    pub fn look(&mut self) -> Result<()> {
        self.keep(Python::attach(|py| py.check_signals()))
    }

    /// Stores an exception until the task has ended.
    fn keep<T>(&mut self, called: PyResult<T>) -> Result<T> {
        called.map_err(|raised| {
            let error = interrupted(&raised);
            self.raised = Some(raised);
            error
        })
    }

    /// The same, for passes over triples.
    pub fn of_triples(&mut self) -> impl FnMut(&str, u64, u64) -> Result<()> {
        |phase, done, total| self.call(phase, done, total, "triples")
    }

    /// The result of the task. An exception of the callback replaces the error that it caused.
    pub fn settle<T>(self, result: Result<T>, map: impl FnOnce(Error) -> PyErr) -> PyResult<T> {
        match self.raised {
            Some(raised) => Err(raised),
            None => result.map_err(map),
        }
    }
}
