//! The memory server, tested through real sockets.

#[allow(dead_code)] // A part of it is used.
#[path = "common/proxy.rs"]
mod proxy;
mod served;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Error, ErrorKind};
use outercore_far::{
    Arrivals, Connection, FarAddress, FarOptions, Remote, ServerConfig, ServerHandle, Token, serve,
};
use served::{Client, Fixture, PATIENCE, noise};

/// Waits until `holds` is true, which depends on another thread.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn tcp_address(server: &ServerHandle) -> &str {
    match &server.addresses()[0] {
        FarAddress::Tcp(at) => at,
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_written_is_read_again_at_any_offset_length_and_chunk() {
    for fixture in Fixture::both() {
        let connection = fixture.connect();
        let content = noise(1, 3 << 20);
        let region = connection.allocate(Bytes(content.len() as u64), Some("x")).unwrap();
        let mut client = Client::open(&connection, Bytes::kib(256));
        client.write(&region, 0, &content).unwrap();
        for sealed in [false, true] {
            if sealed {
                connection.seal(&region, false).unwrap();
            }
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
                    assert!(done.lease[..len] == *wanted, "{len} bytes at {offset}, {chunk}");
                }
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

#[test]
fn queues_of_a_connection_work_side_by_side() {
    for fixture in Fixture::both() {
        let connection = fixture.connect();
        let content = noise(2, 1 << 20);
        let region = connection.allocate(Bytes::mib(1), None).unwrap();
        Client::open(&connection, Bytes::kib(64)).write(&region, 0, &content).unwrap();
        connection.seal(&region, false).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (connection, content) = (&connection, &content);
                scope.spawn(move || {
                    let mut client = Client::open(connection, Bytes::kib(16));
                    for round in 0..20 {
                        let offset = (thread * 50_001 + round * 7919) as u64;
                        let found = client.read(&region, offset, 300_000).unwrap();
                        assert!(found == content[offset as usize..][..300_000]);
                    }
                });
            }
        });
    }
}

