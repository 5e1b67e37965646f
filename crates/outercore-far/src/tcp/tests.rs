//! A queue with a test as its server, which is late, wrong or gone.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use outercore_io::Arena;
use proptest::prelude::*;

use super::*;
use crate::protocol::{self, DataReply, DataRequest, MAX_TEXT, REQUEST_HEADER};
use crate::queue::Transferred;
use crate::region::{Region, RegionKey};

const CHUNK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(20);
const REGION: Region = Region { key: RegionKey(7), len: Bytes(1 << 20) };

/// A queue and the test's end of its connection.
struct Pair {
    queue: SocketQueue,
    arrivals: Arrivals,
    arena: Arena,
    peer: UnixStream,
}

impl Pair {
    fn new(silence: Duration) -> Self {
        Self::limited(Limits { silence, transfer: PATIENCE })
    }

    fn limited(limits: Limits) -> Self {
        let (ours, peer) = UnixStream::pair().unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let arrivals = Arrivals::default();
        let chunk = Bytes(CHUNK as u64);
        let name = "memory server test".to_owned();
        let socket = Socket::Unix(ours);
        let queue = SocketQueue::over(socket, name, limits, 8, chunk, &arrivals).unwrap();
        Self { queue, arrivals, arena: Arena::new(Bytes::kib(256)).unwrap(), peer }
    }

    fn transfer(&self, tag: u64, len: usize) -> Transfer {
        Transfer { tag, region: REGION, offset: 0, len, lease: self.arena.lease(len).unwrap() }
    }

    fn read_start(&mut self, tag: u64, len: usize) {
        let transfer = self.transfer(tag, len);
        self.queue.read_start(transfer);
    }

    fn write_start(&mut self, tag: u64, len: usize) {
        let transfer = self.transfer(tag, len);
        self.queue.write_start(transfer);
    }

    /// Receives the next request of the queue.
    fn request(&mut self) -> DataRequest {
        let mut header = [0; REQUEST_HEADER];
        self.peer.read_exact(&mut header).unwrap();
        DataRequest::decode(&header).unwrap()
    }

    fn answer(&mut self, status: u16, tag: u64, payload: &[u8]) {
        let reply = DataReply { status, len: payload.len() as u32, tag };
        // This fails if the queue has already ended.
        let _ = self.peer.write_all(&[&reply.encode()[..], payload].concat());
    }

    fn arrived(&self, count: usize) -> Vec<Transferred> {
        let mut done = Vec::new();
        while done.len() < count {
            assert!(self.arrivals.take(count - done.len(), PATIENCE, &mut done) > 0);
        }
        done
    }

    fn error(&self) -> String {
        let error = self.arrived(1).remove(0).result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        error.to_string()
    }
}

#[test]
fn a_transfer_is_cut_into_chunks_and_arrives_whole() {
    let mut pair = Pair::new(PATIENCE);
    pair.read_start(5, CHUNK + 10);
    let asked: Vec<_> =
        (0..2).map(|_| pair.request()).map(|asked| (asked.offset, asked.len)).collect();
    assert_eq!(asked, [(0, CHUNK as u32), (CHUNK as u64, 10)]);
    pair.answer(protocol::OK, 0, &[1; CHUNK]);
    pair.answer(protocol::OK, 0, &[2; 10]);
    let done = pair.arrived(1).remove(0);
    done.result.unwrap();
    assert_eq!((done.tag, done.lease[CHUNK - 1], done.lease[CHUNK + 9]), (5, 1, 2));
}

#[test]
fn one_refused_chunk_fails_its_transfer_and_no_other() {
    let mut pair = Pair::new(PATIENCE);
    pair.read_start(0, 2 * CHUNK);
    pair.read_start(1, 3);
    let (status, text) = protocol::encode_error(&Error::new(ErrorKind::NotFound, "no region"));
    pair.answer_when_asked(3, |pair| {
        pair.answer(status, 0, text.as_bytes());
        pair.answer(protocol::OK, 0, &[0; CHUNK]);
        pair.answer(protocol::OK, 1, b"yes");
    });
    let mut done = pair.arrived(2);
    done.sort_by_key(|done| done.tag);
    let error = done.remove(0).result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.to_string(), "memory server test: no region");
    assert_eq!(&done[0].lease[..3], b"yes");
}

