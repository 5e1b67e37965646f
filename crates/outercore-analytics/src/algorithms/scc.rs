//! Strongly connected components.

use outercore_core::{Bytes, Result};
use outercore_grid::{Arcs, Side};
use serde::{Deserialize, Serialize};

use crate::algorithm::{GraphAlgorithm, Scale};
use crate::output::{Isolated, Need, Raw};
use crate::partitions::{all, each_partition};
use crate::program::{Degree, EdgeProgram, Flow, Passes, Selection};
use crate::result::AnyRaw;
use crate::state::Parts;
use crate::teleport::Teleport;

/// Belongs to a known component.
const DONE: u8 = 1;
/// Has an arc from a node without a component.
const HAS_IN: u8 = 2;
/// Has an arc to a node without a component.
const HAS_OUT: u8 = 4;
/// Reached from the pivot along the arcs.
const AHEAD: u8 = 8;
/// Reached from the pivot (or from the root of the colour) against the arcs.
const BEHIND: u8 = 16;
/// Changed in this pass, or in the previous one.
const FRESH: u8 = 32;

/// Options of [`scc`], which has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scc {}

impl GraphAlgorithm for Scc {
    fn need(&self, scale: &Scale<'_>) -> Need {
        Need {
            state_per_node: 16,
            fixed: Bytes(0),
            output: Bytes(8 * scale.shape.nodes),
            working: None,
            passes: None,
            spill: None,
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        scc(run).map(AnyRaw::from)
    }
}

/// The strongly connected component of every node: the smallest node id in it.
///
/// Two nodes are in the same component if each can be reached from the other. In an undirected
/// graph these are the connected components. Each node without arcs is a separate component. Facts:
/// `components`, `largest` (nodes in the largest component).
///
/// # Method
/// 1. *Trim*: nodes without an arc from, or without an arc to, the remaining nodes are separate
///    components. Repeated until a round finds less than one in a hundred of the remaining nodes.
/// 2. *Forward and backward*: take the node with the largest product of degrees. The nodes that it
///    reaches and that also reach it are its component, usually the giant one. Both searches run
///    together.
/// 3. *Colours*, until no nodes remain: every node takes the largest number of all nodes that reach
///    it. The nodes of a colour that reach the node with this number are a component.
///
/// # Cost
/// One pass for each round and each step of a search; both directions share a pass. Partitions
/// without changes are skipped. State: 16 bytes per connected node.
///
/// # Errors
/// A failed or corrupt read; a stop request.
///
/// # Source
/// Fleischer, Hendrickson, Pınar, "On identifying strongly connected components in parallel"
/// (2000); Orzan, "On distributed verification and verified distribution" (2004), for colours;
/// combined as by Slota, Rajamanickam, Madduri, "BFS and coloring-based parallel algorithms for
/// strongly connected components and related problems", IPDPS 2014.
pub fn scc<R: Passes>(run: &mut R) -> Result<Raw<i64>> {
    let mut search = Search::new(run);
    while search.trim(run)? {}
    search.around_pivot(run)?;
    while search.left() > 0 {
        search.colour(run)?;
        // Removing components creates new ends of chains.
        while search.left() > 0 && search.trim(run)? {}
    }
    search.into_components().finish(run)
}

/// The number of a node: partition and local id. Any order of the nodes would work.
fn number(partition: usize, local: usize) -> u32 {
    (partition as u32) << 16 | local as u32
}

/// State of a partition's nodes.
#[derive(Clone, Default)]
struct State {
    partition: usize,
    flags: Vec<u8>,
    colours: Vec<u32>,
}

struct Search {
    /// State before the pass.
    sources: Vec<State>,
    /// State after the pass.
    targets: Vec<State>,
    components: Components,
    /// Number of nodes without a component, by partition.
    left: Vec<u64>,
    all: Vec<bool>,
}

impl Search {
    fn new<R: Passes>(run: &mut R) -> Self {
        let shape = *run.shape();
        let partitions = shape.partitions();
        let lens: Vec<usize> = (0..partitions).map(|p| shape.partition_len(p)).collect();
        let states: Vec<State> = lens
            .iter()
            .enumerate()
            .map(|(partition, &len)| State {
                partition,
                flags: vec![0; len],
                colours: vec![0; len],
            })
            .collect();
        Self {
            sources: states.clone(),
            targets: states,
            components: Components {
                of: lens
                    .iter()
                    .enumerate()
                    .map(|(p, &len)| (0..len).map(|local| number(p, local)).collect())
                    .collect(),
            },
            left: lens.iter().map(|&len| len as u64).collect(),
            all: all(partitions),
        }
    }

    /// Frees the memory that only the search needs.
    fn into_components(self) -> Components {
        self.components
    }

