//! A memory server at a `fabric://` address, tested from its client up to the I/O engine.

mod common;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{pattern, plane, under_test};
use outercore_core::{Bytes, ErrorKind, Result};
use outercore_fabric::FabricPlane;
use outercore_far::{
    Connection, DataPlane, FarMemory, FarOptions, FarTier, Receive, Region, ServerConfig,
    ServerHandle, Token, serve,
};
use outercore_io::{Arena, Backend, Engine, EngineConfig, Reader, Tier};
use outercore_testkit::{MakeReader, reader_conformance};

/// A running server and its token file.
struct Served {
    plane: FabricPlane,
    server: ServerHandle,
    directory: tempfile::TempDir,
}

fn served() -> Option<Served> {
    let plane = plane()?;
    let directory = tempfile::tempdir().unwrap();
    let token = Token::create_file(&directory.path().join("token")).unwrap();
    let listen = format!("fabric://{}:0", under_test().1).parse().unwrap();
    let mut config = ServerConfig::new(listen, Bytes::mib(64), token);
    config.data_plane = Some(Arc::new(plane.clone()));
    Some(Served { plane, server: serve(config).unwrap(), directory })
}

impl Served {
    fn options(&self) -> FarOptions {
        FarOptions {
            token_file: Some(self.directory.path().join("token")),
            ..FarOptions::new(self.server.addresses()[0].clone())
        }
    }

    fn connect(&self) -> Connection {
        Connection::build_with(&self.options(), Some(&self.plane)).unwrap()
    }

    fn memory(&self) -> FarMemory {
        let plane: Option<&dyn DataPlane> = Some(&self.plane);
        FarMemory::build_connection_with(&self.options(), plane, 2, Receive::Shared).unwrap()
    }
}

fn read(memory: &FarMemory, region: &Region, offset: u64, len: usize) -> Result<Vec<u8>> {
    let ticket = memory.far_read_start(1, region, offset, len)?;
    memory.far_read_complete(1, ticket).map(|lease| lease[..len].to_vec())
}

#[test]
fn what_one_client_writes_and_seals_another_finds_and_reads() {
    let Some(served) = served() else { return };
    let bytes = pattern(3 << 20, 1);
    let writer = served.memory();
    let region = writer.allocate(Bytes(3 << 20), Some("shared")).unwrap();
    writer.far_write_start(0, &region, 0, &bytes[..2 << 20]).unwrap();
    writer.far_write_start(0, &region, 2 << 20, &bytes[2 << 20..]).unwrap();
    writer.far_write_complete(0).unwrap();
    assert!(read(&writer, &region, 0, 1 << 20).unwrap() == bytes[..1 << 20]);
    let reader = served.memory();
    let error = read(&reader, &region, 0, 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    writer.seal(&region, true).unwrap();
    drop(writer);
    let found = reader.find("shared").unwrap().unwrap();
    assert!(read(&reader, &found, 1 << 20, 2 << 20).unwrap() == bytes[1 << 20..]);
    reader.far_write_start(0, &found, 0, &[1; 4096]).unwrap();
    assert_eq!(reader.far_write_complete(0).unwrap_err().kind(), ErrorKind::Io);
    let again = served.memory();
    assert!(read(&again, &found, 0, 4096).unwrap() == bytes[..4096]);
}

#[test]
fn regions_of_a_client_that_leaves_are_free_again() {
    let Some(served) = served() else { return };
    for _ in 0..5 {
        let memory = served.memory();
        let region = memory.allocate(Bytes::mib(48), None).unwrap();
        memory.far_write_start(0, &region, 0, &[7; 100_000]).unwrap();
        memory.far_write_complete(0).unwrap();
        assert_eq!(memory.status().unwrap().used, Bytes::mib(48));
        drop(memory);
        // The next round may only begin after the server has noticed the end of this one.
        wait_for(|| served.server.status().used == Bytes(0));
    }
}

/// Waits for a condition that gives no other signal.
fn wait_for(condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("it never came");
}

#[test]
fn a_client_without_a_plane_is_told_so() {
    let Some(served) = served() else { return };
    let error = Connection::build(&served.options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

/// The part of every file that is placed before it is read.
#[derive(Clone, Copy, Debug)]
enum Share {
    All,
    EveryOtherPage,
}

struct OverFabric {
    tier: FarTier,
    share: Share,
}

impl MakeReader for OverFabric {
    fn name(&self) -> String {
        format!("{:?}, {:?}", self.tier, self.share)
    }

    fn open(&self, arena: &Arena, depth: usize) -> Result<Box<dyn Reader>> {
        self.tier.over(Backend::Threads.open(depth, arena)?, arena, depth)
    }

    fn written(&self, path: &Path) {
        let len = std::fs::metadata(path).unwrap().len();
        let ranges: Vec<Range<u64>> = match self.share {
            Share::All => std::iter::once(0..len).collect(),
            Share::EveryOtherPage => {
                (0..len).step_by(8192).map(|start| start..len.min(start + 4096)).collect()
            }
        };
        let mut engine = Engine::open(EngineConfig::default()).unwrap();
        self.tier.place(path, &ranges, &mut engine, &mut |_, _| Ok(())).unwrap();
    }

    fn copies(&self) -> bool {
        true
    }
}

#[test]
fn a_reader_over_the_fabric_keeps_the_contract() {
    let Some(served) = served() else { return };
    for share in [Share::All, Share::EveryOtherPage] {
        for (queues, queue_length) in [(1, 32), (3, 2)] {
            let options = FarOptions { queues, queue_length, ..served.options() };
            let tier = FarTier::over_remote(Arc::new(served.connect()), &options).unwrap();
            let maker = OverFabric { tier, share };
            reader_conformance(&maker, Path::new(env!("CARGO_TARGET_TMPDIR")));
            let counters = maker.tier.counters();
            assert_eq!((counters.failed_over, &counters.lost), (0, &None), "{}", maker.name());
            assert!(counters.far_requests > 0, "{}", maker.name());
        }
    }
}

#[test]
fn a_server_that_stops_amid_reads_is_done_without() {
    let Some(served) = served() else { return };
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("file");
    let bytes = pattern(4 << 20, 3);
    std::fs::write(&path, &bytes).unwrap();
    let tier =
        Arc::new(FarTier::over_remote(Arc::new(served.connect()), &served.options()).unwrap());
    let mut disk = Engine::open(EngineConfig::default()).unwrap();
    let everything = std::iter::once(0..4 << 20).collect::<Vec<_>>();
    tier.place(&path, &everything, &mut disk, &mut |_, _| Ok(())).unwrap();
    let config =
        EngineConfig { tier: Some(Arc::<FarTier>::clone(&tier)), ..EngineConfig::default() };
    let mut engine = Engine::open(config).unwrap();
    let file = engine.register(&path).unwrap();
    let mut stop = Some(served);
    for round in 0..8usize {
        for piece in 0..16usize {
            let at = (piece * (256 << 10) + round * 1000) % (4 << 20);
            let len = (256 << 10).min(bytes.len() - at);
            let mut out = vec![0; len];
            engine.read_into(file, at as u64, &mut out).unwrap();
            assert!(out == bytes[at..at + len], "round {round}, piece {piece}");
            if round == 2 && piece == 3 {
                drop(stop.take());
            }
        }
    }
    assert!(!tier.is_alive());
    let counters = tier.counters();
    assert!(counters.far_requests > 0 && counters.disk_requests > 0, "{counters:?}");
}
