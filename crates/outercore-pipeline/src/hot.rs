//! Which rows deserve the constant part.

use std::cmp::Reverse;
use std::ops::Range;

use outercore_core::Result;
use outercore_sample::hotness::in_degree;
use outercore_store::{Extent, Topology};

use crate::sampling::Sampling;

/// Batches sampled together while counting.
const GROUP: usize = 4;

/// The rows that `batches` of epoch 0 need most often, by falling count (at most `slots`).
///
/// **Cost** samples the batches; two bytes a node while counting.
///
/// **Source** Helios 3.2.2, pre-sampling.
pub fn by_presampling(sampling: &Sampling, batches: Range<u64>, slots: usize) -> Result<Vec<u64>> {
    let hot = sampling.presample(batches, GROUP)?;
    let mut rows = hot.hottest(slots);
    rows.sort_by_key(|&row| (Reverse(hot.counts[row as usize]), row));
    Ok(rows)
}

/// The rows of the nodes with most in-edges, by falling in-degree (at most `slots`).
///
/// In an undirected graph these are the nodes that are sampled most often.
///
/// **Cost** one pass over the offsets, and one look at those of the rows chosen.
pub fn by_in_degree(topology: &dyn Topology, slots: usize) -> Result<Vec<u64>> {
    let (rows, _) = in_degree(topology, slots)?;
    let mut extents = vec![Extent::default(); rows.len()];
    topology.extents(&rows, &mut extents)?;
    let mut by_heat: Vec<(Reverse<u64>, u64)> =
        extents.iter().zip(&rows).map(|(extent, &row)| (Reverse(extent.degree), row)).collect();
    by_heat.sort_unstable();
    Ok(by_heat.into_iter().map(|(_, row)| row).collect())
}
