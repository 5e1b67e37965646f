//! Triangles.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use outercore_core::{Bytes, Result};
use outercore_grid::{Arcs, Side};
use serde::{Deserialize, Serialize};

use crate::algorithm::{GraphAlgorithm, Scale};
use crate::gather::neighbour_counts;
use crate::output::{Isolated, Need, Raw, Working};
use crate::partitions::{all, each_partition};
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::result::AnyRaw;
use crate::state::Parts;
use crate::teleport::Teleport;

/// Bytes per node of a group, without its list: start and length of the list.
const PER_NODE: u64 = 12;

/// Options of [`triangles`], which has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Triangles {}

impl GraphAlgorithm for Triangles {
    fn need(&self, scale: &Scale<'_>) -> Need {
        let nodes = scale.shape.connected.min(1 << scale.shape.partition_log2);
        let lists = |arcs: u64, nodes: u64| 4 * arcs + PER_NODE * nodes;
        let least = 2 * lists(scale.largest.min(scale.shape.edges), nodes);
        Need {
            state_per_node: 16,
            fixed: Bytes(0),
            output: Bytes(8 * scale.shape.nodes),
            working: Some(Working {
                least: Bytes(least),
                most: Bytes(lists(scale.shape.edges, scale.shape.connected).max(least)),
            }),
            passes: None,
            spill: None,
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        triangles(run).map(AnyRaw::from)
    }
}

/// The number of triangles of each node.
///
/// A triangle is three nodes with an arc between each two of them. Directions, loops and parallel
/// arcs make no difference. Nodes without arcs are in no triangle. Facts: `triangles` (in total)
/// and `groups`.
///
/// # Method
/// Every edge points at its node of larger degree, so lists have at most `sqrt(2 m)` nodes. A
/// triangle is a common entry of the list of a node and the list of a node in it. If not all lists
/// fit into the working memory, groups of partitions take half of it each, and every two groups are
/// in memory together once.
///
/// # Cost
/// One pass to count, then `g (g + 1) / 2` passes for `g` groups, each over the blocks of one
/// group. State: 16 bytes per connected node; lists: 4 bytes per edge of a group.
///
/// # Errors
/// A failed or corrupt read; a stop request.
///
/// # Source
/// Schank, Wagner, "Finding, counting and listing all triangles in large graphs, an experimental
/// study" (2005), algorithm forward; by parts as in Chu, Cheng, "Triangle listing in massive
/// networks", TKDD 6 (2012).
pub fn triangles<R: Passes>(run: &mut R) -> Result<Raw<i64>> {
    let Corners { found, groups, .. } = corners(run, Counted::Triangles)?;
    let by_partition: Vec<Vec<i64>> = found
        .into_iter()
        .map(|found| found.into_iter().map(|count| count.into_inner() as i64).collect())
        .collect();
    let corners: i64 = by_partition.iter().flatten().sum();
    let mut facts = serde_json::Map::new();
    facts.insert("triangles".into(), (corners / 3).into());
    facts.insert("groups".into(), groups.into());
    Ok(Raw { by_partition: Parts::Here(by_partition), isolated: Isolated::Same(0), facts })
}

/// The quantity to count at a corner of a triangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// The triangle.
    Triangles,
    /// The arcs between the other two corners: one or two.
    Arcs,
}

/// Counts at the corners of all triangles.
pub(super) struct Corners {
    /// By partition: the count at each node.
    pub(super) found: Vec<Vec<AtomicU64>>,
    /// By partition, if arcs are counted: the number of neighbours of each node, without the node
    /// itself.
    pub(super) neighbours: Vec<Vec<AtomicU32>>,
    pub(super) groups: usize,
}

/// Processes every triangle once.
pub(super) fn corners<R: Passes>(run: &mut R, counted: Counted) -> Result<Corners> {
    let count = Count::new(run, counted)?;
    let groups = groups(&count.longest, run.working().0);
    let total = (groups.len() * (groups.len() + 1) / 2) as u64;
    let mut done = 0;
    for (at, first) in groups.iter().enumerate() {
        run.progress("groups", done, total)?;
        let lists = count.lists(run, first)?;
        count.meet_neighbours(run, first, &lists);
        count.meet(run, first, &lists, first, &lists);
        done += 1;
        for second in &groups[at + 1..] {
            run.progress("groups", done, total)?;
            let others = count.lists(run, second)?;
            count.meet(run, first, &lists, second, &others);
            count.meet(run, second, &others, first, &lists);
            done += 1;
        }
    }
    let Count { found, neighbours, .. } = count;
    Ok(Corners { found, neighbours, groups: groups.len() })
}

