//! The `threads` back end: a pool of threads that call `pread`; works on any Unix.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use outercore_core::{Context, Result};

use crate::open::{Caching, Files, Opened};
use crate::progress::{Next, Progress, ends_early, overdue, refused};
use crate::reader::{Completion, FileId, ReadRequest, Reader};

/// On all tested devices, more threads than this gained nothing.
const MOST_THREADS: usize = 64;

/// The threads only call `pread`; the default stack of 2 MiB would waste address space.
const STACK: usize = 64 << 10;

/// How long `Drop` waits for reads in flight before it leaves them to their threads.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads with a pool of threads, past the page cache if the file system allows it.
///
/// **Cost**: one thread with a 64 KiB stack per read in flight, at most 64; they end when the
/// reader is dropped.
#[derive(Debug)]
pub struct ThreadsReader {
    files: Files,
    depth: usize,
    in_flight: usize,
    pool: Arc<Pool>,
}

#[derive(Debug)]
struct Pool {
    state: Mutex<State>,
    work_to_do: Condvar,
    work_done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    todo: VecDeque<(Arc<Opened>, ReadRequest)>,
    done: Vec<Completion>,
    /// Number of threads that wait for work. A wake-up costs a system call, so only sleeping
    /// threads are woken.
    idle: usize,
    /// The caller sleeps until `done` is this long.
    caller_waits_for: Option<usize>,
    closing: bool,
}

impl ThreadsReader {
    /// A reader with up to `depth` reads in flight.
    ///
    /// # Errors
    /// The operating system gives no threads.
    pub fn open(depth: usize) -> Result<Self> {
        let reader = Self::without_threads(depth);
        for number in 0..reader.depth.min(MOST_THREADS) {
            let pool = Arc::clone(&reader.pool);
            thread::Builder::new()
                .name(format!("outercore-read-{number}"))
                .stack_size(STACK)
                .spawn(move || pool.work())
                .context("threads for reading")?;
        }
        Ok(reader)
    }

    fn without_threads(depth: usize) -> Self {
        let pool =
            Pool { state: Mutex::default(), work_to_do: Condvar::new(), work_done: Condvar::new() };
        Self { files: Files::default(), depth: depth.max(1), in_flight: 0, pool: Arc::new(pool) }
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        // Code that holds the lock panics only if memory runs out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some((file, request)) = state.todo.pop_front() {
                drop(state);
                let completion = read_whole(&file, request);
                state = self.state();
                state.done.push(completion);
                if state.caller_waits_for.is_some_and(|count| state.done.len() >= count) {
                    state.caller_waits_for = None;
                    self.work_done.notify_one();
                }
            } else if state.closing {
                return;
            } else {
                state.idle += 1;
                state = self.work_to_do.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
            }
        }
    }
}

/// Reads all bytes of one request, with as many calls as needed.
fn read_whole(file: &Opened, mut request: ReadRequest) -> Completion {
    let mut progress = Progress::new(request.len, file.step);
    let result = loop {
        let place = progress.position();
        let destination = &mut request.lease[place..place + progress.wanted()];
        match file.read_at(destination, request.offset + place as u64) {
            Err(error) => break Err(refused(&file.path, request.offset, request.len, error)),
            Ok(bytes) => match progress.advance(bytes) {
                Next::Finished => break Ok(()),
                Next::Continue => {}
                Next::EndsAt(found) => {
                    break Err(ends_early(&file.path, request.offset, request.len, found));
                }
            },
        }
    };
    file.forget(request.offset, request.len);
    Completion { tag: request.tag, lease: request.lease, result }
}

impl Reader for ThreadsReader {
    fn register(&mut self, path: &Path) -> Result<FileId> {
        Ok(self.files.add(Opened::open(path, Caching::Bypass)?))
    }

    fn file_len(&self, file: FileId) -> u64 {
        self.files.get(file).len
    }

    fn alignment(&self) -> usize {
        self.files.alignment()
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&mut self, requests: &mut VecDeque<ReadRequest>) -> Result<usize> {
        let count = requests.len().min(self.depth - self.in_flight);
        if count == 0 {
            return Ok(0);
        }
        let mut state = self.pool.state();
        for request in requests.drain(..count) {
            state.todo.push_back((Arc::clone(self.files.get(request.file)), request));
        }
        let wake = count.min(state.idle);
        drop(state);
        for _ in 0..wake {
            self.pool.work_to_do.notify_one();
        }
        self.in_flight += count;
        Ok(count)
    }

    fn wait(
        &mut self,
        at_least: usize,
        deadline: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        let at_least = at_least.min(self.in_flight);
        let end = Instant::now() + deadline;
        let mut state = self.pool.state();
        while state.done.len() < at_least {
            state.caller_waits_for = Some(at_least);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let woken = self.pool.work_done.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.caller_waits_for = None;
        let found = state.done.len();
        done.append(&mut state.done);
        drop(state);
        self.in_flight -= found;
        if found == 0 && at_least > 0 {
            return Err(overdue(deadline, self.in_flight));
        }
        Ok(())
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}

impl Drop for ThreadsReader {
    /// Drops the reads that have not started. A read that hangs in the kernel keeps its lease, and
    /// so the memory, in its thread; no other code can access those bytes.
    fn drop(&mut self) {
        let begun = {
            let mut state = self.pool.state();
            state.closing = true;
            self.in_flight -= state.todo.len();
            state.todo.clear();
            self.in_flight
        };
        self.pool.work_to_do.notify_all();
        if begun > 0 {
            // A failure means that a read hangs. The caller that waited for that read has received
            // the error.
            let _ = self.wait(begun, PATIENCE, &mut Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use outercore_core::{Bytes, ErrorKind};

    use super::*;
    use crate::Arena;

    #[test]
    fn a_read_that_never_completes_meets_the_deadline() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [1; 100]).unwrap();
        let arena = Arena::new(Bytes::kib(4)).unwrap();
        let mut reader = ThreadsReader::without_threads(4);
        let file = reader.register(file.path()).unwrap();
        let lease = arena.lease(100).unwrap();
        let mut requests = [ReadRequest { tag: 0, file, offset: 0, len: 100, lease }].into();
        assert_eq!(reader.submit(&mut requests).unwrap(), 1);
        let mut done = Vec::new();
        let error = reader.wait(1, Duration::from_millis(1), &mut done).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("1 in flight"), "{error}");
        drop(reader);
        assert_eq!(arena.free_bytes(), arena.size());
    }

    #[test]
    fn files_that_cannot_be_read_directly_are_read_at_any_offset() {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), (0..200).collect::<Vec<u8>>()).unwrap();
        let arena = Arena::new(Bytes::kib(4)).unwrap();
        let mut reader = ThreadsReader::open(1).unwrap();
        let file = reader.files.add(Opened::open(path.path(), Caching::Keep).unwrap());
        assert_eq!(reader.alignment(), 1);
        let lease = arena.lease(100).unwrap();
        let mut requests = [ReadRequest { tag: 0, file, offset: 33, len: 100, lease }].into();
        reader.submit(&mut requests).unwrap();
        let mut done = Vec::new();
        reader.wait(1, PATIENCE, &mut done).unwrap();
        assert_eq!(done[0].lease[..100], (33..133).collect::<Vec<u8>>());
    }
}
