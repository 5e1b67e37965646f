//! A group: consecutive batches whose rows are fetched by one sorted read plan.

use std::borrow::Cow;
use std::ops::Range;

use outercore_sample::SampledBatch;
use rayon::ThreadPool;
use rayon::prelude::*;

/// Index for a row that is not among the rows of its group.
pub const ELSEWHERE: u32 = u32::MAX;

/// The owners of an array's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowsOf {
    /// One row per node.
    Nodes,
    /// One row per imported edge, by edge id.
    Edges,
    /// One row per node of a type; the type has these global ids.
    NodesOf(Range<u64>),
    /// One row per imported edge of a type; the type has these edge ids.
    EdgesOf(Range<u64>),
}

impl RowsOf {
    /// Whether rows belong to nodes.
    pub fn are_nodes(&self) -> bool {
        matches!(self, Self::Nodes | Self::NodesOf(_))
    }
}

/// Sampled batches with the distinct rows that they need.
#[derive(Debug)]
pub struct Group {
    /// Number of the group, counted over the life of a loader.
    pub number: u64,
    /// The batches, in order.
    pub batches: Vec<GroupBatch>,
    /// Distinct nodes of all batches, ascending.
    pub rows: Vec<u64>,
}

/// A batch, with the indices of its rows in the group.
#[derive(Debug)]
pub struct GroupBatch {
    /// The sampled subgraph.
    pub sampled: SampledBatch,
    /// Places of the seeds in the loader's input; length `num_seeds`.
    pub input_ids: Vec<u64>,
    /// For each node of the batch, its index in [`Group::rows`].
    pub row_index: Vec<u32>,
    /// The rows of each further array, in the order of the batch's nodes or edges.
    pub arrays: Vec<Vec<u8>>,
}

impl GroupBatch {
    /// The ids whose rows are needed, in the order of the batch.
    pub fn ids(&self, rows_of: &RowsOf) -> Cow<'_, [u64]> {
        let of_type = |ids: &mut dyn Iterator<Item = u64>, range: &Range<u64>| {
            ids.filter(|id| range.contains(id)).map(|id| id - range.start).collect()
        };
        match rows_of {
            RowsOf::Nodes => self.sampled.nodes.iter().collect(),
            RowsOf::Edges => Cow::Borrowed(&self.sampled.edge_ids),
            RowsOf::NodesOf(range) => of_type(&mut self.sampled.nodes.iter(), range),
            RowsOf::EdgesOf(range) => of_type(&mut self.sampled.edge_ids.iter().copied(), range),
        }
    }
}

impl Group {
    /// Finds the distinct rows of `batches`.
    ///
    /// **Cost** one parallel sort of all node ids of the group.
    pub fn new(number: u64, batches: Vec<Part>, pool: &ThreadPool) -> Self {
        let nodes = || batches.iter().flat_map(|(sampled, _)| sampled.nodes.iter());
        let count = batches.iter().map(|(sampled, _)| sampled.nodes.len()).sum();
        let narrow = nodes().all(|node| node < 1 << 32);
        let (rows, index) = pool.install(|| {
            // The place of a node is stored in the low half of its key. Keys of half the size sort
            // in half the time.
            if narrow {
                distinct(
                    numbered(nodes(), count, |place, node| node << 32 | u64::from(place)),
                    |key| (key >> 32, key as u32),
                )
            } else {
                distinct(numbered(nodes(), count, |place, node| (node, place)), |key| key)
            }
        });

        let mut index = index.as_slice();
        let batches = batches
            .into_iter()
            .map(|(sampled, input_ids)| {
                let (own, rest) = index.split_at(sampled.nodes.len());
                index = rest;
                GroupBatch { sampled, input_ids, row_index: own.to_vec(), arrays: Vec::new() }
            })
            .collect();
        Self { number, batches, rows }
    }

    /// A group without rows to fetch.
    pub fn without_rows(number: u64, batches: Vec<Part>) -> Self {
        let batches = batches
            .into_iter()
            .map(|(sampled, input_ids)| GroupBatch {
                sampled,
                input_ids,
                row_index: Vec::new(),
                arrays: Vec::new(),
            })
            .collect();
        Self { number, batches, rows: Vec::new() }
    }

    /// Divides the batches into two halves, which must be grouped again.
    pub fn halve(self) -> (Vec<Part>, Vec<Part>) {
        let mut parts: Vec<Part> =
            self.batches.into_iter().map(|batch| (batch.sampled, batch.input_ids)).collect();
        let second = parts.split_off(parts.len() / 2);
        (parts, second)
    }

    /// Removes the rows that come from another source; their nodes get the index [`ELSEWHERE`].
    pub fn leave_out(&mut self, is_elsewhere: impl Fn(u64) -> bool) {
        let before = self.rows.len();
        let mut kept = Vec::with_capacity(before);
        let places: Vec<u32> = self
            .rows
            .iter()
            .map(|&row| {
                if is_elsewhere(row) {
                    return ELSEWHERE;
                }
                kept.push(row);
                (kept.len() - 1) as u32
            })
            .collect();
        if kept.len() == before {
            return;
        }
        self.rows = kept;
        for index in self.batches.iter_mut().flat_map(|batch| &mut batch.row_index) {
            *index = places[*index as usize];
        }
    }

    /// Row accesses before deduplication.
    pub fn accesses(&self) -> u64 {
        let here = |batch: &GroupBatch| {
            batch.row_index.iter().filter(|&&index| index != ELSEWHERE).count() as u64
        };
        self.batches.iter().map(here).sum()
    }
}

/// A batch before its rows are placed: the subgraph and the places of its seeds in the input.
pub type Part = (SampledBatch, Vec<u64>);

/// A key for each of `count` nodes, built from its place among them and the node.
fn numbered<K>(
    nodes: impl Iterator<Item = u64>,
    count: usize,
    key: impl Fn(u32, u64) -> K,
) -> Vec<K> {
    let (mut keys, mut place) = (Vec::with_capacity(count), 0);
    // Internal iteration: an external loop would check at each node which batch it is in.
    nodes.for_each(|node| {
        keys.push(key(place, node));
        place += 1;
    });
    keys
}

/// The distinct nodes of keys of (node, place), ascending; and for each place, the index of its
/// node.
fn distinct<K: Ord + Copy + Send>(
    mut keys: Vec<K>,
    parts: impl Fn(K) -> (u64, u32),
) -> (Vec<u64>, Vec<u32>) {
    keys.par_sort_unstable();
    let mut index = vec![0u32; keys.len()];
    let mut rows: Vec<u64> = Vec::with_capacity(keys.len());
    for &key in &keys {
        let (node, place) = parts(key);
        if rows.last() != Some(&node) {
            rows.push(node);
        }
        index[place as usize] = (rows.len() - 1) as u32;
    }
    drop(keys);
    rows.shrink_to_fit();
    (rows, index)
}
