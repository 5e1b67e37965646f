//! The writer of a live graph: holds the acknowledged state and commits further updates.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use outercore_core::{Bytes, Error, Result};
use outercore_format::Update;
use outercore_format::log::Key;
use outercore_io::{Disk, FileLock};
use outercore_store::dataset::DataSet;
use outercore_store::delta::{Delta, Replaced};
use outercore_store::generations;
use outercore_store::paged::PagedTopology;

use crate::answers::{Ack, Answers};
use crate::fold::{KeepGoing, enable, fold};
use crate::log::{self, LogWriter};
use crate::replay::{Folding, Replayed, base_topology, replay};
use crate::watch::Commit;

/// `NEW_NODE + k` in an update refers to the k-th node that the same record adds, including the
/// nodes of graphs that it registers.
pub const NEW_NODE: u64 = 1 << 63;

/// Default memory for changes while a log is replayed. Together with the memory of a fold, it stays
/// within the allowance of a process beyond its budget.
pub const REPLAY_MEMORY: Bytes = Bytes::mib(16);

/// Updates that take effect together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// The updates, in order.
    pub updates: Vec<Update>,
    /// The client's name for the request. Repeating a recent key returns the first answer and
    /// changes nothing.
    pub key: Option<Key>,
}

impl From<Vec<Update>> for Write {
    fn from(updates: Vec<Update>) -> Self {
        Self { updates, key: None }
    }
}

/// A snapshot of a live graph: the arrays, and the changes since they were written.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// How often the arrays of the snapshot have been exchanged.
    pub generation: u64,
    /// The rows and lists that the last exchange replaced, and those that the delta still replaces.
    /// A reader of the previous arrays needs to reread only these.
    pub replaced: Arc<Replaced>,
    /// The arrays.
    pub data_set: DataSet,
    /// The changes.
    pub delta: Delta,
}

/// Writes updates of a data set to its log, and applies them.
///
/// A data set has at most one committer, in one process; its caller holds the lock.
pub struct Committer<'a> {
    disk: &'a dyn Disk,
    root: PathBuf,
    log: LogWriter<'a>,
    base: PagedTopology,
    snapshot: Arc<Snapshot>,
    answers: Answers,
    /// Reason why the last commit failed.
    trouble: Option<String>,
    /// Statistics of the last commit.
    last: Commit,
}

impl<'a> Committer<'a> {
    /// Opens the data set in `root`, locked by `lock`, at its last acknowledged update.
    ///
    /// A data set that has never been live gets an id and an empty log.
    ///
    /// # Errors
    /// As [`DataSet::open`]; `Unsupported` for a graph that does not support updates; a damaged
    /// log; failed writes.
    pub fn open(disk: &'a dyn Disk, root: &Path, lock: &FileLock) -> Result<Self> {
        Self::open_within(disk, root, lock, REPLAY_MEMORY, &|| Ok(()))
    }

    /// Like [`Committer::open`]. Changes in the log use about `memory`; when they need more, they
    /// are folded into the arrays, part by part. `keep_going` is called often.
    ///
    /// # Errors
    /// As [`Committer::open`]; errors of `keep_going`.
    pub fn open_within(
        disk: &'a dyn Disk,
        root: &Path,
        lock: &FileLock,
        memory: Bytes,
        keep_going: KeepGoing<'_>,
    ) -> Result<Self> {
        let data_set = DataSet::open(root)?;
        // Reports an unsupported data set before anything is written.
        Delta::new(&data_set)?;
        let is_live = data_set.manifest().live.is_some();
        drop(data_set);
        if !is_live {
            let mut id = [0; 16];
            getrandom::fill(&mut id)
                .map_err(|error| Error::internal(format!("no random numbers: {error}")))?;
            // Segments of a data set that was previously in this place.
            log::remove_before(disk, root, u64::MAX)?;
            LogWriter::create(disk, root, id, 0)?;
            enable(disk, root, lock, id)?;
        }
        log::remove_temporary(disk, root);
        let folding = Folding { disk, lock, memory, keep_going };
        let Replayed { data_set, base, delta, recovered, answers } = replay(root, &folding)?;
        let log = LogWriter::open(disk, root, id_of(&data_set)?, &recovered)?;
        let snapshot =
            Arc::new(Snapshot { generation: 0, replaced: Arc::default(), data_set, delta });
        Ok(Self {
            disk,
            root: root.to_owned(),
            log,
            base,
            snapshot,
            answers,
            trouble: None,
            last: Commit::default(),
        })
    }

