//! Generations: the files of an old commit stay on disk as long as a reader needs them.
//!
//! A generation is a manifest and the files that it names. Each commit replaces `graph.json` by a
//! new file. A reader holds a shared lock on the manifest that it has read. The system releases the
//! lock when the reader ends, for any reason. Before a commit, the writer gives the old manifest a
//! second name in `.generations`. After the commit, it removes the files that only unlocked old
//! manifests name. `docs/design/0050-generations.md` has the reasons.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outercore_core::{ErrorKind, Result};
use outercore_format::{Checksum, GENERATIONS_DIRECTORY, MANIFEST_FILE, Manifest};
use outercore_io::{Disk, FileLock, RealDisk};

use crate::files::{inside, remove_files};

/// Largest manifest to read. A larger file was not written by this library.
pub(crate) const MAX_MANIFEST: u64 = 64 << 20;

/// A hold on a generation: its files stay until the last clone of this is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    /// The manifest with a shared lock. Closing it releases the lock, unless a forked process has a
    /// copy.
    _manifest: Arc<File>,
}

/// Bytes of a manifest and a hold on its generation.
pub(crate) struct Pinned {
    pub bytes: Vec<u8>,
    /// `None` if the file system has no locks.
    pub pin: Option<Pin>,
}

/// Reads the manifest at `path` and holds its generation.
///
/// # Errors
/// Errors of opening and reading the manifest.
pub(crate) fn pin(path: &Path) -> std::io::Result<Pinned> {
    loop {
        let file = File::open(path)?;
        let is_locked = match file.try_lock_shared() {
            Ok(()) => true,
            // A writer is removing the files of this generation, or another program has locked the
            // manifest.
            Err(TryLockError::WouldBlock) if is_at(&file, path)? => {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            // Writers lock only replaced manifests: the next attempt finds a newer manifest.
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(_)) => false,
        };
        // If the manifest was replaced before it was locked, its files may already be gone.
        if is_locked && !is_at(&file, path)? {
            continue;
        }
        let mut bytes = Vec::new();
        (&file).take(MAX_MANIFEST + 1).read_to_end(&mut bytes)?;
        let pin = is_locked.then(|| Pin { _manifest: Arc::new(file) });
        return Ok(Pinned { bytes, pin });
    }
}

/// Whether `path` still refers to `file`.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        now => {
            let (now, held) = (now?, file.metadata()?);
            Ok((now.dev(), now.ino()) == (held.dev(), held.ino()))
        }
    }
}

/// Name of the generation with this manifest.
pub(crate) fn name_of(manifest: &[u8]) -> String {
    Checksum::of(manifest).replace(':', "-")
}

/// Reads the manifest of the old generation `name` and holds it; `None` if it is gone.
pub(crate) fn pin_old(root: &Path, name: &str) -> Option<Pinned> {
    let is_it = |pinned: &Pinned| name_of(&pinned.bytes) == name;
    old_manifests(root).iter().filter_map(|path| pin(path).ok()).find(is_it)
}

/// Gives the current manifest in `root` a second name, before a commit replaces it.
///
/// On a file system without hard links, readers of this generation may lose its files.
///
/// # Errors
/// Errors of the disk.
pub(crate) fn retain(disk: &dyn Disk, root: &Path) -> Result<()> {
    let manifest = root.join(MANIFEST_FILE);
    let Ok(bytes) = std::fs::read(&manifest) else { return Ok(()) };
    let directory = root.join(GENERATIONS_DIRECTORY);
    disk.create_dir_all(&directory)?;
    // Two generations may have equal manifests, if an addition was removed again.
    let names = (0..).map(|number| directory.join(format!("{}.{number}.json", name_of(&bytes))));
    let free = names.into_iter().find(|path| !path.exists()).expect("numbers do not end");
    match disk.link(&manifest, &free) {
        Err(error) if error.kind() == ErrorKind::Unsupported => disk.remove_empty_dir(&directory),
        Err(error) => Err(error),
        // After a crash, only this name tells which files belong to this generation.
        Ok(()) => disk.sync_dir(&directory),
    }
}

/// Removes files that no reader needs: `files`, and the files of unheld old generations. Files of
/// the current `manifest` or of a generation in use stay.
///
/// The caller must hold the lock of the directory.
///
/// # Errors
/// Errors of the disk. The next writer removes the remaining files.
pub(crate) fn remove_unused<'a>(
    disk: &dyn Disk,
    root: &Path,
    manifest: &Manifest,
    files: impl Iterator<Item = &'a String>,
) -> Result<()> {
    let mut unused: BTreeSet<String> = files.cloned().collect();
    let mut needed = inside(manifest);
    // Old manifests stay locked until their files are removed.
    let mut free = Vec::new();
    for path in old_manifests(root) {
        // Network file systems only lock files that are open for writing.
        let writable = File::options().read(true).write(true).open(&path);
        let Ok(file) = writable.or_else(|_| File::open(&path)) else { continue };
        // After a failed commit, this may be a second name of the current manifest. It needs no
        // lock, and a lock would keep readers out. On a file system without locks, no reader can be
        // detected.
        let is_free = is_at(&file, &root.join(MANIFEST_FILE))?
            || !matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        let mut bytes = Vec::new();
        let read = (&file).take(MAX_MANIFEST + 1).read_to_end(&mut bytes);
        let named = read.ok().and_then(|_| Manifest::from_json(&bytes).ok());
        let named = named.as_ref().map(inside).unwrap_or_default();
        match is_free {
            true => {
                unused.extend(named);
                free.push((path, file));
            }
            false => needed.extend(named),
        }
    }
    unused.retain(|file| !needed.contains(file));
    if !unused.is_empty() {
        // Make the new manifest durable first: a crash must not bring back the old manifest after
        // its files are removed.
        disk.sync_dir(root)?;
        remove_files(disk, root, unused.iter())?;
    }
    for (path, _) in &free {
        disk.remove_file(path)?;
    }
    disk.remove_empty_dir(&root.join(GENERATIONS_DIRECTORY))
}

fn old_manifests(root: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root.join(GENERATIONS_DIRECTORY)).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Whether `root` may still have files of old generations.
pub fn are_left(root: &Path) -> bool {
    root.join(GENERATIONS_DIRECTORY).exists()
}

/// Removes the files of old generations of the data set in `root` that no reader needs. `lock` is
/// the lock of the directory.
///
/// # Errors
/// Errors of reading the manifest, and of the disk.
pub fn tidy_held(disk: &dyn Disk, root: &Path, _lock: &FileLock) -> Result<()> {
    match are_left(root) {
        true => {
            let manifest = Manifest::from_json(&pin(&root.join(MANIFEST_FILE))?.bytes)?;
            remove_unused(disk, root, &manifest, std::iter::empty())
        }
        false => Ok(()),
    }
}

/// As [`tidy_held`], for a process that has finished its own change. Does nothing while another
/// process writes, because that process will tidy up.
///
/// # Errors
/// As [`tidy_held`].
pub fn tidy(root: &Path) -> Result<()> {
    if !are_left(root) {
        return Ok(());
    }
    match FileLock::try_directory(root)? {
        Some(lock) => tidy_held(&RealDisk, root, &lock),
        None => Ok(()),
    }
}
