//! Graph reorganisation for the spatial locality of requests.
//!
//! **Source** GLIST 4.3.2, algorithm 2.

use std::cmp::Reverse;

use outercore_core::{Bytes, NodeId, Result, Stream};
use outercore_store::Topology;

use super::lists::{Lists, in_degrees};
use super::{STEP, require};
use crate::OnProgress;

/// Seed of the sampled working sets, fixed so that the same graph always has the same order.
const SEED: u64 = 0;

/// A node in more sampled working sets than this says little about their similarity, and would make
/// the search quadratic. Overlap by such a node does not count.
pub(super) const MOST_SHARED: usize = 256;

/// Most bytes of memory per node, if all nodes are centres: the centres, the starts of sets and of
/// their holders, the numbers of remaining holders, the finished sets, counts, and the sequence.
const NODE: u64 = 36;

/// Bytes of memory per member of a working set: in the set, and in the index of sets by member.
const MEMBER: u64 = 8;

/// The node has no place yet.
const NOWHERE: u32 = u32::MAX;

/// Parameters of the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    /// Number of hops of a working set.
    pub hops: u32,
    /// Largest number of important nodes.
    pub centres: u64,
    /// Important nodes have an in-degree below this.
    pub most_degree: u64,
}

/// The nodes by place.
///
/// The important nodes are the nodes with the highest in-degrees below a bound. They form a
/// sequence: each is followed by the node whose sampled working set has the most members in common
/// with its own. In this sequence, each node gives places to itself and to its neighbours within
/// `hops`, unless they have places. All other nodes follow by id.
pub(super) fn reorganise(
    topology: &dyn Topology,
    wanted: Parameters,
    room: Bytes,
    on_progress: OnProgress<'_>,
) -> Result<Vec<u32>> {
    let nodes = topology.num_nodes();
    require(nodes * NODE, room)?;
    let centres = important(&in_degrees(topology)?, wanted);
    let sets = WorkingSets::sample(topology, &centres, wanted.hops, room, on_progress)?;
    let sequence = sequence(sets, nodes, on_progress)?;
    let mut places = Assignment::new(topology, wanted.hops);
    for (done, &centre) in sequence.iter().enumerate() {
        if done.is_multiple_of(STEP) {
            on_progress("placing", done as u64, sequence.len() as u64, "nodes")?;
        }
        places.neighbourhood(centres[centre as usize])?;
    }
    Ok(places.finish())
}

/// The important nodes, by falling in-degree, then by id.
fn important(degrees: &[u32], wanted: Parameters) -> Vec<u32> {
    let is_below = |node: &u32| u64::from(degrees[*node as usize]) < wanted.most_degree;
    let mut nodes: Vec<u32> = (0..degrees.len() as u32).filter(is_below).collect();
    nodes.sort_unstable_by_key(|&node| (Reverse(degrees[node as usize]), node));
    nodes.truncate(usize::try_from(wanted.centres).unwrap_or(usize::MAX));
    nodes
}

/// Sampled working sets, stored one after the other.
struct WorkingSets {
    /// The start of each set, and the end of the last one.
    starts: Vec<usize>,
    members: Vec<u32>,
}

