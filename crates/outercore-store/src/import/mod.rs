//! Import of edge lists of any size as the CSC of a data set, within a memory budget.
//!
//! There are three phases. *Read*: parse and check the sources, count in-degrees, and spill edges
//! without a binary file. *Partition*: write every arc to the bucket of its target; the buckets are
//! chosen to fit in memory. *Sort*: sort each bucket by target, source and edge id and append it to
//! the arrays. A journal records the durable state, so that an interrupted import can be resumed.

mod arc;
mod artifacts;
mod csc;
mod edges;
mod graph;
mod histogram;
mod input_file;
mod intake;
mod journal;
mod journal_file;
mod merge;
mod npy;
mod options;
mod output;
mod partition;
mod plan;
mod progress;
mod segment;
mod sort;
mod sources;
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
    Column, Columns, DictionaryImport, NameColumn, Names, Part, PartSummary, TripleArtifacts,
    TripleBatch, TripleImport, TripleImportOptions, Unknown,
};
pub use typed::GraphTypes;
