//! A [`Disk`] that fails on purpose: it crashes, fills up or refuses at the n-th operation.
//!
//! The crash model is as strict as POSIX allows. Bytes written since the last [`WriteFile::sync`]
//! of a file may be present, missing or torn, in any order. Names changed since the last
//! [`Disk::sync_dir`] of their directory may be undone, latest first. The plan alone determines the
//! outcome, so a failing crash point can be repeated.

mod state;
#[cfg(test)]
mod tests;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use outercore_core::{Context, Result};

use crate::disk::{Disk, WriteFile};
use state::{Change, Condition, Name, Room, State, eio, lock, name, no_space};

/// The kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The machine stops during the operation; every later operation fails with kind `Io` and the
    /// message `simulated crash`. Unsynced bytes are torn off.
    Crash,
    /// The device is full: the operation and every later operation that needs room fails. A write
    /// leaves its first half on the device.
    NoSpace,
    /// Only this operation fails, with `EIO`, and changes nothing.
    Eio,
}

/// Which operation fails, counted from 0, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Number of operations that succeed before the fault.
    pub at: u64,
    /// The kind of fault.
    pub kind: FaultKind,
}

/// A [`Disk`] over a real directory that counts its operations and fails as planned.
///
/// Files that exist before count as durable. Intended for tests: overwritten bytes stay in memory
/// and replaced files in a directory next to the root until they are synced.
///
/// # Example
/// ```
/// use outercore_io::{Disk, FaultDisk, FaultKind, FaultPlan};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path().join("data");
/// # std::fs::create_dir(&root)?;
/// let path = root.join("graph.json");
/// std::fs::write(&path, "old")?;
/// let counting = FaultDisk::counting(&root);
/// counting.replace(&path, b"old")?;
/// for at in 0..counting.operations() {
///     let disk = FaultDisk::new(&root, FaultPlan { at, kind: FaultKind::Crash });
///     assert!(disk.replace(&path, b"new").is_err());
///     assert!(["old", "new"].contains(&std::fs::read_to_string(&path)?.as_str()));
/// }
/// # Ok(())
/// # }
/// ```
pub struct FaultDisk {
    shared: Arc<Mutex<State>>,
}

impl FaultDisk {
    /// A disk over `root` that fails as `plan` says.
    pub fn new(root: &Path, plan: FaultPlan) -> Self {
        Self::build(root, Some(plan))
    }

    /// A disk over `root` that never fails, for counting the operations of a task.
    pub fn counting(root: &Path) -> Self {
        Self::build(root, None)
    }

    fn build(root: &Path, plan: Option<FaultPlan>) -> Self {
        Self { shared: Arc::new(Mutex::new(State::new(root, plan))) }
    }

    /// Changing operations requested so far, including the failed one.
    pub fn operations(&self) -> u64 {
        lock(&self.shared).operations
    }

    /// Whether the simulated machine has crashed.
    pub fn crashed(&self) -> bool {
        lock(&self.shared).condition == Condition::Crashed
    }

    /// Executes one operation other than a write: counts it, fails as planned, or calls `act`.
    fn operate(
        &self,
        path: &Path,
        room: Room,
        act: impl FnOnce(&mut State) -> io::Result<()>,
    ) -> Result<()> {
        operate(&self.shared, path, room, act)
    }

    fn handle(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let file =
            OpenOptions::new().read(true).write(true).open(path).with_context(|| name(path))?;
        let position = file.metadata().with_context(|| name(path))?.len();
        let id = lock(&self.shared).file_at(path);
        Ok(Box::new(FaultFile { shared: Arc::clone(&self.shared), id, file, position }))
    }
}

