//! Far memory as a tier of the I/O engine: which parts of which files are on the server.

mod place;
mod reader;
mod tally;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_io::{Arena, Engine, Reader, Tier};
use serde::{Deserialize, Serialize};

use crate::client::Connection;
use crate::counters::FarCounters;
use crate::data_plane::DataPlane;
use crate::options::FarOptions;
use crate::placement::{self, Extent, Placement};
use crate::queue::Arrivals;
use crate::region::{Region, RegionKey};
use crate::remote::Remote;

use place::Failure;
pub use place::OnProgress;
use reader::FarReader;
use tally::Tally;

/// Result of copying to far memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Copied bytes.
    pub bytes: u64,
    /// Bytes that were already there.
    pub already: u64,
    /// Bytes that the disk serves because the server was full or gone.
    pub refused: u64,
}

/// Expected content of a file that is kept on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents<'a> {
    /// Name for keeping it: equal names mean equal bytes.
    pub name: &'a str,
    /// Checksum of its data, from the manifest of a data set.
    pub checksum: &'a str,
    /// The range of the file that the checksum covers.
    pub data: Range<u64>,
}

/// Copies of files in far memory, as a tier of the I/O engine.
///
/// Whole files are found by their content name ([`FarTier::find`]). Ranges of files are copied to
/// private regions ([`FarTier::place`]), which are freed when the tier and all its readers are
/// dropped. Files must not change while they are in use; a file that was replaced before it is
/// opened is read from the disk.
///
/// When the server is gone, [`FarOptions::fallback`] decides. With fallback, all reads go to the
/// disk, including reads in flight. Without it, every read of placed bytes fails with an error of
/// kind `Io` that names server and file. [`FarCounters::lost`] holds the first failure.
///
/// **Memory** the receive buffers are the engine's staging memory; each engine has
/// [`FarOptions::queues`] queues.
pub struct FarTier {
    shared: Arc<Shared>,
}

/// State that a tier shares with its readers.
pub(crate) struct Shared {
    pub(crate) remote: Arc<dyn Remote>,
    pub(crate) options: FarOptions,
    files: RwLock<HashMap<PathBuf, Arc<FarFile>>>,
    /// Private regions, to be freed at the end.
    private: Mutex<Vec<Region>>,
    alive: AtomicBool,
    lost: Mutex<Option<String>>,
    pub(crate) tally: Tally,
}

/// A file of which parts may be placed.
#[derive(Debug)]
pub(crate) struct FarFile {
    stamp: Stamp,
    placement: RwLock<Placement>,
}

/// Distinguishes a file from a later file at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub(crate) len: u64,
    modified: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let found =
            std::fs::metadata(path).with_context(|| format!("file `{}`", path.display()))?;
        Ok(Self {
            device: found.dev(),
            inode: found.ino(),
            len: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }
}

impl FarTier {
    /// Connects to the server of `options`.
    ///
    /// An unreachable server is an error even with fallback: nothing has begun yet, and the address
    /// may be mistyped.
    ///
    /// # Errors
    /// Errors of [`Connection::build`].
    pub fn connect(options: &FarOptions) -> Result<Self> {
        Self::connect_with(options, None)
    }

    /// As [`FarTier::connect`], with a data plane for `fabric://` addresses.
    ///
    /// # Errors
    /// Errors of [`Connection::build_with`].
    pub fn connect_with(options: &FarOptions, plane: Option<&dyn DataPlane>) -> Result<Self> {
        Self::over_remote(Arc::new(Connection::build_with(options, plane)?), options)
    }

