use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use outercore_core::EdgeId;
use outercore_store::resident::Ids;

/// A sampled mini-batch in local numbering: node `i` of the batch is node `nodes[i]` of the graph.
///
/// Destinations have the numbers of their nodes. The edges of destination 0 come first, then those
/// into destination 1, and so on through all hops. In a graph with several edge types, each hop
/// lists the edges type by type, each type by destination; [`Self::by_type`] separates them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledBatch {
    /// Number of the batch in its epoch.
    pub batch: u64,
    /// Number of seeds; they come first in `nodes`.
    pub num_seeds: usize,
    /// The seeds, then the new nodes in order of appearance; 32-bit ids if all node ids of the
    /// graph are below 2^31.
    pub nodes: Ids,
    /// For each node, the index of the seed whose neighbourhood it belongs to. Empty unless the
    /// neighbourhoods are disjoint.
    pub trees: Vec<u32>,
    /// Number of seeds, then number of new nodes per hop.
    pub nodes_per_hop: Vec<u64>,
    /// Number of edges per hop; with several edge types, one number per hop and type.
    pub edges_per_hop: Vec<u64>,
    /// For each hop, the indices of the nodes that its edges lead to. Empty if these are the nodes
    /// of the previous hop.
    pub targets: Vec<Range<usize>>,
    /// Weight of every edge, if the sampler computes weights.
    pub edge_weights: Vec<f32>,
    /// Local source of every edge.
    pub sources: Vec<u32>,
    /// Number of edges picked for destinations 0, 1, 2, ...; with several edge types, for the
    /// destinations of each step.
    pub picked: Vec<u32>,
    /// Additional bytes used to choose the nodes of this batch, if the rules score nodes.
    pub scratch: u64,
    /// Id of every edge; empty unless requested.
    ///
    /// Without replacement, a destination has each id at most once, also for parallel edges. The
    /// two arcs of an undirected edge share one id, which occurs twice if both ends are
    /// destinations.
    pub edge_ids: Vec<EdgeId>,
}

impl SampledBatch {
    /// Number of edges.
    pub fn num_edges(&self) -> usize {
        self.sources.len()
    }

    /// Writes the edges as local source (`rows`) and local destination (`cols`).
    ///
    /// **Shapes** both slices have length [`num_edges`](Self::num_edges).
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
        for (destination, &picked) in self.destinations().zip(&self.picked) {
            let (own, others) = rest.split_at_mut(picked as usize);
            own.fill(destination as i64);
            rest = others;
        }
    }

    /// The index of the destination of each entry of `picked`, in a graph with one edge type.
    fn destinations(&self) -> impl Iterator<Item = usize> {
        let in_order = if self.targets.is_empty() { 0..self.picked.len() } else { 0..0 };
        in_order.chain(self.targets.iter().cloned().flatten())
    }

    /// The indices of the nodes that the edges of `hop` lead to.
    pub(crate) fn targets_of(&self, hop: usize) -> Range<usize> {
        self.targets.get(hop).cloned().unwrap_or_else(|| {
            let first: u64 = self.nodes_per_hop[..hop].iter().sum();
            first as usize..(first + self.nodes_per_hop[hop]) as usize
        })
    }

    /// The position of the first edge of destinations 0, 1, 2, ..., and the end of the last edges.
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

    /// Bytes of memory of the batch.
    pub fn heap_bytes(&self) -> usize {
        let words = self.nodes_per_hop.capacity()
            + self.edges_per_hop.capacity()
            + self.edge_ids.capacity();
        let halves = self.sources.capacity() + self.picked.capacity() + self.trees.capacity();
        self.nodes.heap_bytes() + words * size_of::<u64>() + halves * size_of::<u32>()
    }
}

/// The most bytes kept of separate node arrays, and of separate source arrays: enough for some
/// batches.
const MOST_LOOSE: usize = 8 << 20;

/// Finished batches, whose memory later batches reuse.
///
/// New memory from the kernel costs a page fault every 4 KiB, about a tenth of the sampling time.
/// The number of batches in use and on the shelf never exceeds the highest number in use together.
/// Nodes and sources of a batch can also be returned separately.
#[derive(Debug, Default)]
pub struct Shelf {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    batches: Vec<SampledBatch>,
    nodes: Vec<Vec<u32>>,
    sources: Vec<Vec<u32>>,
}

impl Shelf {
    /// Returns a batch, so that a later batch can reuse its memory.
    pub fn give_back(&self, batch: SampledBatch) {
        if batch.heap_bytes() > 0 {
            self.kept().batches.push(batch);
        }
    }

    /// Returns the memory of 32-bit nodes; drops it if the shelf already keeps enough.
    pub fn give_back_nodes(&self, nodes: Vec<u32>) {
        keep(&mut self.kept().nodes, nodes);
    }

    /// Returns the memory of sources; drops it if the shelf already keeps enough.
    pub fn give_back_sources(&self, sources: Vec<u32>) {
        keep(&mut self.kept().sources, sources);
    }

    /// An empty batch.
    pub(crate) fn take(&self) -> SampledBatch {
        let mut kept = self.kept();
        let mut batch = kept.batches.pop().unwrap_or_default();
        if batch.nodes.heap_bytes() == 0 {
            batch.nodes = kept.nodes.pop().unwrap_or_default().into();
        }
        if batch.sources.capacity() == 0 {
            batch.sources = kept.sources.pop().unwrap_or_default();
        }
        drop(kept);
        batch.nodes.clear();
        batch.trees.clear();
        batch.targets.clear();
        batch.edge_weights.clear();
        batch.nodes_per_hop.clear();
        batch.edges_per_hop.clear();
        batch.sources.clear();
        batch.picked.clear();
        batch.edge_ids.clear();
        batch.scratch = 0;
        batch
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep(loose: &mut Vec<Vec<u32>>, ids: Vec<u32>) {
    let bytes = |ids: &Vec<u32>| ids.capacity() * size_of::<u32>();
    if loose.iter().map(bytes).sum::<usize>() + bytes(&ids) <= MOST_LOOSE {
        loose.push(ids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_gets_the_memory_of_single_arrays_back() {
        let shelf = Shelf::default();
        let (nodes, sources) = (vec![1u32; 100], vec![2u32; 300]);
        let places = (nodes.as_ptr(), sources.as_ptr());
        shelf.give_back(SampledBatch { picked: vec![3], ..Default::default() });
        shelf.give_back_nodes(nodes);
        shelf.give_back_sources(sources);
        let batch = shelf.take();
        let Ids::Narrow(nodes) = &batch.nodes else { panic!("narrow ones were given") };
        assert_eq!((nodes.as_ptr(), batch.sources.as_ptr()), places);
        assert!(nodes.is_empty() && batch.sources.is_empty() && batch.picked.is_empty());
        assert!(batch.picked.capacity() > 0);
        assert_eq!(shelf.take(), SampledBatch::default());
    }

    #[test]
    fn single_arrays_are_kept_up_to_a_bound_and_empty_batches_not_at_all() {
        let shelf = Shelf::default();
        for _ in 0..20 {
            shelf.give_back_nodes(Vec::with_capacity(MOST_LOOSE / 16));
            shelf.give_back_sources(Vec::with_capacity(MOST_LOOSE / 16));
            shelf.give_back(SampledBatch::default());
        }
        let kept = shelf.kept();
        assert_eq!((kept.batches.len(), kept.nodes.len(), kept.sources.len()), (0, 4, 4));
    }
}
