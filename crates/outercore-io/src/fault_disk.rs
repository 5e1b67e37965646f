//! A [`Disk`] that fails on purpose: it crashes, fills up or refuses at the n-th operation.
//!
//! A crash is modelled as strictly as POSIX allows. Bytes written since the last
//! [`WriteFile::sync`] of a file may be there, missing or torn, in any order; names changed since
//! the last [`Disk::sync_dir`] of their directory may be undone, latest first. Which of these
//! happens is a function of the plan alone, so that a failing crash point can be run again.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use outercore_core::{Context, Error, ErrorKind, Result, Stream};

use crate::disk::{Disk, WriteFile};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The machine stops during the operation; every later one fails with kind `Io` and the message
    /// `simulated crash`. What was not synced is torn off.
    Crash,
    /// The device is full: the operation and every later one that needs room fails. A write leaves
    /// its first half behind.
    NoSpace,
    /// This one operation fails with `EIO` and changes nothing.
    Eio,
}

/// Which operation goes wrong, counted from 0, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// Number of operations that succeed before.
    pub at: u64,
    /// What happens then.
    pub kind: FaultKind,
}

/// A [`Disk`] over a real directory that counts its operations and fails as planned.
///
/// Files that exist before count as durable. Meant for tests: it keeps overwritten bytes in memory
/// and replaced files in a directory beside the root until they are synced.
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

    /// A disk over `root` that never fails, to learn how many operations a task takes.
    pub fn counting(root: &Path) -> Self {
        Self::build(root, None)
    }

    fn build(root: &Path, plan: Option<FaultPlan>) -> Self {
        let state = State {
            plan,
            operations: 0,
            condition: Condition::Sound,
            files: BTreeMap::new(),
            names: Vec::new(),
            root: root.to_owned(),
            attic: None,
            in_attic: 0,
        };
        Self { shared: Arc::new(Mutex::new(state)) }
    }

    /// Changing operations asked for so far, the failed one included.
    pub fn operations(&self) -> u64 {
        lock(&self.shared).operations
    }

    /// Whether the simulated machine is down.
    pub fn crashed(&self) -> bool {
        lock(&self.shared).condition == Condition::Crashed
    }

    /// One operation other than a write: counted, failed as planned, done by `act`.
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
        let mut state = lock(&self.shared);
        let known = state.files.iter().find(|(_, file)| file.path == path).map(|(id, _)| *id);
        let id = known.unwrap_or_else(|| {
            let id = state.files.len();
            state.files.insert(id, FileState { path: path.to_owned(), pending: Vec::new() });
            id
        });
        Ok(Box::new(FaultFile { shared: Arc::clone(&self.shared), id, file, position }))
    }
}

impl Disk for FaultDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        self.operate(path, Room::Needed, |state| {
            if path.exists() {
                let cut = fs::read(path)?;
                let id = state.files.iter().find(|(_, file)| file.path == path).map(|(id, _)| *id);
                let id = id.unwrap_or(state.files.len());
                let file = state
                    .files
                    .entry(id)
                    .or_insert_with(|| FileState { path: path.to_owned(), pending: Vec::new() });
                file.pending.push(Change::Resize { from: cut.len() as u64, to: 0, cut });
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
        // Opening changes nothing, so it is not counted; it still fails on a machine that is down.
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

    fn remove_file(&self, path: &Path) -> Result<()> {
        self.operate(path, Room::Unneeded, |state| state.remove(path))
    }

    fn remove_dir_all(&self, path: &Path) -> Result<()> {
        self.operate(path, Room::Unneeded, |state| state.remove(path))
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
        lock(&self.shared).files[&self.id].path.clone()
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
        let pending = &mut state.files.get_mut(&self.id).expect("registered").pending;
        pending.push(Change::Write { offset, len: kept.len(), old, from });
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
            let pending = &mut state.files.get_mut(&id).expect("registered").pending;
            pending.push(Change::Resize { from, to: len, cut });
            Ok(())
        })?;
        self.position = len;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        let (path, id) = (self.path(), self.id);
        sync(&self.shared, &path, |state| {
            state.files.get_mut(&id).expect("registered").pending.clear();
            Ok(())
        })
    }
}

/// Whether an operation needs room on the device, so that a full one refuses it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Needed,
    Unneeded,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    Sound,
    Full,
    Crashed,
}

/// An unsynced change of a file's content, with what it takes to undo it.
enum Change {
    Write { offset: u64, len: usize, old: Vec<u8>, from: u64 },
    Resize { from: u64, to: u64, cut: Vec<u8> },
}

