//! Neighbour sampling: mini-batches are pure functions of seed, epoch, batch, hop and node.
//!
//! Layer 4. A batch is the same bit for bit for every topology, group size and number of threads.
#![forbid(unsafe_code)]

mod batch;
mod by_type;
mod config;
mod floyd;
pub mod hotness;
mod locals;
mod pick;
pub mod rules;
mod sampler;
mod seeds;
mod stored;
pub mod visits;

pub use batch::{SampledBatch, Shelf};
pub use by_type::{EdgesOfType, NodesOfType, TypedBatch};
pub use config::{FanOut, SampleConfig, TypedFanOuts};
pub use sampler::{sample_group, sample_group_on, sample_unknown_on};
pub use seeds::Seeds;
