//! The output directory of an import: who owns it, and which files in it belong to the import.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc as Shared;

use outercore_core::{Context, Error, ErrorKind, Hint, Result, hint};
use outercore_format::{GENERATIONS_DIRECTORY, IMPORT_DIRECTORY, MANIFEST_FILE, Manifest};
use outercore_io::Disk;

use crate::changes;
use crate::claims::{Claims, foreign_state, is_unfinished, numbered, remove_all};
use crate::dataset::DataSet;
use crate::editor;
use crate::files::inside;
use crate::hold::{Hold, journal_path};
use crate::manifest_file::read_manifest_bytes;
use crate::recovery::recover;

/// Entries of a directory that do not count as foreign: files of a data set other than its arrays,
/// and the directory that a new file system contains.
const OWN: [&str; 8] = [
    IMPORT_DIRECTORY,
    GENERATIONS_DIRECTORY,
    ".grid",
    "device.json",
    "far.json",
    "graph.tmp",
    MANIFEST_FILE,
    "lost+found",
];

/// Hint: how to abandon an unfinished import.
pub(crate) fn drop_it() -> Hint {
    hint!("pass " {overwrite = true} " to drop the unfinished import and start again")
}

/// Options with which an import was started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request<'a> {
    /// Whether to replace an existing data set.
    pub overwrite: bool,
    /// The command, which the error for another import mentions.
    pub command: &'a str,
    /// The names of the inputs.
    pub inputs: &'a [String],
}

/// The output directory of an import, locked.
///
/// An import writes its arrays under unused names, so that a data set in the same directory stays
/// intact. The commit of the new manifest makes these arrays the data set. The files of the old
/// data set are removed last.
///
/// If it is dropped before anything of the import is durable, it leaves nothing behind.
pub(crate) struct Destination {
    disk: Shared<dyn Disk>,
    root: PathBuf,
    hold: Hold,
    overwrite: bool,
    command: String,
    /// The claims; on disk if `made`.
    claims: Claims,
    made: bool,
    /// Whether the directory is locked. Only then may this import remove the state in it.
    is_held: bool,
    /// Whether an earlier run left its state.
    has_state: bool,
    /// Whether that state includes the claims, which list its files.
    has_claims: bool,
    /// The manifest at the beginning, and the files that it names.
    before: Option<Vec<u8>>,
    old: BTreeSet<String>,
    /// Directories that this import created, outermost first.
    created: Vec<PathBuf>,
    is_hopeless: bool,
    /// Whether this import differs from the one that was interrupted here.
    is_other: bool,
    /// The id of the writing process. A forked process must not remove anything.
    owner: u32,
}

impl Destination {
    /// Locks the directory `root`, as soon as it exists.
    ///
    /// # Errors
    /// `Invalid`, without any change: `root` holds a data set that may not be replaced, or
    /// something that is not a data set; an input is inside `root`; or another process writes to
    /// it.
    pub fn begin(disk: Shared<dyn Disk>, root: &Path, request: Request<'_>) -> Result<Self> {
        let hold = Hold::begin(root)?;
        if root.is_dir() {
            recover(&*disk, root);
        }
        let manifest = judge(root)?;
        if manifest.is_some() && !request.overwrite {
            return Err(Error::invalid(format!("`{}` holds a data set already", root.display()))
                .hint(hint!(
                    "choose another directory, or pass " {overwrite = true} " to replace it"
                )));
        }
        for input in request.inputs {
            refuse_inside(root, Path::new(input))?;
        }
        if let Some(manifest) = &manifest {
            changes::recover(&*disk, root, manifest);
        }
        let before = manifest.is_some().then(|| read_manifest_bytes(root)).transpose()?;
        let known = Claims::load(root);
        let has_claims = known.is_some();
        Ok(Self {
            disk,
            root: root.to_owned(),
            hold,
            overwrite: request.overwrite,
            command: request.command.to_owned(),
            has_state: root.join(IMPORT_DIRECTORY).exists(),
            has_claims,
            claims: known.unwrap_or_else(|| Claims::new(request.command, request.overwrite)),
            made: false,
            is_held: root.is_dir(),
            before,
            old: manifest.as_ref().map(inside).unwrap_or_default(),
            created: Vec::new(),
            is_hopeless: false,
            is_other: false,
            owner: std::process::id(),
        })
    }