impl WorkingSets {
    /// Samples √n of the n nodes within `hops` of each centre, including the centre.
    fn sample(
        topology: &dyn Topology,
        centres: &[u32],
        hops: u32,
        room: Bytes,
        on_progress: OnProgress<'_>,
    ) -> Result<Self> {
        let mut near = Near::new(topology, hops);
        let mut sets = Self { starts: vec![0], members: Vec::new() };
        let stream = Stream::new(SEED, 0);
        let mut total = 0;
        let needed = |members: u64| topology.num_nodes() * NODE + members * MEMBER;
        for (done, &centre) in centres.iter().enumerate() {
            if done.is_multiple_of(STEP) {
                on_progress("sampling", done as u64, centres.len() as u64, "nodes")?;
            }
            let all = near.of(centre)?;
            let mut draws = stream.uniform(0, 0, centre.into());
            let count = (all.len() as f64).sqrt().ceil() as usize;
            total += count as u64;
            if needed(total) > room.0 {
                // From here on, members are only counted, to report the sufficient memory.
                continue;
            }
            for place in 0..count {
                let other = place + draws.below((all.len() - place) as u64) as usize;
                all.swap(place, other);
            }
            sets.members.extend_from_slice(&all[..count]);
            sets.starts.push(sets.members.len());
        }
        require(needed(total), room)?;
        Ok(sets)
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn of(&self, set: u32) -> &[u32] {
        &self.members[self.starts[set as usize]..self.starts[set as usize + 1]]
    }
}

/// Finds the nodes within some hops of a node.
struct Near<'a> {
    lists: Lists<'a>,
    hops: u32,
    /// Number of the last search that saw each node.
    seen: Vec<u32>,
    search: u32,
    found: Vec<u32>,
}

impl<'a> Near<'a> {
    fn new(topology: &'a dyn Topology, hops: u32) -> Self {
        let seen = vec![0; topology.num_nodes() as usize];
        Self { lists: Lists::new(topology), hops, seen, search: 0, found: Vec::new() }
    }

    /// The nodes within `hops` of `node`, breadth first; the node itself comes first.
    fn of(&mut self, node: u32) -> Result<&mut [u32]> {
        // There is at most one search per node, so the number never returns to 0.
        self.search += 1;
        self.found.clear();
        self.found.push(node);
        self.seen[node as usize] = self.search;
        let mut begin = 0;
        for _ in 0..self.hops {
            let end = self.found.len();
            for place in begin..end {
                for &neighbour in self.lists.of(self.found[place])? {
                    if std::mem::replace(&mut self.seen[neighbour as usize], self.search)
                        != self.search
                    {
                        self.found.push(neighbour as u32);
                    }
                }
            }
            begin = end;
        }
        Ok(&mut self.found)
    }
}

/// For each node, the sets that contain it; finished sets are removed when they are encountered.
struct Holders {
    starts: Vec<usize>,
    /// Number of each node's remaining sets, at the front of its part of `sets`.
    left: Vec<u32>,
    sets: Vec<u32>,
}

impl Holders {
    fn new(working: &WorkingSets, nodes: u64) -> Self {
        let mut starts = vec![0; nodes as usize + 1];
        for &member in &working.members {
            starts[member as usize + 1] += 1;
        }
        for node in 1..starts.len() {
            starts[node] += starts[node - 1];
        }
        let (mut left, mut sets) = (vec![0; nodes as usize], vec![0; working.members.len()]);
        for set in 0..working.len() as u32 {
            for &member in working.of(set) {
                sets[starts[member as usize] + left[member as usize] as usize] = set;
                left[member as usize] += 1;
            }
        }
        Self { starts, left, sets }
    }

    /// Calls `each` for the unfinished sets that contain the node.
    fn each(&mut self, node: u32, is_done: &[bool], mut each: impl FnMut(u32)) {
        let node = node as usize;
        let begin = self.starts[node];
        if self.starts[node + 1] - begin > MOST_SHARED {
            return;
        }
        let mut at = begin;
        while at < begin + self.left[node] as usize {
            if is_done[self.sets[at] as usize] {
                self.left[node] -= 1;
                self.sets[at] = self.sets[begin + self.left[node] as usize];
            } else {
                each(self.sets[at]);
                at += 1;
            }
        }
    }
}

