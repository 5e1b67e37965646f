//! State of the nodes, partition by partition: in memory, or in scratch files if the budget is
//! smaller.
//!
//! [`stored`] defines the bytes of a partition's state, and a [`Table`] has one value per
//! partition. [`steps`] decides the order of loads, [`Tables`] make passes, and [`spill`] is the
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