impl Pair {
    fn answer_when_asked(&mut self, requests: usize, answer: impl FnOnce(&mut Self)) {
        for _ in 0..requests {
            self.request();
        }
        answer(self);
    }
}

#[test]
fn silence_ends_all_that_is_in_flight_and_the_queue() {
    let mut pair = Pair::new(Duration::from_millis(20));
    for tag in 0..3 {
        pair.read_start(tag, 9000);
    }
    for done in pair.arrived(3) {
        let error = done.result.unwrap_err();
        assert_eq!(error.to_string(), "memory server test: no answer for 0.02 s");
    }
    pair.read_start(9, 1);
    assert!(pair.error().contains("no answer"));
    assert_eq!(pair.arena.free_bytes(), pair.arena.size());
}

#[test]
fn a_server_that_takes_nothing_is_silent_too() {
    let mut pair = Pair::new(Duration::from_millis(20));
    for tag in 0..8 {
        // Together, the writes exceed the buffers of the socket.
        pair.write_start(tag, 8 * CHUNK);
    }
    for done in pair.arrived(8) {
        assert!(done.result.unwrap_err().to_string().contains("no answer"));
    }
}

#[test]
fn a_server_that_trickles_ends_the_queue_though_it_is_never_silent() {
    let transfer = Duration::from_millis(100);
    let mut pair = Pair::limited(Limits { silence: PATIENCE, transfer });
    let began = Instant::now();
    for tag in 0..4 {
        pair.read_start(tag, CHUNK);
    }
    let mut peer = pair.peer.try_clone().unwrap();
    let server = std::thread::spawn(move || {
        let reply = DataReply { status: protocol::OK, len: CHUNK as u32, tag: 0 };
        let reply = [&reply.encode()[..], &[0; CHUNK]].concat();
        let trickled = reply.chunks(1).take_while(|byte| {
            std::thread::sleep(Duration::from_millis(1));
            peer.write_all(byte).is_ok()
        });
        trickled.count()
    });
    for done in pair.arrived(4) {
        let error = done.result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("took longer than 0.1 s"), "{error}");
    }
    assert!(began.elapsed() >= transfer);
    pair.read_start(9, 1);
    assert!(pair.error().contains("took longer"));
    assert_eq!(pair.arena.free_bytes(), pair.arena.size());
    assert!((1..CHUNK).contains(&server.join().unwrap()), "it was cut off in the middle");
}

#[test]
fn transfers_have_the_limit_each_and_not_together() {
    let transfer = Duration::from_millis(400);
    let mut pair = Pair::limited(Limits { silence: PATIENCE, transfer });
    for tag in 0..6 {
        pair.read_start(tag, 1);
    }
    let began = Instant::now();
    for tag in 0..6 {
        pair.request();
        std::thread::sleep(transfer / 5);
        pair.answer(protocol::OK, tag, &[1]);
    }
    assert!(pair.arrived(6).into_iter().all(|done| done.result.is_ok()));
    assert!(began.elapsed() > transfer);
}

#[test]
fn a_server_that_dies_between_transfers_is_noticed_by_the_next() {
    let mut pair = Pair::new(PATIENCE);
    pair.peer.shutdown(std::net::Shutdown::Both).unwrap();
    pair.read_start(0, 1);
    assert!(pair.error().contains("closed the connection"));
}

#[test]
fn bytes_that_nobody_asked_for_end_the_queue() {
    let mut pair = Pair::new(PATIENCE);
    pair.answer(protocol::OK, 0, b"surprise");
    pair.read_start(0, 1);
    assert!(pair.error().contains("not asked"));
}

