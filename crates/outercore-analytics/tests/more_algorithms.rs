//! Compares clustering, closeness, hubs, communities and weighted paths with their definitions.

use outercore_analytics::algorithms::betweenness::{self, Sources};
use outercore_analytics::algorithms::hits::{self, Hits, Score};
use outercore_analytics::algorithms::{bfs, closeness, local_clustering, louvain, sssp};
use outercore_analytics::{Flow, Isolated, MemoryRun, Passes, Raw};
use outercore_core::{Bytes, ErrorKind};
use outercore_grid::Order;
use outercore_testkit::naive::centrality::Follow;
use outercore_testkit::{Csc, naive};
use proptest::prelude::*;

/// Edges with small integer weights, so that sums are exact; includes loops and parallel edges.
#[derive(Clone, Debug)]
struct Graph {
    nodes: u64,
    edges: Vec<(u64, u64, f64)>,
    symmetric: bool,
}

impl Graph {
    fn new(nodes: u64, edges: &[(u64, u64)], symmetric: bool) -> Self {
        let weigh = |(at, &(from, to)): (usize, &(u64, u64))| (from, to, (1 + at % 4) as f64);
        Self { nodes, edges: edges.iter().enumerate().map(weigh).collect(), symmetric }
    }

    /// All arcs, and their weights by position in the columns.
    fn csc(&self) -> (Csc, Vec<f64>) {
        let mut arcs = self.edges.clone();
        if self.symmetric {
            let back = self.edges.iter().filter(|arc| arc.0 != arc.1);
            arcs.extend(back.map(|&(from, to, weight)| (to, from, weight)));
        }
        let pairs: Vec<(u64, u64)> = arcs.iter().map(|arc| (arc.0, arc.1)).collect();
        let csc = Csc::from_edges(self.nodes, &pairs);
        let weights = csc.ids.iter().map(|&id| arcs[id as usize].2).collect();
        (csc, weights)
    }

    /// The graph as grids of several kinds, with little and much working memory.
    fn runs(&self) -> Vec<(String, MemoryRun)> {
        let kinds = [(Order::Degree, 1, 0), (Order::Degree, 4, 1 << 30), (Order::Natural, 2, 500)];
        kinds
            .into_iter()
            .map(|(order, log2, working)| {
                let run = MemoryRun::new(self.nodes, &self.edges, self.symmetric, order, log2)
                    .with_working(Bytes(working));
                (format!("{order:?}, partitions of 2^{log2}: {self:?}"), run)
            })
            .collect()
    }
}

fn graphs() -> impl Strategy<Value = Graph> {
    (1u64..30, any::<bool>()).prop_flat_map(|(nodes, symmetric)| {
        let edges = prop::collection::vec((0..nodes, 0..nodes), 0..80);
        edges.prop_map(move |edges| Graph::new(nodes, &edges, symmetric))
    })
}

/// A result by node id.
fn by_node<T: Copy + Default>(run: &mut MemoryRun, raw: &Raw<T>, id: impl Fn(u32) -> T) -> Vec<T> {
    let mut found = vec![T::default(); run.shape().nodes as usize];
    for (partition, values) in raw.by_partition.here().iter().enumerate() {
        for (node, &value) in run.nodes(partition).unwrap().into_iter().zip(values) {
            found[node as usize] = value;
        }
    }
    let isolated = raw.isolated;
    run.isolated(&mut |nodes| {
        for &node in nodes {
            found[node as usize] = match isolated {
                Isolated::Same(value) | Isolated::Teleport(value) => value,
                Isolated::Itself => id(node),
            };
        }
    })
    .unwrap();
    found
}

fn near(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (node, (found, expected)) in found.iter().zip(expected).enumerate() {
        let allowed = 1e-9 * expected.abs() + 1e-12;
        assert!((found - expected).abs() <= allowed, "{what}, node {node}: {found}, {expected}");
    }
}

