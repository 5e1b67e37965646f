//! Shared helpers for the tests of far memory.
#![allow(dead_code, reason = "every test binary uses its own part")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outercore_core::{Bytes, Result, Stream};
use outercore_far::{
    Contents, FarAddress, FarOptions, FarTier, ServerConfig, ServerHandle, Token, serve,
};
use outercore_format::Checksum;
use outercore_io::{Engine, EngineConfig, PlannedRead, Tier};

/// Options with short chunks, so that small files have several chunks.
pub fn options() -> FarOptions {
    let address = "127.0.0.1:1".parse().unwrap();
    FarOptions { chunk: Bytes::kib(16), ..FarOptions::new(address) }
}

/// A file of random bytes in a new directory.
pub struct Sample {
    pub directory: tempfile::TempDir,
    pub path: PathBuf,
    pub content: Vec<u8>,
    checksum: String,
}

/// Bytes of a sample that its checksum does not cover.
pub const HEADER: u64 = 128;

impl Sample {
    pub fn new(seed: u64, len: usize) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("sample");
        let mut draws = Stream::new(seed, 0).uniform(0, 0, 0);
        let content: Vec<u8> = (0..len).map(|_| draws.below(256) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let data = content.get(HEADER as usize..).unwrap_or_default();
        let checksum = Checksum::of(data);
        Self { directory, path, content, checksum }
    }

    /// Its content under a name.
    pub fn contents<'a>(&'a self, name: &'a str) -> Contents<'a> {
        Contents { name, checksum: &self.checksum, data: HEADER..self.len() }
    }

    pub fn len(&self) -> u64 {
        self.content.len() as u64
    }

    /// The whole file, or every second pair of pages.
    pub fn ranges(&self, all: bool) -> Vec<Range<u64>> {
        if all {
            return std::iter::once(0..self.len()).collect();
        }
        let len = self.len();
        (0..len).step_by(16_384).map(|start| start..len.min(start + 8192)).collect()
    }
}

pub fn disk() -> Engine {
    Engine::open(config()).unwrap()
}

fn config() -> EngineConfig {
    EngineConfig { staging: Bytes::kib(512), depth: 16, ..EngineConfig::default() }
}

pub fn engine_over(tier: &Arc<FarTier>) -> Result<Engine> {
    let tier = Arc::clone(tier) as Arc<dyn Tier>;
    Engine::open(EngineConfig { tier: Some(tier), ..config() })
}

/// Reads a whole file, first by pages and then in long pieces, and compares it.
///
/// # Panics
/// If a byte is wrong.
pub fn read_all(engine: &mut Engine, path: &Path, content: &[u8]) -> Result<()> {
    let file = engine.register(path)?;
    for piece in [4096, 40_000] {
        let reads: Vec<PlannedRead> = (0..content.len())
            .step_by(piece)
            .map(|start| PlannedRead {
                offset: start as u64,
                len: piece.min(content.len() - start) as u32,
            })
            .collect();
        let mut seen = vec![false; reads.len()];
        engine.read(file, &reads, &mut |index, bytes| {
            let read = reads[index];
            assert!(bytes == &content[read.offset as usize..read.end() as usize], "{read:?}");
            assert!(!std::mem::replace(&mut seen[index], true));
            Ok(())
        })?;
        assert!(seen.into_iter().all(|seen| seen));
    }
    Ok(())
}

pub fn place(tier: &FarTier, sample: &Sample, all: bool) -> Result<outercore_far::Placed> {
    tier.place(&sample.path, &sample.ranges(all), &mut disk(), &mut |_, _| Ok(()))
}

/// A memory server in this process, with its token.
pub struct Server {
    directory: tempfile::TempDir,
    handle: Option<ServerHandle>,
    address: FarAddress,
}

impl Server {
    pub fn tcp(size: Bytes) -> Self {
        Self::start(|_| "127.0.0.1:0".to_owned(), size)
    }

    pub fn unix(size: Bytes) -> Self {
        Self::start(|directory| format!("unix:{}", directory.join("s").display()), size)
    }

    fn start(listen: impl Fn(&Path) -> String, size: Bytes) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let token = Token::create_file(&directory.path().join("token")).unwrap();
        let listen = listen(directory.path()).parse().unwrap();
        let handle = serve(ServerConfig::new(listen, size, token)).unwrap();
        let address = handle.addresses()[0].clone();
        Self { directory, handle: Some(handle), address }
    }

    pub fn options(&self) -> FarOptions {
        let token_file = Some(self.directory.path().join("token"));
        FarOptions { address: self.address.clone(), token_file, ..options() }
    }

    pub fn used(&self) -> Bytes {
        self.handle.as_ref().unwrap().status().used
    }

    /// Stops the server and cuts its connections.
    pub fn kill(&mut self) {
        if let Some(handle) = self.handle.take() {
            handle.stop();
        }
    }
}
