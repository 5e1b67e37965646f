//! Checkpoints: the state of the nodes between two passes, so that a long run can go on later.
//!
//! A checkpoint does not know of budgets, threads or scratch files: the state is written in the
//! order of the partitions, wherever it lies, and a run that goes on may have another budget.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_format::Checksum;
use outercore_io::{Disk, FileLock, WriteFile};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3Default;

/// The version that this build writes and reads.
const VERSION: u32 = 1;

/// What says which state counts; replaced atomically.
const RECORD: &str = "checkpoint.json";

/// The record while it is written.
const UNFINISHED: &str = "checkpoint.tmp";

/// Held by the run that leaves checkpoints.
const LOCK: &str = "checkpoint.lock";

const STATES: [&str; 2] = ["state-0.bin", "state-1.bin"];

/// Of an algorithm's options the one that its state does not depend on. Earlier builds wrote it
/// down, as 0.
pub(crate) const WHEN_TO_END: &str = "max_iterations";

/// Written at a time.
const CHUNK: usize = 256 << 10;

/// Memory for writing one.
pub(crate) const MEMORY: Bytes = Bytes(CHUNK as u64);

/// Of a run's time at most this share goes into checkpoints, however short the interval.
const SHARE: u32 = 10;

/// Between two checkpoints where there is no room for more.
const NEVER: Duration = Duration::MAX;

/// Takes the next bytes of a state.
pub(crate) type WriteTo<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// `checkpoint.json`: a record, and what it is checked against.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    version: u32,
    record: Value,
    checksum: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    generation: u64,
    /// What was run on what, as far as results depend on it.
    fingerprint: Value,
    /// Where the algorithm's loop was.
    at: Value,
    bytes: u64,
    checksum: String,
}

/// When to leave checkpoints, and where; holds the directory against other runs.
pub struct Checkpoints {
    held: Held,
    fingerprint: Value,
    interval: Duration,
    generation: u64,
    /// When the last checkpoint was complete, and how long it took.
    last: Instant,
    took: Duration,
    written: u64,
    bytes: u64,
    saved: Option<(Saved, Value)>,
    /// Whether the algorithm leaves checkpoints: from its first pass on.
    begun: bool,
    /// The wish to stop, until there is a checkpoint.
    stopping: Option<Error>,
}

impl Checkpoints {
    /// Checkpoints in `directory`, of a run that `fingerprint` describes, `interval` apart (zero:
    /// after every pass). With `resume` the run goes on from the one that is there. Dropped before
    /// there is one, it leaves no trace.
    ///
    /// # Errors
    /// `NotFound`: nothing to go on from. `Invalid`: there is a checkpoint, and it is not to be
    /// gone on from; or it is one of another run. `Version`, `Corrupt`.
    pub fn open(
        disk: Arc<dyn Disk>,
        directory: &Path,
        fingerprint: Value,
        interval: Duration,
        resume: bool,
    ) -> Result<Self> {
        let shown = directory.display();
        let nothing = || {
            let text = format!("checkpoint `{shown}` does not exist");
            Error::new(ErrorKind::NotFound, text).hint("begin a new run")
        };
        if resume && !directory.exists() {
            return Err(nothing());
        }
        let held = Held::acquire(disk, directory)?;
        let found = Record::load(directory)?;
        let (generation, saved) = match (found, resume) {
            (None, true) => return Err(nothing()),
            (Some(_), false) => {
                return Err(Error::invalid(format!("checkpoint `{shown}` exists"))
                    .hint("resume the run, or begin a new one in another directory"));
            }
            (None, false) => (0, None),
            (Some(record), true) => {
                record.check(&fingerprint).with_context(|| format!("checkpoint `{shown}`"))?;
                let saved = Saved::open(directory, &record)?;
                (record.generation + 1, Some((saved, record.at)))
            }
        };
        Ok(Self {
            held,
            fingerprint,
            interval,
            generation,
            last: Instant::now(),
            took: Duration::ZERO,
            written: 0,
            bytes: 0,
            saved,
            begun: false,
            stopping: None,
        })
    }

    /// Whether there is one to go on from.
    pub(crate) fn is_there(&self) -> bool {
        self.generation > 0
    }

    /// How many have been left.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes of state that they have had, all together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The state to go on from and where the loop was; once.
    pub(crate) fn resume(&mut self) -> Option<(Saved, Value)> {
        self.saved.take()
    }

