//! One process at a time.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;

use outercore_core::{Context, Error, Result};

/// Holds a file for its owner alone, against other processes and other holders in this one; let go
/// when dropped, also by a process that is killed.
///
/// # Example
/// ```
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// use outercore_io::FileLock;
/// let path = directory.path().join("lock");
/// let lock = FileLock::acquire(&path)?;
/// assert!(FileLock::acquire(&path).is_err());
/// drop(lock);
/// FileLock::acquire(&path)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileLock(#[expect(dead_code, reason = "closing it lets go")] File);

impl FileLock {
    /// Holds the file at `path`, which is made where there is none.
    ///
    /// # Errors
    /// `Invalid`: somebody else holds it. Those of making the file.
    pub fn acquire(path: &Path) -> Result<Self> {
        let describe = || format!("lock `{}`", path.display());
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.with_context(describe)?;
        // SAFETY: the descriptor is open as long as `file`, and flock touches no memory.
        let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        if result == 0 {
            return Ok(Self(file));
        }
        let error = std::io::Error::last_os_error();
        if error.kind() == std::io::ErrorKind::WouldBlock {
            return Err(Error::invalid(format!("{}: another process holds it", describe()))
                .hint("wait until it has ended"));
        }
        Err(Error::from(error).context(describe()))
    }
}
