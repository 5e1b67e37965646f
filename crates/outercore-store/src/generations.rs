//! Generations: what a data set held between two commits, kept on disk as long as a reader needs it.
//!
//! Each manifest is a generation, and a file of its own: a commit replaces `graph.json` by a new
//! file. A reader locks the file that it has read (shared), and a writer gives the old manifest a
//! second name in [`DIRECTORY`] before it commits. Files that only an old manifest names are removed
//! once nobody holds it: the lock ends with the reader, however that ends.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outercore_core::{Context, ErrorKind, Result};
use outercore_format::{Checksum, GENERATIONS_DIRECTORY, MANIFEST_FILE, Manifest};
use outercore_io::Disk;

use crate::claims::{inside, remove_files};

/// Suffix of a manifest that was replaced.
const SUFFIX: &str = ".json";

/// Holds a generation: its files stay where they are until the last copy is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    /// The manifest's file, locked. A forked process shares the lock.
    _file: Arc<File>,
}

/// The bytes of the manifest in `root`, and the hold on its generation; no hold where the file
/// system has no locks.
///
/// # Errors
/// Those of opening and reading it.
pub(crate) fn pin(root: &Path) -> Result<(Vec<u8>, Option<Pin>)> {
    pin_at(&root.join(MANIFEST_FILE))
}

/// As [`pin`], for the generation `name`; `None` where it is gone.
///
/// # Errors
/// As [`pin`].
pub(crate) fn pin_old(root: &Path, name: &str) -> Result<Option<(Vec<u8>, Option<Pin>)>> {
    match pin_at(&path_of(root, name)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

fn pin_at(path: &Path) -> Result<(Vec<u8>, Option<Pin>)> {
    loop {
        let mut file = File::open(path)?;
        let locked = match file.try_lock_shared() {
            Ok(()) => true,
            // A writer is about to remove what this manifest names: there is a newer one.
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                continue;
            }
            Err(TryLockError::Error(_)) => false,
        };
        // Locked too late if it was replaced before: a writer may not have seen the lock.
        if locked && !is_at(&file, path)? {
            continue;
        }
        let mut bytes = Vec::new();
        crate::dataset::limited(&mut file).read_to_end(&mut bytes)?;
        return Ok((bytes, locked.then(|| Pin { _file: Arc::new(file) })));
    }
}

/// Whether `file` is what `path` names now.
fn is_at(file: &File, path: &Path) -> Result<bool> {
    let held = file.metadata()?;
    let now = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        now => now?,
    };
    Ok((held.dev(), held.ino()) == (now.dev(), now.ino()))
}

/// A name for the generation of a manifest with these bytes.
pub(crate) fn name_of(manifest: &[u8]) -> String {
    Checksum::of(manifest).to_string().replace(':', "-")
}