/// The number of a node: partition and local id. Partitions take at most 12 bits, so two bits of a
/// list entry remain for the arcs to the neighbour and back.
fn number(partition: usize, local: usize) -> u32 {
    (partition as u32) << 16 | local as u32
}

/// A neighbour in a list, with flags for the existing arcs: see [`OUT`] and [`BACK`].
fn entry(number: u32, arcs: u32) -> u32 {
    number << 2 | arcs
}

/// The arc from the owner of the list.
const OUT: u32 = 1;
/// The arc to the owner of the list.
const BACK: u32 = 2;

/// The node of an entry.
fn node(entry: u32) -> u32 {
    entry >> 2
}

/// How many of the two arcs exist.
fn arcs(entry: u32) -> u64 {
    u64::from((entry & (OUT | BACK)).count_ones())
}

/// Ranges of partitions. A single range if all lists fit into `working`; otherwise as many
/// partitions per range as fit into half of it, at least one.
fn groups(longest: &[Vec<u32>], working: u64) -> Vec<Range<usize>> {
    let bytes = |longest: &[u32]| longest.iter().map(|&len| 4 * u64::from(len) + PER_NODE).sum();
    let sizes: Vec<u64> = longest.iter().map(|longest| bytes(longest)).collect();
    let room = if sizes.iter().sum::<u64>() <= working { working } else { working / 2 };
    let mut groups: Vec<Range<usize>> = Vec::new();
    let mut used = 0;
    for (partition, bytes) in sizes.into_iter().enumerate() {
        match groups.last_mut() {
            Some(group) if used + bytes <= room => {
                group.end = partition + 1;
                used += bytes;
            }
            _ => {
                groups.push(partition..partition + 1);
                used = bytes;
            }
        }
    }
    groups
}

struct Count {
    /// By partition: degrees, including loops and parallel arcs.
    degrees: Vec<Vec<u32>>,
    /// By partition: number of neighbours that a node points at, including parallel arcs.
    longest: Vec<Vec<u32>>,
    counted: Counted,
    /// By partition: the counts so far.
    found: Vec<Vec<AtomicU64>>,
    /// See [`Corners`].
    neighbours: Vec<Vec<AtomicU32>>,
}

impl Count {
    fn new<R: Passes>(run: &mut R, counted: Counted) -> Result<Self> {
        let degrees = neighbour_counts(run, Flow::Both)?.into_here()?;
        let longest = degrees.iter().map(|degrees| vec![0; degrees.len()]).collect();
        let found = degrees
            .iter()
            .map(|degrees| degrees.iter().map(|_| AtomicU64::new(0)).collect())
            .collect();
        let neighbours = match counted {
            Counted::Triangles => Vec::new(),
            Counted::Arcs => degrees
                .iter()
                .map(|degrees| degrees.iter().map(|_| AtomicU32::new(0)).collect())
                .collect(),
        };
        let mut count = Self { degrees, longest, counted, found, neighbours };
        count.measure(run)?;
        Ok(count)
    }

    /// Counts how many neighbours each node will point at.
    fn measure<R: Passes>(&mut self, run: &mut R) -> Result<()> {
        let partitions = self.degrees.len();
        let all = all(partitions);
        let sources: Vec<usize> = (0..partitions).collect();
        let mut targets: Vec<(usize, Vec<u32>)> =
            std::mem::take(&mut self.longest).into_iter().enumerate().collect();
        let select = Selection { sources: &all, targets: &all, flow: Flow::Both, weights: false };
        run.progress("counting", 0, 1)?;
        run.pass(&Measure { degrees: &self.degrees }, &sources, &mut targets, &select)?;
        self.longest = targets.into_iter().map(|target| target.1).collect();
        Ok(())
    }

