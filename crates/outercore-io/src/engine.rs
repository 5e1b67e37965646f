//! The engine executes planned reads with a full queue and hands out exactly the planned bytes.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outercore_core::{Bytes, Context, Error, ErrorKind, ReadCounters, Result};

use crate::arena::{Arena, Lease, UNIT};
use crate::backend::Backend;
use crate::kept::{Kept, KeptRead, Slots};
use crate::plan::{CostModel, PlannedRead, plan_range};
use crate::reader::{Completion, FileId, ReadRequest, Reader};
use crate::tier::Tier;

/// A device that needs longer for one read has failed.
const DEADLINE: Duration = Duration::from_secs(30);

/// On all tested devices, longer reads bring no more bytes per second.
const LONGEST_USEFUL_READ: u64 = 1 << 20;

/// After this many bytes have been handed out, the queue is refilled. Copying that many bytes takes
/// longer than a system call, and the device does not wait for the staging memory that they
/// released.
const REFILL_AFTER: u64 = 128 << 10;

/// Back end, memory and depth of an engine.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The back end.
    pub backend: Backend,
    /// Memory for reads in flight. With 8 MiB, the usual limit of locked memory, an unprivileged
    /// process can register it with the kernel. With 2 MiB or more it uses huge pages, which long
    /// reads need to be in flight together.
    pub staging: Bytes,
    /// Reads in flight at once, as far as staging has room.
    /// [`reads_in_flight`](crate::reads_in_flight) computes the depth from a device profile.
    pub depth: usize,
    /// Optional memory tier that is queried before the back end.
    pub tier: Option<Arc<dyn Tier>>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { backend: Backend::Auto, staging: Bytes::mib(8), depth: 128, tier: None }
    }
}

/// Reads planned ranges of files.
///
/// **Memory**: the staging memory, and a few hundred bytes per read in flight (back end `threads`:
/// one thread).
///
/// # Example
/// ```
/// use outercore_io::{Engine, EngineConfig, PlannedRead};
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("numbers");
/// std::fs::write(&path, (0..=255).collect::<Vec<u8>>())?;
/// let mut engine = Engine::open(EngineConfig::default())?;
/// let file = engine.register(&path)?;
/// let reads = [PlannedRead { offset: 250, len: 3 }, PlannedRead { offset: 7, len: 1 }];
/// let mut found = [Vec::new(), Vec::new()];
/// engine.read(file, &reads, &mut |index, bytes| {
///     found[index] = bytes.to_vec();
///     Ok(())
/// })?;
/// assert_eq!(found, [vec![250, 251, 252], vec![7]]);
/// # Ok::<(), outercore_core::Error>(())
/// ```
pub struct Engine {
    reader: Box<dyn Reader>,
    arena: Arena,
    deadline: Duration,
    paths: Vec<PathBuf>,
    total: ReadCounters,
    /// Number of the current call. Requests of an earlier, failed call may still complete; their
    /// tags carry that call's number.
    call: u32,
    done: Vec<Completion>,
}

impl Engine {
    /// Opens the back end and reserves the staging memory.
    ///
    /// # Errors
    /// The back end does not work on this kernel, or memory is insufficient.
    pub fn open(config: EngineConfig) -> Result<Self> {
        let arena = Arena::new(config.staging)?;
        let depth = config.depth.max(1);
        let disk = config.backend.open(depth, &arena)?;
        let reader = match config.tier {
            Some(tier) => tier.over(disk, &arena, depth)?,
            None => disk,
        };
        Ok(Self::over(reader, arena, DEADLINE))
    }

