//! Core numbers.

use outercore_core::{Bytes, Result};
use serde::{Deserialize, Serialize};

use crate::algorithm::{GraphAlgorithm, Leaves, Scale};
use crate::gather::{
    Adjacency, At, Gathered, Numbers, SPILL, neighbour_counts, results, tables_of, working,
};
use crate::output::{Isolated, Need, Raw};
use crate::program::{Flow, Passes};
use crate::result::AnyRaw;
use crate::teleport::Teleport;

/// Options of [`kcore`], which has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kcore {}

impl GraphAlgorithm for Kcore {
    fn leaves_checkpoints(&self) -> Leaves {
        Leaves::Always
    }

    fn need(&self, scale: &Scale<'_>) -> Need {
        Need {
            state_per_node: 12,
            fixed: Bytes((scale.shape.partitions() * scale.shape.partitions()) as u64),
            output: Bytes(8 * scale.shape.nodes),
            working: Some(working(scale.shape, scale.largest)),
            passes: None,
            spill: Some(SPILL),
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        kcore(run).map(AnyRaw::from)
    }
}

/// The core number of every node: the largest k such that the node belongs to a subgraph in which
/// every node has k neighbours.
///
/// Directions and loops are ignored; parallel edges are counted. Nodes without arcs have the core
/// number 0. Facts: `degeneracy` (the largest core number) and `iterations`.
///
/// # Method
/// Every node starts with its degree. It then takes the h-index of its neighbours' values if that
/// is smaller, until no value changes. Values never fall below the core number, and only core
/// numbers are a fixed point. Partitions without a changed neighbour are skipped.
///
/// # Cost
/// An iteration is a gather: one pass if all slots fit into memory. There are rarely more than a
/// hundred iterations, but a path of n nodes needs n / 2. State: 12 bytes per connected node.
///
/// # Errors
/// A failed or corrupt read; a stop request.
///
/// # Source
/// Montresor, De Pellegrini, Miorandi, "Distributed k-core decomposition", TPDS 24 (2013); Lü,
/// Zhou, Zhang, Stanley, "The H-index of a network node and its relation to degree and coreness",
/// Nature Communications 7 (2016).
pub fn kcore<R: Passes>(run: &mut R) -> Result<Raw<i64>> {
    let partitions = run.shape().partitions();
    let adjacency = Adjacency::of(run)?;
    let counts = neighbour_counts(run, Flow::Both)?;
    let begin =
        |_: &mut R, partition, counts: &Vec<u32>| Ok(Numbers { partition, values: counts.clone() });
    let step = Gathered::new(false, |bound, values: &mut [u32]| (h_index(bound, values), false));
    let (mut tables, at) = tables_of(&step, run, counts, begin)?;
    let mut at = at.unwrap_or_else(|| At::first(partitions));
    while at.wanted.contains(&true) {
        tables.checkpoint(run, &at)?;
        run.progress("iteration", at.iterations, 0)?;
        // Until an iteration changes nothing, so another one may always follow.
        at.next(run, &adjacency, &step, &mut tables, true)?;
    }
    let mut degeneracy = 0;
    tables.shown.each(|_, shown| {
        degeneracy = shown.values.iter().copied().max().unwrap_or(0).max(degeneracy);
        Ok(false)
    })?;
    let mut facts = serde_json::Map::new();
    facts.insert("degeneracy".into(), degeneracy.into());
    facts.insert("iterations".into(), at.iterations.into());
    Ok(Raw { by_partition: results(tables.shown), isolated: Isolated::Same(0), facts })
}

/// The largest h, at most `bound`, for which h of `values` are at least h.
///
/// By bisection: counting is one comparison per value, several at a time, which a sort is not.
/// After the first iterations, the bound itself nearly always holds, so it is tested first.
fn h_index(bound: u32, values: &[u32]) -> u32 {
    let holds = |h: u32| {
        let enough = values.iter().filter(|&&value| value >= h).count();
        enough as u64 >= u64::from(h)
    };
    let bound = bound.min(u32::try_from(values.len()).unwrap_or(u32::MAX));
    if holds(bound) {
        return bound;
    }
    let (mut least, mut most) = (0, bound - 1);
    while least < most {
        let middle = least + (most - least).div_ceil(2);
        if holds(middle) { least = middle } else { most = middle - 1 }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_h_index_is_bounded_and_counts_values() {
        assert_eq!(h_index(9, &[]), 0);
        assert_eq!(h_index(9, &[0, 0]), 0);
        assert_eq!(h_index(9, &[1, 5, 3, 3, 1]), 3);
        assert_eq!(h_index(2, &[1, 5, 3, 3, 1]), 2);
        assert_eq!(h_index(0, &[7]), 0);
    }
}