impl Disk for FaultDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.operate(path, Room::Needed, |state| {
            if path.exists() {
                let cut = fs::read(path)?;
                let id = state.file_at(path);
                state.files[id].pending.push(Change::Resize { from: cut.len() as u64, to: 0, cut });
                fs::File::create(path).map(drop)
            } else {
                fs::File::create(path)?;
                state.names.push(Name::Created(path.to_owned()));
                Ok(())
            }
        })?;
        self.handle(path)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        // Opening changes nothing, so it is not counted; after a crash it still fails.
        lock(&self.shared).running(path)?;
        self.handle(path)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.operate(path, Room::Needed, |state| {
            let missing: Vec<&Path> =
                path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
            for directory in missing.into_iter().rev() {
                fs::create_dir(directory)?;
                state.names.push(Name::Created(directory.to_owned()));
            }
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.operate(from, Room::Unneeded, |state| {
            let replaced = if to.exists() {
                // A second name keeps the old bytes while the rename stays atomic.
                let kept = state.attic_path()?;
                fs::hard_link(to, &kept)?;
                state.relocate(to, &kept);
                Some(kept)
            } else {
                None
            };
            fs::rename(from, to)?;
            state.relocate(from, to);
            state.names.push(Name::Renamed { from: from.into(), to: to.into(), replaced });
            Ok(())
        })
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.operate(from, Room::Needed, |state| {
            fs::hard_link(from, to)?;
            state.names.push(Name::Created(to.to_owned()));
            Ok(())
        })
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.operate(path, Room::Unneeded, |state| state.remove(path))
    }

    fn remove_dir_all(&self, path: &Path) -> Result<()> {
        self.operate(path, Room::Unneeded, |state| state.remove(path))
    }

    fn remove_empty_dir(&self, path: &Path) -> Result<()> {
        self.operate(path, Room::Unneeded, |state| {
            let is_empty = fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
            if is_empty { state.remove(path) } else { Ok(()) }
        })
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        sync(&self.shared, path, |state| {
            fs::File::open(path)?;
            state.names.retain(|name| name.directory() != Some(path));
            Ok(())
        })
    }
}

struct FaultFile {
    shared: Arc<Mutex<State>>,
    id: usize,
    file: fs::File,
    position: u64,
}

impl FaultFile {
    fn path(&self) -> PathBuf {
        lock(&self.shared).files[self.id].path.clone()
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let path = self.path();
        let mut state = lock(&self.shared);
        let fault = state.next(&path, Room::Needed)?;
        let kept = match fault {
            Some(FaultKind::Eio) => return Err(eio(&path)),
            Some(FaultKind::NoSpace) => &bytes[..bytes.len() / 2],
            Some(FaultKind::Crash) | None => bytes,
        };
        let from = self.file.metadata().with_context(|| name(&path))?.len();
        let overwritten = from.saturating_sub(offset).min(kept.len() as u64) as usize;
        let mut old = vec![0; overwritten];
        self.file.read_exact_at(&mut old, offset.min(from)).with_context(|| name(&path))?;
        self.file.write_all_at(kept, offset).with_context(|| name(&path))?;
        state.files[self.id].pending.push(Change::Write { offset, len: kept.len(), old, from });
        match fault {
            Some(FaultKind::NoSpace) => Err(no_space(&path)),
            Some(FaultKind::Crash) => Err(state.crash(&path)),
            Some(FaultKind::Eio) | None => Ok(()),
        }
    }
}

impl WriteFile for FaultFile {
    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(self.position, bytes)?;
        self.position += bytes.len() as u64;
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.put(offset, bytes)
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        let (path, id, file) = (self.path(), self.id, &self.file);
        operate(&self.shared, &path, Room::Needed, |state| {
            let from = file.metadata()?.len();
            let mut cut = vec![0; from.saturating_sub(len) as usize];
            file.read_exact_at(&mut cut, len.min(from))?;
            file.set_len(len)?;
            state.files[id].pending.push(Change::Resize { from, to: len, cut });
            Ok(())
        })?;
        self.position = len;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let (path, id) = (self.path(), self.id);
        sync(&self.shared, &path, |state| {
            state.files[id].pending.clear();
            Ok(())
        })
    }
}

/// Executes an operation completely, pending until it is synced, or not at all.
fn operate(
    shared: &Mutex<State>,
    path: &Path,
    room: Room,
    act: impl FnOnce(&mut State) -> io::Result<()>,
) -> Result<()> {
    let mut state = lock(shared);
    match state.next(path, room)? {
        Some(FaultKind::Eio) => Err(eio(path)),
        Some(FaultKind::NoSpace) => Err(no_space(path)),
        Some(FaultKind::Crash) => {
            act(&mut state).with_context(|| name(path))?;
            Err(state.crash(path))
        }
        None => act(&mut state).with_context(|| name(path)),
    }
}

/// Executes a sync; a sync that fails or crashes has made nothing durable.
fn sync(
    shared: &Mutex<State>,
    path: &Path,
    act: impl FnOnce(&mut State) -> io::Result<()>,
) -> Result<()> {
    let mut state = lock(shared);
    match state.next(path, Room::Unneeded)? {
        Some(FaultKind::Eio) => Err(eio(path)),
        Some(FaultKind::NoSpace) => Err(no_space(path)),
        Some(FaultKind::Crash) => Err(state.crash(path)),
        None => act(&mut state).with_context(|| name(path)),
    }
}
