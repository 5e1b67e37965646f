//! Components by smallest node ids, for state that does not fit into memory.

use outercore_core::Result;
use outercore_grid::Arcs;
use serde::{Deserialize, Serialize};

use crate::output::{Isolated, Raw, ResultTable, SpillNeed};
use crate::partitions::{all, is_everywhere};
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::state::{Closed, PerNode, Step, Stored, Table, Tables, Traffic};

/// Memory of this variant.
pub(super) const NEED: SpillNeed = SpillNeed {
    shown: PerNode::new(4, 0),
    fixed: PerNode::NONE,
    own: PerNode::new(2, 0),
    target: PerNode::new(6, 0),
    traffic: TRAFFIC,
    writes_own: true,
    any_order: true,
    flow: Flow::Both,
    result: ResultTable::Shown,
};

/// The smallest node id so far.
#[derive(Clone, Default)]
struct Labels {
    partition: usize,
    of: Vec<u32>,
}

impl Stored for Labels {
    fn like(&self, len: usize) -> Self {
        Self { partition: self.partition, of: vec![0; len] }
    }

    fn columns(&self) -> Vec<&[u8]> {
        self.of.columns()
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        self.of.columns_mut()
    }

    fn restored(&mut self, partition: usize) {
        self.partition = partition;
    }
}

/// A partition: labels, and trees over its nodes; each root is the smallest local id of its tree.
#[derive(Default)]
struct Joined {
    labels: Labels,
    parents: Vec<u16>,
}

impl Joined {
    fn root(&mut self, mut at: u16) -> u16 {
        loop {
            let parent = self.parents[usize::from(at)];
            if parent == at {
                return at;
            }
            let above = self.parents[usize::from(parent)];
            self.parents[usize::from(at)] = above;
            at = above;
        }
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a as u16), self.root(b as u16));
        self.parents[usize::from(a.max(b))] = a.min(b);
    }
}

struct Spread;

impl EdgeProgram for Spread {
    type Source = Labels;
    type Target = Joined;

    fn apply(&self, arcs: &Arcs<'_>, source: &Labels, target: &mut Joined) {
        if source.partition == target.labels.partition {
            arcs.for_each(|from, to, _| target.join(from, to));
        } else {
            let labels = &mut target.labels.of[..];
            arcs.for_each(|from, to, _| labels[to] = labels[to].min(source.of[from]));
        }
    }
}

impl Step for Spread {
    type Program = Self;
    type Shown = Labels;
    type Fixed = ();
    /// The trees.
    type Own = Vec<u16>;
    type Target = Joined;
    /// Whether a label has changed.
    type Report = bool;
    const TRAFFIC: Traffic = TRAFFIC;
    const ANY_ORDER: bool = true;
    const QUIET: bool = true;

    fn program(&self) -> &Self {
        self
    }

    fn open(&self, _: usize, shown: &Labels, (): &(), own: &mut Vec<u16>) -> Joined {
        Joined { labels: shown.clone(), parents: std::mem::take(own) }
    }

    fn close(
        &self,
        _: usize,
        mut target: Joined,
        shown: &mut Labels,
        (): &(),
        own: &mut Vec<u16>,
    ) -> Closed<bool> {
        // Roots come before the other nodes of their trees. The first loop moves the smallest label
        // to the roots, and the second spreads it to all nodes.
        for local in (0..target.parents.len()).rev() {
            let root = usize::from(target.root(local as u16));
            let labels = &mut target.labels.of;
            labels[root] = labels[root].min(labels[local]);
        }
        let mut changed = false;
        for local in 0..target.parents.len() {
            let root = usize::from(target.root(local as u16));
            let label = target.labels.of[root];
            changed |= shown.of[local] != label;
            target.labels.of[local] = label;
        }
        *shown = target.labels;
        *own = target.parents;
        Closed { report: changed, shown: changed, own: true }
    }
}

const TRAFFIC: Traffic = Traffic {
    open_shown: true,
    open_fixed: false,
    open_own: true,
    close_shown: true,
    close_fixed: false,
};

/// State of the loop between two passes.
#[derive(Serialize, Deserialize)]
struct At {
    passes: u64,
    active: Vec<bool>,
}

pub(super) fn wcc<R: Passes>(run: &mut R) -> Result<Raw<i64>> {
    let parts = run.shape().partitions();
    let isolated = run.shape().nodes - run.shape().connected;
    let nothing = Table::nothing(run)?;
    let (mut tables, at) = Tables::<Spread>::begin(
        run,
        nothing,
        |run, partition, ()| Ok(Labels { partition, of: run.nodes(partition)? }),
        |run, partition| {
            Ok((0..run.shape().partition_len(partition)).map(|at| at as u16).collect())
        },
    )?;
    let mut at = at.unwrap_or_else(|| At { passes: 0, active: all(parts) });
    let everywhere = all(parts);
    while at.active.contains(&true) {
        tables.checkpoint(run, &at)?;
        run.progress("pass", at.passes, 0)?;
        let select = Selection {
            sources: &at.active,
            targets: &everywhere,
            flow: Flow::Both,
            weights: false,
        };
        let again = is_everywhere(&select);
        let changed = tables.sweep(run, &Spread, &select, again)?;
        at.active = changed.into_iter().map(|changed| changed.unwrap_or(false)).collect();
        at.passes += 1;
    }
    let (components, largest) = sizes(run, &mut tables.shown)?;
    let mut facts = serde_json::Map::new();
    facts.insert("components".into(), (components + isolated).into());
    facts.insert("largest".into(), largest.max(u32::from(isolated > 0)).into());
    let by_partition = tables
        .shown
        .into_parts(|labels| labels.of.into_iter().map(i64::from).collect::<Vec<i64>>());
    Ok(Raw { by_partition, isolated: Isolated::Itself, facts })
}

/// The number of components, and the number of nodes of the largest one. Counts as many node ids at
/// a time as there is room for.
fn sizes<R: Passes>(run: &mut R, labels: &mut Table<Labels>) -> Result<(u64, u32)> {
    let room = run.spill().map_or(u64::MAX, |spill| spill.slots().room.0);
    let nodes = run.shape().nodes;
    let window = (room / 4).clamp(1, nodes.max(1));
    let (mut components, mut largest) = (0, 0);
    let mut first = 0;
    while first < nodes {
        let mut sizes = vec![0u32; window.min(nodes - first) as usize];
        labels.each(|_, labels| {
            for &label in &labels.of {
                if let Some(size) =
                    u64::from(label).checked_sub(first).and_then(|at| sizes.get_mut(at as usize))
                {
                    *size += 1;
                }
            }
            Ok(false)
        })?;
        components += sizes.iter().filter(|&&size| size > 0).count() as u64;
        largest = sizes.into_iter().max().unwrap_or(0).max(largest);
        first += window;
    }
    Ok((components, largest))
}