    /// Returns the state that `load` finds of the interrupted import, if this import may continue
    /// it.
    ///
    /// With `--overwrite`, an import continues only an import that was also started with
    /// `--overwrite` and whose inputs are unchanged; any other is dropped. An import that cannot be
    /// finished is dropped, too: its input was refused, or the same command finds other input.
    pub fn resume<J>(
        &mut self,
        load: impl FnOnce(&Path) -> Result<Option<J>>,
        is_current: impl FnOnce(&J) -> bool,
    ) -> Result<Option<J>> {
        let found = load(&self.root).and_then(|journal| match journal {
            Some(_) if !self.has_claims => Err(self.unknown_files()),
            other => Ok(other),
        });
        let is_hopeless = self.has_claims
            && (self.claims.refused
                || !self.command.is_empty() && self.claims.command == self.command);
        let goes_on = match &found {
            Ok(None) => false,
            Ok(Some(journal)) => match (self.overwrite, self.claims.overwrite) {
                (true, false) => false,
                (false, _) if !is_hopeless => true,
                _ => is_current(journal),
            },
            Err(error) if error.kind() == ErrorKind::Invalid => !self.overwrite && !is_hopeless,
            Err(error) => {
                let is_told = matches!(error.kind(), ErrorKind::Io | ErrorKind::Interrupted);
                !self.overwrite || is_told
            }
        };
        if goes_on {
            self.claims.refused = false;
            return found;
        }
        if self.has_state {
            self.drop_state()?;
        }
        Ok(None)
    }

    fn unknown_files(&self) -> Error {
        let state = self.root.join(IMPORT_DIRECTORY);
        Error::corrupt(format!("list of files in `{}`: it cannot be read", state.display()))
            .hint(drop_it())
    }

    /// Adds a hint to the error for sources that differ from the sources of the unfinished import.
    pub fn mismatch(&mut self, error: Error) -> Error {
        if !self.overwrite {
            self.is_other = true;
            return error.hint(drop_it());
        }
        self.give_up();
        error.hint("the unfinished import was dropped: run the command again to start anew")
    }

    /// Marks everything imported so far as useless: it is removed when the import fails.
    pub fn give_up(&mut self) {
        self.is_hopeless = true;
    }

    /// The import ended with `error`. If the same input and options would fail again, its state is
    /// removed, unless `is_worth_keeping`. State that is kept helps an import of the same edges; an
    /// import of other edges replaces it.
    pub fn failed(&mut self, error: &Error, is_worth_keeping: bool) {
        use ErrorKind::{Corrupt, Invalid, NotFound, Unsupported, Version};
        let is_refusal =
            matches!(error.kind(), Invalid | NotFound | Corrupt | Version | Unsupported);
        if self.is_hopeless || is_refusal && !is_worth_keeping {
            self.discard();
        } else if is_refusal && !self.is_other && (self.made || self.has_state) {
            self.claims.refused = true;
            // Without this note the next import would ask for `--overwrite`.
            let _ = self.save();
        }
    }

    /// Creates the directory and records in it that an import has begun.
    pub fn make(&mut self) -> Result<()> {
        if self.made {
            return Ok(());
        }
        let state = self.root.join(IMPORT_DIRECTORY);
        let above = self.root.ancestors();
        let missing = above.take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let mut missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        missing.reverse();
        self.created.extend(missing);
        self.disk.create_dir_all(&self.root)?;
        self.hold.made()?;
        (self.made, self.is_held) = (true, true);
        self.disk.create_dir_all(&state)?;
        self.disk.sync_dir(&self.root)?;
        self.save()
    }

    /// Chooses a file for the array under each of `keys`, and records it before it is created.
    ///
    /// Skips names of files that exist or that the current data set uses. A resumed import keeps
    /// its own files.
    pub fn claim(&mut self, keys: &[&str]) -> Result<()> {
        self.make()?;
        let before = self.claims.files.len();
        for &key in keys {
            if !self.claims.files.contains_key(key) {
                outercore_format::keys::validate(key)?;
                let file = self.free_file(key);
                self.claims.files.insert(key.to_owned(), file);
            }
        }
        if self.claims.files.len() > before { self.save() } else { Ok(()) }
    }

    fn free_file(&self, key: &str) -> String {
        let is_free = |file: &String| {
            !self.old.contains(file)
                && !self.claims.files.values().any(|claimed| claimed == file)
                && self.root.join(file).symlink_metadata().is_err()
        };
        numbered(key).find(is_free).expect("there are more numbers than files")
    }

    /// The files that were claimed, by key.
    pub fn files(&self) -> &BTreeMap<String, String> {
        &self.claims.files
    }

    /// Refuses an input that is inside the directory.
    pub fn refuse_inside(&self, input: &Path) -> Result<()> {
        refuse_inside(&self.root, input)
    }

    /// Commits `manifest` as the data set, and removes the replaced files.
    ///
    /// # Errors
    /// As [`editor::commit`]. `Invalid`: another process has changed the data set meanwhile.
    pub fn commit(&mut self, manifest: &Manifest) -> Result<()> {
        self.make()?;
        self.require_unchanged()?;
        let named = inside(manifest);
        self.claims.replaced = self.old.difference(&named).cloned().collect();
        if !self.claims.replaced.is_empty() {
            self.save()?;
        }
        editor::commit(&*self.disk, &self.root, manifest)?;
        // The commit is done, even if old files cannot be removed; the next writer tries again.
        let _ = self.claims.clean(&*self.disk, &self.root, manifest);
        Ok(())
    }

