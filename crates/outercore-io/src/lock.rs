//! One process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

use outercore_core::{Context, Error, Result};

/// Holds a file or a directory for its owner alone, against other processes and other holders in
/// this one; let go when dropped, also by a process that is killed.
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
    /// The process that holds it.
    owner: u32,
}

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
        match file.try_lock() {
            Ok(()) => Ok(Self::of(file)),
            Err(TryLockError::WouldBlock) => {
                Err(Error::invalid(format!("{}: another process holds it", describe()))
                    .hint("wait until it has ended"))
            }
            Err(TryLockError::Error(error)) => Err(Error::from(error).context(describe())),
        }
    }

    /// Holds the directory at `path`; `None` where somebody else does. Where the file system has no
    /// locks, nobody is kept out.
    ///
    /// # Errors
    /// Those of opening it.
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
    /// Unlocks instead of only closing: a process that was forked meanwhile, as every program is
    /// until it runs, has a copy of the descriptor, with which the lock would stay. Such a copy of
    /// the owner does not unlock what it never held.
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            // What fails is let go by closing.
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
