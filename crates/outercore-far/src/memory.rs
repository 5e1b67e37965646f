//! The low-level interface to far memory, used by numbered threads (Fargraph+ 8.1).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_io::{Arena, Lease};
use serde::{Deserialize, Serialize};

use crate::client::Connection;
use crate::data_plane::DataPlane;
use crate::options::FarOptions;
use crate::queue::{Arrivals, Queue, Transfer, Transferred};
use crate::region::Region;
use crate::remote::{Remote, ServerStatus};

/// Most threads of one connection; each has a queue.
const MOST_THREADS: usize = 64;

/// Chunks of a thread that may be on the way to the server.
const SENT_AT_ONCE: usize = 4;

/// Organisation of receive buffers (Fargraph+ 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// One pool for all threads: `queue_length` chunks.
    Shared,
    /// One pool for each thread, of `queue_length` chunks.
    PerThread,
}

/// A read or a write that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// The ticket as a number, for other languages.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The ticket with this number. An unknown number is refused when it is used.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }
}

/// A connection to a memory server for a fixed number of threads, each with a data queue.
///
/// Reads and writes are started first and completed later; both are split into chunks. Threads are
/// numbers below the count given at the start; a caller acts as the thread whose number it passes.
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// use outercore_far::{FarMemory, FarOptions, Receive, ServerConfig, Token, serve};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir().unwrap();
/// # let token_file = directory.path().join("token");
/// let token = Token::create_file(&token_file)?;
/// let server = serve(ServerConfig::new("127.0.0.1:0".parse()?, Bytes::mib(1), token))?;
///
/// let options = FarOptions {
///     token_file: Some(token_file),
///     ..FarOptions::new(server.addresses()[0].clone())
/// };
/// let far = FarMemory::build_connection(&options, 2, Receive::Shared)?;
/// let region = far.allocate(Bytes::kib(64), None)?;
/// far.far_write_start(0, &region, 0, b"some edges")?;
/// far.far_write_complete(0)?;
/// let ticket = far.far_read_start(1, &region, 5, 5)?;
/// assert_eq!(&far.far_read_complete(1, ticket)?[..5], b"edges");
/// # Ok(())
/// # }
/// ```
pub struct FarMemory {
    server: Connection,
    threads: Vec<Mutex<Thread>>,
    /// One pool, or one for each thread.
    pools: Vec<Arena>,
    chunk: usize,
    timeout: Duration,
}

/// Transfers of one thread.
struct Thread {
    queue: Box<dyn Queue>,
    arrivals: Arrivals,
    /// Copies of data on the way to the server.
    outgoing: Arena,
    next: u64,
    writes: HashSet<u64>,
    /// The first error among finished writes.
    failed: Option<Error>,
    /// Bytes of each read in flight, by ticket.
    reads: HashMap<u64, usize>,
    /// Finished reads that were not yet completed by the caller.
    arrived: HashMap<u64, Transferred>,
}

impl FarMemory {
    /// Connects (`build_connection`), with queues and buffers for `threads` threads.
    ///
    /// # Errors
    /// As [`Connection::build`]; `Invalid` also if `threads` is not 1 to 64.
    pub fn build_connection(
        options: &FarOptions,
        threads: usize,
        receive: Receive,
    ) -> Result<Self> {
        Self::build_connection_with(options, None, threads, receive)
    }

    /// As [`FarMemory::build_connection`], with a data plane for `fabric://` addresses.
    ///
    /// # Errors
    /// As [`FarMemory::build_connection`].
    pub fn build_connection_with(
        options: &FarOptions,
        plane: Option<&dyn DataPlane>,
        threads: usize,
        receive: Receive,
    ) -> Result<Self> {
        if !(1..=MOST_THREADS).contains(&threads) {
            return Err(Error::invalid(format!(
                "threads is {threads}, expected 1 to {MOST_THREADS}"
            )));
        }
        let server = Connection::build_with(options, plane)?;
        let pool = || Arena::new(Bytes(options.chunk.0 * options.queue_length as u64));
        let pools = match receive {
            Receive::Shared => vec![pool()?],
            Receive::PerThread => (0..threads).map(|_| pool()).collect::<Result<_>>()?,
        };
        let threads = (0..threads).map(|_| Thread::open(&server, options).map(Mutex::new));
        Ok(Self {
            threads: threads.collect::<Result<_>>()?,
            server,
            pools,
            chunk: options.chunk.0 as usize,
            timeout: options.timeout(),
        })
    }

