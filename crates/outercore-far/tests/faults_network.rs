//! Networks that delay, stall and cut, and servers that are killed in each phase. Every run ends,
//! with correct bytes or a clear error.

mod common;
#[path = "common/proxy.rs"]
mod proxy;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Sample, Server, disk, engine_over, read_all};
use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_far::{FarAddress, FarOptions, FarTier};
use outercore_io::PlannedRead;
use proxy::{Network, Proxy, Then};

/// No run may last longer: a hundred time-outs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The phase in which a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    Connecting,
    Placing,
    Reading,
}

/// Connects, places every other piece of the file, and reads all of it.
fn run(options: &FarOptions, sample: &Sample) -> (Reached, Result<()>) {
    let tier = match FarTier::connect(options) {
        Ok(tier) => Arc::new(tier),
        Err(error) => return (Reached::Connecting, Err(error)),
    };
    if let Err(error) = common::place(&tier, sample, false) {
        return (Reached::Placing, Err(error));
    }
    let read = engine_over(&tier)
        .and_then(|mut engine| read_all(&mut engine, &sample.path, &sample.content));
    (Reached::Reading, read)
}

fn through(proxy: &Proxy, server: &Server, fallback: bool) -> FarOptions {
    let address = FarAddress::Tcp(proxy.address());
    FarOptions { address, fallback, timeout_s: 0.3, queue_length: 4, ..server.options() }
}

fn target(server: &Server) -> String {
    server.options().address.to_string().replace("tcp://", "")
}

fn check(what: &str, outcome: Result<()>, reached: Reached, fallback: bool, began: Instant) {
    assert!(began.elapsed() < PATIENCE, "{what}: took {:?}", began.elapsed());
    let Err(error) = outcome else { return };
    assert!(!fallback || reached == Reached::Connecting, "{what}, {reached:?}: {error}");
    assert_eq!(error.kind(), ErrorKind::Io, "{what}, {reached:?}: {error}");
    let text = error.to_string();
    assert!(text.contains("tcp://127.0.0.1:"), "{what}, {reached:?}: {text}");
}

