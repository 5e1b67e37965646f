//! Generations: what a data set held between two commits stays on disk as long as a reader needs it.
//!
//! A generation is a manifest with the files that it names. Each commit replaces `graph.json` by a
//! new file. A reader holds a shared lock on the manifest file that it has read; the system lets go
//! of it when the reader ends, however that happens. Before a commit the writer gives the old
//! manifest a second name in `.generations`. After it, the writer removes the files that only
//! unlocked old manifests name. `docs/design/0050-generations.md` has the reasons.

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

/// A manifest of more than this is none of ours.
pub(crate) const MAX_MANIFEST: u64 = 64 << 20;

/// Holds a generation: its files stay until the last copy of this is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    /// The manifest, with a shared lock. Closing it ends the lock, unless a forked process has a copy.
    _manifest: Arc<File>,
}

/// Bytes of a manifest, and the hold on its generation.
pub(crate) struct Pinned {
    pub bytes: Vec<u8>,
    /// `None` where the file system has no locks.
    pub pin: Option<Pin>,
}

/// Reads the manifest at `path` and holds its generation.
///
/// # Errors
/// Those of opening and reading it.
pub(crate) fn pin(path: &Path) -> std::io::Result<Pinned> {
    loop {
        let file = File::open(path)?;
        let is_locked = match file.try_lock_shared() {
            Ok(()) => true,
            // A writer is removing the files of this generation, or another program has the file.
            Err(TryLockError::WouldBlock) if is_at(&file, path)? => {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            // Only manifests that were replaced are locked so: the next look finds another one.
            Err(TryLockError::WouldBlock) => continue,
            Err(TryLockError::Error(_)) => false,
        };
        // A manifest that was replaced before it was locked may lose its files.
        if is_locked && !is_at(&file, path)? {
            continue;
        }
        let mut bytes = Vec::new();
        (&file).take(MAX_MANIFEST + 1).read_to_end(&mut bytes)?;
        let pin = is_locked.then(|| Pin { _manifest: Arc::new(file) });
        return Ok(Pinned { bytes, pin });
    }
}

/// Whether `path` still names `file`.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        now => {
            let (now, held) = (now?, file.metadata()?);
            Ok((now.dev(), now.ino()) == (held.dev(), held.ino()))
        }
    }
}

/// The name of the generation whose manifest has these bytes.
pub(crate) fn name_of(manifest: &[u8]) -> String {
    Checksum::of(manifest).replace(':', "-")
}

/// Reads the manifest of the old generation `name` and holds it; `None` where it is gone.
pub(crate) fn pin_old(root: &Path, name: &str) -> Option<Pinned> {
    let is_it = |pinned: &Pinned| name_of(&pinned.bytes) == name;
    old_manifests(root).iter().filter_map(|path| pin(path).ok()).find(is_it)
}

/// Gives the manifest in `root`, which a commit is about to replace, a second name.
///
/// Where the file system has no second names, readers of this generation may lose its files.
///
/// # Errors
/// The disk's own.
pub(crate) fn retain(disk: &dyn Disk, root: &Path) -> Result<()> {
    let manifest = root.join(MANIFEST_FILE);
    let Ok(bytes) = std::fs::read(&manifest) else { return Ok(()) };
    let directory = root.join(GENERATIONS_DIRECTORY);
    disk.create_dir_all(&directory)?;
    // Two generations may be alike, where what was added is removed again.
    let names = (0..).map(|number| directory.join(format!("{}.{number}.json", name_of(&bytes))));
    let free = names.into_iter().find(|path| !path.exists()).expect("numbers do not end");
    match disk.link(&manifest, &free) {
        Err(error) if error.kind() == ErrorKind::Unsupported => disk.remove_empty_dir(&directory),
        Err(error) => Err(error),
        // After a crash nothing else says which files are left of this generation.
        Ok(()) => disk.sync_dir(&directory),
    }
}

/// Removes what no reader needs any more: `files`, and those of old generations that nobody holds,
/// except for files that `manifest`, the current one, or a generation in use names.
///
/// The caller holds the directory.
///
/// # Errors
/// The disk's own; what is left is removed by the next writer.
pub(crate) fn remove_unused<'a>(
    disk: &dyn Disk,
    root: &Path,
    manifest: &Manifest,
    files: impl Iterator<Item = &'a String>,
) -> Result<()> {
    let mut unused: BTreeSet<String> = files.cloned().collect();
    let mut needed = inside(manifest);
    // Locked until their files are gone.
    let mut free = Vec::new();
    for path in old_manifests(root) {
        // Network file systems lock only files that are open for writing.
        let writable = File::options().read(true).write(true).open(&path);
        let Ok(file) = writable.or_else(|_| File::open(&path)) else { continue };
        // A commit that failed has left a second name of the current manifest: no lock is needed, and
        // none may keep readers out.
        // Where there are no locks nobody can say that they read it.
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
        // The manifest must not be undone by a crash once the files of the one before are gone.
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

/// Whether files of old generations may be left in `root`.
pub fn are_left(root: &Path) -> bool {
    root.join(GENERATIONS_DIRECTORY).exists()
}

/// Removes the files of old generations of the data set in `root` that no reader needs any more.
/// `lock` holds the directory.
///
/// # Errors
/// Those of reading the manifest; the disk's own.
pub fn tidy_held(disk: &dyn Disk, root: &Path, _lock: &FileLock) -> Result<()> {
    match are_left(root) {
        true => {
            let manifest = Manifest::from_json(&pin(&root.join(MANIFEST_FILE))?.bytes)?;
            remove_unused(disk, root, &manifest, std::iter::empty())
        }
        false => Ok(()),
    }
}

/// As [`tidy_held`], for a process that has ended its own change; does nothing while somebody else
/// writes, who will do it.
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