    fn left(&self) -> u64 {
        self.left.iter().sum()
    }

    /// A pass from `sources` to the partitions with remaining nodes.
    fn pass<R: Passes, P: EdgeProgram<Source = State, Target = State>>(
        &mut self,
        run: &mut R,
        program: &P,
        sources: &[bool],
        flow: Flow,
    ) -> Result<()> {
        let connected = run.shape().connected;
        run.progress("nodes", connected - self.left(), connected)?;
        let targets: Vec<bool> = self.left.iter().map(|&left| left > 0).collect();
        let select = Selection { sources, targets: &targets, flow, weights: false };
        run.pass(program, &self.sources, &mut self.targets, &select)?;
        Ok(())
    }

    /// Repeats a pass of `program` over the partitions that the previous pass changed, until
    /// nothing changes.
    fn spread<R: Passes, P: EdgeProgram<Source = State, Target = State>>(
        &mut self,
        run: &mut R,
        program: &P,
        mut active: Vec<bool>,
        flow: Flow,
    ) -> Result<()> {
        while active.contains(&true) {
            self.pass(run, program, &active, flow)?;
            active = self.publish(run);
        }
        Ok(())
    }

    /// Makes the states of the targets the sources of the next pass; returns the partitions with
    /// fresh nodes.
    fn publish<R: Passes>(&mut self, run: &mut R) -> Vec<bool> {
        let targets = &mut self.targets;
        let mut both: Vec<_> = self.sources.iter_mut().zip(targets.iter_mut()).collect();
        each_partition(run, &mut both, |_, (source, target)| {
            source.flags.copy_from_slice(&target.flags);
            source.colours.copy_from_slice(&target.colours);
            for flags in &mut target.flags {
                *flags &= !FRESH;
            }
            source.flags.iter().any(|flags| flags & FRESH != 0)
        })
    }

    /// Changes the remaining nodes: `change(number, flags, colour)` may return the component of a
    /// node. Afterwards the flags of targets and sources agree.
    fn settle<R: Passes>(
        &mut self,
        run: &mut R,
        change: impl Fn(u32, &mut u8, &mut u32) -> Option<u32> + Sync,
    ) -> Vec<bool> {
        let (targets, components) = (&mut self.targets, &mut self.components.of);
        let mut both: Vec<_> = targets.iter_mut().zip(components.iter_mut()).collect();
        self.left = each_partition(run, &mut both, |partition, (state, components)| {
            let mut left = 0;
            for local in 0..components.len() {
                let flags = &mut state.flags[local];
                if *flags & DONE != 0 {
                    continue;
                }
                let colour = &mut state.colours[local];
                match change(number(partition, local), flags, colour) {
                    Some(component) => {
                        *flags = DONE;
                        components[local] = component;
                    }
                    None => left += 1,
                }
            }
            left
        });
        self.publish(run)
    }

    /// One round of trimming; returns whether another round may be worth its pass.
    fn trim<R: Passes>(&mut self, run: &mut R) -> Result<bool> {
        let before = self.left();
        let program = Trim { symmetric: run.shape().symmetric };
        let all = self.all.clone();
        self.pass(run, &program, &all, Flow::Both)?;
        self.settle(run, |number, flags, _| {
            let kept = *flags & (HAS_IN | HAS_OUT) == HAS_IN | HAS_OUT;
            *flags = 0;
            (!kept).then_some(number)
        });
        let taken = before - self.left();
        Ok(taken > 0 && 100 * taken >= before)
    }

    /// Finds the component of the node with the largest product of degrees.
    fn around_pivot<R: Passes>(&mut self, run: &mut R) -> Result<()> {
        let mut best = None;
        // One kind of degree after the other, because a run reads the degrees of many partitions at
        // once. In-degrees are stored in the colours, which are not used yet.
        for partition in 0..self.sources.len() {
            self.sources[partition].colours = run.degrees(Degree::In, partition)?;
        }
        for partition in 0..self.targets.len() {
            let outs = run.degrees(Degree::Out, partition)?;
            let flags = &self.targets[partition].flags;
            for (local, (&into, out)) in
                self.sources[partition].colours.iter().zip(outs).enumerate()
            {
                let product = u64::from(into) * u64::from(out);
                if flags[local] & DONE == 0 && best.is_none_or(|(most, _)| product > most) {
                    best = Some((product, number(partition, local)));
                }
            }
        }
        let Some((_, pivot)) = best else { return Ok(()) };
        let active = self.settle(run, |number, flags, _| {
            if number == pivot {
                *flags = AHEAD | BEHIND | FRESH;
            }
            None
        });
        let reach = Reach { symmetric: run.shape().symmetric };
        self.spread(run, &reach, active, Flow::Both)?;
        self.settle(run, |_, flags, _| {
            let component = *flags & (AHEAD | BEHIND) == AHEAD | BEHIND;
            *flags = 0;
            component.then_some(pivot)
        });
        Ok(())
    }

