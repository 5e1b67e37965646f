//! A reader over far memory and a disk.

use std::collections::VecDeque;
use std::mem::size_of;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_io::{Completion, FileId, Lease, ReadRequest, Reader};

use crate::disk::Disk;
use crate::queue::{Arrivals, Queue, Transfer, Transferred};
use crate::region::RegionKey;
use crate::tier::{FarFile, Shared, Stamp};

/// Serves reads of placed bytes from far memory, and all other reads from the disk.
pub(crate) struct FarReader {
    shared: Arc<Shared>,
    disk: Disk,
    lanes: Vec<Lane>,
    /// The last used lane.
    lane: usize,
    arrivals: Arrivals,
    files: Vec<Known>,
    /// Reads in flight, by their tag in queues and on the disk.
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Far reads that wait for room in a lane.
    waiting: VecDeque<Transfer>,
    /// Number of far reads in lanes.
    in_lanes: usize,
    depth: usize,
    in_flight: usize,
    ended: Vec<Transferred>,
    memory: u64,
}

/// A registered file.
struct Known {
    /// `None` if the file on disk differs from the placed one.
    far: Option<Arc<FarFile>>,
    name: String,
    len: u64,
}

struct Lane {
    queue: Box<dyn Queue>,
    in_flight: usize,
}

/// A request whose lease is in use elsewhere.
struct Flight {
    tag: u64,
    file: FileId,
    offset: u64,
    len: usize,
    way: Way,
}

#[derive(Clone, Copy)]
enum Way {
    Disk,
    Waiting,
    Lane(usize, RegionKey),
    /// Not started, because the server is gone.
    Refused,
}

impl FarReader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        disk: Box<dyn Reader>,
        queues: Vec<Box<dyn Queue>>,
        arrivals: Arrivals,
        staging: Bytes,
        depth: usize,
    ) -> Self {
        let depth = depth.max(1);
        let entries = queues.iter().map(|queue| queue.length()).sum::<usize>() + depth;
        let memory = staging.0 + (entries * size_of::<(Transfer, Flight)>()) as u64;
        shared.tally.take_memory(memory);
        Self {
            shared,
            disk: Disk::new(disk, arrivals.clone()),
            lanes: queues.into_iter().map(|queue| Lane { queue, in_flight: 0 }).collect(),
            lane: 0,
            arrivals,
            files: Vec::new(),
            flights: (0..depth).map(|_| None).collect(),
            free: (0..depth as u32).rev().collect(),
            waiting: VecDeque::new(),
            in_lanes: 0,
            depth,
            in_flight: 0,
            ended: Vec::new(),
            memory,
        }
    }

    /// Sends a request to far memory or to the disk.
    fn route(&mut self, request: ReadRequest) -> Result<()> {
        let ReadRequest { tag, file, offset, len, lease } = request;
        let slot = self.free.pop().ok_or_else(|| Error::internal("more reads than the depth"))?;
        let range = offset..offset + len as u64;
        let place = self.files[file.0 as usize].far.as_ref().and_then(|far| far.find(&range));
        let mut flight = Flight { tag, file, offset, len, way: Way::Disk };
        let tag = u64::from(slot);
        match place {
            Some((region, offset)) if self.shared.is_alive() && !self.lanes.is_empty() => {
                flight.way = Way::Waiting;
                self.waiting.push_back(Transfer { tag, region, offset, len, lease });
            }
            Some(_) if !self.shared.options.fallback => {
                flight.way = Way::Refused;
                self.refuse(tag, lease);
            }
            _ => self.disk.queue(ReadRequest { tag, file, offset, len, lease }),
        }
        self.flights[slot as usize] = Some(flight);
        self.in_flight += 1;
        Ok(())
    }

    fn refuse(&self, tag: u64, lease: Lease) {
        let why = self.shared.why_lost().unwrap_or_else(|| "far memory is gone".to_owned());
        self.arrivals.put(Transferred { tag, lease, result: Err(Error::new(ErrorKind::Io, why)) });
    }

    /// Starts waiting requests as far as there is room.
    fn pump(&mut self) -> Result<()> {
        if !self.shared.is_alive() {
            self.give_up_waiting();
            if self.in_lanes == 0 && self.disk.in_flight() == 0 {
                self.disk.bring_home()?;
            }
        }
        while !self.waiting.is_empty() {
            let count = self.lanes.len();
            let has_room = |lane: &Lane| lane.in_flight < lane.queue.length();
            let next = (1..=count).map(|step| (self.lane + step) % count);
            let Some(lane) = next.into_iter().find(|&lane| has_room(&self.lanes[lane])) else {
                break;
            };
            let Some(transfer) = self.waiting.pop_front() else { break };
            if let Some(flight) = &mut self.flights[transfer.tag as usize] {
                flight.way = Way::Lane(lane, transfer.region.key);
            }
            self.lane = lane;
            self.lanes[lane].in_flight += 1;
            self.in_lanes += 1;
            self.lanes[lane].queue.read_start(transfer);
        }
        self.disk.pump(self.in_lanes > 0)
    }

    /// Sends all waiting far reads to the disk, or fails them without fallback.
    fn give_up_waiting(&mut self) {
        for transfer in std::mem::take(&mut self.waiting) {
            let Transfer { tag, lease, .. } = transfer;
            if self.shared.options.fallback {
                self.fail_over(tag, lease);
            } else {
                if let Some(flight) = &mut self.flights[tag as usize] {
                    flight.way = Way::Refused;
                }
                self.refuse(tag, lease);
            }
        }
    }

    /// Reads from the disk after far memory failed.
    fn fail_over(&mut self, tag: u64, lease: Lease) {
        let Some(flight) = &mut self.flights[tag as usize] else { return };
        flight.way = Way::Disk;
        let (file, offset, len) = (flight.file, flight.offset, flight.len);
        self.shared.tally.failed_over.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.disk.queue(ReadRequest { tag, file, offset, len, lease });
    }

    /// Takes finished reads, at least `at_least` of them if the time suffices.
    fn collect(
        &mut self,
        at_least: usize,
        left: Duration,
        done: &mut Vec<Completion>,
    ) -> Result<()> {
        let mut ended = std::mem::take(&mut self.ended);
        let mut outcome = Ok(());
        if self.disk.is_here() {
            let arrived = self.arrivals.take(0, Duration::ZERO, &mut ended);
            let wanted = at_least.saturating_sub(arrived);
            if self.disk.in_flight() == 0 {
                self.arrivals.take(wanted, left, &mut ended);
            } else {
                // `pump` moves the disk to its own thread if far memory also has reads in flight.
                outcome = self.disk.wait_here(wanted, left, &mut ended);
            }
        } else {
            self.disk.wake();
            self.arrivals.take(at_least, left, &mut ended);
        }
        for transferred in ended.drain(..) {
            self.settle(transferred, done);
        }
        self.ended = ended;
        outcome
    }

    /// Returns a finished read, or sends it to the disk.
    fn settle(&mut self, transferred: Transferred, done: &mut Vec<Completion>) {
        let Transferred { tag, lease, result } = transferred;
        let Some(flight) = &self.flights[tag as usize] else { return };
        let tally = &self.shared.tally;
        let result = match (flight.way, result) {
            (Way::Disk, result) => {
                self.disk.ended();
                if result.is_ok() {
                    tally.disk.add(flight.len);
                }
                result
            }
            (Way::Lane(lane, key), result) => {
                self.lanes[lane].in_flight -= 1;
                self.in_lanes -= 1;
                match result {
                    Ok(()) => {
                        tally.far.add(flight.len);
                        Ok(())
                    }
                    Err(error) => {
                        self.shared.note(&error);
                        if error.kind() != ErrorKind::Io {
                            // The server is alive but has lost this region.
                            self.shared.withdraw(key);
                        }
                        if self.shared.options.fallback {
                            return self.fail_over(tag, lease);
                        }
                        Err(self.named(flight, error))
                    }
                }
            }
            (Way::Waiting | Way::Refused, result) => {
                result.map_err(|error| self.named(flight, error))
            }
        };
        let tag = flight.tag;
        self.flights[transferred.tag as usize] = None;
        self.free.push(transferred.tag as u32);
        self.in_flight -= 1;
        done.push(Completion { tag, lease, result });
    }

    fn named(&self, flight: &Flight, error: Error) -> Error {
        let name = &self.files[flight.file.0 as usize].name;
        let (len, offset) = (flight.len, flight.offset);
        let what = format!("file `{name}`: far read of {len} bytes at offset {offset}");
        self.shared.named(error).context(what)
    }
}

