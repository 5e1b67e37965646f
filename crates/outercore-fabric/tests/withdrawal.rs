//! A region whose memory the system does not let go of; alone in its process, whose limit it lowers.

mod common;

use common::{Bench, Server, client, plane};
use outercore_core::{Bytes, ErrorKind};
use outercore_far::Access;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Private memory of this process in bytes, as the limit counts it.
fn private_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_region_that_cannot_be_given_back_closes_the_queues_of_its_session() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let region = server.put(1, &vec![7; 256 << 20], Access::ReadWrite);
    let (stuck, other) = (client(&plane, &server, 1), client(&plane, &server, 2));
    let mut reading = Bench::open(&*stuck, 1, 4096);
    assert_eq!(reading.read(region, 0, 9).unwrap(), [7; 9]);
    let elsewhere = server.put(2, &[8; 9], Access::Read);
    let mut reading_elsewhere = Bench::open(&*other, 1, 4096);
    reading_elsewhere.read(elsewhere, 0, 9).unwrap();

    // Room for what threads need, and none for as much private memory as the region has.
    let limit = getrlimit(Resource::Data);
    let low = Some(private_memory() + (64 << 20));
    setrlimit(Resource::Data, Rlimit { current: low, ..limit }).unwrap();
    let withdrawn = server.listener.withdraw(region.key);
    setrlimit(Resource::Data, limit).unwrap();

    let error = withdrawn.unwrap_err();
    assert!(error.to_string().contains("giving a region back"), "{error}");
    assert_eq!(reading.read(region, 0, 9).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(reading_elsewhere.read(elsewhere, 0, 9).unwrap(), [8; 9]);
    assert_eq!(server.content(region).len() as u64, Bytes::mib(256).0);
    server.listener.withdraw(region.key).unwrap();
}
