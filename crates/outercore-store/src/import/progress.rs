use std::fmt;

use outercore_core::Result;

/// Phase of a long task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Edges are generated.
    Generate,
    /// Edge sources are read and checked.
    Read,
    /// Arcs are written to buckets by target node.
    Partition,
    /// Buckets are sorted and written as CSC.
    Sort,
    /// A node array is copied or generated.
    Array,
    /// Dictionaries of names are merged.
    Names,
    /// Triples are compared with each other.
    Compare,
    /// Triples are written.
    Write,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Generate => "generate",
            Self::Read => "read",
            Self::Partition => "partition",
            Self::Sort => "sort",
            Self::Array => "array",
            Self::Names => "names",
            Self::Compare => "compare",
            Self::Write => "write",
        })
    }
}

/// Unit of [`Progress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Bytes of the input file on disk.
    Bytes,
    /// Input edges.
    Edges,
    /// Arcs of the graph.
    Arcs,
    /// Rows of an array.
    Rows,
    /// Triples of a knowledge graph.
    Triples,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Edges => "edges",
            Self::Arcs => "arcs",
            Self::Rows => "rows",
            Self::Triples => "triples",
        })
    }
}

/// Progress of a long task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current phase.
    pub phase: Phase,
    /// Finished units.
    pub done: u64,
    /// Total units.
    pub total: u64,
    /// The unit.
    pub unit: Unit,
}

/// Called every few milliseconds. An error (such as [`outercore_core::ErrorKind::Interrupted`])
/// stops the task at a point from which it can be resumed.
pub type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> Result<()>;
