//! Shortest paths from one node, or from the nearest of several.

use outercore_core::{Bytes, Error, Result};
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

/// The search to run; see [`sssp`].
#[derive(Clone, Copy, Debug)]
pub struct Search<'a> {
    /// Ids of the start nodes.
    pub sources: &'a [u64],
    /// Whether the length of a path is the sum of its weights; otherwise it is its number of arcs.
    pub weighted: bool,
    /// The direction in which arcs are followed.
    pub flow: Flow,
    /// Longer paths are left out.
    pub cutoff: Option<f64>,
}

impl<'a> Search<'a> {
    /// A search from these sources without a cut-off.
    pub fn new(sources: &'a [u64], weighted: bool, flow: Flow) -> Self {
        Self { sources, weighted, flow, cutoff: None }
    }
}

/// Options of [`sssp`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sssp {
    /// The start nodes.
    pub source: Source,
    /// Edge array of lengths; by default each arc has length 1.
    #[serde(default)]
    pub weights: Option<String>,
    /// The direction in which arcs are followed.
    #[serde(default, rename = "direction")]
    pub flow: FlowName,
    /// Longer paths are left out.
    #[serde(default)]
    pub cutoff: Option<f64>,
    /// Distances or predecessors.
    #[serde(default)]
    pub result: PathResult,
}

impl GraphAlgorithm for Sssp {
    fn validate(&self, nodes: u64) -> Result<()> {
        match self.cutoff {
            Some(cutoff) if cutoff.is_nan() || cutoff < 0.0 => {
                Err(Error::invalid(format!("sssp: cutoff {cutoff}, expected 0 or more")))
            }
            _ => require_nodes("sssp", "source", self.source.nodes(), nodes),
        }
    }

    fn weights(&self) -> Option<&str> {
        self.weights.as_deref()
    }

    fn leaves_checkpoints(&self) -> Leaves {
        if self.result.is_before() { Leaves::Never } else { Leaves::Always }
    }

    /// Predecessors are computed from distances in memory.
    fn need(&self, scale: &Scale<'_>) -> Need {
        if self.result.is_before() {
            return Need {
                state_per_node: 17 + predecessors::PER_NODE,
                output: Bytes(8 * scale.shape.nodes),
                ..Need::default()
            };
        }
        Need {
            state_per_node: 17,
            output: Bytes(8 * scale.shape.nodes),
            spill: Some(SpillNeed {
                shown: PerNode::new(8, 1),
                fixed: PerNode::NONE,
                own: PerNode::NONE,
                target: PerNode::new(8, 1),
                traffic: TRAFFIC,
                writes_own: false,
                any_order: true,
                flow: self.flow.into(),
                result: ResultTable::Shown,
            }),
            ..Need::default()
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        let search = Search {
            sources: self.source.nodes(),
            weighted: self.weights.is_some(),
            flow: self.flow.into(),
            cutoff: self.cutoff,
        };
        match self.result {
            PathResult::Distances => sssp(run, &search).map(AnyRaw::from),
            PathResult::Predecessors => sssp_predecessors(run, &search).map(AnyRaw::from),
        }
    }

    /// A source without arcs still reaches itself.
    fn zeros<R: Passes>(&self, _: &mut R) -> Result<Vec<u64>> {
        let sources = if self.result.is_before() { &[] } else { self.source.nodes() };
        Ok(sources.to_vec())
    }
}

/// Distances, and which of them are new.
#[derive(Clone, Default)]
pub(super) struct Reach {
    pub(super) distance: Vec<f64>,
    pub(super) changed: Bits,
}

impl Stored for Reach {
    fn like(&self, len: usize) -> Self {
        Self { distance: self.distance.like(len), changed: Bits::new(len) }
    }

    fn columns(&self) -> Vec<&[u8]> {
        [self.distance.columns(), self.changed.columns()].concat()
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        let mut columns = self.distance.columns_mut();
        columns.extend(self.changed.columns_mut());
        columns
    }
}

/// Distances during a pass. Between passes they equal the shown distances, so they are not stored
/// separately.
#[derive(Default)]
pub(super) struct Kept(Reach);

impl Stored for Kept {
    fn like(&self, _: usize) -> Self {
        Self::default()
    }

    fn columns(&self) -> Vec<&[u8]> {
        Vec::new()
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        Vec::new()
    }
}

impl Step for Relax {
    type Program = Self;
    type Shown = Reach;
    type Fixed = ();
    type Own = Kept;
    type Target = Reach;
    /// Whether a distance has decreased.
    type Report = bool;
    const TRAFFIC: Traffic = TRAFFIC;
    const ANY_ORDER: bool = true;
    const QUIET: bool = true;

    fn program(&self) -> &Self {
        self
    }

    fn open(&self, _: usize, shown: &Reach, (): &(), own: &mut Kept) -> Reach {
        let mut target = std::mem::take(&mut own.0);
        if target.distance.is_empty() {
            target = Reach { distance: shown.distance.clone(), changed: shown.changed.clone() };
            target.changed.clear();
        }
        target
    }

    fn close(
        &self,
        _: usize,
        mut target: Reach,
        shown: &mut Reach,
        (): &(),
        own: &mut Kept,
    ) -> Closed<bool> {
        let any = target.changed.count() > 0;
        if shown.distance.is_empty() {
            *shown = target;
        } else {
            std::mem::swap(&mut shown.changed, &mut target.changed);
            target.changed.clear();
            for local in shown.changed.iter() {
                shown.distance[local] = target.distance[local];
            }
            own.0 = target;
        }
        // If there are no new distances, the shown ones are not read before they change.
        Closed { report: any, shown: any, own: false }
    }
}

const TRAFFIC: Traffic = Traffic {
    open_shown: true,
    open_fixed: false,
    open_own: false,
    close_shown: false,
    close_fixed: false,
};

/// State of the loop between two passes.
#[derive(Serialize, Deserialize)]
struct At {
    iterations: u64,
    active: Vec<bool>,
}

/// Decreases distances over arcs from changed nodes.
pub(super) struct Relax {
    /// Nodes farther away are not reached.
    cutoff: f64,
}

impl Default for Relax {
    fn default() -> Self {
        Self { cutoff: f64::INFINITY }
    }
}

impl EdgeProgram for Relax {
    type Source = Reach;
    type Target = Reach;