    /// From here on the algorithm asks after every pass whether a checkpoint is due.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
        self.last = Instant::now();
    }

    /// Takes the wish to stop, to be granted once there is a checkpoint; gives it back where none
    /// will come or where it is the second.
    pub(crate) fn wait_for_pass(&mut self, error: Error) -> Result<()> {
        if !self.begun || self.stopping.is_some() || error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
        self.stopping = Some(error);
        Ok(())
    }

    pub(crate) fn is_due(&self) -> bool {
        let wait = match self.interval {
            // After every pass, whatever it costs.
            Duration::ZERO => Duration::ZERO,
            interval => interval.max(self.took.saturating_mul(SHARE)),
        };
        self.stopping.is_some() || self.last.elapsed() >= wait
    }

    /// Writes a checkpoint: `state` writes its bytes, in pieces, to what it is given. Up to the
    /// last rename the one before counts.
    ///
    /// # Errors
    /// A failed write; the wish to stop, afterwards.
    pub(crate) fn write(
        &mut self,
        at: Value,
        state: &mut dyn FnMut(WriteTo<'_>) -> Result<()>,
    ) -> Result<()> {
        let began = Instant::now();
        let write = |this: &mut Self| -> Result<()> {
            this.held.written = true;
            let Held { disk, directory, .. } = &this.held;
            let path = directory.join(STATES[this.generation as usize % 2]);
            let mut sink = Sink::new(disk.create(&path)?);
            state(&mut |bytes| sink.write(bytes))?;
            let (bytes, checksum) = sink.end()?;
            this.bytes += bytes;
            disk.sync_dir(directory)?;
            let record = Record {
                generation: this.generation,
                fingerprint: this.fingerprint.clone(),
                at,
                bytes,
                checksum,
            };
            let text = record.seal().map_err(|error| Error::internal(error.to_string()))?;
            disk.replace(&directory.join(RECORD), &text)
        };
        match write(self) {
            Ok(()) => {
                self.generation += 1;
                self.written += 1;
            }
            // A full disk ends the checkpoints, not the run; the last whole one stays.
            Err(error) if error.kind() == ErrorKind::NoSpace => self.interval = NEVER,
            Err(error) => {
                let shown = self.held.directory.display();
                return Err(error.context(format!("checkpoint `{shown}`")));
            }
        }
        self.took = began.elapsed();
        self.last = Instant::now();
        match self.stopping.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// The directory of checkpoints, held against other runs. As long as there is no record in it, it is
/// left as it was found.
struct Held {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Directories that were not there before, from the deepest one up.
    made: Vec<PathBuf>,
    lock: Option<FileLock>,
    /// Whether this run has begun to write.
    written: bool,
}

impl Held {
    fn acquire(disk: Arc<dyn Disk>, directory: &Path) -> Result<Self> {
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = directory.ancestors().take_while(missing).map(Path::to_owned).collect();
        disk.create_dir_all(directory)?;
        let mut held =
            Self { disk, directory: directory.to_owned(), made, lock: None, written: false };
        let lock = FileLock::acquire(&directory.join(LOCK));
        held.lock = Some(lock.with_context(|| format!("checkpoint `{}`", directory.display()))?);
        Ok(held)
    }

    fn has_record(&self) -> bool {
        self.directory.join(RECORD).exists()
    }

    /// Removes what a run without a checkpoint has left, and nothing else.
    fn clear(&self) -> Result<()> {
        let unfinished = STATES.into_iter().chain([UNFINISHED]).filter(|_| self.written);
        for name in unfinished.chain([LOCK]).filter(|_| self.lock.is_some()) {
            self.disk.remove_file(&self.directory.join(name))?;
        }
        for directory in &self.made {
            // One that is not empty stays.
            std::fs::remove_dir(directory)?;
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.has_record() {
            // What cannot be removed stays: how the run ended matters more.
            let _ = self.clear();
        }
    }
}

impl Record {
    fn load(directory: &Path) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let path = directory.join(RECORD);
        let describe = || format!("checkpoint `{}`", path.display());
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(describe),
        };
        let corrupt = |error| {
            Error::corrupt(format!("{}: {error}", describe())).hint("remove it and begin anew")
        };
        let found: Versioned = serde_json::from_slice(&text).map_err(corrupt)?;
        if found.version != VERSION {
            let text = format!("{}: version {}, expected {VERSION}", describe(), found.version);
            return Err(Error::new(ErrorKind::Version, text)
                .hint("go on with the release that wrote it, or begin anew"));
        }
        let sealed: Sealed = serde_json::from_slice(&text).map_err(corrupt)?;
        let found = Checksum::of(sealed.record.to_string().as_bytes());
        if found != sealed.checksum {
            let text = format!("{}: checksum {found}, expected {}", describe(), sealed.checksum);
            return Err(Error::corrupt(text).hint("remove it and begin anew"));
        }
        serde_json::from_value(sealed.record).map(Some).map_err(corrupt)
    }

    fn seal(&self) -> serde_json::Result<Vec<u8>> {
        let record = serde_json::to_value(self)?;
        let checksum = Checksum::of(record.to_string().as_bytes());
        serde_json::to_vec_pretty(&Sealed { version: VERSION, record, checksum })
    }

    /// Whether it is one of the run that `expected` describes.
    fn check(&self, expected: &Value) -> Result<()> {
        let (Value::Object(found), Value::Object(expected)) = (&self.fingerprint, expected) else {
            return Err(Error::corrupt("it does not say what was run"));
        };
        for (what, expected) in expected {
            let found = found.get(what).map_or(Value::Null, counting);
            let expected = counting(expected);
            if found != expected {
                return Err(Error::invalid(format!("{what} {found}, expected {expected}"))
                    .hint("it is one of another run: choose another directory"));
            }
        }
        Ok(())
    }
}

/// What of a part of a fingerprint counts.
fn counting(described: &Value) -> Value {
    let mut counting = described.clone();
    if let Value::Object(options) = &mut counting {
        options.remove(WHEN_TO_END);
    }
    counting
}

/// The state of a checkpoint, to be read from its beginning to its end.
pub(crate) struct Saved {
    file: File,
    path: PathBuf,
    left: u64,
    sum: Xxh3Default,
    checksum: String,
}

impl Saved {
    fn open(directory: &Path, record: &Record) -> Result<Self> {
        let path = directory.join(STATES[record.generation as usize % 2]);
        let file = File::open(&path).with_context(|| format!("checkpoint `{}`", path.display()))?;
        let checksum = record.checksum.clone();
        Ok(Self { file, path, left: record.bytes, sum: Xxh3Default::new(), checksum })
    }

    /// The next bytes.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Result<()> {
        if (into.len() as u64) > self.left {
            return Err(self.damaged("too short"));
        }
        let path = &self.path;
        self.file.read_exact(into).with_context(|| format!("checkpoint `{}`", path.display()))?;
        self.sum.update(into);
        self.left -= into.len() as u64;
        Ok(())
    }

    /// All has been read: checks it.
    pub(crate) fn end(self) -> Result<()> {
        if self.left > 0 {
            return Err(self.damaged(&format!("{} bytes too long", self.left)));
        }
        let found = format!("{:016x}", self.sum.digest());
        if found != self.checksum {
            return Err(self.damaged(&format!("checksum {found}, expected {}", self.checksum)));
        }
        Ok(())
    }

    fn damaged(&self, what: &str) -> Error {
        Error::corrupt(format!("checkpoint `{}`: {what}", self.path.display()))
            .hint("remove it and begin anew")
    }
}

