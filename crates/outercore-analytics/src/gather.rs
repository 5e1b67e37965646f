//! The values of all neighbours of a node at once, for as many partitions as memory has room for.
//!
//! Sums and minima are taken arc by arc. What is a function of all neighbours together (the h-index
//! of a k-core, the most frequent label) needs them side by side: a slot for each arc.

use outercore_core::{Bytes, Error, ErrorKind, Result, mix};
use outercore_grid::{Arcs, GridShape, Order};
use serde::{Deserialize, Serialize};

use crate::output::{ResultTable, SpillNeed, Working};
use crate::partitions::{add_degrees, all, degrees_table};
use crate::program::{Degree, EdgeProgram, Flow, Passes, Selection};
use crate::state::{Closed, Parts, PerNode, Step, Stored, Table, Tables, Traffic};

/// Bytes beside the slots for each node of a group: where its slots begin and how many are filled.
const PER_NODE: u64 = 12;

/// A step in which every node of the selected partitions hears the values of all its neighbours at
/// once: `each(its value, values of its neighbours)` is its new value, and whether the node waits.
/// One that waits wants to be asked again, even if no neighbour changes.
///
/// Neighbours come in no order that means anything, parallel arcs as often as they are there.
/// Without `loops` a node is no neighbour of itself; with them a loop counts as
/// [`Flow`] says: twice for `Both` on a directed grid, otherwise once.
///
/// # Cost
/// The partitions go in groups, each as large as [`Passes::working`] has room for but at least one
/// partition. A group takes one pass over the blocks of its partitions, 4 bytes for each arc that
/// reaches it and 12 for each node. The result does not depend on the groups.
pub(crate) struct Gathered<F> {
    program: Gather,
    each: F,
}

impl<F: Fn(u32, &mut [u32]) -> (u32, bool) + Sync> Gathered<F> {
    pub(crate) fn new(loops: bool, each: F) -> Self {
        Self { program: Gather { loops }, each }
    }
}

/// What a step has done with a partition.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Nodes whose value is another one now.
    changed: u64,
    /// Whether a node waits.
    waits: bool,
    /// Fingerprints of the new values less those of the old ones. Two steps that add up to 0 lead
    /// back to the same values.
    moved: u64,
}

/// Of a value at a place of the grid.
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
    /// How many neighbours each node has, loops included.
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

/// What a gather takes where its state is in scratch files.
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

/// The tables of a gather, and where its loop is in the checkpoint that the run goes on from.
pub(crate) fn tables_of<R: Passes, F: Fn(u32, &mut [u32]) -> (u32, bool) + Sync>(
    _step: &Gathered<F>,
    run: &mut R,
    counts: Table<Vec<u32>>,
    begin: impl FnMut(&mut R, usize, &Vec<u32>) -> Result<Numbers>,
) -> Result<(Tables<Gathered<F>>, Option<At>)> {
    Tables::begin(run, counts, begin, |_, _| Ok(()))
}

/// Where the loop of a gather is, between two iterations.
#[derive(Serialize, Deserialize)]
pub(crate) struct At {
    pub(crate) iterations: u64,
    /// Partitions in which something may change.
    pub(crate) wanted: Vec<bool>,
    /// See [`Outcome::moved`]; of the last iteration.
    #[serde(default)]
    moved: u64,
    /// Nodes that the last iteration changed, if it led back to the values before the last but one.
    #[serde(default)]
    pub(crate) alternating: u64,
}

impl At {
    /// Before the first iteration.
    pub(crate) fn first(partitions: usize) -> Self {
        Self { iterations: 0, wanted: all(partitions), moved: 0, alternating: 0 }
    }

    /// One iteration; `again`: another may follow.
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

/// By partition, how many neighbours each node has, loops included.
///
/// One kind of degrees after the other: hubs are dealt to all partitions, so a run reads the degrees
/// of many partitions at once and would read them again after the other kind.
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

/// The memory that groups of a gather over [`Flow::Both`] can use, where the partition with the
/// most arcs has `largest` of them, both directions taken together.
pub fn working(shape: &GridShape, largest: u64) -> Working {
    let slots = if shape.symmetric { shape.arcs } else { 2 * shape.arcs };
    let nodes = shape.connected.min(1 << shape.partition_log2);
    Working {
        least: Bytes(4 * largest.min(slots) + PER_NODE * nodes),
        most: Bytes(4 * slots + PER_NODE * shape.connected),
    }
}

/// Puts the source's value into the next slot of the target.
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

/// Room for the neighbours' values of a partition's nodes.
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

/// Which partitions have arcs between them, so that what did not change need not be looked at.
pub(crate) struct Adjacency(Option<Vec<Vec<bool>>>);

impl Adjacency {
    /// One pass where the numbering is local; none where hubs are dealt to all partitions and
    /// every partition is taken to be next to every other.
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

/// Notes from which partitions arcs come.
struct Seen;

impl EdgeProgram for Seen {
    type Source = usize;
    type Target = Vec<bool>;

    fn apply(&self, _arcs: &Arcs<'_>, source: &usize, target: &mut Vec<bool>) {
        target[*source] = true;
    }
}