    /// The state with all acknowledged updates.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Bytes of the current segment.
    pub fn log_bytes(&self) -> u64 {
        self.log.len()
    }

    /// Statistics of the last [`Committer::commit`].
    pub fn last_commit(&self) -> &Commit {
        &self.last
    }

    /// Reason why the last commit failed; `None` if it succeeded.
    pub fn failure(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Makes all of `writes` durable with a single sync, and acknowledges them. Each write is one
    /// record, which takes effect completely or not at all. An invalid write does not affect the
    /// others. A write whose key already has an answer gets that answer.
    ///
    /// # Errors
    /// Per write: as [`Delta::apply`], or a value that its array cannot hold. For all writes:
    /// errors of the disk. In these cases, the failed writes are neither in the graph nor in the
    /// log, except for kind `Unknown`: the log may then hold them. They take effect if the log is
    /// opened again before a later commit or [`Committer::renew`] succeeds.
    pub fn commit<W: Into<Write>>(&mut self, writes: Vec<W>) -> Vec<Result<Ack>> {
        let writes: Vec<Write> = writes.into_iter().map(W::into).collect();
        self.last = Commit::default();
        let mut state = self.snapshot.delta.clone();
        let updates = writes.iter().flat_map(|write| &write.updates);
        let touched: Vec<u64> = updates.flat_map(|update| state.touched(update)).collect();
        // A node out of range is rejected below, together with its update.
        let nodes = state.num_nodes();
        let touched: Vec<u64> = touched.into_iter().filter(|&node| node < nodes).collect();
        if let Err(error) = state.adopt(&touched, &self.base) {
            return writes.iter().map(|_| Err(error.clone())).collect();
        }
        // For each key in this commit, the index of its record in `done`.
        let mut keyed: HashMap<Key, usize> = HashMap::new();
        let mut done: Vec<(Result<Ack>, Source)> = Vec::with_capacity(writes.len());
        for Write { updates, key } in writes {
            let known = key.as_ref().and_then(|key| self.answers.of(key).cloned());
            let place = key.as_ref().and_then(|key| keyed.get(key).copied());
            done.push(match (known, place) {
                (Some(ack), _) => (Ok(ack), Source::Before),
                (None, Some(place)) => (done[place].0.clone(), Source::SameCommit),
                (None, None) => {
                    let taken = self.take_in(&mut state, updates, key.clone());
                    keyed.extend(key.filter(|_| taken.is_ok()).map(|key| (key, done.len())));
                    (taken, Source::Record)
                }
            });
        }
        // Rejected updates must not use memory.
        state.drop_unchanged(&touched);
        let (before, began) = (self.log.len(), Instant::now());
        let committed = self.log.commit();
        let records = done.iter().filter(|(_, source)| *source == Source::Record);
        let accepted = records.filter_map(|(ack, _)| ack.as_ref().ok());
        let records = accepted.clone().count() as u64;
        self.last = Commit {
            records,
            updates: accepted.map(|ack| ack.applied.len() as u64).sum(),
            bytes: Bytes(self.log.len().saturating_sub(before)),
            took: began.elapsed(),
            failed: committed.is_err(),
        };
        if records > 0 {
            self.trouble = committed.as_ref().err().map(Error::to_string);
        }
        if let Err(error) = committed {
            let of = |(ack, source): (Result<Ack>, Source)| match source {
                Source::Before => ack,
                Source::Record | Source::SameCommit => ack.and(Err(error.clone())),
            };
            return done.into_iter().map(of).collect();
        }
        self.snapshot = Arc::new(Snapshot { delta: state, ..Snapshot::clone(&self.snapshot) });
        let mut keyed: Vec<(Key, usize)> = keyed.into_iter().collect();
        keyed.sort_by_key(|(_, place)| *place);
        for (key, place) in keyed {
            self.answers.insert(key, done[place].0.clone().expect("a record that was accepted"));
        }
        done.into_iter().map(|(ack, _)| ack).collect()
    }

    /// Applies a record to `state` and adds it to the next write of the log.
    fn take_in(
        &mut self,
        state: &mut Delta,
        mut updates: Vec<Update>,
        key: Option<Key>,
    ) -> Result<Ack> {
        if updates.is_empty() {
            return Err(Error::invalid("no updates, expected at least one"));
        }
        updates.iter().try_for_each(|update| state.schema().check_values(update))?;
        resolve(&mut updates, state.num_nodes())?;
        let lsn = state.lsn() + 1;
        let mut next = state.clone();
        let applied = next.apply(lsn, &updates, &self.base)?;
        self.log.push(lsn, key, updates)?;
        *state = next;
        Ok(Ack { lsn, applied })
    }

    /// Begins a new segment. After the current snapshot is folded, no earlier segment is needed.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn rotate(&mut self) -> Result<u64> {
        // Folded records are no longer a source of answers.
        self.answers.save(self.disk, &self.root, id_of(&self.snapshot.data_set)?)?;
        self.log.rotate()?;
        Ok(self.log.first())
    }

