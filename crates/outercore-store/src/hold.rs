//! The lock that allows one writer of a data set at a time.

use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, Result};
use outercore_format::{IMPORT_DIRECTORY, MANIFEST_FILE};
use outercore_io::FileLock;

/// Name of the journal of an unfinished import.
pub(crate) const JOURNAL: &str = "journal.json";

/// Path of the journal of an import into `root`, of edges or of triples.
pub(crate) fn journal_path(root: &Path) -> PathBuf {
    root.join(IMPORT_DIRECTORY).join(JOURNAL)
}

/// Locks the directory; `None` if another process holds the lock. On a file system without locks, a
/// commit still detects a concurrent change.
pub(crate) fn lock(root: &Path) -> Result<Option<FileLock>> {
    FileLock::try_directory(root).with_context(|| format!("data set `{}`", root.display()))
}

/// The error for a data set that another process has locked.
pub(crate) fn held(root: &Path) -> Error {
    Error::invalid(format!("data set `{}`: somebody else writes to it", root.display()))
        .hint("wait until they have ended, and run the command again")
}

/// The lock of a data set under construction, against other imports and changes.
pub(crate) struct Hold {
    root: PathBuf,
    /// `None` while the directory does not exist.
    lock: Option<FileLock>,
}

impl Hold {
    /// Locks the directory `root`, if it exists.
    ///
    /// # Errors
    /// `Invalid`: another process writes to it.
    pub fn begin(root: &Path) -> Result<Self> {
        let mut hold = Self { root: root.to_owned(), lock: None };
        if root.is_dir() {
            hold.take()?;
        }
        Ok(hold)
    }

    /// Locks the directory after it was created, if it did not exist before.
    ///
    /// # Errors
    /// `Invalid`: another process writes to it, or has written meanwhile.
    pub fn made(&mut self) -> Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        self.take()?;
        if self.root.join(MANIFEST_FILE).exists() || journal_path(&self.root).exists() {
            return Err(held(&self.root));
        }
        Ok(())
    }

    fn take(&mut self) -> Result<()> {
        self.lock = Some(lock(&self.root)?.ok_or_else(|| held(&self.root))?);
        Ok(())
    }
}
