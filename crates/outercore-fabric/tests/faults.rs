//! Servers that disconnect, die or hang: every transfer arrives, if necessary with an error.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Bench, Server, TIMEOUT, address, client, pattern, plane};
use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_fabric::FabricPlane;
use outercore_far::{Access, Arrivals, DataPlane, PlaneClient, PlaneControl, Region, RegionKey};

/// Length of the region that the other process serves.
const LEN: usize = 8 << 20;

/// Short enough for a test to wait, long enough for a busy machine.
const SHORT: Duration = Duration::from_secs(2);

const ASKED: &str = "OUTERCORE_FABRIC_TEST_SERVES";

/// The other process: runs this program, which answers one line at a time.
#[test]
#[ignore = "runs in a process of its own, started by the tests below"]
fn serve_for_another_process() {
    if std::env::var_os(ASKED).is_none() {
        return;
    }
    let server = Server::start(&plane().unwrap());
    let region = server.put(1, &pattern(LEN, 1), Access::Read);
    for line in std::io::stdin().lines() {
        let answer = match line.unwrap().as_str() {
            "offer" => server.listener.offer(1).unwrap(),
            _ => server.grant(1, region.key).unwrap(),
        };
        let hex: String = answer.iter().map(|byte| format!("{byte:02x}")).collect();
        println!("\nanswer {hex}");
    }
}

