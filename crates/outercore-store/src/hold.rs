//! One writer of a data set at a time.

use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, Result};
use outercore_format::{IMPORT_DIRECTORY, MANIFEST_FILE};
use outercore_io::FileLock;

/// The journal in the directory of an unfinished import.
pub(crate) const JOURNAL: &str = "journal.json";

/// Where the journal of an import into `root` lies, of edges or of triples.
pub(crate) fn journal_path(root: &Path) -> PathBuf {
    root.join(IMPORT_DIRECTORY).join(JOURNAL)
}

/// The directory, held; `None` where somebody else holds it. Where the file system has no locks, a
/// commit still notices another one.
pub(crate) fn lock(root: &Path) -> Result<Option<FileLock>> {
    FileLock::try_directory(root).with_context(|| format!("data set `{}`", root.display()))
}

/// The error for a data set that somebody else has locked.
pub(crate) fn held(root: &Path) -> Error {
    Error::invalid(format!("data set `{}`: somebody else writes to it", root.display()))
        .hint("wait until they have ended, and run the command again")
}

/// A data set that is being made, held against other imports and changes.
pub(crate) struct Hold {
    root: PathBuf,
    /// `None` while there is no directory.
    lock: Option<FileLock>,
}

impl Hold {
    /// Holds the directory `root`, if it is there.
    ///
    /// # Errors
    /// `Invalid`: somebody else writes to it.
    pub fn begin(root: &Path) -> Result<Self> {
        let mut hold = Self { root: root.to_owned(), lock: None };
        if root.is_dir() {
            hold.take()?;
        }
        Ok(hold)
    }

    /// Holds the directory now that it is there, if it was not before.
    ///
    /// # Errors
    /// `Invalid`: somebody else writes to it, or has meanwhile.
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
