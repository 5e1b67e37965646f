//! Measures far memory: bytes per second by chunk size and queue length, over one data queue.

use std::time::{Duration, Instant};

use outercore_core::{Bytes, Error, ErrorKind, Result, Stream, Uniform};
use outercore_io::Arena;
use serde::{Deserialize, Serialize};

use crate::queue::{Arrivals, Queue, Transfer, Transferred};
use crate::region::Region;
use crate::remote::Remote;

/// A chunk size is good enough at this share of the highest rate; smaller chunks need less memory.
const GOOD_ENOUGH: f64 = 0.95;

/// Options of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FarProbeConfig {
    /// Size of the region to read.
    pub size: Bytes,
    /// Time for each point.
    pub per_point: Duration,
    /// Smallest chunk; sizes increase by factors of four.
    pub smallest: Bytes,
    /// Largest chunk.
    pub largest: Bytes,
    /// Largest queue length; lengths increase by factors of four, starting at one.
    pub length: usize,
    /// Memory for transfers in flight, which limits the queue length of large chunks.
    pub staging: Bytes,
    /// Longest time to wait for one transfer.
    pub deadline: Duration,
}

impl Default for FarProbeConfig {
    fn default() -> Self {
        Self {
            size: Bytes::mib(64),
            per_point: Duration::from_millis(300),
            smallest: Bytes::kib(4),
            largest: Bytes::mib(4),
            length: 64,
            staging: Bytes::mib(32),
            deadline: Duration::from_secs(30),
        }
    }
}

impl FarProbeConfig {
    /// The points to measure: chunk size and queue length. The smallest chunk must not be empty.
    fn points(&self) -> Vec<(Bytes, usize)> {
        let largest = self.largest.0.min(self.size.0);
        let chunks = std::iter::successors(Some(self.smallest.0), |chunk| chunk.checked_mul(4));
        chunks
            .take_while(|&chunk| chunk <= largest)
            .flat_map(|chunk| {
                let most = self.length.min((self.staging.0 / chunk) as usize).max(1);
                let lengths = std::iter::successors(Some(1usize), |length| length.checked_mul(4));
                lengths
                    .take_while(move |&length| length <= most)
                    .map(move |length| (Bytes(chunk), length))
            })
            .collect()
    }
}

/// Throughput of reads of one chunk size at one queue length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarPoint {
    /// Bytes per transfer.
    pub chunk: Bytes,
    /// Transfers in flight.
    pub queue_length: usize,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

/// Performance of a memory server with random reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarProfile {
    /// The smallest chunk whose rate is near the highest one.
    pub best_chunk: Bytes,
    /// Seconds from request to data, for the smallest chunk and one transfer at a time.
    pub latency_s: f64,
    /// One entry per chunk and queue length.
    pub points: Vec<FarPoint>,
}

/// Progress of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FarProbeStep {
    /// A part of the region was written.
    Written {
        /// Bytes written so far.
        done: Bytes,
        /// Size of the region.
        of: Bytes,
    },
    /// A point was measured.
    Measured {
        /// Number of the point, from 1.
        number: usize,
        /// Total number of points.
        of: usize,
        /// The point.
        point: FarPoint,
    },
}

/// Measures a memory server.
///
/// Allocates a region on the server, writes it, reads it at random, and frees it, also after an
/// error. `on_step` is called after each step and may stop the probe with an error.
///
/// **Cost**: writes `config.size` bytes, then reads for `config.per_point` times the number of
/// points; holds at most `config.staging` bytes.
///
/// # Errors
/// `Invalid`: the configuration is empty. `NoSpace`: the server has no room for the region. `Io`:
/// the server is gone. Errors of `on_step`.
pub fn probe(
    remote: &dyn Remote,
    config: &FarProbeConfig,
    on_step: &mut dyn FnMut(FarProbeStep) -> Result<()>,
) -> Result<FarProfile> {
    let points = if config.smallest.0 == 0 { Vec::new() } else { config.points() };
    if points.is_empty() || config.staging < config.largest {
        return Err(Error::invalid(format!(
            "probe of chunks from {} to {} in a region of {}",
            config.smallest, config.largest, config.size,
        ))
        .hint("choose a longer region"));
    }
    let region = remote.allocate(config.size, None)?;
    let measured = measure_all(remote, &region, config, &points, on_step);
    // After an error the server may be gone, and the region with it, so the first error is
    // returned.
    let freed = remote.free(&region);
    let (latency, points) = measured?;
    freed?;
    Ok(FarProfile {
        best_chunk: best_chunk(&points),
        latency_s: (latency.as_secs_f64() * 1e9).round() / 1e9,
        points,
    })
}

/// The smallest chunk whose best point is near the highest rate.
fn best_chunk(points: &[FarPoint]) -> Bytes {
    let peak = points.iter().map(|point| point.bytes_per_s).fold(0.0, f64::max);
    let good = points.iter().filter(|point| point.bytes_per_s >= GOOD_ENOUGH * peak);
    good.map(|point| point.chunk).min().unwrap_or_default()
}

