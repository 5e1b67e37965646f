//! Changes of a data set, each committed by one atomic replacement of the manifest.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outercore_core::{Context, Error, Result, hint};
use outercore_format::{ArrayEntry, MANIFEST_FILE, Manifest};
use outercore_io::{Disk, FileLock};

use crate::changes::{self, Changes};
use crate::claims::{claimed, numbered};
use crate::dataset::{ArrayRef, DataSet};
use crate::files::inside;
use crate::generations;
use crate::hold::{held, lock};
use crate::manifest_file::read_manifest_bytes;
use crate::recovery::recover;

/// Makes `manifest` the current manifest of the data set in `root`.
///
/// The arrays must have been written and synced, as [`crate::npy::ArrayWriter::finish`] does. This
/// function makes their names durable and then replaces `graph.json` atomically. After a crash at
/// any point, a reader finds either the previous manifest or this one, complete.
///
/// # Errors
/// `Corrupt`: the manifest contradicts itself or the length of a file. Errors of the disk.
pub fn commit(disk: &dyn Disk, root: &Path, manifest: &Manifest) -> Result<()> {
    let context = || format!("new manifest of `{}`", root.display());
    manifest.validate().with_context(context)?;
    let mut directories = BTreeSet::new();
    for (key, entry) in &manifest.arrays {
        ArrayRef::new(root, key, entry)
            .check_len(entry.external)
            .with_context(|| format!("array `{key}`"))
            .with_context(context)?;
        if !entry.external {
            let above = Path::new(&entry.file).ancestors().skip(1);
            directories.extend(above.map(|directory| root.join(directory)));
        }
    }
    for directory in &directories {
        disk.sync_dir(directory)?;
    }
    let path = root.join(MANIFEST_FILE);
    let is_new = !path.exists();
    generations::retain(disk, root)?;
    disk.replace(&path, manifest.to_file().as_bytes())?;
    if is_new { sync_parent(disk, root) } else { Ok(()) }
}

/// Makes the name of a new data set durable, as far as the permissions allow.
fn sync_parent(disk: &dyn Disk, root: &Path) -> Result<()> {
    let parent = match root.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    let forbidden = |error: &Error| {
        let kind = error.os_error().map(|number| io::Error::from_raw_os_error(number).kind());
        kind == Some(io::ErrorKind::PermissionDenied)
    };
    match disk.sync_dir(parent) {
        // Some directories allow access to their entries but cannot be opened themselves.
        Err(error) if forbidden(&error) => Ok(()),
        other => other,
    }
}

/// The error for a data set that is locked by a server with updates.
fn served(root: &Path) -> Error {
    let text = format!("data set `{}`: a server takes updates for it", root.display());
    Error::invalid(text)
        .hint(hint!("stop the server first, or write the result to a file by " {out}))
}

/// Whether a server takes updates for `data_set` now, so that other processes may not change it.
///
/// # Errors
/// Errors of opening its directory.
pub fn is_served(data_set: &DataSet) -> Result<bool> {
    let root = data_set.root();
    // The current manifest is read, because a server may have started to take updates after
    // `data_set` was opened.
    Ok(lock(root)?.is_none() && DataSet::read_manifest(root)?.live.is_some())
}

/// Pause between two attempts to lock a data set.
const WAIT: Duration = Duration::from_millis(50);

