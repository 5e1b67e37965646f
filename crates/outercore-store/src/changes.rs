//! Which files a change of a data set has made, so that only those are removed after a crash.

use std::collections::BTreeSet;
use std::path::Path;

use outercore_core::{Error, Result};
use outercore_format::{Manifest, keys};
use outercore_io::Disk;
use serde::{Deserialize, Serialize};

use crate::claims::{inside, remove_files};

/// The file in a data set that names them while it is changed.
const CHANGES: &str = ".change.json";
const VERSION: u32 = 1;

/// Files that a change makes, and those that it replaces, noted before either happens.
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

    /// What a change that was stopped in `root` noted; `None` where there is nothing to read.
    fn load(root: &Path) -> Option<Self> {
        let text = std::fs::read(root.join(CHANGES)).ok()?;
        let changes: Self = serde_json::from_slice(&text).ok()?;
        let is_sound = changes.files.iter().all(|file| keys::validate(file).is_ok());
        (changes.version == VERSION && is_sound).then_some(changes)
    }

    /// Replaces what is on disk.
    pub fn save(&self, disk: &dyn Disk, root: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::internal(format!("files of a change: {error}")))?;
        disk.replace(&root.join(CHANGES), &text)
    }

    /// Removes the files that `manifest`, which counts, does not name, and then the note.
    pub fn clean(&self, disk: &dyn Disk, root: &Path, manifest: &Manifest) -> Result<()> {
        let named = inside(manifest);
        remove_files(disk, root, self.files.iter().filter(|file| !named.contains(*file)))?;
        disk.remove_file(&root.join(CHANGES))
    }
}

/// Ends the clean-up of a change that was stopped in `root`, which must be held.
pub(crate) fn recover(disk: &dyn Disk, root: &Path, manifest: &Manifest) {
    if let Some(changes) = Changes::load(root) {
        // What stays is unused, and the next writer tries again.
        let _ = changes.clean(disk, root, manifest);
    }
}