#[test]
fn a_kept_region_is_there_for_others_until_somebody_drops_it() {
    for fixture in Fixture::both() {
        let writer = fixture.connect();
        let region = writer.allocate(Bytes(5000), Some("papers/x")).unwrap();
        let mut client = Client::open(&writer, Bytes::kib(4));
        client.write(&region, 0, &[7; 5000]).unwrap();
        let reader = fixture.connect();
        assert_eq!(reader.find("papers/x").unwrap(), None, "not sealed yet");
        writer.seal(&region, true).unwrap();
        let error = client.write(&region, 0, &[8]).unwrap_err();
        assert!(error.to_string().contains("sealed"), "{error}");
        drop((client, writer));
        eventually("the writer leaves", || fixture.server.status().clients == 1);

        let found = reader.find("papers/x").unwrap().unwrap();
        assert_eq!(found, region);
        let mut client = Client::open(&reader, Bytes::kib(4));
        assert_eq!(client.read(&found, 4000, 1000).unwrap(), [7; 1000]);
        let status = reader.status().unwrap();
        assert_eq!((status.used, status.clients), (Bytes::kib(8), 1));
        assert_eq!(status.regions, fixture.server.status().regions);
        assert_eq!(status.regions[0].name.as_deref(), Some("papers/x"));
        let error = reader.allocate(Bytes(1), Some("papers/x")).unwrap_err();
        assert!(error.to_string().contains("is taken"), "{error}");

        reader.free(&found).unwrap();
        assert_eq!(reader.find("papers/x").unwrap(), None);
        assert_eq!(reader.free(&found).unwrap_err().kind(), ErrorKind::NotFound);
        let error = client.read(&found, 0, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

#[test]
fn a_client_that_leaves_gives_back_what_it_did_not_keep() {
    for fixture in Fixture::both() {
        let connection = fixture.connect();
        let unsealed = connection.allocate(Bytes::mib(1), None).unwrap();
        let sealed = connection.allocate(Bytes::mib(1), Some("x")).unwrap();
        connection.seal(&sealed, false).unwrap();
        let mut other = fixture.connect();
        assert_eq!(other.find("x").unwrap(), Some(sealed));
        let mut reading = Client::open(&other, Bytes::kib(4));
        assert_eq!(reading.read(&unsealed, 0, 1).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(other.free(&sealed).unwrap_err().kind(), ErrorKind::Invalid);
        drop(connection);
        eventually("memory is free", || fixture.server.status().used == Bytes(0));
        other = fixture.connect();
        assert_eq!(other.find("x").unwrap(), None);
    }
}

#[test]
fn memory_that_a_client_was_given_is_not_lent_again_before_it_leaves() {
    let fixture = Fixture::unix();
    let writer = fixture.connect();
    let region = writer.allocate(Bytes::mib(40), Some("x")).unwrap();
    writer.seal(&region, true).unwrap();
    let reader = fixture.connect();
    Client::open(&reader, Bytes::kib(4)).read(&region, 0, 4096).unwrap();
    writer.free(&region).unwrap();
    let error = writer.allocate(Bytes::mib(40), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(fixture.server.status().used, Bytes::mib(40));
    drop(reader);
    eventually("memory is free", || writer.allocate(Bytes::mib(40), None).is_ok());
}

#[test]
fn a_full_server_says_so_and_goes_on() {
    let fixture = Fixture::tcp();
    let connection = fixture.connect();
    let region = connection.allocate(Bytes::mib(60), None).unwrap();
    let error = connection.allocate(Bytes::mib(5), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("4.0 MiB left of 64.0 MiB"), "{error}");
    assert!(error.to_string().contains("hint: "), "{error}");
    connection.free(&region).unwrap();
    connection.allocate(Bytes::mib(64), None).unwrap();
    assert_eq!(connection.allocate(Bytes(0), None).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(connection.is_alive());
}

#[test]
fn a_large_region_is_allocated_with_signs_of_life() {
    let fixture =
        Fixture::start(|_| "127.0.0.1:0".to_owned(), |config| config.size = Bytes::mib(300));
    let connection = fixture.connect();
    connection.allocate(Bytes::mib(260), None).unwrap();
    assert_eq!(connection.status().unwrap().used, Bytes::mib(260));
}

#[test]
fn limits_are_kept_and_named() {
    let fixture = Fixture::start(
        |_| "127.0.0.1:0".to_owned(),
        |config| {
            config.sessions = 1;
            config.queues_per_session = 2;
            config.regions_per_session = 2;
        },
    );
    let connection = fixture.connect();
    let error = Connection::build(&fixture.options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("1 clients already"), "{error}");

    let arrivals = Arrivals::default();
    let open = || connection.open_queue(1, Bytes::kib(4), &arrivals);
    let queues = [open().unwrap(), open().unwrap()];
    let error = open().unwrap_err();
    assert!(error.to_string().contains("2 queues of this client"), "{error}");
    drop(queues);
    eventually("queues are closed", || open().is_ok());

    for _ in 0..2 {
        connection.allocate(Bytes(1), None).unwrap();
    }
    let error = connection.allocate(Bytes(1), None).unwrap_err();
    assert!(error.to_string().contains("has 2 regions"), "{error}");
    for chunk in [0, (16 << 20) + 1] {
        let error = connection.open_queue(1, Bytes(chunk), &arrivals).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_client_that_falls_silent_is_given_up() {
    let fixture = Fixture::start(
        |_| "127.0.0.1:0".to_owned(),
        |config| config.session_timeout = Duration::from_millis(100),
    );
    let at = tcp_address(&fixture.server);
    let network = proxy::Network { then: proxy::Then::Stall, ..proxy::Network::GOOD };
    // Enough bytes pass to open the session; the keep-alive messages are lost.
    let network = proxy::Network { passes: 240, ..network };
    let proxy = proxy::Proxy::start(at, network);
    let options = FarOptions { address: proxy.address().parse().unwrap(), ..fixture.options() };
    let connection = Connection::build(&options).unwrap();
    assert_eq!(fixture.server.status().clients, 1);
    eventually("the session ends", || fixture.server.status().clients == 0);
    drop(connection);
}

#[test]
fn pings_keep_an_idle_session() {
    let fixture = Fixture::start(
        |_| "127.0.0.1:0".to_owned(),
        |config| config.session_timeout = Duration::from_secs(1),
    );
    let proxy = proxy::Proxy::start(tcp_address(&fixture.server), proxy::Network::GOOD);
    let options = FarOptions { address: proxy.address().parse().unwrap(), ..fixture.options() };
    let connection = Connection::build(&options).unwrap();
    let region = connection.allocate(Bytes(1), None).unwrap();
    let mut client = Client::open(&connection, Bytes::kib(4));
    client.read(&region, 0, 1).unwrap();
    // Four keep-alive messages, one per third of the time-out, and their answers.
    let before = proxy.passed();
    eventually("pings pass", || proxy.passed() >= before + 4 * 32);
    client.read(&region, 0, 1).unwrap();
    connection.seal(&region, false).unwrap();
}

#[test]
fn another_token_is_refused_by_name() {
    for fixture in Fixture::both() {
        let file = fixture.directory.path().join("another");
        Token::create_file(&file).unwrap();
        let options = FarOptions { token_file: Some(file), ..fixture.options() };
        let error = Connection::build(&options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("not the server's token"), "{error}");
        assert!(error.to_string().contains(&options.address.to_string()), "{error}");
        eventually("it is turned away", || fixture.server.counters().turned_away == 1);
        assert_eq!(fixture.server.status().clients, 0);
        fixture.connect().status().unwrap();
    }
}

#[test]
fn strangers_learn_nothing_and_break_nothing() {
    let fixture = Fixture::tcp();
    let at = tcp_address(&fixture.server);
    let hello = |version: u8| {
        let mut bytes = b"OCFAR\0".to_vec();
        bytes.extend([version, 0]);
        bytes
    };
    // Another service, another version, an invalid role, an invalid proof.
    let role = [&hello(1)[..], &[9; 48]].concat();
    let proof = [&hello(1)[..], &[1], &[0; 47], &[0; 32]].concat();
    for (opening, answered) in
        [(b"GET / HTTP/1.1\r\n".to_vec(), 8), (hello(9), 8), (role, 8), (proof, 8 + 32 + 48)]
    {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&opening).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // A reset counts like a close.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() >= answered, "{opening:?}: {answer:?}");
        assert_eq!(answer[..8], hello(1)[..], "both ends say which version they are");
    }
    eventually("all are turned away", || fixture.server.counters().turned_away == 4);
    fixture.connect().status().unwrap();
}

#[test]
fn those_who_say_nothing_keep_nobody_out() {
    let fixture = Fixture::tcp();
    let at = tcp_address(&fixture.server);
    let mut silent: Vec<_> = (0..70).map(|_| TcpStream::connect(at).unwrap()).collect();
    // At once, and also for new queues of a session.
    let connection = fixture.connect();
    silent.extend((0..70).map(|_| TcpStream::connect(at).unwrap()));
    connection.open_queue(1, Bytes::kib(4), &Arrivals::default()).unwrap();
}

#[test]
fn a_server_of_another_version_is_named_with_its_version() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = FarAddress::Tcp(listener.local_addr().unwrap().to_string());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut opening = [0; 56];
        stream.read_exact(&mut opening).unwrap();
        stream.write_all(b"OCFAR\0\x05\0").unwrap();
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    Token::create_file(&file).unwrap();
    let options = FarOptions { token_file: Some(file), ..FarOptions::new(address) };
    let error = Connection::build(&options).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version);
    let text = error.to_string();
    assert!(text.contains("speaks version 5") && text.contains("this client 1"), "{text}");
    server.join().unwrap();
}

#[test]
fn a_unix_socket_is_its_owners_and_goes_with_the_server() {
    let fixture = Fixture::unix();
    let path = fixture.directory.path().join("s");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = || {
        let token = Token::from_file(&fixture.token_file()).unwrap();
        let address = fixture.server.addresses()[0].clone();
        serve(ServerConfig::new(address, Bytes::mib(1), token))
    };
    let error = again().unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    fixture.connect().status().unwrap();
    let Fixture { directory, server } = fixture;
    server.stop();
    assert!(!path.exists());

    // The socket file of a killed server is replaced; a file of another kind is not.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let token = Token::from_file(&directory.path().join("token")).unwrap();
    let address = FarAddress::Unix(path.clone());
    let config = ServerConfig::new(address, Bytes::mib(1), token);
    serve(config.clone()).unwrap().stop();
    std::fs::write(&path, "text").unwrap();
    let error = serve(config).unwrap_err();
    assert!(error.to_string().contains("no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
}

#[test]
fn an_address_in_use_and_a_bad_configuration_are_named() {
    let fixture = Fixture::tcp();
    let token = Token::from_file(&fixture.token_file()).unwrap();
    let config = ServerConfig::new(fixture.server.addresses()[0].clone(), Bytes::mib(1), token);
    let error = serve(config.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("in use"), "{error}");
    type Change = fn(&mut ServerConfig);
    let changes: [(&str, Change); 5] = [
        ("size", |config| config.size = Bytes(0)),
        ("sessions", |config| config.sessions = 0),
        ("addresses", |config| config.listen.clear()),
        ("session_timeout", |config| config.session_timeout = Duration::ZERO),
        ("no data plane", |config| {
            config.listen = vec!["fabric://127.0.0.1:0".parse().unwrap()];
        }),
    ];
    for (word, change) in changes {
        let mut config = config.clone();
        change(&mut config);
        let error = serve(config).unwrap_err().to_string();
        assert!(error.contains(word), "{word}: {error}");
    }
}

#[test]
fn stopping_ends_clients_at_once() {
    for fixture in Fixture::both() {
        let connection = fixture.connect();
        let region = connection.allocate(Bytes::mib(1), None).unwrap();
        let mut client = Client::open(&connection, Bytes::kib(4));
        client.write(&region, 0, &[1; 100]).unwrap();
        let Fixture { server, directory } = fixture;
        server.stop();
        let errors: [Error; 3] = [
            client.read(&region, 0, 100).unwrap_err(),
            connection.status().unwrap_err(),
            connection.allocate(Bytes(1), None).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(error.to_string().contains("memory server "), "{error}");
        }
        assert!(!connection.is_alive());
        drop(directory);
    }
}

#[test]
fn one_server_listens_on_several_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let token = Token::create_file(&file).unwrap();
    let path = directory.path().join("s");
    let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), Bytes::mib(1), token);
    config.listen.push(FarAddress::Unix(path));
    let server = serve(config).unwrap();
    let connect = |address: &FarAddress| {
        let token_file = Some(file.clone());
        Connection::build(&FarOptions { token_file, ..FarOptions::new(address.clone()) }).unwrap()
    };
    let [first, second] = server.addresses() else { panic!("{:?}", server.addresses()) };
    let writer = connect(first);
    let region = writer.allocate(Bytes(10), Some("x")).unwrap();
    Client::open(&writer, Bytes::kib(4)).write(&region, 0, b"0123456789").unwrap();
    writer.seal(&region, false).unwrap();
    let reader = connect(second);
    let found = reader.find("x").unwrap().unwrap();
    assert_eq!(Client::open(&reader, Bytes::kib(4)).read(&found, 3, 4).unwrap(), b"3456");
    let counters = server.counters();
    assert_eq!(counters.written, Bytes(10));
    assert_eq!(counters.read, Bytes(0), "shared memory is read past the server");
}
