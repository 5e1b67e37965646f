//! Edge lists as text, parsed in blocks on several threads, delivered in order.
//!
//! Understood without being told: SNAP and other blank-separated files, TSV, CSV (comma or
//! semicolon), `#` and `%` comments, a header line, further columns, CRLF, a byte order mark, gzip
//! (also of several members) and zstd by their first bytes, and Matrix Market coordinate files.

mod head;
mod parse;
mod stream;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use outercore_core::{Bytes, Context, Error, Result};

pub(crate) use head::{Head, Position, read_head};
use parse::Counts;
pub(crate) use parse::{Dialect, out_of_range};
pub(crate) use stream::{ByteStream, LineBlocks};

/// How to read a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TextSettings {
    pub dialect: Dialect,
    /// Bytes of a block.
    pub block: usize,
    pub threads: usize,
    /// The memory of the whole import, which bounds a decoder's window.
    pub memory: Bytes,
}

/// The edges of some whole lines.
pub(crate) struct TextBlock<'a> {
    pub edges: &'a [[u64; 2]],
    /// The place behind those lines.
    pub end: Position,
    /// Bytes of the file read so far; runs ahead of `end` by a few blocks.
    pub consumed: u64,
}

/// Hands the edges of `path` from `start` on to `consume`, block by block in the order of the file.
///
/// **Cost** One thread reads and unpacks, `threads` parse; memory as in
/// [`crate::import::Tuning::text_block`].
///
/// # Errors
/// A line that is no edge, named by number; an unreadable or damaged file; whatever `consume`
/// returns.
pub(crate) fn read_text(
    path: &Path,
    start: Position,
    settings: TextSettings,
    consume: &mut dyn FnMut(TextBlock<'_>) -> Result<()>,
) -> Result<()> {
    let stream = ByteStream::open(path, start.offset, settings.memory)?;
    let consumed = stream.consumed();
    // A mirrored edge takes twice the memory.
    let block = if settings.dialect.mirrored { settings.block / 2 } else { settings.block };
    let blocks = LineBlocks::new(stream, block);
    let dialect = settings.dialect;
    std::thread::scope(|scope| {
        // Worker i gets blocks i, i + n, ...: taking turns in the same order restores the file's.
        let (used, unused) = channel();
        let (mut to_workers, mut from_workers) = (Vec::new(), Vec::new());
        for _ in 0..settings.threads {
            let (to_worker, work) = sync_channel(1);
            let (results, from_worker) = sync_channel(1);
            to_workers.push(to_worker);
            from_workers.push(from_worker);
            scope.spawn(move || parse_blocks(work, results, dialect));
        }
        scope.spawn(move || read_blocks(blocks, unused, to_workers));

        let mut position = start;
        for from_worker in from_workers.iter().cycle() {
            let Ok(parsed) = from_worker.recv() else { break };
            let place = || format!("edge list `{}`", path.display());
            let parsed = match parsed {
                Ok(parsed) => parsed,
                Err(Failure::Read(error)) => return Err(error),
                Err(Failure::Parse { line, error }) => {
                    let line = position.lines + line + 1;
                    return Err(error.context(format!("{}: line {line}", place())));
                }
            };
            position.offset += parsed.length;
            position.lines += parsed.counts.lines;
            position.entries += parsed.counts.entries;
            consume(TextBlock {
                edges: &parsed.buffers.edges,
                end: position,
                consumed: consumed.load(Ordering::Relaxed),
            })
            .with_context(|| format!("{}: before line {}", place(), position.lines + 1))?;
            // The reader may be done already.
            let _ = used.send(parsed.buffers);
        }
        Ok(())
    })
}

/// Memory that goes round from the reader over a worker to the consumer and back.
#[derive(Default)]
struct Buffers {
    bytes: Vec<u8>,
    edges: Vec<[u64; 2]>,
}

struct Lines {
    buffers: Buffers,
    length: u64,
}

struct Parsed {
    buffers: Buffers,
    length: u64,
    counts: Counts,
}

enum Failure {
    Read(Error),
    Parse { line: u64, error: Error },
}

/// Ends when the text does, after an error, or when the workers are gone.
fn read_blocks(
    mut blocks: LineBlocks,
    unused: Receiver<Buffers>,
    to_workers: Vec<SyncSender<Result<Lines>>>,
) {
    for to_worker in to_workers.iter().cycle() {
        let mut buffers = unused.try_recv().unwrap_or_default();
        let item = match blocks.next(&mut buffers.bytes) {
            Ok(None) => return,
            Ok(Some(length)) => Ok(Lines { buffers, length }),
            Err(error) => Err(error),
        };
        let failed = item.is_err();
        if to_worker.send(item).is_err() || failed {
            return;
        }
    }
}

fn parse_blocks(
    work: Receiver<Result<Lines>>,
    results: SyncSender<Result<Parsed, Failure>>,
    dialect: Dialect,
) {
    for item in work {
        let result = match item {
            Ok(lines) => parse_block(lines, dialect),
            Err(error) => Err(Failure::Read(error)),
        };
        if results.send(result).is_err() {
            return;
        }
    }
}

fn parse_block(lines: Lines, dialect: Dialect) -> Result<Parsed, Failure> {
    let Lines { mut buffers, length } = lines;
    buffers.edges.clear();
    match parse::parse_lines(&buffers.bytes, dialect, &mut buffers.edges) {
        Ok(counts) => Ok(Parsed { buffers, length, counts }),
        Err(bad) => Err(Failure::Parse { line: bad.line, error: bad.error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: TextSettings =
        TextSettings { dialect: Dialect::PLAIN, block: 256, threads: 2, memory: Bytes::mib(16) };

    fn text(lines: u64) -> (String, Vec<[u64; 2]>) {
        let edges: Vec<[u64; 2]> = (0..lines).map(|i| [i * 31 % 1009, i]).collect();
        let text = edges.iter().map(|[u, v]| format!("{u}\t{v}\n")).collect();
        (text, edges)
    }

    fn write(content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("edges.txt");
        std::fs::write(&path, content).unwrap();
        (directory, path)
    }

    #[test]
    fn blocks_come_in_order_and_every_end_is_a_place_to_go_on_from() {
        let (text, edges) = text(3000);
        let (_directory, path) = write(text.as_bytes());
        for threads in [1, 2, 3] {
            let settings = TextSettings { threads, ..SETTINGS };
            let mut found = Vec::new();
            let mut ends = vec![(0, Position::default())];
            read_text(&path, Position::default(), settings, &mut |block| {
                found.extend_from_slice(block.edges);
                ends.push((found.len(), block.end));
                Ok(())
            })
            .unwrap();
            assert_eq!(found, edges);
            assert_eq!(ends.last().unwrap().1.offset, text.len() as u64);
            for &(count, end) in ends.iter().step_by(7) {
                let mut rest = Vec::new();
                read_text(&path, end, settings, &mut |block| {
                    rest.extend_from_slice(block.edges);
                    Ok(())
                })
                .unwrap();
                assert_eq!(rest, edges[count..]);
            }
        }
    }

    #[test]
    fn a_bad_line_far_down_is_named_by_its_number() {
        let (mut text, _) = text(3000);
        text.push_str("17 -1\n");
        let (_directory, path) = write(text.as_bytes());
        let error = read_text(&path, Position::default(), SETTINGS, &mut |_| Ok(())).unwrap_err();
        let expected = format!("edge list `{}`: line 3001: `17 -1`: node id -1", path.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }

    #[test]
    fn an_error_of_the_consumer_ends_the_reading() {
        let (text, _) = text(3000);
        let (_directory, path) = write(text.as_bytes());
        let mut blocks = 0;
        let error = read_text(&path, Position::default(), SETTINGS, &mut |_| {
            blocks += 1;
            if blocks == 3 { Err(Error::internal("enough")) } else { Ok(()) }
        })
        .unwrap_err();
        assert!(error.to_string().contains("enough"), "{error}");
        assert_eq!(blocks, 3);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error =
            read_text(Path::new("/nowhere/edges.txt"), Position::default(), SETTINGS, &mut |_| {
                Ok(())
            })
            .unwrap_err();
        assert_eq!(error.kind(), outercore_core::ErrorKind::NotFound);
        assert!(error.to_string().contains("/nowhere/edges.txt"), "{error}");
    }
}