const FLOWS: [(Flow, Follow); 3] =
    [(Flow::Along, Follow::Out), (Flow::Against, Follow::In), (Flow::Both, Follow::Both)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn local_clustering_is_as_defined(graph in graphs()) {
        let expected = naive::triangles::local_clustering(&graph.csc().0);
        for (grid, mut run) in graph.runs() {
            let raw = local_clustering::local_clustering(&mut run).unwrap();
            prop_assert_eq!(by_node(&mut run, &raw, |_| 0.0), &expected[..], "{}", grid);
        }
    }

    #[test]
    fn closeness_is_as_defined(graph in graphs(), improved: bool) {
        for (flow, follow) in FLOWS {
            let expected = naive::centrality::closeness(&graph.csc().0, follow, improved);
            for (grid, mut run) in graph.runs() {
                let raw = closeness::closeness(&mut run, None, flow, improved).unwrap();
                prop_assert_eq!(by_node(&mut run, &raw, |_| 0.0), &expected[..], "{}", grid);
            }
        }
    }

    #[test]
    fn hubs_and_authorities_are_as_defined(graph in graphs(), weighted: bool) {
        let (csc, weights) = graph.csc();
        let [hubs, authorities] =
            naive::ranks::hits(&csc, 7, |arc| if weighted { weights[arc] } else { 1.0 });
        for (score, expected) in [(Score::Hubs, hubs), (Score::Authorities, authorities)] {
            let options = Hits { max_iterations: 7, tolerance: 0.0, weights: weighted.then(|| "weight".into()), score };
            for (grid, mut run) in graph.runs() {
                let raw = hits::hits(&mut run, &options).unwrap();
                near(&by_node(&mut run, &raw, |_| 0.0), &expected, &grid);
            }
        }
    }

    #[test]
    fn weighted_betweenness_is_as_defined(graph in graphs(), source in 0u64..30) {
        let (csc, weights) = graph.csc();
        let given = [source % graph.nodes, 0];
        let all: Vec<u64> = (0..graph.nodes).collect();
        for (sources, ids) in [(Sources::All, &all[..]), (Sources::Given(&given), &given[..])] {
            let once = if graph.symmetric { 2.0 } else { 1.0 };
            let sums = naive::centrality::weighted_betweenness(&csc, ids, |arc| weights[arc]);
            let expected: Vec<f64> = sums.into_iter().map(|sum| sum / once).collect();
            for (grid, mut run) in graph.runs() {
                let raw = betweenness::betweenness(&mut run, sources, true, false).unwrap();
                near(&by_node(&mut run, &raw, |_| 0.0), &expected, &grid);
            }
        }
    }

    #[test]
    fn communities_have_the_modularity_that_is_told(graph in graphs(), weighted: bool) {
        let (csc, weights) = graph.csc();
        let weight = |arc: usize| if weighted { weights[arc] } else { 1.0 };
        let singles: Vec<i64> = (0..graph.nodes as i64).collect();
        let mut results = Vec::new();
        for (grid, mut run) in graph.runs() {
            let raw = louvain::louvain(&mut run, 1.0, 3, weighted).unwrap();
            let labels = by_node(&mut run, &raw, i64::from);
            for (node, &label) in labels.iter().enumerate() {
                let first = labels.iter().position(|&other| other == label).unwrap();
                prop_assert_eq!(label, first as i64, "node {}, {}", node, grid);
            }
            let modularity = |labels: &[i64]| {
                naive::communities::modularity(&csc, !graph.symmetric, labels, 1.0, weight)
            };
            let told = raw.facts["modularity"].as_f64().unwrap();
            prop_assert!((told - modularity(&labels)).abs() < 1e-9, "{}", grid);
            prop_assert!(told >= modularity(&singles) - 1e-9, "{}", grid);
            results.push(labels);
        }
        // Integer weights are summed exactly in any order, so the numbering of the grid does not
        // matter.
        prop_assert!(results.iter().all(|labels| *labels == results[0]), "{:?}", graph);
    }

    #[test]
    fn paths_begin_at_the_nearest_source_and_end_at_the_cutoff(
        graph in graphs(), sources in prop::collection::vec(0u64..30, 1..4), cutoff in 0u32..9,
    ) {
        let sources: Vec<u64> = sources.into_iter().map(|source| source % graph.nodes).collect();
        let (csc, weights) = graph.csc();
        let nearest = |weight: &dyn Fn(usize) -> f64, cutoff: f64| -> Vec<f64> {
            let each: Vec<_> =
                sources.iter().map(|&s| naive::paths::distances(&csc, s, weight)).collect();
            (0..graph.nodes as usize)
                .map(|node| each.iter().map(|found| found[node]).fold(f64::INFINITY, f64::min))
                .map(|distance| if distance <= cutoff { distance } else { f64::INFINITY })
                .collect()
        };
        for (grid, mut run) in graph.runs() {
            let isolated = |run: &mut MemoryRun, node: u64| run.place(&[node]).unwrap()[0].is_none();
            let expected = nearest(&|arc| weights[arc], f64::from(cutoff));
            let search = sssp::Search {
                sources: &sources,
                weighted: true,
                flow: Flow::Along,
                cutoff: Some(f64::from(cutoff)),
            };
            let raw = sssp::sssp(&mut run, &search).unwrap();
            let reached = expected.iter().filter(|distance| distance.is_finite()).count();
            prop_assert_eq!(&raw.facts["reached"], reached, "{}", grid);
            let mut found = by_node(&mut run, &raw, |_| 0.0);
            for &source in &sources {
                // The caller must enter this value.
                if isolated(&mut run, source) {
                    found[source as usize] = 0.0;
                }
            }
            prop_assert_eq!(&found, &expected, "{}", grid);
            let raw = sssp::sssp_predecessors(&mut run, &search).unwrap();
            let before = by_node(&mut run, &raw, i64::from);
            for node in 0..graph.nodes as usize {
                let arcs = csc.offsets[node] as usize..csc.offsets[node + 1] as usize;
                let ends = arcs.filter(|&arc| {
                    expected[csc.sources[arc] as usize] + weights[arc] == expected[node]
                });
                let smallest = ends.map(|arc| csc.sources[arc] as i64).min();
                let known = expected[node].is_finite() && expected[node] > 0.0;
                let wanted = if known { smallest.unwrap() } else { -1 };
                prop_assert_eq!(before[node], wanted, "node {}, {}", node, grid);
            }
            let search =
                bfs::Search { sources: &sources, flow: Flow::Along, cutoff: Some(cutoff) };
            let expected = nearest(&|_| 1.0, f64::from(cutoff));
            let raw = bfs::bfs(&mut run, &search).unwrap();
            prop_assert_eq!(&raw.facts["reached"], expected.iter().filter(|d| d.is_finite()).count());
            let found = by_node(&mut run, &raw, |_| -1);
            for node in 0..graph.nodes {
                let known = expected[node as usize];
                let wanted = if known.is_finite() { known as i32 } else { -1 };
                if !isolated(&mut run, node) {
                    prop_assert_eq!(found[node as usize], wanted, "node {}, {}", node, grid);
                }
            }
        }
    }

    #[test]
    fn predecessors_lead_to_a_source_also_over_arcs_of_no_weight(graph in graphs()) {
        let mut graph = graph;
        graph.edges.iter_mut().for_each(|edge| edge.2 = (edge.2 - 2.0).max(0.0));
        for (grid, mut run) in graph.runs() {
            let search = sssp::Search::new(&[0], true, Flow::Along);
            let raw = sssp::sssp(&mut run, &search).unwrap();
            let distances = by_node(&mut run, &raw, |_| 0.0);
            let raw = sssp::sssp_predecessors(&mut run, &search).unwrap();
            let before = by_node(&mut run, &raw, i64::from);
            for (node, distance) in distances.iter().enumerate().skip(1) {
                let (mut at, mut hops) = (node, 0);
                while before[at] >= 0 {
                    (at, hops) = (before[at] as usize, hops + 1);
                    prop_assert!(hops <= graph.nodes, "in a circle at {}, {}", node, grid);
                }
                prop_assert_eq!(distance.is_finite(), at == 0, "node {}, {}", node, grid);
            }
        }
    }
}

