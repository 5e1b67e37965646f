//! A live graph in a process that serves: a thread that writes, one that folds.

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

/// Most writes that one sync makes durable.
const MOST_TOGETHER: usize = 4096;

/// Most updates of those writes: they are applied before the first reply.
const MOST_UPDATES: usize = 1 << 16;

/// Time between two checks whether to fold.
const LOOK: Duration = Duration::from_millis(100);

/// Time between two looks whether a disk that has failed takes writes again.
const RENEW: Duration = Duration::from_secs(1);

/// After a fold that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// What a live graph may use.
#[derive(Clone, Copy, Debug)]
pub struct LiveConfig {
    /// Memory for changes. Half of it is the sign to fold; writes beyond it are refused.
    pub memory: Bytes,
    /// Bytes of the log at which it is folded: what a start would have to read.
    pub log: Bytes,
    /// Writes that may wait; more are refused.
    pub queue: usize,
    /// Least time between two exchanges of the arrays, as a multiple of the duration of the last fold.
    /// It bounds the share of time that fast writers spend on folds. Until then, writes without room
    /// are refused.
    pub rest: u32,
}

impl Default for LiveConfig {
    fn default() -> Self {
        Self { memory: Bytes::mib(128), log: Bytes::mib(256), queue: 4096, rest: 4 }
    }
}

/// How a live graph is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveStatus {
    /// Number of the last acknowledged record.
    pub lsn: u64,
    /// Number of the last record that is in the arrays on disk.
    pub folded: u64,
    /// Memory for changes that is taken.
    pub memory: Bytes,
    /// Bytes of the log's last segment.
    pub log: Bytes,
    /// Folds since the start.
    pub folds: u64,
    /// Why writes fail; `None` while all is well.
    pub failure: Option<String>,
    /// Why the last fold failed; `None` after one that did not.
    pub fold_failure: Option<String>,
}

type Reply = Box<dyn FnOnce(Result<Ack>) + Send>;

enum Message {
    Write(Write, Reply),
    /// Look whether the disk takes writes again.
    Renew,
    /// Begin a segment; the snapshot and its first record go back.
    Rotate(SyncSender<Result<(Arc<Snapshot>, u64)>>),
    Rebase(DataSet, SyncSender<Result<()>>),
}

/// Waits for a fold.
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

/// A graph that takes updates while it is read.
pub struct LiveGraph {
    shared: Arc<Shared>,
    writes: Option<SyncSender<Message>>,
    threads: Vec<JoinHandle<()>>,
}

impl LiveGraph {
    /// Opens the data set in `root` for updates; it is held until the graph is dropped. `watch` is
    /// told of commits and folds.
    ///
    /// **Cost** replays what is in the log.
    ///
    /// # Errors
    /// `Invalid`: somebody else writes to it. As [`Committer::open`].
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
        // Nothing is known of it before the writer has opened it.
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

    /// All that is acknowledged by now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.shared.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hands in a write, whose updates are to take effect together; `reply` is called once they are durable
    /// and in the snapshot, or not at all in either.
    ///
    /// # Errors
    /// `Budget`: too many writes wait, or too much is not folded yet; nothing is written then.
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

    /// As [`LiveGraph::submit`], but waits.
    ///
    /// # Errors
    /// Those of the write.
    pub fn write(&self, write: impl Into<Write>) -> Result<Ack> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.submit(write, Box::new(move |done| drop(reply.send(done))))?;
        answer.recv().map_err(|_| Error::internal("the writing thread has ended"))?
    }

    /// Folds all that is acknowledged into the arrays; returns the number of the last record in
    /// them. Waits.
    ///
    /// # Errors
    /// Failed reads and writes; the graph then works as before the call.
    pub fn fold(&self) -> Result<u64> {
        let (reply, answer) = mpsc::sync_channel(1);
        let mut wanted = self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.push(reply);
        drop(wanted);
        self.shared.wake.notify_one();
        answer.recv().map_err(|_| Error::internal("the graph is being closed"))?
    }

    /// How it is doing.
    pub fn status(&self) -> LiveStatus {
        self.shared.status().clone()
    }
}

impl Drop for LiveGraph {
    /// Writes what was handed in, and lets go of the data set.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.wake.notify_one();
        self.writes = None;
        for thread in self.threads.drain(..) {
            // One that panicked has said so itself.
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
                // Otherwise it is tried again; the failure is known already.
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

/// Commits a write with those that wait behind it; returns a message of another kind that ended
/// them.
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
    // Before the replies, so that a client that reads after its reply sees its own write.
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
    // When, and how long it took.
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
        // Readers of old arrays may have ended. What fails now is tried again.
        let _ = generations::tidy_held(&*shared.disk, &shared.root, &shared.lock);
        let asked = requests(&shared.root);
        let status = shared.status().clone();
        if status.failure.is_some() && renewed.elapsed() >= RENEW {
            renewed = Instant::now();
            // A queue that is full has writes that find out themselves.
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
        // Those that came later may ask for updates that this fold does not hold.
        match &folded {
            Ok(_) => answer(&*shared.disk, &asked),
            // Readers fold by themselves once this process has ended.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => refuse(&*shared.disk, &asked),
        }
        for reply in replies {
            drop(reply.send(folded.clone()));
        }
    }
}

/// Folds, and gives the writer the new arrays where the memory for changes is wanted back.
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
