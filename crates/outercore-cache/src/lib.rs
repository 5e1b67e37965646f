//! Which feature rows stay in memory: a constant part chosen by hotness and a dynamic part decided
//! group by group. Pure state machines that move no bytes.
//!
//! Layer 2. Rows arrive sorted and unique, so that every index operation is a merge of sorted
//! lists: no hashing, sequential memory traffic, 16 to 20 bytes an entry.
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