#[test]
fn more_paths_than_a_double_counts_are_shared_exactly() {
    // Each step along the path doubles the number of paths: 2^3000 at its end. A second branch of
    // single arcs leaves node 1000 and joins at the end, with a negligible share.
    let last = 3000u64;
    let mut edges: Vec<(u64, u64, f64)> =
        (0..last).flat_map(|node| [(node, node + 1, 1.0), (node, node + 1, 1.0)]).collect();
    let side = |step: u64| last + step;
    edges.push((1000, side(1), 1.0));
    edges.extend((1..1999).map(|step| (side(step), side(step + 1), 1.0)));
    edges.push((side(1999), last, 1.0));
    let nodes = last + 2000;
    let mut run = MemoryRun::new(nodes, &edges, false, Order::Natural, 8);
    let raw = betweenness::betweenness(&mut run, Sources::Given(&[0]), false, false).unwrap();
    let found = by_node(&mut run, &raw, |_| 0.0);
    for node in 1..last {
        // All later nodes, and the nodes of the branch if it starts at this node or later.
        let behind = last - node + if node <= 1000 { 1999 } else { 0 };
        assert_eq!(found[node as usize], behind as f64, "node {node}");
    }
    for step in 1..2000 {
        assert_eq!(found[side(step) as usize], (1999 - step) as f64, "step {step}");
    }
}

