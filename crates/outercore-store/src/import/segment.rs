use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, sync_channel};

use outercore_core::{Context, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::options::MAX_NODES;

/// Storage type of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Integer {
    I32,
    I64,
    U32,
    U64,
}

impl Integer {
    pub const fn size(self) -> usize {
        match self {
            Self::I32 | Self::U32 => 4,
            Self::I64 | Self::U64 => 8,
        }
    }
}

/// Location of the two ids of an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layout {
    /// Source and target next to each other, edge after edge.
    Pairs { path: PathBuf, offset: u64 },
    /// All sources at one location, all targets at another.
    Columns { sources: (PathBuf, u64), targets: (PathBuf, u64) },
}

/// Consecutive input edges in binary form: a part of the spill file, or a `.npy` file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub layout: Layout,
    pub integer: Integer,
    pub edges: u64,
}

impl Segment {
    /// Bytes of its edges.
    pub fn bytes(&self) -> u64 {
        self.edges * 2 * self.integer.size() as u64
    }

    /// The file that messages name.
    fn path(&self) -> &Path {
        match &self.layout {
            Layout::Pairs { path, .. } | Layout::Columns { sources: (path, _), .. } => path,
        }
    }

    fn open(&self) -> Result<SegmentReader<'_>> {
        let open = |path: &Path| {
            File::open(path).with_context(|| format!("edge array `{}`", path.display()))
        };
        let files = match &self.layout {
            Layout::Pairs { path, .. } => [Some(open(path)?), None],
            Layout::Columns { sources, targets } => {
                [Some(open(&sources.0)?), Some(open(&targets.0)?)]
            }
        };
        Ok(SegmentReader { segment: self, files, bytes: Vec::new() })
    }
}

struct SegmentReader<'a> {
    segment: &'a Segment,
    files: [Option<File>; 2],
    bytes: Vec<u8>,
}

impl SegmentReader<'_> {
    /// Replaces `edges` by `count` edges, starting at `row`.
    fn read(&mut self, row: u64, count: usize, edges: &mut Vec<[u64; 2]>) -> Result<()> {
        let size = self.segment.integer.size();
        self.bytes.resize(2 * size * count, 0);
        match &self.segment.layout {
            Layout::Pairs { path, offset } => {
                let from = offset + row * 2 * size as u64;
                read_exact(self.files[0].as_ref(), path, from, &mut self.bytes)?;
            }
            Layout::Columns { sources, targets } => {
                let (left, right) = self.bytes.split_at_mut(size * count);
                let skipped = row * size as u64;
                read_exact(self.files[0].as_ref(), &sources.0, sources.1 + skipped, left)?;
                read_exact(self.files[1].as_ref(), &targets.0, targets.1 + skipped, right)?;
            }
        }
        edges.clear();
        let columns = matches!(self.segment.layout, Layout::Columns { .. });
        // As unsigned numbers, negative ids exceed every allowed id, so one comparison finds both
        // faults.
        match self.segment.integer {
            Integer::I32 => {
                decode(&self.bytes, columns, edges, |b| i64::from(i32::from_le_bytes(b)) as u64)
            }
            Integer::U32 => {
                decode(&self.bytes, columns, edges, |b| u64::from(u32::from_le_bytes(b)))
            }
            Integer::I64 => decode(&self.bytes, columns, edges, |b| i64::from_le_bytes(b) as u64),
            Integer::U64 => decode(&self.bytes, columns, edges, u64::from_le_bytes),
        }
        let largest = edges.iter().fold(0, |largest, [u, v]| largest.max(*u).max(*v));
        if largest < MAX_NODES { Ok(()) } else { Err(self.bad_id(row, edges)) }
    }

    #[cold]
    fn bad_id(&self, row: u64, edges: &[[u64; 2]]) -> Error {
        let found =
            edges.iter().enumerate().flat_map(|(i, edge)| edge.iter().map(move |id| (i, *id)));
        let (i, id) =
            found.max_by_key(|&(i, id)| (id >= MAX_NODES, usize::MAX - i)).unwrap_or((0, 0));
        let place =
            format!("edge array `{}`: row {}", self.segment.path().display(), row + i as u64);
        let signed = matches!(self.segment.integer, Integer::I32 | Integer::I64);
        Error::invalid(if signed {
            format!("{place}: node id {} is negative, expected 0 or more", id as i64)
        } else {
            format!("{place}: node id {id} is too large, expected less than 2^63")
        })
    }
}

/// Appends the edges in `bytes`; `N` is the size of an id.
#[inline(always)]
fn decode<const N: usize>(
    bytes: &[u8],
    columns: bool,
    edges: &mut Vec<[u64; 2]>,
    id: impl Fn([u8; N]) -> u64,
) {
    let (ids, _) = bytes.as_chunks::<N>();
    if columns {
        let (sources, targets) = ids.split_at(ids.len() / 2);
        edges.extend(sources.iter().zip(targets).map(|(&u, &v)| [id(u), id(v)]));
    } else {
        edges.extend(ids.as_chunks::<2>().0.iter().map(|&[u, v]| [id(u), id(v)]));
    }
}

