//! A running server with its token, and clients of it.
#![allow(dead_code)] // Each test binary uses a part.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Result, Stream};
use outercore_far::{
    Arrivals, Connection, FarOptions, Queue, Region, Remote, ServerConfig, ServerHandle, Token,
    Transfer, Transferred, serve,
};
use outercore_io::Arena;
use tempfile::TempDir;

pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server with its token file.
pub struct Fixture {
    pub directory: TempDir,
    pub server: ServerHandle,
}

impl Fixture {
    pub fn start(address: impl Fn(&TempDir) -> String, change: impl Fn(&mut ServerConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let token = Token::create_file(&directory.path().join("token")).unwrap();
        let listen = address(&directory).parse().unwrap();
        let mut config = ServerConfig::new(listen, Bytes::mib(64), token);
        change(&mut config);
        Self { server: serve(config).unwrap(), directory }
    }

    pub fn tcp() -> Self {
        Self::start(|_| "127.0.0.1:0".to_owned(), |_| {})
    }

    pub fn unix() -> Self {
        Self::start(|directory| format!("unix:{}", directory.path().join("s").display()), |_| {})
    }

    pub fn both() -> [Self; 2] {
        [Self::tcp(), Self::unix()]
    }

    pub fn token_file(&self) -> PathBuf {
        self.directory.path().join("token")
    }

    pub fn options(&self) -> FarOptions {
        FarOptions {
            token_file: Some(self.token_file()),
            ..FarOptions::new(self.server.addresses()[0].clone())
        }
    }

    pub fn connect(&self) -> Connection {
        Connection::build(&self.options()).unwrap()
    }
}

/// A queue with its connection and buffers.
pub struct Client {
    pub queue: Box<dyn Queue>,
    pub arrivals: Arrivals,
    pub arena: Arena,
}

impl Client {
    pub fn open(connection: &Connection, chunk: Bytes) -> Self {
        let arrivals = Arrivals::default();
        let queue = connection.open_queue(32, chunk, &arrivals).unwrap();
        Self { queue, arrivals, arena: Arena::new(Bytes::mib(64)).unwrap() }
    }

    pub fn transfer(&self, tag: u64, region: &Region, offset: u64, len: usize) -> Transfer {
        let lease = self.arena.lease(len).unwrap();
        Transfer { tag, region: *region, offset, len, lease }
    }

    pub fn write_start(&mut self, tag: u64, region: &Region, offset: u64, bytes: &[u8]) {
        let mut transfer = self.transfer(tag, region, offset, bytes.len());
        transfer.lease[..bytes.len()].copy_from_slice(bytes);
        self.queue.write_start(transfer);
    }

    pub fn read_start(&mut self, tag: u64, region: &Region, offset: u64, len: usize) {
        let transfer = self.transfer(tag, region, offset, len);
        self.queue.read_start(transfer);
    }

    pub fn wait(&self, count: usize) -> Vec<Transferred> {
        let mut done = Vec::new();
        let end = Instant::now() + PATIENCE;
        while done.len() < count && Instant::now() < end {
            self.arrivals.take(count - done.len(), PATIENCE, &mut done);
        }
        assert_eq!(done.len(), count, "transfers that have arrived");
        done.sort_by_key(|transferred| transferred.tag);
        done
    }

    pub fn write(&mut self, region: &Region, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_start(0, region, offset, bytes);
        self.wait(1).remove(0).result
    }

    pub fn read(&mut self, region: &Region, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.read_start(0, region, offset, len);
        let done = self.wait(1).remove(0);
        done.result.map(|()| done.lease[..len].to_vec())
    }
}

pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut draws = Stream::new(seed, 0).uniform(0, 0, 0);
    (0..len).map(|_| draws.below(256) as u8).collect()
}
