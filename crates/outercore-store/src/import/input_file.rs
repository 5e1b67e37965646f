//! Identity of an input file, to detect changes during an import.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use outercore_core::{Context, Error, Result};
use serde::{Deserialize, Serialize};

/// Path, size and time of an input file when its import began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputFile {
    pub path: PathBuf,
    pub bytes: u64,
    modified_ns: u64,
}

impl InputFile {
    pub fn of(path: &Path) -> Result<Self> {
        Self::of_kind("edge list", path)
    }

    /// As [`InputFile::of`], for a file that messages call `kind`.
    pub fn of_kind(kind: &str, path: &Path) -> Result<Self> {
        let describe = || format!("{kind} `{}`", path.display());
        let path = std::fs::canonicalize(path).with_context(describe)?;
        let metadata = std::fs::metadata(&path).with_context(describe)?;
        if !metadata.is_file() {
            return Err(Error::invalid(format!(
                "{}: expected a file, found a directory",
                describe()
            )));
        }
        let modified =
            metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ns = modified.map_or(0, |time| time.as_nanos() as u64);
        Ok(Self { path, bytes: metadata.len(), modified_ns })
    }

    /// Whether the file is unchanged.
    pub fn is_current(&self) -> bool {
        Self::of(&self.path).is_ok_and(|now| now == *self)
    }
}
