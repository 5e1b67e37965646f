//! Connected components, with directions ignored.

mod smallest;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use outercore_core::{Bytes, Result};
use outercore_grid::Arcs;
use serde::{Deserialize, Serialize};

use crate::algorithm::{GraphAlgorithm, Leaves, Scale};
use crate::output::{Isolated, Need, Raw};
use crate::partitions::all;
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::result::AnyRaw;
use crate::state::Parts;
use crate::teleport::Teleport;

/// Options of [`wcc`], which has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wcc {}

impl GraphAlgorithm for Wcc {
    fn leaves_checkpoints(&self) -> Leaves {
        Leaves::WhereSpilled
    }

    fn need(&self, scale: &Scale<'_>) -> Need {
        Need {
            // Parents, the smallest node of each tree, and the result.
            state_per_node: 16,
            output: Bytes(8 * scale.shape.nodes),
            passes: Some(1),
            spill: Some(smallest::NEED),
            ..Need::default()
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        wcc(run).map(AnyRaw::from)
    }
}

/// Trees over all nodes; local id l of partition p has the number `starts[p] + l`.
struct Forest {
    parents: Vec<AtomicU32>,
}

impl Forest {
    /// The root of a tree; halves the path for later calls.
    fn root(&self, mut at: u32) -> u32 {
        loop {
            let parent = self.parents[at as usize].load(Relaxed);
            if parent == at {
                return at;
            }
            let above = self.parents[parent as usize].load(Relaxed);
            if above != parent {
                // A parent is only ever replaced by an ancestor, so after a lost race it is still
                // an ancestor.
                self.parents[at as usize].store(above, Relaxed);
            }
            at = above;
        }
    }

    /// Joins two trees by hanging the larger root under the smaller one; returns the common root.
    fn join(&self, a: u32, b: u32) -> u32 {
        let (mut a, mut b) = (self.root(a), self.root(b));
        while a != b {
            let (small, large) = (a.min(b), a.max(b));
            match self.parents[large as usize].compare_exchange(large, small, Relaxed, Relaxed) {
                Ok(_) => return small,
                // Another thread has hooked the root meanwhile.
                Err(_) => (a, b) = (self.root(small), self.root(large)),
            }
        }
        a
    }
}

impl EdgeProgram for Forest {
    /// Number of a partition's first node.
    type Source = u32;
    type Target = u32;

    fn apply(&self, arcs: &Arcs<'_>, source: &u32, target: &mut u32) {
        for (row, columns, _) in arcs.rows() {
            let row = *target + row as u32;
            let mut root = self.root(row);
            for &column in columns {
                let column = *source + u32::from(column);
                // Most arcs join nothing, because the neighbour already has the same root.
                if self.parents[column as usize].load(Relaxed) != root {
                    root = self.join(root, column);
                }
            }
        }
    }
}

/// The smallest node id of every node's component, with directions ignored.
///
/// In memory, one pass over the stored edges joins trees. The shape of the trees depends on the
/// order of work, the components do not. If memory has no room for the trees, connected nodes
/// inside a partition are joined once. Each such set then takes the smallest node id of its
/// neighbours, pass by pass, until nothing changes. The number of passes is at most the number of
/// partition changes on a path through a component.
///
/// Facts: `components`, `largest` (nodes of the largest component); both include nodes without
/// arcs.
///
/// # Errors
/// Errors of the pass.
///
/// **Source**: union-find with hooking by compare-and-swap and path halving, as in Jayanti and
/// Tarjan, "A randomized concurrent algorithm for disjoint set union" (2016), with roots ordered by
/// number.
pub fn wcc<R: Passes>(run: &mut R) -> Result<Raw<i64>> {
    if run.spill().is_some() {
        return smallest::wcc(run);
    }
    let parts = run.shape().partitions();
    let isolated = run.shape().nodes - run.shape().connected;
    let mut starts = Vec::with_capacity(parts);
    let mut next = 0;
    for part in 0..parts {
        starts.push(next);
        next += run.shape().partition_len(part) as u32;
    }
    let forest = Forest { parents: (0..next).map(AtomicU32::new).collect() };
    let everywhere = all(parts);
    let select =
        Selection { sources: &everywhere, targets: &everywhere, flow: Flow::Once, weights: false };
    run.pass(&forest, &starts, &mut starts.clone(), &select)?;

    let mut smallest = vec![u32::MAX; next as usize];
    for (part, &start) in starts.iter().enumerate() {
        for (number, id) in (start..).zip(run.nodes(part)?) {
            let least = &mut smallest[forest.root(number) as usize];
            *least = id.min(*least);
        }
    }
    let lens: Vec<usize> = (0..parts).map(|part| run.shape().partition_len(part)).collect();
    let by_partition = run.partitions(|part| {
        let numbers = starts[part]..starts[part] + lens[part] as u32;
        numbers.map(|number| i64::from(smallest[forest.root(number) as usize])).collect()
    });
    let mut sizes = smallest;
    sizes.fill(0);
    for number in 0..next {
        sizes[forest.root(number) as usize] += 1;
    }
    let components = sizes.iter().filter(|&&size| size > 0).count() as u64 + isolated;
    let largest = sizes.iter().copied().max().unwrap_or(0).max(u32::from(isolated > 0));
    let mut facts = serde_json::Map::new();
    facts.insert("components".into(), components.into());
    facts.insert("largest".into(), largest.into());
    Ok(Raw { by_partition: Parts::Here(by_partition), isolated: Isolated::Itself, facts })
}
