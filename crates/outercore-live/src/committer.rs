//! One writer's view of a live graph: what is acknowledged, and how more becomes so.

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

/// `NEW_NODE + k` in an update stands for the k-th node that the same record adds, those of graphs
/// that it registers included.
pub const NEW_NODE: u64 = 1 << 63;

/// Memory for changes while a log is replayed, where the caller has no other limit. With what a fold
/// takes besides, it stays within what a process may take beyond its budget.
pub const REPLAY_MEMORY: Bytes = Bytes::mib(16);

/// Updates that are to take effect together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// The updates, in order.
    pub updates: Vec<Update>,
    /// How the client names the request. One of the last keys again gets the first answer, and
    /// changes nothing.
    pub key: Option<Key>,
}

impl From<Vec<Update>> for Write {
    fn from(updates: Vec<Update>) -> Self {
        Self { updates, key: None }
    }
}

/// A snapshot of a live graph: arrays, and what has changed since they were written.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Counts how often the arrays beneath were exchanged.
    pub generation: u64,
    /// What the last exchange replaced, and what the delta still replaces. A reader of the previous
    /// arrays needs to read only this again.
    pub replaced: Arc<Replaced>,
    /// The arrays.
    pub data_set: DataSet,
    /// The changes.
    pub delta: Delta,
}

/// Writes updates of a data set to its log, and applies them.
///
/// A data set has at most one, in one process: its caller holds the lock.
pub struct Committer<'a> {
    disk: &'a dyn Disk,
    root: PathBuf,
    log: LogWriter<'a>,
    base: PagedTopology,
    snapshot: Arc<Snapshot>,
    answers: Answers,
    /// Why the last commit failed.
    trouble: Option<String>,
    /// What the last commit did.
    last: Commit,
}

impl<'a> Committer<'a> {
    /// Opens the data set in `root`, which `lock` holds, at its last acknowledged update.
    ///
    /// A data set that has never been live becomes so: it gets an id and an empty log.
    ///
    /// # Errors
    /// As [`DataSet::open`]; `Unsupported` for a graph that cannot take updates; a damaged log;
    /// failed writes.
    pub fn open(disk: &'a dyn Disk, root: &Path, lock: &FileLock) -> Result<Self> {
        Self::open_within(disk, root, lock, REPLAY_MEMORY, &|| Ok(()))
    }

