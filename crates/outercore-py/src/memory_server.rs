//! A memory server in this process.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use outercore_core::{Bytes, Error, Result};
use outercore_fabric::FabricPlane;
use outercore_far::{FarAddress, ServerConfig, ServerHandle, Token, serve};
use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::json;

use crate::errors::to_python;
use crate::process::OfProcess;
use crate::values::{core_value, python_value};

/// A memory server in this process; its public class is `outercore.data.far.MemoryServer`.
#[pyclass(module = "outercore._core", frozen)]
pub struct MemoryServer {
    /// `None` once stopped.
    handle: OfProcess<Mutex<Option<ServerHandle>>>,
}

/// Memory, limits and addresses of a memory server.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerOptions {
    listen: Vec<FarAddress>,
    size: Bytes,
    token_file: PathBuf,
    max_clients: Option<usize>,
    session_timeout_s: Option<f64>,
    fabric_provider: Option<String>,
}

impl ServerOptions {
    fn into_config(self) -> Result<ServerConfig> {
        let token = Token::from_file(&self.token_file)?;
        let Some(first) = self.listen.first() else {
            return Err(Error::invalid("memory server: no address to listen on"));
        };
        let mut config = ServerConfig::new(first.clone(), self.size, token);
        config.listen = self.listen;
        config.data_plane = Some(Arc::new(FabricPlane::new(self.fabric_provider.as_deref())));
        if let Some(clients) = self.max_clients {
            config.sessions = clients;
        }
        if let Some(seconds) = self.session_timeout_s {
            config.session_timeout = Duration::try_from_secs_f64(seconds).map_err(|_| {
                Error::invalid(format!("session timeout {seconds} s, expected 0.1 s to a day"))
            })?;
        }
        Ok(config)
    }
}

#[pymethods]
impl MemoryServer {
    #[new]
    fn new(py: Python<'_>, config: &Bound<'_, PyAny>) -> PyResult<Self> {
        let options: ServerOptions = core_value("memory server", config)?;
        py.detach(|| {
            let handle = serve(options.into_config()?)?;
            Ok(Self { handle: OfProcess::new(Mutex::new(Some(handle))) })
        })
        .map_err(to_python)
    }

    /// Listening addresses.
    fn addresses(&self) -> PyResult<Vec<String>> {
        let addresses =
            |handle: &ServerHandle| handle.addresses().iter().map(ToString::to_string).collect();
        self.with(addresses).map_err(to_python)
    }

    /// Memory, regions and counters of the server.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (status, counters) = py
            .detach(|| self.with(|handle| (handle.status(), handle.counters())))
            .map_err(to_python)?;
        let described = json!({
            "version": status.version,
            "size": status.size,
            "used": status.used,
            "clients": status.clients,
            "regions": status.regions,
            "read_bytes": counters.read,
            "written_bytes": counters.written,
            "requests": counters.requests,
            "turned_away": counters.turned_away,
        });
        python_value(py, &described)
    }

    /// Closes all connections and frees all memory; further calls do nothing.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| {
            let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(handle) = handle {
                handle.stop();
            }
        });
    }
}

impl MemoryServer {
    fn with<T>(&self, ask: impl FnOnce(&ServerHandle) -> T) -> Result<T> {
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let handle = handle.as_ref().ok_or_else(|| {
            Error::invalid("the memory server is stopped").hint("start another one")
        })?;
        Ok(ask(handle))
    }
}
