//! The state of a fault disk's files, and the effects of a crash.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use outercore_core::{Error, ErrorKind, Result, Stream};

use super::{FaultKind, FaultPlan};

/// Whether an operation needs room on the device and therefore fails on a full device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Needed,
    Unneeded,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Sound,
    Full,
    Crashed,
}

/// An unsynced change of a file's content, with the data to undo it.
pub(super) enum Change {
    Write { offset: u64, len: usize, old: Vec<u8>, from: u64 },
    Resize { from: u64, to: u64, cut: Vec<u8> },
}

/// An unsynced change of a name, with the data to undo it.
pub(super) enum Name {
    Created(PathBuf),
    Renamed { from: PathBuf, to: PathBuf, replaced: Option<PathBuf> },
    Removed { path: PathBuf, kept: PathBuf },
}

impl Name {
    /// The directory whose sync makes the change durable.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Created(path) | Self::Removed { path, .. } => path.parent(),
            Self::Renamed { to, .. } => to.parent(),
        }
    }
}

pub(super) struct FileState {
    pub path: PathBuf,
    /// Oldest first.
    pub pending: Vec<Change>,
}

pub(super) struct State {
    plan: Option<FaultPlan>,
    pub operations: u64,
    pub condition: Condition,
    pub files: Vec<FileState>,
    /// Oldest first.
    pub names: Vec<Name>,
    root: PathBuf,
    /// Holds replaced and removed files until their disappearance is durable: a directory next to
    /// the root, created when needed.
    attic: Option<PathBuf>,
    in_attic: u64,
}

impl State {
    pub fn new(root: &Path, plan: Option<FaultPlan>) -> Self {
        Self {
            plan,
            operations: 0,
            condition: Condition::Sound,
            files: Vec::new(),
            names: Vec::new(),
            root: root.to_owned(),
            attic: None,
            in_attic: 0,
        }
    }

    /// The number of the file at `path`; an unknown file gets a new number.
    pub fn file_at(&mut self, path: &Path) -> usize {
        if let Some(id) = self.files.iter().position(|file| file.path == path) {
            return id;
        }
        self.files.push(FileState { path: path.to_owned(), pending: Vec::new() });
        self.files.len() - 1
    }

    pub fn running(&self, path: &Path) -> Result<()> {
        match self.condition {
            Condition::Crashed => Err(crashed(path)),
            Condition::Sound | Condition::Full => Ok(()),
        }
    }

    /// Counts an operation and returns its fault, if it fails.
    pub fn next(&mut self, path: &Path, room: Room) -> Result<Option<FaultKind>> {
        self.running(path)?;
        if self.condition == Condition::Full && room == Room::Needed {
            return Err(no_space(path));
        }
        let at = self.operations;
        self.operations += 1;
        let fault = self.plan.filter(|plan| plan.at == at).map(|plan| plan.kind);
        if fault == Some(FaultKind::NoSpace) {
            self.condition = Condition::Full;
        }
        Ok(fault)
    }

    pub fn attic_path(&mut self) -> io::Result<PathBuf> {
        if self.attic.is_none() {
            self.attic = Some(make_attic(&self.root)?);
        }
        self.in_attic += 1;
        Ok(self.attic.iter().collect::<PathBuf>().join(self.in_attic.to_string()))
    }

    pub fn relocate(&mut self, from: &Path, to: &Path) {
        for file in &mut self.files {
            if file.path == from {
                file.path = to.to_owned();
            } else if let Ok(below) = file.path.strip_prefix(from) {
                file.path = to.join(below);
            }
        }
    }

    pub fn remove(&mut self, path: &Path) -> io::Result<()> {
        if !path.exists() {
            return Ok(());
        }
        let kept = self.attic_path()?;
        fs::rename(path, &kept)?;
        self.relocate(path, &kept);
        self.names.push(Name::Removed { path: path.to_owned(), kept });
        Ok(())
    }

