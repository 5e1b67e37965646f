//! The `sim` back end: a device in virtual time that fails according to a script, for tests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outercore_core::{Context, Result, Stream};

use crate::progress::{Next, Progress, ends_early, overdue, refused};
use crate::reader::{Completion, FileId, ReadRequest, Reader};

/// A fault of one read of the simulated device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The read brings at most this many bytes (rounded down to the alignment, at least one unit).
    Short(usize),
    /// The read fails with this error number.
    Error(i32),
    /// The read takes this much longer than others.
    Delay(Duration),
    /// The read never completes.
    Never,
}

/// How the simulated device behaves.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Decides latencies and random short reads; the same seed gives the same run.
    pub seed: u64,
    /// Reads in flight at once.
    pub depth: usize,
    /// Alignment that offsets must have.
    pub alignment: usize,
    /// Reads take up to this long, evenly spread, so that they complete in any order.
    pub latency: Duration,
    /// Share of reads that are short.
    pub short_share: f64,
    /// The fault of the n-th read of the device, counted from 0; each continuation of a read counts
    /// as another read.
    pub script: BTreeMap<u64, Fault>,
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            depth: 32,
            alignment: 4096,
            latency: Duration::from_micros(100),
            short_share: 0.0,
            script: BTreeMap::new(),
        }
    }
}

/// A device in virtual time: it never sleeps, and it fails according to its [`SimConfig`].
///
/// It reads files given by [`SimReader::with_file`], and otherwise real files. It panics if a
/// request breaks the contract of [`Reader`]. It fills every destination with `0xA5` before
/// reading, so unread bytes never look right by chance.
///
/// # Example
/// ```
/// use outercore_core::Bytes;
/// use outercore_io::sim::{Fault, SimConfig, SimReader};
/// use outercore_io::{Arena, Engine, PlannedRead};
/// use std::{path::Path, time::Duration};
/// let config = SimConfig { script: [(0, Fault::Error(5))].into(), ..SimConfig::default() };
/// let reader = SimReader::open(config).with_file("x", vec![7; 10_000]);
/// let arena = Arena::new(Bytes::kib(64)).unwrap();
/// let mut engine = Engine::over(Box::new(reader), arena, Duration::from_secs(1));
/// let file = engine.register(Path::new("x")).unwrap();
/// let read = PlannedRead { offset: 5000, len: 10 };
/// let error = engine.read(file, &[read], &mut |_, _| Ok(())).unwrap_err();
/// assert!(error.to_string().starts_with("file `x`: read of 4096 bytes at offset 4096"));
/// ```
#[derive(Debug)]
pub struct SimReader {
    config: SimConfig,
    contents: HashMap<PathBuf, Vec<u8>>,
    files: Vec<SimFile>,
    now: Duration,
    /// Device reads started so far.
    begun: u64,
    /// Completion times of the requests in flight.
    events: BinaryHeap<Reverse<(Duration, u64)>>,
    flying: HashMap<u64, Flying>,
}

#[derive(Debug)]
struct SimFile {
    path: PathBuf,
    len: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Memory(Vec<u8>),
    Real(File),
}

#[derive(Debug)]
struct Flying {
    request: ReadRequest,
    progress: Progress,
    fault: Option<Fault>,
}

impl SimReader {
    /// A device without files.
    pub fn open(config: SimConfig) -> Self {
        assert!(config.alignment.is_power_of_two(), "alignment {}", config.alignment);
        Self {
            config,
            contents: HashMap::new(),
            files: Vec::new(),
            now: Duration::ZERO,
            begun: 0,
            events: BinaryHeap::new(),
            flying: HashMap::new(),
        }
    }

    /// Gives the device a file that exists only in memory.
    #[must_use]
    pub fn with_file(mut self, path: impl Into<PathBuf>, content: Vec<u8>) -> Self {
        self.contents.insert(path.into(), content);
        self
    }

    /// Virtual time since the device was made.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Begins one device read and decides its outcome.
    fn begin(&mut self, request: ReadRequest, progress: Progress) {
        let number = self.begun;
        self.begun += 1;
        let mut draws = Stream::new(self.config.seed, 0).uniform(number, 0, 0);
        let mut latency = self.config.latency.mul_f64(draws.unit());
        let mut fault = self.config.script.get(&number).copied();
        if fault.is_none() && draws.unit() < self.config.short_share {
            fault = Some(Fault::Short(draws.below(progress.wanted() as u64) as usize));
        }
        if let Some(Fault::Delay(delay)) = fault {
            latency += delay;
        }
        if fault != Some(Fault::Never) {
            self.events.push(Reverse((self.now + latency, number)));
        }
        self.flying.insert(number, Flying { request, progress, fault });
    }

