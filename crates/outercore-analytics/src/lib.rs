//! Graph algorithms over the grid of a data set, with vertex state in memory and edges streamed.
//!
//! Layer 5. [`run`] computes a result from a data set and a budget. Below it, an [`EdgeProgram`]
//! defines the work per arc, and [`Passes`] deliver the arcs: [`StreamRun`] from disk according to
//! a [`RunPlan`], [`MemoryRun`] from memory as the reference.
#![forbid(unsafe_code)]

mod algorithm;
pub mod algorithms;
mod checkpoint;
mod config;
pub mod far;
pub mod gather;
mod memory_run;
mod output;
mod partitions;
pub mod pins;
mod plan;
mod prepare;
mod profile;
mod program;
mod request;
mod result;
pub mod schedule;
mod segments;
mod source;
pub mod state;
mod stream_run;
mod task;
mod teleport;

pub use algorithm::{FlowName, Leaves, PathResult, Source};
pub use algorithms::Algorithm;
pub use checkpoint::Checkpoints;
pub use config::{CheckpointConfig, RunConfig};
pub use memory_run::MemoryRun;
pub use output::{
    Counters, Isolated, Need, NodeValue, PassCounters, Raw, ResultFile, ResultTable, SpillNeed,
    Values, Working, deliver,
};
pub use plan::{CheckpointPlan, FarShare, PlanInput, RunPlan, SpillPlan};
pub use profile::{Profile, SegmentClass};
pub use program::{Degree, EdgeProgram, Flow, Passes, Selection};
pub use request::{Inputs, Outcome, plan, run, run_through, stream, stream_through};
pub use segments::{SEGMENT_BYTES, Segment, segments};
pub use stream_run::{OnProgress, StreamOptions, StreamRun};
