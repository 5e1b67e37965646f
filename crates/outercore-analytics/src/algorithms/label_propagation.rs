//! Communities by label propagation.

use outercore_core::{Bytes, Error, Result, Stream, mix};
use outercore_grid::GridShape;
use serde::{Deserialize, Serialize};

use super::beyond;
use crate::algorithm::{GraphAlgorithm, Leaves, Scale};
use crate::gather::{
    Adjacency, At, Gathered, Numbers, SPILL, neighbour_counts, results, tables_of, working,
};
use crate::output::{Isolated, Need, Raw};
use crate::program::{Flow, Passes};
use crate::result::AnyRaw;
use crate::state::Table;
use crate::teleport::Teleport;

/// Options of [`label_propagation`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LabelPropagation {
    /// Most iterations, at least 1.
    pub max_iterations: u32,
    /// Which nodes may take a new label in an iteration.
    pub update: Update,
    /// Seed of the draws of `asynchronous`.
    pub seed: u64,
}

/// Which nodes may take a new label in an iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Update {
    /// All nodes together, as in LDBC Graphalytics.
    #[default]
    Synchronous,
    /// Nodes whose current label is drawn; three quarters of the labels are.
    Asynchronous,
}

impl Default for LabelPropagation {
    fn default() -> Self {
        Self { max_iterations: 10, update: Update::Synchronous, seed: 0 }
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
        label_propagation(run, self).map(AnyRaw::from)
    }
}

/// A label for every node, shared by nodes that are close to each other: the id of some node.
///
/// Every node starts with its id as label. In each iteration, all nodes together take the most
/// frequent label of their neighbours, and among equally frequent labels the smallest. In- and
/// out-neighbours both count, so arcs in both directions count twice, and so do parallel arcs; a
/// loop makes a node its own neighbour. Ends after `max_iterations`, or when no label changes.
/// Nodes without arcs keep their id. Facts: `communities` (distinct labels), `iterations`,
/// `settled` (whether the last iteration changed nothing) and `alternating`. The last is the number
/// of nodes whose labels alternate between two, as on bipartite graphs, where both sides only
/// exchange their labels; it is 0 while other labels change too.
///
/// `Asynchronous` differs in three points. A node keeps its label if it is among the most frequent.
/// Among other equally frequent labels, one is drawn for the whole run, because the smallest label
/// would spread over the whole graph. A node changes only in iterations for which its label is
/// drawn. Two labels that would be exchanged are soon drawn differently, so this update settles
/// where the synchronous one alternates.
///
/// # Cost
/// An iteration is a gather: one pass if all slots fit into memory. State: 12 bytes per connected
/// node.
///
/// # Errors
/// A failed or corrupt read; a stop request.
///
/// # Source
/// Raghavan, Albert, Kumara, "Near linear time algorithm to detect community structures in
/// large-scale networks", Physical Review E 76 (2007), in the synchronous and deterministic form of
/// LDBC Graphalytics (CDLP). `Asynchronous` is between that and the sequential form of Raghavan:
/// streamed edges can only show the labels of the previous pass.
pub fn label_propagation<R: Passes>(run: &mut R, options: &LabelPropagation) -> Result<Raw<i64>> {
    let max_iterations = options.max_iterations;
    let partitions = run.shape().partitions();
    let adjacency = Adjacency::of(run)?;
    let counts = neighbour_counts(run, Flow::Both)?;
    let begin = |run: &mut R, partition, _: &Vec<u32>| {
        Ok(Numbers { partition, values: run.nodes(partition)? })
    };
    let (mut tables, at) = tables_of(&step(options, 0), run, counts, begin)?;
    let mut at = at.unwrap_or_else(|| At::first(partitions));
    if at.iterations > u64::from(max_iterations) {
        return Err(beyond("label_propagation", at.iterations, max_iterations));
    }
    let max_iterations = u64::from(max_iterations);
    while at.iterations < max_iterations && at.wanted.contains(&true) {
        tables.checkpoint(run, &at)?;
        run.progress("iteration", at.iterations, max_iterations)?;
        let again = at.iterations + 1 < max_iterations;
        let step = step(options, at.iterations);
        at.next(run, &adjacency, &step, &mut tables, again)?;
    }
    let mut facts = serde_json::Map::new();
    facts.insert("communities".into(), communities(run.shape(), &mut tables.shown)?.into());
    facts.insert("iterations".into(), at.iterations.into());
    facts.insert("settled".into(), (!at.wanted.contains(&true)).into());
    let alternating = match options.update {
        Update::Synchronous => at.alternating,
        // Each iteration has different draws, so a return to earlier labels does not repeat.
        Update::Asynchronous => 0,
    };
    facts.insert("alternating".into(), alternating.into());
    Ok(Raw { by_partition: results(tables.shown), isolated: Isolated::Itself, facts })
}

/// The update of nodes in an iteration.
fn step(
    options: &LabelPropagation,
    iteration: u64,
) -> Gathered<impl Fn(u32, &mut [u32]) -> (u32, bool) + Sync + use<>> {
    let (update, seed) = (options.update, options.seed);
    Gathered::new(true, move |own, neighbours: &mut [u32]| match update {
        Update::Synchronous => (most_frequent(neighbours), false),
        Update::Asynchronous => {
            let wanted = preferred(own, neighbours, seed);
            if wanted == own || moves(own, seed, iteration) { (wanted, false) } else { (own, true) }
        }
    })
}

/// The most frequent label; among equally frequent ones `own`, otherwise the label with the
/// smallest draw.
fn preferred(own: u32, labels: &mut [u32], seed: u64) -> u32 {
    let draw = |label: u32| (mix(seed ^ mix(u64::from(label))), label);
    labels.sort_unstable();
    let (mut best, mut most) = (own, 0);
    for same in labels.chunk_by(|a, b| a == b) {
        let label = same[0];
        let first = || best != own && (label == own || draw(label) < draw(best));
        if same.len() > most || (same.len() == most && first()) {
            (best, most) = (label, same.len());
        }
    }
    best
}

/// Whether nodes with a label may change in an iteration: three of four labels may. With one of
/// two, planted communities needed half as many iterations again; if all labels may change,
/// bipartite graphs alternate.
fn moves(label: u32, seed: u64, iteration: u64) -> bool {
    Stream::new(seed, iteration).uniform(0, 0, u64::from(label)).below(4) > 0
}

/// The most frequent label; among equally frequent ones the smallest.
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

/// Number of distinct labels, including nodes without arcs.
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

    #[test]
    fn a_label_that_is_among_the_most_frequent_is_kept() {
        for seed in 0..20 {
            assert_eq!(preferred(7, &mut [9, 4, 9, 4, 7, 7], seed), 7, "seed {seed}");
            assert_eq!(preferred(7, &mut [9, 4, 9, 4, 9, 7], seed), 9, "seed {seed}");
            assert_eq!(preferred(7, &mut [5], seed), 5, "seed {seed}");
        }
        let drawn = [0u64, 1, 2, 3, 4, 5, 6, 7].map(|seed| preferred(1, &mut [9, 4], seed));
        assert!(drawn.contains(&4) && drawn.contains(&9), "{drawn:?}");
    }
}
