//! Breadth-first search by levels.

use outercore_core::{Bytes, Result};
use outercore_grid::{Arcs, Side};
use serde::{Deserialize, Serialize};

use super::predecessors::{self, predecessors};
use super::starts::Starts;
use crate::algorithm::{
    FlowName, GraphAlgorithm, Leaves, PathResult, Scale, Source, require_nodes,
};
use crate::output::{Isolated, Need, Raw, ResultTable, SpillNeed};
use crate::partitions::{all, is_everywhere};
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::result::AnyRaw;
use crate::state::{Bits, Closed, PerNode, Step, Stored, Table, Tables, Traffic};
use crate::teleport::Teleport;

/// The search to run; see [`bfs`].
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Ids of the start nodes.
    pub sources: &'a [u64],
    /// The direction in which arcs are followed.
    pub flow: Flow,
    /// The search ends after this many levels.
    pub cutoff: Option<u32>,
}

impl<'a> Search<'a> {
    /// A search from these sources without a cut-off.
    pub fn new(sources: &'a [u64], flow: Flow) -> Self {
        Self { sources, flow, cutoff: None }
    }
}

/// Options of [`bfs`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bfs {
    /// The start nodes.
    pub source: Source,
    /// The direction in which arcs are followed.
    #[serde(default, rename = "direction")]
    pub flow: FlowName,
    /// The search ends after this many levels.
    #[serde(default)]
    pub cutoff: Option<u32>,
    /// Levels or predecessors.
    #[serde(default)]
    pub result: PathResult,
}

impl GraphAlgorithm for Bfs {
    fn validate(&self, nodes: u64) -> Result<()> {
        require_nodes("bfs", "source", self.source.nodes(), nodes)
    }

    fn leaves_checkpoints(&self) -> Leaves {
        if self.result.is_before() { Leaves::Never } else { Leaves::Always }
    }

    /// Predecessors are computed from levels in memory.
    fn need(&self, scale: &Scale<'_>) -> Need {
        if self.result.is_before() {
            // Levels from the search, then as distances.
            return Need {
                state_per_node: 5 + 8 + predecessors::PER_NODE,
                output: Bytes(8 * scale.shape.nodes),
                ..Need::default()
            };
        }
        Need {
            state_per_node: 5,
            output: Bytes(4 * scale.shape.nodes),
            spill: Some(SpillNeed {
                shown: PerNode::new(0, 1),
                fixed: PerNode::NONE,
                own: PerNode::new(4, 0),
                target: PerNode::new(4, 2),
                traffic: TRAFFIC,
                writes_own: true,
                any_order: true,
                flow: self.flow.into(),
                result: ResultTable::Own,
            }),
            ..Need::default()
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        let search =
            Search { sources: self.source.nodes(), flow: self.flow.into(), cutoff: self.cutoff };
        match self.result {
            PathResult::Distances => bfs(run, &search).map(AnyRaw::from),
            PathResult::Predecessors => bfs_predecessors(run, &search).map(AnyRaw::from),
        }
    }

    /// A source without arcs still reaches itself.
    fn zeros<R: Passes>(&self, _: &mut R) -> Result<Vec<u64>> {
        let sources = if self.result.is_before() { &[] } else { self.source.nodes() };
        Ok(sources.to_vec())
    }
}

/// A level.
struct Level {
    step: Hop,
}

struct Hop {
    level: i32,
}

#[derive(Default)]
struct Reached {
    level: Vec<i32>,
    /// Derived from the levels.
    visited: Bits,
    /// Empty between levels.
    next: Bits,
}

impl Stored for Reached {
    fn like(&self, len: usize) -> Self {
        Self { level: vec![-1; len], visited: Bits::new(len), next: Bits::new(len) }
    }

    fn columns(&self) -> Vec<&[u8]> {
        self.level.columns()
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        self.level.columns_mut()
    }

    fn restored(&mut self, _: usize) {
        for (local, &level) in self.level.iter().enumerate() {
            if level >= 0 {
                self.visited.insert(local);
            }
        }
    }
}

impl Step for Level {
    type Program = Hop;
    /// The nodes of the previous level.
    type Shown = Bits;
    type Fixed = ();
    type Own = Reached;
    type Target = Reached;
    /// Number of nodes of this level, and of all levels so far.
    type Report = (usize, usize);
    const TRAFFIC: Traffic = TRAFFIC;
    const ANY_ORDER: bool = true;
    const QUIET: bool = true;

    fn program(&self) -> &Hop {
        &self.step
    }

    fn open(&self, _: usize, _: &Bits, (): &(), own: &mut Reached) -> Reached {
        std::mem::take(own)
    }

