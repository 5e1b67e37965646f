//! The write side. Every change of a data set, a checkpoint or a journal uses [`Disk`], so a test
//! can crash it at every single operation.

mod unnamed;

use std::path::Path;

use outercore_core::Result;

pub use unnamed::{Unnamed, path_of};
pub(crate) use unnamed::{create_passing, open_unnamed};

/// Changes to a directory tree. [`crate::RealDisk`] is the real implementation;
/// [`crate::FaultDisk`] crashes, fills up or fails at the n-th operation.
///
/// # Contract
/// - A write is durable only after [`WriteFile::sync`] on the file **and** [`Disk::sync_dir`] on
///   the directory that names it.
/// - [`Disk::rename`] replaces the target atomically.
/// - Every error names the path.
pub trait Disk: Send + Sync {
    /// Creates `path`, or truncates an existing file to zero bytes.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>>;

    /// Creates a file without a name, on the file system of `directory`, for scratch data that must
    /// not outlive the process. On a file system without unnamed files, it has a name for a moment.
    fn create_unnamed(&self, directory: &Path) -> Result<Unnamed> {
        // The name is new, so `create` truncates only an empty file.
        let (path, handle) = create_passing(directory)?;
        let file = self.create(&path);
        self.remove_file(&path)?;
        Ok(Unnamed::new(file?, handle))
    }

    /// Opens an existing file for writing without truncating it; appends go to its end.
    fn open(&self, path: &Path) -> Result<Box<dyn WriteFile>>;

    /// Creates a directory and its missing parents.
    fn create_dir_all(&self, path: &Path) -> Result<()>;

    /// Replaces `to` by `from`, atomically.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Gives the file at `from` a second name; `to` must be free. The error has kind `Unsupported`
    /// if the file system has no hard links.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file; a missing file is not an error.
    fn remove_file(&self, path: &Path) -> Result<()>;

    /// Removes a directory and its content; a missing directory is not an error.
    fn remove_dir_all(&self, path: &Path) -> Result<()>;

    /// Removes an empty directory. A directory with content stays, and a missing directory is not
    /// an error.
    fn remove_empty_dir(&self, path: &Path) -> Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;

    /// Replaces the content of `path` atomically: temporary file, sync, rename, directory sync.
    /// Even after a crash, a reader sees the old bytes or the new bytes, never a mixture.
    fn replace(&self, path: &Path, content: &[u8]) -> Result<()> {
        let temporary = path.with_extension("tmp");
        let write = || {
            let mut file = self.create(&temporary)?;
            file.write_all(content)?;
            file.sync()?;
            drop(file);
            self.rename(&temporary, path)
        };
        if let Err(error) = write() {
            // An incomplete file only takes space.
            let _ = self.remove_file(&temporary);
            return Err(error);
        }
        self.sync_dir(path.parent().unwrap_or(Path::new(".")))
    }
}

/// A file open for writing.
pub trait WriteFile: Send {
    /// Writes at the append position and advances it. The position is the start after
    /// [`Disk::create`], and the file's end after [`Disk::open`] and [`WriteFile::set_len`].
    fn write_all(&mut self, bytes: &[u8]) -> Result<()>;

    /// Writes at an absolute offset; does not change the append position.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Cuts or extends (with zeros) the file and moves the append position to its end.
    fn set_len(&mut self, len: u64) -> Result<()>;

    /// Makes the content durable.
    fn sync(&mut self) -> Result<()>;
}
