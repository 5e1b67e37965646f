//! Measures a device and prints its profile: `probe DIRECTORY [uring|threads|mmap]`.

use std::path::Path;

use outercore_core::{Error, Result};
use outercore_io::{CostModel, ProbeConfig, ProbeStep, probe, reads_in_flight};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or_else(|| Error::invalid("which directory?"))?;
    let backend = arguments.next().as_deref().unwrap_or("auto").parse()?;
    let config = ProbeConfig { backend, ..ProbeConfig::default() };
    let profile = probe(Path::new(&directory), config, &mut |step| {
        if let ProbeStep::Measured { number, of, point } = step {
            eprintln!(
                "{number}/{of}: {} x {}: {:.0} reads/s, {:.0} MB/s",
                point.read_bytes,
                point.depth,
                point.iops,
                point.bytes_per_s / 1e6,
            );
        }
        Ok(())
    })?;
    eprintln!("latency {:.0} us", profile.latency_s * 1e6);
    eprintln!("{:?}", CostModel::from(&profile));
    eprintln!("reads in flight for 0.95 of the peak: {}", reads_in_flight(&profile, 0.95));
    Ok(())
}
