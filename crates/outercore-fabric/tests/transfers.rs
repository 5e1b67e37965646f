//! Promises of a data queue over libfabric, tested with its `tcp` provider on this machine.

mod common;

use std::sync::Arc;

use common::{Bench, Control, Server, TIMEOUT, address, client, pattern, plane};
use outercore_core::{Bytes, ErrorKind, Result};
use outercore_far::{Access, DataPlane, PlaneControl, RegionKey};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

#[test]
fn what_is_written_in_pieces_is_read_back_in_others() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let client = client(&plane, &server, 1);
    let len = (3 << 20) + 12_345;
    let region = server.put(1, &vec![0; len], Access::ReadWrite);
    let bytes = pattern(len, 5);
    let mut bench = Bench::open(&*client, 8, 64 << 10);
    for (tag, piece) in bytes.chunks(700_001).enumerate() {
        bench.write_start(tag as u64, region, tag as u64 * 700_001, piece);
    }
    for transferred in bench.wait(bytes.chunks(700_001).count()) {
        transferred.result.unwrap();
    }
    assert!(server.content(region) == bytes, "what the server holds is not what was written");
    assert!(bench.read(region, 0, len).unwrap() == bytes);
    assert_eq!(bench.read(region, 4095, 2).unwrap(), bytes[4095..4097]);
    assert_eq!(bench.read(region, len as u64 - 1, 1).unwrap(), bytes[len - 1..]);
}

