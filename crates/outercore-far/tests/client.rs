//! The client of a memory server: shared memory, and servers that disappear.

#[allow(dead_code)] // A part of it is used.
#[path = "common/proxy.rs"]
mod proxy;
mod served;

use std::net::TcpListener;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, ErrorKind};
use outercore_far::{Arrivals, Connection, FarAddress, FarOptions, Region, Remote, Token};
use proxy::{Network, Proxy, Then};
use served::{Client, Fixture, PATIENCE, noise};

const LEN: usize = 1 << 20;

/// A sealed region of random bytes.
fn sealed(connection: &Connection, seed: u64) -> (Region, Vec<u8>) {
    let content = noise(seed, LEN);
    let region = connection.allocate(Bytes(LEN as u64), None).unwrap();
    Client::open(connection, Bytes::kib(256)).write(&region, 0, &content).unwrap();
    connection.seal(&region, false).unwrap();
    (region, content)
}

#[test]
fn shared_memory_outlives_its_server() {
    let fixture = Fixture::unix();
    let connection = fixture.connect();
    let (region, content) = sealed(&connection, 1);
    let (other, _) = sealed(&connection, 2);
    let mut client = Client::open(&connection, Bytes::kib(64));
    assert!(client.read(&region, 5, 100).unwrap() == content[5..105]);
    let counters = fixture.server.counters();
    assert_eq!(counters.read, Bytes(0), "the bytes did not pass through the server");
    let Fixture { server, directory } = fixture;
    server.stop();
    assert!(client.read(&region, 0, LEN).unwrap() == content);
    for _ in 0..2 {
        let error = client.read(&other, 0, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains("memory server unix:"), "{error}");
    }
    assert_eq!(client.write(&region, 0, &[1]).unwrap_err().kind(), ErrorKind::Io);
    drop(directory);
}

