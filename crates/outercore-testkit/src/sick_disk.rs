//! A disk that fails for some time.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outercore_core::{Error, ErrorKind, Result};
use outercore_io::{Disk, RealDisk, WriteFile};

/// A disk whose syncs and file creations fail while it is sick. Written bytes stay visible to every
/// reader, as in the operating system's memory.
#[derive(Clone, Default)]
pub struct SickDisk(Arc<AtomicBool>);

struct SickFile(Box<dyn WriteFile>, Arc<AtomicBool>);

impl SickDisk {
    /// Makes the disk sick, or healthy again.
    pub fn fail(&self, is_sick: bool) {
        self.0.store(is_sick, Ordering::Relaxed);
    }
}

fn look(is_sick: &AtomicBool) -> Result<()> {
    match is_sick.load(Ordering::Relaxed) {
        true => Err(Error::new(ErrorKind::Io, "sick")),
        false => Ok(()),
    }
}

impl Disk for SickDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        look(&self.0)?;
        Ok(Box::new(SickFile(RealDisk.create(path)?, Arc::clone(&self.0))))
    }

    fn open(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Ok(Box::new(SickFile(RealDisk.open(path)?, Arc::clone(&self.0))))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        RealDisk.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        RealDisk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        RealDisk.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        RealDisk.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> Result<()> {
        RealDisk.remove_dir_all(path)
    }

    fn remove_empty_dir(&self, path: &Path) -> Result<()> {
        RealDisk.remove_empty_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        look(&self.0)?;
        RealDisk.sync_dir(path)
    }
}

impl WriteFile for SickFile {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }

    fn sync(&mut self) -> Result<()> {
        look(&self.1)?;
        self.0.sync()
    }
}
