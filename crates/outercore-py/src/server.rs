//! A prediction server in this process.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use outercore_core::{Error, Result};
use outercore_server::{Server as Native, ServerConfig};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::process::OfProcess;
use crate::values::{core_value, python_value};

/// A prediction server in this process; its public class is `outercore.serving.server.Server`.
#[pyclass(module = "outercore._core", frozen)]
pub struct Server {
    /// `None` once stopped.
    server: OfProcess<Mutex<Option<Native>>>,
}

#[pymethods]
impl Server {
    /// `config` describes the core's `ServerConfig`.
    #[new]
    fn new(
        py: Python<'_>,
        data_set: PathBuf,
        model: PathBuf,
        name: &str,
        config: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let config: ServerConfig = core_value("server", config)?;
        py.detach(|| {
            let server = Native::start(&data_set, &model, name, &config)?;
            Ok(Self { server: OfProcess::new(Mutex::new(Some(server))) })
        })
        .map_err(to_python)
    }

    /// Address of HTTP, as `HOST:PORT`.
    fn address(&self) -> PyResult<String> {
        self.with(|server| server.address().to_string()).map_err(to_python)
    }

    /// Whether connections use TLS.
    fn is_encrypted(&self) -> PyResult<bool> {
        self.with(Native::is_encrypted).map_err(to_python)
    }

    /// Address of gRPC, as `HOST:PORT`.
    fn grpc_address(&self) -> PyResult<Option<String>> {
        let address = |server: &Native| server.grpc_address().map(|address| address.to_string());
        self.with(address).map_err(to_python)
    }

    /// Division of the budget.
    fn plan<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let plan = self.with(|server| server.plan().clone()).map_err(to_python)?;
        python_value(py, &plan)
    }

    /// Loss of int8 against float32, and the same as a sentence; `None` for float32.
    fn loss<'py>(&self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>, String)>> {
        let loss = self.with(|server| server.loss().copied()).map_err(to_python)?;
        loss.map(|loss| Ok((python_value(py, &loss)?, loss.to_string()))).transpose()
    }

    /// A notice for the operator at the start.
    fn notice(&self) -> Option<String> {
        self.with(|server| server.notice().map(str::to_owned)).ok().flatten()
    }

    /// Errors since the last call.
    fn take_failures(&self) -> Vec<String> {
        self.with(Native::take_failures).unwrap_or_default()
    }

    /// Whether it has ended, on its own or by `stop`.
    fn has_ended(&self) -> bool {
        self.with(Native::has_ended).unwrap_or(true)
    }

    /// Answers the waiting requests and ends; further calls do nothing.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
            server.map_or(Ok(()), Native::close)
        })
        .map_err(to_python)
    }
}

impl Server {
    fn with<T>(&self, ask: impl FnOnce(&Native) -> T) -> Result<T> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let server = server
            .as_ref()
            .ok_or_else(|| Error::invalid("the server is stopped").hint("start another one"))?;
        Ok(ask(server))
    }
}
