//! A layout of a node array: a second copy of it for serving. Its rows may stand in another order,
//! so that rows that are wanted together share pages, and they may be `int8`.
//!
//! Layer 4. Section 13 of `docs/format.md` is the specification, [`Layout`] an opened layout,
//! [`build`] writes one. The array itself stays as it is; a layout can be built anew at any time.
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

/// Told what a build does, how far it has come, how far it has to go, and in which unit. An error
/// stops it.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64, &str) -> Result<()>;