/// Repeats the run over networks that fail after each of `points` fractions of the bytes of a good
/// run.
fn runs_over_networks_that_end(then: Then, points: u64) {
    let server = Server::tcp(Bytes::mib(64));
    let sample = Sample::new(1, 150_001);
    let good = Proxy::start(&target(&server), Network::GOOD);
    let patient = FarOptions { timeout_s: 20.0, ..through(&good, &server, false) };
    let (reached, outcome) = run(&patient, &sample);
    outcome.unwrap();
    assert_eq!(reached, Reached::Reading);
    let total = good.passed();
    assert!(total > sample.len(), "{total}");
    let one = |point: u64, fallback: bool| {
        let network = Network { passes: total * point / points + point % 7, then, ..Network::GOOD };
        let proxy = Proxy::start(&target(&server), network);
        let began = Instant::now();
        let (reached, outcome) = run(&through(&proxy, &server, fallback), &sample);
        let what = format!("{then:?} after {} of {total} bytes", network.passes);
        check(&what, outcome, reached, fallback, began);
        reached
    };
    // In parallel, because the runs mostly wait.
    let seen = std::thread::scope(|scope| {
        let one = &one;
        let runs: Vec<_> = (0..points)
            .flat_map(|point| [true, false].map(|fallback| (point, fallback)))
            .map(|(point, fallback)| scope.spawn(move || one(point, fallback)))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(seen.contains(&Reached::Connecting) && seen.contains(&Reached::Reading));
    // Nothing of these clients stays, except sessions that the server has not yet timed out.
    let fresh = run(&server.options(), &sample);
    fresh.1.unwrap();
}

#[test]
fn a_network_that_is_cut_anywhere_leaves_right_bytes_or_a_clear_error() {
    runs_over_networks_that_end(Then::Cut, 40);
}

#[test]
fn a_network_that_stalls_anywhere_leaves_right_bytes_or_a_clear_error() {
    runs_over_networks_that_end(Then::Stall, 16);
}

#[test]
fn a_slow_network_is_waited_for_as_long_as_bytes_come() {
    let server = Server::tcp(Bytes::mib(8));
    let sample = Sample::new(2, 60_000);
    let network = Network { delay: Duration::from_millis(20), ..Network::GOOD };
    let proxy = Proxy::start(&target(&server), network);
    // Longer than the delay of one packet, far shorter than the sum of all delays.
    let options = FarOptions { timeout_s: 1.0, ..through(&proxy, &server, false) };
    let began = Instant::now();
    let (_, outcome) = run(&options, &sample);
    outcome.unwrap();
    assert!(began.elapsed() > options.timeout(), "the time-out was never put to the test");
}

/// When the server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Connecting,
    Allocating,
    Placing,
    Sealing,
    Reading,
    BetweenReads,
}

fn run_with_a_murder(mut server: Server, phase: Phase, fallback: bool, sample: &Sample) {
    let options = FarOptions { fallback, timeout_s: 0.5, ..server.options() };
    let began = Instant::now();
    let what = format!("{}: killed while {phase:?}, fallback {fallback}", options.address);
    let outcome: Result<()> = (|| {
        if phase == Phase::Connecting {
            server.kill();
        }
        let tier = Arc::new(FarTier::connect(&options)?);
        if phase == Phase::Allocating {
            server.kill();
        }
        let mut on_progress = |done: u64, total: u64| {
            let now = phase == Phase::Placing && done > total / 2;
            if now || phase == Phase::Sealing && done == total {
                server.kill();
            }
            Ok(())
        };
        tier.place(&sample.path, &sample.ranges(false), &mut disk(), &mut on_progress)?;
        let mut engine = engine_over(&tier)?;
        if phase == Phase::BetweenReads {
            read_all(&mut engine, &sample.path, &sample.content)?;
            server.kill();
        }
        let file = engine.register(&sample.path)?;
        let reads: Vec<PlannedRead> = (0..sample.len() / 4096)
            .map(|page| PlannedRead { offset: page * 4096, len: 4096 })
            .collect();
        engine.read(file, &reads, &mut |index, bytes| {
            if phase == Phase::Reading {
                server.kill();
            }
            let at = reads[index].offset as usize;
            assert!(bytes == &sample.content[at..at + bytes.len()]);
            Ok::<(), Error>(())
        })?;
        read_all(&mut engine, &sample.path, &sample.content)?;
        if fallback {
            // Shared memory outlives its server, so no read needs to fail over.
            let counters = tier.counters();
            assert!(counters.disk_requests > 0, "{what}: {counters:?}");
        }
        Ok(())
    })();
    assert!(began.elapsed() < PATIENCE, "{what}: took {:?}", began.elapsed());
    if let Err(error) = outcome {
        assert!(!fallback || phase == Phase::Connecting, "{what}: {error}");
        assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}");
        assert!(error.to_string().contains(&options.address.to_string()), "{what}: {error}");
    }
}

#[test]
fn a_server_killed_in_any_phase_leaves_right_bytes_or_a_clear_error() {
    use Phase::*;
    let sample = Sample::new(3, 400_001);
    for phase in [Connecting, Allocating, Placing, Sealing, Reading, BetweenReads] {
        for fallback in [true, false] {
            for start in [Server::tcp, Server::unix] {
                run_with_a_murder(start(Bytes::mib(8)), phase, fallback, &sample);
            }
        }
    }
}

#[test]
fn a_tier_over_a_server_finds_keeps_and_gives_back() {
    let sample = Sample::new(4, 300_001);
    for start in [Server::tcp, Server::unix] {
        let server = start(Bytes::mib(1));
        let connect = || Arc::new(FarTier::connect(&server.options()).unwrap());
        let giver = connect();
        let placed = giver
            .keep(&sample.path, &sample.contents("n"), &mut disk(), &mut |_, _| Ok(()))
            .unwrap();
        assert_eq!(placed.bytes, sample.len());
        drop(giver);
        let taker = connect();
        assert!(taker.find(&sample.path, "n").unwrap());
        read_all(&mut engine_over(&taker).unwrap(), &sample.path, &sample.content).unwrap();
        let counters = taker.counters();
        assert_eq!((counters.disk_requests, counters.lost), (0, None));

        // The remaining memory of the server is too small for another file.
        let other = Sample::new(5, 900_000);
        let placed = common::place(&taker, &other, true).unwrap();
        assert!(placed.bytes > 0 && placed.refused > 0, "{placed:?}");
        read_all(&mut engine_over(&taker).unwrap(), &other.path, &other.content).unwrap();
        let refused = taker
            .keep(&other.path, &other.contents("other"), &mut disk(), &mut |_, _| Ok(()))
            .unwrap();
        assert_eq!((refused.bytes, refused.refused), (0, other.len()));
        drop(taker);
        assert!(!connect().find(&other.path, "other").unwrap());
        assert!(server.used().0 < 400_000, "{}", server.used());
    }
}
