//! Measures a device: random reads of several sizes and depths in a temporary file.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result, Stream};

use crate::backend::Backend;
use crate::engine::{Engine, EngineConfig};
use crate::plan::PlannedRead;
use crate::profile::{DeviceProfile, ProfilePoint};

/// Most reads per point; a longer list would only cost memory.
const MOST_READS: usize = 1 << 18;

/// What to measure, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeConfig {
    /// The back end that reads.
    pub backend: Backend,
    /// Size of the temporary file; a large file exceeds the device's internal cache.
    pub file: Bytes,
    /// Time for each point.
    pub per_point: Duration,
    /// Staging memory, which limits how many large reads are in flight.
    pub staging: Bytes,
    /// Smallest read to measure; sizes go up by factors of two.
    pub smallest: Bytes,
    /// Largest read to measure.
    pub largest: Bytes,
    /// Largest number of reads in flight to measure.
    pub depth: usize,
}

impl Default for ProbeConfig {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            file: Bytes::mib(512),
            per_point: Duration::from_millis(300),
            staging: Bytes::mib(8),
            smallest: Bytes::kib(4),
            largest: Bytes::mib(1),
            depth: 256,
        }
    }
}

impl ProbeConfig {
    fn sizes(&self) -> impl Iterator<Item = Bytes> {
        let largest = self.largest;
        std::iter::successors(Some(self.smallest), |size| Some(Bytes(size.0 * 2)))
            .take_while(move |&size| size <= largest)
    }

    /// Depths for one size: one, and powers of four as far as staging has room.
    fn depths(&self, size: Bytes) -> Vec<usize> {
        let most = self.depth.min((self.staging.0 / size.0) as usize).max(1);
        let powers = std::iter::successors(Some(1), |depth| Some(depth * 4));
        powers.take_while(|&depth| depth < most).chain([most]).collect()
    }
}

/// Progress of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProbeStep {
    /// Part of the temporary file is written.
    Written {
        /// Bytes written so far.
        done: Bytes,
        /// Size of the file.
        of: Bytes,
    },
    /// A point was measured.
    Measured {
        /// Number of the point, from 1.
        number: usize,
        /// Total number of points.
        of: usize,
        /// The point.
        point: ProfilePoint,
    },
}

/// Measures the device that holds `directory`.
///
/// Writes a temporary file of random bytes there, reads it at random, and removes it, also after an
/// error. `progress` is called at each step and may stop the probe by returning an error.
///
/// **Cost**: writes `config.file` bytes, then reads for `config.per_point` times the number of
/// points (38 by default, about 12 s).
///
/// # Errors
/// The configuration is empty, the device is full or fails, or `progress` returns an error.
pub fn probe(
    directory: &Path,
    config: ProbeConfig,
    progress: &mut dyn FnMut(ProbeStep) -> Result<()>,
) -> Result<DeviceProfile> {
    if config.smallest.0 == 0 || config.smallest > config.largest || config.file < config.largest {
        return Err(Error::invalid(format!(
            "probe of reads from {} to {} in a file of {}",
            config.smallest, config.largest, config.file,
        ))
        .hint("choose a smallest read above zero, no larger than the largest, and a longer file"));
    }
    let scratch = Scratch::new(directory);
    scratch
        .fill(config.file, progress)
        .with_context(|| format!("probe file `{}`", scratch.0.display()))?;

    let points: Vec<_> = config
        .sizes()
        .flat_map(|size| config.depths(size).into_iter().map(move |depth| (size, depth)))
        .collect();
    let mut measured = Vec::with_capacity(points.len());
    let (mut backend, mut alignment) = ("", 1);
    // Taken from the first point: the smallest read, one at a time.
    let mut latency_s = None;
    for (number, &(read_bytes, depth)) in points.iter().enumerate() {
        let staging = Bytes(config.staging.0.max(read_bytes.0));
        let mut engine =
            Engine::open(EngineConfig { backend: config.backend, staging, depth, tier: None })?;
        let (point, latency) = measure(&mut engine, &scratch.0, &config, read_bytes, depth)?;
        latency_s.get_or_insert((latency.as_secs_f64() * 1e9).round() / 1e9);
        (backend, alignment) = (engine.backend_name(), engine.alignment());
        progress(ProbeStep::Measured { number: number + 1, of: points.len(), point })?;
        measured.push(point);
    }
    Ok(DeviceProfile {
        version: 1,
        measured: timestamp(SystemTime::now()),
        backend: backend.to_string(),
        file_bytes: config.file,
        alignment: alignment as u32,
        latency_s: latency_s.unwrap_or_default(),
        points: measured,
    })
}