fn measure_all(
    remote: &dyn Remote,
    region: &Region,
    config: &FarProbeConfig,
    points: &[(Bytes, usize)],
    on_step: &mut dyn FnMut(FarProbeStep) -> Result<()>,
) -> Result<(Duration, Vec<FarPoint>)> {
    let arena = Arena::new(config.staging)?;
    fill(remote, region, config, &arena, on_step)?;
    // Only sealed regions are shared with clients on the same machine.
    remote.seal(region, false)?;
    let mut latency = None;
    let mut measured = Vec::with_capacity(points.len());
    for (number, &(chunk, length)) in points.iter().enumerate() {
        let mut link = Link::open(remote, region, config, &arena, chunk, length)?;
        let (bytes_per_s, median) = link.measure(config.per_point)?;
        // The first point has the smallest chunk and one transfer at a time.
        latency.get_or_insert(median);
        let point = FarPoint { chunk, queue_length: length, bytes_per_s };
        measured.push(point);
        on_step(FarProbeStep::Measured { number: number + 1, of: points.len(), point })?;
    }
    Ok((latency.unwrap_or_default(), measured))
}

/// Writes random bytes, which a network cannot compress.
fn fill(
    remote: &dyn Remote,
    region: &Region,
    config: &FarProbeConfig,
    arena: &Arena,
    on_step: &mut dyn FnMut(FarProbeStep) -> Result<()>,
) -> Result<()> {
    let chunk = Bytes(config.largest.0.min(region.len.0));
    let mut link = Link::open(remote, region, config, arena, chunk, 1)?;
    let mut draws = Stream::new(region.len.0, 0).uniform(0, 0, 0);
    let mut done = 0;
    while done < region.len.0 {
        let len = chunk.0.min(region.len.0 - done) as usize;
        let mut transfer = link.transfer(done, len)?;
        for word in transfer.lease.chunks_exact_mut(8) {
            word.copy_from_slice(&draws.next_u64().to_le_bytes());
        }
        link.queue.write_start(transfer);
        link.wait()?;
        done += len as u64;
        on_step(FarProbeStep::Written { done: Bytes(done), of: region.len })?;
    }
    Ok(())
}

/// One queue and its transfers in flight.
struct Link<'a> {
    queue: Box<dyn Queue>,
    arrivals: Arrivals,
    arena: &'a Arena,
    region: Region,
    chunk: Bytes,
    length: usize,
    deadline: Duration,
    draws: Uniform,
    done: Vec<Transferred>,
}

impl<'a> Link<'a> {
    fn open(
        remote: &dyn Remote,
        region: &Region,
        config: &FarProbeConfig,
        arena: &'a Arena,
        chunk: Bytes,
        length: usize,
    ) -> Result<Self> {
        let arrivals = Arrivals::default();
        Ok(Self {
            queue: remote.open_queue(length, chunk, &arrivals)?,
            arrivals,
            arena,
            region: *region,
            chunk,
            length,
            deadline: config.deadline,
            draws: Stream::new(chunk.0, length as u64).uniform(0, 0, 0),
            done: Vec::new(),
        })
    }

    fn transfer(&self, offset: u64, len: usize) -> Result<Transfer> {
        let lease = self
            .arena
            .lease(len)
            .ok_or_else(|| Error::internal("the memory of a probe is in pieces"))?;
        Ok(Transfer { tag: 0, region: self.region, offset, len, lease })
    }

    /// Waits for at least one transfer; returns the number of successful ones.
    fn wait(&mut self) -> Result<usize> {
        let ended = self.arrivals.take(1, self.deadline, &mut self.done);
        if ended == 0 {
            return Err(Error::new(
                ErrorKind::Io,
                format!("the memory server has not answered for {:?}", self.deadline),
            ));
        }
        self.done.drain(..).try_for_each(|transferred| transferred.result)?;
        Ok(ended)
    }

    fn start(&mut self) -> Result<()> {
        let places = self.region.len.0 / self.chunk.0;
        let offset = self.draws.below(places) * self.chunk.0;
        let transfer = self.transfer(offset, self.chunk.0 as usize)?;
        self.queue.read_start(transfer);
        Ok(())
    }