/// A server in a separate process, killed when dropped.
#[derive(Debug)]
struct Other {
    child: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Other {
    fn start() -> Arc<Self> {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve_for_another_process", "--ignored", "--nocapture"])
            .env(ASKED, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pipes = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Arc::new(Self { child, pipes: Mutex::new(pipes) })
    }

    fn ask(&self, what: &str) -> Result<Vec<u8>> {
        let gone = || Error::new(ErrorKind::Io, "the control connection was closed");
        let mut pipes = self.pipes.lock().unwrap();
        writeln!(pipes.0, "{what}").map_err(|_| gone())?;
        loop {
            let mut line = String::new();
            if pipes.1.read_line(&mut line).unwrap() == 0 {
                return Err(gone());
            }
            if let Some(hex) = line.trim_end().strip_prefix("answer ") {
                let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
                return Ok((0..hex.len()).step_by(2).map(byte).collect());
            }
        }
    }

    fn signal(&self, signal: i32) {
        let id = i32::try_from(self.child.id()).unwrap();
        // SAFETY: the child was not waited for, so the process id still belongs to it.
        let result = unsafe { libc::kill(id, signal) };
        assert_eq!(result, 0);
    }

    /// Stops every thread of the server; returns once all have stopped.
    fn stand_still(&self) {
        self.signal(libc::SIGSTOP);
        let id = i32::try_from(self.child.id()).unwrap();
        // SAFETY: our own child; the status is not requested.
        let waited = unsafe { libc::waitpid(id, std::ptr::null_mut(), libc::WUNTRACED) };
        assert_eq!(waited, id);
    }

    fn client(self: &Arc<Self>, plane: &FabricPlane, timeout: Duration) -> Box<dyn PlaneClient> {
        let control = Arc::new(Pipe(Arc::clone(self)));
        plane.connect(&address(), timeout, control).unwrap()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug)]
struct Pipe(Arc<Other>);

impl PlaneControl for Pipe {
    fn offer(&self) -> Result<Vec<u8>> {
        self.0.ask("offer")
    }

    fn grant(&self, _: RegionKey) -> Result<Vec<u8>> {
        self.0.ask("grant")
    }
}

const REGION: Region = Region { key: RegionKey(1), len: Bytes(LEN as u64) };

/// Starts sixteen reads of 256 KiB, more than the queue accepts at once.
fn start_reads(bench: &mut Bench) {
    for tag in 0..16 {
        bench.read_start(tag, REGION, (tag * 256) << 10, 256 << 10);
    }
}

#[test]
fn a_server_in_another_process_is_read() {
    let Some(plane) = plane() else { return };
    let other = Other::start();
    let client = other.client(&plane, TIMEOUT);
    let mut bench = Bench::open(&*client, 8, 64 << 10);
    assert!(bench.read(REGION, 0, 4 << 20).unwrap() == pattern(LEN, 1)[..4 << 20]);
}

#[test]
fn a_killed_server_ends_every_transfer_well_within_the_time_out() {
    let Some(plane) = plane() else { return };
    let other = Other::start();
    let client = other.client(&plane, TIMEOUT);
    let mut bench = Bench::open(&*client, 8, 64 << 10);
    bench.read(REGION, 0, 1).unwrap();
    other.stand_still();
    start_reads(&mut bench);
    let begun = Instant::now();
    other.signal(libc::SIGKILL);
    let mut failed = 0;
    for transferred in bench.wait(16) {
        if let Err(error) = transferred.result {
            assert_eq!(error.kind(), ErrorKind::Io);
            assert!(error.to_string().contains("memory server fabric://"), "{error}");
            assert!(!error.to_string().contains("no answer"), "{error}");
            failed += 1;
        }
    }
    assert!(failed > 0 && begun.elapsed() < TIMEOUT, "{failed} failed");
    assert_eq!(bench.read(REGION, 0, 1).unwrap_err().kind(), ErrorKind::Io);
    let error = client.open_queue(1, Bytes(4096), &Arrivals::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
}

#[test]
fn a_server_killed_amid_reads_yields_right_bytes_or_errors() {
    let Some(plane) = plane() else { return };
    let bytes = pattern(LEN, 1);
    for arrived in [0, 1, 2, 7, 15] {
        let other = Other::start();
        let client = other.client(&plane, TIMEOUT);
        let mut bench = Bench::open(&*client, 8, 16 << 10);
        bench.read(REGION, 0, 1).unwrap();
        start_reads(&mut bench);
        let mut done = Vec::new();
        bench.arrivals.take(arrived, TIMEOUT, &mut done);
        other.signal(libc::SIGKILL);
        done.extend(bench.wait(16 - done.len()));
        for transferred in done {
            let at = (transferred.tag as usize * 256) << 10;
            match transferred.result {
                Ok(()) => assert!(transferred.lease[..] == bytes[at..][..256 << 10]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Io),
            }
        }
    }
}

#[test]
fn a_server_that_stands_still_is_given_up_after_the_time_out() {
    let Some(plane) = plane() else { return };
    let other = Other::start();
    let client = other.client(&plane, SHORT);
    let mut bench = Bench::open(&*client, 8, 64 << 10);
    bench.read(REGION, 0, 1).unwrap();
    other.stand_still();
    start_reads(&mut bench);
    for transferred in bench.wait(16) {
        let error = transferred.result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("no answer for 2 s"), "{error}");
    }
    // Later transfers fail at once.
    let begun = Instant::now();
    bench.read(REGION, 0, 1).unwrap_err();
    assert!(begun.elapsed() < SHORT);
}

/// Uses an offer that was made earlier.
#[derive(Debug)]
struct Prepared(Vec<u8>);

impl PlaneControl for Prepared {
    fn offer(&self) -> Result<Vec<u8>> {
        Ok(self.0.clone())
    }

    fn grant(&self, _: RegionKey) -> Result<Vec<u8>> {
        Err(Error::new(ErrorKind::Io, "gone"))
    }
}

#[test]
fn connecting_to_a_server_that_stands_still_or_is_gone_ends_in_an_error() {
    let Some(plane) = plane() else { return };
    for stop in [Other::stand_still, |other: &Other| other.signal(libc::SIGKILL)] {
        let other = Other::start();
        let prepared = Arc::new(Prepared(other.ask("offer").unwrap()));
        stop(&other);
        let client = plane.connect(&address(), SHORT, prepared).unwrap();
        let error = client.open_queue(1, Bytes(4096), &Arrivals::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(error.to_string().contains("memory server fabric://"), "{error}");
    }
}

#[test]
fn a_dropped_queue_hands_its_leases_back_and_writes_to_them_no_more() {
    let Some(plane) = plane() else { return };
    let other = Other::start();
    let client = other.client(&plane, TIMEOUT);
    let mut bench = Bench::open(&*client, 8, 64 << 10);
    bench.read(REGION, 0, 1).unwrap();
    other.stand_still();
    start_reads(&mut bench);
    drop(bench.queue.take());
    let mut back = bench.wait(16);
    for transferred in &mut back {
        assert!(transferred.result.is_err());
        transferred.lease.fill(0xab);
    }
    other.signal(libc::SIGCONT);
    // After a read through another queue, the server is certainly running again.
    let mut next = Bench::open(&*client, 8, 64 << 10);
    assert!(next.read(REGION, 0, 1 << 20).unwrap() == pattern(LEN, 1)[..1 << 20]);
    for transferred in &back {
        assert!(transferred.lease.iter().all(|&byte| byte == 0xab));
    }
}

#[test]
fn a_session_that_ends_closes_its_queues_and_no_others() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let region = server.put(1, &pattern(LEN, 1), Access::Read);
    let clients = [client(&plane, &server, 1), client(&plane, &server, 2)];
    let mut benches = clients.each_ref().map(|client| Bench::open(&**client, 8, 64 << 10));
    for bench in &mut benches {
        bench.read(region, 0, 1).unwrap();
    }
    start_reads(&mut benches[0]);
    server.listener.session_ended(1);
    let arrived = benches[0].wait(16);
    let errors = arrived.iter().filter_map(|transferred| transferred.result.as_ref().err());
    assert!(errors.into_iter().all(|error| error.kind() == ErrorKind::Io));
    assert_eq!(benches[0].read(region, 0, 1).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(benches[1].read(region, 9, 100).unwrap(), pattern(LEN, 1)[9..109]);
}

#[test]
fn a_listener_that_is_dropped_amid_writes_ends_them_all() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let region = server.put(1, &[0; LEN], Access::ReadWrite);
    let control = Arc::new(Prepared(server.listener.offer(1).unwrap()));
    let mut bench = {
        // This client does not keep the server alive.
        #[derive(Debug)]
        struct Given(Arc<Prepared>, std::sync::Weak<Server>);
        impl PlaneControl for Given {
            fn offer(&self) -> Result<Vec<u8>> {
                self.0.offer()
            }
            fn grant(&self, key: RegionKey) -> Result<Vec<u8>> {
                let gone = || Error::new(ErrorKind::Io, "gone");
                self.1.upgrade().ok_or_else(gone)?.grant(1, key)
            }
        }
        let control = Arc::new(Given(control, Arc::downgrade(&server)));
        let client = plane.connect(&address(), TIMEOUT, control).unwrap();
        Bench::open(&*client, 8, 64 << 10)
    };
    bench.write(region, 0, &[1; 100]).unwrap();
    for tag in 0..16 {
        bench.write_start(tag, region, (tag * 256) << 10, &[tag as u8; 256 << 10]);
    }
    drop(server);
    for transferred in bench.wait(16) {
        if let Err(error) = transferred.result {
            assert_eq!(error.kind(), ErrorKind::Io);
        }
    }
    assert_eq!(bench.write(region, 0, &[1; 100]).unwrap_err().kind(), ErrorKind::Io);
}

#[test]
fn regions_withdrawn_amid_transfers_harm_neither_the_server_nor_the_others() {
    let Some(plane) = plane() else { return };
    let server = Server::start(&plane);
    let stays = server.put(100, &pattern(50_000, 2), Access::Read);
    let other = client(&plane, &server, 2);
    let mut calm = Bench::open(&*other, 4, 4096);
    for round in 0..30 {
        let client = client(&plane, &server, 1);
        let region = server.put(1, &pattern(LEN, 1), Access::ReadWrite);
        let mut bench = Bench::open(&*client, 8, 64 << 10);
        bench.read(region, 0, 1).unwrap();
        for tag in 0..16 {
            match (tag + round) % 2 {
                0 => bench.read_start(tag, region, (tag * 256) << 10, 256 << 10),
                _ => bench.write_start(tag, region, (tag * 256) << 10, &[7; 256 << 10]),
            }
        }
        server.free(region);
        for transferred in bench.wait(16) {
            if let Err(error) = transferred.result {
                assert_eq!(error.kind(), ErrorKind::Io, "round {round}");
            }
        }
        assert_eq!(calm.read(stays, 0, 50_000).unwrap(), pattern(50_000, 2));
    }
}
