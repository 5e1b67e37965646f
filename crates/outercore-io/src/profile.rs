//! The device profile: measured performance of a device, and the settings derived from it.

use std::fs;
use std::path::{Path, PathBuf};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::disk::Disk;
use crate::open::PAGE;
use crate::plan::CostModel;

/// The file in a directory that holds the profile of its device.
const FILE_NAME: &str = "device.json";

/// The newest version of the file that this build reads.
const VERSION: u32 = 1;

/// Throughput of random reads of one size at one depth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfilePoint {
    /// Bytes per read.
    pub read_bytes: Bytes,
    /// Reads in flight.
    pub depth: usize,
    /// Reads per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

/// Performance of a device under random reads, as measured by [`probe`](crate::probe()).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// Format version of this record.
    pub version: u32,
    /// When it was measured, as `2026-01-31T12:00:00Z`.
    pub measured: String,
    /// Name of the back end that measured it.
    pub backend: String,
    /// Size of the file that was read.
    pub file_bytes: Bytes,
    /// Alignment of direct reads in bytes.
    pub alignment: u32,
    /// Seconds from request to data for the smallest read, one at a time.
    pub latency_s: f64,
    /// One entry per read size and depth.
    pub points: Vec<ProfilePoint>,
}

impl DeviceProfile {
    /// The path of the profile that belongs to a directory.
    pub fn path(directory: &Path) -> PathBuf {
        directory.join(FILE_NAME)
    }