    /// As [`Committer::open`]. Changes that the log holds take so much memory, and a little more:
    /// beyond it they are folded into the arrays, piece by piece. `keep_going` is called often.
    ///
    /// # Errors
    /// As [`Committer::open`]; those of `keep_going`.
    pub fn open_within(
        disk: &'a dyn Disk,
        root: &Path,
        lock: &FileLock,
        memory: Bytes,
        keep_going: KeepGoing<'_>,
    ) -> Result<Self> {
        let data_set = DataSet::open(root)?;
        // Says what cannot be updated before anything is written.
        Delta::new(&data_set)?;
        let is_live = data_set.manifest().live.is_some();
        drop(data_set);
        if !is_live {
            let mut id = [0; 16];
            getrandom::fill(&mut id)
                .map_err(|error| Error::internal(format!("no random numbers: {error}")))?;
            // Left from a data set that was here before.
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

    /// All that is acknowledged.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Bytes of the segment that is written to.
    pub fn log_bytes(&self) -> u64 {
        self.log.len()
    }

    /// What the last [`Committer::commit`] did.
    pub fn last_commit(&self) -> &Commit {
        &self.last
    }

    /// Why the last commit failed; `None` while all is well.
    pub fn failure(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Makes each of `writes` durable, all by one sync, and acknowledges them: a record each, whole
    /// or not at all. One that is wrong does not stop the others. One whose key has an answer gets
    /// that answer.
    ///
    /// # Errors
    /// Of a write: as [`Delta::apply`], or a value that its array cannot hold; or, for all of them,
    /// those of the disk. Nothing of any is in the graph then, nor in the log. Only where the kind is
    /// `Unknown` the log may hold them, and they take effect if it is opened again before a later
    /// commit, or [`Committer::renew`], has succeeded.
    pub fn commit<W: Into<Write>>(&mut self, writes: Vec<W>) -> Vec<Result<Ack>> {
        let writes: Vec<Write> = writes.into_iter().map(W::into).collect();
        self.last = Commit::default();
        let mut state = self.snapshot.delta.clone();
        let updates = writes.iter().flat_map(|write| &write.updates);
        let touched: Vec<u64> = updates.flat_map(|update| state.touched(update)).collect();
        // A node out of range is refused below, with its own update.
        let nodes = state.num_nodes();
        let touched: Vec<u64> = touched.into_iter().filter(|&node| node < nodes).collect();
        if let Err(error) = state.adopt(&touched, &self.base) {
            return writes.iter().map(|_| Err(error.clone())).collect();
        }
        // Where the records of this commit that have a key are in `done`.
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
        // Refused updates must not take memory.
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

    /// Applies a record to `state` and enters it into the log's next write.
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

    /// Begins a new segment; what is folded up to the snapshot needs no segment before it.
    ///
    /// # Errors
    /// The disk's own.
    pub fn rotate(&mut self) -> Result<u64> {
        // Records that are folded give no answers any more.
        self.answers.save(self.disk, &self.root, id_of(&self.snapshot.data_set)?)?;
        self.log.rotate()?;
        Ok(self.log.first())
    }

    /// Looks whether the disk takes writes again, after one that failed: begins a new segment.
    ///
    /// # Errors
    /// The disk's own.
    pub fn renew(&mut self) -> Result<()> {
        if self.trouble.is_some() {
            self.log.renew()?;
            self.trouble = None;
        }
        Ok(())
    }

    /// Exchanges the arrays for those of `data_set`, into which some of the log was folded.
    ///
    /// # Errors
    /// Those of opening them; the committer is as before then.
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
    /// Failed reads and writes; the committer is as before then.
    pub fn fold(&mut self, lock: &FileLock, keep_going: KeepGoing<'_>) -> Result<()> {
        let first = self.rotate()?;
        let folded = fold_snapshot(self.disk, &self.root, &self.snapshot, lock, first, keep_going)?;
        folded.map_or(Ok(()), |data_set| self.rebase(data_set))
    }
}

/// Where the answer to a write comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A record of its own, or a refusal.
    Record,
    /// An earlier request with its key.
    Before,
    /// A record of the same commit, which has its key.
    SameCommit,
}

/// The id of the log.
fn id_of(data_set: &DataSet) -> Result<[u8; 16]> {
    let live = data_set.manifest().live.as_ref();
    live.and_then(|live| live.id_bytes()).ok_or_else(|| Error::corrupt("a log with a damaged id"))
}

/// Folds a snapshot into the arrays of the data set in `root`, whose log begins with record `first`
/// after that. Returns the data set with its new arrays; `None` where they held all of it already.
///
/// # Errors
/// Failed reads and writes; the data set is as before then, or holds the snapshot.
pub fn fold_snapshot(
    disk: &dyn Disk,
    root: &Path,
    snapshot: &Snapshot,
    lock: &FileLock,
    first: u64,
    keep_going: KeepGoing<'_>,
) -> Result<Option<DataSet>> {
    // The arrays may be newer than those that the snapshot stands on.
    let data_set = DataSet::open(root)?;
    let held = data_set.manifest().lsn();
    let is_held = snapshot.delta.lsn() <= held;
    if !is_held {
        fold(disk, &data_set, &snapshot.delta, lock, keep_going)?;
    }
    drop(data_set);
    // A process that was killed between the two has left them.
    log::remove_before(disk, root, first)?;
    // The fold stands whether or not the room of the old arrays is given back.
    let _ = generations::tidy_held(disk, root, lock);
    (!is_held).then(|| DataSet::open(root)).transpose()
}

/// Puts ids in place of references to the nodes that a record adds, the first of which is `first`.
///
/// # Errors
/// `Invalid`: a node that no update before the reference adds.
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
