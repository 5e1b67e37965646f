//! The on-disk format of a data set: converts bytes to values and back. Opens no file.
//!
//! Layer 1. `docs/format.md` is the specification; this crate implements it: [`NpyHeader`] for the
//! arrays, [`Manifest`] for `graph.json`, and [`Checksum`] to connect the two.
#![forbid(unsafe_code)]

mod checksum;
mod dtype;
#[doc(hidden)]
pub mod fuzz;
pub mod keys;
mod literal;
pub mod log;
mod manifest;
mod npy;
mod schema;
mod timestamp;
mod update;
mod widen;

pub use checksum::Checksum;
pub use dtype::DType;
pub use manifest::{ArrayEntry, EdgeType, Given, Live, Manifest, NodeType, Provenance, Roles};
pub use npy::NpyHeader;
pub use schema::{EdgeRange, NodeRange, Schema};
pub use timestamp::utc_timestamp;
pub use update::{NewEdge, Rows, Update};
pub use widen::{Word, widen, words_of};

/// Name of the manifest file in the root of a data set.
pub const MANIFEST_FILE: &str = "graph.json";

/// Name of the directory in which an import keeps its state until it writes the manifest.
pub const IMPORT_DIRECTORY: &str = ".import";

/// Name of the directory with replaced manifests that readers may still use.
pub const GENERATIONS_DIRECTORY: &str = ".generations";

/// The value of the manifest's `format` member.
pub const FORMAT_NAME: &str = "outercore";

/// The format version of a data set without updates.
pub const FORMAT_VERSION: u32 = 1;

/// The format version of a data set with a log of updates.
pub const LIVE_VERSION: u32 = 2;

/// The format version of a data set of many graphs with a log of updates.
pub const LIVE_GRAPHS_VERSION: u32 = 3;

/// The format version of a data set with several types of nodes or edges.
pub const TYPED_VERSION: u32 = 4;

/// The newest format version that this build can read.
pub const NEWEST_VERSION: u32 = TYPED_VERSION;

/// Name of the directory with the log of updates.
pub const LIVE_DIRECTORY: &str = "live";

/// Offset of an array's data in a file of the data set: one page, so direct I/O can read it.
pub const DATA_OFFSET: u64 = 4096;
