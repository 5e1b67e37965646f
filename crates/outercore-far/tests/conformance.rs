//! Far memory over a disk keeps the contract of `Reader`, for any placed parts of a file.

mod common;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use common::Server;
use outercore_core::{Bytes, Result};
use outercore_far::{Connection, FarOptions, FarTier, Remote};
use outercore_io::{Arena, Backend, Engine, EngineConfig, Reader, Tier};
use outercore_testkit::{HeapRemote, MakeReader, reader_conformance};

/// The part of every file that is placed before it is read.
#[derive(Clone, Copy, Debug)]
enum Share {
    Nothing,
    All,
    EveryOtherPage,
}

struct FarOver {
    tier: FarTier,
    share: Share,
    backend: Backend,
}

impl MakeReader for FarOver {
    fn name(&self) -> String {
        format!("{:?}, {:?}, {}", self.tier, self.share, self.backend)
    }

    fn open(&self, arena: &Arena, depth: usize) -> Result<Box<dyn Reader>> {
        self.tier.over(self.backend.open(depth, arena)?, arena, depth)
    }

    fn written(&self, path: &Path) {
        let len = std::fs::metadata(path).unwrap().len();
        let ranges: Vec<Range<u64>> = match self.share {
            Share::Nothing => return,
            Share::All => std::iter::once(0..len).collect(),
            Share::EveryOtherPage => {
                (0..len).step_by(8192).map(|start| start..len.min(start + 4096)).collect()
            }
        };
        let config = EngineConfig { staging: Bytes::mib(1), ..EngineConfig::default() };
        let mut engine = Engine::open(config).unwrap();
        let placed = self.tier.place(path, &ranges, &mut engine, &mut |_, _| Ok(())).unwrap();
        let wanted: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert_eq!((placed.bytes, placed.refused), (wanted, 0));
    }

    fn copies(&self) -> bool {
        !matches!(self.share, Share::Nothing)
    }
}

/// Runs the suite over a server, for every back end of the disk and every share.
fn conforms(remote: &Arc<dyn Remote>, options: &FarOptions) {
    for share in [Share::Nothing, Share::All, Share::EveryOtherPage] {
        for backend in [Backend::Auto, Backend::Threads, Backend::Mmap] {
            let tier = FarTier::over_remote(Arc::clone(remote), options).unwrap();
            let maker = FarOver { tier, share, backend };
            reader_conformance(&maker, Path::new(env!("CARGO_TARGET_TMPDIR")));
            let counters = maker.tier.counters();
            assert_eq!((counters.failed_over, &counters.lost), (0, &None), "{}", maker.name());
            let far = counters.far_requests > 0;
            assert_eq!(far, !matches!(share, Share::Nothing), "{}", maker.name());
        }
    }
}

#[test]
fn a_server_on_the_heap_keeps_the_contract() {
    for (queues, queue_length) in [(1, 1), (1, 32), (3, 2)] {
        let remote: Arc<dyn Remote> = Arc::new(HeapRemote::new(Bytes::mib(64)));
        conforms(&remote, &FarOptions { queues, queue_length, ..common::options() });
    }
}

#[test]
fn a_server_over_tcp_keeps_the_contract() {
    for (queues, queue_length) in [(1, 32), (3, 2)] {
        let server = Server::tcp(Bytes::mib(64));
        let options = FarOptions { queues, queue_length, ..server.options() };
        conforms(&(Arc::new(Connection::build(&options).unwrap()) as _), &options);
    }
}

#[test]
fn a_server_on_this_host_keeps_the_contract() {
    for (queues, queue_length) in [(1, 32), (3, 2)] {
        let server = Server::unix(Bytes::mib(64));
        let options = FarOptions { queues, queue_length, ..server.options() };
        conforms(&(Arc::new(Connection::build(&options).unwrap()) as _), &options);
    }
}
