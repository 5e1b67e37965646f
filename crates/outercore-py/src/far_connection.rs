//! The low-level interface to far memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use outercore_core::{Bytes, Error, Result};
use outercore_fabric::FabricPlane;
use outercore_far::memory::Ticket;
use outercore_far::{FarMemory, FarOptions, Receive, Region, RegionKey};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::process::OfProcess;
use crate::values::{core_value, python_value};

/// A connection to a memory server; its public class is `outercore.data.far.Connection`.
#[pyclass(module = "outercore._core", frozen)]
pub struct FarConnection {
    state: OfProcess<Mutex<State>>,
}

struct State {
    /// `None` once closed.
    memory: Option<Arc<FarMemory>>,
    /// Requested lengths of reads, by thread and ticket, because a lease has whole pages.
    lengths: HashMap<(usize, u64), usize>,
}

#[pymethods]
impl FarConnection {
    /// `options` describes the core's `FarOptions`; `receive` is `shared` or `per_thread`.
    #[new]
    fn new(
        py: Python<'_>,
        options: &Bound<'_, PyAny>,
        threads: usize,
        receive: &str,
    ) -> PyResult<Self> {
        let options: FarOptions = core_value("far memory", options)?;
        py.detach(|| {
            let receive = match receive {
                "per_thread" => Receive::PerThread,
                _ => Receive::Shared,
            };
            let plane = FabricPlane::default();
            let memory =
                FarMemory::build_connection_with(&options, Some(&plane), threads, receive)?;
            let state = State { memory: Some(Arc::new(memory)), lengths: HashMap::new() };
            Ok(Self { state: OfProcess::new(Mutex::new(state)) })
        })
        .map_err(to_python)
    }

    /// Bytes of queues and buffers.
    fn memory_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, |memory| Ok(memory.memory_bytes().0))
    }

    /// Allocates a region; returns its key.
    fn allocate(&self, py: Python<'_>, length: u64, name: Option<&str>) -> PyResult<u64> {
        self.ask(py, |memory| Ok(memory.allocate(Bytes(length), name)?.key.0))
    }

    fn seal(&self, py: Python<'_>, key: u64, length: u64, keep: bool) -> PyResult<()> {
        self.ask(py, |memory| memory.seal(&region(key, length), keep))
    }

    /// Key and length of the region with a name.
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<Option<(u64, u64)>> {
        self.ask(py, |memory| Ok(memory.find(name)?.map(|found| (found.key.0, found.len.0))))
    }

    fn free(&self, py: Python<'_>, key: u64, length: u64) -> PyResult<()> {
        self.ask(py, |memory| memory.free(&region(key, length)))
    }

    /// Memory and regions of the server.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        python_value(py, &self.ask(py, FarMemory::status)?)
    }

    /// Starts writing; the bytes are copied.
    fn write_start(
        &self,
        py: Python<'_>,
        thread: usize,
        key: u64,
        length: u64,
        offset: u64,
        data: PyReadonlyArray1<'_, u8>,
    ) -> PyResult<()> {
        let data = data.as_slice()?;
        self.ask(py, |memory| {
            memory.far_write_start(thread, &region(key, length), offset, data).map(|_| ())
        })
    }

    /// Waits for all writes of a thread.
    fn write_complete(&self, py: Python<'_>, thread: usize) -> PyResult<()> {
        self.ask(py, |memory| memory.far_write_complete(thread))
    }

    /// Starts to read `count` bytes; returns the ticket.
    fn read_start(
        &self,
        py: Python<'_>,
        thread: usize,
        key: u64,
        length: u64,
        offset: u64,
        count: usize,
    ) -> PyResult<u64> {
        self.ask(py, |memory| {
            let ticket = memory.far_read_start(thread, &region(key, length), offset, count)?;
            self.lock().lengths.insert((thread, ticket.number()), count);
            Ok(ticket.number())
        })
    }

    /// Waits for a read; returns its bytes.
    fn read_complete<'py>(
        &self,
        py: Python<'py>,
        thread: usize,
        ticket: u64,
    ) -> PyResult<Bound<'py, PyArray1<u8>>> {
        let bytes = self.ask(py, |memory| {
            let completed = memory.far_read_complete(thread, Ticket::from_number(ticket));
            let length = self.lock().lengths.remove(&(thread, ticket));
            let lease = completed?;
            let length = length.ok_or_else(|| Error::internal("a read without a length"))?;
            Ok(lease[..length].to_vec())
        })?;
        Ok(bytes.into_pyarray(py))
    }

    /// Closes the connection after running calls have ended; further calls do nothing.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let memory = self.lock().memory.take();
            drop(memory);
        });
    }
}

impl FarConnection {
    /// Ignores poisoning: no code panics while it holds the lock, unless memory is exhausted.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the connection without the GIL; threads do not wait for each other.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&FarMemory) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let memory = self.lock().memory.clone();
            ask(&*memory.ok_or_else(|| {
                Error::invalid("the connection is closed").hint("build another one")
            })?)
        })
        .map_err(to_python)
    }
}

fn region(key: u64, length: u64) -> Region {
    Region { key: RegionKey(key), len: Bytes(length) }
}
