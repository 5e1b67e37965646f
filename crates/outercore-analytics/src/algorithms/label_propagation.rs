//! Communities by label propagation.

use outercore_core::{Bytes, Error, Result};
use outercore_grid::GridShape;
use serde::{Deserialize, Serialize};

use super::beyond;
use crate::algorithm::{GraphAlgorithm, Leaves, Scale};
use crate::gather::{
    Adjacency, At, Gathered, Numbers, SPILL, neighbour_counts, results, tables_of, working,
};
use crate::output::{Isolated, Need, Raw};
use crate::partitions::all;
use crate::program::{Flow, Passes};
use crate::result::AnyRaw;
use crate::state::Table;
use crate::teleport::Teleport;

/// Options of [`label_propagation`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabelPropagation {
    /// Iterations at most, 1 or more.
    pub max_iterations: u32,
}

impl Default for LabelPropagation {
    fn default() -> Self {
        Self { max_iterations: 10 }
    }
}

impl GraphAlgorithm for LabelPropagation {
    fn validate(&self, _: u64) -> Result<()> {
        if self.max_iterations == 0 {
            let text = "label_propagation: max_iterations 0, expected at least 1";
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    fn leaves_checkpoints(&self) -> Leaves {
        Leaves::Always
    }

    fn need(&self, scale: &Scale<'_>) -> Need {
        let adjacency = (scale.shape.partitions() * scale.shape.partitions()) as u64;
        Need {
            state_per_node: 12,
            fixed: Bytes(adjacency + scale.shape.nodes.div_ceil(8)),
            output: Bytes(8 * scale.shape.nodes),
            working: Some(working(scale.shape, scale.largest)),
            passes: None,
            spill: Some(SPILL),
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        label_propagation(run, self.max_iterations).map(AnyRaw::from)
    }
}

/// A label for every node, shared by those that are close to each other: the id of some node.
///
/// Every node starts with its own id; in each iteration all nodes together take the label that is
/// most frequent among their neighbours, of equally frequent ones the smallest. In- and
/// out-neighbours both count, so an arc both ways counts twice, and so do parallel arcs; a loop
/// makes a node its own neighbour. Ends after `max_iterations`, or when nothing changes. Nodes
/// without arcs keep their id. Facts: `communities` (distinct labels), `iterations` and `settled`
/// (whether the last iteration changed nothing).
///
/// # Cost
/// An iteration is a gather: one pass where all slots fit into
/// memory. State: 12 bytes for each connected node.
///
/// # Errors
/// A failed or corrupt read; the wish to stop.
///
/// # Source
/// Raghavan, Albert, Kumara, "Near linear time algorithm to detect community structures in
/// large-scale networks", Physical Review E 76 (2007), in the synchronous and deterministic form
/// of LDBC Graphalytics (CDLP).
pub fn label_propagation<R: Passes>(run: &mut R, max_iterations: u32) -> Result<Raw<i64>> {
    let partitions = run.shape().partitions();
    let adjacency = Adjacency::of(run)?;
    let counts = neighbour_counts(run, Flow::Both)?;
    let begin = |run: &mut R, partition, _: &Vec<u32>| {
        Ok(Numbers { partition, values: run.nodes(partition)? })
    };
    let step = Gathered::new(true, |_, neighbours: &mut [u32]| most_frequent(neighbours));
    let (mut tables, at) = tables_of(&step, run, counts, begin)?;
    let mut at = at.unwrap_or_else(|| At { iterations: 0, wanted: all(partitions) });
    if at.iterations > u64::from(max_iterations) {
        return Err(beyond("label_propagation", at.iterations, max_iterations));
    }
    let max_iterations = u64::from(max_iterations);
    while at.iterations < max_iterations && at.wanted.contains(&true) {
        tables.checkpoint(run, &at)?;
        run.progress("iteration", at.iterations, max_iterations)?;
        let again = at.iterations + 1 < max_iterations;
        at.next(run, &adjacency, &step, &mut tables, again)?;
    }
    let mut facts = serde_json::Map::new();
    facts.insert("communities".into(), communities(run.shape(), &mut tables.shown)?.into());
    facts.insert("iterations".into(), at.iterations.into());
    facts.insert("settled".into(), (!at.wanted.contains(&true)).into());
    Ok(Raw { by_partition: results(tables.shown), isolated: Isolated::Itself, facts })
}

/// The most frequent of some labels, of equally frequent ones the smallest.
fn most_frequent(labels: &mut [u32]) -> u32 {
    labels.sort_unstable();
    let (mut best, mut most) = (labels[0], 0);
    for same in labels.chunk_by(|a, b| a == b) {
        if same.len() > most {
            (best, most) = (same[0], same.len());
        }
    }
    best
}

/// Distinct labels, those of the nodes without arcs included.
fn communities(shape: &GridShape, labels: &mut Table<Numbers>) -> Result<u64> {
    let mut seen = vec![0u64; shape.nodes.div_ceil(64) as usize];
    labels.each(|_, labels| {
        for &label in &labels.values {
            seen[label as usize / 64] |= 1 << (label % 64);
        }
        Ok(false)
    })?;
    let connected: u64 = seen.iter().map(|word| u64::from(word.count_ones())).sum();
    Ok(connected + shape.nodes - shape.connected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equally_frequent_labels_the_smallest_wins() {
        assert_eq!(most_frequent(&mut [9, 4, 9, 4, 7]), 4);
        assert_eq!(most_frequent(&mut [9, 4, 9, 4, 9]), 9);
        assert_eq!(most_frequent(&mut [5]), 5);
    }
}