    fn require_unchanged(&self) -> Result<()> {
        let there = self.root.join(MANIFEST_FILE).exists();
        let now = there.then(|| read_manifest_bytes(&self.root)).transpose()?;
        if now == self.before {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "data set `{}`: changed by somebody else meanwhile",
            self.root.display()
        ))
        .hint("run the command again"))
    }

    /// Removes everything that the import has created, as far as the disk allows.
    fn discard(&mut self) {
        if !self.is_held {
            return;
        }
        let dropped = self.drop_state();
        if dropped.is_ok() {
            for directory in self.created.drain(..).rev() {
                // A directory that is not empty stays.
                let _ = self.disk.remove_empty_dir(&directory);
            }
        }
    }

    /// Removes the files and the state of the import, which then starts again.
    fn drop_state(&mut self) -> Result<()> {
        let files = self.claims.files.values().filter(|file| !self.old.contains(*file));
        remove_all(&*self.disk, &self.root, files)?;
        (self.made, self.has_state) = (false, false);
        self.claims.files.clear();
        (self.claims.overwrite, self.claims.command) = (self.overwrite, self.command.clone());
        Ok(())
    }

    /// Whether the import can be resumed, or is already committed.
    fn is_durable(&self) -> bool {
        let manifest = DataSet::read_manifest(&self.root);
        journal_path(&self.root).exists()
            || manifest.is_ok_and(|manifest| self.claims.is_committed(&manifest))
    }

    fn save(&self) -> Result<()> {
        self.claims.save(&*self.disk, &self.root)
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        let is_ours = self.made && self.owner == std::process::id();
        if is_ours && self.root.join(IMPORT_DIRECTORY).exists() && !self.is_durable() {
            self.discard();
        }
    }
}

/// The hint for starting another import where one was interrupted.
pub(crate) fn way_on(root: &Path) -> Hint {
    let command = Claims::load(root).map_or_else(String::new, |claims| claims.command);
    let finish = if command.is_empty() {
        "run the command it was begun with again to finish it".to_owned()
    } else {
        format!("finish it by `{command}`")
    };
    hint!("{finish}, or " {(drop_it())})
}

/// Reads the manifest of the data set in `root`, if there is one.
///
/// # Errors
/// `Invalid`: `root` is not a directory, or is a directory with other content than a data set or an
/// unfinished import. `Corrupt`, `Version`: the manifest cannot be read.
fn judge(root: &Path) -> Result<Option<Manifest>> {
    let name = root.display();
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(Error::invalid(format!("`{name}` is a file, expected a directory"))
                .hint(hint!("choose another name by " {out})));
        }
        Err(error) => return Err(error).with_context(|| format!("directory `{name}`")),
    };
    let mut foreign = foreign_state(root);
    if foreign.is_empty() && root.join(MANIFEST_FILE).symlink_metadata().is_ok() {
        return DataSet::read_manifest(root).map(Some).map_err(not_replaced);
    }
    for entry in entries {
        let found = entry.with_context(|| format!("directory `{name}`"))?.file_name();
        if !OWN.iter().any(|own| found == *own) {
            foreign.push(found.to_string_lossy().into_owned());
        }
    }
    if is_unfinished(root) {
        return Ok(None);
    }
    if foreign.is_empty() { Ok(None) } else { Err(not_ours(root, foreign)) }
}

/// The error for an unreadable manifest: without it, the files of the data set are unknown.
///
/// Errors of the device are returned unchanged, because they say nothing about the owner of the
/// files.
fn not_replaced(error: Error) -> Error {
    if matches!(error.kind(), ErrorKind::Io | ErrorKind::Interrupted) {
        return error;
    }
    Error::new(error.kind(), error.message()).hint(hint!(
        "only a data set that can be read is replaced: choose another directory by " {out} ", "
        "or remove this one yourself"
    ))
}

fn not_ours(root: &Path, mut foreign: Vec<String>) -> Error {
    const NAMED: usize = 3;
    foreign.sort_unstable();
    let more = foreign.len().saturating_sub(NAMED);
    foreign.truncate(NAMED);
    let mut listed = foreign.iter().map(|file| format!("`{file}`")).collect::<Vec<_>>().join(", ");
    if more > 0 {
        listed = format!("{listed} and {more} more");
    }
    Error::invalid(format!(
        "`{}` holds {listed} and no data set, expected an empty or a new directory",
        root.display()
    ))
    .hint(hint!("choose another directory by " {out} "; nothing in this one was changed"))
}

/// # Errors
/// `Invalid`: `input` is a file inside `root`.
fn refuse_inside(root: &Path, input: &Path) -> Result<()> {
    let (Ok(directory), Ok(file)) = (std::fs::canonicalize(root), std::fs::canonicalize(input))
    else {
        return Ok(());
    };
    if !file.starts_with(&directory) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "input `{}` lies in `{}`, where the data set is to be written",
        input.display(),
        root.display()
    ))
    .hint(hint!("move it elsewhere, or choose another directory by " {out})))
}