#[test]
fn half_of_a_number_of_paths_beyond_a_double_is_a_half() {
    // Two branches of 1500 doubling steps each, then a common end.
    let mut edges = Vec::new();
    let node = |branch: u64, step: u64| if step == 0 { 0 } else { 1 + branch * 1500 + (step - 1) };
    for branch in 0..2 {
        for step in 0..1500 {
            edges.extend([(node(branch, step), node(branch, step + 1), 1.0); 2]);
        }
        edges.push((node(branch, 1500), 3001, 1.0));
    }
    for weighted in [false, true] {
        let mut run = MemoryRun::new(3002, &edges, false, Order::Degree, 10);
        let given = Sources::Given(&[0]);
        let raw = betweenness::betweenness(&mut run, given, weighted, false).unwrap();
        let found = by_node(&mut run, &raw, |_| 0.0);
        for step in 1..=1500 {
            let expected = (1500 - step) as f64 + 0.5;
            assert_eq!(found[node(1, step) as usize], expected, "step {step}, {weighted}");
        }
    }
}

#[test]
fn options_that_cannot_be_are_refused() {
    let mut run = MemoryRun::new(3, &[(0, 1, 1.0), (1, 2, 1e-20)], false, Order::Natural, 1);
    let empty = betweenness::betweenness(&mut run, Sources::Given(&[]), false, true).unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::Invalid);
    assert!(louvain::louvain(&mut run, 0.0, 0, false).is_err());
    let options = Hits { max_iterations: 1, tolerance: 1e-12, ..Hits::default() };
    let mut path =
        MemoryRun::new(4, &[(0, 1, 1.0), (1, 2, 1.0), (0, 2, 1.0)], false, Order::Natural, 1);
    let error = hits::hits(&mut path, &options).unwrap_err().to_string();
    assert!(error.starts_with("hits: change "), "{error}");
}

#[test]
fn weights_lost_beside_distances_are_told_apart_from_paths() {
    // 1 + 1e-20 rounds to 1, so nodes 1 and 2 are both predecessors of each other.
    let edges = [(0, 1, 1.0), (1, 2, 1e-20), (2, 1, 1e-20)];
    let mut run = MemoryRun::new(3, &edges, false, Order::Natural, 1);
    let error = betweenness::betweenness(&mut run, Sources::All, true, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