    /// Tests whether the disk accepts writes again after a failed one, by beginning a new segment.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn renew(&mut self) -> Result<()> {
        if self.trouble.is_some() {
            self.log.renew()?;
            self.trouble = None;
        }
        Ok(())
    }

    /// Exchanges the arrays for those of `data_set`, into which a part of the log was folded.
    ///
    /// # Errors
    /// Errors of opening the arrays; the committer then stays unchanged.
    pub fn rebase(&mut self, data_set: DataSet) -> Result<()> {
        let base = base_topology(&data_set)?;
        let before = &self.snapshot;
        let delta = before.delta.since(&data_set)?;
        let generation = before.generation + 1;
        let replaced = Arc::new(before.delta.replaced());
        self.base = base;
        self.snapshot = Arc::new(Snapshot { generation, replaced, data_set, delta });
        Ok(())
    }

    /// Folds all acknowledged updates into the arrays, and opens the new ones.
    ///
    /// # Errors
    /// Failed reads and writes; the committer then stays unchanged.
    pub fn fold(&mut self, lock: &FileLock, keep_going: KeepGoing<'_>) -> Result<()> {
        let first = self.rotate()?;
        let folded = fold_snapshot(self.disk, &self.root, &self.snapshot, lock, first, keep_going)?;
        folded.map_or(Ok(()), |data_set| self.rebase(data_set))
    }
}

/// The origin of the answer to a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A separate record, or a rejection.
    Record,
    /// An earlier request with the same key.
    Before,
    /// A record of the same commit with the same key.
    SameCommit,
}

/// The id of the log.
fn id_of(data_set: &DataSet) -> Result<[u8; 16]> {
    let live = data_set.manifest().live.as_ref();
    live.and_then(|live| live.id_bytes()).ok_or_else(|| Error::corrupt("a log with a damaged id"))
}

/// Folds a snapshot into the arrays of the data set in `root`; afterwards its log begins with
/// record `first`. Returns the data set with its new arrays, or `None` if the arrays already
/// contained all changes.
///
/// # Errors
/// Failed reads and writes; the data set is then unchanged, or contains the snapshot.
pub fn fold_snapshot(
    disk: &dyn Disk,
    root: &Path,
    snapshot: &Snapshot,
    lock: &FileLock,
    first: u64,
    keep_going: KeepGoing<'_>,
) -> Result<Option<DataSet>> {
    // The arrays may be newer than those of the snapshot.
    let data_set = DataSet::open(root)?;
    let held = data_set.manifest().lsn();
    let is_held = snapshot.delta.lsn() <= held;
    if !is_held {
        fold(disk, &data_set, &snapshot.delta, lock, keep_going)?;
    }
    drop(data_set);
    // These segments may also be left from a process killed between fold and removal.
    log::remove_before(disk, root, first)?;
    // The fold is valid even if the space of the old arrays is not freed.
    let _ = generations::tidy_held(disk, root, lock);
    (!is_held).then(|| DataSet::open(root)).transpose()
}

/// Replaces references to the nodes that a record adds by ids, starting with `first`.
///
/// # Errors
/// `Invalid`: a reference to a node that no earlier update of the record adds.
pub fn resolve(updates: &mut [Update], first: u64) -> Result<()> {
    let mut added = 0;
    for update in updates {
        let put = |node: &mut u64| match node.checked_sub(NEW_NODE) {
            Some(new) if new < added => {
                *node = first + new;
                Ok(())
            }
            Some(new) => {
                let text = format!("new node {new}: {added} nodes were added before this update");
                Err(Error::invalid(text))
            }
            None => Ok(()),
        };
        match update {
            Update::AddEdge { source, target, .. } | Update::RemoveEdge { source, target } => {
                put(source)?;
                put(target)?;
            }
            Update::RemoveNode { node } | Update::UpdateNode { node, .. } => put(node)?,
            Update::AddNode { .. } => added += 1,
            Update::RegisterGraph { nodes, .. } => added += nodes.len() as u64,
            Update::UnregisterGraph { .. } => {}
        }
    }
    Ok(())
}
