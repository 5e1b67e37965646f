//! What tests share: tiny graphs, the sampler straight from its definition, conformance suites.
//!
//! Development only; no published crate depends on it.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod disk;
pub mod graph;
pub mod naive;
pub mod sampler;

pub use conformance::topology_conformance;
pub use disk::{Width, write_data_set};
pub use graph::Csc;
pub use sampler::{NaiveBatch, naive_sample};
