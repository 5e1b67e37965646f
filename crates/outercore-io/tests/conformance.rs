//! Every back end keeps the contract of `Reader`: the suite of the test kit.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use outercore_core::{Bytes, Result};
use outercore_io::sim::{SimConfig, SimReader};
use outercore_io::{Arena, MmapReader, Reader, ThreadsReader, UringReader};
use outercore_testkit::reader_conformance;

fn conforms(name: &str, make: impl Fn(&Arena, usize) -> Result<Box<dyn Reader>>) {
    reader_conformance(&(name, make), Path::new(env!("CARGO_TARGET_TMPDIR")));
}

#[test]
fn uring_keeps_the_contract() {
    conforms("uring", |arena, depth| Ok(Box::new(UringReader::open(depth, arena)?)));
}

#[test]
fn uring_without_registered_memory_keeps_the_contract() {
    conforms("uring, plain memory", |_, depth| {
        let other = Arena::new(Bytes::kib(4))?;
        Ok(Box::new(UringReader::open(depth, &other)?))
    });
}

#[test]
fn threads_keep_the_contract() {
    conforms("threads", |_, depth| Ok(Box::new(ThreadsReader::open(depth)?)));
}

#[test]
fn mmap_keeps_the_contract() {
    conforms("mmap", |_, depth| Ok(Box::new(MmapReader::open(depth))));
}

#[test]
fn the_simulated_device_keeps_the_contract() {
    conforms("sim", |_, depth| {
        Ok(Box::new(SimReader::open(SimConfig { depth, ..SimConfig::default() })))
    });
}

#[test]
fn a_shaky_device_keeps_the_contract() {
    conforms("sim, shaky", |_, depth| {
        let config = SimConfig {
            seed: 3,
            depth,
            alignment: 512,
            latency: Duration::from_millis(900),
            short_share: 0.5,
            script: BTreeMap::new(),
        };
        Ok(Box::new(SimReader::open(config)))
    });
}
