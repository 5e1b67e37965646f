//! Pieces in memory, still encoded.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use outercore_grid::{Piece, PieceWeights};
use outercore_io::Kept;

use super::layout::{Into, Part};

/// Pieces that were read together.
pub(super) struct Loaded {
    pieces: Range<usize>,
    blocks_start: u64,
    first_edge: u64,
    /// Bytes per weight: 4 or 8.
    weight_bytes: u64,
    /// The bodies; they start at multiples of 8.
    blocks: Body,
    weights: Body,
    /// By piece: whether its checksum has been compared since it was read.
    verified: Vec<AtomicBool>,
}

/// Bytes of an array.
enum Body {
    /// In the buffer that the device wrote.
    Read(Kept),
    /// In separate memory.
    Stays(Vec<u64>),
}

impl Loaded {
    /// A part without any bytes yet.
    pub fn new(pieces: &[Piece], part: &Part, weight_bytes: u64) -> Self {
        let range = &part.range;
        Self {
            blocks_start: range.blocks.start,
            first_edge: pieces[range.pieces.start].first_edge,
            weight_bytes,
            blocks: Body::Stays(Vec::new()),
            weights: Body::Stays(Vec::new()),
            verified: range.pieces.clone().map(|_| AtomicBool::new(false)).collect(),
            pieces: range.pieces.clone(),
        }
    }

    /// Stores the bytes of a read; bytes that stay until the end of the run get separate memory.
    pub fn put(&mut self, into: Into, bytes: Kept, stays: bool) {
        let alignment = match into {
            Into::Weights if self.weight_bytes == 4 => align_of::<f32>(),
            Into::Weights => align_of::<f64>(),
            Into::Blocks => align_of::<u64>(),
        };
        let aligned = bytes.as_ptr().addr().is_multiple_of(alignment);
        let body = if stays || !aligned { Body::copied(&bytes) } else { Body::Read(bytes) };
        match into {
            Into::Blocks => self.blocks = body,
            Into::Weights => self.weights = body,
        }
    }

    /// The encoded body of a piece.
    pub fn body(&self, piece: &Piece) -> &[u8] {
        let start = (piece.offset - self.blocks_start) as usize;
        &self.blocks.bytes()[start..start + piece.len as usize]
    }

    /// The weights of a piece; none if they are not needed.
    pub fn weights(&self, piece: &Piece, wanted: bool) -> PieceWeights<'_> {
        if !wanted {
            return PieceWeights::None;
        }
        let size = self.weight_bytes as usize;
        let start = size * (piece.first_edge - self.first_edge) as usize;
        let bytes = &self.weights.bytes()[start..start + size * piece.edges as usize];
        match size {
            4 => PieceWeights::Single(bytemuck::cast_slice(bytes)),
            _ => PieceWeights::Double(bytemuck::cast_slice(bytes)),
        }
    }

    /// Whether a piece must still be verified; returns true once.
    pub fn to_verify(&self, piece: usize) -> bool {
        !self.verified[piece - self.pieces.start].swap(true, Ordering::Relaxed)
    }
}

impl Body {
    fn copied(bytes: &[u8]) -> Self {
        let mut words = vec![0; bytes.len().div_ceil(size_of::<u64>())];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self::Stays(words)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Stays(words) => bytemuck::cast_slice(words),
        }
    }
}
