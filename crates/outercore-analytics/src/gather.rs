//! Gathers the values of all neighbours of a node, for as many partitions as fit into memory.
//!
//! Sums and minima can be computed arc by arc. Functions of all neighbours together (the h-index of
//! a k-core, the most frequent label) need the values side by side, in one slot per arc.

use outercore_core::{Bytes, Error, ErrorKind, Result, mix};
use outercore_grid::{Arcs, GridShape, Order};
use serde::{Deserialize, Serialize};

use crate::output::{ResultTable, SpillNeed, Working};
use crate::partitions::{add_degrees, all, degrees_table};
use crate::program::{Degree, EdgeProgram, Flow, Passes, Selection};
use crate::state::{Closed, Parts, PerNode, Step, Stored, Table, Tables, Traffic};

/// Bytes per node of a group, without its slots: start and number of filled slots.
const PER_NODE: u64 = 12;

/// A step in which every node of the selected partitions receives the values of all its neighbours.
/// `each(its value, values of its neighbours)` returns its new value, and whether the node waits. A
/// waiting node is processed again even if no neighbour changes.
///
/// Neighbours have no meaningful order; parallel arcs are repeated. Without `loops`, a node is not
/// its own neighbour. With `loops`, a loop counts according to [`Flow`]: twice for `Both` on a
/// directed grid, otherwise once.
///
/// # Cost
/// The partitions are processed in groups. A group has at least one partition, and as many as
/// [`Passes::working`] has room for. It takes one pass over the blocks of its partitions, 4 bytes
/// per arc into the group and 12 per node. The result does not depend on the groups.
pub(crate) struct Gathered<F> {
    program: Gather,
    each: F,
}

impl<F: Fn(u32, &mut [u32]) -> (u32, bool) + Sync> Gathered<F> {
    pub(crate) fn new(loops: bool, each: F) -> Self {
        Self { program: Gather { loops }, each }
    }
}

/// Result of a step for a partition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Number of nodes whose value has changed.
    changed: u64,
    /// Whether a node waits.
    waits: bool,
    /// Fingerprints of the new values minus those of the old values. If those of two steps sum to
    /// 0, the second has restored the values before the first.
    moved: u64,
}

/// Fingerprint of a value at a place of the grid.
fn fingerprint(place: u64, value: u32) -> u64 {
    mix(mix(place) ^ u64::from(value))
}

/// Values of a partition's nodes.
#[derive(Clone, Default)]
pub(crate) struct Numbers {
    pub(crate) partition: usize,
    pub(crate) values: Vec<u32>,
}

impl Stored for Numbers {
    fn like(&self, len: usize) -> Self {
        Self { partition: self.partition, values: self.values.like(len) }
    }

    fn columns(&self) -> Vec<&[u8]> {
        self.values.columns()
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        self.values.columns_mut()
    }

    fn restored(&mut self, partition: usize) {
        self.partition = partition;
    }
}

impl<F: Fn(u32, &mut [u32]) -> (u32, bool) + Sync> Step for Gathered<F> {
    type Program = Gather;
    type Shown = Numbers;
    /// Number of neighbours of each node, including loops.
    type Fixed = Vec<u32>;
    type Own = ();
    type Target = Slots;
    type Report = Outcome;
    const TRAFFIC: Traffic = TRAFFIC;
    const ANY_ORDER: bool = true;
    const QUIET: bool = false;
    const GATHERS: bool = true;

    fn program(&self) -> &Gather {
        &self.program
    }

    fn room(&self, counts: &Vec<u32>) -> u64 {
        counts.iter().map(|&count| 4 * u64::from(count) + PER_NODE).sum()
    }

    fn open(&self, partition: usize, _: &Numbers, counts: &Vec<u32>, (): &mut ()) -> Slots {
        Slots::new(partition, counts)
    }

    fn close(
        &self,
        _: usize,
        mut slots: Slots,
        shown: &mut Numbers,
        _: &Vec<u32>,
        (): &mut (),
    ) -> Closed<Outcome> {
        let mut outcome = Outcome::default();
        let first = (shown.partition as u64) << 32;
        for (local, value) in shown.values.iter_mut().enumerate() {
            let (new, waits) = (self.each)(*value, slots.of(local));
            outcome.waits |= waits;
            if new != *value {
                outcome.changed += 1;
                let place = first | local as u64;
                outcome.moved = outcome
                    .moved
                    .wrapping_add(fingerprint(place, new))
                    .wrapping_sub(fingerprint(place, *value));
                *value = new;
            }
        }
        Closed { report: outcome, shown: outcome.changed > 0, own: false }
    }
}