/// An unsynced change of a name, with what it takes to undo it.
enum Name {
    Created(PathBuf),
    Renamed { from: PathBuf, to: PathBuf, replaced: Option<PathBuf> },
    Removed { path: PathBuf, kept: PathBuf },
}

impl Name {
    /// The directory whose sync makes the change durable.
    fn directory(&self) -> Option<&Path> {
        match self {
            Self::Created(path) | Self::Removed { path, .. } => path.parent(),
            Self::Renamed { to, .. } => to.parent(),
        }
    }
}

struct FileState {
    path: PathBuf,
    /// Oldest first.
    pending: Vec<Change>,
}

struct State {
    plan: Option<FaultPlan>,
    operations: u64,
    condition: Condition,
    files: BTreeMap<usize, FileState>,
    /// Oldest first.
    names: Vec<Name>,
    root: PathBuf,
    /// Where replaced and removed files wait until their disappearance is durable: a directory
    /// beside the root, made when it is needed.
    attic: Option<PathBuf>,
    in_attic: u64,
}

impl State {
    fn running(&self, path: &Path) -> Result<()> {
        match self.condition {
            Condition::Crashed => Err(crashed(path)),
            Condition::Sound | Condition::Full => Ok(()),
        }
    }

    /// Counts an operation and says whether it fails.
    fn next(&mut self, path: &Path, room: Room) -> Result<Option<FaultKind>> {
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

    fn attic_path(&mut self) -> io::Result<PathBuf> {
        if self.attic.is_none() {
            self.attic = Some(make_attic(&self.root)?);
        }
        self.in_attic += 1;
        Ok(self.attic.iter().collect::<PathBuf>().join(self.in_attic.to_string()))
    }

    fn relocate(&mut self, from: &Path, to: &Path) {
        for file in self.files.values_mut() {
            if file.path == from {
                file.path = to.to_owned();
            } else if let Ok(below) = file.path.strip_prefix(from) {
                file.path = to.join(below);
            }
        }
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
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
    fn crash(&mut self, path: &Path) -> Error {
        self.condition = Condition::Crashed;
        let at = self.plan.map_or(0, |plan| plan.at);
        let chance = Stream::new(at, 0);
        for (id, file) in &mut self.files {
            let pending = std::mem::take(&mut file.pending);
            // The file may be gone if its creation was undone; then nothing of it is left to tear.
            if let Ok(content) = fs::read(&file.path)
                && !pending.is_empty()
            {
                let torn = tear(content, &pending, &chance, *id as u64);
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
            // Only leftovers of a test.
            let _ = fs::remove_dir_all(attic);
        }
    }
}

/// A new directory beside `root`; another disk over the same root may have one already.
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
    // Going back change by change uncovers what each one wrote.
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
            // They reached it in any order.
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

/// Undoes a change of a name; where a later, durable change has taken its place, nothing is left to
/// undo, and the error of that is the answer.
fn undo(name: Name) {
    let _ = match name {
        Name::Created(path) if path.is_dir() => fs::remove_dir_all(path),
        Name::Created(path) => fs::remove_file(path),
        Name::Renamed { from, to, replaced } => fs::rename(&to, from)
            .and_then(|()| replaced.map_or(Ok(()), |kept| fs::rename(kept, to))),
        Name::Removed { path, kept } => fs::rename(kept, path),
    };
}

/// An operation that either takes place in full, pending until it is synced, or not at all.
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

/// A sync: one that fails or crashes has made nothing durable.
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

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn name(path: &Path) -> String {
    format!("`{}`", path.display())
}

fn crashed(path: &Path) -> Error {
    Error::new(ErrorKind::Io, "simulated crash").context(name(path))
}

fn eio(path: &Path) -> Error {
    Error::from(io::Error::from_raw_os_error(libc::EIO)).context(name(path))
}

fn no_space(path: &Path) -> Error {
    Error::from(io::Error::from_raw_os_error(libc::ENOSPC)).context(name(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        (directory, root)
    }

    fn plan(at: u64, kind: FaultKind) -> FaultPlan {
        FaultPlan { at, kind }
    }

    #[test]
    fn every_crash_point_of_a_replacement_leaves_the_old_bytes_or_the_new_ones() {
        let (_directory, root) = root();
        let path = root.join("a.json");
        let counting = FaultDisk::counting(&root);
        counting.replace(&path, b"the old").unwrap();
        let operations = counting.operations();
        assert_eq!(operations, 5, "create, write, sync, rename, sync_dir");
        let mut seen = Vec::new();
        for at in 0..operations {
            let disk = FaultDisk::new(&root, plan(at, FaultKind::Crash));
            let error = disk.replace(&path, b"something new").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("simulated crash"), "{error}");
            seen.push(fs::read(&path).unwrap());
            assert!(disk.crashed() && disk.create(&path).is_err());
            fs::write(&path, b"the old").unwrap();
        }
        for content in &seen {
            assert!([&b"the old"[..], b"something new"].contains(&content.as_slice()));
        }
    }

    #[test]
    fn a_replacement_without_its_syncs_loses_bytes_at_some_crash_point() {
        let (_directory, root) = root();
        let path = root.join("a");
        let careless = |disk: &FaultDisk| -> Result<()> {
            disk.create(&root.join("t"))?.write_all(b"something new")?;
            disk.rename(&root.join("t"), &path)?;
            for _ in 0..20 {
                disk.create_dir_all(&root)?;
            }
            Ok(())
        };
        let mut torn = 0;
        for at in 0..20 {
            let _ = fs::remove_file(root.join("t"));
            fs::write(&path, b"the old").unwrap();
            let disk = FaultDisk::new(&root, plan(at, FaultKind::Crash));
            careless(&disk).unwrap_err();
            let content = fs::read(&path).unwrap();
            torn += u32::from(content != b"the old" && content != b"something new");
        }
        assert!(torn > 0, "the model lets unsynced bytes survive every crash");
    }

    #[test]
    fn synced_bytes_survive_and_unsynced_overwrites_may_not() {
        let mut outcomes = std::collections::BTreeSet::new();
        for at in 5..40 {
            let (_directory, root) = root();
            let path = root.join("a");
            let disk = FaultDisk::new(&root, plan(at, FaultKind::Crash));
            let mut file = disk.create(&path).unwrap();
            file.write_all(b"header").unwrap();
            file.sync().unwrap();
            disk.sync_dir(&root).unwrap();
            file.write_at(0, b"HEADER").unwrap();
            while disk.create_dir_all(&root).is_ok() {}
            outcomes.insert(fs::read_to_string(&path).unwrap());
        }
        assert!(outcomes.iter().all(|content| content.eq_ignore_ascii_case("header")));
        assert!(outcomes.contains("header") && outcomes.contains("HEADER"), "{outcomes:?}");
    }

    #[test]
    fn a_name_that_was_not_synced_may_be_gone() {
        let mut there = 0;
        for at in 3..40 {
            let (_directory, root) = root();
            let disk = FaultDisk::new(&root, plan(at, FaultKind::Crash));
            let mut file = disk.create(&root.join("a")).unwrap();
            file.write_all(b"x").unwrap();
            file.sync().unwrap();
            while disk.create_dir_all(&root).is_ok() {}
            there += u32::from(root.join("a").exists());
        }
        assert!((1..37).contains(&there), "{there}");
    }

    #[test]
    fn a_removal_that_was_not_synced_may_be_undone() {
        let mut there = 0;
        for at in 1..40 {
            let (_directory, root) = root();
            fs::create_dir(root.join("d")).unwrap();
            fs::write(root.join("d/a"), b"kept").unwrap();
            let disk = FaultDisk::new(&root, plan(at, FaultKind::Crash));
            disk.remove_dir_all(&root.join("d")).unwrap();
            assert!(!root.join("d").exists());
            while disk.create_dir_all(&root).is_ok() {}
            if root.join("d").exists() {
                assert_eq!(fs::read(root.join("d/a")).unwrap(), b"kept");
                there += 1;
            }
        }
        assert!((1..39).contains(&there), "{there}");
    }

    #[test]
    fn a_full_device_stays_full_but_lets_files_be_removed() {
        let (_directory, root) = root();
        let path = root.join("a");
        let disk = FaultDisk::new(&root, plan(1, FaultKind::NoSpace));
        let mut file = disk.create(&path).unwrap();
        assert_eq!(file.write_all(b"0123").unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(fs::read(&path).unwrap(), b"01");
        assert_eq!(file.write_all(b"0123").unwrap_err().kind(), ErrorKind::NoSpace);
        disk.remove_file(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_refused_operation_changes_nothing_and_the_next_one_works() {
        let (_directory, root) = root();
        let path = root.join("a");
        let disk = FaultDisk::new(&root, plan(1, FaultKind::Eio));
        let mut file = disk.create(&path).unwrap();
        let error = file.write_all(b"0123").unwrap_err();
        assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(libc::EIO)));
        file.write_all(b"4567").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"4567");
    }
}