/// A change of an existing data set. Open the editor, write new arrays to files from
/// [`ManifestEditor::claim_file`], insert them, and commit. If it is dropped without a commit, it
/// removes the claimed files.
///
/// A data set has at most one editor at a time, in all processes, because two editors would choose
/// the same file names. The system releases the lock when the process ends, for any reason.
///
/// # Example
/// ```
/// use outercore_format::DType;
/// use outercore_io::RealDisk;
/// use outercore_store::dataset::DataSet;
/// use outercore_store::editor::{ManifestEditor, commit};
/// use outercore_store::npy::ArrayWriter;
/// # use outercore_format::{Manifest, keys};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path();
/// # let mut manifest = Manifest::homogeneous(2, 0, false);
/// # manifest.edge_types.clear();
/// # commit(&RealDisk, root, &manifest)?;
/// let mut editor = ManifestEditor::open(&RealDisk, root)?;
/// let file = editor.claim_file("nodes/node/score")?;
/// let mut writer = ArrayWriter::create(&RealDisk, root, &file, DType::F32, &[])?;
/// writer.write_slice(&[0.5f32, 0.25])?;
/// editor.insert("nodes/node/score", writer.finish()?);
/// editor.commit()?;
/// assert!(DataSet::open(root)?.has_array("score"));
/// # Ok(())
/// # }
/// ```
pub struct ManifestEditor<'a> {
    disk: &'a dyn Disk,
    root: PathBuf,
    /// Bytes of the manifest when the change began.
    before: Vec<u8>,
    /// Files of the previous manifest, which readers may use until the commit.
    files: BTreeSet<String>,
    /// Files of an interrupted import that was replacing the data set.
    claimed: BTreeSet<String>,
    /// Files of this change, as recorded on disk.
    changes: Changes,
    is_committed: bool,
    /// The id of the writing process. A forked process must not remove anything.
    owner: u32,
    manifest: Manifest,
    /// The lock of the directory; `None` if the caller holds it.
    _held: Option<FileLock>,
}

impl<'a> ManifestEditor<'a> {
    /// Opens an editor for the data set in `root`.
    ///
    /// # Errors
    /// `Invalid` while another editor or an import is active. As [`DataSet::read_manifest`].
    pub fn open(disk: &'a dyn Disk, root: &Path) -> Result<Self> {
        Self::try_open(disk, root)?.ok_or_else(|| held(root))
    }

    /// As [`ManifestEditor::open`], for a caller that already holds the lock and keeps it.
    ///
    /// # Errors
    /// As [`DataSet::read_manifest`].
    pub fn open_held(disk: &'a dyn Disk, root: &Path, _lock: &FileLock) -> Result<Self> {
        Self::begin(disk, root, None)
    }

    /// As [`ManifestEditor::open`], but waits while another editor is active. Calls `on_wait`
    /// repeatedly meanwhile; an error of it ends the wait.
    ///
    /// # Errors
    /// Errors of `on_wait`. As [`DataSet::read_manifest`].
    pub fn wait(
        disk: &'a dyn Disk,
        root: &Path,
        on_wait: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Self> {
        loop {
            if let Some(editor) = Self::try_open(disk, root)? {
                return Ok(editor);
            }
            on_wait()?;
            std::thread::sleep(WAIT);
        }
    }

    fn try_open(disk: &'a dyn Disk, root: &Path) -> Result<Option<Self>> {
        // Gives a clear error if `root` is not a data set.
        let manifest = DataSet::read_manifest(root)?;
        let Some(held) = lock(root)? else {
            // Do not wait for a server: it holds a data set with updates until it ends.
            return if manifest.live.is_some() { Err(served(root)) } else { Ok(None) };
        };
        Self::begin(disk, root, Some(held)).map(Some)
    }

    fn begin(disk: &'a dyn Disk, root: &Path, held: Option<FileLock>) -> Result<Self> {
        recover(disk, root);
        let manifest = DataSet::read_manifest(root)?;
        changes::recover(disk, root, &manifest);
        Ok(Self {
            disk,
            root: root.to_owned(),
            before: read_manifest_bytes(root)?,
            files: inside(&manifest),
            claimed: claimed(root),
            changes: Changes::new(),
            is_committed: false,
            owner: std::process::id(),
            manifest,
            _held: held,
        })
    }

    /// The data set before this change. Its files may be removed by the commit.
    ///
    /// # Errors
    /// As [`DataSet::open`].
    pub fn data_set(&self) -> Result<DataSet> {
        DataSet::open_for_change(&self.root)
    }

    /// The new manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The new manifest, to change roles or provenance.
    pub fn manifest_mut(&mut self) -> &mut Manifest {
        &mut self.manifest
    }

    /// Chooses an unused file name for a new array under `key`. The name is recorded for this
    /// change before the caller creates the file.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn claim_file(&mut self, key: &str) -> Result<String> {
        self.claim(numbered(key))
    }

