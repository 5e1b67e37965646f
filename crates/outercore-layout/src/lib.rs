//! A layout of a node array: a second copy for serving. Its rows can have another order, so that
//! rows needed together share pages, and they can be `int8`.
//!
//! Layer 4. Section 13 of `docs/format.md` is the specification. [`Layout`] is an opened layout,
//! and [`build()`] writes one. The array itself stays unchanged; a layout can be rebuilt at any time.
#![forbid(unsafe_code)]

mod build;
mod choose;
#[doc(hidden)]
pub mod fuzz;
mod header;
mod keys;
mod open;
mod order;
mod places;
mod precision;
mod scales;
mod verify;

use outercore_core::Result;

pub use build::{BuildOptions, BuildSummary, build, remove};
pub use choose::{Chosen, choose};
pub use header::{LAYOUT_VERSION, LayoutHeader};
pub use open::Layout;
pub use order::{Method, Order};
pub use places::Places;
pub use precision::Precision;
pub use scales::Scales;
pub use verify::verify;

/// Progress of a build: called with the phase, the amount done, the total, and the unit. An error
/// stops the build.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64, &str) -> Result<()>;
