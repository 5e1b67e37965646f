//! Far memory under the I/O engine: what of which file lies on the server.

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

/// What came of copying to far memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// Bytes that were copied.
    pub bytes: u64,
    /// Bytes that were there already.
    pub already: u64,
    /// Bytes that the server had no room for, or that it was gone for; the disk serves them.
    pub refused: u64,
}

/// What a file that is kept on a server has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents<'a> {
    /// The name under which it is kept: equal names, equal bytes.
    pub name: &'a str,
    /// The checksum of its data, as a data set's manifest has it.
    pub checksum: &'a str,
    /// The bytes of the file that the checksum covers.
    pub data: Range<u64>,
}

/// Copies of files in far memory, as a tier of the I/O engine.
///
/// Whole files are found under their content name ([`FarTier::find`]); ranges of files are copied
/// to private regions ([`FarTier::place`]), which are given back when the tier and all its readers
/// are gone. Files must not change while they are in use; one that is another one by the time
/// it is opened is read from the disk.
///
/// When the server is gone, [`FarOptions::fallback`] decides: reads go to the disk from then on,
/// those in flight included, or every read of placed bytes fails with an error of kind `Io` that
/// names server and file. The first failure stands in [`FarCounters::lost`].
///
/// **Memory** the receive buffers are the engine's staging memory; each engine has
/// [`FarOptions::queues`] queues of its own.
pub struct FarTier {
    shared: Arc<Shared>,
}

/// What a tier shares with its readers.
pub(crate) struct Shared {
    pub(crate) remote: Arc<dyn Remote>,
    pub(crate) options: FarOptions,
    files: RwLock<HashMap<PathBuf, Arc<FarFile>>>,
    /// Private regions, to be given back.
    private: Mutex<Vec<Region>>,
    alive: AtomicBool,
    lost: Mutex<Option<String>>,
    pub(crate) tally: Tally,
}

/// A file of which something may be placed.
#[derive(Debug)]
pub(crate) struct FarFile {
    stamp: Stamp,
    placement: RwLock<Placement>,
}

/// Tells a file from another one that has taken its path.
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
    /// A server that cannot be reached is an error with fallback too: nothing has begun, and the
    /// address may be mistyped.
    ///
    /// # Errors
    /// Those of [`Connection::build`].
    pub fn connect(options: &FarOptions) -> Result<Self> {
        Self::connect_with(options, None)
    }

    /// The same with the plane that moves data to and from `fabric://` addresses.
    ///
    /// # Errors
    /// Those of [`Connection::build_with`].
    pub fn connect_with(options: &FarOptions, plane: Option<&dyn DataPlane>) -> Result<Self> {
        Self::over_remote(Arc::new(Connection::build_with(options, plane)?), options)
    }

    /// A tier over a connection that is there already.
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

    /// Looks for the whole file under its content name; `false` where it is not there, in another
    /// length than on disk, or the server is gone and not needed.
    ///
    /// Names are taken at their word: whatever lies there in the right length is read instead of
    /// the file. [`FarTier::keep`] stores nothing under a name that its bytes do not bear out, but
    /// whoever has the server's token may store anything under any name.
    ///
    /// **Cost** a control message for each GiB.
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
        // Who asks again finds nothing new.
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

    /// Copies ranges of a file to private regions, in order, as far as the server has room.
    ///
    /// `engine` reads the file; `on_progress(done, total)` gets bytes and may end it by an error.
    /// What is placed already is not copied again.
    ///
    /// **Cost** reads and sends every byte once; up to eight chunks of memory meanwhile.
    ///
    /// # Errors
    /// A failed read; `Corrupt`: the file changed meanwhile; `Io`: the server is gone, without
    /// fallback. Nothing of a region that failed stays on the server.
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

    /// Copies a whole file to the server, where it stays under its content name for any client to
    /// [`find`](FarTier::find). Files of more than a GiB are kept in parts; parts that are there
    /// already are not sent again.
    ///
    /// Its bytes are compared with the checksum while they are read, and nothing can be found
    /// before they agree. Where the server has no room for what is missing, all of it is refused.
    ///
    /// **Cost** reads every byte once and sends what is missing; up to sixteen chunks of memory
    /// meanwhile.
    ///
    /// # Errors
    /// A failed read; `Invalid`: an empty file, or somebody else is copying it at this moment;
    /// `Corrupt`: the bytes are not those of the checksum, or the file changed meanwhile; `Io`: the
    /// server is gone, with fallback or without. Nothing new stays on the server then, except that
    /// a connection which is lost at the very end may leave some of several parts; keeping the
    /// file again adds the rest.
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
                // Parts overlap.
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

    /// What the tier and all its readers have done so far.
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

    /// Whether the server has answered so far.
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

    /// Whether the server may be asked; an error where it is gone and not to be done without.
    fn may_ask(&self) -> Result<bool> {
        match self.why_lost() {
            None => Ok(true),
            Some(_) if self.options.fallback => Ok(false),
            Some(why) => Err(Error::new(ErrorKind::Io, why).hint(NO_FALLBACK)),
        }
    }

    /// Takes note of a failed request: an error of kind `Io` means that the server is gone.
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

    /// The outcome of a request to the server, or `otherwise()` where it is gone and the disk will
    /// do.
    fn or_disk<T>(&self, outcome: Result<T>, otherwise: impl FnOnce() -> T) -> Result<T> {
        match outcome {
            Err(error) if error.kind() == ErrorKind::Io => {
                self.note(&error);
                if self.options.fallback { Ok(otherwise()) } else { Err(self.named(error)) }
            }
            outcome => outcome,
        }
    }

    /// `error`, with the server's address in it.
    pub(crate) fn named(&self, error: Error) -> Error {
        let server = self.options.address.to_string();
        let named = error.to_string().contains(&server);
        let error = if named { error } else { error.context(format!("memory server {server}")) };
        if error.kind() == ErrorKind::Io { error.hint(NO_FALLBACK) } else { error }
    }

    /// The entry of a file; a new one where the path has come to mean another file.
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

    /// Forgets a region that the server does not know any more.
    pub(crate) fn withdraw(&self, key: RegionKey) {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        for file in files.values() {
            file.write().withdraw(key);
        }
    }
}

/// What to do when a run ends because its server is gone.
const NO_FALLBACK: &str =
    "start the server again, or allow reading from the disk (leave out far.fallback=false)";

impl Drop for Shared {
    /// Gives private regions back; those of a server that does not answer are its own business.
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
