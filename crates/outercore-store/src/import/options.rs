use outercore_core::{Bytes, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// What to do with edges from a node to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfLoops {
    /// Keep those of the input.
    #[default]
    Keep,
    /// Leave them out; their rows keep their numbers.
    Drop,
    /// Keep those of the input and add one to every node without.
    ///
    /// The loop added to node `v` has the edge id `input_edges + v`.
    Add,
}

/// What to do with a second edge between the same source and target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Duplicates {
    /// Keep all; parallel edges are sorted by edge id.
    #[default]
    Keep,
    /// Keep the one with the lowest edge id.
    Drop,
}

/// How an edge list becomes a graph.
#[derive(Clone, Debug)]
pub struct EdgeImportOptions {
    /// Everything the import keeps in memory, buffers and queues included; at least
    /// [`EdgeImportOptions::LEAST_MEMORY`].
    pub memory: Bytes,
    /// Nodes of the graph; without it, one more than the largest id.
    pub num_nodes: Option<u64>,
    /// Sources, where there are not as many as nodes: of a graph of several types, whose targets are
    /// columns.
    pub num_sources: Option<u64>,
    /// Whether every input edge also stands for its reverse, under the same edge id.
    pub undirected: bool,
    /// Edges from a node to itself.
    pub self_loops: SelfLoops,
    /// Parallel edges.
    pub duplicates: Duplicates,
    /// Threads that parse and sort; one more reads and one more writes.
    pub threads: usize,
    /// Sizes derived from `memory` unless a test sets them.
    #[doc(hidden)]
    pub tuning: Option<Tuning>,
}

impl Default for EdgeImportOptions {
    fn default() -> Self {
        Self {
            memory: Bytes::gib(1),
            num_nodes: None,
            num_sources: None,
            undirected: false,
            self_loops: SelfLoops::default(),
            duplicates: Duplicates::default(),
            threads: std::thread::available_parallelism().map_or(2, |n| n.get().min(16)),
            tuning: None,
        }
    }
}

impl EdgeImportOptions {
    /// The least memory an import runs in, with the 2 threads it is meant for.
    pub const LEAST_MEMORY: Bytes = Bytes::mib(16);

    /// All ids are below this, where it is known.
    pub(crate) fn end_of_ids(&self) -> Option<u64> {
        self.num_nodes.map(|nodes| nodes.max(self.num_sources.unwrap_or(0)))
    }

    pub(crate) fn tuning(&self) -> Result<Tuning> {
        if self.threads == 0 {
            return Err(Error::invalid("import with 0 threads: expected at least 1"));
        }
        if let Some(nodes) = self.num_nodes.filter(|&nodes| nodes > MAX_NODES) {
            return Err(Error::invalid(format!(
                "a graph of {nodes} nodes: expected at most {MAX_NODES}, the range of int64 ids"
            )));
        }
        if let Some(tuning) = self.tuning {
            return Ok(tuning);
        }
        let least = Bytes(Self::LEAST_MEMORY.0.max(self.threads as u64 * Bytes::mib(8).0));
        if self.memory < least {
            return Err(Error::new(
                ErrorKind::Budget,
                format!(
                    "import with {} threads needs at least {least} of memory, found {}",
                    self.threads, self.memory
                ),
            )
            .hint(format!("pass `--memory {}MiB` or more", least.0 >> 20)));
        }
        Ok(Tuning::of(self.memory, self.threads))
    }
}

/// Ids are handed to Python as int64.
pub(crate) const MAX_NODES: u64 = i64::MAX as u64;

/// The sizes of every buffer of an import, so that their sum can be read off in one place.
///
/// Intake, partition and sort follow one another, but an allocator need not give back what one of
/// them freed: their sum has to fit.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes of text parsed at a time. Parsing holds at most `3 threads + 2` of them, and as many
    /// blocks of edges of at most four times the size, in vectors that double as they grow.
    pub text_block: usize,
    /// Edges read at a time from binary files; 16 bytes each, five blocks in all.
    pub edge_block: usize,
    /// Counters of the degree histogram, 8 bytes each.
    pub histogram_slots: usize,
    /// Bytes for the write-combining buffers of the partition phase.
    pub combining: usize,
    /// Bytes below which a write-combining buffer is not worth having.
    pub smallest_buffer: usize,
    /// Bytes that the buckets in flight may take while they are sorted.
    pub sorting: usize,
    /// Arcs that a bucket should hold, where memory allows.
    pub bucket_arcs: u64,
    /// Bytes for one run of a bucket too large for `sorting`, and for merging runs.
    pub run: usize,
    /// Bytes written between two durable points.
    pub checkpoint: u64,
    /// Use 64 bits for every id, needed or not.
    pub wide: bool,
}

impl Tuning {
    /// Shares of `memory`.
    pub fn of(memory: Bytes, threads: usize) -> Self {
        let memory = memory.as_usize();
        let text_blocks = 9 * (3 * threads + 2);
        Self {
            text_block: (memory / 4 / text_blocks).clamp(32 << 10, 1 << 20),
            edge_block: (memory / 32 / 80).clamp(4 << 10, 64 << 10),
            histogram_slots: (memory / 128 / 8).next_power_of_two().min(256 << 10),
            combining: memory / 4,
            smallest_buffer: 4 << 10,
            sorting: memory * 3 / 8,
            bucket_arcs: 1 << 20,
            run: memory / 16,
            checkpoint: 512 << 20,
            wide: false,
        }
    }
}
