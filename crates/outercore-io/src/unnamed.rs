//! Files without a name, for scratch data: whatever ends the process, they are gone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use outercore_core::{Context, Result};

use crate::disk::WriteFile;

/// A file that no directory knows. Its room is free again when everybody who has it open is gone.
pub struct Unnamed {
    /// To write to it.
    pub file: Box<dyn WriteFile>,
    handle: File,
}

impl Unnamed {
    pub(crate) fn new(file: Box<dyn WriteFile>, handle: File) -> Self {
        Self { file, handle }
    }

    /// A path by which this process can open it, as long as this value is there.
    pub fn path(&self) -> PathBuf {
        path_of(&self.handle)
    }

    /// The file by itself, open for reading and writing.
    pub fn into_handle(self) -> File {
        self.handle
    }
}

/// A path by which this process can open a file that it has open already, with a name or without.
///
/// # Example
/// ```
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// use outercore_io::{Disk, RealDisk, path_of};
/// let mut unnamed = RealDisk.create_unnamed(directory.path())?;
/// unnamed.file.write_all(b"scratch")?;
/// let file = unnamed.into_handle();
/// assert_eq!(std::fs::read(path_of(&file))?, b"scratch");
/// assert_eq!(std::fs::read_dir(directory.path())?.count(), 0);
/// # Ok(())
/// # }
/// ```
pub fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A name for a file that loses it at once.
pub(crate) fn passing_name(directory: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    directory.join(format!("scratch-{}-{number}", std::process::id()))
}

/// Opens a file that has had no name at any time; `None` where the file system knows none.
pub(crate) fn open_unnamed(directory: &Path) -> Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
    match options.open(directory) {
        Ok(file) => Ok(Some(file)),
        Err(error) if is_unknown(&error) => Ok(None),
        Err(error) => {
            Err(error).with_context(|| format!("create a file in `{}`", directory.display()))
        }
    }
}

/// File systems that know no such files refuse, and kernels that do not take it for writing to the
/// directory.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL))
}
