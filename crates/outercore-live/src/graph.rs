//! A live graph in a serving process: one thread writes, and one folds.

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_io::{Disk, FileLock, RealDisk};
use outercore_store::dataset::DataSet;
use outercore_store::generations;

use crate::answers::Ack;
use crate::committer::{Committer, Snapshot, Write, fold_snapshot};
use crate::open::{answer, refuse, requests};
use crate::watch::Watch;

/// Most writes that a single sync makes durable.
const MOST_TOGETHER: usize = 4096;

/// Most updates in these writes, because all of them are applied before the first reply.
const MOST_UPDATES: usize = 1 << 16;

/// Time between two checks whether to fold.
const LOOK: Duration = Duration::from_millis(100);

/// Time between two tests whether a failed disk accepts writes again.
const RENEW: Duration = Duration::from_secs(1);

/// Waiting time after a failed fold.
const AGAIN: Duration = Duration::from_secs(5);

/// Limits of a live graph.
#[derive(Clone, Copy, Debug)]
pub struct LiveConfig {
    /// Memory for changes. At half of it the graph is folded; beyond it writes are rejected.
    pub memory: Bytes,
    /// Size of the log at which it is folded: the next start would have to read this much.
    pub log: Bytes,
    /// Most waiting writes; more are rejected.
    pub queue: usize,
    /// Least time between two exchanges of the arrays, as a multiple of the duration of the last
    /// fold. It limits the share of time that fast writers cause to be spent on folds. Until then,
    /// writes that exceed the memory are rejected.
    pub rest: u32,
}

impl Default for LiveConfig {
    fn default() -> Self {
        Self { memory: Bytes::mib(128), log: Bytes::mib(256), queue: 4096, rest: 4 }
    }
}

/// Status of a live graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveStatus {
    /// Number of the last acknowledged record.
    pub lsn: u64,
    /// Number of the last record in the arrays on disk.
    pub folded: u64,
    /// Memory used by changes.
    pub memory: Bytes,
    /// Bytes of the log's last segment.
    pub log: Bytes,
    /// Folds since the start.
    pub folds: u64,
    /// Reason why writes fail; `None` if they succeed.
    pub failure: Option<String>,
    /// Reason why the last fold failed; `None` if it succeeded.
    pub fold_failure: Option<String>,
}

type Reply = Box<dyn FnOnce(Result<Ack>) + Send>;

enum Message {
    Write(Write, Reply),
    /// Test whether the disk accepts writes again.
    Renew,
    /// Begin a segment; replies with the snapshot and the first record of the segment.
    Rotate(SyncSender<Result<(Arc<Snapshot>, u64)>>),
    Rebase(DataSet, SyncSender<Result<()>>),
}

/// A caller that waits for a fold.
type Waiting = SyncSender<Result<u64>>;

struct Shared {
    root: std::path::PathBuf,
    disk: Arc<dyn Disk>,
    lock: FileLock,
    config: LiveConfig,
    watch: Arc<dyn Watch>,
    snapshot: RwLock<Arc<Snapshot>>,
    status: Mutex<LiveStatus>,
    wanted: Mutex<Vec<Waiting>>,
    wake: Condvar,
    stopping: AtomicBool,
}

/// A graph that accepts updates while it is read.
pub struct LiveGraph {
    shared: Arc<Shared>,
    writes: Option<SyncSender<Message>>,
    threads: Vec<JoinHandle<()>>,
}

impl LiveGraph {
    /// Opens the data set in `root` for updates, and locks it until the graph is dropped. `watch`
    /// is called after commits and folds.
    ///
    /// **Cost** replays the log.
    ///
    /// # Errors
    /// `Invalid`: another process writes to it. As [`Committer::open`].
    pub fn open(root: &Path, config: LiveConfig, watch: Arc<dyn Watch>) -> Result<Self> {
        let context = || format!("data set `{}`", root.display());
        let lock = FileLock::try_directory(root).with_context(context)?.ok_or_else(|| {
            Error::invalid("somebody else writes to it, or serves it with updates")
                .context(context())
                .hint("stop the other one first")
        })?;
        Self::start(root, Arc::new(RealDisk), lock, (config, watch))
    }

    fn start(
        root: &Path,
        disk: Arc<dyn Disk>,
        lock: FileLock,
        (config, watch): (LiveConfig, Arc<dyn Watch>),
    ) -> Result<Self> {
        let data_set = DataSet::open(root)?;
        let root = data_set.root().to_owned();
        // The state is unknown until the writing thread has opened the data set.
        let (opened, opening) = mpsc::sync_channel(1);
        let (writes, messages) = mpsc::sync_channel(config.queue);
        let (held, at) = (disk, root);
        let writer =
            std::thread::Builder::new().name("outercore-write".into()).spawn(move || {
                write(&*held.clone(), held, &at, lock, (config, watch), &opened, &messages)
            })?;
        let shared = opening
            .recv()
            .map_err(|_| Error::internal("the writing thread ended before it began"))??;
        let (folding, to_writer) = (Arc::clone(&shared), writes.clone());
        let folder = std::thread::Builder::new()
            .name("outercore-fold".into())
            .spawn(move || keep_folded(&folding, &to_writer))?;
        Ok(Self { shared, writes: Some(writes), threads: vec![folder, writer] })
    }

