//! A lock that admits one process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use outercore_core::{Context, Error, Result};

/// Locks a file or a directory against other processes and other holders in this process. Dropping
/// it unlocks, and so does the death of the process.
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
pub struct FileLock {
    file: File,
    /// The process that holds the lock.
    owner: u32,
}

impl FileLock {
    /// Locks the file at `path` and creates it if it is missing.
    ///
    /// # Errors
    /// `Invalid`: another process holds the lock. Errors of creating the file.
    pub fn acquire(path: &Path) -> Result<Self> {
        let describe = || format!("lock `{}`", path.display());
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.with_context(describe)?;
        match file.try_lock() {
            Ok(()) => Ok(Self::of(file)),
            Err(TryLockError::WouldBlock) => {
                Err(Error::invalid(format!("{}: another process holds it", describe()))
                    .hint("wait until it has ended"))
            }
            Err(TryLockError::Error(error)) => Err(Error::from(error).context(describe())),
        }
    }

    /// Locks the directory at `path`; `None` if another holder has locked it. On a file system
    /// without locks, this always succeeds and excludes no one.
    ///
    /// # Errors
    /// Errors of opening the directory.
    pub fn try_directory(path: &Path) -> Result<Option<Self>> {
        let directory = File::open(path)?;
        match directory.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(Self::of(directory))),
        }
    }

    fn of(file: File) -> Self {
        Self { file, owner: std::process::id() }
    }
}

impl Drop for FileLock {
    /// Unlocks explicitly instead of only closing the file. A process forked meanwhile has a copy
    /// of the descriptor until it starts another program, and that copy would keep the lock. The
    /// copy of this value in the forked process must not unlock, because it is not the owner.
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // If this fails, closing the file unlocks it.
            let _ = self.file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_descriptor_elsewhere_keeps_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = FileLock::acquire(&path).unwrap();
        let _elsewhere = lock.file.try_clone().unwrap();
        drop(lock);
        FileLock::acquire(&path).unwrap();

        let lock = FileLock::try_directory(directory.path()).unwrap().unwrap();
        let _elsewhere = lock.file.try_clone().unwrap();
        assert!(FileLock::try_directory(directory.path()).unwrap().is_none());
        drop(lock);
        assert!(FileLock::try_directory(directory.path()).unwrap().is_some());
    }

    #[test]
    fn a_forked_copy_of_the_owner_does_not_unlock() {
        let directory = tempfile::tempdir().unwrap();
        let lock = FileLock::try_directory(directory.path()).unwrap().unwrap();
        let copy = FileLock { file: lock.file.try_clone().unwrap(), owner: lock.owner + 1 };
        drop(copy);
        assert!(FileLock::try_directory(directory.path()).unwrap().is_none());
    }
}
