//! The `uring` back end: direct reads through io_uring, without threads and without a barrier.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::opcode::{AsyncCancel2, Read, ReadFixed};
use io_uring::types::{CancelBuilder, Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe};
use outercore_core::{Context, Result};

use crate::arena::Arena;
use crate::backend::{Backend, not_offered};
use crate::open::{Caching, Files, Opened};
use crate::progress::{Next, Progress, ends_early, overdue, refused};
use crate::reader::{Completion, FileId, ReadRequest, Reader};

/// Files beyond this number are read by their plain descriptors.
const FILE_TABLE: u32 = 256;

/// The kernel limits the size of its rings; no device needs this many reads in flight.
const MOST_IN_FLIGHT: usize = 8192;

/// How often a read is repeated after the kernel stopped it for lack of resources or for a signal.
const MOST_ATTEMPTS: u32 = 100;

/// How long `Drop` waits for the kernel before it leaks the memory of the reads in flight.
const PATIENCE: Duration = Duration::from_secs(10);

/// Marks the completion of a cancellation, which belongs to no slot.
const CANCELLATION: u64 = u64::MAX;

/// Reads through io_uring, past the page cache if the file system allows it.
///
/// Files are registered with the ring, and also the staging memory if the limit of locked memory
/// allows it. Without registered memory, each read pins its pages, which costs little.
pub struct UringReader {
    ring: IoUring,
    files: Files,
    /// Whether a file is in the ring's table, under its own id.
    in_table: Vec<bool>,
    /// Memory that is registered with the ring, kept alive as long as the ring.
    registered: Option<Arena>,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    results: Vec<(u64, i32)>,
    closing: bool,
}

/// A request in flight.
struct Slot {
    request: ReadRequest,
    progress: Progress,
    attempts: u32,
}

impl UringReader {
    /// Opens a reader with up to `depth` reads in flight, whose leases should come from `arena`.
    ///
    /// # Errors
    /// Kind `Unsupported`: the kernel has no io_uring, has an old version, or forbids it.
    pub fn open(depth: usize, arena: &Arena) -> Result<Self> {
        let depth = depth.clamp(1, MOST_IN_FLIGHT);
        // One more entry than slots, for a cancellation.
        let ring = new_ring(depth as u32 + 1).map_err(|why| not_offered(Backend::Uring, why))?;
        // Neither registration is needed for reading; each saves a little work per request.
        let _ = ring.submitter().register_files_sparse(FILE_TABLE);
        // SAFETY: the memory stays mapped while it is registered: `registered` holds a clone of
        // the arena until the ring, declared before it, is dropped.
        let outcome = unsafe { ring.submitter().register_buffers(&[arena.as_iovec()]) };
        Ok(Self {
            ring,
            files: Files::default(),
            in_table: Vec::new(),
            registered: outcome.is_ok().then(|| arena.clone()),
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth as u32).rev().collect(),
            results: Vec::with_capacity(depth),
            closing: false,
        })
    }

    fn add(&mut self, opened: Opened) -> FileId {
        let descriptor = opened.file.as_raw_fd();
        let file = self.files.add(opened);
        let update = self.ring.submitter().register_files_update(file.0, &[descriptor]);
        self.in_table.push(matches!(update, Ok(1)));
        file
    }

    /// Queues the next read of a slot; the kernel receives it at the next `enter`.
    fn queue(&mut self, place: u32) {
        let slot = self.slots[place as usize].as_mut().expect("a slot in use");
        let request = &slot.request;
        let (skip, len) = (slot.progress.position(), slot.progress.wanted());
        assert!(skip + len <= request.lease.capacity(), "a lease with room for the read");
        let buffer = request.lease.start().wrapping_add(skip);
        let offset = request.offset + skip as u64;
        // The kernel limits one read to 2 GiB; a further read continues it.
        let len = u32::try_from(len).unwrap_or(1 << 31);
        let fixed = self.registered.as_ref().is_some_and(|arena| arena.owns(&request.lease));
        let in_table = self.in_table[request.file.0 as usize].then_some(Fixed(request.file.0));
        let plain = Fd(self.files.get(request.file).file.as_raw_fd());
        let entry = match (in_table, fixed) {
            (Some(file), true) => ReadFixed::new(file, buffer, len, 0).offset(offset).build(),
            (Some(file), false) => Read::new(file, buffer, len).offset(offset).build(),
            (None, true) => ReadFixed::new(plain, buffer, len, 0).offset(offset).build(),
            (None, false) => Read::new(plain, buffer, len).offset(offset).build(),
        };
        let entry = entry.user_data(u64::from(place));
        // SAFETY: the buffer lies in a lease that its slot owns until the completion has been seen,
        // and which `Drop` leaks instead of freeing; the file is open as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("a submission entry for every slot");
    }

    fn sq_is_empty(&mut self) -> bool {
        self.ring.submission().is_empty()
    }

    /// Takes completions from the ring, continues unfinished reads, and returns the number of
    /// finished requests.
    fn reap(&mut self, done: &mut Vec<Completion>) -> usize {
        let mut results = std::mem::take(&mut self.results);
        results.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        let before = done.len();
        for (place, result) in results.drain(..) {
            if place != CANCELLATION {
                self.take_result(place as u32, result, done);
            }
        }
        self.results = results;
        done.len() - before
    }

    fn take_result(&mut self, place: u32, result: i32, done: &mut Vec<Completion>) {
        let slot = self.slots[place as usize].as_mut().expect("a slot in flight");
        let file = self.files.get(slot.request.file);
        let (offset, len) = (slot.request.offset, slot.request.len);
        let result = match usize::try_from(result) {
            Ok(bytes) => match slot.progress.advance(bytes) {
                Next::Finished => Ok(()),
                Next::Continue if !self.closing => return self.queue(place),
                Next::Continue => Err(ends_early(&file.path, offset, len, bytes)),
                Next::EndsAt(found) => Err(ends_early(&file.path, offset, len, found)),
            },
            Err(_) => {
                let again = matches!(-result, libc::EINTR | libc::EAGAIN);
                if again && !self.closing && slot.attempts < MOST_ATTEMPTS {
                    slot.attempts += 1;
                    return self.queue(place);
                }
                Err(refused(&file.path, offset, len, io::Error::from_raw_os_error(-result)))
            }
        };
        file.forget(offset, len);
        if let Some(Slot { request, .. }) = self.slots[place as usize].take() {
            self.free.push(place);
            done.push(Completion { tag: request.tag, lease: request.lease, result });
        }
    }

    /// Hands queued reads to the kernel without waiting.
    fn enter(&mut self) -> Result<()> {
        if self.sq_is_empty() {
            return Ok(());
        }
        match self.ring.submit() {
            Ok(_) => Ok(()),
            // The reads stay queued; `wait` submits them again.
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(error).context("io_uring: submitting reads"),
        }
    }
}

