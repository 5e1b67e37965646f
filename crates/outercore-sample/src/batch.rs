use std::sync::{Mutex, PoisonError};

use outercore_core::{EdgeId, NodeId};

/// A sampled mini-batch in local numbering: node `i` of the batch is `nodes[i]` of the graph.
///
/// Destinations are numbered like nodes, so that the edges of destination 0 come first, then those
/// of destination 1, and so on through all hops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledBatch {
    /// Number of the batch in its epoch.
    pub batch: u64,
    /// The first so many of `nodes` are the seeds.
    pub num_seeds: usize,
    /// The seeds, then the new nodes in order of appearance.
    pub nodes: Vec<NodeId>,
    /// Seeds, then new nodes of every hop.
    pub nodes_per_hop: Vec<u64>,
    /// Edges of every hop.
    pub edges_per_hop: Vec<u64>,
    /// Local source of every edge.
    pub sources: Vec<u32>,
    /// Edges picked for destinations 0, 1, 2, ...
    pub picked: Vec<u32>,
    /// Id of every edge; empty unless asked for.
    pub edge_ids: Vec<EdgeId>,
}

impl SampledBatch {
    /// Number of edges.
    pub fn num_edges(&self) -> usize {
        self.sources.len()
    }

    /// Writes the edges as local source (`rows`) and local destination (`cols`).
    ///
    /// **Shapes** both [`num_edges`](Self::num_edges).
    ///
    /// # Panics
    /// If a slice has another length.
    ///
    /// # Example
    /// ```
    /// use outercore_sample::SampledBatch;
    /// let batch = SampledBatch { sources: vec![2, 3, 2], picked: vec![2, 1], ..Default::default() };
    /// let (mut rows, mut cols) = ([0; 3], [0; 3]);
    /// batch.write_edge_index(&mut rows, &mut cols);
    /// assert_eq!((rows, cols), ([2, 3, 2], [0, 0, 1]));
    /// ```
    pub fn write_edge_index(&self, rows: &mut [i64], cols: &mut [i64]) {
        let edges = self.num_edges();
        assert_eq!((rows.len(), cols.len()), (edges, edges), "one place for each edge");
        for (row, &source) in rows.iter_mut().zip(&self.sources) {
            *row = i64::from(source);
        }
        let mut rest = cols;
        for (destination, &picked) in self.picked.iter().enumerate() {
            let (own, others) = rest.split_at_mut(picked as usize);
            own.fill(destination as i64);
            rest = others;
        }
    }

    /// Where the edges of destinations 0, 1, 2, ... begin, and where the last ones end.
    ///
    /// # Example
    /// ```
    /// use outercore_sample::SampledBatch;
    /// let batch = SampledBatch { sources: vec![2, 3, 2], picked: vec![2, 1], ..Default::default() };
    /// assert_eq!(batch.starts().collect::<Vec<_>>(), [0, 2, 3]);
    /// ```
    pub fn starts(&self) -> impl Iterator<Item = u64> {
        let mut end = 0;
        let ends = self.picked.iter().map(move |&picked| {
            end += u64::from(picked);
            end
        });
        std::iter::once(0).chain(ends)
    }

    /// Bytes of memory that the batch takes.
    pub fn heap_bytes(&self) -> usize {
        let words = self.nodes.capacity()
            + self.nodes_per_hop.capacity()
            + self.edges_per_hop.capacity()
            + self.edge_ids.capacity();
        let halves = self.sources.capacity() + self.picked.capacity();
        words * size_of::<u64>() + halves * size_of::<u32>()
    }
}

/// Batches that nobody looks at any more, kept for their memory.
///
/// Memory fresh from the kernel costs a page fault every 4 KiB: about a tenth of the time that
/// sampling takes. There are never more batches in use and on the shelf than were once in use
/// together.
#[derive(Debug, Default)]
pub struct Shelf {
    batches: Mutex<Vec<SampledBatch>>,
}

impl Shelf {
    /// Keeps a batch for the next one to be sampled in its memory.
    pub fn give_back(&self, batch: SampledBatch) {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
    }

    /// A batch with nothing in it.
    pub(crate) fn take(&self) -> SampledBatch {
        let spare = self.batches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut batch = spare.unwrap_or_default();
        batch.nodes.clear();
        batch.nodes_per_hop.clear();
        batch.edges_per_hop.clear();
        batch.sources.clear();
        batch.picked.clear();
        batch.edge_ids.clear();
        batch
    }
}
