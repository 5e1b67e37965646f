//! Graphs with several types, and their neighbour sampler, written directly from its definition.

use std::collections::HashMap;

use outercore_core::Stream;
use outercore_format::Schema;

use crate::Csc;
use crate::sampler::pick;

/// An edge type (source, relation, target) and its edges (source, target).
pub type NamedEdges<'a> = (&'a str, &'a str, &'a str, &'a [(u64, u64)]);

/// A graph with a CSC for each edge type, in the order of their names. Sources, targets and edge
/// ids count from 0 within their type.
#[derive(Clone, Debug)]
pub struct TypedGraph {
    /// The types.
    pub schema: Schema,
    /// Edges by edge type.
    pub edges: Vec<Csc>,
}

impl TypedGraph {
    /// A graph of node types (name, count) and edge types (source, relation, target, edges).
    ///
    /// # Panics
    /// If an edge type names an unknown node type, or an edge has an unknown node.
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

    /// Some authors, papers and venues, deterministic: every node type is both a target and a
    /// source, and two edge types connect the same node types.
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

    /// All edges as one CSC in the form of a data set: one column per pair of edge type and target,
    /// global sources, rows of all edge types.
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

/// A sampled batch by type, with explicit edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NaiveTypedBatch {
    /// By node type: ids within the type, seeds first.
    pub nodes: Vec<Vec<u64>>,
    /// By node type: for each node, the index of the seed whose neighbourhood it belongs to; 0 if
    /// seeds share one neighbourhood.
    pub trees: Vec<Vec<u64>>,
    /// By node type: number of seeds, then number of new nodes per hop.
    pub nodes_per_hop: Vec<Vec<u64>>,
    /// By edge type: `(local source, local destination)` of every edge, each within its node type.
    pub edges: Vec<Vec<(usize, usize)>>,
    /// By edge type: id of every edge within the type.
    pub edge_ids: Vec<Vec<u64>>,
    /// By edge type: number of edges per hop.
    pub edges_per_hop: Vec<Vec<u64>>,
}

/// Rules of [`naive_typed_sample`] in addition to fan-outs; by default none.
#[derive(Clone, Debug, Default)]
pub struct NaiveRules {
    /// Draw with replacement.
    pub replace: bool,
    /// Every seed has a separate neighbourhood.
    pub disjoint: bool,
    /// Weights by edge type and edge id.
    pub weights: Option<Vec<Vec<f64>>>,
    /// Use LABOR-0.
    pub labor: bool,
    /// Times by edge type and edge id.
    pub edge_times: Option<Vec<Vec<i64>>>,
    /// Times by node type and node.
    pub node_times: Option<Vec<Vec<i64>>>,
    /// Time of each seed; empty without times.
    pub seed_times: Vec<i64>,
    /// Whether the latest edges are taken.
    pub last: bool,
    /// Whether a seed sees edges and nodes that have the same time as the seed.
    pub equal: bool,
    /// Whether all edges between the nodes replace the sampled ones.
    pub induced: bool,
}