    /// Reads with a full queue for `time`; returns the bytes per second and the median time between
    /// two completions.
    fn measure(&mut self, time: Duration) -> Result<(f64, Duration)> {
        let begun = Instant::now();
        let (mut elapsed, mut ended, mut in_flight) = (Duration::ZERO, 0, 0);
        let mut gaps = Vec::new();
        while elapsed < time {
            while in_flight < self.length {
                self.start()?;
                in_flight += 1;
            }
            let arrived = self.wait()?;
            in_flight -= arrived;
            ended += arrived;
            let now = begun.elapsed();
            gaps.push(now - elapsed);
            elapsed = now;
        }
        while in_flight > 0 {
            in_flight -= self.wait()?;
        }
        let middle = gaps.len() / 2;
        let median = *gaps.select_nth_unstable(middle).1;
        let bytes = ended as f64 * self.chunk.0 as f64;
        Ok(((bytes / elapsed.as_secs_f64()).round(), median.max(Duration::from_nanos(1))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use outercore_core::Context;

    use super::*;
    use crate::queue::refuse;
    use crate::region::RegionKey;
    use crate::remote::ServerStatus;

    /// Memory of this process as a test server, which counts its regions and can refuse reads.
    #[derive(Debug, Default)]
    struct Here {
        regions: Mutex<u64>,
        broken: bool,
    }

    #[derive(Debug)]
    struct HereQueue {
        arrivals: Arrivals,
        length: usize,
        broken: bool,
    }

    impl Queue for HereQueue {
        fn read_start(&mut self, transfer: Transfer) {
            if self.broken {
                let gone = Err::<(), _>(Error::new(ErrorKind::Io, "gone")).context("server");
                return refuse(&self.arrivals, transfer, gone.unwrap_err());
            }
            self.write_start(transfer);
        }

        fn write_start(&mut self, transfer: Transfer) {
            let Transfer { tag, region, offset, len, lease } = transfer;
            assert!(offset + len as u64 <= region.len.0);
            self.arrivals.put(Transferred { tag, lease, result: Ok(()) });
        }

        fn length(&self) -> usize {
            self.length
        }
    }

    impl Remote for Here {
        fn allocate(&self, len: Bytes, _: Option<&str>) -> Result<Region> {
            *self.regions.lock().unwrap() += 1;
            Ok(Region { key: RegionKey(1), len })
        }

        fn seal(&self, _: &Region, _: bool) -> Result<()> {
            Ok(())
        }

        fn find(&self, _: &str) -> Result<Option<Region>> {
            Ok(None)
        }

        fn free(&self, _: &Region) -> Result<()> {
            *self.regions.lock().unwrap() -= 1;
            Ok(())
        }

        fn status(&self) -> Result<ServerStatus> {
            Err(Error::internal("nobody asks"))
        }

        fn open_queue(
            &self,
            length: usize,
            _: Bytes,
            arrivals: &Arrivals,
        ) -> Result<Box<dyn Queue>> {
            Ok(Box::new(HereQueue { arrivals: arrivals.clone(), length, broken: self.broken }))
        }
    }

    fn small() -> FarProbeConfig {
        FarProbeConfig {
            size: Bytes::kib(100),
            per_point: Duration::from_micros(200),
            largest: Bytes::kib(64),
            length: 16,
            staging: Bytes::mib(1),
            ..FarProbeConfig::default()
        }
    }

    #[test]
    fn a_probe_measures_every_point_and_gives_its_region_back() {
        let here = Here::default();
        let mut numbers = Vec::new();
        let profile = probe(&here, &small(), &mut |step| {
            if let FarProbeStep::Measured { number, of, .. } = step {
                numbers.push((number, of));
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(profile.points.len(), 9);
        assert_eq!(numbers, (1..=9).map(|number| (number, 9)).collect::<Vec<_>>());
        assert!(profile.points.iter().all(|point| point.bytes_per_s > 0.0));
        assert!(profile.latency_s > 0.0);
        assert_eq!(*here.regions.lock().unwrap(), 0);
    }

    #[test]
    fn a_probe_that_is_stopped_or_fails_gives_its_region_back() {
        let here = Here::default();
        let stop = || Error::new(ErrorKind::Interrupted, "stopped");
        let stopped = probe(&here, &small(), &mut |_| Err(stop())).unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Interrupted);
        assert_eq!(*here.regions.lock().unwrap(), 0);
        let broken = Here { broken: true, ..Here::default() };
        let error = probe(&broken, &small(), &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.to_string(), "server: gone");
        assert_eq!(*broken.regions.lock().unwrap(), 0);
    }

    #[test]
    fn a_region_without_room_for_a_chunk_and_chunks_of_nothing_are_refused() {
        for config in [
            FarProbeConfig { size: Bytes(100), ..small() },
            FarProbeConfig { smallest: Bytes(0), ..small() },
            FarProbeConfig { smallest: Bytes(u64::MAX), ..small() },
        ] {
            let error = probe(&Here::default(), &config, &mut |_| Ok(())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn the_best_chunk_is_the_smallest_near_the_highest_rate() {
        let point = |kib, queue_length, bytes_per_s| FarPoint {
            chunk: Bytes::kib(kib),
            queue_length,
            bytes_per_s,
        };
        let points =
            [point(4, 1, 1e6), point(64, 1, 2e6), point(64, 4, 9.6e6), point(256, 1, 10e6)];
        assert_eq!(best_chunk(&points), Bytes::kib(64));
    }
}