/// Reads at random places until the time is over, without a barrier. The second result is the
/// median time between two completions, which at depth 1 is the latency. A mean would include the
/// times when other programs used the processor.
fn measure(
    engine: &mut Engine,
    path: &Path,
    config: &ProbeConfig,
    read_bytes: Bytes,
    depth: usize,
) -> Result<(ProfilePoint, Duration)> {
    let file = engine.register(path)?;
    let places = engine.file_len(file) / read_bytes.0;
    let mut draws = Stream::new(read_bytes.0, depth as u64).uniform(0, 0, 0);
    // Twice the rate of the fastest tested device, within a limit.
    let wanted = (config.per_point.as_secs_f64() * 4e6).ceil() as usize;
    let reads: Vec<_> = (0..wanted.clamp(1, MOST_READS))
        .map(|_| PlannedRead {
            offset: draws.below(places) * read_bytes.0,
            len: read_bytes.0 as u32,
        })
        .collect();
    let begun = Instant::now();
    let mut elapsed = Duration::ZERO;
    let mut gaps = Vec::with_capacity(reads.len());
    let outcome = engine.read(file, &reads, &mut |_, _| {
        let now = begun.elapsed();
        gaps.push(now - elapsed);
        elapsed = now;
        if elapsed < config.per_point {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Interrupted, "the time for this point is over"))
    });
    match outcome {
        Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
        _ => {}
    }
    // Tenths are finer than the measurement, and JSON represents them exactly as printed.
    let iops = (gaps.len() as f64 / elapsed.as_secs_f64().max(1e-9) * 10.0).round() / 10.0;
    let middle = gaps.len() / 2;
    let median = *gaps.select_nth_unstable(middle).1;
    let point = ProfilePoint { read_bytes, depth, iops, bytes_per_s: iops * read_bytes.0 as f64 };
    Ok((point, median.max(Duration::from_nanos(1))))
}

/// The temporary file; removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(directory: &Path) -> Self {
        Self(directory.join(format!(".outercore-probe-{}.tmp", std::process::id())))
    }

    /// Writes random bytes, so no device can compress or skip them. Syncs them, so writing back
    /// does not disturb the reads.
    fn fill(&self, size: Bytes, progress: &mut dyn FnMut(ProbeStep) -> Result<()>) -> Result<()> {
        let mut file = File::create(&self.0)?;
        let mut draws = Stream::new(size.0, 0).uniform(0, 0, 0);
        let mut block = vec![0; 1 << 20];
        let mut done = 0;
        while done < size.0 {
            for word in block.chunks_exact_mut(8) {
                word.copy_from_slice(&draws.next_u64().to_le_bytes());
            }
            let part = block.len().min((size.0 - done) as usize);
            file.write_all(&block[..part])?;
            done += part as u64;
            progress(ProbeStep::Written { done: Bytes(done), of: size })?;
        }
        file.sync_all()?;
        crate::open::drop_cached_pages(&file);
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // `Drop` cannot report an error, and a file that was never created is not a loss.
        let _ = fs::remove_file(&self.0);
    }
}

/// `time` as `2026-01-31T12:00:00Z`.
fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> ProbeConfig {
        ProbeConfig {
            file: Bytes::mib(2),
            per_point: Duration::from_millis(1),
            staging: Bytes::kib(256),
            largest: Bytes::kib(64),
            ..ProbeConfig::default()
        }
    }

    #[test]
    fn a_probe_measures_every_point_and_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let mut numbers = Vec::new();
        let profile = probe(directory.path(), small(), &mut |step| {
            if let ProbeStep::Measured { number, of, .. } = step {
                numbers.push((number, of));
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(profile.points.len(), 4 + 4 + 3 + 3 + 2);
        assert_eq!(numbers, (1..=16).map(|number| (number, 16)).collect::<Vec<_>>());
        assert!(profile.points.iter().all(|point| point.iops > 0.0));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_probe_that_is_stopped_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        for stop_at in 0..5 {
            let mut steps = 0;
            let stop = || Error::new(ErrorKind::Interrupted, "stopped");
            let outcome = probe(directory.path(), small(), &mut |_| {
                steps += 1;
                if steps > stop_at { Err(stop()) } else { Ok(()) }
            });
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Interrupted);
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = probe(Path::new("/no/such"), small(), &mut |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("/no/such"), "{error}");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_769_860_800, "2026-01-31T12:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
