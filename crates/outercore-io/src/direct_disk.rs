//! A [`Disk`] whose files are written past the page cache, for scratch data larger than memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use outercore_core::{Context, Result};

use crate::disk::Unnamed;
use crate::disk::{Disk, WriteFile};
use crate::open::PAGE;
use crate::real_disk::RealDisk;

/// The operating system's file system, written directly if possible. Whole pages from page-aligned
/// memory to page-aligned offsets bypass the page cache; all other writes use it.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectDisk;

impl DirectDisk {
    fn over(path: &Path, file: Box<dyn WriteFile>) -> Box<dyn WriteFile> {
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).ok();
        Box::new(DirectFile { direct, file, path: path.to_owned() })
    }
}

impl Disk for DirectDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Ok(Self::over(path, RealDisk.create(path)?))
    }

    fn create_unnamed(&self, directory: &Path) -> Result<Unnamed> {
        let mut unnamed = RealDisk.create_unnamed(directory)?;
        unnamed.file = Self::over(&unnamed.path(), unnamed.file);
        Ok(unnamed)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        Ok(Self::over(path, RealDisk.open(path)?))
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
        RealDisk.sync_dir(path)
    }
}

struct DirectFile {
    /// `None` if the file system does not support direct writes.
    direct: Option<File>,
    file: Box<dyn WriteFile>,
    path: PathBuf,
}

impl DirectFile {
    /// Writes the whole pages of `bytes` directly, if possible, and returns the number of bytes
    /// written.
    fn write_pages(&mut self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let whole = bytes.len() - bytes.len() % PAGE;
        let aligned =
            (bytes.as_ptr() as usize).is_multiple_of(PAGE) && offset.is_multiple_of(PAGE as u64);
        let Some(file) = self.direct.as_ref().filter(|_| aligned && whole > 0) else {
            return Ok(0);
        };
        match file.write_all_at(&bytes[..whole], offset) {
            Ok(()) => Ok(whole),
            // Some layered file systems open the file but refuse direct writes.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.direct = None;
                Ok(0)
            }
            Err(error) => Err(error).with_context(|| format!("write `{}`", self.path.display())),
        }
    }
}

impl WriteFile for DirectFile {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes)
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.write_pages(offset, bytes)?;
        if written == bytes.len() {
            return Ok(());
        }
        self.file.write_at(offset + written as u64, &bytes[written..])
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use outercore_core::{Bytes, ErrorKind};

    use super::*;
    use crate::arena::Arena;

    #[test]
    fn aligned_or_not_what_is_written_is_there() {
        // The directory must be on a disk, not in memory, so that direct writes work.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("a");
        let arena = Arena::new(Bytes::kib(16)).unwrap();
        let mut lease = arena.lease(12 << 10).unwrap();
        for (at, byte) in lease.iter_mut().enumerate() {
            *byte = (at % 251) as u8;
        }
        let mut expected = vec![0; 40_000];
        let mut file = DirectDisk.create(&path).unwrap();
        file.set_len(40_000).unwrap();
        for (from, len, offset) in
            [(0, 8192, 4096), (1, 5000, 8192), (0, 5000, 16_384), (4096, 4096, 30_001)]
        {
            file.write_at(offset, &lease[from..from + len]).unwrap();
            expected[offset as usize..][..len].copy_from_slice(&lease[from..from + len]);
        }
        file.sync().unwrap();
        assert!(std::fs::read(&path).unwrap() == expected);
    }

    #[test]
    fn a_full_device_is_reported_as_no_space() {
        let full = Path::new("/dev/full");
        if full.exists() {
            let error = DirectDisk.open(full).unwrap().write_at(0, b"x").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NoSpace);
        }
    }
}
