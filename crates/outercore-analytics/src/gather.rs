//! The values of all neighbours of a node at once, for as many partitions as memory has room for.
//!
//! Sums and minima are taken arc by arc. What is a function of all neighbours together (the h-index
//! of a k-core, the most frequent label) needs them side by side: a slot for each arc.

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_grid::{Arcs, GridShape, Order};

use crate::algorithms::{all, each_partition};
use crate::output::Working;
use crate::program::{Degree, EdgeProgram, Flow, Passes, Selection};

/// Bytes beside the slots for each node of a group: where its slots begin and how many are filled.
const PER_NODE: u64 = 12;

/// Calls `each(partition, local, values of its neighbours)` for every node of the partitions in
/// `wanted`; what it returns is the node's new value, and `None` stands for the other partitions.
///
/// Neighbours come in no order that means anything, parallel arcs as often as they are there.
/// Without `loops` a node is no neighbour of itself; with them a loop counts as
/// [`Flow`] says: twice for `Both` on a directed grid, otherwise once.
///
/// # Cost
/// The partitions go in groups, each as large as [`Passes::working`] has room for but at least one
/// partition. A group takes one pass over the blocks of its partitions, 4 bytes for each arc that
/// reaches it and 12 for each node. Degrees are read first: 4 bytes for each connected node. The
/// result does not depend on the groups.
///
/// # Errors
/// A failed or corrupt read; the wish to stop.
pub fn gather<R: Passes>(
    run: &mut R,
    values: &[Vec<u32>],
    wanted: &[bool],
    flow: Flow,
    loops: bool,
    each: impl Fn(usize, usize, &mut [u32]) -> u32 + Sync,
) -> Result<Vec<Option<Vec<u32>>>> {
    let counts = neighbour_counts(run, flow)?;
    let options = Gathering { flow, loops, again: false };
    gather_counted(run, &counts, values, wanted, options, each)
}

/// What is gathered, and what comes after.
#[derive(Clone, Copy)]
pub(crate) struct Gathering {
    pub(crate) flow: Flow,
    pub(crate) loops: bool,
    /// Whether the same is probably gathered again.
    pub(crate) again: bool,
}

/// As [`gather`], where [`neighbour_counts`] has been asked before: iterations need it once.
pub(crate) fn gather_counted<R: Passes>(
    run: &mut R,
    counts: &[Vec<u32>],
    values: &[Vec<u32>],
    wanted: &[bool],
    Gathering { flow, loops, again }: Gathering,
    each: impl Fn(usize, usize, &mut [u32]) -> u32 + Sync,
) -> Result<Vec<Option<Vec<u32>>>> {
    let partitions = run.shape().partitions();
    let room = run.working().0;
    let mut group = Group {
        program: Gather { values, loops },
        sources: (0..partitions).collect(),
        slots: (0..partitions).map(|_| Slots::default()).collect(),
        flow,
        found: vec![None; partitions],
    };
    let mut used = 0;
    let mut alone = true;
    for partition in (0..partitions).filter(|&partition| wanted[partition]) {
        let counts = &counts[partition];
        let bytes = counts.iter().map(|&count| 4 * u64::from(count) + PER_NODE).sum::<u64>();
        if used > 0 && used + bytes > room {
            group.finish(run, false, &each)?;
            used = 0;
            alone = false;
        }
        used += bytes;
        group.slots[partition] = Slots::new(partition, counts);
    }
    if used > 0 {
        group.finish(run, again && alone, &each)?;
    }
    Ok(group.found)
}

/// By partition, how many neighbours each node has, loops included.
///
/// One kind of degrees after the other: hubs are dealt to all partitions, so a run reads the degrees
/// of many partitions at once and would read them again after the other kind.
pub(crate) fn neighbour_counts<R: Passes>(run: &mut R, flow: Flow) -> Result<Vec<Vec<u32>>> {
    let (first, second) = match flow {
        _ if run.shape().symmetric => (Degree::Out, None),
        Flow::Along | Flow::Once => (Degree::In, None),
        Flow::Against => (Degree::Out, None),
        Flow::Both => (Degree::In, Some(Degree::Out)),
    };
    let partitions = run.shape().partitions();
    let mut counts = (0..partitions)
        .map(|partition| run.degrees(first, partition))
        .collect::<Result<Vec<_>>>()?;
    for (partition, counts) in counts.iter_mut().enumerate() {
        let Some(second) = second else { break };
        for (count, more) in counts.iter_mut().zip(run.degrees(second, partition)?) {
            *count = count.checked_add(more).ok_or_else(|| {
                let message = "a node has more than 4,294,967,295 neighbours";
                Error::new(ErrorKind::Unsupported, message)
            })?;
        }
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

/// Some partitions whose neighbours are gathered in one pass.
struct Group<'a> {
    program: Gather<'a>,
    sources: Vec<usize>,
    slots: Vec<Slots>,
    flow: Flow,
    found: Vec<Option<Vec<u32>>>,
}

impl Group<'_> {
    /// Fills the slots, computes the new values and frees the slots. `again`: the next group will
    /// probably be the same.
    fn finish<R: Passes>(
        &mut self,
        run: &mut R,
        again: bool,
        each: &(impl Fn(usize, usize, &mut [u32]) -> u32 + Sync),
    ) -> Result<()> {
        let all = all(self.slots.len());
        let targets: Vec<bool> = self.slots.iter().map(|slots| !slots.starts.is_empty()).collect();
        let select =
            Selection { sources: &all, targets: &targets, flow: self.flow, weights: false };
        if again {
            run.expect(&select);
        }
        run.pass(&self.program, &self.sources, &mut self.slots, &select)?;
        let found = each_partition(run, &mut self.slots, |partition, slots| {
            (!slots.starts.is_empty()).then(|| {
                let mut slots = std::mem::take(slots);
                (0..slots.filled.len())
                    .map(|local| each(partition, local, slots.of(local)))
                    .collect::<Vec<u32>>()
            })
        });
        for (kept, found) in self.found.iter_mut().zip(found) {
            if found.is_some() {
                *kept = found;
            }
        }
        Ok(())
    }
}

/// Puts the source's value into the next slot of the target.
struct Gather<'a> {
    values: &'a [Vec<u32>],
    loops: bool,
}

impl EdgeProgram for Gather<'_> {
    /// Which partition it is.
    type Source = usize;
    type Target = Slots;

    fn apply(&self, arcs: &Arcs<'_>, source: &usize, target: &mut Slots) {
        let values = &self.values[*source][..];
        let skip_loops = !self.loops && *source == target.partition;
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
struct Slots {
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
