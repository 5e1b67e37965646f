//! Decides which feature rows stay in memory: a constant part chosen by hotness, and a dynamic part
//! that changes group by group. Pure state machines that move no bytes.
//!
//! Layer 2. Rows arrive sorted and unique, so every index operation merges sorted lists. This needs
//! no hashing, accesses memory sequentially, and takes 16 or 21 bytes per entry.
#![forbid(unsafe_code)]

mod constant;
mod dynamic;
mod heat;
mod merge;
mod policy;
mod select;
pub mod simulate;

pub use constant::{ConstantPart, hottest, hottest_of};
pub use dynamic::{Admission, DynamicPart, NoRoom};
pub use heat::heat_levels;
pub use policy::Policy;
