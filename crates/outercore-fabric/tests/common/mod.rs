//! A minimal memory server in this process, with the parts that a plane needs.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::HashMap;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_fabric::FabricPlane;
use outercore_far::{
    Access, Arrivals, DataPlane, FarAddress, PlaneClient, PlaneControl, PlaneListener, Queue,
    Region, RegionKey, Transfer, Transferred,
};
use outercore_io::Arena;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// Longer than any transfer in these tests, shorter than the limit of a test.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Queues of one session.
pub const MOST_QUEUES: usize = 7;

/// Provider and address under test: available on every machine with libfabric, or taken from
/// `OUTERCORE_TEST_FABRIC` (`verbs 10.0.0.1`).
pub fn under_test() -> (String, String) {
    let set = std::env::var("OUTERCORE_TEST_FABRIC").unwrap_or("tcp 127.0.0.1".into());
    let (provider, host) = set.split_once(' ').expect("OUTERCORE_TEST_FABRIC: provider and host");
    (provider.to_owned(), host.to_owned())
}

/// The plane under test.
pub fn plane() -> Option<FabricPlane> {
    let plane = FabricPlane::new(Some(&under_test().0));
    match plane.check() {
        Ok(()) => Some(plane),
        Err(error) => {
            // Write to the stream directly: the test harness hides `eprintln` output of passing
            // tests.
            let _ = writeln!(std::io::stderr(), "skipped: {error}");
            None
        }
    }
}

/// Memory as a server creates it.
pub fn memory(bytes: &[u8]) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = memfd_create("region", flags).unwrap();
    ftruncate(&fd, bytes.len() as u64).unwrap();
    rustix::io::pwrite(&fd, bytes, 0).unwrap();
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    fd
}

/// Bytes that differ between pages and within a page.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
        .collect()
}

#[derive(Debug)]
struct Entry {
    memory: OwnedFd,
    len: Bytes,
    access: Access,
}

/// Regions and a listener.
#[derive(Debug)]
pub struct Server {
    pub listener: Box<dyn PlaneListener>,
    regions: Mutex<HashMap<RegionKey, Entry>>,
}

impl Server {
    pub fn start(plane: &FabricPlane) -> Arc<Self> {
        let listener = plane.listen(&under_test().1, MOST_QUEUES).unwrap();
        Arc::new(Self { listener, regions: Mutex::default() })
    }

    pub fn put(&self, key: u64, bytes: &[u8], access: Access) -> Region {
        let len = Bytes(bytes.len() as u64);
        let entry = Entry { memory: memory(bytes), len, access };
        self.regions.lock().unwrap().insert(RegionKey(key), entry);
        Region { key: RegionKey(key), len }
    }

    /// Makes a region final, in the same way as a memory server.
    pub fn seal(&self, region: Region) {
        self.listener.withdraw(region.key).unwrap();
        let mut regions = self.regions.lock().unwrap();
        let entry = regions.get_mut(&region.key).unwrap();
        fcntl_add_seals(&entry.memory, SealFlags::WRITE).unwrap();
        entry.access = Access::Read;
    }

    pub fn free(&self, region: Region) {
        self.listener.withdraw(region.key).unwrap();
        self.regions.lock().unwrap().remove(&region.key);
    }

    pub fn content(&self, region: Region) -> Vec<u8> {
        let regions = self.regions.lock().unwrap();
        let mut bytes = vec![0; region.len.0 as usize];
        let read = rustix::io::pread(&regions[&region.key].memory, &mut bytes, 0).unwrap();
        assert_eq!(read, bytes.len());
        bytes
    }

    pub fn grant(&self, session: u64, key: RegionKey) -> Result<Vec<u8>> {
        let regions = self.regions.lock().unwrap();
        let entry =
            regions.get(&key).ok_or_else(|| Error::new(ErrorKind::NotFound, "no such region"))?;
        self.listener.grant(session, key, entry.memory.as_fd(), entry.len, entry.access)
    }
}

/// The control connection of one session.
#[derive(Debug)]
pub struct Control {
    pub server: Arc<Server>,
    pub session: u64,
}

impl PlaneControl for Control {
    fn offer(&self) -> Result<Vec<u8>> {
        self.server.listener.offer(self.session)
    }

    fn grant(&self, key: RegionKey) -> Result<Vec<u8>> {
        self.server.grant(self.session, key)
    }
}

pub fn address() -> FarAddress {
    format!("fabric://{}:1", under_test().1).parse().unwrap()
}

pub fn client(plane: &FabricPlane, server: &Arc<Server>, session: u64) -> Box<dyn PlaneClient> {
    let control = Arc::new(Control { server: Arc::clone(server), session });
    plane.connect(&address(), TIMEOUT, control).unwrap()
}

/// A queue with its connection and buffers.
pub struct Bench {
    pub queue: Option<Box<dyn Queue>>,
    pub arena: Arena,
    pub arrivals: Arrivals,
}

impl Bench {
    pub fn open(client: &dyn PlaneClient, length: usize, chunk: u64) -> Self {
        let arrivals = Arrivals::default();
        let queue = client.open_queue(length, Bytes(chunk), &arrivals).unwrap();
        Self { queue: Some(queue), arena: Arena::new(Bytes::mib(8)).unwrap(), arrivals }
    }

    pub fn read_start(&mut self, tag: u64, region: Region, offset: u64, len: usize) {
        let lease = self.arena.lease(len).unwrap();
        let transfer = Transfer { tag, region, offset, len, lease };
        self.queue.as_mut().unwrap().read_start(transfer);
    }

    pub fn write_start(&mut self, tag: u64, region: Region, offset: u64, bytes: &[u8]) {
        let mut lease = self.arena.lease(bytes.len()).unwrap();
        lease[..bytes.len()].copy_from_slice(bytes);
        let transfer = Transfer { tag, region, offset, len: bytes.len(), lease };
        self.queue.as_mut().unwrap().write_start(transfer);
    }

    /// Waits for `count` transfers, by tag.
    pub fn wait(&self, count: usize) -> Vec<Transferred> {
        let mut done = Vec::new();
        while done.len() < count {
            let got = self.arrivals.take(count - done.len(), 2 * TIMEOUT, &mut done);
            assert!(got > 0, "{} of {count} transfers never arrived", count - done.len());
        }
        assert_eq!(done.len(), count);
        done.sort_by_key(|transferred| transferred.tag);
        done
    }

    pub fn read(&mut self, region: Region, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.read_start(7, region, offset, len);
        let transferred = self.wait(1).remove(0);
        transferred.result.map(|()| transferred.lease[..len].to_vec())
    }

    pub fn write(&mut self, region: Region, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_start(7, region, offset, bytes);
        self.wait(1).remove(0).result
    }
}