/// Whether the kernel refused a call for a temporary reason.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ETIME))
}

impl Reader for UringReader {
    fn register(&mut self, path: &Path) -> Result<FileId> {
        Ok(self.add(Opened::open(path, Caching::Bypass)?))
    }

    fn file_len(&self, file: FileId) -> u64 {
        self.files.get(file).len
    }

    fn alignment(&self) -> usize {
        self.files.alignment()
    }

    fn depth(&self) -> usize {
        self.slots.len()
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn submit(&mut self, requests: &mut VecDeque<ReadRequest>) -> Result<usize> {
        let count = requests.len().min(self.free.len());
        for request in requests.drain(..count) {
            let step = self.files.get(request.file).step;
            let progress = Progress::new(request.len, step);
            let place = self.free.pop().expect("as many free slots as counted");
            self.slots[place as usize] = Some(Slot { request, progress, attempts: 0 });
            self.queue(place);
        }
        self.enter()?;
        Ok(count)
    }

    fn wait(
        &mut self,
        at_least: usize,
        deadline: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        let at_least = at_least.min(self.in_flight());
        let end = Instant::now() + deadline;
        let mut found = self.reap(done);
        while found < at_least {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let left = Timespec::from(left);
            let arguments = SubmitArgs::new().timespec(&left);
            match self.ring.submitter().submit_with_args(at_least - found, &arguments) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error).context("io_uring: waiting for reads"),
            }
            found += self.reap(done);
        }
        // Submits the continuations of short reads that the last completions queued.
        self.enter()?;
        if found == 0 && at_least > 0 {
            return Err(overdue(deadline, self.in_flight()));
        }
        Ok(())
    }

    fn name(&self) -> &'static str {
        "uring"
    }
}

impl Drop for UringReader {
    fn drop(&mut self) {
        if self.in_flight() == 0 {
            return;
        }
        self.closing = true;
        let cancel = AsyncCancel2::new(CancelBuilder::any()).build().user_data(CANCELLATION);
        // A cancellation only shortens the wait: a read that the device has started ends anyway.
        // SAFETY: the entry refers to no memory.
        let _ = unsafe { self.ring.submission().push(&cancel) };
        let _ = self.wait(self.in_flight(), PATIENCE, &mut Vec::new());
        // The kernel may still write into the remaining leases: leak that memory instead of freeing
        // it.
        self.slots.drain(..).for_each(std::mem::forget);
    }
}