#[test]
fn answers_that_do_not_fit_their_request_end_the_queue() {
    type Answer = fn(&mut Pair);
    let answers: [(&str, Answer); 5] = [
        ("of another request", |pair| pair.answer(protocol::OK, 1, &[0; 100])),
        ("too short", |pair| pair.answer(protocol::OK, 0, &[0; 99])),
        ("too long", |pair| pair.answer(protocol::OK, 0, &[0; 101])),
        ("a text without end", |pair| pair.answer(3, 0, &[0; MAX_TEXT + 1])),
        ("cut", |pair| {
            let reply = DataReply { status: protocol::OK, len: 100, tag: 0 };
            pair.peer.write_all(&reply.encode()).unwrap();
            pair.peer.write_all(&[0; 50]).unwrap();
            pair.peer.shutdown(std::net::Shutdown::Both).unwrap();
        }),
    ];
    for (what, answer) in answers {
        let mut pair = Pair::new(PATIENCE);
        pair.read_start(0, 100);
        pair.answer_when_asked(1, answer);
        let error = pair.error();
        assert!(error.contains("not asked") || error.contains("closed"), "{what}: {error}");
    }
}

#[test]
fn a_write_that_is_answered_before_it_is_sent_ends_the_queue() {
    let mut pair = Pair::new(PATIENCE);
    for tag in 0..8 {
        pair.write_start(tag, 8 * CHUNK);
    }
    // The last answers exceed the buffers of the socket, which is not read.
    let answer = |tag| DataReply { status: protocol::OK, len: 0, tag }.encode();
    let answers: Vec<u8> = (0..64).flat_map(|number| answer(number / 8)).collect();
    // This fails if the queue has already ended.
    let _ = pair.peer.write_all(&answers);
    let failed = pair.arrived(8).into_iter().filter(|done| done.result.is_err()).count();
    assert!(failed > 0, "writes that were never taken cannot all have been done");
}

#[test]
fn transfers_outside_their_buffer_or_region_are_refused_at_once() {
    let mut pair = Pair::new(PATIENCE);
    for (offset, len) in [(0, 0), (0, 4097), (REGION.len.0, 1), (u64::MAX, 2)] {
        let lease = pair.arena.lease(4096).unwrap();
        pair.queue.read_start(Transfer { tag: 0, region: REGION, offset, len, lease });
        let error = pair.arrived(1).remove(0).result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{len} bytes at {offset}");
    }
}

#[test]
fn a_dropped_queue_gives_every_lease_back() {
    let mut pair = Pair::new(PATIENCE);
    for tag in 0..4 {
        pair.read_start(tag, 9000);
        pair.write_start(10 + tag, 9000);
    }
    let Pair { queue, arrivals, arena, peer } = pair;
    drop(queue);
    let mut done = Vec::new();
    assert_eq!(arrivals.take(8, PATIENCE, &mut done), 8);
    assert!(done.iter().all(|done| done.result.is_err()));
    drop((done, peer));
    assert_eq!(arena.free_bytes(), arena.size());
}

proptest! {
    #[test]
    fn whatever_a_server_says_every_transfer_arrives(
        bytes in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200),
        right_header: bool,
        reads in prop::collection::vec((any::<bool>(), 1usize..9000), 1..6),
    ) {
        let mut pair = Pair::new(PATIENCE);
        for (tag, &(write, len)) in reads.iter().enumerate() {
            if write { pair.write_start(tag as u64, len) } else { pair.read_start(tag as u64, len) }
        }
        if right_header {
            let (write, len) = reads[0];
            let len = if write { 0 } else { len.min(CHUNK) as u32 };
            let reply = DataReply { status: protocol::OK, len, tag: 0 };
            let _ = pair.peer.write_all(&reply.encode());
        }
        let _ = pair.peer.write_all(&bytes);
        let _ = pair.peer.shutdown(std::net::Shutdown::Write);
        let mut tags: Vec<_> = pair.arrived(reads.len()).iter().map(|done| done.tag).collect();
        tags.sort_unstable();
        prop_assert_eq!(tags, (0..reads.len() as u64).collect::<Vec<_>>());
        prop_assert_eq!(pair.arena.free_bytes(), pair.arena.size());
    }
}
