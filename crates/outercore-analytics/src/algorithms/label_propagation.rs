//! Communities by label propagation.

use outercore_core::{Bytes, Result};
use outercore_grid::GridShape;

use super::all;
use crate::gather::{Adjacency, Gathering, gather_counted, neighbour_counts, working};
use crate::output::{Isolated, Need, Raw};
use crate::program::{Flow, Passes};

/// What [`label_propagation`] takes; `largest`: the most arcs of a partition, in and out taken
/// together.
pub fn need(shape: &GridShape, largest: u64) -> Need {
    let adjacency = (shape.partitions() * shape.partitions()) as u64;
    Need {
        state_per_node: 12,
        fixed: Bytes(adjacency + shape.nodes.div_ceil(8)),
        output: Bytes(8 * shape.nodes),
        working: Some(working(shape, largest)),
        passes: None,
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
/// An iteration is a [gather](crate::gather::gather): one pass where all slots fit into
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
    let mut labels =
        (0..partitions).map(|partition| run.nodes(partition)).collect::<Result<Vec<_>>>()?;
    let mut wanted = all(partitions);
    let mut iterations = 0;
    while iterations < max_iterations && wanted.contains(&true) {
        let (done, total) = (u64::from(iterations), u64::from(max_iterations));
        run.progress("iteration", done, total)?;
        let again = iterations + 1 < max_iterations;
        let gathering = Gathering { flow: Flow::Both, loops: true, again };
        let found =
            gather_counted(run, &counts, &labels, &wanted, gathering, |_, _, neighbours| {
                most_frequent(neighbours)
            })?;
        let mut changed = vec![false; partitions];
        for (partition, found) in found.into_iter().enumerate() {
            if let Some(found) = found {
                changed[partition] = found != labels[partition];
                labels[partition] = found;
            }
        }
        wanted = adjacency.beside(&changed);
        iterations += 1;
    }
    let mut facts = serde_json::Map::new();
    facts.insert("communities".into(), communities(run.shape(), &labels).into());
    facts.insert("iterations".into(), iterations.into());
    facts.insert("settled".into(), (!wanted.contains(&true)).into());
    Ok(Raw {
        by_partition: labels
            .into_iter()
            .map(|labels| labels.into_iter().map(i64::from).collect())
            .collect(),
        isolated: Isolated::Itself,
        facts,
    })
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
fn communities(shape: &GridShape, labels: &[Vec<u32>]) -> u64 {
    let mut seen = vec![0u64; shape.nodes.div_ceil(64) as usize];
    for &label in labels.iter().flatten() {
        seen[label as usize / 64] |= 1 << (label % 64);
    }
    let connected: u64 = seen.iter().map(|word| u64::from(word.count_ones())).sum();
    connected + shape.nodes - shape.connected
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