/// Memory of a gather with state in scratch files.
pub(crate) const SPILL: SpillNeed = SpillNeed {
    shown: PerNode::new(4, 0),
    fixed: PerNode::new(4, 0),
    own: PerNode::NONE,
    target: PerNode::NONE,
    traffic: TRAFFIC,
    writes_own: false,
    any_order: true,
    flow: Flow::Both,
    result: ResultTable::Shown,
};

const TRAFFIC: Traffic = Traffic {
    open_shown: false,
    open_fixed: true,
    open_own: false,
    close_shown: true,
    close_fixed: false,
};

/// The tables of a gather, and the state of its loop from the checkpoint to resume from.
pub(crate) fn tables_of<R: Passes, F: Fn(u32, &mut [u32]) -> (u32, bool) + Sync>(
    _step: &Gathered<F>,
    run: &mut R,
    counts: Table<Vec<u32>>,
    begin: impl FnMut(&mut R, usize, &Vec<u32>) -> Result<Numbers>,
) -> Result<(Tables<Gathered<F>>, Option<At>)> {
    Tables::begin(run, counts, begin, |_, _| Ok(()))
}

/// State of a gather's loop between two iterations.
#[derive(Serialize, Deserialize)]
pub(crate) struct At {
    pub(crate) iterations: u64,
    /// Partitions in which values may change.
    pub(crate) wanted: Vec<bool>,
    /// [`Outcome::moved`] of the last iteration.
    #[serde(default)]
    moved: u64,
    /// Number of nodes that the last iteration changed, if it restored the values before the
    /// previous iteration; otherwise 0.
    #[serde(default)]
    pub(crate) alternating: u64,
}

impl At {
    /// State before the first iteration.
    pub(crate) fn first(partitions: usize) -> Self {
        Self { iterations: 0, wanted: all(partitions), moved: 0, alternating: 0 }
    }

    /// Executes one iteration; `again` means that another may follow.
    pub(crate) fn next<R: Passes, F: Fn(u32, &mut [u32]) -> (u32, bool) + Sync>(
        &mut self,
        run: &mut R,
        adjacency: &Adjacency,
        step: &Gathered<F>,
        tables: &mut Tables<Gathered<F>>,
        again: bool,
    ) -> Result<()> {
        let sources = all(self.wanted.len());
        let select = Selection {
            sources: &sources,
            targets: &self.wanted,
            flow: Flow::Both,
            weights: false,
        };
        let outcomes = tables.sweep(run, step, &select, again)?;
        let outcomes: Vec<Outcome> = outcomes.into_iter().map(Option::unwrap_or_default).collect();
        let changed: Vec<bool> = outcomes.iter().map(|outcome| outcome.changed > 0).collect();
        self.wanted = adjacency.beside(&changed);
        self.wanted.iter_mut().zip(&outcomes).for_each(|(wanted, one)| *wanted |= one.waits);
        let moved = outcomes.iter().fold(0u64, |sum, outcome| sum.wrapping_add(outcome.moved));
        let back = moved != 0 && moved.wrapping_add(self.moved) == 0;
        let nodes = outcomes.iter().map(|outcome| outcome.changed).sum();
        self.alternating = if back { nodes } else { 0 };
        self.moved = moved;
        self.iterations += 1;
        Ok(())
    }
}

/// The values of all nodes as a result.
pub(crate) fn results(values: Table<Numbers>) -> Parts<i64> {
    values.into_parts(|shown| shown.values.into_iter().map(i64::from).collect())
}