    /// A tier over an existing connection.
    ///
    /// # Errors
    /// `Invalid`: options out of range.
    pub fn over_remote(remote: Arc<dyn Remote>, options: &FarOptions) -> Result<Self> {
        options.validate()?;
        let shared = Shared {
            remote,
            options: options.clone(),
            files: RwLock::default(),
            private: Mutex::default(),
            alive: AtomicBool::new(true),
            lost: Mutex::default(),
            tally: Tally::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Looks for the whole file by its content name. Returns `false` if it is not there or has
    /// another length than on disk, or if the server is gone and fallback is on.
    ///
    /// The content is not checked: a region with this name and the right length is read instead of
    /// the file. [`FarTier::keep`] only stores bytes that match their checksum, but any client with
    /// the server's token may store anything under any name.
    ///
    /// **Cost** one control message per GiB.
    ///
    /// # Errors
    /// The file is missing; `Io`: the server is gone, without fallback.
    pub fn find(&self, path: &Path, content_name: &str) -> Result<bool> {
        let shared = &self.shared;
        let stamp = Stamp::of(path)?;
        if !shared.may_ask()? {
            return Ok(false);
        }
        let looked_for = self.regions_of(content_name, stamp.len);
        let Some(extents) = shared.or_disk(looked_for, Option::default)? else {
            return Ok(false);
        };
        let file = shared.file(path, stamp)?;
        // A repeated search finds nothing new.
        let new = placement::total(&file.missing(&(0..stamp.len)));
        shared.tally.found_bytes.fetch_add(new, Ordering::Relaxed);
        file.insert(extents);
        Ok(true)
    }

    fn regions_of(&self, content_name: &str, len: u64) -> Result<Option<Vec<Extent>>> {
        let mut extents = Vec::new();
        for (name, range) in placement::parts(content_name, len) {
            match self.shared.remote.find(&name)? {
                Some(region) if region.len.0 == range.end - range.start => {
                    extents.push(Extent { range, region, offset: 0 });
                }
                _ => return Ok(None),
            }
        }
        Ok((!extents.is_empty()).then_some(extents))
    }

    /// Copies ranges of a file to private regions, in order, as long as the server has room.
    ///
    /// `engine` reads the file. `on_progress(done, total)` receives bytes, and its error stops the
    /// copy. Placed ranges are not copied again.
    ///
    /// **Cost** reads and sends every byte once; uses up to eight chunks of memory.
    ///
    /// # Errors
    /// A failed read; `Corrupt`: the file changed meanwhile; `Io`: the server is gone, without
    /// fallback. A region that failed is removed from the server.
    pub fn place(
        &self,
        path: &Path,
        ranges: &[Range<u64>],
        engine: &mut Engine,
        on_progress: OnProgress<'_>,
    ) -> Result<Placed> {
        let shared = &self.shared;
        let stamp = Stamp::of(path)?;
        let file = shared.file(path, stamp)?;
        let wanted = placement::whole_pages(ranges, stamp.len);
        let missing: Vec<_> = wanted.iter().flat_map(|range| file.missing(range)).collect();
        let already = placement::total(&wanted) - placement::total(&missing);
        let mut placed = Placed { already, ..Placed::default() };
        if missing.is_empty() {
            return Ok(placed);
        }
        if !shared.may_ask()? {
            placed.refused = placement::total(&missing);
            return Ok(placed);
        }
        let source = place::Source { path, stamp };
        let mut on_region = |region: Region, extents: Vec<Extent>| {
            let bytes = extents.iter().map(|extent| extent.range.end - extent.range.start).sum();
            shared.private().push(region);
            file.insert(extents);
            shared.tally.placed_bytes.fetch_add(bytes, Ordering::Relaxed);
            placed.bytes += bytes;
        };
        let copied =
            place::copy_ranges(shared, source, &missing, engine, on_progress, &mut on_region);
        match copied {
            Err(failure) if failure.at_server => shared.or_disk(Err(failure.error), || ())?,
            Err(failure) => return Err(failure.error),
            Ok(()) => {}
        }
        placed.refused =
            missing.iter().flat_map(|range| file.missing(range)).map(|r| r.end - r.start).sum();
        Ok(placed)
    }

    /// Copies a whole file to the server and keeps it under its content name, so that any client
    /// can [`find`](FarTier::find) it. Files above one GiB are kept in parts; existing parts are
    /// not sent again.
    ///
    /// The bytes are compared with the checksum while they are read, and nothing can be found
    /// before they match. If the server has too little room for the missing parts, all of them are
    /// refused.
    ///
    /// **Cost** reads every byte once and sends the missing ones; uses up to sixteen chunks of
    /// memory.
    ///
    /// # Errors
    /// A failed read. `Invalid`: an empty file, or another client is copying it now. `Corrupt`: the
    /// bytes do not match the checksum, or the file changed meanwhile. `Io`: the server is gone,
    /// with or without fallback. After an error nothing new stays on the server, with one
    /// exception: a connection that is lost at the very end may leave some of several parts.
    /// Keeping the file again adds the rest.
    pub fn keep(
        &self,
        path: &Path,
        contents: &Contents<'_>,
        engine: &mut Engine,
        on_progress: OnProgress<'_>,
    ) -> Result<Placed> {
        let shared = &self.shared;
        let stamp = Stamp::of(path)?;
        if stamp.len == 0 {
            return Err(Error::invalid(format!("file `{}` is empty", path.display())));
        }
        if let Some(why) = shared.why_lost() {
            return Err(Error::new(ErrorKind::Io, why));
        }
        if self.find(path, contents.name)? {
            return Ok(Placed { already: stamp.len, ..Placed::default() });
        }
        let source = place::Source { path, stamp };
        let parts = placement::parts(contents.name, stamp.len);
        match place::copy_whole(shared, source, &parts, contents, engine, on_progress) {
            Ok((extents, sent)) => {
                shared.file(path, stamp)?.insert(extents);
                // Parts overlap, so more bytes may be sent than the file has.
                let bytes = sent.min(stamp.len);
                shared.tally.placed_bytes.fetch_add(bytes, Ordering::Relaxed);
                Ok(Placed { bytes, already: stamp.len - bytes, ..Placed::default() })
            }
            Err(failure) if !failure.at_server => Err(failure.error),
            Err(Failure { error, .. }) if error.kind() == ErrorKind::NoSpace => {
                Ok(Placed { refused: stamp.len, ..Placed::default() })
            }
            Err(Failure { error, .. }) => {
                shared.note(&error);
                Err(shared.named(error))
            }
        }
    }

    /// Counters of the tier and all its readers.
    pub fn counters(&self) -> FarCounters {
        let tally = &self.shared.tally;
        let read = |value: &AtomicU64| value.load(Ordering::Relaxed);
        FarCounters {
            far_requests: read(&tally.far.requests),
            far_bytes: read(&tally.far.bytes),
            disk_requests: read(&tally.disk.requests),
            disk_bytes: read(&tally.disk.bytes),
            failed_over: read(&tally.failed_over),
            placed_bytes: read(&tally.placed_bytes),
            found_bytes: read(&tally.found_bytes),
            queue_bytes: Bytes(read(&tally.most_queue_bytes)),
            lost: self.shared.why_lost(),
        }
    }

    /// Whether the server has answered all requests so far.
    pub fn is_alive(&self) -> bool {
        self.shared.is_alive()
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}

impl Tier for FarTier {
    fn over(&self, disk: Box<dyn Reader>, arena: &Arena, depth: usize) -> Result<Box<dyn Reader>> {
        let shared = &self.shared;
        let arrivals = Arrivals::default();
        let mut queues = Vec::new();
        if shared.may_ask()? {
            let opened = (0..shared.options.queues)
                .map(|_| {
                    let (length, chunk) = (shared.options.queue_length, shared.options.chunk);
                    shared.remote.open_queue(length, chunk, &arrivals)
                })
                .collect();
            queues = shared.or_disk(opened, Vec::new)?;
        }
        let depth = depth.min(disk.depth());
        let shared = Arc::clone(shared);
        Ok(Box::new(FarReader::new(shared, disk, queues, arrivals, arena.size(), depth)))
    }
}

impl fmt::Debug for FarTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FarTier({})", self.shared.options.address)
    }
}

impl Shared {
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    pub(crate) fn why_lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn private(&self) -> MutexGuard<'_, Vec<Region>> {
        self.private.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server may be used; an error if it is gone and fallback is off.
    fn may_ask(&self) -> Result<bool> {
        match self.why_lost() {
            None => Ok(true),
            Some(_) if self.options.fallback => Ok(false),
            Some(why) => Err(Error::new(ErrorKind::Io, why).hint(NO_FALLBACK)),
        }
    }