/// A file that is written in long pieces.
struct Sink {
    file: Box<dyn WriteFile>,
    chunk: Vec<u8>,
    sum: Xxh3Default,
    bytes: u64,
}

impl Sink {
    fn new(file: Box<dyn WriteFile>) -> Self {
        Self { file, chunk: Vec::with_capacity(CHUNK), sum: Xxh3Default::new(), bytes: 0 }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.sum.update(bytes);
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(CHUNK - self.chunk.len()));
            self.chunk.extend_from_slice(part);
            bytes = rest;
            if self.chunk.len() == CHUNK {
                self.file.write_all(&self.chunk)?;
                self.chunk.clear();
            }
        }
        Ok(())
    }

    /// Makes it durable; its length and checksum.
    fn end(mut self) -> Result<(u64, String)> {
        if !self.chunk.is_empty() {
            self.file.write_all(&self.chunk)?;
        }
        self.file.sync()?;
        Ok((self.bytes, format!("{:016x}", self.sum.digest())))
    }
}

/// A number of a loop as its bits: JSON rounds, and knows no infinity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct FloatBits(u64);

impl From<f64> for FloatBits {
    fn from(value: f64) -> Self {
        Self(value.to_bits())
    }
}

impl FloatBits {
    pub(crate) fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

#[cfg(test)]
mod tests;
