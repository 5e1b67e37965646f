//! The edges of a data set as a grid: 2-D blocks of arcs in 16-bit local ids, compressed.
//!
//! Layer 4.
#![forbid(unsafe_code)]

mod arcs;
mod shape;

pub use arcs::{Arcs, Side};
pub use shape::{GridShape, Order};
