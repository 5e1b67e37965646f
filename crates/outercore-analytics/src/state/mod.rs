//! State of the nodes, partition by partition: in memory, or in scratch files where the budget is
//! smaller than it.
//!
//! [`stored`] says what a partition's state looks like as bytes, a [`Table`] has one for each partition,
//! [`steps`] decides in which order they are loaded, [`Tables`] make passes, and [`spill`] is the
//! scratch space.

mod parts;
pub mod spill;
pub mod steps;
pub mod stored;
mod sweep;
mod table;
mod traffic;

pub use parts::Parts;
pub use spill::{Slots, Spill, SpillCounters};
pub use stored::{Bits, PerNode, Stored};
pub use sweep::{Closed, Step, Tables};
pub use table::Table;
pub use traffic::Traffic;
