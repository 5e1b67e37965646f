use outercore_core::{Bytes, Error, ErrorKind, Hint, Result, hint};
use serde::{Deserialize, Serialize};

/// Treatment of edges from a node to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfLoops {
    /// Keep the self-loops of the input.
    #[default]
    Keep,
    /// Drop them; the edge ids of other edges do not change.
    Drop,
    /// Keep the self-loops of the input and add one to every node without a self-loop.
    ///
    /// The self-loop added to node `v` has the edge id `input_edges + v`.
    Add,
}

/// Treatment of parallel edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Duplicates {
    /// Keep all; parallel edges are sorted by edge id.
    #[default]
    Keep,
    /// Keep the edge with the lowest edge id.
    Drop,
}

/// Options of an import of edges.
#[derive(Clone, Debug)]
pub struct EdgeImportOptions {
    /// All memory of the import, buffers and queues included; at least
    /// [`EdgeImportOptions::LEAST_MEMORY`].
    pub memory: Bytes,
    /// Number of nodes; by default one more than the largest id.
    pub num_nodes: Option<u64>,
    /// Number of sources, if it differs from the number of nodes: in a graph with several types,
    /// the targets are columns.
    pub num_sources: Option<u64>,
    /// Whether every input edge also gives its reverse, under the same edge id.
    pub undirected: bool,
    /// Treatment of edges from a node to itself.
    pub self_loops: SelfLoops,
    /// Treatment of parallel edges.
    pub duplicates: Duplicates,
    /// Threads that parse and sort. Another thread reads and another one writes.
    pub threads: usize,
    /// Buffer sizes; derived from `memory` unless a test sets them.
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
    /// The least memory of an import with 2 threads.
    pub const LEAST_MEMORY: Bytes = Bytes::mib(16);

    /// All ids are below this, if it is known.
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
            .hint(least_memory(least.0 >> 20)));
        }
        Ok(Tuning::of(self.memory, self.threads))
    }
}

/// Python receives ids as int64.
pub(crate) const MAX_NODES: u64 = i64::MAX as u64;

/// Sizes of all buffers of an import, in one place so that their sum can be checked.
///
/// The phases run one after the other. But an allocator may keep the memory that one phase freed,
/// so the sum of all buffers must fit.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes of text that are parsed at once. Parsing holds at most `3 threads + 2` such blocks,
    /// and as many blocks of edges. A block of edges takes at most four times the size, in a vector
    /// that doubles as it grows.
    pub text_block: usize,
    /// Edges read at once from binary files; 16 bytes each, five blocks in total.
    pub edge_block: usize,
    /// Counters of the degree histogram, 8 bytes each.
    pub histogram_slots: usize,
    /// Bytes for the write-combining buffers of the partition phase.
    pub combining: usize,
    /// Smallest useful size of a write-combining buffer, in bytes.
    pub smallest_buffer: usize,
    /// Bytes for all buckets that are being sorted.
    pub sorting: usize,
    /// Preferred number of arcs in a bucket, if memory allows.
    pub bucket_arcs: u64,
    /// Bytes for one run of a bucket that exceeds `sorting`, and for merging runs.
    pub run: usize,
    /// Bytes written between two durable points.
    pub checkpoint: u64,
    /// Use 64 bits for every id, even if 32 suffice.
    pub wide: bool,
}

impl Tuning {
    /// Divides `memory` between the buffers.
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

/// Hint: the least memory that works, in MiB.
pub(crate) fn least_memory(mib: u64) -> Hint {
    hint!("pass " {memory = format!("{mib}MiB")} " or more")
}
