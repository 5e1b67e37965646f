//! Copies of a data set by hard links, to which arrays can be added.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outercore_core::{Context, Error, Result};
use outercore_format::{MANIFEST_FILE, Manifest};
use outercore_io::FileLock;

/// Prefix of the directories of copies inside the data set.
const PREFIX: &str = ".linked-";

/// The file in such a directory that its process locks.
const IN_USE: &str = "in-use";

/// Upper bound of the time between creating the directory and locking it.
const BEING_MADE: Duration = Duration::from_secs(60);

/// A temporary directory with hard links to arrays of a data set; removed when dropped.
#[derive(Debug)]
pub(crate) struct LinkedDirectory {
    path: PathBuf,
    _lock: FileLock,
    owner: u32,
}

impl LinkedDirectory {
    /// Creates hard links to the arrays that `manifest` names in the data set in `root`.
    ///
    /// # Errors
    /// `Io`, also if the file system has no hard links or the directory is not writable.
    pub fn make(root: &Path, manifest: &Manifest) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        remove_left(root)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("{PREFIX}{}-{number}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        let lock = FileLock::acquire(&path.join(IN_USE))?;
        let directory = Self { path, _lock: lock, owner: std::process::id() };
        link(root, manifest, &directory.path)?;
        Ok(directory)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LinkedDirectory {
    fn drop(&mut self) {
        // A forked process must not remove the directory. The next copy removes leftovers.
        if self.owner == std::process::id() {
            let _ = remove(&self.path);
        }
    }
}

/// Removes the copies that killed processes left in the data set in `root`.
///
/// # Errors
/// `Io`.
pub fn remove_left(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let in_use = entry.path().join(IN_USE);
        let is_left = match in_use.exists() {
            true => FileLock::acquire(&in_use).is_ok(),
            // The copy may still be under construction, unless it is older than that can take.
            false => age(&entry.path()).is_some_and(|age| age > BEING_MADE),
        };
        if !is_left {
            continue;
        }
        remove(&entry.path())?;
    }
    Ok(())
}

/// How long ago a directory was changed.
fn age(directory: &Path) -> Option<Duration> {
    fs::metadata(directory).ok()?.modified().ok()?.elapsed().ok()
}

fn link(root: &Path, manifest: &Manifest, directory: &Path) -> Result<()> {
    let own = manifest.arrays.values().filter(|entry| !entry.external);
    let files: BTreeSet<&str> = own.map(|entry| entry.file.as_str()).collect();
    for file in files {
        let to = directory.join(file);
        if let Some(above) = to.parent() {
            fs::create_dir_all(above)?;
        }
        fs::hard_link(root.join(file), &to)
            .map_err(Error::from)
            .with_context(|| format!("hard link of `{file}`"))?;
    }
    // A crash makes the copy useless, so nothing in it is synced.
    fs::write(directory.join(MANIFEST_FILE), manifest.to_file())?;
    Ok(())
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
