//! Records the files of a change, so that after a crash exactly these files are removed.

use std::collections::BTreeSet;
use std::path::Path;

use outercore_core::{Error, Result};
use outercore_format::{MANIFEST_FILE, Manifest, keys};
use outercore_io::Disk;
use serde::{Deserialize, Serialize};

use crate::generations;

/// The file with the list, while the data set is being changed.
const CHANGES: &str = ".change.json";
const VERSION: u32 = 1;

/// Files that a change creates or replaces, recorded before it does so.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Changes {
    version: u32,
    pub files: BTreeSet<String>,
}

impl Changes {
    pub fn new() -> Self {
        Self { version: VERSION, files: BTreeSet::new() }
    }

    /// The list that an interrupted change left in `root`; `None` if it is absent or unreadable.
    fn load(root: &Path) -> Option<Self> {
        let text = std::fs::read(root.join(CHANGES)).ok()?;
        let changes: Self = serde_json::from_slice(&text).ok()?;
        let is_sound = changes.files.iter().all(|file| keys::validate(file).is_ok());
        (changes.version == VERSION && is_sound).then_some(changes)
    }

    /// Replaces the list on disk.
    pub fn save(&self, disk: &dyn Disk, root: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::internal(format!("files of a change: {error}")))?;
        disk.replace(&root.join(CHANGES), &text)
    }

    /// Removes the files that neither the current `manifest` nor a reader needs, then the list.
    pub fn clean(&self, disk: &dyn Disk, root: &Path, manifest: &Manifest) -> Result<()> {
        generations::remove_unused(disk, root, manifest, self.files.iter())?;
        disk.remove_file(&root.join(CHANGES))
    }
}

/// Completes the clean-up after an interrupted change in `root`. The caller must hold the lock.
pub(crate) fn recover(disk: &dyn Disk, root: &Path, manifest: &Manifest) {
    for file in [CHANGES, MANIFEST_FILE] {
        // An interrupted `Disk::replace` leaves this file.
        let temporary = root.join(file).with_extension("tmp");
        if temporary.exists() {
            let _ = disk.remove_file(&temporary);
        }
    }
    // Files that cannot be removed are unused, and the next writer tries again.
    let _ = match Changes::load(root) {
        Some(changes) => changes.clean(disk, root, manifest),
        None if generations::are_left(root) => {
            generations::remove_unused(disk, root, manifest, std::iter::empty())
        }
        None => Ok(()),
    };
}
