//! Breadth-first search by levels.

use outercore_core::{Bytes, Result};
use outercore_grid::{Arcs, GridShape, Side};

use super::{all, each_partition, expect_same};
use crate::output::{Isolated, Need, Raw};
use crate::program::{EdgeProgram, Flow, Passes, Selection};

/// What a search takes.
pub fn need(shape: &GridShape) -> Need {
    Need { state_per_node: 5, output: Bytes(4 * shape.nodes), ..Need::default() }
}

/// A set of local ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    pub(crate) fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    #[inline(always)]
    pub(crate) fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    #[inline(always)]
    pub(crate) fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let rest = |word: u64| (word != 0).then_some(word);
            std::iter::successors(rest(word), move |word| rest(word & (word - 1)))
                .map(move |word| at * 64 + word.trailing_zeros() as usize)
        })
    }
}

struct Step {
    level: i32,
}

struct Reached {
    visited: Bits,
    next: Bits,
    level: Vec<i32>,
}

impl Reached {
    #[inline(always)]
    fn reach(&mut self, local: usize, level: i32) {
        self.visited.insert(local);
        self.next.insert(local);
        self.level[local] = level;
    }
}

impl EdgeProgram for Step {
    type Source = Bits;
    type Target = Reached;

    fn apply(&self, arcs: &Arcs<'_>, frontier: &Bits, target: &mut Reached) {
        match arcs.side {
            // Bottom-up: a row is done with its first neighbour in the frontier.
            Side::ToRows => {
                for (row, columns, _) in arcs.rows() {
                    if !target.visited.has(row)
                        && columns.iter().any(|&column| frontier.has(usize::from(column)))
                    {
                        target.reach(row, self.level);
                    }
                }
            }
            Side::ToColumns => {
                for (row, columns, _) in arcs.rows() {
                    if !frontier.has(row) {
                        continue;
                    }
                    for &column in columns {
                        if !target.visited.has(usize::from(column)) {
                            target.reach(usize::from(column), self.level);
                        }
                    }
                }
            }
        }
    }
}

/// The fewest arcs from `source` to every node; -1 where there is no way.
///
/// A pass for each level visits the blocks between partitions with nodes of the last level and
/// partitions with nodes not yet reached. A source without arcs reaches itself, which is the
/// caller's to enter: isolated nodes have no place here.
///
/// Facts: `reached` (nodes, the source included), `levels` (the largest distance).
///
/// # Errors
/// Those of the passes.
///
/// **Source**: bottom-up steps as in Beamer, Asanovic, Patterson, "Direction-optimizing
/// breadth-first search" (2012); here every block decides by its orientation.
pub fn bfs<R: Passes>(run: &mut R, source: u64, flow: Flow) -> Result<Raw<i32>> {
    let parts = run.shape().partitions();
    let lens: Vec<usize> = (0..parts).map(|part| run.shape().partition_len(part)).collect();
    let mut frontier: Vec<Bits> = lens.iter().map(|&len| Bits::new(len)).collect();
    let mut targets: Vec<Reached> = lens
        .iter()
        .map(|&len| Reached { visited: Bits::new(len), next: Bits::new(len), level: vec![-1; len] })
        .collect();
    let mut active = vec![false; parts];
    let mut open = all(parts);
    if let Some((part, local)) = run.place(&[source])?[0] {
        frontier[part].insert(local);
        targets[part].visited.insert(local);
        targets[part].level[local] = 0;
        active[part] = true;
    }
    let mut reached = 1;
    let mut levels = 0;
    for level in 1.. {
        if !active.contains(&true) || !open.contains(&true) {
            break;
        }
        run.progress("level", level as u64, 0)?;
        let select = Selection { sources: &active, targets: &open, flow, weights: false };
        expect_same(run, &select);
        run.pass(&Step { level }, &frontier, &mut targets, &select)?;
        let mut both: Vec<(&mut Bits, &mut Reached)> =
            frontier.iter_mut().zip(&mut targets).collect();
        let counts = each_partition(run, &mut both, |_, (frontier, target)| {
            std::mem::swap(*frontier, &mut target.next);
            target.next.clear();
            (frontier.count(), target.visited.count())
        });
        for (part, (new, visited)) in counts.into_iter().enumerate() {
            active[part] = new > 0;
            open[part] = visited < lens[part];
            reached += new as u64;
            if new > 0 {
                levels = level;
            }
        }
    }
    let mut facts = serde_json::Map::new();
    facts.insert("reached".into(), reached.into());
    facts.insert("levels".into(), levels.into());
    let by_partition = targets.into_iter().map(|target| target.level).collect();
    Ok(Raw { by_partition, isolated: Isolated::Same(-1), facts })
}