/// The sets by overlap. Each is followed by the remaining set with the most members in common, ties
/// by the lower number. If no set has members in common, the first remaining set follows.
fn sequence(working: WorkingSets, nodes: u64, on_progress: OnProgress<'_>) -> Result<Vec<u32>> {
    let count = working.len();
    let mut holders = Holders::new(&working, nodes);
    let mut is_done = vec![false; count];
    let mut common = vec![0u32; count];
    let (mut touched, mut first) = (Vec::new(), 0);
    let mut sequence: Vec<u32> = Vec::with_capacity(count);
    let mut next = (count > 0).then_some(0u32);
    while let Some(set) = next {
        if sequence.len().is_multiple_of(STEP) {
            on_progress("ordering", sequence.len() as u64, count as u64, "nodes")?;
        }
        sequence.push(set);
        is_done[set as usize] = true;
        for &member in working.of(set) {
            holders.each(member, &is_done, |other| {
                if common[other as usize] == 0 {
                    touched.push(other);
                }
                common[other as usize] += 1;
            });
        }
        next = touched.iter().copied().max_by_key(|&set| (common[set as usize], Reverse(set)));
        touched.drain(..).for_each(|set| common[set as usize] = 0);
        if next.is_none() {
            while is_done.get(first).is_some_and(|is_done| *is_done) {
                first += 1;
            }
            next = (first < count).then_some(first as u32);
        }
    }
    Ok(sequence)
}

/// Assigns places to neighbourhoods.
struct Assignment<'a> {
    lists: Lists<'a>,
    hops: u32,
    /// The nodes placed so far, by place.
    nodes: Vec<u32>,
    place: Vec<u32>,
    /// For each node, the number of hops within which all its neighbours have places.
    reach: Vec<u8>,
}

impl<'a> Assignment<'a> {
    fn new(topology: &'a dyn Topology, hops: u32) -> Self {
        let count = topology.num_nodes() as usize;
        Self {
            lists: Lists::new(topology),
            hops: hops.min(u8::MAX.into()),
            nodes: Vec::with_capacity(count),
            place: vec![NOWHERE; count],
            reach: vec![0; count],
        }
    }

    /// Assigns places to a node and to its neighbours within `hops` that have no place.
    fn neighbourhood(&mut self, centre: u32) -> Result<()> {
        self.place(centre);
        let mut frontier = vec![centre];
        for left in (1..=self.hops as u8).rev() {
            let mut next = Vec::new();
            for node in frontier {
                // All nodes that are reachable from here already have places.
                let reach = &mut self.reach[node as usize];
                if *reach >= left {
                    continue;
                }
                *reach = left;
                let neighbours: Vec<NodeId> = self.lists.of(node)?.to_vec();
                for neighbour in neighbours {
                    self.place(neighbour as u32);
                    next.push(neighbour as u32);
                }
            }
            frontier = next;
        }
        Ok(())
    }

    fn place(&mut self, node: u32) {
        if self.place[node as usize] == NOWHERE {
            self.place[node as usize] = self.nodes.len() as u32;
            self.nodes.push(node);
        }
    }

    /// Assigns places to all other nodes, by id.
    fn finish(mut self) -> Vec<u32> {
        (0..self.place.len() as u32).for_each(|node| self.place(node));
        self.nodes
    }
}

#[cfg(test)]
mod tests {
    use outercore_store::resident::ResidentTopology;
    use outercore_testkit::Csc;
    use proptest::prelude::*;

    use super::*;

    fn topology(graph: &Csc) -> ResidentTopology {
        ResidentTopology::from_csc(graph.offsets.clone(), graph.sources.clone(), None).unwrap()
    }

    const ROOM: Bytes = Bytes::gib(1);