impl fmt::Debug for UringReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringReader")
            .field("files", &self.files)
            .field("depth", &self.slots.len())
            .field("in_flight", &self.in_flight())
            .field("registered_memory", &self.registered.is_some())
            .finish_non_exhaustive()
    }
}

/// Tests whether the kernel can create rings with the required features.
pub(crate) fn try_ring() -> Result<(), String> {
    new_ring(2).map(|_| ())
}

fn new_ring(entries: u32) -> Result<IoUring, String> {
    // Avoids inter-processor interrupts for completions, if the kernel supports it (5.19 or later).
    let ring = IoUring::builder()
        .setup_coop_taskrun()
        .build(entries)
        .or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => IoUring::builder().build(entries),
            _ => Err(error),
        })
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSYS) => "the kernel has no io_uring".to_string(),
            Some(libc::EPERM | libc::EACCES) => format!("io_uring is forbidden here ({error})"),
            Some(libc::ENOMEM) => format!("the limit of locked memory is too low ({error})"),
            _ => format!("setting up io_uring failed ({error})"),
        })?;
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err("this io_uring cannot wait with a deadline, Linux 5.11 can".to_string());
    }
    let mut probe = Probe::new();
    let known = ring.submitter().register_probe(&mut probe).is_ok();
    if !known || !probe.is_supported(Read::CODE) {
        return Err("this io_uring has no plain read".to_string());
    }
    Ok(ring)
}

#[cfg(test)]
mod tests {
    use outercore_core::{Bytes, ErrorKind};

    use super::*;

    /// A reader, or `None` if this kernel does not offer io_uring.
    fn reader(arena: &Arena) -> Option<UringReader> {
        UringReader::open(4, arena).inspect_err(|error| eprintln!("skipped: {error}")).ok()
    }

    #[test]
    fn a_read_that_never_completes_meets_the_deadline_and_is_cancelled_by_drop() {
        let arena = Arena::new(Bytes::kib(8)).unwrap();
        let Some(mut reader) = reader(&arena) else { return };
        let (receiver, _sender) = io::pipe().unwrap();
        let file = std::fs::File::from(std::os::fd::OwnedFd::from(receiver));
        let file = reader.add(Opened::over(file, "pipe".into(), 100));
        let lease = arena.lease(100).unwrap();
        let mut requests = [ReadRequest { tag: 0, file, offset: 0, len: 100, lease }].into();
        assert_eq!(reader.submit(&mut requests).unwrap(), 1);
        let mut done = Vec::new();
        let error = reader.wait(1, Duration::from_millis(1), &mut done).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("1 in flight"), "{error}");
        let begun = Instant::now();
        drop(reader);
        assert!(begun.elapsed() < PATIENCE, "the read was cancelled");
        assert_eq!(arena.free_bytes(), arena.size());
    }

    #[test]
    fn files_that_cannot_be_read_directly_are_read_at_any_offset() {
        let arena = Arena::new(Bytes::kib(8)).unwrap();
        let Some(mut reader) = reader(&arena) else { return };
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), (0..200).collect::<Vec<u8>>()).unwrap();
        let file = reader.add(Opened::open(path.path(), Caching::Keep).unwrap());
        assert_eq!(reader.alignment(), 1);
        let lease = arena.lease(100).unwrap();
        let mut requests = [ReadRequest { tag: 0, file, offset: 33, len: 100, lease }].into();
        reader.submit(&mut requests).unwrap();
        let mut done = Vec::new();
        reader.wait(1, PATIENCE, &mut done).unwrap();
        assert_eq!(done[0].lease[..100], (33..133).collect::<Vec<u8>>());
    }

    #[test]
    fn more_files_than_the_table_holds_are_read_all_the_same() {
        let arena = Arena::new(Bytes::kib(8)).unwrap();
        let Some(mut reader) = reader(&arena) else { return };
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), [7; 100]).unwrap();
        for _ in 0..FILE_TABLE + 3 {
            let file = reader.register(path.path()).unwrap();
            let lease = arena.lease(100).unwrap();
            let mut requests = [ReadRequest { tag: 0, file, offset: 0, len: 100, lease }].into();
            reader.submit(&mut requests).unwrap();
            let mut done = Vec::new();
            reader.wait(1, PATIENCE, &mut done).unwrap();
            done.remove(0).result.unwrap();
        }
    }
}