    /// Records a failed request. An error of kind `Io` means that the server is gone.
    pub(crate) fn note(&self, error: &Error) {
        if error.kind() != ErrorKind::Io {
            return;
        }
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.is_none() {
            let text = error.to_string();
            let text = text.lines().next().unwrap_or_default();
            let server = self.options.address.to_string();
            let named = text.contains(&server);
            *lost =
                Some(if named { text.into() } else { format!("memory server {server}: {text}") });
        }
        self.alive.store(false, Ordering::Release);
    }

    /// The outcome of a request to the server, or `otherwise()` if the server is gone and fallback
    /// is on.
    fn or_disk<T>(&self, outcome: Result<T>, otherwise: impl FnOnce() -> T) -> Result<T> {
        match outcome {
            Err(error) if error.kind() == ErrorKind::Io => {
                self.note(&error);
                if self.options.fallback { Ok(otherwise()) } else { Err(self.named(error)) }
            }
            outcome => outcome,
        }
    }

    /// Adds the server's address to an error.
    pub(crate) fn named(&self, error: Error) -> Error {
        let server = self.options.address.to_string();
        let named = error.to_string().contains(&server);
        let error = if named { error } else { error.context(format!("memory server {server}")) };
        if error.kind() == ErrorKind::Io { error.hint(NO_FALLBACK) } else { error }
    }

    /// The entry of a file; a new entry if the path now refers to another file.
    pub(crate) fn file(&self, path: &Path, stamp: Stamp) -> Result<Arc<FarFile>> {
        let path = path.canonicalize().with_context(|| format!("file `{}`", path.display()))?;
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let entry = files.entry(path).and_modify(|file| {
            if file.stamp != stamp {
                *file = FarFile::new(stamp);
            }
        });
        Ok(Arc::clone(entry.or_insert_with(|| FarFile::new(stamp))))
    }

    /// Removes a region that the server no longer has.
    pub(crate) fn withdraw(&self, key: RegionKey) {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        for file in files.values() {
            file.write().withdraw(key);
        }
    }
}

/// Hint for a run that ends because its server is gone.
const NO_FALLBACK: &str =
    "start the server again, or allow reading from the disk (leave out far.fallback=false)";

impl Drop for Shared {
    /// Frees private regions. If the server does not answer, it frees them itself.
    fn drop(&mut self) {
        let regions = std::mem::take(&mut *self.private());
        if self.is_alive() {
            let _ = regions.iter().try_for_each(|region| self.remote.free(region));
        }
    }
}

impl FarFile {
    fn new(stamp: Stamp) -> Arc<Self> {
        Arc::new(Self { stamp, placement: RwLock::default() })
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Placement> {
        self.placement.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, extents: Vec<Extent>) {
        let mut placement = self.write();
        for extent in extents {
            placement.insert(extent);
        }
    }

    fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.placement.read().unwrap_or_else(PoisonError::into_inner).missing(range)
    }

    pub(crate) fn find(&self, range: &Range<u64>) -> Option<(Region, u64)> {
        self.placement.read().unwrap_or_else(PoisonError::into_inner).find(range)
    }
}