    /// Stops the machine: tears unsynced bytes, undoes some unsynced names.
    pub fn crash(&mut self, path: &Path) -> Error {
        self.condition = Condition::Crashed;
        let at = self.plan.map_or(0, |plan| plan.at);
        let chance = Stream::new(at, 0);
        for (id, file) in (0..).zip(&mut self.files) {
            let pending = std::mem::take(&mut file.pending);
            // If its creation was undone, the file does not exist, and nothing is left to tear.
            if let Ok(content) = fs::read(&file.path)
                && !pending.is_empty()
            {
                let torn = tear(content, &pending, &chance, id);
                fs::write(&file.path, torn).expect("tear a file");
            }
        }
        let mut names = std::mem::take(&mut self.names);
        let durable = chance.uniform(0, 1, 0).below(names.len() as u64 + 1) as usize;
        for name in names.drain(durable..).rev() {
            undo(name);
        }
        crashed(path)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(attic) = &self.attic {
            // A failure only leaves files of a test.
            let _ = fs::remove_dir_all(attic);
        }
    }
}

/// Creates a new directory next to `root`; another disk over the same root may already have one.
fn make_attic(root: &Path) -> io::Result<PathBuf> {
    for number in 0.. {
        let mut attic = root.as_os_str().to_owned();
        attic.push(format!(".fault-disk-{number}"));
        match fs::create_dir(&attic) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(attic.into()),
        }
    }
    unreachable!("there are more numbers than directories")
}

/// The content after a crash: the synced bytes plus some of the `pending` changes.
fn tear(mut content: Vec<u8>, pending: &[Change], chance: &Stream, file: u64) -> Vec<u8> {
    // Undo the changes backwards, and save the bytes that each one wrote.
    let mut written = vec![Vec::new(); pending.len()];
    for (change, written) in pending.iter().zip(&mut written).rev() {
        match change {
            Change::Write { offset, len, old, from } => {
                let start = *offset as usize;
                *written = content[start..start + len].to_vec();
                content[start..start + old.len()].copy_from_slice(old);
                content.truncate(*from as usize);
            }
            Change::Resize { from, to, cut } => {
                content.truncate(*to as usize);
                content.extend_from_slice(cut);
                content.truncate(*from as usize);
            }
        }
    }
    let mut draws = chance.uniform(file, 0, 0);
    let manner = draws.below(4);
    let whole = draws.below(pending.len() as u64);
    for (place, (change, written)) in (0..).zip(pending.iter().zip(&written)) {
        let part = match manner {
            0 => 0.0,
            // The writes reached the device in order, the last one in part.
            1 if place < whole => 1.0,
            1 if place == whole => draws.unit(),
            1 => 0.0,
            // The writes reached the device in any order.
            2 => f64::from(u8::from(draws.below(2) == 1)),
            _ => 1.0,
        };
        match change {
            Change::Write { offset, .. } => {
                let kept = (written.len() as f64 * part) as usize;
                let (start, end) = (*offset as usize, *offset as usize + kept);
                if kept > 0 {
                    content.resize(content.len().max(end), 0);
                    content[start..end].copy_from_slice(&written[..kept]);
                }
            }
            Change::Resize { to, .. } if part >= 0.5 => content.resize(*to as usize, 0),
            Change::Resize { .. } => {}
        }
    }
    content
}

/// Undoes a change of a name. If a later durable change has replaced it, nothing is left to undo;
/// the call then fails, and the error is ignored.
fn undo(name: Name) {
    let _ = match name {
        Name::Created(path) if path.is_dir() => fs::remove_dir_all(path),
        Name::Created(path) => fs::remove_file(path),
        Name::Renamed { from, to, replaced } => fs::rename(&to, from)
            .and_then(|()| replaced.map_or(Ok(()), |kept| fs::rename(kept, to))),
        Name::Removed { path, kept } => fs::rename(kept, path),
    };
}

pub(super) fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn name(path: &Path) -> String {
    format!("`{}`", path.display())
}

fn crashed(path: &Path) -> Error {
    Error::new(ErrorKind::Io, "simulated crash").context(name(path))
}

pub(super) fn eio(path: &Path) -> Error {
    Error::from(io::Error::from_raw_os_error(libc::EIO)).context(name(path))
}

pub(super) fn no_space(path: &Path) -> Error {
    Error::from(io::Error::from_raw_os_error(libc::ENOSPC)).context(name(path))
}
