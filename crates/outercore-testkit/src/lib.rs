//! Shared test code: tiny graphs, samplers written directly from their definitions, conformance
//! suites.
//!
//! For development only; no published crate depends on it.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod disk;
pub mod far;
pub mod fuzz;
pub mod graph;
mod hgt;
pub mod live;
pub mod live_graphs;
pub mod naive;
pub mod reader;
pub mod sampler;
pub mod sick_disk;
mod typed;

pub use conformance::topology_conformance;
pub use disk::{Width, write_data_set};
pub use far::HeapRemote;
pub use graph::Csc;
pub use hgt::naive_hgt_sample;
pub use live::LiveModel;
pub use live_graphs::LiveGraphs;
pub use reader::{MakeReader, reader_conformance};
pub use sampler::{NaiveBatch, naive_sample};
pub use sick_disk::SickDisk;
pub use typed::{NaiveRules, NaiveTypedBatch, TypedGraph, naive_typed_sample};
