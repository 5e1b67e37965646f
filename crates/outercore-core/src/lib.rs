//! Ids, byte counts, errors and run statistics, shared by all other crates.
//!
//! Layer 0: depends on no other crate of Outercore and does no I/O.
#![forbid(unsafe_code)]

mod bytes;
mod counters;
mod error;
mod hint;
mod lanes;
mod parse_bytes;
mod pieces;
mod random;
mod shell;

pub use bytes::Bytes;
pub use counters::{CacheCounters, ReadCounters, StageClock, StageCounters};
pub use error::{Context, Error, ErrorKind, Result};
pub use hint::{Hint, Part, command};
pub use lanes::LaneBits;
pub use pieces::{count_pieces, largest_piece};
pub use random::{Permutation, Stream, Uniform, mix};
pub use shell::{shell_path, shell_word};

/// A node of the graph: its row number in every node array of its type.
pub type NodeId = u64;

/// An edge of the graph: its row number in the imported edge list.
pub type EdgeId = u64;
