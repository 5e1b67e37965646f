//! Records the files that an unfinished import has claimed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use outercore_core::{Context, Error, Result};
use outercore_format::{IMPORT_DIRECTORY, Manifest, keys};
use outercore_io::Disk;
use serde::{Deserialize, Serialize};

use crate::files::{inside, remove_files};
use crate::generations;
use crate::hold::JOURNAL;

/// The file in `.import` with the claims.
const CLAIMS: &str = "files.json";
/// Temporary name of the file, before it is renamed.
const NEW_CLAIMS: &str = "files.tmp";
const VERSION: u32 = 1;

/// The files of an unfinished import, recorded in `.import/files.json` before they are created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claims {
    version: u32,
    /// The command that began the import.
    pub command: String,
    /// Whether the import may replace a data set.
    pub overwrite: bool,
    /// Claimed files by key.
    pub files: BTreeMap<String, String>,
    /// Files of the replaced data set, to be removed after the commit.
    pub replaced: BTreeSet<String>,
    /// Whether the last run ended because its input was refused, so that only another input can
    /// finish the import.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

impl Claims {
    pub fn new(command: &str, overwrite: bool) -> Self {
        Self {
            version: VERSION,
            command: command.to_owned(),
            overwrite,
            files: BTreeMap::new(),
            replaced: BTreeSet::new(),
            refused: false,
        }
    }

    /// The claims of an interrupted import in `root`; `None` if they are absent or unreadable.
    pub fn load(root: &Path) -> Option<Self> {
        let text = std::fs::read(root.join(IMPORT_DIRECTORY).join(CLAIMS)).ok()?;
        let claims: Self = serde_json::from_slice(&text).ok()?;
        let sound = |file: &String| keys::validate(file).is_ok();
        let files_are_inside = claims.files.values().chain(&claims.replaced).all(sound);
        (claims.version == VERSION && files_are_inside).then_some(claims)
    }

    /// Whether `manifest` is the one that the import committed.
    pub fn is_committed(&self, manifest: &Manifest) -> bool {
        let named = inside(manifest);
        self.files.values().any(|file| named.contains(file))
    }

    /// Replaces the claims on disk.
    pub fn save(&self, disk: &dyn Disk, root: &Path) -> Result<()> {
        let text = serde_json::to_vec(self)
            .map_err(|error| Error::internal(format!("files of an import: {error}")))?;
        disk.replace(&root.join(IMPORT_DIRECTORY).join(CLAIMS), &text)
    }

    /// After the commit of `manifest`, removes the replaced files and the leftovers of the import.
    pub fn clean(&self, disk: &dyn Disk, root: &Path, manifest: &Manifest) -> Result<()> {
        if !root.join(IMPORT_DIRECTORY).exists() {
            return Ok(());
        }
        remove_journal(disk, root)?;
        let files = self.replaced.iter().chain(self.files.values());
        generations::remove_unused(disk, root, manifest, files)?;
        remove_all(disk, root, std::iter::empty())
    }
}

/// Files that an unfinished import in `root` has claimed. Other changes must not use them.
pub(crate) fn claimed(root: &Path) -> BTreeSet<String> {
    Claims::load(root).map_or_else(BTreeSet::new, |claims| claims.files.into_values().collect())
}

/// Whether `.import` in `root` belongs to an import that was interrupted, or that was committed but
/// not cleaned up.
pub(crate) fn is_unfinished(root: &Path) -> bool {
    let state = root.join(IMPORT_DIRECTORY);
    state.join(CLAIMS).is_file() || state.join(JOURNAL).is_file()
}

/// Files in `.import` that no import of this library has created.
pub(crate) fn foreign_state(root: &Path) -> Vec<String> {
    if is_unfinished(root) {
        return Vec::new();
    }
    let entries = std::fs::read_dir(root.join(IMPORT_DIRECTORY)).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name()).filter(|name| name != NEW_CLAIMS);
    names.map(|name| format!("{IMPORT_DIRECTORY}/{}", name.to_string_lossy())).collect()
}

/// Removes `files` below `root`, and then the state of the import that created them.
///
/// The journal is removed first, so that no import resumes with files that are being removed. The
/// claims are removed last, so that after a crash in between all remaining files are still
/// recorded.
pub(crate) fn remove_all<'a>(
    disk: &dyn Disk,
    root: &Path,
    files: impl Iterator<Item = &'a String>,
) -> Result<()> {
    let state = root.join(IMPORT_DIRECTORY);
    if !state.exists() {
        return Ok(());
    }
    remove_journal(disk, root)?;
    remove_files(disk, root, files)?;
    let context = || format!("directory `{}`", state.display());
    for entry in std::fs::read_dir(&state).with_context(context)? {
        let entry = entry.with_context(context)?;
        if entry.file_type().with_context(context)?.is_dir() {
            disk.remove_dir_all(&entry.path())?;
        } else if entry.file_name() != CLAIMS {
            disk.remove_file(&entry.path())?;
        }
    }
    disk.sync_dir(&state)?;
    disk.remove_dir_all(&state)
}

fn remove_journal(disk: &dyn Disk, root: &Path) -> Result<()> {
    let state = root.join(IMPORT_DIRECTORY);
    disk.remove_file(&state.join(JOURNAL))?;
    disk.sync_dir(&state)
}

/// Possible file names of the array under `key`, the usual name first.
pub(crate) fn numbered(key: &str) -> impl Iterator<Item = String> {
    let more = (1..).map(move |number: u64| format!("{key}.{number}.npy"));
    std::iter::once(format!("{key}.npy")).chain(more)
}
