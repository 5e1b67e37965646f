//! Scratch files for state that does not fit into memory.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use outercore_core::{Bytes, Error, ErrorKind, Result, hint};
use outercore_io::{
    Arena, Backend, DirectDisk, Disk, Engine, EngineConfig, FileId, Lease, RealDisk, Unnamed,
};
use serde::Serialize;
use xxhash_rust::xxh3::Xxh3Default;

use super::stored::{PAGE, Stored};

/// Memory for reads in flight.
const STAGING: Bytes = Bytes::kib(512);

/// Bytes written at a time.
const CHUNK: usize = 128 << 10;

/// Memory of a [`Spill`] itself.
pub(crate) const BUFFERS: Bytes = Bytes(STAGING.0 + CHUNK as u64);

/// Number of partitions in memory at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// Target partitions.
    pub group: usize,
    /// Source partitions, without the one that is being loaded.
    pub sources: usize,
    /// Memory for assembling a result, after all passes.
    pub room: Bytes,
}

/// Transfers between memory and scratch files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SpillCounters {
    /// Bytes read: whole pages.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
    /// Seconds of reading and writing.
    pub seconds: f64,
    /// Most bytes of files in the scratch directory at one time, including a result file.
    pub most: Bytes,
}

impl SpillCounters {
    /// The transfers since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            read: Bytes(self.read.0 - before.read.0),
            written: Bytes(self.written.0 - before.written.0),
            seconds: self.seconds - before.seconds,
            most: self.most,
        }
    }
}

/// Scratch files of a run. They have no names, so they disappear however the run ends.
pub struct Spill {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    slots: Slots,
    inner: Mutex<Inner>,
}

struct Inner {
    engine: Engine,
    files: Vec<Scratch>,
    /// Bytes of all files.
    held: u64,
    /// Page-aligned, so that writes can be direct.
    chunk: Lease,
    counters: SpillCounters,
}

/// A file that the engine reads, and that can be written.
struct Scratch {
    id: FileId,
    unnamed: Unnamed,
    bytes: u64,
}

impl Spill {
    /// Creates scratch space in `directory`, which is created if missing, read by `backend`.
    ///
    /// # Errors
    /// The directory cannot be made; the back end does not work.
    pub fn create(directory: &Path, backend: Backend, slots: Slots) -> Result<Self> {
        // A memory mapping would not see direct writes reliably, so use ordinary writes.
        let disk: Arc<dyn Disk> = match backend {
            Backend::Mmap => Arc::new(RealDisk),
            _ => Arc::new(DirectDisk),
        };
        Self::create_on(disk, directory, backend, slots)
    }

    /// Scratch space on the caller's disk, for tests with faults.
    ///
    /// # Errors
    /// As [`Spill::create`].
    pub fn create_on(
        disk: Arc<dyn Disk>,
        directory: &Path,
        backend: Backend,
        slots: Slots,
    ) -> Result<Self> {
        disk.create_dir_all(directory).map_err(|error| in_scratch(error, directory))?;
        let engine = EngineConfig { backend, staging: STAGING, depth: 16, tier: None };
        let no_memory = || Error::internal("no memory to write state from");
        let chunk = Arena::new(Bytes(CHUNK as u64))?.lease(CHUNK).ok_or_else(no_memory)?;
        let inner = Inner {
            engine: Engine::open(engine)?,
            files: Vec::new(),
            held: 0,
            chunk,
            counters: SpillCounters::default(),
        };
        let directory = directory.to_owned();
        Ok(Self { disk, directory, slots, inner: Mutex::new(inner) })
    }

    /// Number of partitions in memory at one time.
    pub fn slots(&self) -> Slots {
        self.slots
    }

