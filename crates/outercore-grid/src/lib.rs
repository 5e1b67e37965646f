//! The edges of a data set as a grid: 2-D blocks of arcs in 16-bit local ids, compressed.
//!
//! Layer 4.
#![forbid(unsafe_code)]

mod arcs;
mod build;
mod bytes12;
#[doc(hidden)]
pub mod fuzz;
mod header;
mod open;
mod order;
mod piece;
mod shape;
mod source;
mod verify;

pub use arcs::{Arcs, SHORT, Side, length_group};
pub use build::{BuildOptions, BuildSummary, OnProgress, build};
pub use header::{
    BLOCKS, GRID_VERSION, GridHeader, HEADER, IN_DEGREES, MAX_PARTITIONS, ORDER, OUT_DEGREES,
    PIECES, WEIGHTS, rebuild_command,
};
pub use open::Grid;
pub use piece::{Codec, Decoder, PIECE_EDGES, Piece, PieceWeights, encode};
pub use shape::{GridShape, Order};
pub use source::GridSource;
pub use verify::verify;