    /// The current state, with all acknowledged updates.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.shared.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Submits a write, whose updates take effect together. `reply` is called after the updates are
    /// durable and in the snapshot, or with an error.
    ///
    /// # Errors
    /// `Budget`: too many writes wait, or too many changes are not folded yet; the write is then
    /// discarded.
    pub fn submit(&self, write: impl Into<Write>, reply: Reply) -> Result<()> {
        if self.snapshot().delta.memory() > self.shared.config.memory {
            let text = "too many updates wait to be folded into the arrays";
            return Err(Error::new(ErrorKind::Budget, text).hint("send them again later"));
        }
        let writes = self.writes.as_ref().expect("there until it is dropped");
        writes.try_send(Message::Write(write.into(), reply)).map_err(|error| match error {
            TrySendError::Full(_) => {
                Error::new(ErrorKind::Budget, "too many updates wait").hint("send them again later")
            }
            TrySendError::Disconnected(_) => Error::internal("the writing thread has ended"),
        })
    }

    /// Like [`LiveGraph::submit`], but waits for the reply.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn write(&self, write: impl Into<Write>) -> Result<Ack> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.submit(write, Box::new(move |done| drop(reply.send(done))))?;
        answer.recv().map_err(|_| Error::internal("the writing thread has ended"))?
    }

    /// Folds all acknowledged updates into the arrays, and waits. Returns the number of the last
    /// record in the arrays.
    ///
    /// # Errors
    /// Failed reads and writes; the graph then works as before.
    pub fn fold(&self) -> Result<u64> {
        let (reply, answer) = mpsc::sync_channel(1);
        let mut wanted = self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.push(reply);
        drop(wanted);
        self.shared.wake.notify_one();
        answer.recv().map_err(|_| Error::internal("the graph is being closed"))?
    }

    /// The current status.
    pub fn status(&self) -> LiveStatus {
        self.shared.status().clone()
    }
}

impl Drop for LiveGraph {
    /// Writes the submitted updates, and unlocks the data set.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.wake.notify_one();
        self.writes = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn status(&self) -> std::sync::MutexGuard<'_, LiveStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, committer: &Committer<'_>) {
        let snapshot = committer.snapshot();
        *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(snapshot);
        let mut status = self.status();
        status.lsn = snapshot.delta.lsn();
        status.memory = snapshot.delta.memory();
        status.log = Bytes(committer.log_bytes());
        status.failure = committer.failure().map(str::to_owned);
    }
}

/// The writing thread.
fn write(
    disk: &dyn Disk,
    owned: Arc<dyn Disk>,
    root: &Path,
    lock: FileLock,
    (config, watch): (LiveConfig, Arc<dyn Watch>),
    opened: &SyncSender<Result<Arc<Shared>>>,
    messages: &Receiver<Message>,
) {
    let opened_committer = Committer::open_within(disk, root, &lock, config.memory, &|| Ok(()));
    let mut committer = match opened_committer {
        Ok(committer) => committer,
        Err(error) => return drop(opened.send(Err(error))),
    };
    let snapshot = Arc::clone(committer.snapshot());
    let folded = snapshot.data_set.manifest().lsn();
    let shared = Arc::new(Shared {
        root: root.to_owned(),
        disk: owned,
        lock,
        config,
        watch,
        snapshot: RwLock::new(snapshot),
        status: Mutex::new(LiveStatus { folded, ..LiveStatus::default() }),
        wanted: Mutex::default(),
        wake: Condvar::new(),
        stopping: AtomicBool::new(false),
    });
    shared.publish(&committer);
    drop(opened.send(Ok(Arc::clone(&shared))));
    let mut next = messages.recv().ok();
    while let Some(message) = next.take() {
        match message {
            Message::Write(write, reply) => {
                next = write_together(&mut committer, &shared, (write, reply), messages);
            }
            Message::Renew => {
                // On failure, it is tried again later; the failure is already reported.
                if committer.renew().is_ok() {
                    shared.publish(&committer);
                }
            }
            Message::Rotate(reply) => {
                let rotated = committer.rotate();
                let snapshot = Arc::clone(committer.snapshot());
                drop(reply.send(rotated.map(|first| (snapshot, first))));
            }
            Message::Rebase(data_set, reply) => {
                let rebased = committer.rebase(data_set);
                shared.publish(&committer);
                drop(reply.send(rebased));
            }
        }
        if next.is_none() {
            next = messages.recv().ok();
        }
    }
}