    /// Finds a component for each colour.
    fn colour<R: Passes>(&mut self, run: &mut R) -> Result<()> {
        let active = self.settle(run, |number, flags, colour| {
            (*flags, *colour) = (FRESH, number);
            None
        });
        self.spread(run, &Colour, active, Flow::Along)?;
        let active = self.settle(run, |number, flags, colour| {
            *flags = if *colour == number { BEHIND | FRESH } else { 0 };
            None
        });
        self.spread(run, &Inside, active, Flow::Against)?;
        self.settle(run, |_, flags, colour| (*flags & BEHIND != 0).then_some(*colour));
        Ok(())
    }
}

/// Marks nodes with arcs from and to other remaining nodes.
struct Trim {
    symmetric: bool,
}

impl EdgeProgram for Trim {
    type Source = State;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, source: &State, target: &mut State) {
        let mark = match arcs.side {
            _ if self.symmetric => HAS_IN | HAS_OUT,
            Side::ToRows => HAS_IN,
            Side::ToColumns => HAS_OUT,
        };
        let same = source.partition == target.partition;
        arcs.for_each(|from, to, _| {
            if source.flags[from] & DONE == 0 && !(same && from == to) {
                target.flags[to] |= mark;
            }
        });
    }
}

/// One step from the pivot in both directions.
struct Reach {
    symmetric: bool,
}

impl EdgeProgram for Reach {
    type Source = State;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, source: &State, target: &mut State) {
        let passed = match arcs.side {
            _ if self.symmetric => AHEAD | BEHIND,
            Side::ToRows => AHEAD,
            Side::ToColumns => BEHIND,
        };
        arcs.for_each(|from, to, _| {
            // Finished nodes have none of the marks.
            let new = source.flags[from] & passed & !target.flags[to];
            if new != 0 && target.flags[to] & DONE == 0 {
                target.flags[to] |= new | FRESH;
            }
        });
    }
}

/// One step of spreading the largest number along the arcs.
struct Colour;

impl EdgeProgram for Colour {
    type Source = State;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, source: &State, target: &mut State) {
        arcs.for_each(|from, to, _| {
            let colour = source.colours[from];
            if source.flags[from] & FRESH != 0
                && colour > target.colours[to]
                && target.flags[to] & DONE == 0
            {
                target.colours[to] = colour;
                target.flags[to] |= FRESH;
            }
        });
    }
}

/// One step from the root of each colour against the arcs, within the colour.
struct Inside;

impl EdgeProgram for Inside {
    type Source = State;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, source: &State, target: &mut State) {
        arcs.for_each(|from, to, _| {
            if source.flags[from] & FRESH != 0
                && target.flags[to] & (DONE | BEHIND) == 0
                && source.colours[from] == target.colours[to]
            {
                target.flags[to] |= BEHIND | FRESH;
            }
        });
    }
}

/// For each node, the number of one node of its component; it is the same for the whole component.
struct Components {
    of: Vec<Vec<u32>>,
}

impl Components {
    /// Names the components by their smallest node ids.
    fn finish<R: Passes>(self, run: &mut R) -> Result<Raw<i64>> {
        let place = |number: u32| ((number >> 16) as usize, (number & 0xFFFF) as usize);
        let mut smallest: Vec<Vec<u32>> =
            self.of.iter().map(|of| vec![u32::MAX; of.len()]).collect();
        let mut sizes: Vec<Vec<u32>> = self.of.iter().map(|of| vec![0; of.len()]).collect();
        for (partition, of) in self.of.iter().enumerate() {
            for (&component, node) in of.iter().zip(run.nodes(partition)?) {
                let (at, local) = place(component);
                smallest[at][local] = smallest[at][local].min(node);
                sizes[at][local] += 1;
            }
        }
        let isolated = run.shape().nodes - run.shape().connected;
        let found = sizes.iter().flatten().filter(|&&size| size > 0).count() as u64;
        let largest = sizes.iter().flatten().max().copied().unwrap_or(0);
        drop(sizes);
        let mut facts = serde_json::Map::new();
        facts.insert("components".into(), (found + isolated).into());
        facts.insert("largest".into(), largest.max(u32::from(isolated > 0)).into());
        let by_partition = self
            .of
            .into_iter()
            .map(|of| {
                let named = of.into_iter().map(|component| {
                    let (at, local) = place(component);
                    i64::from(smallest[at][local])
                });
                named.collect()
            })
            .collect();
        Ok(Raw { by_partition: Parts::Here(by_partition), isolated: Isolated::Itself, facts })
    }
}
