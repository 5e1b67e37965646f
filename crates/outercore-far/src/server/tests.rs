//! Clients that hold the token but violate the protocol.

use std::io::{Read, Write};
use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::client::greet::Door;
use crate::protocol::{
    self, DataReply, DataRequest, MAX_MESSAGE, MAX_TRANSFER, MESSAGE_HEADER, MessageHeader,
    Operation, REPLY_HEADER, Request, Role,
};
use crate::region::RegionKey;

const PATIENCE: Duration = Duration::from_secs(20);

fn server() -> (ServerHandle, Door) {
    let token = Token::new(&[b'x'; 16]).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = serve(ServerConfig::new(listen, Bytes::mib(1), token.clone())).unwrap();
    let address = server.addresses()[0].clone();
    (server, Door { address, token, timeout: PATIENCE })
}

fn ask(socket: &Socket, message: &[u8]) -> Option<(MessageHeader, Vec<u8>)> {
    let deadline = Instant::now() + PATIENCE;
    socket.write_before(message, deadline).unwrap();
    let mut header = [0; MESSAGE_HEADER];
    socket.read_before(&mut header, deadline).ok()?;
    let header = MessageHeader::decode(&header).unwrap();
    let mut body = vec![0; header.len as usize];
    socket.read_before(&mut body, deadline).unwrap();
    Some((header, body))
}

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let header = MessageHeader { len: body.len() as u32, kind, status: 0, id: 3 };
    [&header.encode()[..], body].concat()
}

fn reply(socket: &Socket) -> (DataReply, Vec<u8>) {
    let deadline = Instant::now() + PATIENCE;
    let mut header = [0; REPLY_HEADER];
    socket.read_before(&mut header, deadline).unwrap();
    let header = DataReply::decode(&header);
    let mut body = vec![0; header.len as usize];
    socket.read_before(&mut body, deadline).unwrap();
    (header, body)
}

fn is_closed(socket: &Socket) -> bool {
    matches!((&mut &*socket).read(&mut [0]), Ok(0) | Err(_))
}

#[test]
fn control_messages_without_sense_are_refused_and_the_session_goes_on() {
    let (_server, door) = server();
    let greeted = door.enter(Role::Control, 0).unwrap();
    for (kind, body) in [(0, &[][..]), (1, &[1, 2]), (2, &[0; 20]), (3, &[0xff]), (99, &[0; 9])] {
        let (header, text) = ask(&greeted.socket, &message(kind, body)).unwrap();
        assert_ne!(header.status, protocol::OK, "kind {kind}");
        assert_eq!((header.id, text.is_empty()), (3, false));
    }
    let (header, _) = ask(&greeted.socket, &Request::Ping.encode(4)).unwrap();
    assert_eq!((header.status, header.id), (protocol::OK, 4));
}

#[test]
fn a_control_message_that_is_too_long_ends_the_session() {
    let (server, door) = server();
    let greeted = door.enter(Role::Control, 0).unwrap();
    let header = MessageHeader { len: MAX_MESSAGE as u32, kind: 1, status: 0, id: 0 };
    greeted.socket.write_before(&header.encode(), Instant::now() + PATIENCE).unwrap();
    assert!(is_closed(&greeted.socket));
    while server.status().clients > 0 {
        thread::yield_now();
    }
}

#[test]
fn a_data_connection_needs_a_session_and_ends_with_it() {
    let (_server, door) = server();
    let error = door.enter(Role::Data, 12345).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("session has ended"), "{error}");
    let greeted = door.enter(Role::Control, 0).unwrap();
    let queue = door.enter(Role::Data, greeted.session).unwrap();
    drop(greeted);
    assert!(is_closed(&queue.socket));
}