/// Samples a batch around seeds (node type, id within it); `fan_outs` by edge type, then by hop. A
/// fan-out of `None` takes all in-edges.
pub fn naive_typed_sample(
    graph: &TypedGraph,
    stream: Stream,
    batch: u64,
    seeds: &[(usize, u64)],
    fan_outs: &[Vec<Option<u64>>],
    rules: &NaiveRules,
) -> NaiveTypedBatch {
    let (node_types, edge_types) = (graph.schema.node_types(), graph.schema.edge_types());
    let mut sampled = NaiveTypedBatch {
        nodes: vec![Vec::new(); node_types.len()],
        trees: vec![Vec::new(); node_types.len()],
        nodes_per_hop: vec![Vec::new(); node_types.len()],
        edges: vec![Vec::new(); edge_types.len()],
        edge_ids: vec![Vec::new(); edge_types.len()],
        edges_per_hop: vec![Vec::new(); edge_types.len()],
    };
    let mut local = HashMap::new();
    for (number, &(node_type, seed)) in seeds.iter().enumerate() {
        let slot = sampled.nodes[node_type].len();
        let tree = if rules.disjoint { number as u64 } else { 0 };
        local.entry((tree, node_type, seed)).or_insert(slot);
        sampled.nodes[node_type].push(seed);
        sampled.trees[node_type].push(tree);
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
                let tree = sampled.trees[edge_type.target][destination];
                let column = edge_type.columns.start + target;
                let coordinate = tree * graph.schema.num_columns() + column;
                let asked = Asked { graph, rules, number, stream, batch, hop: hop as u32 };
                let now = rules.seed_times.get(tree as usize).copied();
                for position in asked.positions(target, coordinate, now, fan_outs[number][hop]) {
                    let source = csc.sources[position];
                    let next = sampled.nodes[edge_type.source].len();
                    let slot = *local.entry((tree, edge_type.source, source)).or_insert(next);
                    if slot == next {
                        sampled.nodes[edge_type.source].push(source);
                        sampled.trees[edge_type.source].push(tree);
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
    if rules.induced {
        induce(graph, &mut sampled, &local);
    }
    sampled
}

/// Gives a batch all edges between its nodes; `local` maps (tree, type, node) to its place.
pub(crate) fn induce(
    graph: &TypedGraph,
    sampled: &mut NaiveTypedBatch,
    local: &HashMap<(u64, usize, u64), usize>,
) {
    for (number, edge_type) in graph.schema.edge_types().iter().enumerate() {
        let csc = &graph.edges[number];
        let (mut edges, mut ids) = (Vec::new(), Vec::new());
        let targets = sampled.nodes[edge_type.target].iter().zip(&sampled.trees[edge_type.target]);
        for (destination, (&target, &tree)) in targets.enumerate() {
            for position in csc.offsets[target as usize]..csc.offsets[target as usize + 1] {
                let source = csc.sources[position as usize];
                if let Some(&slot) = local.get(&(tree, edge_type.source, source)) {
                    edges.push((slot, destination));
                    ids.push(csc.ids[position as usize]);
                }
            }
        }
        sampled.edges_per_hop[number] = vec![edges.len() as u64];
        (sampled.edges[number], sampled.edge_ids[number]) = (edges, ids);
    }
}

/// In-edges of one type, in one hop.
struct Asked<'a> {
    graph: &'a TypedGraph,
    rules: &'a NaiveRules,
    /// Index of the edge type.
    number: usize,
    stream: Stream,
    batch: u64,
    hop: u32,
}

impl Asked<'_> {
    /// The picked positions among the in-edges of `target`, for a seed with time `now`.
    fn positions(
        &self,
        target: u64,
        coordinate: u64,
        now: Option<i64>,
        fan_out: Option<u64>,
    ) -> Vec<usize> {
        let Self { graph, rules, number, stream, batch, hop } = *self;
        let csc = &graph.edges[number];
        let source_type = graph.schema.edge_types()[number].source;
        let all: Vec<usize> = (csc.offsets[target as usize] as usize
            ..csc.offsets[target as usize + 1] as usize)
            .collect();
        let time = |position: usize| {
            let of_edge = rules.edge_times.as_ref().map(|t| t[number][csc.ids[position] as usize]);
            let of_node =
                rules.node_times.as_ref().map(|t| t[source_type][csc.sources[position] as usize]);
            of_edge.unwrap_or(i64::MIN).max(of_node.unwrap_or(i64::MIN))
        };
        let seen: Vec<usize> = match now {
            None => all,
            Some(now) if rules.equal => all.into_iter().filter(|&p| time(p) <= now).collect(),
            Some(now) => all.into_iter().filter(|&p| time(p) < now).collect(),
        };
        let mut draws = stream.uniform(batch, hop, coordinate);
        if rules.last && (rules.edge_times.is_some() || rules.node_times.is_some()) {
            let mut latest = seen;
            latest.sort_by_key(|&position| (time(position), position));
            let taken = fan_out.map_or(latest.len(), |count| latest.len().min(count as usize));
            let mut taken = latest.split_off(latest.len() - taken);
            taken.sort_unstable();
            return taken;
        }
        if rules.labor {
            let Some(count) = fan_out else { return seen };
            let source = |position: usize| {
                graph.schema.node_types()[source_type].nodes.start + csc.sources[position]
            };
            let limit = count as f64 / seen.len() as f64;
            let number = |p: usize| stream.uniform(batch, hop | 0x80, source(p)).unit();
            return seen.into_iter().filter(|&position| number(position) < limit).collect();
        }
        let Some(weights) = &rules.weights else {
            let degree = seen.len() as u64;
            let places = pick(stream, batch, hop, coordinate, degree, fan_out, rules.replace);
            return places.into_iter().map(|place| seen[place as usize]).collect();
        };
        let weight = |position: usize| weights[number][csc.ids[position] as usize];
        let possible: Vec<usize> = seen.into_iter().filter(|&p| weight(p) > 0.0).collect();
        let Some(count) = fan_out else { return possible };
        if rules.replace {
            let ends: Vec<f64> = possible
                .iter()
                .scan(0.0, |sum, &position| {
                    *sum += weight(position);
                    Some(*sum)
                })
                .collect();
            let Some(&sum) = ends.last() else { return Vec::new() };
            let draw = |_| {
                let at = draws.unit() * sum;
                let place = ends.iter().position(|&end| end > at).unwrap_or(ends.len() - 1);
                possible[place]
            };
            return (0..count).map(draw).collect();
        }
        let mut keyed: Vec<(f64, usize)> =
            possible.into_iter().map(|p| (-(1.0 - draws.unit()).ln() / weight(p), p)).collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        keyed.truncate(count as usize);
        let mut taken: Vec<usize> = keyed.into_iter().map(|(_, position)| position).collect();
        taken.sort_unstable();
        taken
    }
}
