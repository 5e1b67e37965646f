//! Pieces in memory, still encoded.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use outercore_grid::Piece;

use super::layout::{Into, Part};

/// Pieces that were read together.
pub(super) struct Loaded {
    pieces: Range<usize>,
    blocks: u64,
    /// The bodies; they begin at multiples of 8.
    words: Vec<u64>,
    first_edge: u64,
    weights: Vec<f32>,
    /// By piece: whether its checksum has been compared since it was read.
    verified: Vec<AtomicBool>,
    /// Bytes that count against the window.
    pub admitted: u64,
}

impl Loaded {
    /// Room for a part; `words` is a buffer to use again.
    pub fn new(pieces: &[Piece], part: &Part, admitted: u64, mut words: Vec<u64>) -> Self {
        let range = &part.range;
        // What an earlier part left there is written over: clearing it would cost as much as a copy.
        words.resize((range.blocks.end - range.blocks.start).div_ceil(8) as usize, 0);
        let weights = if part.weighted { (range.weights.end - range.weights.start) / 4 } else { 0 };
        Self {
            blocks: range.blocks.start,
            words,
            first_edge: pieces[range.pieces.start].first_edge,
            weights: vec![0.0; weights as usize],
            verified: range.pieces.clone().map(|_| AtomicBool::new(false)).collect(),
            pieces: range.pieces.clone(),
            admitted,
        }
    }

    /// Puts what a read has brought.
    pub fn put(&mut self, into: Into, at: u64, bytes: &[u8]) {
        let destination = match into {
            Into::Blocks => bytemuck::cast_slice_mut(&mut self.words),
            Into::Weights => bytemuck::cast_slice_mut::<f32, u8>(&mut self.weights),
        };
        let at = at as usize;
        destination[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The encoded body of a piece.
    pub fn body(&self, piece: &Piece) -> &[u8] {
        let start = (piece.offset - self.blocks) as usize;
        &bytemuck::cast_slice(&self.words)[start..start + piece.len as usize]
    }

    /// The weights of a piece; none where they are not wanted.
    pub fn weights(&self, piece: &Piece, wanted: bool) -> &[f32] {
        if !wanted {
            return &[];
        }
        let start = (piece.first_edge - self.first_edge) as usize;
        &self.weights[start..start + piece.edges as usize]
    }

    /// Whether a piece is yet to be verified; yes once.
    pub fn to_verify(&self, piece: usize) -> bool {
        !self.verified[piece - self.pieces.start].swap(true, Ordering::Relaxed)
    }

    /// The buffer, to be used again.
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }
}