    /// The lists of a group of partitions, sorted, every neighbour once.
    fn lists<R: Passes>(&self, run: &mut R, group: &Range<usize>) -> Result<Vec<Lists>> {
        let partitions = self.degrees.len();
        let all = all(partitions);
        let wanted: Vec<bool> = (0..partitions).map(|p| group.contains(&p)).collect();
        let sources: Vec<usize> = (0..partitions).collect();
        let mut lists: Vec<Lists> = self
            .longest
            .iter()
            .enumerate()
            .map(|(partition, longest)| match wanted[partition] {
                true => Lists::new(partition, longest),
                false => Lists::default(),
            })
            .collect();
        let select =
            Selection { sources: &all, targets: &wanted, flow: Flow::Both, weights: false };
        let fill = Fill { degrees: &self.degrees, symmetric: run.shape().symmetric };
        run.pass(&fill, &sources, &mut lists, &select)?;
        each_partition(run, &mut lists, |_, lists| lists.tidy());
        Ok(lists)
    }

    /// Counts the neighbours over the edges in the lists of a group, at both ends.
    fn meet_neighbours<R: Passes>(&self, run: &mut R, group: &Range<usize>, lists: &[Lists]) {
        if self.counted == Counted::Triangles {
            return;
        }
        run.partitions(|partition| {
            if !group.contains(&partition) {
                return;
            }
            for local in 0..lists[partition].lens.len() {
                let list = lists[partition].of(local);
                self.neighbours[partition][local].fetch_add(list.len() as u32, Ordering::Relaxed);
                for &other in list {
                    at(&self.neighbours, node(other)).fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }

    /// Counts the triangles whose lowest node is in `first` and whose middle node is in `second`.
    fn meet<R: Passes>(
        &self,
        run: &mut R,
        first: &Range<usize>,
        lists: &[Lists],
        second: &Range<usize>,
        others: &[Lists],
    ) {
        let add = |number: u32, count: u64| {
            at(&self.found, number).fetch_add(count, Ordering::Relaxed);
        };
        let weigh = |arcs: u64| if self.counted == Counted::Arcs { arcs } else { 1 };
        run.partitions(|partition| {
            if !first.contains(&partition) {
                return;
            }
            for local in 0..lists[partition].lens.len() {
                let list = lists[partition].of(local);
                let mut corners = 0;
                // Numbers ascend by partition, so the middle nodes of `second` are contiguous.
                let partition_of = |entry: u32| (node(entry) >> 16) as usize;
                let from = list.partition_point(|&other| partition_of(other) < second.start);
                let to = list.partition_point(|&other| partition_of(other) < second.end);
                for &middle in &list[from..to] {
                    let other = others[partition_of(middle)].of((node(middle) & 0xFFFF) as usize);
                    let (mut met, mut across) = (0, 0);
                    each_common(list, other, |top, from_middle| {
                        add(node(top), weigh(arcs(middle)));
                        met += weigh(arcs(top));
                        across += weigh(arcs(from_middle));
                    });
                    if met > 0 {
                        add(node(middle), met);
                        corners += across;
                    }
                }
                if corners > 0 {
                    add(number(partition, local), corners);
                }
            }
        });
    }
}

/// The element for the node with this number.
fn at<T>(values: &[Vec<T>], number: u32) -> &T {
    &values[(number >> 16) as usize][(number & 0xFFFF) as usize]
}

/// Calls `each` with the entries of the nodes that are in both of two ascending lists.
fn each_common(mut a: &[u32], mut b: &[u32], mut each: impl FnMut(u32, u32)) {
    while let (Some(&first), Some(&second)) = (a.first(), b.first()) {
        if node(first) == node(second) {
            each(first, second);
        }
        a = &a[usize::from(node(first) <= node(second))..];
        b = &b[usize::from(node(second) <= node(first))..];
    }
}

/// The nodes that each node of a partition points at.
#[derive(Default)]
struct Lists {
    partition: usize,
    starts: Vec<u64>,
    lens: Vec<u32>,
    nodes: Vec<u32>,
}

impl Lists {
    fn new(partition: usize, longest: &[u32]) -> Self {
        let mut starts = Vec::with_capacity(longest.len());
        let mut end = 0;
        for &len in longest {
            starts.push(end);
            end += u64::from(len);
        }
        Self { partition, starts, lens: vec![0; longest.len()], nodes: vec![0; end as usize] }
    }

    fn of(&self, local: usize) -> &[u32] {
        &self.nodes[self.starts[local] as usize..][..self.lens[local] as usize]
    }

    /// Sorts each list and merges repeated neighbours, combining their arcs.
    fn tidy(&mut self) {
        for (&start, len) in self.starts.iter().zip(&mut self.lens) {
            let list = &mut self.nodes[start as usize..][..*len as usize];
            list.sort_unstable();
            let mut kept = 0;
            for at in 0..list.len() {
                if kept > 0 && node(list[at]) == node(list[kept - 1]) {
                    list[kept - 1] |= list[at];
                } else {
                    list[kept] = list[at];
                    kept += 1;
                }
            }
            *len = kept as u32;
        }
    }
}

/// Whether an edge points from `low` to `high`: at the larger degree, and for equal degrees at the
/// larger number. Never true for a loop.
fn points(low: (u32, u32), high: (u32, u32)) -> bool {
    low < high
}

/// Counts the neighbours that a node points at.
struct Measure<'a> {
    degrees: &'a [Vec<u32>],
}

impl EdgeProgram for Measure<'_> {
    /// The partition.
    type Source = usize;
    /// The partition, and the counts.
    type Target = (usize, Vec<u32>);

    fn apply(&self, arcs: &Arcs<'_>, &source: &usize, target: &mut Self::Target) {
        let (sources, targets) = (&self.degrees[source][..], &self.degrees[target.0][..]);
        let (at, counts) = (target.0, &mut target.1);
        arcs.for_each(|from, to, _| {
            let high = (sources[from], number(source, from));
            counts[to] += u32::from(points((targets[to], number(at, to)), high));
        });
    }
}

/// Lists the neighbours that a node points at.
struct Fill<'a> {
    degrees: &'a [Vec<u32>],
    symmetric: bool,
}

impl EdgeProgram for Fill<'_> {
    /// The partition.
    type Source = usize;
    type Target = Lists;