#[test]
fn any_reads_yield_what_the_region_holds() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let client = client(&plane, &server, 1);
    let bytes = pattern(1 << 20, 9);
    let region = server.put(1, &bytes, Access::Read);
    let reads = prop::collection::vec((0..1u64 << 20, 1usize..200_000), 1..40);
    let queues = [(1, 4096), (3, 5000), (32, 256 << 10)]
        .map(|(length, chunk)| std::cell::RefCell::new(Bench::open(&*client, length, chunk)));
    let mut runner = TestRunner::new(Config { cases: 40, ..Config::default() });
    let outcome = runner.run(&(reads, 0usize..3), |(reads, queue)| {
        let mut bench = queues[queue].borrow_mut();
        for (tag, &(offset, len)) in reads.iter().enumerate() {
            let len = len.min(bytes.len() - offset as usize);
            bench.read_start(tag as u64, region, offset, len);
        }
        for transferred in bench.wait(reads.len()) {
            let (offset, len) = reads[transferred.tag as usize];
            let len = len.min(bytes.len() - offset as usize);
            transferred.result.unwrap();
            prop_assert!(transferred.lease[..len] == bytes[offset as usize..][..len]);
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn a_sealed_region_is_read_by_every_session_and_written_by_none() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let (writer, reader) = (client(&plane, &server, 1), client(&plane, &server, 2));
    let region = server.put(1, &[0; 8192], Access::ReadWrite);
    let mut writing = Bench::open(&*writer, 4, 4096);
    let bytes = pattern(8192, 1);
    writing.write(region, 0, &bytes).unwrap();
    server.seal(region);
    writer.forget(region.key);
    let mut reading = Bench::open(&*reader, 4, 4096);
    assert_eq!(reading.read(region, 0, 8192).unwrap(), bytes);
    assert_eq!(writing.read(region, 0, 8192).unwrap(), bytes);
    let error = writing.write(region, 0, &[1; 100]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("fabric://"), "{error}");
    // The queue has failed and says so at once; other queues are not affected.
    assert_eq!(writing.read(region, 0, 1).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(reading.read(region, 0, 8192).unwrap(), bytes);
    assert_eq!(server.content(region), bytes);
    assert_eq!(Bench::open(&*writer, 1, 4096).read(region, 0, 8192).unwrap(), bytes);
}

#[test]
fn a_bad_transfer_is_refused_and_the_queue_lives_on() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let client = client(&plane, &server, 1);
    let region = server.put(1, &pattern(10_000, 3), Access::Read);
    let mut bench = Bench::open(&*client, 4, 4096);
    for (offset, len) in [(0, 10_001), (10_000, 1), (u64::MAX, 2)] {
        let error = bench.read(region, offset, len).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let unknown = outercore_far::Region { key: RegionKey(99), len: Bytes(10) };
    assert_eq!(bench.read(unknown, 0, 10).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(bench.read(region, 0, 10_000).unwrap(), pattern(10_000, 3));
}

#[test]
fn a_region_that_was_freed_is_not_read_any_more() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let client = client(&plane, &server, 1);
    let (gone, stays) = (
        server.put(1, &pattern(9000, 1), Access::Read),
        server.put(2, &pattern(9000, 2), Access::Read),
    );
    let mut bench = Bench::open(&*client, 4, 4096);
    bench.read(gone, 0, 9000).unwrap();
    server.free(gone);
    assert_eq!(bench.read(gone, 0, 9000).unwrap_err().kind(), ErrorKind::Io);
    client.forget(gone.key);
    let mut bench = Bench::open(&*client, 4, 4096);
    assert_eq!(bench.read(gone, 0, 9000).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(bench.read(stays, 0, 9000).unwrap(), pattern(9000, 2));
}

/// A client that uses an offer or grant of another client.
#[derive(Debug)]
struct Thief {
    offer: Vec<u8>,
    grant: Vec<u8>,
}

impl PlaneControl for Thief {
    fn offer(&self) -> Result<Vec<u8>> {
        Ok(self.offer.clone())
    }

    fn grant(&self, _: RegionKey) -> Result<Vec<u8>> {
        Ok(self.grant.clone())
    }
}

#[test]
fn a_grant_opens_nothing_to_another_session() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let owner = client(&plane, &server, 1);
    let region = server.put(1, &pattern(5000, 4), Access::ReadWrite);
    let mut owning = Bench::open(&*owner, 1, 4096);
    owning.read(region, 0, 5000).unwrap();
    let offer = server.listener.offer(2).unwrap();
    let grant = server.grant(1, region.key).unwrap();
    let thief = plane.connect(&address(), TIMEOUT, Arc::new(Thief { offer, grant })).unwrap();
    let mut stealing = Bench::open(&*thief, 1, 4096);
    assert_eq!(stealing.read(region, 0, 5000).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(owning.read(region, 0, 5000).unwrap(), pattern(5000, 4));
}

#[test]
fn a_ticket_lets_one_queue_in() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let offer = server.listener.offer(1).unwrap();
    let client =
        plane.connect(&address(), TIMEOUT, Arc::new(Thief { offer, grant: vec![] })).unwrap();
    let arrivals = outercore_far::Arrivals::default();
    let first = client.open_queue(1, Bytes(4096), &arrivals).unwrap();
    let error = client.open_queue(1, Bytes(4096), &arrivals).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    drop(first);
    let mut forged = server.listener.offer(1).unwrap();
    forged[5] ^= 1;
    let forger = Thief { offer: forged, grant: vec![] };
    let client = plane.connect(&address(), TIMEOUT, Arc::new(forger)).unwrap();
    assert!(client.open_queue(1, Bytes(4096), &arrivals).is_err());
}

#[test]
fn queues_of_a_session_are_counted_and_free_again_when_dropped() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    for _ in 0..common::MOST_QUEUES {
        server.listener.offer(1).unwrap();
    }
    let error = server.listener.offer(1).unwrap_err();
    assert!(error.to_string().contains("at most 7"), "{error}");
    server.listener.session_ended(1);
    server.listener.offer(1).unwrap();
    server.listener.offer(2).unwrap();
}

#[test]
fn several_queues_share_arrivals_and_an_arena() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let client = client(&plane, &server, 1);
    let bytes = pattern(1 << 20, 6);
    let region = server.put(1, &bytes, Access::Read);
    let mut bench = Bench::open(&*client, 4, 16 << 10);
    let mut queues = vec![bench.queue.take().unwrap()];
    for _ in 0..3 {
        queues.push(client.open_queue(4, Bytes::kib(16), &bench.arrivals).unwrap());
    }
    for round in 0..10 {
        for tag in 0..32 {
            bench.queue = Some(queues.remove(0));
            bench.read_start(tag, region, (tag * 32) << 10, 32 << 10);
            queues.push(bench.queue.take().unwrap());
        }
        for transferred in bench.wait(32) {
            transferred.result.unwrap();
            let at = (transferred.tag as usize * 32) << 10;
            assert!(transferred.lease[..32 << 10] == bytes[at..][..32 << 10], "round {round}");
        }
    }
}

#[test]
fn control_and_own_plane_agree_on_addresses() {
    let plane_of = outercore_fabric::FabricPlane::default();
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let control = Arc::new(Control { server, session: 1 });
    let error = plane_of.connect(&"tcp://a:1".parse().unwrap(), TIMEOUT, control).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = plane.listen("192.0.2.77", 1).unwrap_err();
    assert!(error.to_string().contains("192.0.2.77"), "{error}");
    let strange = outercore_fabric::FabricPlane::new(Some("no-such-provider"));
    let error = strange.listen("127.0.0.1", 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
