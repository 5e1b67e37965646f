//! What tests share: tiny graphs, the sampler straight from its definition, conformance suites.
//!
//! Development only; no published crate depends on it.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod graph;
pub mod sampler;

pub use conformance::topology_conformance;
pub use graph::Csc;
pub use sampler::{NaiveBatch, naive_sample};