    /// Algorithm 2 line by line: compares every pair of working sets, and searches every
    /// neighbourhood completely.
    fn naive(graph: &Csc, wanted: Parameters) -> Vec<u32> {
        let topology = topology(graph);
        let degree = |node: u32| graph.offsets[node as usize + 1] - graph.offsets[node as usize];
        let nodes = graph.num_nodes() as u32;
        let mut centres: Vec<u32> =
            (0..nodes).filter(|&node| degree(node) < wanted.most_degree).collect();
        centres.sort_by_key(|&node| (Reverse(degree(node)), node));
        centres.truncate(wanted.centres as usize);
        let sets =
            WorkingSets::sample(&topology, &centres, wanted.hops, ROOM, &mut |_, _, _, _| Ok(()))
                .unwrap();
        let held =
            |node: u32| (0..sets.len() as u32).filter(|&set| sets.of(set).contains(&node)).count();
        let overlap = |a: u32, b: u32| {
            let common = sets.of(a).iter().filter(|node| sets.of(b).contains(node));
            common.filter(|&&node| held(node) <= MOST_SHARED).count()
        };
        let mut left: Vec<u32> = (0..sets.len() as u32).collect();
        let mut sequence = Vec::new();
        let mut next = left.first().copied();
        while let Some(set) = next {
            sequence.push(set);
            left.retain(|&other| other != set);
            next = left.iter().copied().max_by_key(|&other| (overlap(set, other), Reverse(other)));
        }
        let mut order: Vec<u32> = Vec::new();
        for set in sequence {
            let mut frontier = vec![centres[set as usize]];
            for hop in 0..=wanted.hops {
                for &node in &frontier {
                    if !order.contains(&node) {
                        order.push(node);
                    }
                }
                if hop < wanted.hops {
                    let list = |node: &u32| {
                        let range =
                            graph.offsets[*node as usize]..graph.offsets[*node as usize + 1];
                        graph.sources[range.start as usize..range.end as usize].to_vec()
                    };
                    let mut seen = std::collections::BTreeSet::new();
                    frontier = frontier
                        .iter()
                        .flat_map(list)
                        .map(|node| node as u32)
                        .filter(|node| seen.insert(*node))
                        .collect();
                }
            }
        }
        order.extend((0..nodes).filter(|node| !order.contains(node)).collect::<Vec<_>>());
        order
    }

    fn found(graph: &Csc, wanted: Parameters) -> Vec<u32> {
        reorganise(&topology(graph), wanted, ROOM, &mut |_, _, _, _| Ok(())).unwrap()
    }

    #[test]
    fn the_example_of_the_paper_keeps_a_neighbourhood_together() {
        // Node 5 has five neighbours; node 2 shares the most of them, then node 1; node 6 is
        // isolated.
        let pairs =
            [(5, 0), (5, 4), (5, 2), (5, 7), (5, 9), (2, 4), (2, 7), (1, 2), (1, 3), (1, 8)];
        let edges: Vec<(u64, u64)> = pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect();
        let graph = Csc::from_edges(10, &edges);
        let order = found(&graph, Parameters { hops: 1, centres: 3, most_degree: 100 });
        assert_eq!(order[..6], [5, 0, 2, 4, 7, 9]);
        assert_eq!(order[9], 6);
    }

    #[test]
    fn too_little_room_is_told_with_what_would_do() {
        let graph = Csc::power_law(1000, 9000, 1);
        let wanted = Parameters { hops: 1, centres: 1000, most_degree: 100 };
        for room in [Bytes(100), Bytes(36_100)] {
            let error =
                reorganise(&topology(&graph), wanted, room, &mut |_, _, _, _| Ok(())).unwrap_err();
            assert_eq!(error.kind(), outercore_core::ErrorKind::Budget);
            assert!(error.needed().is_some());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn it_is_algorithm_2(
            nodes in 1u64..60,
            edges in 0u64..200,
            seed in 0u64..1000,
            hops in 0u32..4,
            centres in prop::sample::select(vec![0u64, 1, 5, 1000]),
            most_degree in prop::sample::select(vec![0u64, 3, 8, 1000]),
        ) {
            let graph = Csc::power_law(nodes, edges, seed);
            let wanted = Parameters { hops, centres, most_degree };
            prop_assert_eq!(found(&graph, wanted), naive(&graph, wanted));
        }
    }

    #[test]
    fn a_node_in_too_many_sets_does_not_tie_them_together() {
        let graph = Csc::star(2 * MOST_SHARED as u64);
        let wanted = Parameters { hops: 1, centres: u64::MAX, most_degree: 10 };
        assert_eq!(found(&graph, wanted), naive(&graph, wanted));
    }
}
