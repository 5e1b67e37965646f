//! Servers that die, hang and forget: every read ends, with correct bytes or a clear error.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::{Sample, disk, engine_over, options, place, read_all};
use outercore_core::{Bytes, ErrorKind, Result};
use outercore_far::{FarOptions, FarTier};
use outercore_io::sim::{Fault, SimConfig, SimReader};
use outercore_io::{Arena, Engine, Tier};
use outercore_testkit::HeapRemote;
use proptest::prelude::*;

/// Places half of a file and reads all of it.
fn place_and_read(tier: &Arc<FarTier>, sample: &Sample) -> Result<()> {
    place(tier, sample, false)?;
    let mut engine = engine_over(tier)?;
    read_all(&mut engine, &sample.path, &sample.content)
}

#[test]
fn a_server_that_dies_at_any_request_leaves_right_bytes_or_a_clear_error() {
    let sample = Sample::new(1, 150_001);
    for queues in [1, 2] {
        for fallback in [true, false] {
            let mut survived = false;
            for requests in 0..200 {
                let server = HeapRemote::new(Bytes::mib(8));
                let options = FarOptions { fallback, queues, queue_length: 4, ..options() };
                let tier =
                    Arc::new(FarTier::over_remote(Arc::new(server.client()), &options).unwrap());
                server.die_after(requests);
                let outcome = place_and_read(&tier, &sample);
                let counters = tier.counters();
                survived = tier.is_alive();
                assert_eq!(survived, counters.lost.is_none());
                match outcome {
                    Ok(()) => assert!(fallback || survived),
                    Err(error) => {
                        assert!(!fallback && !survived, "after {requests} requests: {error}");
                        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                        let text = error.to_string();
                        assert!(text.contains("memory server tcp://127.0.0.1:1"), "{text}");
                        assert!(text.contains("no answer for 5 s"), "{text}");
                        assert!(text.contains("hint: "), "{text}");
                    }
                }
                if fallback && !survived && counters.far_requests > 0 {
                    assert!(counters.failed_over > 0, "{counters:?}");
                }
                if survived {
                    break;
                }
            }
            assert!(survived, "the last server lives to the end");
        }
    }
}

#[test]
fn a_failed_far_read_names_file_and_server() {
    let sample = Sample::new(2, 100_000);
    let server = HeapRemote::new(Bytes::mib(8));
    let options = FarOptions { fallback: false, ..options() };
    let tier = Arc::new(FarTier::over_remote(Arc::new(server.client()), &options).unwrap());
    place(&tier, &sample, true).unwrap();
    let mut engine = engine_over(&tier).unwrap();
    server.die_after(3);
    for _ in 0..2 {
        let error = read_all(&mut engine, &sample.path, &sample.content).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        let text = error.to_string();
        assert!(text.contains(sample.path.to_str().unwrap()), "{text}");
        assert!(text.contains("memory server tcp://127.0.0.1:1"), "{text}");
    }
    assert_eq!(engine_over(&tier).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn a_server_that_was_started_again_has_lost_its_regions_but_not_its_client() {
    for fallback in [true, false] {
        let sample = Sample::new(3, 100_000);
        let server = HeapRemote::new(Bytes::mib(8));
        let options = FarOptions { fallback, ..options() };
        let tier = Arc::new(FarTier::over_remote(Arc::new(server.client()), &options).unwrap());
        place(&tier, &sample, true).unwrap();
        let mut engine = engine_over(&tier).unwrap();
        server.forget_everything();
        let read = read_all(&mut engine, &sample.path, &sample.content);
        assert_eq!(read.is_ok(), fallback);
        assert!(tier.is_alive());
        assert_eq!(tier.counters().failed_over > 0, fallback);
        // The file has an entry again.
        assert_eq!(place(&tier, &sample, true).unwrap().bytes, sample.len());
        read_all(&mut engine, &sample.path, &sample.content).unwrap();
    }
}

#[test]
fn keeping_on_a_server_that_dies_is_an_error_with_fallback_too() {
    let sample = Sample::new(4, 100_000);
    for requests in 0..8 {
        let server = HeapRemote::new(Bytes::mib(8));
        let tier = FarTier::over_remote(Arc::new(server.client()), &options()).unwrap();
        server.die_after(requests);
        let keep =
            || tier.keep(&sample.path, &sample.contents("name"), &mut disk(), &mut |_, _| Ok(()));
        for _ in 0..2 {
            let error = keep().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Io, "{error}");
            assert!(error.to_string().contains("memory server"), "{error}");
        }
        assert!(!tier.is_alive());
    }
}

/// An engine over a tier over a disk with scripted faults, and a short time-out.
fn engine_over_sim(tier: &FarTier, script: BTreeMap<u64, Fault>) -> Engine {
    let config = SimConfig { depth: 16, script, ..SimConfig::default() };
    let arena = Arena::new(Bytes::kib(512)).unwrap();
    let reader = tier.over(Box::new(SimReader::open(config)), &arena, 16).unwrap();
    Engine::over(reader, arena, Duration::from_millis(200))
}

#[test]
fn a_disk_that_hangs_beside_far_memory_ends_at_the_deadline_and_may_recover() {
    let sample = Sample::new(5, 300_000);
    let server = HeapRemote::new(Bytes::mib(8));
    let tier = FarTier::over_remote(Arc::new(server.client()), &options()).unwrap();
    place(&tier, &sample, false).unwrap();
    let mut engine = engine_over_sim(&tier, BTreeMap::from([(9, Fault::Never)]));
    let error = read_all(&mut engine, &sample.path, &sample.content).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("no read completed within"), "{error}");
    assert!(tier.is_alive(), "the server is not to blame");
    read_all(&mut engine, &sample.path, &sample.content).unwrap();
}