/// By partition, the number of neighbours of each node, including loops.
///
/// One kind of degrees after the other: hubs are spread over all partitions, so a run reads the
/// degrees of many partitions at once. Alternating between the kinds would read them again.
pub(crate) fn neighbour_counts<R: Passes>(run: &mut R, flow: Flow) -> Result<Table<Vec<u32>>> {
    let (first, second) = match flow {
        _ if run.shape().symmetric => (Degree::Out, None),
        Flow::Along | Flow::Once => (Degree::In, None),
        Flow::Against => (Degree::Out, None),
        Flow::Both => (Degree::In, Some(Degree::Out)),
    };
    let mut counts = degrees_table(run, first)?;
    let Some(second) = second else { return Ok(counts) };
    let mut too_many = false;
    add_degrees(run, second, &mut counts, |count, more| match count.checked_add(more) {
        Some(sum) => *count = sum,
        None => too_many = true,
    })?;
    if too_many {
        let message = "a node has more than 4,294,967,295 neighbours";
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(counts)
}

/// Useful working memory of a gather over [`Flow::Both`]; `largest` is the number of arcs of the
/// largest partition, with both directions counted.
pub fn working(shape: &GridShape, largest: u64) -> Working {
    let slots = if shape.symmetric { shape.arcs } else { 2 * shape.arcs };
    let nodes = shape.connected.min(1 << shape.partition_log2);
    Working {
        least: Bytes(4 * largest.min(slots) + PER_NODE * nodes),
        most: Bytes(4 * slots + PER_NODE * shape.connected),
    }
}

/// Stores the source's value in the next slot of the target.
pub(crate) struct Gather {
    loops: bool,
}

impl EdgeProgram for Gather {
    type Source = Numbers;
    type Target = Slots;

    fn apply(&self, arcs: &Arcs<'_>, source: &Numbers, target: &mut Slots) {
        let values = &source.values[..];
        let skip_loops = !self.loops && source.partition == target.partition;
        arcs.for_each(|from, to, _| {
            if !(skip_loops && from == to) {
                let slot = target.starts[to] as usize + target.filled[to] as usize;
                target.values[slot] = values[from];
                target.filled[to] += 1;
            }
        });
    }
}

/// Memory for the neighbours' values of a partition's nodes.
#[derive(Default)]
pub(crate) struct Slots {
    partition: usize,
    starts: Vec<u64>,
    filled: Vec<u32>,
    values: Vec<u32>,
}

impl Slots {
    fn new(partition: usize, counts: &[u32]) -> Self {
        let mut starts = Vec::with_capacity(counts.len());
        let mut end = 0;
        for &count in counts {
            starts.push(end);
            end += u64::from(count);
        }
        Self { partition, starts, filled: vec![0; counts.len()], values: vec![0; end as usize] }
    }

    fn of(&mut self, local: usize) -> &mut [u32] {
        let start = self.starts[local] as usize;
        &mut self.values[start..start + self.filled[local] as usize]
    }
}

/// Which partitions have arcs between them, for skipping partitions without changed neighbours.
pub(crate) struct Adjacency(Option<Vec<Vec<bool>>>);

impl Adjacency {
    /// Makes one pass if the numbering is local. If hubs are spread over all partitions, makes none
    /// and treats every partition as adjacent to all others.
    pub(crate) fn of<R: Passes>(run: &mut R) -> Result<Self> {
        if run.shape().order == Order::Degree {
            return Ok(Self(None));
        }
        let partitions = run.shape().partitions();
        let all = all(partitions);
        let sources: Vec<usize> = (0..partitions).collect();
        let mut seen = vec![vec![false; partitions]; partitions];
        let select = Selection { sources: &all, targets: &all, flow: Flow::Both, weights: false };
        run.pass(&Seen, &sources, &mut seen, &select)?;
        Ok(Self(Some(seen)))
    }

    /// The partitions with a neighbour in one of `changed`.
    pub(crate) fn beside(&self, changed: &[bool]) -> Vec<bool> {
        match &self.0 {
            None => vec![changed.contains(&true); changed.len()],
            Some(seen) => seen
                .iter()
                .map(|seen| seen.iter().zip(changed).any(|(&seen, &changed)| seen && changed))
                .collect(),
        }
    }
}

/// Records the partitions from which arcs come.
struct Seen;

impl EdgeProgram for Seen {
    type Source = usize;
    type Target = Vec<bool>;

    fn apply(&self, _arcs: &Arcs<'_>, source: &usize, target: &mut Vec<bool>) {
        target[*source] = true;
    }
}
