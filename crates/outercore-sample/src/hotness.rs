//! Estimates which rows batches need most, for the constant part of a cache.
//!
//! [`presample`] samples part of an epoch in advance and counts. [`in_degree`] estimates from the
//! graph and needs almost no memory.

use std::collections::BTreeMap;

use outercore_cache::{hottest, hottest_of};
use outercore_core::{Bytes, NodeId, Result, Stream};
use outercore_store::{Extent, Topology};
use rayon::ThreadPool;

use crate::config::SampleConfig;
use crate::sampler::sample_group;
use crate::seeds::Seeds;

/// Columns whose degrees are looked up together.
const DEGREES_AT_ONCE: u64 = 64 << 10;

/// Settings of [`presample`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresampleConfig {
    /// Most batches to sample.
    pub max_batches: u64,
    /// Batches sampled together. More batches need more memory, and on disk fewer reads.
    pub group: usize,
}

impl Default for PresampleConfig {
    fn default() -> Self {
        Self { max_batches: 256, group: 8 }
    }
}

/// How many batches needed each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotRows {
    /// Number of batches that contained node `i`, at most 65,535.
    pub counts: Vec<u16>,
    /// Batches sampled.
    pub batches: u64,
}

impl HotRows {
    /// Memory of the counts. If it exceeds the caller's limit, use [`in_degree`] instead.
    pub const fn memory(nodes: u64) -> Bytes {
        Bytes(nodes * size_of::<u16>() as u64)
    }

    /// The `count` most needed nodes, ascending; nodes that no batch needed are left out.
    pub fn hottest(&self, count: usize) -> Vec<NodeId> {
        hottest_of(&self.counts, count)
    }

    /// Distribution of the accesses over the nodes.
    pub fn coverage(&self) -> Coverage {
        let mut rows_of = vec![0u64; usize::from(u16::MAX) + 1];
        for &count in &self.counts {
            rows_of[usize::from(count)] += 1;
        }
        Coverage::new((0..).zip(rows_of))
    }
}

/// The share of accesses that go to the hottest rows, for any number of rows.
///
/// # Example
/// ```
/// use outercore_sample::hotness::HotRows;
/// let coverage = HotRows { counts: vec![1, 6, 0, 3], batches: 6 }.coverage();
/// assert_eq!(coverage.share(1), 0.6);
/// assert_eq!(coverage.share(2), 0.9);
/// assert_eq!(coverage.share(100), 1.0);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coverage {
    /// Heat and the number of rows with this heat, hottest first.
    steps: Vec<(u64, u64)>,
    accesses: f64,
}

impl Coverage {
    /// Builds the coverage from pairs of (heat, number of rows with it), ascending.
    fn new(rows_of_heat: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut steps: Vec<_> = rows_of_heat.filter(|&(heat, rows)| heat > 0 && rows > 0).collect();
        steps.reverse();
        let accesses = steps.iter().map(|&(heat, rows)| heat as f64 * rows as f64).sum();
        Self { steps, accesses }
    }

    /// Share of accesses to the `rows` hottest rows, in `0.0..=1.0`.
    pub fn share(&self, rows: u64) -> f64 {
        if self.accesses == 0.0 {
            return 0.0;
        }
        let (mut left, mut covered) = (rows, 0.0);
        for &(heat, rows) in &self.steps {
            let taken = rows.min(left);
            covered += heat as f64 * taken as f64;
            left -= taken;
        }
        covered / self.accesses
    }

    /// Number of rows with a heat above zero.
    pub fn rows(&self) -> u64 {
        self.steps.iter().map(|step| step.1).sum()
    }
}

/// Samples up to `presample.max_batches` of `batches` and counts, for each node, the batches that
/// need it.
///
/// If `batches` are those of a coming epoch, with its order and stream, the counts are exact for
/// the sampled part.
///
/// **Cost** two bytes per node ([`HotRows::memory`]), the memory of one group, and the sampling
/// time.
///
/// # Errors
/// As [`sample_group`].
pub fn presample(
    topology: &dyn Topology,
    stream: Stream,
    batches: impl Iterator<Item = Seeds>,
    config: &SampleConfig,
    pool: &ThreadPool,
    presample: PresampleConfig,
) -> Result<HotRows> {
    let config = SampleConfig { edge_ids: false, ..config.clone() };
    let mut hot = HotRows { counts: vec![0; topology.num_nodes() as usize], batches: 0 };
    let mut batches = batches.take(presample.max_batches as usize);
    loop {
        let group: Vec<Seeds> = batches.by_ref().take(presample.group.max(1)).collect();
        if group.is_empty() {
            return Ok(hot);
        }
        for batch in sample_group(topology, stream, group, &config, pool)? {
            hot.batches += 1;
            for node in batch.nodes.iter() {
                let count = &mut hot.counts[node as usize];
                *count = count.saturating_add(1);
            }
        }
    }
}

/// The `count` columns with the most in-edges, ascending, and the distribution of in-edges.
///
/// A column is a node; in a typed graph a node has one column for each edge type into it. If edges
/// go both ways, a node is sampled about as often as it has neighbours.
///
/// **Cost** one pass over the offsets; 20 bytes per requested row.
///
/// # Errors
/// Errors of the topology.
pub fn in_degree(topology: &dyn Topology, count: usize) -> Result<(Vec<NodeId>, Coverage)> {
    let mut rows_of: BTreeMap<u64, u64> = BTreeMap::new();
    let mut failed = None;
    let columns = topology.num_columns();
    let mut extents = Vec::new();
    let mut chunks = (0..columns).step_by(DEGREES_AT_ONCE as usize);
    let mut asked = Vec::new();
    let mut at = 0;
    let degrees = std::iter::from_fn(|| {
        if at == extents.len() {
            let start = chunks.next()?;
            asked.clear();
            asked.extend(start..(start + DEGREES_AT_ONCE).min(columns));
            extents.resize(asked.len(), Extent::default());
            if let Err(error) = topology.extents(&asked, &mut extents) {
                failed = Some(error);
                return None;
            }
            at = 0;
        }
        let (column, degree) = (asked[at], extents[at].degree);
        *rows_of.entry(degree).or_default() += 1;
        at += 1;
        Some((column, degree))
    });
    let rows = hottest(degrees, count);
    match failed {
        Some(error) => Err(error),
        None => Ok((rows, Coverage::new(rows_of.into_iter()))),
    }
}
