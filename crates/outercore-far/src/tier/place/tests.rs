//! Files with several parts, some of which are already on the server.

use std::sync::Arc;

use outercore_io::EngineConfig;

use super::*;
use crate::options::FarOptions;
use crate::{Connection, FarTier, ServerConfig, Token, serve};

const LEN: usize = 300_001;
const DATA: u64 = 100;

/// The parts of a file, with an overlap.
fn parts() -> Vec<(String, Range<u64>)> {
    let pieces = placement::cut(&(0..LEN as u64), 128 << 10, 8 << 10);
    assert_eq!(pieces.len(), 3);
    pieces.into_iter().enumerate().map(|(part, range)| (format!("part {part}"), range)).collect()
}

#[test]
fn parts_that_an_earlier_attempt_has_left_are_not_sent_again() {
    let directory = tempfile::tempdir().unwrap();
    let token_file = directory.path().join("token");
    let token = Token::create_file(&token_file).unwrap();
    let listen = format!("unix:{}", directory.path().join("s").display()).parse().unwrap();
    let server = serve(ServerConfig::new(listen, Bytes::mib(1), token)).unwrap();
    let options = FarOptions {
        token_file: Some(token_file),
        chunk: Bytes(4096),
        ..FarOptions::new(server.addresses()[0].clone())
    };
    let path = directory.path().join("file");
    let content: Vec<u8> =
        (0..LEN as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let source = Source { path: &path, stamp: Stamp::of(&path).unwrap() };
    let mut engine = Engine::open(EngineConfig::default()).unwrap();
    let mut copy = |parts: &[(String, Range<u64>)], data: Range<u64>, checksum: &str| {
        let remote = Arc::new(Connection::build(&options).unwrap());
        let tier = FarTier::over_remote(remote, &options).unwrap();
        let contents = Contents { name: "file", checksum, data };
        let on_progress: OnProgress<'_> = &mut |_, _| Ok(());
        copy_whole(tier.shared(), source, parts, &contents, &mut engine, on_progress)
            .map_err(|failure| failure.error)
    };

    // The parts that a client leaves if it dies between two seals.
    let whole = parts();
    let second = whole[1].1.clone();
    let of_second = Checksum::of(&content[second.start as usize..second.end as usize]);
    let (_, sent) = copy(&whole[1..2], second, &of_second).unwrap();
    let used = server.status().used;
    assert_eq!(sent, 128 << 10);

    let error = copy(&whole, DATA..LEN as u64, &of_second).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(server.status().used, used, "what was there stays, what is new goes");

    let checksum = Checksum::of(&content[DATA as usize..]);
    let (extents, sent) = copy(&whole, DATA..LEN as u64, &checksum).unwrap();
    let total: u64 = whole.iter().map(|(_, range)| range.end - range.start).sum();
    assert_eq!(sent, total - (128 << 10));
    assert!(extents.iter().map(|extent| &extent.range).eq(whole.iter().map(|(_, range)| range)));
    let (_, sent) = copy(&whole, DATA..LEN as u64, &checksum).unwrap();
    assert_eq!(sent, 0);
}
