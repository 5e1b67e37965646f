//! Segments: consecutive pieces that one request reads. Pure.

use std::ops::Range;

use outercore_core::Bytes;
use outercore_grid::Piece;
use outercore_io::Engine;

use crate::task::Task;

/// A segment is closed before it exceeds this; a single longer piece is a separate segment.
pub const SEGMENT_BYTES: u64 = 256 << 10;

/// Consecutive pieces that are read, pinned and freed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its pieces.
    pub pieces: Range<usize>,
    /// Position of their bodies in the data of the blocks.
    pub blocks: Range<u64>,
    /// Position of their weights in the data of the weights.
    pub weights: Range<u64>,
}

impl Segment {
    /// Bytes in memory, with or without weights.
    pub fn bytes(&self, weighted: bool) -> u64 {
        let weights = if weighted { self.weights.end - self.weights.start } else { 0 };
        self.blocks.end - self.blocks.start + weights
    }

    /// The segment of a range of pieces, with `weight_bytes` per weight.
    fn of(pieces: &[Piece], range: Range<usize>, weight_bytes: u64) -> Self {
        let (first, last) = (&pieces[range.start], &pieces[range.end - 1]);
        let edges = first.first_edge..last.first_edge + u64::from(last.edges);
        Self {
            blocks: first.offset..last.offset + u64::from(last.len),
            weights: weight_bytes * edges.start..weight_bytes * edges.end,
            pieces: range,
        }
    }

    /// The part of the segment from piece `first` to piece `last`, both included.
    pub fn between(pieces: &[Piece], first: usize, last: usize, weight_bytes: u64) -> Self {
        Self::of(pieces, first..last + 1, weight_bytes)
    }
}

/// Divides pieces in file order into segments; the same for every run over a grid. For
/// `weight_bytes`, see [`Grid::weight_bytes`](outercore_grid::Grid::weight_bytes).
pub fn segments(pieces: &[Piece], weight_bytes: u64) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut first = 0;
    for at in 1..=pieces.len() {
        let full = |piece: &Piece| {
            piece.offset + u64::from(piece.len) - pieces[first].offset > SEGMENT_BYTES
        };
        if pieces.get(at).is_none_or(full) {
            segments.push(Segment::of(pieces, first..at, weight_bytes));
            first = at;
        }
    }
    segments
}

/// The longest reads of blocks and of weights for one segment.
pub fn longest(segments: &[Segment], weighted: bool) -> [u64; 2] {
    let most = |bytes: fn(&Segment) -> &Range<u64>| {
        segments.iter().map(|segment| bytes(segment).end - bytes(segment).start).max().unwrap_or(0)
    };
    [most(|segment| &segment.blocks), if weighted { most(|segment| &segment.weights) } else { 0 }]
}

/// Memory into which any of the segments can be read.
pub fn slot_bytes(segments: &[Segment], weighted: bool) -> Bytes {
    let [blocks, weights] = longest(segments, weighted).map(|read| Engine::slot_bytes(read).0);
    Bytes(if weighted { blocks + weights } else { blocks })
}

/// The segment of each piece.
pub(crate) fn segment_of(segments: &[Segment], pieces: usize) -> Vec<u32> {
    let mut segment_of = vec![0; pieces];
    for (number, segment) in segments.iter().enumerate() {
        segment_of[segment.pieces.clone()].fill(number as u32);
    }
    segment_of
}

/// The segments that tasks need, each with the first and the last piece needed, in file order.
pub(crate) fn wanted<'a>(
    tasks: impl Iterator<Item = &'a Task>,
    segment_of: &[u32],
    segments: usize,
) -> Vec<(usize, usize, usize)> {
    let mut wanted: Vec<Option<(usize, usize)>> = vec![None; segments];
    for task in tasks {
        let piece = task.piece();
        let (first, last) = wanted[segment_of[piece] as usize].get_or_insert((piece, piece));
        (*first, *last) = ((*first).min(piece), (*last).max(piece));
    }
    let found = (0..).zip(wanted);
    found.filter_map(|(segment, wanted)| wanted.map(|(a, b)| (segment, a, b))).collect()
}

#[cfg(test)]
mod tests {
    use outercore_grid::Codec;

    use super::*;

    fn piece(offset: u64, len: u32, first_edge: u64) -> Piece {
        Piece {
            offset,
            first_edge,
            len,
            edges: 10,
            rows: 1,
            row_part: 0,
            col_part: 0,
            first_row: 0,
            last_row: 0,
            checksum: 0,
            codec: Codec::Plain,
            is_loop: false,
        }
    }

    #[test]
    fn segments_cover_all_pieces_and_only_single_pieces_are_longer() {
        let sizes = [100u32, 200_000, 80_000, 300_000, 8, 8, 262_000];
        let mut offset = 0;
        let pieces: Vec<_> = (0..)
            .zip(sizes)
            .map(|(at, len)| {
                offset += u64::from(len).next_multiple_of(8);
                piece(offset - u64::from(len).next_multiple_of(8), len, at * 10)
            })
            .collect();
        let found = segments(&pieces, 4);
        let ranges: Vec<_> = found.iter().map(|segment| segment.pieces.clone()).collect();
        assert_eq!(ranges, [0..2, 2..3, 3..4, 4..7]);
        assert_eq!(found[3].weights, 160..280);
        assert_eq!(found[3].bytes(true), found[3].bytes(false) + 120);
        assert!(segments(&[], 0).is_empty());
    }
}