    /// Stores the profile in `directory`, replacing an older one atomically.
    ///
    /// # Errors
    /// The file cannot be written; the error names it.
    pub fn save(&self, disk: &dyn Disk, directory: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::internal(format!("device profile: {error}")))?;
        text.push(b'\n');
        disk.replace(&Self::path(directory), &text)
    }

    /// Reads the profile stored in `directory`.
    ///
    /// # Errors
    /// The directory has no profile, a newer version wrote it, or its content is invalid.
    pub fn load(directory: &Path) -> Result<Self> {
        let path = Self::path(directory);
        let name = || format!("device profile `{}`", path.display());
        let text = fs::read(&path).with_context(name);
        let text = text.map_err(|error| match error.kind() {
            ErrorKind::NotFound => error.hint("run `outercore probe DIR`"),
            _ => error,
        })?;
        Self::parse(&text).with_context(name)
    }

    /// Like [`Self::load`], but `None` if there is no profile.
    ///
    /// # Errors
    /// A newer version wrote the profile, or its content is invalid.
    pub fn find(directory: &Path) -> Result<Option<Self>> {
        match Self::load(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    fn parse(text: &[u8]) -> Result<Self> {
        let corrupt = |error: serde_json::Error| {
            Error::corrupt(error.to_string()).hint("run `outercore probe DIR` again")
        };
        let value: serde_json::Value = serde_json::from_slice(text).map_err(corrupt)?;
        let version = value.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if version > u64::from(VERSION) {
            let message = format!("version {version}, this build reads up to {VERSION}");
            return Err(Error::new(ErrorKind::Version, message)
                .hint("use a newer outercore, or run `outercore probe DIR` again"));
        }
        let profile: Self = serde_json::from_value(value).map_err(corrupt)?;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let sane = profile.points.iter().all(|point| {
            point.read_bytes.0 > 0 && positive(point.iops) && positive(point.bytes_per_s)
        });
        if !sane || !positive(profile.latency_s) || !profile.alignment.is_power_of_two() {
            return Err(Error::corrupt(
                "contains a rate, a size or a latency that is not positive",
            )
            .hint("run `outercore probe DIR` again"));
        }
        Ok(profile)
    }

    /// The point of highest throughput for each read size, smallest size first.
    pub fn peaks(&self) -> Vec<ProfilePoint> {
        let mut peaks: Vec<ProfilePoint> = Vec::new();
        for point in &self.points {
            match peaks.iter_mut().find(|peak| peak.read_bytes == point.read_bytes) {
                Some(peak) if peak.iops < point.iops => *peak = *point,
                Some(_) => {}
                None => peaks.push(*point),
            }
        }
        peaks.sort_by_key(|peak| peak.read_bytes);
        peaks
    }
}

impl CostModel {
    /// The cost model of the device that holds `directory`, from its profile; the default SSD model
    /// if there is no profile.
    ///
    /// # Errors
    /// As [`DeviceProfile::find`].
    pub fn of_device(directory: &Path) -> Result<Self> {
        let profile = DeviceProfile::find(directory)?;
        Ok(profile.as_ref().map_or_else(Self::default, Self::from))
    }
}

impl From<&DeviceProfile> for CostModel {
    /// Fits `seconds = requests * a + bytes * b` to the peak of each read size, by least squares of
    /// the relative error, with `a` and `b` at least zero.
    ///
    /// A profile with fewer than two sizes gives the default model.
    fn from(profile: &DeviceProfile) -> Self {
        let peaks = profile.peaks();
        let granule = profile.alignment.max(PAGE as u32);
        if peaks.len() < 2 {
            return Self { granule, ..Self::default() };
        }
        // With u = a / t and v = b * bytes / t: minimise the sum of (u + v - 1)^2.
        let (mut uu, mut uv, mut vv, mut u1, mut v1) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for peak in &peaks {
            let u = peak.iops;
            let v = peak.read_bytes.0 as f64 * peak.iops;
            uu += u * u;
            uv += u * v;
            vv += v * v;
            u1 += u;
            v1 += v;
        }
        let determinant = uu * vv - uv * uv;
        let (a, b) = ((u1 * vv - v1 * uv) / determinant, (v1 * uu - u1 * uv) / determinant);
        let (seconds_per_request, seconds_per_byte) = match (a > 0.0, b > 0.0) {
            (true, true) => (a, b),
            (true, false) => (u1 / uu, 0.0),
            _ => (0.0, v1 / vv),
        };
        Self { seconds_per_request, seconds_per_byte, granule }
    }
}

/// Reads that must be in flight to reach `wanted_share_of_peak` of the device's peak rate of small
/// reads.
///
/// With peak rate `P` and latency `L`, a batch of `N` overlapping reads takes `L + N / P`. It runs
/// at the share `p = N / (N + P * L)` of the peak, so `N = p / (1 - p) * P * L`. A share of one
/// half is the bandwidth-delay product. A queue that is refilled as reads complete needs no more
/// reads than a batch, so this is a safe default depth.
///
/// **Shapes**: `wanted_share_of_peak` is clipped to `0.0..=0.99`; the result is at least 1.
///
/// **Source**: GIDS, section 3.2, equations 2 and 3 (the dynamic storage access accumulator), for
/// one device. `Ti + Tt` is the latency measured from request to data.
///
/// # Example
/// ```
/// # use outercore_core::Bytes;
/// # use outercore_io::{DeviceProfile, ProfilePoint, reads_in_flight};
/// # let (read_bytes, iops) = (Bytes::kib(4), 700e3);
/// # let point = ProfilePoint { read_bytes, depth: 128, iops, bytes_per_s: 4096.0 * iops };
/// # let measured = String::new();
/// # let profile = DeviceProfile {
/// #     version: 1, measured, backend: "uring".into(), file_bytes: Bytes::gib(1),
/// #     alignment: 512, latency_s: 100e-6, points: vec![point],
/// # };
/// // 700,000 reads a second at 100 microseconds:
/// assert_eq!(reads_in_flight(&profile, 0.5), 70);
/// assert_eq!(reads_in_flight(&profile, 0.9), 630);
/// ```
pub fn reads_in_flight(profile: &DeviceProfile, wanted_share_of_peak: f64) -> usize {
    let share = wanted_share_of_peak.clamp(0.0, 0.99);
    let peak = profile.peaks().first().map_or(0.0, |peak| peak.iops);
    let reads = share / (1.0 - share) * peak * profile.latency_s;
    // Rounded first: 0.9 / (1 - 0.9) is slightly above 9 in floating point.
    ((reads * 1e6).round() / 1e6).ceil().max(1.0) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::RealDisk;

    /// The profile of a device that follows the model exactly.
    fn device(request: f64, byte: f64) -> DeviceProfile {
        let point = |depth: usize, kib: u64| {
            let read_bytes = Bytes::kib(kib);
            let slow = if depth == 1 { 4.0 } else { 1.0 };
            let iops = 1.0 / (request + byte * read_bytes.0 as f64) / slow;
            ProfilePoint { read_bytes, depth, iops, bytes_per_s: iops * read_bytes.0 as f64 }
        };
        let sizes = [4, 16, 64, 256, 1024];
        DeviceProfile {
            version: VERSION,
            measured: "2026-01-31T12:00:00Z".into(),
            backend: "uring".into(),
            file_bytes: Bytes::mib(256),
            alignment: 512,
            latency_s: 1e-4,
            points: sizes.iter().flat_map(|&kib| [point(1, kib), point(64, kib)]).collect(),
        }
    }

    proptest! {
        #[test]
        fn the_fit_finds_the_model_that_made_the_points(
            request in 1e-7f64..1e-3, byte in 1e-11f64..1e-8,
        ) {
            let cost = CostModel::from(&device(request, byte));
            prop_assert!((cost.seconds_per_request / request - 1.0).abs() < 1e-3, "{cost:?}");
            prop_assert!((cost.seconds_per_byte / byte - 1.0).abs() < 1e-3, "{cost:?}");
        }

        #[test]
        fn the_fit_is_never_negative(rates in prop::collection::vec(1f64..1e6, 2..9)) {
            let mut profile = device(1e-5, 1e-9);
            profile.points = rates
                .into_iter()
                .enumerate()
                .map(|(place, iops)| ProfilePoint {
                    read_bytes: Bytes::kib(4 << place),
                    depth: 8,
                    iops,
                    bytes_per_s: iops,
                })
                .collect();
            let cost = CostModel::from(&profile);
            prop_assert!(cost.seconds_per_request >= 0.0 && cost.seconds_per_byte >= 0.0);
            prop_assert!(cost.seconds(1, Bytes(4096)) > 0.0);
        }
    }

    #[test]
    fn a_profile_comes_back_as_it_was_saved() {
        let directory = tempfile::tempdir().unwrap();
        let mut profile = device(1e-5, 1e-9);
        for point in &mut profile.points {
            (point.iops, point.bytes_per_s) = (point.iops.round(), point.bytes_per_s.round());
        }
        profile.save(&RealDisk, directory.path()).unwrap();
        assert_eq!(DeviceProfile::load(directory.path()).unwrap(), profile);
    }

    #[test]
    fn a_missing_profile_says_how_to_make_one() {
        let error = DeviceProfile::load(Path::new("/no/such")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().ends_with("hint: run `outercore probe DIR`"), "{error}");
    }

    #[test]
    fn newer_broken_and_senseless_profiles_are_told_apart() {
        let newer = r#"{"version": 2, "tape_speed": 1}"#;
        assert_eq!(DeviceProfile::parse(newer.as_bytes()).unwrap_err().kind(), ErrorKind::Version);
        let unknown = r#"{"version": 1, "tape_speed": 1}"#;
        assert_eq!(
            DeviceProfile::parse(unknown.as_bytes()).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        let mut profile = device(1e-5, 1e-9);
        profile.points[0].iops = 0.0;
        let text = serde_json::to_vec(&profile).unwrap();
        assert_eq!(DeviceProfile::parse(&text).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn the_accumulator_asks_for_more_reads_the_nearer_the_peak() {
        let profile = device(1e-5, 1e-10);
        let reads = [0.0, 0.5, 0.9, 0.95, 2.0].map(|share| reads_in_flight(&profile, share));
        assert!(reads.is_sorted(), "{reads:?}");
        assert_eq!(reads[0], 1);
    }
}
