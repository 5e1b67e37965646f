//! Graphs with several types, and their neighbour sampler straight from its definition.

use std::collections::HashMap;

use outercore_core::Stream;
use outercore_format::Schema;

use crate::Csc;
use crate::sampler::pick;

/// An edge type (source, relation, target) and its edges (source, target).
pub type NamedEdges<'a> = (&'a str, &'a str, &'a str, &'a [(u64, u64)]);

/// A graph with a CSC for each edge type, in the order of their names. Sources, targets and edge ids
/// count from 0 within their type.
#[derive(Clone, Debug)]
pub struct TypedGraph {
    /// The types.
    pub schema: Schema,
    /// By edge type.
    pub edges: Vec<Csc>,
}

impl TypedGraph {
    /// A graph of node types (name, count) and edge types (source, relation, target, edges).
    ///
    /// # Panics
    /// If an edge type names a node type that is not there, or an edge leaves it.
    pub fn new(node_types: &[(&str, u64)], edge_types: &[NamedEdges<'_>]) -> Self {
        let count = |name: &str| node_types.iter().find(|(known, _)| *known == name).unwrap().1;
        let mut sorted: Vec<_> = edge_types
            .iter()
            .map(|&(source, relation, target, edges)| {
                (format!("{source}__{relation}__{target}"), source, target, edges)
            })
            .collect();
        sorted.sort();
        let schema = Schema::new(
            node_types.iter().map(|&(name, count)| (name.to_owned(), count)),
            sorted.iter().map(|(name, source, target, edges)| {
                (name.clone(), *source, *target, edges.len() as u64)
            }),
        );
        let edges = sorted.iter().map(|&(_, source, target, edges)| {
            assert!(edges.iter().all(|edge| edge.0 < count(source)));
            Csc::from_edges(count(target), edges)
        });
        Self { schema: schema.unwrap(), edges: edges.collect() }
    }

    /// Some authors, papers and venues, deterministic: every node type is a target and a source, and
    /// two edge types connect the same node types.
    pub fn bibliography(authors: u64, papers: u64, venues: u64) -> Self {
        let mut draws = Stream::new(authors ^ papers << 20, venues).uniform(0, 0, 0);
        let mut drawn = |count: u64, sources: u64, targets: u64| -> Vec<(u64, u64)> {
            (0..count).map(|_| (draws.below(sources), draws.below(targets))).collect()
        };
        let writes = drawn(papers * 4, authors, papers);
        let reviews = drawn(papers, authors, papers);
        let cites = drawn(papers * 6, papers, papers);
        let appears = drawn(papers, papers, venues);
        let invites = drawn(venues * 3, venues, authors);
        Self::new(
            &[("venue", venues), ("author", authors), ("paper", papers)],
            &[
                ("author", "writes", "paper", &writes),
                ("author", "reviews", "paper", &reviews),
                ("paper", "cites", "paper", &cites),
                ("paper", "in", "venue", &appears),
                ("venue", "invites", "author", &invites),
            ],
        )
    }

    /// All edges as one CSC with a column for each pair of edge type and target, as data sets store
    /// it: global sources, rows of all edge types.
    pub fn union(&self) -> Csc {
        let mut union = Csc { offsets: vec![0], sources: Vec::new(), ids: Vec::new() };
        for (edge_type, edges) in self.schema.edge_types().iter().zip(&self.edges) {
            let first_source = self.schema.node_types()[edge_type.source].nodes.start;
            let before = union.sources.len() as u64;
            union.offsets.extend(edges.offsets[1..].iter().map(|offset| before + offset));
            union.sources.extend(edges.sources.iter().map(|source| first_source + source));
            union.ids.extend(edges.ids.iter().map(|id| edge_type.rows.start + id));
        }
        union
    }
}

/// A sampled batch by type, with its edges written out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NaiveTypedBatch {
    /// By node type: ids within the type, seeds first.
    pub nodes: Vec<Vec<u64>>,
    /// By node type: seeds, then the new nodes of every hop.
    pub nodes_per_hop: Vec<Vec<u64>>,
    /// By edge type: `(local source, local destination)` of every edge, each within its node type.
    pub edges: Vec<Vec<(usize, usize)>>,
    /// By edge type: id of every edge within the type.
    pub edge_ids: Vec<Vec<u64>>,
    /// By edge type: edges of every hop.
    pub edges_per_hop: Vec<Vec<u64>>,
}

/// Samples a batch around seeds (node type, id within it); `fan_outs` by edge type, then by hop.
/// A fan-out of `None` takes all in-edges.
pub fn naive_typed_sample(
    graph: &TypedGraph,
    stream: Stream,
    batch: u64,
    seeds: &[(usize, u64)],
    fan_outs: &[Vec<Option<u64>>],
    replace: bool,
) -> NaiveTypedBatch {
    let (node_types, edge_types) = (graph.schema.node_types(), graph.schema.edge_types());
    let mut sampled = NaiveTypedBatch {
        nodes: vec![Vec::new(); node_types.len()],
        nodes_per_hop: vec![Vec::new(); node_types.len()],
        edges: vec![Vec::new(); edge_types.len()],
        edge_ids: vec![Vec::new(); edge_types.len()],
        edges_per_hop: vec![Vec::new(); edge_types.len()],
    };
    let mut local = HashMap::new();
    for &(node_type, seed) in seeds {
        let slot = sampled.nodes[node_type].len();
        local.entry((node_type, seed)).or_insert(slot);
        sampled.nodes[node_type].push(seed);
    }
    let mut frontier: Vec<_> = sampled.nodes.iter().map(|nodes| 0..nodes.len()).collect();
    let hops = 0..fan_outs.first().map_or(0, Vec::len);
    for (counts, nodes) in sampled.nodes_per_hop.iter_mut().zip(&sampled.nodes) {
        counts.push(nodes.len() as u64);
    }
    for hop in hops {
        for (number, edge_type) in edge_types.iter().enumerate() {
            let csc = &graph.edges[number];
            let edges_before = sampled.edges[number].len();
            for destination in frontier[edge_type.target].clone() {
                let target = sampled.nodes[edge_type.target][destination];
                let start = csc.offsets[target as usize];
                let degree = csc.offsets[target as usize + 1] - start;
                let column = edge_type.columns.start + target;
                let fan_out = fan_outs[number][hop];
                for place in pick(stream, batch, hop as u32, column, degree, fan_out, replace) {
                    let position = (start + place) as usize;
                    let source = csc.sources[position];
                    let next = sampled.nodes[edge_type.source].len();
                    let slot = *local.entry((edge_type.source, source)).or_insert(next);
                    if slot == next {
                        sampled.nodes[edge_type.source].push(source);
                    }
                    sampled.edges[number].push((slot, destination));
                    sampled.edge_ids[number].push(csc.ids[position]);
                }
            }
            let found = sampled.edges[number].len() - edges_before;
            sampled.edges_per_hop[number].push(found as u64);
        }
        for (node_type, frontier) in frontier.iter_mut().enumerate() {
            *frontier = frontier.end..sampled.nodes[node_type].len();
            sampled.nodes_per_hop[node_type].push(frontier.len() as u64);
        }
    }
    sampled
}