    fn close(
        &self,
        _: usize,
        mut target: Reached,
        frontier: &mut Bits,
        (): &(),
        own: &mut Reached,
    ) -> Closed<(usize, usize)> {
        std::mem::swap(frontier, &mut target.next);
        target.next.clear();
        let new = frontier.count();
        let report = (new, target.visited.count());
        *own = target;
        // If there are no new nodes, the shown set is not read before it changes.
        Closed { report, shown: new > 0, own: new > 0 }
    }
}

const TRAFFIC: Traffic = Traffic {
    open_shown: false,
    open_fixed: false,
    open_own: true,
    close_shown: false,
    close_fixed: false,
};

/// State of the loop between two levels.
#[derive(Serialize, Deserialize)]
struct At {
    level: i32,
    reached: u64,
    levels: i32,
    active: Vec<bool>,
    open: Vec<bool>,
}

impl Reached {
    #[inline(always)]
    fn reach(&mut self, local: usize, level: i32) {
        self.visited.insert(local);
        self.next.insert(local);
        self.level[local] = level;
    }
}

impl EdgeProgram for Hop {
    type Source = Bits;
    type Target = Reached;

    fn apply(&self, arcs: &Arcs<'_>, frontier: &Bits, target: &mut Reached) {
        match arcs.side {
            // Bottom-up: stop at a row's first neighbour in the frontier.
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

/// The fewest arcs from any of the sources to every node; -1 if there is no path, or no path within
/// the cut-off.
///
/// The pass of a level visits the blocks between partitions with nodes of the previous level and
/// partitions with unreached nodes. Sources without arcs reach themselves. The caller must enter
/// them, because isolated nodes have no place in the grid.
///
/// Facts: `reached` (number of nodes, including the sources), `levels` (the largest distance).
///
/// # Errors
/// Errors of the passes.
///
/// **Source**: bottom-up steps as in Beamer, Asanovic, Patterson, "Direction-optimizing
/// breadth-first search" (2012); here the orientation of each block decides.
pub fn bfs<R: Passes>(run: &mut R, search: &Search<'_>) -> Result<Raw<i32>> {
    let starts = Starts::new(run, search.sources)?;
    let Found { reached, facts } = levels(run, search, &starts)?;
    let by_partition = reached.into_parts(|found| found.level);
    Ok(Raw { by_partition, isolated: Isolated::Same(-1), facts })
}

/// The previous node on a path of [`bfs`] for each node; among several the one with the smallest
/// id; -1 for sources and unreachable nodes.
///
/// State is in memory. The facts are those of [`bfs`].
///
/// **Cost**: one pass more than for levels.
///
/// # Errors
/// Errors of the passes.
pub fn bfs_predecessors<R: Passes>(run: &mut R, search: &Search<'_>) -> Result<Raw<i64>> {
    let starts = Starts::new(run, search.sources)?;
    let Found { reached, facts } = levels(run, search, &starts)?;
    let distance = |level: i32| if level < 0 { f64::INFINITY } else { f64::from(level) };
    let distances: Vec<Vec<f64>> = reached
        .into_here()?
        .into_iter()
        .map(|found| found.level.into_iter().map(distance).collect())
        .collect();
    let before = predecessors(run, &distances, &starts, false, search.flow)?;
    Ok(predecessors::result(before, facts))
}

struct Found {
    reached: Table<Reached>,
    facts: serde_json::Map<String, serde_json::Value>,
}

fn levels<R: Passes>(run: &mut R, search: &Search<'_>, starts: &Starts) -> Result<Found> {
    let parts = run.shape().partitions();
    let lens: Vec<usize> = (0..parts).map(|part| run.shape().partition_len(part)).collect();
    let last = search.cutoff.map_or(i32::MAX, |cutoff| cutoff.min(i32::MAX as u32) as i32);
    let nothing = Table::nothing(run)?;
    let (mut tables, at) = Tables::<Level>::begin(
        run,
        nothing,
        |_, part, ()| {
            let mut frontier = Bits::new(lens[part]);
            starts.of(part).for_each(|local| frontier.insert(local));
            Ok(frontier)
        },
        |_, part| {
            let mut reached = Reached::default().like(lens[part]);
            for local in starts.of(part) {
                reached.level[local] = 0;
                reached.visited.insert(local);
            }
            Ok(reached)
        },
    )?;
    let mut at = at.unwrap_or_else(|| At {
        level: 1,
        reached: starts.count(),
        levels: 0,
        active: starts.active(parts),
        open: all(parts),
    });
    while at.active.contains(&true) && at.open.contains(&true) && at.level <= last {
        tables.checkpoint(run, &at)?;
        run.progress("level", at.level as u64, 0)?;
        let select =
            Selection { sources: &at.active, targets: &at.open, flow: search.flow, weights: false };
        let again = is_everywhere(&select);
        let level = Level { step: Hop { level: at.level } };
        let found = tables.sweep(run, &level, &select, again)?;
        for (part, found) in found.into_iter().enumerate() {
            let (new, visited) = found.unwrap_or((0, 0));
            at.active[part] = new > 0;
            at.open[part] &= visited < lens[part];
            at.reached += new as u64;
            if new > 0 {
                at.levels = at.level;
            }
        }
        at.level += 1;
    }
    let mut facts = serde_json::Map::new();
    facts.insert("reached".into(), at.reached.into());
    facts.insert("levels".into(), at.levels.into());
    Ok(Found { reached: tables.own, facts })
}