    fn apply(&self, arcs: &Arcs<'_>, source: &Reach, target: &mut Reach) {
        let step = |weights: &[f64], at: usize| weights.get(at).copied().unwrap_or(1.0);
        for (row, columns, weights) in arcs.rows() {
            match arcs.side {
                Side::ToRows => {
                    let before = target.distance[row];
                    let mut least = before;
                    for (at, &column) in columns.iter().enumerate() {
                        let column = usize::from(column);
                        if source.changed.has(column) {
                            least = least.min(source.distance[column] + step(weights, at));
                        }
                    }
                    if least < before && least <= self.cutoff {
                        target.distance[row] = least;
                        target.changed.insert(row);
                    }
                }
                Side::ToColumns if source.changed.has(row) => {
                    let distance = source.distance[row];
                    for (at, &column) in columns.iter().enumerate() {
                        let column = usize::from(column);
                        let through = distance + step(weights, at);
                        if through < target.distance[column] && through <= self.cutoff {
                            target.distance[column] = through;
                            target.changed.insert(column);
                        }
                    }
                }
                Side::ToColumns => {}
            }
        }
    }
}

/// The least sum of weights (without weights: of arcs) on a path from any of the sources to every
/// node. Infinite if there is no path, or no path within the cut-off. Weights must not be negative.
///
/// A pass follows the arcs of all nodes whose distance the previous pass decreased, until there are
/// none. Sources without arcs reach themselves, and the caller must enter them.
///
/// Facts: `reached` (number of nodes, including the sources), `iterations`, `farthest` (largest
/// distance).
///
/// # Errors
/// Errors of the passes.
///
/// **Source**: Bellman, "On a routing problem" (1958), for changed nodes only. Additions round
/// monotonically, so there is one fixed point, independent of the order of work.
pub fn sssp<R: Passes>(run: &mut R, search: &Search<'_>) -> Result<Raw<f64>> {
    let starts = Starts::new(run, search.sources)?;
    let Found { reach, facts } = distances(run, search, &starts)?;
    let by_partition = reach.into_parts(|shown| shown.distance);
    Ok(Raw { by_partition, isolated: Isolated::Same(f64::INFINITY), facts })
}

/// The previous node on a shortest path of [`sssp`] for each node; among several the one with the
/// smallest id; -1 for sources and unreachable nodes. Following predecessors always ends at a
/// source.
///
/// State is in memory. The facts are those of [`sssp`].
///
/// **Cost**: one pass more than for distances, and one more for each arc of weight 0 in a row.
///
/// # Errors
/// Errors of the passes.
pub fn sssp_predecessors<R: Passes>(run: &mut R, search: &Search<'_>) -> Result<Raw<i64>> {
    let starts = Starts::new(run, search.sources)?;
    let Found { reach, facts } = distances(run, search, &starts)?;
    let distances: Vec<Vec<f64>> =
        reach.into_here()?.into_iter().map(|shown| shown.distance).collect();
    let before = predecessors(run, &distances, &starts, search.weighted, search.flow)?;
    Ok(predecessors::result(before, facts))
}

struct Found {
    reach: Table<Reach>,
    facts: serde_json::Map<String, serde_json::Value>,
}

fn distances<R: Passes>(run: &mut R, search: &Search<'_>, starts: &Starts) -> Result<Found> {
    let parts = run.shape().partitions();
    let lens: Vec<usize> = (0..parts).map(|part| run.shape().partition_len(part)).collect();
    let nothing = Table::nothing(run)?;
    let (mut tables, at) = Tables::<Relax>::begin(
        run,
        nothing,
        |_, part, ()| {
            let len = lens[part];
            let mut reach = Reach { distance: vec![f64::INFINITY; len], changed: Bits::new(len) };
            for local in starts.of(part) {
                reach.distance[local] = 0.0;
                reach.changed.insert(local);
            }
            Ok(reach)
        },
        |_, _| Ok(Kept::default()),
    )?;
    let mut at = at.unwrap_or_else(|| At { iterations: 0, active: starts.active(parts) });
    let everywhere = all(parts);
    let relax = Relax { cutoff: search.cutoff.unwrap_or(f64::INFINITY) };
    while at.active.contains(&true) {
        tables.checkpoint(run, &at)?;
        run.progress("iteration", at.iterations, 0)?;
        let select = Selection {
            sources: &at.active,
            targets: &everywhere,
            flow: search.flow,
            weights: search.weighted,
        };
        let again = is_everywhere(&select);
        let changed = tables.sweep(run, &relax, &select, again)?;
        at.active = changed.into_iter().map(|changed| changed.unwrap_or(false)).collect();
        at.iterations += 1;
    }
    let (mut reached, mut farthest) = (starts.isolated, 0f64);
    tables.shown.each(|_, shown| {
        for &distance in shown.distance.iter().filter(|distance| distance.is_finite()) {
            (reached, farthest) = (reached + 1, farthest.max(distance));
        }
        Ok(false)
    })?;
    let mut facts = serde_json::Map::new();
    facts.insert("reached".into(), reached.into());
    facts.insert("iterations".into(), at.iterations.into());
    facts.insert("farthest".into(), farthest.into());
    Ok(Found { reach: tables.shown, facts })
}