    /// Creates an engine over the caller's reader, for tests with faults. `deadline` is how long to
    /// wait for a completion before giving up.
    pub fn over(reader: Box<dyn Reader>, arena: Arena, deadline: Duration) -> Self {
        Self {
            reader,
            arena,
            deadline,
            paths: Vec::new(),
            total: ReadCounters::default(),
            call: 0,
            done: Vec::new(),
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The file is missing, unreadable or not a regular file; the error names it.
    pub fn register(&mut self, path: &Path) -> Result<FileId> {
        let file = self.reader.register(path)?;
        self.paths.push(path.to_path_buf());
        debug_assert_eq!(self.paths.len(), file.0 as usize + 1);
        Ok(file)
    }

    /// Length of a file in bytes when it was registered.
    pub fn file_len(&self, file: FileId) -> u64 {
        self.reader.file_len(file)
    }

    /// The back end that was chosen: `uring`, `threads`, `mmap` or `sim`.
    pub fn backend_name(&self) -> &'static str {
        self.reader.name()
    }

    /// Reads are widened to multiples of this many bytes; 1 if the page cache serves them.
    pub fn alignment(&self) -> usize {
        self.reader.alignment()
    }

    /// The cost of all reads so far.
    pub fn counters(&self) -> ReadCounters {
        self.total
    }

    /// The longest read to plan: long enough for full bandwidth, short enough that several fit in
    /// staging. Longer reads work up to the size of the staging memory.
    pub fn max_read(&self) -> Bytes {
        let share = self.arena.size().0 / 8;
        Bytes((share - share % UNIT as u64).clamp(UNIT as u64, LONGEST_USEFUL_READ))
    }

    /// Reads all of `reads` and calls `on_data(index, bytes)` once for each, in the order in which
    /// the device answers, with exactly the bytes of `reads[index]`.
    ///
    /// The queue is kept full: the next reads start before `on_data` works. Ranges are widened to
    /// the device's alignment, and inside they are cut at the end of the file.
    ///
    /// **Cost**: one request per read; returns the counters. `useful_bytes` counts the bytes of
    /// `reads`; if the plan contains gaps, only the caller knows the exact number. Blocks until all
    /// is read.
    ///
    /// # Errors
    /// A read fails, is short, passes the end of the file, does not fit into staging, or takes
    /// longer than the deadline: the error names file and offset. An error of `on_data` is
    /// returned. Before any error is returned, the call starts no more reads and waits for the
    /// reads in flight.
    pub fn read(
        &mut self,
        file: FileId,
        reads: &[PlannedRead],
        on_data: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<ReadCounters> {
        let list = List {
            files: &|_| file,
            reads: &|index| reads[index],
            slots: &|_| None,
            len: reads.len(),
        };
        self.run(&list, &mut |_, _| Ok(true), &mut |index, found| match found {
            Some(Found { lease, range }) => on_data(index, &lease[range]),
            None => on_data(index, &[]),
        })
    }

    /// Reserves `count` buffers for kept reads of up to `longest` bytes each.
    ///
    /// The buffers are part of the staging memory, so other reads have less of it.
    ///
    /// # Errors
    /// `Budget`: staging does not have that much room.
    pub fn slots(&self, longest: u64, count: usize) -> Result<Slots> {
        Slots::new(&self.arena, Self::slot_bytes(longest).as_usize(), count)
    }

    /// Bytes of staging for one slot for reads of up to `longest` bytes, on any device.
    pub fn slot_bytes(longest: u64) -> Bytes {
        Bytes((longest + 2 * (UNIT as u64 - 1)).next_multiple_of(UNIT as u64))
    }

    /// Like [`Engine::read`], over several files; the caller decides when each read may begin. The
    /// bytes stay where the device wrote them until the receiver drops them.
    ///
    /// `may_begin(index, idle)` is called in order; `false` means later. If `idle` is true, nothing
    /// is in flight: the function must then block until there is room and return `true`. An error
    /// of the function ends the call.
    ///
    /// # Errors
    /// As for [`Engine::read`]; `Internal` if `may_begin` returns `false` while nothing is in
    /// flight, or allows more reads than there are slots.
    pub fn read_kept(
        &mut self,
        reads: &[KeptRead],
        may_begin: &mut dyn FnMut(usize, bool) -> Result<bool>,
        on_data: &mut dyn FnMut(usize, Kept) -> Result<()>,
    ) -> Result<ReadCounters> {
        let list = List {
            files: &|index| reads[index].file,
            reads: &|index| reads[index].read,
            slots: &|index| Some(&reads[index].into),
            len: reads.len(),
        };
        self.run(&list, may_begin, &mut |index, found| match found {
            Some(Found { lease, range }) => {
                on_data(index, Kept::new(lease, range, &reads[index].into))
            }
            None => on_data(index, Kept::nothing()),
        })
    }

    fn run(
        &mut self,
        list: &List<'_>,
        may_begin: &mut dyn FnMut(usize, bool) -> Result<bool>,
        on_data: OnFound<'_>,
    ) -> Result<ReadCounters> {
        self.call = self.call.wrapping_add(1);
        let mut counters = ReadCounters::default();
        let outcome = self.execute(list, &mut counters, may_begin, on_data);
        self.total += counters;
        if let Err(error) = outcome {
            self.drain();
            return Err(error);
        }
        Ok(counters)
    }

    /// Fills `destination` with the bytes at `offset`, by as many reads as needed.
    ///
    /// # Errors
    /// As for [`Engine::read`].
    pub fn read_into(
        &mut self,
        file: FileId,
        offset: u64,
        destination: &mut [u8],
    ) -> Result<ReadCounters> {
        let range = offset..offset + destination.len() as u64;
        let reads = plan_range(range, &CostModel::default(), self.max_read());
        self.read(file, &reads, &mut |index, bytes| {
            let place = (reads[index].offset - offset) as usize;
            destination[place..place + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })
    }

    fn execute(
        &mut self,
        list: &List<'_>,
        counters: &mut ReadCounters,
        may_begin: &mut dyn FnMut(usize, bool) -> Result<bool>,
        on_data: OnFound<'_>,
    ) -> Result<()> {
        if u32::try_from(list.len).is_err() {
            return Err(Error::invalid(format!("{} reads in one call", list.len))
                .hint("read at most 2^32 - 1 ranges at a time"));
        }
        let alignment = self.reader.alignment() as u64;
        let pending = VecDeque::with_capacity(self.reader.depth());
        let mut rest = Rest { next: 0, allowed: 0, undelivered: false, pending };
        let mut finished = 0;
        loop {
            rest.undelivered = false;
            finished += self.begin(list, &mut rest, may_begin, on_data)?;
            if finished == list.len {
                return Ok(());
            }
            let in_flight = self.reader.in_flight();
            if in_flight == 0 {
                let why = if rest.allowed > rest.next {
                    "staging memory is leased while nothing is in flight"
                } else {
                    "a read was put off while nothing is in flight"
                };
                return Err(Error::internal(why));
            }
            // Wait for a few at a time: fewer system calls, and the queue stays nearly full.
            let waited = self.reader.wait(in_flight.div_ceil(8), self.deadline, &mut self.done);
            waited.with_context(|| {
                let file = (list.files)(rest.next.saturating_sub(1));
                format!("file `{}`", self.paths[file.0 as usize].display())
            })?;
            let mut done = std::mem::take(&mut self.done);
            // The completed reads made room in the device's queue. Refill it, so the device works
            // during `on_data`.
            let mut handed_out = REFILL_AFTER;
            rest.undelivered = true;
            for completion in done.drain(..) {
                if (completion.tag >> 32) as u32 != self.call {
                    continue;
                }
                let index = completion.tag as u32 as usize;
                let (file, read) = ((list.files)(index), (list.reads)(index));
                completion.result?;
                if handed_out >= REFILL_AFTER {
                    finished += self.begin(list, &mut rest, may_begin, on_data)?;
                    handed_out = 0;
                }
                let skip = (read.offset & (alignment - 1)) as usize;
                finished += 1;
                handed_out += u64::from(read.len);
                counters.requests += 1;
                counters.bytes += self.span(file, read, alignment).1 as u64;
                counters.useful_bytes += u64::from(read.len);
                let range = skip..skip + read.len as usize;
                on_data(index, Some(Found { lease: completion.lease, range }))?;
            }
            self.done = done;
        }
    }

    /// Begins the next reads, as many as queue, staging and `may_begin` allow. Returns the number
    /// of reads of zero bytes, which are already finished.
    fn begin(
        &mut self,
        list: &List<'_>,
        rest: &mut Rest,
        may_begin: &mut dyn FnMut(usize, bool) -> Result<bool>,
        on_data: OnFound<'_>,
    ) -> Result<usize> {
        let mut empty = 0;
        while rest.next < list.len && self.has_room(rest.pending.len()) {
            if rest.allowed == rest.next {
                // Not idle while completions are undelivered: the caller may need them to make
                // room.
                let idle =
                    self.reader.in_flight() == 0 && rest.pending.is_empty() && !rest.undelivered;
                if !may_begin(rest.next, idle)? {
                    break;
                }
                rest.allowed += 1;
            }
            let (file, read) = ((list.files)(rest.next), (list.reads)(rest.next));
            if read.len == 0 {
                on_data(rest.next, None)?;
                empty += 1;
            } else if let Some(request) =
                self.request(file, rest.next, read, (list.slots)(rest.next))?
            {
                rest.pending.push_back(request);
            } else {
                break;
            }
            rest.next += 1;
        }
        self.reader.submit(&mut rest.pending)?;
        Ok(empty)
    }

    fn has_room(&self, pending: usize) -> bool {
        pending + self.reader.in_flight() < self.reader.depth()
    }

    /// Start and length of the device's read for `read`.
    fn span(&self, file: FileId, read: PlannedRead, alignment: u64) -> (u64, usize) {
        let start = read.offset & !(alignment - 1);
        let end = read.end().next_multiple_of(alignment).min(self.reader.file_len(file));
        (start, (end - start) as usize)
    }

    /// The request for `read`, or `None` until more staging is free.
    fn request(
        &self,
        file: FileId,
        index: usize,
        read: PlannedRead,
        slots: Option<&Slots>,
    ) -> Result<Option<ReadRequest>> {
        let alignment = self.reader.alignment() as u64;
        let file_len = self.reader.file_len(file);
        let end = read.offset.checked_add(u64::from(read.len));
        if end.is_none_or(|end| end > file_len) {
            return Err(Error::invalid(format!(
                "file `{}`: read of {} bytes at offset {} passes the end of the file at {file_len}",
                self.paths[file.0 as usize].display(),
                read.len,
                read.offset,
            )));
        }
        let (offset, len) = self.span(file, read, alignment);
        let room = len.next_multiple_of(alignment as usize);
        let most = slots.map_or(self.arena.size(), |slots| Bytes(slots.len() as u64));
        if room as u64 > most.0 {
            return Err(Error::new(
                ErrorKind::Budget,
                format!(
                    "file `{}`: read of {} at offset {} does not fit into {} of staging memory",
                    self.paths[file.0 as usize].display(),
                    Bytes(room as u64),
                    read.offset,
                    most,
                ),
            )
            .hint("give the engine more staging memory, or plan shorter reads"));
        }
        let tag = u64::from(self.call) << 32 | index as u64;
        let lease = slots.map_or_else(|| self.arena.lease(room), Slots::take);
        Ok(lease.map(|lease| ReadRequest { tag, file, offset, len, lease }))
    }

    /// Waits until nothing is in flight, or until the device has shown that it does not answer.
    fn drain(&mut self) {
        let mut dropped = Vec::new();
        while self.reader.in_flight() > 0 {
            if self.reader.wait(self.reader.in_flight(), self.deadline, &mut dropped).is_err() {
                // A hanging read keeps its lease. `call` separates late completions from
                // completions of later calls.
                break;
            }
            dropped.clear();
        }
    }
}

/// The reads of a call.
struct List<'a> {
    files: &'a dyn Fn(usize) -> FileId,
    reads: &'a dyn Fn(usize) -> PlannedRead,
    /// The slots that provide a read's buffer, instead of staging.
    slots: &'a dyn Fn(usize) -> Option<&'a Slots>,
    len: usize,
}

/// The buffer of a finished read, and the range of its bytes.
struct Found {
    lease: Lease,
    range: Range<usize>,
}

/// Called with the bytes of each read; `None` for a read of zero bytes.
type OnFound<'a> = &'a mut dyn FnMut(usize, Option<Found>) -> Result<()>;

/// The reads of a call that have not reached the device.
struct Rest {
    /// Index of the first read without a request.
    next: usize,
    /// Number of reads that may begin: `next`, or one more while staging has no room for that read.
    allowed: usize,
    /// Whether completions wait to be delivered.
    undelivered: bool,
    /// Requests that the reader has not accepted.
    pending: VecDeque<ReadRequest>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("backend", &self.backend_name())
            .field("staging", &self.arena.size())
            .field("depth", &self.reader.depth())
            .field("files", &self.paths)
            .finish_non_exhaustive()
    }
}