    /// As [`ManifestEditor::claim_file`], for an array that may need a second file; `second` gives
    /// its name.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn claim_two(&mut self, key: &str, second: fn(&str) -> String) -> Result<String> {
        let free = |file: &String| self.is_free(file) && self.is_free(&second(file));
        let file = numbered(key).find(free).expect("there are more numbers than files");
        self.changes.files.insert(second(&file));
        self.note(file)
    }

    /// As [`ManifestEditor::claim_file`], with a number of at least `least` in the name. If `least`
    /// increases each time, names are never reused. Then a reader with an old manifest finds a
    /// missing file instead of a newer one.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn claim_file_from(&mut self, key: &str, least: u64) -> Result<String> {
        self.claim((least..).map(|number| format!("{key}.{number}.npy")))
    }

    fn claim(&mut self, mut names: impl Iterator<Item = String>) -> Result<String> {
        let file = names.find(|file| self.is_free(file));
        self.note(file.expect("there are more numbers than files"))
    }

    fn is_free(&self, file: &String) -> bool {
        let taken = [&self.files, &self.claimed, &self.changes.files];
        !taken.iter().any(|taken| taken.contains(file))
            && self.root.join(file).symlink_metadata().is_err()
    }

    fn note(&mut self, file: String) -> Result<String> {
        self.changes.files.insert(file.clone());
        self.changes.save(self.disk, &self.root)?;
        Ok(file)
    }

    /// Inserts an array; it replaces an array under the same key.
    pub fn insert(&mut self, key: &str, entry: ArrayEntry) {
        self.manifest.arrays.insert(key.to_owned(), entry);
    }

    /// As [`ManifestEditor::insert`], and removes arrays that were derived from a replaced array,
    /// see [`Manifest::replace`]. Returns the number of removed arrays.
    pub fn replace(&mut self, key: &str, entry: ArrayEntry) -> usize {
        self.manifest.replace(key, entry)
    }

    /// Commits, then removes the files that neither the new manifest nor a reader of an older one
    /// needs. Files that cannot be removed stay unused.
    ///
    /// # Errors
    /// As [`commit`]; `Invalid` if another process has changed the data set meanwhile.
    pub fn commit(mut self) -> Result<()> {
        if read_manifest_bytes(&self.root)? != self.before {
            return Err(Error::invalid(format!(
                "data set `{}`: changed by somebody else meanwhile",
                self.root.display()
            ))
            .hint("run the command again"));
        }
        let named = inside(&self.manifest);
        let replaced: Vec<_> = self.files.difference(&named).cloned().collect();
        if !replaced.is_empty() {
            self.changes.files.extend(replaced);
            self.changes.save(self.disk, &self.root)?;
        }
        commit(self.disk, &self.root, &self.manifest)?;
        self.is_committed = true;
        // The commit is done, even if old files cannot be removed; the next writer tries again.
        let _ = self.changes.clean(self.disk, &self.root, &self.manifest);
        Ok(())
    }
}

impl Drop for ManifestEditor<'_> {
    fn drop(&mut self) {
        let is_ours = self.owner == std::process::id();
        if self.is_committed || self.changes.files.is_empty() || !is_ours {
            return;
        }
        // A failed commit may already have replaced the manifest, so read it again.
        if let Ok(manifest) = DataSet::read_manifest(&self.root) {
            let _ = self.changes.clean(self.disk, &self.root, &manifest);
        }
    }
}
