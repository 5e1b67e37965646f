//! Computes the previous node of each node on a shortest path, from known distances.

use outercore_core::Result;
use outercore_grid::Arcs;

use super::starts::Starts;
use crate::output::{Isolated, Raw};
use crate::partitions::all;
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::state::{Bits, Parts};

/// Bytes of predecessors per connected node, without the distances.
pub(crate) const PER_NODE: u64 = 8 + 4 + 1;

/// For each node, the previous node on a shortest path; -1 for sources and unreachable nodes.
///
/// Among several, the node with the smallest id that is nearer to a source. With arcs of weight 0,
/// no such node may be nearer. The result is then the smallest of those whose predecessor is
/// already known, round by round, so that following predecessors always ends at a source.
///
/// # Cost
/// One pass, and one more for each arc of weight 0 in a row.
pub(crate) fn predecessors<R: Passes>(
    run: &mut R,
    distances: &[Vec<f64>],
    starts: &Starts,
    weighted: bool,
    flow: Flow,
) -> Result<Parts<i64>> {
    let partitions = distances.len();
    let everywhere = all(partitions);
    let nodes: Vec<Vec<u32>> =
        (0..partitions).map(|part| run.nodes(part)).collect::<Result<_>>()?;
    let mut known: Vec<Bits> = (0..partitions)
        .map(|part| {
            let mut known = Bits::new(distances[part].len());
            starts.of(part).for_each(|local| known.insert(local));
            known
        })
        .collect();
    let sources: Vec<usize> = (0..partitions).collect();
    let mut found: Vec<Found> = distances
        .iter()
        .enumerate()
        .map(|(partition, distances)| Found { partition, before: vec![-1; distances.len()] })
        .collect();
    let select = Selection { sources: &everywhere, targets: &everywhere, flow, weights: weighted };
    let mut nearer = true;
    loop {
        run.progress("predecessors", 0, 1)?;
        let program = Before { distances, nodes: &nodes, known: &known, nearer };
        run.pass(&program, &sources, &mut found, &select)?;
        let (mut new, mut missing) = (false, false);
        for ((known, found), distances) in known.iter_mut().zip(&found).zip(distances) {
            for (local, &before) in found.before.iter().enumerate() {
                if !known.has(local) && before >= 0 {
                    known.insert(local);
                    new = true;
                }
                missing |= !known.has(local) && distances[local].is_finite();
            }
        }
        if !missing || !(new || nearer) {
            break;
        }
        nearer = false;
    }
    Ok(Parts::Here(found.into_iter().map(|found| found.before).collect()))
}

/// The predecessors as a result.
pub(crate) fn result(
    by_partition: Parts<i64>,
    facts: serde_json::Map<String, serde_json::Value>,
) -> Raw<i64> {
    Raw { by_partition, isolated: Isolated::Same(-1), facts }
}

struct Found {
    partition: usize,
    before: Vec<i64>,
}

/// Keeps the smallest id over all arcs that end a shortest path.
struct Before<'a> {
    distances: &'a [Vec<f64>],
    nodes: &'a [Vec<u32>],
    /// Nodes with a known predecessor, and sources.
    known: &'a [Bits],
    /// Whether to consider only nodes that are nearer to a source; otherwise, only nodes with a
    /// known predecessor.
    nearer: bool,
}

impl EdgeProgram for Before<'_> {
    /// The partition.
    type Source = usize;
    type Target = Found;

    fn apply(&self, arcs: &Arcs<'_>, &source: &usize, found: &mut Found) {
        let (from_distance, from_known) = (&self.distances[source], &self.known[source]);
        let (to_distance, to_known) =
            (&self.distances[found.partition], &self.known[found.partition]);
        let nodes = &self.nodes[source];
        arcs.for_each(|from, to, weight| {
            let (start, end) = (from_distance[from], to_distance[to]);
            // Infinity plus a weight is infinity, but no path leads there.
            if start + weight != end || end == f64::INFINITY || to_known.has(to) {
                return;
            }
            let follows = if self.nearer { start < end } else { from_known.has(from) };
            let (before, node) = (&mut found.before[to], i64::from(nodes[from]));
            if follows && (*before < 0 || node < *before) {
                *before = node;
            }
        });
    }
}