    fn apply(&self, arcs: &Arcs<'_>, &source: &usize, lists: &mut Lists) {
        let (sources, targets) = (&self.degrees[source][..], &self.degrees[lists.partition][..]);
        let there = match arcs.side {
            _ if self.symmetric => OUT | BACK,
            // Rows are targets of arcs: for them, the arc leads back from the neighbour.
            Side::ToRows => BACK,
            Side::ToColumns => OUT,
        };
        arcs.for_each(|from, to, _| {
            let high = number(source, from);
            if points((targets[to], number(lists.partition, to)), (sources[from], high)) {
                lists.nodes[lists.starts[to] as usize + lists.lens[to] as usize] =
                    entry(high, there);
                lists.lens[to] += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_fill_the_room_and_have_at_least_one_partition() {
        let longest = [vec![1, 1], vec![2], vec![100], vec![0], vec![1]];
        // The partitions take 32, 20, 412, 12 and 16 bytes.
        assert_eq!(groups(&longest, 0), [0..1, 1..2, 2..3, 3..4, 4..5]);
        assert_eq!(groups(&longest, 104), [0..2, 2..3, 3..5]);
        assert_eq!(groups(&longest, 492).len(), 1);
    }

    #[test]
    fn lists_join_what_is_there_twice() {
        let mut lists = Lists::new(0, &[4, 0, 2]);
        let entries = [(7, OUT), (3, OUT), (7, BACK), (3, OUT), (9, BACK), (9, OUT)];
        lists.nodes.copy_from_slice(&entries.map(|(number, arcs)| entry(number, arcs)));
        lists.lens = vec![4, 0, 2];
        lists.tidy();
        assert_eq!(lists.of(0), [entry(3, OUT), entry(7, OUT | BACK)]);
        assert_eq!([lists.of(1), lists.of(2)], [&[][..], &[entry(9, OUT | BACK)]]);
        assert_eq!([arcs(lists.of(0)[0]), arcs(lists.of(0)[1])], [1, 2]);
    }
}
