//! Edges of a text, parsed in blocks on several threads and delivered in order.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};

use outercore_core::{Bytes, Context, Error, Result};

use crate::dialect::Position;
use crate::layout::EdgeLayout;
use crate::notation::Mirror;
use crate::parse::{self, Counts};
use crate::stream::{ByteStream, LineBlocks};

/// Resources for reading edges.
#[derive(Clone, Copy, Debug)]
pub struct EdgeSettings {
    /// Bytes of a block.
    pub block: usize,
    /// Number of threads that parse.
    pub threads: usize,
    /// Memory of the whole import, which limits the window of a decompressor.
    pub memory: Bytes,
}

/// The edges of several whole lines.
#[derive(Debug)]
pub struct EdgeBlock<'a> {
    /// Source and target, from 0.
    pub edges: &'a [[u64; 2]],
    /// The position after these lines.
    pub end: Position,
    /// Comment lines among them.
    pub comments: u64,
    /// Number of these lines that repeat the header.
    pub repeated_headers: u64,
    /// Number of ids in them with leading zeros, such as `007`.
    pub padded_ids: u64,
    /// Bytes of the file read so far; a few blocks ahead of `end`.
    pub consumed: u64,
}

/// Passes the edges of `path`, starting at `start`, to `consume` in blocks, in the order of the
/// file.
///
/// **Cost** One thread reads and decompresses, `threads` parse; memory for `2 threads + 2` blocks.
///
/// # Errors
/// A line that is not an edge, with its number; an unreadable or damaged file; errors of `consume`.
pub fn read_edges(
    path: &Path,
    start: Position,
    layout: &EdgeLayout,
    settings: EdgeSettings,
    consume: &mut dyn FnMut(EdgeBlock<'_>) -> Result<()>,
) -> Result<()> {
    let stream = ByteStream::open("edge list", path, start.offset, settings.memory)?;
    let consumed = stream.consumed();
    // A mirrored edge takes twice the memory.
    let mirrored = layout.mirrored && layout.dialect.mirror() != Mirror::No;
    let block = if mirrored { settings.block / 2 } else { settings.block };
    let blocks = LineBlocks::new(stream, block);
    let layout = Arc::new(layout.clone());
    std::thread::scope(|scope| {
        // Worker i gets the blocks i, i + n, ... Receiving in the same order restores the order of
        // the file.
        let (used, unused) = channel();
        let (mut to_workers, mut from_workers) = (Vec::new(), Vec::new());
        for _ in 0..settings.threads {
            let (to_worker, work) = sync_channel(1);
            let (results, from_worker) = sync_channel(1);
            to_workers.push(to_worker);
            from_workers.push(from_worker);
            let layout = Arc::clone(&layout);
            scope.spawn(move || parse_blocks(work, results, &layout));
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
            consume(EdgeBlock {
                edges: &parsed.buffers.edges,
                end: position,
                comments: parsed.counts.comments,
                repeated_headers: parsed.counts.repeated_headers,
                padded_ids: parsed.counts.padded_ids,
                consumed: consumed.load(Ordering::Relaxed),
            })
            .with_context(|| format!("{}: before line {}", place(), position.lines + 1))?;
            // The reader may already have ended.
            let _ = used.send(parsed.buffers);
        }
        Ok(())
    })
}

/// Memory that circulates from the reader to a worker, to the consumer and back.
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

/// Reads until the end of the text, an error, or the end of the workers.
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
    layout: &EdgeLayout,
) {
    for item in work {
        let result = match item {
            Ok(lines) => parse_block(lines, layout),
            Err(error) => Err(Failure::Read(error)),
        };
        if results.send(result).is_err() {
            return;
        }
    }
}

fn parse_block(lines: Lines, layout: &EdgeLayout) -> Result<Parsed, Failure> {
    let Lines { mut buffers, length } = lines;
    buffers.edges.clear();
    match parse::parse_lines(&buffers.bytes, layout, &mut buffers.edges) {
        Ok(counts) => Ok(Parsed { buffers, length, counts }),
        Err(bad) => Err(Failure::Parse { line: bad.line, error: bad.error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;

    use crate::notation::Separator;

    const SETTINGS: EdgeSettings = EdgeSettings { block: 256, threads: 2, memory: Bytes::mib(16) };

    fn layout() -> EdgeLayout {
        EdgeLayout::new(Dialect::plain(Separator::Tab, 2))
    }

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
            let settings = EdgeSettings { threads, ..SETTINGS };
            let mut found = Vec::new();
            let mut ends = vec![(0, Position::default())];
            read_edges(&path, Position::default(), &layout(), settings, &mut |block| {
                found.extend_from_slice(block.edges);
                ends.push((found.len(), block.end));
                Ok(())
            })
            .unwrap();
            assert_eq!(found, edges);
            assert_eq!(ends.last().unwrap().1.offset, text.len() as u64);
            for &(count, end) in ends.iter().step_by(7) {
                let mut rest = Vec::new();
                read_edges(&path, end, &layout(), settings, &mut |block| {
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
        text.push_str("17\t-1\n");
        let (_directory, path) = write(text.as_bytes());
        let error = read_edges(&path, Position::default(), &layout(), SETTINGS, &mut |_| Ok(()))
            .unwrap_err();
        let expected = format!("edge list `{}`: line 3001: `17\\t-1`: node id -1", path.display());
        assert!(error.to_string().starts_with(&expected), "{error}");
    }

    #[test]
    fn an_error_of_the_consumer_ends_the_reading() {
        let (text, _) = text(3000);
        let (_directory, path) = write(text.as_bytes());
        let mut blocks = 0;
        let error = read_edges(&path, Position::default(), &layout(), SETTINGS, &mut |_| {
            blocks += 1;
            if blocks == 3 { Err(Error::internal("enough")) } else { Ok(()) }
        })
        .unwrap_err();
        assert!(error.to_string().contains("enough"), "{error}");
        assert_eq!(blocks, 3);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read_edges(
            Path::new("/nowhere/edges.txt"),
            Position::default(),
            &layout(),
            SETTINGS,
            &mut |_| Ok(()),
        )
        .unwrap_err();
        assert_eq!(error.kind(), outercore_core::ErrorKind::NotFound);
        assert!(error.to_string().contains("/nowhere/edges.txt"), "{error}");
    }
}
