//! The write side: everything that changes a data set, a checkpoint or a journal goes through
//! [`Disk`], so that a test can crash it at every single operation.

mod unnamed;

use std::path::Path;

use outercore_core::Result;

pub use unnamed::{Unnamed, path_of};
pub(crate) use unnamed::{create_passing, open_unnamed};

/// Changes to a directory tree. The real one is [`crate::RealDisk`]; [`crate::FaultDisk`] crashes,
/// fills up or fails at the n-th operation.
///
/// # Contract
/// - A write is durable only after [`WriteFile::sync`] on the file **and** [`Disk::sync_dir`] on
///   the directory that names it.
/// - [`Disk::rename`] replaces the target atomically.
/// - Every error names the path.
pub trait Disk: Send + Sync {
    /// Creates `path`, or empties it where it exists.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>>;

    /// A file without a name, on the file system of `directory`: for scratch data that must not
    /// outlive the process. Where the file system knows no such files it has a name for a moment.
    fn create_unnamed(&self, directory: &Path) -> Result<Unnamed> {
        // A name that nobody has, so that what is emptied is empty.
        let (path, handle) = create_passing(directory)?;
        let file = self.create(&path);
        self.remove_file(&path)?;
        Ok(Unnamed::new(file?, handle))
    }

    /// Opens an existing file for writing, without emptying it; appends go to its end.
    fn open(&self, path: &Path) -> Result<Box<dyn WriteFile>>;

    /// Creates a directory and those above it.
    fn create_dir_all(&self, path: &Path) -> Result<()>;

    /// Replaces `to` by `from`, atomically.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Gives the file at `from` a second name; `to` must be free. The kind of the error is
    /// `Unsupported` where the file system has no second names.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;

    /// Removes a file; one that is not there is no error.
    fn remove_file(&self, path: &Path) -> Result<()>;

    /// Removes a directory with all in it; one that is not there is no error.
    fn remove_dir_all(&self, path: &Path) -> Result<()>;

    /// Removes a directory; one that has something in it stays, and one that is not there is no
    /// error.
    fn remove_empty_dir(&self, path: &Path) -> Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;

    /// Replaces the content of `path` so that a reader sees the old bytes or the new ones, never a
    /// mixture, whatever happens: temporary file, sync, rename, directory sync.
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
            // Half a file only takes room.
            let _ = self.remove_file(&temporary);
            return Err(error);
        }
        self.sync_dir(path.parent().unwrap_or(Path::new(".")))
    }
}

/// A file open for writing.
pub trait WriteFile: Send {
    /// Writes at the append position (the start after [`Disk::create`], the file's end after
    /// [`Disk::open`] and [`WriteFile::set_len`]) and moves it on.
    fn write_all(&mut self, bytes: &[u8]) -> Result<()>;

    /// Writes at an absolute offset; does not move the append position.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Cuts or extends (with zeros) the file and moves the append position to its end.
    fn set_len(&mut self, len: u64) -> Result<()>;

    /// Makes the content durable.
    fn sync(&mut self) -> Result<()>;
}
