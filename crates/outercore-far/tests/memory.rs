//! The low-level interface: reads and writes that are started and completed by numbered threads.

mod served;

use outercore_core::{Bytes, ErrorKind};
use outercore_far::{FarMemory, FarOptions, Receive};
use served::{Fixture, noise};

fn options(fixture: &Fixture) -> FarOptions {
    FarOptions { chunk: Bytes::kib(16), queue_length: 8, ..fixture.options() }
}

fn connect(fixture: &Fixture, threads: usize, receive: Receive) -> FarMemory {
    FarMemory::build_connection(&options(fixture), threads, receive).unwrap()
}

#[test]
fn threads_write_and_read_back_what_they_wrote() {
    for fixture in Fixture::both() {
        for receive in [Receive::Shared, Receive::PerThread] {
            let far = connect(&fixture, 4, receive);
            // More than all buffers of a thread together.
            let len = 300_000;
            let region = far.allocate(Bytes(4 * len as u64), None).unwrap();
            let part = |thread: usize| noise(thread as u64, len);
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (far, region) = (&far, &region);
                    scope.spawn(move || {
                        let offset = (thread * len) as u64;
                        far.far_write_start(thread, region, offset, &part(thread)).unwrap();
                        far.far_write_complete(thread).unwrap();
                    });
                }
            });
            far.seal(&region, false).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..4 {
                    let (far, region) = (&far, &region);
                    scope.spawn(move || {
                        let wanted = part(thread);
                        for (index, wanted) in wanted.chunks(25_000).enumerate() {
                            let offset = (thread * len + index * 25_000) as u64;
                            let ticket = far.far_read_start(thread, region, offset, wanted.len());
                            let lease = far.far_read_complete(thread, ticket.unwrap()).unwrap();
                            assert!(lease[..wanted.len()] == *wanted, "{receive:?} {thread}");
                        }
                    });
                }
            });
        }
    }
}

#[test]
fn reads_are_completed_in_any_order_and_once() {
    let fixture = Fixture::tcp();
    let far = connect(&fixture, 2, Receive::PerThread);
    let region = far.allocate(Bytes::kib(64), None).unwrap();
    let content = noise(1, 64 << 10);
    far.far_write_start(0, &region, 0, &content).unwrap();
    far.far_write_complete(0).unwrap();
    let tickets: Vec<_> = (0..8u64)
        .map(|number| far.far_read_start(0, &region, number * 1000, 1000).unwrap())
        .collect();
    for (number, &ticket) in tickets.iter().enumerate().rev() {
        let lease = far.far_read_complete(0, ticket).unwrap();
        assert!(lease[..1000] == content[number * 1000..][..1000]);
    }
    for thread in 0..2 {
        let error = far.far_read_complete(thread, tickets[0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
}

#[test]
fn one_pool_of_receive_buffers_takes_less_memory_than_one_a_thread() {
    let fixture = Fixture::tcp();
    let shared = connect(&fixture, 4, Receive::Shared).memory_bytes();
    let apart = connect(&fixture, 4, Receive::PerThread).memory_bytes();
    let pool = 8 * (16 << 10);
    // The kernel's buffers of a socket are not counted exactly, and grow with use.
    assert!(apart.0 >= 4 * pool, "{apart}");
    assert!(shared.0 >= pool, "{shared}");
    assert!(shared < apart, "{shared} {apart}");
}

#[test]
fn a_read_without_a_free_buffer_ends_with_an_error() {
    let fixture = Fixture::tcp();
    let options = FarOptions { timeout_s: 0.5, ..options(&fixture) };
    let far = FarMemory::build_connection(&options, 2, Receive::Shared).unwrap();
    let region = far.allocate(Bytes::mib(1), None).unwrap();
    let all = 8 * (16 << 10);
    let error = far.far_read_start(0, &region, 0, all + 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("longer than all"), "{error}");
    let ticket = far.far_read_start(0, &region, 0, all).unwrap();
    let error = far.far_read_start(1, &region, 0, 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    drop(far.far_read_complete(0, ticket).unwrap());
    let ticket = far.far_read_start(1, &region, 0, 1).unwrap();
    far.far_read_complete(1, ticket).unwrap();
}

#[test]
fn what_is_out_of_range_is_named() {
    let fixture = Fixture::tcp();
    let far = connect(&fixture, 1, Receive::Shared);
    let region = far.allocate(Bytes(100), None).unwrap();
    for error in [
        far.far_write_start(0, &region, 99, &[1, 2]).unwrap_err(),
        far.far_write_start(0, &region, 0, &[]).unwrap_err(),
        far.far_read_start(0, &region, u64::MAX, 2).unwrap_err(),
        far.far_read_start(1, &region, 0, 1).unwrap_err(),
        far.far_write_complete(1).unwrap_err(),
        FarMemory::build_connection(&fixture.options(), 0, Receive::Shared).unwrap_err(),
        FarMemory::build_connection(&fixture.options(), 65, Receive::Shared).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("expected"), "{error}");
    }
}

#[test]
fn writes_that_fail_are_told_on_completion() {
    let fixture = Fixture::tcp();
    let far = connect(&fixture, 1, Receive::Shared);
    let region = far.allocate(Bytes(100), Some("x")).unwrap();
    far.seal(&region, true).unwrap();
    assert_eq!(far.find("x").unwrap(), Some(region));
    far.far_write_start(0, &region, 0, &[1; 100]).unwrap();
    let error = far.far_write_complete(0).unwrap_err();
    assert!(error.to_string().contains("sealed"), "{error}");
    far.far_write_complete(0).unwrap();
    assert_eq!(far.status().unwrap().regions.len(), 1);
    far.free(&region).unwrap();

    let region = far.allocate(Bytes(100), None).unwrap();
    let ticket = far.far_read_start(0, &region, 0, 100).unwrap();
    far.far_read_complete(0, ticket).unwrap();
    let Fixture { server, directory } = fixture;
    server.stop();
    drop(directory);
    let ticket = far.far_read_start(0, &region, 0, 100).unwrap();
    let error = far.far_read_complete(0, ticket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
}
