//! Files of a data set: lists the files of a manifest, and removes unused files.

use std::collections::BTreeSet;
use std::path::Path;

use outercore_core::Result;
use outercore_format::Manifest;
use outercore_io::Disk;

/// Removes `files` below `root`, and the directories that become empty. The removal is durable, so
/// that no file reappears after a crash when its record is gone.
pub(crate) fn remove_files<'a>(
    disk: &dyn Disk,
    root: &Path,
    files: impl Iterator<Item = &'a String>,
) -> Result<()> {
    let mut directories = BTreeSet::new();
    for file in files {
        let path = root.join(file);
        if path.symlink_metadata().is_ok() {
            disk.remove_file(&path)?;
        }
        let above = Path::new(file).ancestors().skip(1);
        directories.extend(above.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned));
    }
    for directory in directories.iter().rev() {
        let directory = root.join(directory);
        disk.remove_empty_dir(&directory)?;
        if directory.exists() {
            disk.sync_dir(&directory)?;
        }
    }
    match directories.is_empty() {
        true => Ok(()),
        false => disk.sync_dir(root),
    }
}

/// The files of a manifest inside the data set.
pub(crate) fn inside(manifest: &Manifest) -> BTreeSet<String> {
    let entries = manifest.arrays.values().filter(|entry| !entry.external);
    entries.map(|entry| entry.file.clone()).collect()
}
