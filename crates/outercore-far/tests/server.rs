//! The memory server and its client, end to end over real sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, ErrorKind, Stream};
use outercore_far::{
    Arrivals, Connection, FarAddress, FarOptions, Queue, Region, Remote, ServerConfig,
    ServerHandle, Token, Transfer, Transferred, serve,
};
use outercore_io::Arena;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// A server with its token file.
struct Fixture {
    directory: TempDir,
    server: ServerHandle,
}

impl Fixture {
    fn start(address: impl Fn(&TempDir) -> String, change: impl Fn(&mut ServerConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let token = Token::create_file(&directory.path().join("token")).unwrap();
        let listen = address(&directory).parse().unwrap();
        let mut config = ServerConfig::new(listen, Bytes::mib(64), token);
        change(&mut config);
        Self { server: serve(config).unwrap(), directory }
    }

    fn tcp() -> Self {
        Self::start(|_| "127.0.0.1:0".to_owned(), |_| {})
    }

    fn unix() -> Self {
        Self::start(|directory| format!("unix:{}", directory.path().join("s").display()), |_| {})
    }

    fn both() -> [Self; 2] {
        [Self::tcp(), Self::unix()]
    }

    fn token_file(&self) -> PathBuf {
        self.directory.path().join("token")
    }

    fn options(&self) -> FarOptions {
        FarOptions {
            token_file: Some(self.token_file()),
            ..FarOptions::new(self.server.addresses()[0].clone())
        }
    }

    fn connect(&self) -> Connection {
        Connection::build(&self.options()).unwrap()
    }
}

/// A queue with what it needs.
struct Client {
    queue: Box<dyn Queue>,
    arrivals: Arrivals,
    arena: Arena,
}

impl Client {
    fn open(connection: &Connection, chunk: Bytes) -> Self {
        let arrivals = Arrivals::default();
        let queue = connection.open_queue(32, chunk, &arrivals).unwrap();
        Self { queue, arrivals, arena: Arena::new(Bytes::mib(64)).unwrap() }
    }

    fn transfer(&self, tag: u64, region: &Region, offset: u64, len: usize) -> Transfer {
        let lease = self.arena.lease(len).unwrap();
        Transfer { tag, region: *region, offset, len, lease }
    }

    fn write_start(&mut self, tag: u64, region: &Region, offset: u64, bytes: &[u8]) {
        let mut transfer = self.transfer(tag, region, offset, bytes.len());
        transfer.lease[..bytes.len()].copy_from_slice(bytes);
        self.queue.write_start(transfer);
    }

    fn read_start(&mut self, tag: u64, region: &Region, offset: u64, len: usize) {
        let transfer = self.transfer(tag, region, offset, len);
        self.queue.read_start(transfer);
    }

    fn wait(&self, count: usize) -> Vec<Transferred> {
        let mut done = Vec::new();
        let end = Instant::now() + PATIENCE;
        while done.len() < count && Instant::now() < end {
            self.arrivals.take(count - done.len(), PATIENCE, &mut done);
        }
        assert_eq!(done.len(), count, "transfers that have arrived");
        done.sort_by_key(|transferred| transferred.tag);
        done
    }

    fn write(&mut self, region: &Region, offset: u64, bytes: &[u8]) -> outercore_core::Result<()> {
        self.write_start(0, region, offset, bytes);
        self.wait(1).remove(0).result
    }

    fn read(
        &mut self,
        region: &Region,
        offset: u64,
        len: usize,
    ) -> outercore_core::Result<Vec<u8>> {
        self.read_start(0, region, offset, len);
        let done = self.wait(1).remove(0);
        done.result.map(|()| done.lease[..len].to_vec())
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut draws = Stream::new(seed, 0).uniform(0, 0, 0);
    (0..len).map(|_| draws.below(256) as u8).collect()
}

#[test]
fn what_is_written_is_read_again_at_any_offset_length_and_chunk() {
    for fixture in Fixture::both() {
        let connection = fixture.connect();
        let content = noise(1, 3 << 20);
        let region = connection.allocate(Bytes(content.len() as u64), Some("x")).unwrap();
        let mut client = Client::open(&connection, Bytes::kib(256));
        client.write(&region, 0, &content).unwrap();
        connection.seal(&region, false).unwrap();
        for chunk in [Bytes::kib(4), Bytes::kib(16), Bytes::kib(256), Bytes::mib(16)] {
            let mut client = Client::open(&connection, chunk);
            let ranges = [
                (0, 1),
                (4095, 2),
                (1, 16 << 10),
                (7, (16 << 10) + 1),
                (0, 3 << 20),
                (123_457, 1_000_003),
                ((3 << 20) - 1, 1),
            ];
            for (tag, (offset, len)) in ranges.into_iter().enumerate() {
                client.read_start(tag as u64, &region, offset, len);
            }
            for (done, (offset, len)) in client.wait(ranges.len()).into_iter().zip(ranges) {
                done.result.unwrap();
                let wanted = &content[offset as usize..][..len];
                assert!(done.lease[..len] == *wanted, "{len} bytes at {offset}, chunk {chunk}");
            }
        }
    }
}

#[test]
fn reads_and_writes_go_through_one_queue_in_order() {
    for fixture in Fixture::both() {
        let connection = fixture.connect();
        let region = connection.allocate(Bytes::mib(1), None).unwrap();
        let mut client = Client::open(&connection, Bytes::kib(64));
        for round in 0..30u8 {
            client.write_start(2 * u64::from(round), &region, 100, &[round; 100_000]);
            client.read_start(2 * u64::from(round) + 1, &region, 100, 100_000);
        }
        for (number, done) in client.wait(60).into_iter().enumerate() {
            done.result.unwrap();
            let round = (number / 2) as u8;
            assert!(done.lease[..100_000].iter().all(|&byte| byte == round), "round {round}");
        }
    }
}
