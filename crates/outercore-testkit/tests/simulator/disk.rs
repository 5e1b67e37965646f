//! The disk that all processes of a simulated machine share.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outercore_core::{Error, ErrorKind, Result};
use outercore_io::{Disk, FaultDisk, WriteFile};

use crate::turns::Turns;

/// A [`FaultDisk`] that gives other actors a turn before each operation.
pub struct SharedDisk {
    gate: Arc<Gate>,
}

struct Gate {
    disk: FaultDisk,
    turns: Arc<Turns>,
    /// Operations left for the server until it is killed.
    server_has: AtomicU64,
}

impl Gate {
    /// # Errors
    /// The actor's process has ended: its operations no longer reach the disk.
    fn pass(&self) -> Result<()> {
        self.turns.take()?;
        if self.turns.is_server() && self.server_has.fetch_sub(1, Ordering::Relaxed) == 0 {
            self.turns.kill_server();
            return Err(Error::new(ErrorKind::Interrupted, "simulated kill"));
        }
        Ok(())
    }

    /// Executes one operation.
    fn operate<T>(&self, act: impl FnOnce(&FaultDisk) -> Result<T>) -> Result<T> {
        self.pass()?;
        let done = act(&self.disk);
        if self.disk.crashed() {
            self.turns.stop_machine();
        }
        done
    }
}

impl SharedDisk {
    /// Kills the server at its operation number `kill_at`.
    pub fn new(disk: FaultDisk, turns: Arc<Turns>, kill_at: u64) -> Self {
        Self { gate: Arc::new(Gate { disk, turns, server_has: AtomicU64::new(kill_at) }) }
    }

    fn file(
        &self,
        open: impl FnOnce(&FaultDisk) -> Result<Box<dyn WriteFile>>,
    ) -> Result<Box<dyn WriteFile>> {
        let inner = self.gate.operate(open)?;
        Ok(Box::new(SharedFile { inner, gate: Arc::clone(&self.gate) }))
    }
}

impl Disk for SharedDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.file(|disk| disk.create(path))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.file(|disk| disk.open(path))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.gate.operate(|disk| disk.create_dir_all(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.gate.operate(|disk| disk.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.gate.operate(|disk| disk.link(from, to))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.gate.operate(|disk| disk.remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> Result<()> {
        self.gate.operate(|disk| disk.remove_dir_all(path))
    }

    fn remove_empty_dir(&self, path: &Path) -> Result<()> {
        self.gate.operate(|disk| disk.remove_empty_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.gate.operate(|disk| disk.sync_dir(path))
    }
}

struct SharedFile {
    inner: Box<dyn WriteFile>,
    gate: Arc<Gate>,
}

impl WriteFile for SharedFile {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        let inner = &mut self.inner;
        self.gate.operate(|_| inner.write_all(bytes))
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let inner = &mut self.inner;
        self.gate.operate(|_| inner.write_at(offset, bytes))
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        let inner = &mut self.inner;
        self.gate.operate(|_| inner.set_len(len))
    }

    fn sync(&mut self) -> Result<()> {
        let inner = &mut self.inner;
        self.gate.operate(|_| inner.sync())
    }
}