impl Reader for FarReader {
    fn register(&mut self, path: &Path) -> Result<FileId> {
        let disk = self.disk.bring_home()?;
        let file = disk.register(path)?;
        let stamp = Stamp::of(path)?;
        let len = disk.file_len(file);
        self.disk.learn();
        let far = (len == stamp.len).then(|| self.shared.file(path, stamp)).transpose()?;
        debug_assert_eq!(self.files.len(), file.0 as usize);
        self.files.push(Known { far, name: path.display().to_string(), len });
        Ok(file)
    }

    fn file_len(&self, file: FileId) -> u64 {
        self.files[file.0 as usize].len
    }

    fn alignment(&self) -> usize {
        self.disk.alignment()
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&mut self, requests: &mut VecDeque<ReadRequest>) -> Result<usize> {
        let count = requests.len().min(self.depth - self.in_flight);
        for request in requests.drain(..count) {
            self.route(request)?;
        }
        self.pump()?;
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
        let before = done.len();
        loop {
            self.pump()?;
            let left = end.saturating_duration_since(Instant::now());
            let mut wanted = at_least.saturating_sub(done.len() - before);
            if !self.waiting.is_empty() {
                // Waiting reads start when a few others have ended.
                wanted = wanted.min((self.in_lanes / 4).max(1));
            }
            let outcome = self.collect(wanted, left, done);
            let found = done.len() - before;
            if let Err(error) = outcome {
                // If some reads have ended, return these first; the error is returned at the next
                // call.
                return if found > 0 { Ok(()) } else { Err(error) };
            }
            if found >= at_least {
                // Start reads that failed over or that now have room at once, and not only in the
                // next wait.
                return self.pump();
            }
            if left.is_zero() {
                return if found > 0 { Ok(()) } else { Err(self.overdue(deadline)) };
            }
        }
    }

    fn name(&self) -> &'static str {
        "far"
    }
}

impl FarReader {
    fn overdue(&mut self, deadline: Duration) -> Error {
        let (seconds, in_flight) = (deadline.as_secs_f64(), self.in_flight);
        self.disk.take_error().unwrap_or_else(|| {
            let server = &self.shared.options.address;
            let what = format!("no read completed within {seconds:.1} s, {in_flight} in flight");
            Error::new(ErrorKind::Io, what)
                .hint(format!("neither the disk nor the memory server {server} answers"))
        })
    }
}

impl Drop for FarReader {
    fn drop(&mut self) {
        self.shared.tally.give_memory(self.memory);
    }
}