#[test]
fn shared_memory_is_given_up_when_its_region_is_freed() {
    let fixture = Fixture::unix();
    let connection = fixture.connect();
    let (region, _) = sealed(&connection, 1);
    let mut client = Client::open(&connection, Bytes::kib(64));
    client.read(&region, 0, 1).unwrap();
    connection.free(&region).unwrap();
    let error = client.read(&region, 0, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    // The client could still hold the memory, so it counts until the session ends.
    assert_eq!(fixture.server.status().used, Bytes(LEN as u64));
    drop((client, connection));
    let began = Instant::now();
    while fixture.server.status().used != Bytes(0) {
        assert!(began.elapsed() < PATIENCE, "the session has not ended");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn more_regions_than_descriptors_are_held_are_read_right() {
    let fixture = Fixture::unix();
    let connection = fixture.connect();
    let mut client = Client::open(&connection, Bytes::kib(4));
    let regions: Vec<Region> = (0..300u32)
        .map(|number| {
            let region = connection.allocate(Bytes(4), None).unwrap();
            client.write(&region, 0, &number.to_le_bytes()).unwrap();
            connection.seal(&region, false).unwrap();
            region
        })
        .collect();
    for _ in 0..2 {
        for (number, region) in regions.iter().enumerate() {
            assert_eq!(client.read(region, 0, 4).unwrap(), (number as u32).to_le_bytes());
        }
    }
}

/// Checks the error of all transfers in flight and of all later ones, after the network does
/// `then`.
fn ends(then: Then, expected: &str) {
    let fixture = Fixture::tcp();
    let FarAddress::Tcp(at) = &fixture.server.addresses()[0] else { unreachable!() };
    let network = Network { passes: 3 << 20, then, delay: Duration::ZERO };
    let proxy = Proxy::start(at, network);
    let address = FarAddress::Tcp(proxy.address());
    let options = FarOptions { address, timeout_s: 0.3, ..fixture.options() };
    let connection = Connection::build(&options).unwrap();
    let (region, content) = sealed(&connection, 4);
    let mut client = Client::open(&connection, Bytes::kib(64));
    for tag in 0..8 {
        client.read_start(tag, &region, 0, LEN);
    }
    let began = Instant::now();
    let done = client.wait(8);
    assert!(began.elapsed() < PATIENCE);
    for transferred in done {
        match transferred.result {
            Ok(()) => assert!(transferred.lease[..LEN] == content),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io);
                assert!(error.to_string().contains(expected), "{error}");
                assert!(error.to_string().contains("memory server tcp://"), "{error}");
            }
        }
    }
    for _ in 0..2 {
        let error = client.read(&region, 0, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
    assert_eq!(connection.status().unwrap_err().kind(), ErrorKind::Io);
    assert!(!connection.is_alive());
    // The server is known to be gone, so no call waits for it again.
    let error = connection.open_queue(1, Bytes(4096), &Arrivals::default()).unwrap_err();
    assert_eq!(error.to_string(), connection.status().unwrap_err().to_string());
    assert_eq!(client.arena.free_bytes(), client.arena.size());
}

#[test]
fn a_network_that_is_cut_ends_all_transfers() {
    ends(Then::Cut, "closed the connection");
}

#[test]
fn a_network_that_stalls_ends_all_transfers_after_the_time_out() {
    ends(Then::Stall, "no answer for 0.3 s");
}

#[test]
fn a_server_that_takes_connections_and_says_nothing_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    Token::create_file(&file).unwrap();
    let address = FarAddress::Tcp(listener.local_addr().unwrap().to_string());
    let options =
        FarOptions { token_file: Some(file), timeout_s: 0.05, ..FarOptions::new(address) };
    let error = Connection::build(&options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("no answer for 0.05 s"), "{error}");
}

#[test]
fn a_server_that_is_not_there_is_named_with_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    Token::create_file(&file).unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in
        [FarAddress::Tcp(gone.to_string()), FarAddress::Unix(directory.path().join("nobody"))]
    {
        let named = address.to_string();
        let options = FarOptions { token_file: Some(file.clone()), ..FarOptions::new(address) };
        let error = Connection::build(&options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        let text = error.to_string();
        assert!(text.contains(&named) && text.contains("outercore memory-server"), "{text}");
    }
}

#[test]
fn a_fabric_address_without_a_plane_is_unsupported() {
    let fixture = Fixture::tcp();
    let FarAddress::Tcp(at) = &fixture.server.addresses()[0] else { unreachable!() };
    let address = FarAddress::Fabric(at.clone());
    let error = Connection::build(&FarOptions { address, ..fixture.options() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_dropped_queue_gives_its_leases_back_and_leaves_the_connection() {
    for fixture in Fixture::both() {
        let connection = fixture.connect();
        let (region, content) = sealed(&connection, 5);
        let mut client = Client::open(&connection, Bytes::kib(64));
        for tag in 0..20 {
            client.read_start(tag, &region, 0, LEN);
        }
        let Client { queue, arrivals, arena } = client;
        drop(queue);
        let mut done = Vec::new();
        while done.len() < 20 {
            assert!(arrivals.take(1, PATIENCE, &mut done) > 0, "{} of 20", done.len());
        }
        for transferred in &done {
            if transferred.result.is_ok() {
                assert!(transferred.lease[..LEN] == content);
            }
        }
        drop(done);
        assert_eq!(arena.free_bytes(), arena.size());
        let mut client = Client::open(&connection, Bytes::kib(64));
        assert!(client.read(&region, 7, 9).unwrap() == content[7..16]);
    }
}

#[test]
fn a_queue_says_how_much_memory_it_holds() {
    for fixture in Fixture::both() {
        let connection = fixture.connect();
        let queue = connection.open_queue(32, Bytes::kib(256), &Arrivals::default()).unwrap();
        assert!(queue.memory_bytes() > Bytes::kib(4), "{}", queue.memory_bytes());
    }
}
