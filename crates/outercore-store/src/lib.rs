//! Data sets on disk: topology, features, import, generators, check.
//!
//! Layer 3.
#![forbid(unsafe_code)]

pub mod addition;
mod array_file;
pub mod arrays;
mod changes;
pub mod check;
mod claims;
pub mod convert;
pub mod dataset;
pub mod delta;
mod destination;
pub mod editor;
mod files;
pub mod generate;
pub mod generations;
mod hold;
mod ids;
pub mod import;
mod linked;
mod manifest_file;
pub mod npy;
mod offsets;
pub mod paged;
mod recovery;
mod relation_names;
pub mod row_values;
pub mod topology;
pub mod verified;

pub use linked::remove_left;
pub use topology::{Extent, Topology, resident};
