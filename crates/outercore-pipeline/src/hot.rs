//! Which rows deserve the constant part.

use std::cmp::Reverse;
use std::ops::Range;

use outercore_cache::{hottest, hottest_of};
use outercore_core::Result;
use outercore_store::{Extent, Topology};

use crate::sampling::Sampling;

/// Batches sampled at once while counting.
const STEP: u64 = 4;

/// Nodes asked for their degree at once.
const DEGREE_STEP: u64 = 1 << 16;

/// The rows that batches `range` of epoch 0 need most often, by falling count (at most `slots`).
///
/// **Cost** samples the batches; two bytes a node while counting.
///
/// **Source** Helios 3.2.2, pre-sampling.
pub fn by_presampling(sampling: &Sampling, range: Range<u64>, slots: usize) -> Result<Vec<u64>> {
    let mut counts = vec![0u16; sampling.topology.num_nodes() as usize];
    let mut next = range.start;
    while next < range.end {
        let until = (next + STEP).min(range.end);
        for (sampled, _) in sampling.sample(0, next..until)? {
            for node in sampled.nodes {
                let count = &mut counts[node as usize];
                *count = count.saturating_add(1);
            }
        }
        next = until;
    }
    let mut rows = hottest_of(&counts, slots);
    rows.sort_by_key(|&row| (Reverse(counts[row as usize]), row));
    Ok(rows)
}

/// The rows of the nodes with most in-edges, by falling in-degree (at most `slots`).
///
/// In an undirected graph these are the nodes that are sampled most often.
///
/// **Cost** one pass over the offsets.
pub fn by_in_degree(topology: &dyn Topology, slots: usize) -> Result<Vec<u64>> {
    let mut failed = None;
    let degrees = (0..topology.num_nodes().div_ceil(DEGREE_STEP)).flat_map(|step| {
        let start = step * DEGREE_STEP;
        let nodes: Vec<u64> = (start..(start + DEGREE_STEP).min(topology.num_nodes())).collect();
        let extents = match extents_of(topology, &nodes) {
            Ok(extents) => extents,
            Err(error) => {
                failed.get_or_insert(error);
                Vec::new()
            }
        };
        nodes.into_iter().zip(extents).map(|(node, extent)| (node, extent.degree))
    });
    let mut rows = hottest(degrees, slots);
    if let Some(error) = failed {
        return Err(error);
    }
    let extents = extents_of(topology, &rows)?;
    let mut by_heat: Vec<(Reverse<u64>, u64)> =
        extents.iter().zip(&rows).map(|(extent, &row)| (Reverse(extent.degree), row)).collect();
    by_heat.sort_unstable();
    rows.clear();
    rows.extend(by_heat.into_iter().map(|(_, row)| row));
    Ok(rows)
}

fn extents_of(topology: &dyn Topology, nodes: &[u64]) -> Result<Vec<Extent>> {
    let mut extents = vec![Extent::default(); nodes.len()];
    topology.extents(nodes, &mut extents)?;
    Ok(extents)
}