#[test]
fn a_failed_disk_read_beside_far_memory_names_the_file() {
    let sample = Sample::new(6, 300_000);
    let server = HeapRemote::new(Bytes::mib(8));
    let tier = FarTier::over_remote(Arc::new(server.client()), &options()).unwrap();
    place(&tier, &sample, false).unwrap();
    let mut engine = engine_over_sim(&tier, BTreeMap::from([(9, Fault::Error(5))]));
    let error = read_all(&mut engine, &sample.path, &sample.content).unwrap_err();
    assert!(error.to_string().contains(sample.path.to_str().unwrap()), "{error}");
    assert!(tier.is_alive());
    read_all(&mut engine, &sample.path, &sample.content).unwrap();
}

#[test]
fn many_readers_share_a_tier_while_more_is_placed_and_the_server_dies() {
    let sample = Sample::new(7, 300_000);
    let server = HeapRemote::new(Bytes::mib(8));
    let tier = Arc::new(FarTier::over_remote(Arc::new(server.client()), &options()).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut engine = engine_over(&tier).unwrap();
                for _ in 0..10 {
                    read_all(&mut engine, &sample.path, &sample.content).unwrap();
                }
            });
        }
        for all in [false, true] {
            place(&tier, &sample, all).unwrap();
        }
        server.die_after(300);
    });
    let mut engine = engine_over(&tier).unwrap();
    read_all(&mut engine, &sample.path, &sample.content).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_disk_and_server_do_bytes_are_right_or_there_is_an_error(
        all: bool,
        fallback: bool,
        queues in 1usize..3,
        queue_length in 1usize..9,
        dies_after in 0u64..400,
        faults in prop::collection::btree_map(
            0u64..100,
            prop_oneof![
                Just(Fault::Error(5)),
                Just(Fault::Never),
                (0usize..9000).prop_map(Fault::Short),
            ],
            0..3,
        ),
    ) {
        let sample = Sample::new(8, 200_001);
        let server = HeapRemote::new(Bytes::mib(8));
        let options = FarOptions { fallback, queues, queue_length, ..options() };
        let tier = FarTier::over_remote(Arc::new(server.client()), &options).unwrap();
        place(&tier, &sample, all).unwrap();
        let fatal = |fault: &Fault| matches!(fault, Fault::Error(_) | Fault::Never);
        let harmless = !faults.values().any(fatal);
        let mut engine = engine_over_sim(&tier, faults);
        server.die_after(dies_after);
        let read = read_all(&mut engine, &sample.path, &sample.content);
        if harmless && (fallback || tier.is_alive()) {
            prop_assert!(read.is_ok(), "{:?}", read);
        }
    }
}