    /// Completes one device read: the request is finished, or its rest is started again.
    fn answer(&mut self, number: u64) -> Option<Completion> {
        let Flying { mut request, mut progress, fault } =
            self.flying.remove(&number).expect("an event for a read in flight");
        let file = &self.files[request.file.0 as usize];
        let (offset, len) = (request.offset, request.len);
        let place = progress.position();
        let destination = &mut request.lease[place..place + progress.wanted()];
        let outcome = file.read(destination, offset + place as u64, fault, self.config.alignment);
        let result = match outcome.map(|bytes| progress.advance(bytes)) {
            Err(error) => Err(refused(&file.path, offset, len, error)),
            Ok(Next::EndsAt(found)) => Err(ends_early(&file.path, offset, len, found)),
            Ok(Next::Finished) => Ok(()),
            Ok(Next::Continue) => {
                self.begin(request, progress);
                return None;
            }
        };
        Some(Completion { tag: request.tag, lease: request.lease, result })
    }
}

impl SimFile {
    fn read(
        &self,
        destination: &mut [u8],
        offset: u64,
        fault: Option<Fault>,
        step: usize,
    ) -> io::Result<usize> {
        let limit = match fault {
            Some(Fault::Error(number)) => return Err(io::Error::from_raw_os_error(number)),
            Some(Fault::Short(bytes)) => (bytes - bytes % step).max(step),
            _ => usize::MAX,
        };
        let wanted = destination.len().min(limit);
        let destination = &mut destination[..wanted];
        match &self.content {
            Content::Real(file) => file.read_at(destination, offset),
            Content::Memory(bytes) => {
                let rest = bytes.get(offset as usize..).unwrap_or_default();
                let len = rest.len().min(destination.len());
                destination[..len].copy_from_slice(&rest[..len]);
                Ok(len)
            }
        }
    }
}

impl Reader for SimReader {
    fn register(&mut self, path: &Path) -> Result<FileId> {
        let (len, content) = match self.contents.remove(path) {
            Some(bytes) => (bytes.len() as u64, Content::Memory(bytes)),
            None => {
                let name = || format!("file `{}`", path.display());
                let file = File::open(path).with_context(name)?;
                (file.metadata().with_context(name)?.len(), Content::Real(file))
            }
        };
        self.files.push(SimFile { path: path.to_path_buf(), len, content });
        Ok(FileId(self.files.len() as u32 - 1))
    }

    fn file_len(&self, file: FileId) -> u64 {
        self.files[file.0 as usize].len
    }

    fn alignment(&self) -> usize {
        self.config.alignment
    }

    fn depth(&self) -> usize {
        self.config.depth
    }

    fn in_flight(&self) -> usize {
        self.flying.len()
    }

    fn submit(&mut self, requests: &mut VecDeque<ReadRequest>) -> Result<usize> {
        let count = requests.len().min(self.config.depth - self.flying.len());
        for mut request in requests.drain(..count) {
            let progress = Progress::new(request.len, self.config.alignment);
            let file = &self.files[request.file.0 as usize];
            let end = request.offset + request.len as u64;
            assert_eq!(request.offset % self.config.alignment as u64, 0, "aligned offset");
            assert!(end <= file.len, "{end} within {} bytes", file.len);
            assert!(progress.wanted() <= request.lease.len(), "room for {} bytes", request.len);
            request.lease.fill(0xA5);
            self.begin(request, progress);
        }
        Ok(count)
    }

    fn wait(
        &mut self,
        at_least: usize,
        deadline: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        let end = self.now + deadline;
        let at_least = at_least.min(self.flying.len());
        let mut found = 0;
        while found < at_least {
            let Some(&Reverse((time, number))) = self.events.peek() else { break };
            if time > end {
                break;
            }
            self.events.pop();
            self.now = self.now.max(time);
            if let Some(completion) = self.answer(number) {
                done.push(completion);
                found += 1;
            }
        }
        if found < at_least {
            self.now = end;
        }
        if found == 0 && at_least > 0 {
            return Err(overdue(deadline, self.flying.len()));
        }
        Ok(())
    }

    fn name(&self) -> &'static str {
        "sim"
    }
}