/// Commits a write together with the writes that wait behind it. Returns a message of another kind,
/// if one followed them.
fn write_together(
    committer: &mut Committer<'_>,
    shared: &Shared,
    first: (Write, Reply),
    messages: &Receiver<Message>,
) -> Option<Message> {
    let mut updates = first.0.updates.len();
    let (mut writes, mut replies) = (vec![first.0], vec![first.1]);
    let mut other = None;
    while writes.len() < MOST_TOGETHER && updates < MOST_UPDATES {
        match messages.try_recv() {
            Ok(Message::Write(more, reply)) => {
                updates += more.updates.len();
                writes.push(more);
                replies.push(reply);
            }
            Ok(message) => {
                other = Some(message);
                break;
            }
            Err(_) => break,
        }
    }
    let done = committer.commit(writes);
    // Publish before the replies, so that a client that reads after its reply sees its write.
    shared.publish(committer);
    shared.watch.committed(committer.last_commit());
    for (reply, done) in replies.into_iter().zip(done) {
        reply(done);
    }
    other
}

/// The folding thread.
fn keep_folded(shared: &Shared, writer: &SyncSender<Message>) {
    let mut not_before = Instant::now();
    let mut renewed = Instant::now();
    // Time of the last exchange, and the duration of its fold.
    let mut exchanged: Option<(Instant, Duration)> = None;
    loop {
        let waiting = shared.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut waiting, _) = shared
            .wake
            .wait_timeout_while(waiting, LOOK, |waiting| {
                waiting.is_empty() && !shared.stopping.load(Ordering::Relaxed)
            })
            .unwrap_or_else(PoisonError::into_inner);
        if shared.stopping.load(Ordering::Relaxed) {
            return;
        }
        let replies = std::mem::take(&mut *waiting);
        drop(waiting);
        // Readers of old arrays may have ended. A failed removal is tried again later.
        let _ = generations::tidy_held(&*shared.disk, &shared.root, &shared.lock);
        let asked = requests(&shared.root);
        let status = shared.status().clone();
        if status.failure.is_some() && renewed.elapsed() >= RENEW {
            renewed = Instant::now();
            // If the queue is full, its writes detect the state of the disk.
            let _ = writer.try_send(Message::Renew);
        }
        let has_rested =
            exchanged.is_none_or(|(when, took)| when.elapsed() >= took * shared.config.rest);
        let is_large = has_rested && status.memory.0 > shared.config.memory.0 / 2;
        let is_due = is_large || (status.log > shared.config.log && status.lsn > status.folded);
        let is_asked = !replies.is_empty() || !asked.is_empty();
        let is_wanted = is_asked || (is_due && Instant::now() >= not_before);
        if !is_wanted {
            continue;
        }
        let began = Instant::now();
        let folded = fold_once(shared, writer, is_large);
        shared.watch.folded(began.elapsed(), folded.is_err());
        let mut status = shared.status();
        match &folded {
            Ok(lsn) => {
                status.folded = *lsn;
                status.folds += 1;
                status.fold_failure = None;
                if is_large {
                    exchanged = Some((Instant::now(), began.elapsed()));
                }
            }
            Err(error) => {
                status.fold_failure = Some(error.to_string());
                not_before = Instant::now() + AGAIN;
            }
        }
        drop(status);
        // Only the requests found before the fold: later ones may refer to updates that it does not
        // contain.
        match &folded {
            Ok(_) => answer(&*shared.disk, &asked),
            // Readers fold the log themselves after this process has ended.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => refuse(&*shared.disk, &asked),
        }
        for reply in replies {
            drop(reply.send(folded.clone()));
        }
    }
}

/// Folds, and passes the new arrays to the writer if the memory of the changes must be freed.
fn fold_once(shared: &Shared, writer: &SyncSender<Message>, rebase: bool) -> Result<u64> {
    let gone = || Error::internal("the writing thread has ended");
    let (reply, rotated) = mpsc::sync_channel(1);
    writer.send(Message::Rotate(reply)).map_err(|_| gone())?;
    let (snapshot, first) = rotated.recv().map_err(|_| gone())??;
    let keep_going = || match shared.stopping.load(Ordering::Relaxed) {
        true => Err(Error::new(ErrorKind::Interrupted, "the graph is being closed")),
        false => Ok(()),
    };
    let disk = &*shared.disk;
    let folded = fold_snapshot(disk, &shared.root, &snapshot, &shared.lock, first, &keep_going)?;
    if rebase {
        let data_set = match folded {
            Some(data_set) => data_set,
            None => DataSet::open(&shared.root)?,
        };
        let (reply, rebased) = mpsc::sync_channel(1);
        writer.send(Message::Rebase(data_set, reply)).map_err(|_| gone())?;
        rebased.recv().map_err(|_| gone())??;
    }
    Ok(snapshot.delta.lsn())
}
