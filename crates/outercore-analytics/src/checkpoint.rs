//! Checkpoints: the state of the nodes between two passes, so that a long run can resume later.
//!
//! A checkpoint is independent of budgets, threads and scratch files. The state is written in the
//! order of the partitions, wherever it is stored, and a resumed run may have another budget.

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

/// Names the valid state; replaced atomically.
const RECORD: &str = "checkpoint.json";

/// The record during writing.
const UNFINISHED: &str = "checkpoint.tmp";

/// Locked by the run that writes checkpoints.
const LOCK: &str = "checkpoint.lock";

const STATES: [&str; 2] = ["state-0.bin", "state-1.bin"];

/// The algorithm option on which the state does not depend. Earlier builds stored it as 0.
pub(crate) const WHEN_TO_END: &str = "max_iterations";

/// Bytes written at a time.
const CHUNK: usize = 256 << 10;

/// Memory for writing a checkpoint.
pub(crate) const MEMORY: Bytes = Bytes(CHUNK as u64);

/// Checkpoints take at most one part in this many of a run's time, even with a short interval.
const SHARE: u32 = 10;

/// Interval after a checkpoint failed for lack of space.
const NEVER: Duration = Duration::MAX;

/// Receives the next bytes of a state.
pub(crate) type WriteTo<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// `checkpoint.json`: a record, and its checksum.
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
    /// Description of the algorithm and its input, as far as results depend on them.
    fingerprint: Value,
    /// State of the algorithm's loop.
    at: Value,
    bytes: u64,
    checksum: String,
}

/// When and where to write checkpoints; locks the directory against other runs.
pub struct Checkpoints {
    held: Held,
    fingerprint: Value,
    interval: Duration,
    generation: u64,
    /// Completion time of the last checkpoint, and its duration.
    last: Instant,
    took: Duration,
    written: u64,
    bytes: u64,
    saved: Option<(Saved, Value)>,
    /// Whether the algorithm writes checkpoints; true after its state exists.
    begun: bool,
    /// A stop request that waits for a checkpoint.
    stopping: Option<Error>,
}

impl Checkpoints {
    /// Opens checkpoints in `directory` for a run described by `fingerprint`, `interval` apart
    /// (zero: after every pass). With `resume`, the run continues from the existing checkpoint. If
    /// dropped before the first checkpoint, it leaves no files.
    ///
    /// # Errors
    /// `NotFound`: no checkpoint to resume from. `Invalid`: a checkpoint exists, but `resume` is
    /// not set, or it belongs to another run. `Version`, `Corrupt`.
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

    /// Whether a checkpoint exists.
    pub(crate) fn is_there(&self) -> bool {
        self.generation > 0
    }

    /// Number of checkpoints written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes of state in all checkpoints written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The state and the loop to resume from; returned once.
    pub(crate) fn resume(&mut self) -> Option<(Saved, Value)> {
        self.saved.take()
    }

    /// Marks the point from which the algorithm checks after every pass whether a checkpoint is
    /// due.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
        self.last = Instant::now();
    }

    /// Accepts a stop request, to be fulfilled after the next checkpoint. Returns the error if no
    /// checkpoint will follow, or if it is the second request.
    pub(crate) fn wait_for_pass(&mut self, error: Error) -> Result<()> {
        if !self.begun || self.stopping.is_some() || error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
        self.stopping = Some(error);
        Ok(())
    }

    pub(crate) fn is_due(&self) -> bool {
        let wait = match self.interval {
            // After every pass, at any cost.
            Duration::ZERO => Duration::ZERO,
            interval => interval.max(self.took.saturating_mul(SHARE)),
        };
        self.stopping.is_some() || self.last.elapsed() >= wait
    }

    /// Writes a checkpoint; `state` writes its bytes, in pieces, to the given function. Until the
    /// last rename, the previous checkpoint stays valid.
    ///
    /// # Errors
    /// A failed write; the stop request, after the checkpoint.
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
            // A full disk ends the checkpoints, not the run; the last complete one stays.
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

/// The directory of checkpoints, locked against other runs. As long as it has no record, it is
/// restored to the state in which it was found.
struct Held {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    /// Directories that did not exist before, starting with the deepest.
    made: Vec<PathBuf>,
    lock: Option<FileLock>,
    /// Whether this run has started to write.
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

    /// Removes only the files of a run that has no checkpoint.
    fn clear(&self) -> Result<()> {
        let unfinished = STATES.into_iter().chain([UNFINISHED]).filter(|_| self.written);
        for name in unfinished.chain([LOCK]).filter(|_| self.lock.is_some()) {
            self.disk.remove_file(&self.directory.join(name))?;
        }
        for directory in &self.made {
            // A directory with other content stays.
            std::fs::remove_dir(directory)?;
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.has_record() {
            // If this fails, files remain; the result of the run is more important.
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

    /// Checks that the record belongs to the run that `expected` describes.
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

/// The relevant part of a fingerprint.
fn counting(described: &Value) -> Value {
    let mut counting = described.clone();
    if let Value::Object(options) = &mut counting {
        options.remove(WHEN_TO_END);
    }
    counting
}

/// The state of a checkpoint, read once from start to end.
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

    /// Reads the next bytes.
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

    /// Checks the state after all of it has been read.
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

    /// Makes the file durable; returns its length and checksum.
    fn end(mut self) -> Result<(u64, String)> {
        if !self.chunk.is_empty() {
            self.file.write_all(&self.chunk)?;
        }
        self.file.sync()?;
        Ok((self.bytes, format!("{:016x}", self.sum.digest())))
    }
}

/// A float of a loop, stored as its bits: JSON rounds numbers and has no infinity.
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