#[test]
fn a_queue_that_never_hears_of_it_is_counted_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let token = Token::new(&[b'x'; 16]).unwrap();
    let address = FarAddress::Unix(directory.path().join("s"));
    let config = ServerConfig {
        queues_per_session: 1,
        ..ServerConfig::new(address.clone(), Bytes::mib(1), token.clone())
    };
    let server = serve(config).unwrap();
    let door = Door { address, token, timeout: PATIENCE };
    let greeted = door.enter(Role::Control, 0).unwrap();

    let deadline = Instant::now() + PATIENCE;
    let socket = Socket::connect(&door.address, deadline).unwrap();
    let hello = protocol::Hello { role: Role::Data, session: greeted.session, nonce: [1; 32] };
    let opening = [&protocol::preamble()[..], &hello.encode()].concat();
    socket.write_before(&opening, deadline).unwrap();
    let mut answer = [0; protocol::PREAMBLE + protocol::NONCE];
    socket.read_before(&mut answer, deadline).unwrap();
    let nonce = answer[protocol::PREAMBLE..].try_into().unwrap();
    // From here on, the server cannot write to the client.
    rustix::net::shutdown(&socket, rustix::net::Shutdown::Read).unwrap();
    let proof = door.token.prove(crate::auth::Prover::Client, &hello, &nonce);
    socket.write_before(&proof, deadline).unwrap();
    while server.counters().turned_away == 0 {
        thread::yield_now();
    }
    door.enter(Role::Data, greeted.session).unwrap();
}

#[test]
fn refused_transfers_are_answered_in_order_and_the_connection_goes_on() {
    let (_server, door) = server();
    let greeted = door.enter(Role::Control, 0).unwrap();
    let allocate = Request::Allocate { len: 5000, name: None }.encode(1);
    let (_, body) = ask(&greeted.socket, &allocate).unwrap();
    let key = RegionKey(u64::from_le_bytes(body[..8].try_into().unwrap()));
    let queue = door.enter(Role::Data, greeted.session).unwrap().socket;
    let stranger = RegionKey(key.0 ^ 1);
    let requests = [
        (Operation::Write, stranger, 0, 3, false),
        (Operation::Write, key, 4999, 2, false),
        (Operation::Write, key, u64::MAX, 2, false),
        (Operation::Write, key, 4998, 2, true),
        (Operation::Read, stranger, 0, 1, false),
        (Operation::Read, key, 1, 5000, false),
        (Operation::Read, key, u64::MAX, 1, false),
        (Operation::Read, key, 0, MAX_TRANSFER as u32, false),
        (Operation::Map, key, 0, 0, false),
        (Operation::Read, key, 4998, 2, true),
        (Operation::Write, key, 5000, 0, true),
        (Operation::Read, key, 5000, 0, true),
    ];
    let mut sent = Vec::new();
    for (tag, (operation, key, offset, len, _)) in requests.into_iter().enumerate() {
        let tag = tag as u64;
        sent.extend(DataRequest { operation, len, tag, key, offset }.encode());
        if operation == Operation::Write {
            sent.extend(vec![9; len as usize]);
        }
    }
    queue.write_before(&sent, Instant::now() + PATIENCE).unwrap();
    for (tag, (operation, _, offset, _, good)) in requests.into_iter().enumerate() {
        let (header, body) = reply(&queue);
        assert_eq!(header.tag, tag as u64);
        assert_eq!(header.status == protocol::OK, good, "{operation:?} at {offset}");
        if good && operation == Operation::Read {
            assert!(body.iter().all(|&byte| byte == 9));
        }
    }
}

#[test]
fn a_data_request_without_sense_is_named_and_ends_the_connection() {
    let (_server, door) = server();
    let greeted = door.enter(Role::Control, 0).unwrap();
    let mut header = DataRequest {
        operation: Operation::Write,
        len: MAX_TRANSFER as u32,
        tag: 77,
        key: RegionKey(1),
        offset: 0,
    }
    .encode();
    header[7] = 0xff;
    let queue = door.enter(Role::Data, greeted.session).unwrap().socket;
    queue.write_before(&header, Instant::now() + PATIENCE).unwrap();
    let (reply, text) = reply(&queue);
    assert_eq!(reply.tag, 77);
    assert!(String::from_utf8(text).unwrap().contains("expected at most 16777216"));
    assert!(is_closed(&queue));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn whatever_a_client_says_others_are_served(
        control: bool,
        bytes in prop::collection::vec(prop_oneof![0u8..9, any::<u8>()], 0..3000),
    ) {
        let (server, door) = server();
        let greeted = door.enter(Role::Control, 0).unwrap();
        let hostile = match control {
            true => door.enter(Role::Control, 0).unwrap(),
            false => door.enter(Role::Data, greeted.session).unwrap(),
        };
        let _ = (&mut &hostile.socket).write_all(&bytes);
        drop(hostile);
        let (header, _) = ask(&greeted.socket, &Request::Status { after: None }.encode(1)).unwrap();
        prop_assert_eq!(header.status, protocol::OK);
        drop(greeted);
        server.stop();
    }
}
