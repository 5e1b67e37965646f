use outercore_core::{Error, Result};
use pyo3::prelude::*;

use crate::errors::interrupted;

/// A Python callback `callback(phase, done, total, unit)` (or none), as long tasks call it.
///
/// An exception in the callback, Ctrl-C included, stops the task with an `Interrupted` error; the
/// exception itself is raised once the task has come to its end.
pub struct Callback {
    function: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Callback {
    pub fn new(function: Option<Py<PyAny>>) -> Self {
        Self { function, raised: None }
    }

    /// Whether there is a function.
    pub fn is_some(&self) -> bool {
        self.function.is_some()
    }

    /// What the function answers.
    pub fn ask<T>(&mut self, question: impl for<'py> IntoPyObject<'py>) -> Result<T>
    where
        T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
    {
        let function = self.function.as_ref().ok_or_else(|| Error::internal("nobody to ask"))?;
        let answer = Python::attach(|py| function.call1(py, (question,))?.extract(py));
        self.keep(answer)
    }

    /// Reports progress and looks for signals.
    pub fn call(&mut self, phase: &str, done: u64, total: u64, unit: &str) -> Result<()> {
        self.look()?;
        let Some(function) = &self.function else { return Ok(()) };
        let called = Python::attach(|py| function.call1(py, (phase, done, total, unit)));
        self.keep(called.map(|_| ()))
    }

    /// Looks for signals.
    pub fn look(&mut self) -> Result<()> {
        self.keep(Python::attach(|py| py.check_signals()))
    }

    /// Keeps an exception until the task has come to its end.
    fn keep<T>(&mut self, called: PyResult<T>) -> Result<T> {
        called.map_err(|raised| {
            let error = interrupted(&raised);
            self.raised = Some(raised);
            error
        })
    }

    /// The same for passes over triples.
    pub fn of_triples(&mut self) -> impl FnMut(&str, u64, u64) -> Result<()> {
        |phase, done, total| self.call(phase, done, total, "triples")
    }

    /// The task's result; an exception of the callback wins over the error it caused.
    pub fn settle<T>(self, result: Result<T>, map: impl FnOnce(Error) -> PyErr) -> PyResult<T> {
        match self.raised {
            Some(raised) => Err(raised),
            None => result.map_err(map),
        }
    }
}