fn read_exact(file: Option<&File>, path: &Path, offset: u64, bytes: &mut [u8]) -> Result<()> {
    let file = file.ok_or_else(|| Error::internal("edge segment without a file"))?;
    file.read_exact_at(bytes, offset).map_err(|source| {
        let error = match source.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::new(
                ErrorKind::Corrupt,
                format!("file ends before byte {}", offset + bytes.len() as u64),
            )
            .hint("the copy was cut short, or the file was changed during the import"),
            _ => Error::from(source),
        };
        error.context(format!("edge array `{}`: {} bytes at {offset}", path.display(), bytes.len()))
    })
}

/// Callback with the number of the first edge and a block of edges.
pub(crate) type TakeEdges<'a> = &'a mut dyn FnMut(u64, &[[u64; 2]]) -> Result<()>;

/// Passes the edges of `segments`, starting at edge `start`, to `consume` in blocks of at most
/// `block`, with the number of the first edge. A second thread reads ahead.
///
/// # Errors
/// A failed or short read; a negative or too large id, with its file and row; errors of `consume`.
pub(crate) fn read_segments(
    segments: &[Segment],
    start: u64,
    block: usize,
    consume: TakeEdges<'_>,
) -> Result<()> {
    std::thread::scope(|scope| {
        let (full, blocks) = sync_channel(2);
        let (empty, unused) = channel::<Vec<[u64; 2]>>();
        scope.spawn(move || {
            let mut first = 0;
            for segment in segments {
                let skip = start.saturating_sub(first).min(segment.edges);
                let mut rows = (skip..segment.edges).step_by(block);
                let mut reader = match (skip < segment.edges).then(|| segment.open()).transpose() {
                    Ok(reader) => reader,
                    Err(error) => return drop(full.send(Err(error))),
                };
                let sent = rows.try_for_each(|row| {
                    let mut edges = unused.try_recv().unwrap_or_default();
                    let count = (segment.edges - row).min(block as u64) as usize;
                    let read = reader.as_mut().map_or(Ok(()), |r| r.read(row, count, &mut edges));
                    let failed = read.is_err();
                    let sent = full.send(read.map(|()| (first + row, edges)));
                    if sent.is_err() || failed { None } else { Some(()) }
                });
                if sent.is_none() {
                    return;
                }
                first += segment.edges;
            }
        });
        for item in blocks {
            let (first, edges) = item?;
            consume(first, &edges)?;
            // The reader may already have ended.
            let _ = empty.send(edges);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(segments: &[Segment], start: u64, block: usize) -> Result<Vec<[u64; 2]>> {
        let mut all = Vec::new();
        read_segments(segments, start, block, &mut |first, edges| {
            assert_eq!(first, start + all.len() as u64);
            assert!(edges.len() <= block);
            all.extend_from_slice(edges);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn every_integer_and_layout_gives_the_same_edges_from_any_start() {
        let directory = tempfile::tempdir().unwrap();
        let edges: Vec<[u64; 2]> = (0..1000).map(|i| [i * 7, i]).collect();
        let mut segments = Vec::new();
        for integer in [Integer::I32, Integer::I64, Integer::U32, Integer::U64] {
            let bytes = |id: u64| id.to_le_bytes()[..integer.size()].to_vec();
            let pairs: Vec<u8> = edges.iter().flatten().flat_map(|&id| bytes(id)).collect();
            let columns: Vec<u8> =
                (0..2).flat_map(|c| edges.iter().map(move |e| e[c])).flat_map(bytes).collect();
            let path = directory.path().join(format!("{integer:?}"));
            std::fs::write(&path, [&b"head"[..], &pairs, &columns].concat()).unwrap();
            let at = 4 + pairs.len() as u64;
            let half = (columns.len() / 2) as u64;
            segments.push(Segment {
                layout: Layout::Pairs { path: path.clone(), offset: 4 },
                integer,
                edges: 1000,
            });
            segments.push(Segment {
                layout: Layout::Columns { sources: (path.clone(), at), targets: (path, at + half) },
                integer,
                edges: 1000,
            });
        }
        let expected: Vec<_> = segments.iter().flat_map(|_| edges.clone()).collect();
        for (start, block) in [(0, 1), (0, 999), (1, 64), (2500, 4096), (7999, 10), (8000, 10)] {
            assert_eq!(read_all(&segments, start, block).unwrap(), expected[start as usize..]);
        }
    }

    #[test]
    fn negative_and_too_large_ids_are_named_by_row() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ids");
        let mut bytes: Vec<u8> = (0..20i64).flat_map(i64::to_le_bytes).collect();
        bytes[13 * 8..14 * 8].copy_from_slice(&(-3i64).to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        for (integer, expected) in [
            (Integer::I64, "row 6: node id -3 is negative, expected 0 or more"),
            (
                Integer::U64,
                "row 6: node id 18446744073709551613 is too large, expected less than 2^63",
            ),
        ] {
            let layout = Layout::Pairs { path: path.clone(), offset: 0 };
            let error =
                read_all(&[Segment { layout, integer, edges: 10 }], 0, 4).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains(path.to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn a_file_that_ends_early_is_corrupt() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ids");
        std::fs::write(&path, [0; 79]).unwrap();
        let layout = Layout::Pairs { path, offset: 0 };
        let error =
            read_all(&[Segment { layout, integer: Integer::U32, edges: 10 }], 0, 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("file ends before byte 80"), "{error}");
    }
}