    /// Starts to write `bytes` to `region` at `offset` (`far_write_start`). The bytes are copied,
    /// so the caller may change them afterwards. Waits while too many bytes of this thread are on
    /// the way.
    ///
    /// # Errors
    /// `Invalid`: no such thread, or the range exceeds the region. `Io`: the server is gone.
    pub fn far_write_start(
        &self,
        thread: usize,
        region: &Region,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Ticket> {
        let mut thread = self.thread(thread)?;
        region.check_range(offset, bytes.len())?;
        for (index, piece) in bytes.chunks(self.chunk).enumerate() {
            let mut lease = self.outgoing_buffer(&mut thread, piece.len())?;
            lease[..piece.len()].copy_from_slice(piece);
            let tag = thread.draw();
            thread.writes.insert(tag);
            thread.queue.write_start(Transfer {
                tag,
                region: *region,
                offset: offset + (index * self.chunk) as u64,
                len: piece.len(),
                lease,
            });
        }
        Ok(Ticket(thread.next))
    }

    /// Waits for all writes of a thread (`far_write_complete`).
    ///
    /// # Errors
    /// The error of the first failed write; `Invalid`: no such thread.
    pub fn far_write_complete(&self, thread: usize) -> Result<()> {
        let mut thread = self.thread(thread)?;
        while !thread.writes.is_empty() {
            let patience = self.patience(thread.writes.len() * self.chunk);
            thread.wait(patience, &self.server)?;
        }
        thread.failed.take().map_or(Ok(()), Err)
    }

    /// Starts to read `len` bytes of `region` at `offset` (`far_read_start`). If all receive
    /// buffers are in use, waits for one, at most for the time-out.
    ///
    /// # Errors
    /// `Invalid`: no such thread, or the range exceeds the region or all receive buffers together.
    /// `Budget`: no receive buffer became free.
    pub fn far_read_start(
        &self,
        thread: usize,
        region: &Region,
        offset: u64,
        len: usize,
    ) -> Result<Ticket> {
        let pool = &self.pools[thread.min(self.pools.len() - 1)];
        let mut thread = self.thread(thread)?;
        region.check_range(offset, len)?;
        if len as u64 > pool.size().0 {
            return Err(Error::invalid(format!(
                "a read of {}, longer than all receive buffers together: {}",
                Bytes(len as u64),
                pool.size()
            ))
            .hint("read in pieces, or connect with longer queues"));
        }
        let lease = pool.lease_before(len, Instant::now() + self.timeout).ok_or_else(|| {
            Error::new(
                ErrorKind::Budget,
                format!("no receive buffer of {} became free", Bytes(len as u64)),
            )
            .hint("complete earlier reads and let go of their bytes first")
        })?;
        let tag = thread.draw();
        thread.reads.insert(tag, len);
        thread.queue.read_start(Transfer { tag, region: *region, offset, len, lease });
        Ok(Ticket(tag))
    }

    /// Waits for a read of a thread and returns its buffer (`far_read_complete`). Bytes beyond the
    /// read are arbitrary.
    ///
    /// # Errors
    /// The error of the read; `Invalid`: the thread has no such read in flight.
    pub fn far_read_complete(&self, thread: usize, ticket: Ticket) -> Result<Lease> {
        let mut thread = self.thread(thread)?;
        loop {
            if let Some(done) = thread.arrived.remove(&ticket.0) {
                return done.result.map(|()| done.lease);
            }
            if !thread.reads.contains_key(&ticket.0) {
                return Err(Error::invalid(format!(
                    "read {} was not started by this thread, or has been completed",
                    ticket.0
                )));
            }
            let patience = self.patience(thread.reads.values().sum());
            thread.wait(patience, &self.server)?;
        }
    }

    /// Memory of the queues and buffers of all threads.
    pub fn memory_bytes(&self) -> Bytes {
        let pools: u64 = self.pools.iter().map(|pool| pool.size().0).sum();
        let threads: u64 = self
            .threads
            .iter()
            .map(|thread| {
                let thread = lock(thread);
                thread.outgoing.size().0 + thread.queue.memory_bytes().0
            })
            .sum();
        Bytes(pools + threads)
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// See [`Remote::allocate`].
    ///
    /// # Errors
    /// As there.
    pub fn allocate(&self, len: Bytes, name: Option<&str>) -> Result<Region> {
        self.server.allocate(len, name)
    }

    /// See [`Remote::seal`].
    ///
    /// # Errors
    /// As there.
    pub fn seal(&self, region: &Region, keep: bool) -> Result<()> {
        self.server.seal(region, keep)
    }

    /// See [`Remote::find`].
    ///
    /// # Errors
    /// As there.
    pub fn find(&self, name: &str) -> Result<Option<Region>> {
        self.server.find(name)
    }

    /// See [`Remote::free`].
    ///
    /// # Errors
    /// As there.
    pub fn free(&self, region: &Region) -> Result<()> {
        self.server.free(region)
    }

    /// See [`Remote::status`].
    ///
    /// # Errors
    /// As there.
    pub fn status(&self) -> Result<ServerStatus> {
        self.server.status()
    }

    fn thread(&self, number: usize) -> Result<MutexGuard<'_, Thread>> {
        let thread = self.threads.get(number).ok_or_else(|| {
            Error::invalid(format!(
                "thread {number}, expected less than the {} of this connection",
                self.threads.len()
            ))
        })?;
        Ok(lock(thread))
    }

    /// A buffer for data to send, waiting for earlier transfers if necessary.
    fn outgoing_buffer(&self, thread: &mut Thread, len: usize) -> Result<Lease> {
        loop {
            if let Some(error) = thread.failed.take() {
                return Err(error);
            }
            if let Some(lease) = thread.outgoing.lease(len) {
                return Ok(lease);
            }
            let patience = self.patience(thread.writes.len() * self.chunk);
            thread.wait(patience, &self.server)?;
        }
    }

    /// Longest time that `bytes` bytes can take on a live server: one chunk within each time-out.
    fn patience(&self, bytes: usize) -> Duration {
        let chunks = bytes.div_ceil(self.chunk).min(1 << 16) as u32;
        self.timeout * (chunks + 2)
    }
}

fn lock(thread: &Mutex<Thread>) -> MutexGuard<'_, Thread> {
    thread.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Thread {
    fn open(server: &Connection, options: &FarOptions) -> Result<Self> {
        let arrivals = Arrivals::default();
        Ok(Self {
            queue: server.open_queue(options.queue_length, options.chunk, &arrivals)?,
            arrivals,
            outgoing: Arena::new(Bytes(options.chunk.0 * SENT_AT_ONCE as u64))?,
            next: 0,
            writes: HashSet::new(),
            failed: None,
            reads: HashMap::new(),
            arrived: HashMap::new(),
        })
    }

    fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Waits until at least one transfer has ended, and sorts the ended ones.
    fn wait(&mut self, patience: Duration, server: &Connection) -> Result<()> {
        let mut done = Vec::new();
        if self.arrivals.take(1, patience, &mut done) == 0 {
            return Err(Error::new(
                ErrorKind::Io,
                format!("memory server {}: nothing ended for {patience:?}", server.address()),
            ));
        }
        for transferred in done {
            if self.writes.remove(&transferred.tag) {
                if let Err(error) = transferred.result {
                    self.failed.get_or_insert(error);
                }
            } else if self.reads.remove(&transferred.tag).is_some() {
                self.arrived.insert(transferred.tag, transferred);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FarMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FarMemory({}, {} threads)", self.server.address(), self.threads.len())
    }
}