    /// Transfers so far.
    pub fn counters(&self) -> SpillCounters {
        self.inner().counters
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a file of `bytes` bytes, without a name.
    pub(super) fn file(&self, bytes: u64) -> Result<usize> {
        let mut inner = self.inner();
        let mut open = || {
            let mut unnamed = self.disk.create_unnamed(&self.directory)?;
            unnamed.file.set_len(bytes.max(1))?;
            let id = inner.engine.register(&unnamed.path())?;
            inner.files.push(Scratch { id, unnamed, bytes });
            inner.hold(bytes);
            Ok(inner.files.len() - 1)
        };
        open().map_err(|error| in_scratch(error, &self.directory))
    }

    /// Counts a file of another component in the same directory.
    pub(crate) fn hold(&self, bytes: u64) {
        self.inner().hold(bytes);
    }

    /// Frees the space of a file whose bytes are no longer needed.
    pub(super) fn empty(&self, file: usize) {
        let mut inner = self.inner();
        let file = &mut inner.files[file];
        // If this fails, the space is freed at the end of the run.
        let _ = file.unnamed.file.set_len(0);
        let bytes = std::mem::take(&mut file.bytes);
        inner.held -= bytes;
    }

    /// Writes a value at `offset`, a multiple of a page; returns its checksum.
    pub(super) fn write<T: Stored>(&self, file: usize, offset: u64, value: &T) -> Result<u64> {
        let mut inner = self.inner();
        let Inner { files, chunk, counters, .. } = &mut *inner;
        let began = Instant::now();
        let mut sum = Xxh3Default::new();
        let (mut filled, mut at) = (0, offset);
        let file = &mut files[file].unnamed.file;
        let mut flush = |bytes: &[u8], at: &mut u64| {
            file.write_at(*at, bytes).map_err(|error| in_scratch(error, &self.directory))?;
            *at += bytes.len() as u64;
            Ok::<(), Error>(())
        };
        for mut column in value.columns() {
            sum.update(column);
            while !column.is_empty() {
                let len = column.len().min(CHUNK - filled);
                chunk[filled..filled + len].copy_from_slice(&column[..len]);
                (filled, column) = (filled + len, &column[len..]);
                if filled == CHUNK {
                    flush(&chunk[..CHUNK], &mut at)?;
                    filled = 0;
                }
            }
        }
        let padded = filled.next_multiple_of(PAGE as usize);
        chunk[filled..padded].fill(0);
        if padded > 0 {
            flush(&chunk[..padded], &mut at)?;
        }
        counters.written.0 += at - offset;
        counters.seconds += began.elapsed().as_secs_f64();
        Ok(sum.digest())
    }

    /// Fills a value with the bytes written at `offset`.
    pub(super) fn read<T: Stored>(
        &self,
        file: usize,
        offset: u64,
        sum: u64,
        value: &mut T,
    ) -> Result<()> {
        let mut inner = self.inner();
        let Inner { engine, files, counters, .. } = &mut *inner;
        let began = Instant::now();
        let mut found = Xxh3Default::new();
        let mut at = offset;
        for column in value.columns_mut() {
            engine
                .read_into(files[file].id, at, column)
                .map_err(|error| in_scratch(error, &self.directory))?;
            found.update(column);
            at += column.len() as u64;
        }
        counters.read.0 += (at - offset).next_multiple_of(PAGE);
        counters.seconds += began.elapsed().as_secs_f64();
        drop(inner);
        if found.digest() != sum {
            let error = Error::corrupt(format!("byte {offset}: other bytes than were written"));
            return Err(in_scratch(error, &self.directory).hint("the device is failing"));
        }
        Ok(())
    }
}

impl Inner {
    fn hold(&mut self, bytes: u64) {
        self.held += bytes;
        self.counters.most = self.counters.most.max(Bytes(self.held));
    }
}

/// Adds the purpose of the file and a hint.
fn in_scratch(error: Error, directory: &Path) -> Error {
    let what = format!("state of the nodes in scratch directory `{}`", directory.display());
    if error.kind() == ErrorKind::NoSpace {
        return Error::new(ErrorKind::NoSpace, format!("{what}: no space left on the device"))
            .hint(hint!("free space, choose another directory by `scratch`, or raise " {memory}));
    }
    error.context(what)
}
