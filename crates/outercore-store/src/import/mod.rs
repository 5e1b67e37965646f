//! Import: edge lists of any size become the CSC of a data set, within a memory budget.
//!
//! Three phases. *Read*: sources are parsed and checked, in-degrees are counted, and what is not
//! binary already is spilled. *Partition*: every arc goes into the bucket of its target; buckets
//! are cut so that they fit in memory. *Sort*: each bucket is sorted by target, source and edge id
//! and appended to the arrays. A journal notes what is durable, so that an import that was stopped
//! goes on from there.

mod arc;
mod artifacts;
mod csc;
mod edges;
mod graph;
mod histogram;
mod input_file;
mod intake;
mod journal;
mod merge;
mod npy;
mod options;
mod output;
mod partition;
mod plan;
mod progress;
mod segment;
mod sort;
mod spill;
mod triples;
mod typed;

pub use artifacts::{EdgeArtifacts, EdgeText};
pub use edges::EdgeImport;
pub use graph::{GraphImport, GraphImportOptions};
#[doc(hidden)]
pub use options::Tuning;
pub use options::{Duplicates, EdgeImportOptions, SelfLoops};
pub use progress::{OnProgress, Phase, Progress, Unit};
#[doc(hidden)]
pub use triples::TripleTuning;
pub use triples::{
    Column, Columns, NameColumn, Names, Part, PartSummary, TripleArtifacts, TripleBatch,
    TripleImport, TripleImportOptions, Unknown,
};
pub use typed::GraphTypes;
