//! Graph algorithms over the grid of a data set: vertex state in memory, edges streamed.
//!
//! Layer 5.
#![forbid(unsafe_code)]

pub mod algorithms;
mod memory_run;
mod output;
mod program;

pub use memory_run::MemoryRun;
pub use output::{Isolated, Need, Raw, Values, Working};
pub use program::{Degree, EdgeProgram, Flow, Passes, Selection};
