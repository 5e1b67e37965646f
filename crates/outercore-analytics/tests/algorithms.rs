//! Compares every algorithm with its definition, on grids of every kind.

use outercore_analytics::algorithms::betweenness::Betweenness;
use outercore_analytics::algorithms::betweenness::{self, Sources};
use outercore_analytics::algorithms::kcore::Kcore;
use outercore_analytics::algorithms::label_propagation::{LabelPropagation, Update};
use outercore_analytics::algorithms::radii::Radii;
use outercore_analytics::algorithms::scc::Scc;
use outercore_analytics::algorithms::triangles::Triangles;
use outercore_analytics::algorithms::{kcore, label_propagation, radii, scc, triangles};
use outercore_analytics::{
    Algorithm, Flow, FlowName, Inputs, Isolated, MemoryRun, Passes, Raw, RunConfig, Values, run,
};
use outercore_core::{Bytes, ErrorKind, Permutation};
use outercore_format::MANIFEST_FILE;
use outercore_grid::{BuildOptions, Order, build};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;
use outercore_testkit::naive::centrality::Follow;
use outercore_testkit::{Csc, Width, naive, write_data_set};
use proptest::prelude::*;

/// A directed or undirected graph.
#[derive(Clone, Debug)]
struct Graph {
    nodes: u64,
    /// In an undirected graph, each edge once.
    edges: Vec<(u64, u64)>,
    symmetric: bool,
}

impl Graph {
    fn of(csc: &Csc, symmetric: bool) -> Self {
        let mut edges = Vec::new();
        for (target, ends) in csc.offsets.windows(2).enumerate() {
            let sources = &csc.sources[ends[0] as usize..ends[1] as usize];
            edges.extend(sources.iter().map(|&source| (source, target as u64)));
        }
        Self { nodes: csc.num_nodes(), edges, symmetric }
    }

    /// All arcs: in an undirected graph each edge gives two, a loop one.
    fn csc(&self) -> Csc {
        let mut arcs = self.edges.clone();
        if self.symmetric {
            arcs.extend(self.edges.iter().filter(|arc| arc.0 != arc.1).map(|&(u, v)| (v, u)));
        }
        Csc::from_edges(self.nodes, &arcs)
    }

    /// The graph as a data set in the directory `root`.
    fn write(&self, root: &std::path::Path) -> DataSet {
        let mut csc = self.csc();
        if self.symmetric {
            // Both arcs of an edge have its row.
            let second = (0u64..).zip(&self.edges).filter(|(_, edge)| edge.0 != edge.1);
            let rows: Vec<u64> =
                (0..self.edges.len() as u64).chain(second.map(|(row, _)| row)).collect();
            for id in &mut csc.ids {
                *id = rows[*id as usize];
            }
        }
        write_data_set(root, &csc, Width::Narrow);
        let mut manifest = DataSet::read_manifest(root).unwrap();
        let edges = manifest.edge_types.get_mut("edge").unwrap();
        edges.undirected = self.symmetric;
        edges.rows = Some(self.edges.len() as u64);
        std::fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
        DataSet::open(root).unwrap()
    }

    /// The graph as grids with partitions of several sizes, and memory for groups of several
    /// sizes.
    fn runs(&self, logs: &[u32]) -> impl Iterator<Item = (String, MemoryRun)> {
        let arcs: Vec<_> = self.edges.iter().map(|&(u, v)| (u, v, 1.0)).collect();
        let mut runs = Vec::new();
        // So that small and large partitions are both tested with little and much memory.
        for (order, workings) in
            [(Order::Degree, [0, 4_000, 1 << 30]), (Order::Natural, [1 << 30, 4_000, 0])]
        {
            for (&log2, working) in logs.iter().zip(workings) {
                let run = MemoryRun::new(self.nodes, &arcs, self.symmetric, order, log2)
                    .with_working(Bytes(working));
                let name = format!("{order:?}, partitions of 2^{log2}, {working} bytes of slots");
                runs.push((name, run));
            }
        }
        runs.into_iter()
    }
}

/// The graphs on which every algorithm is tested, directed and undirected.
fn zoo() -> Vec<(String, Graph)> {
    let mut graphs = Csc::zoo();
    graphs.push(("a small power-law graph", Csc::power_law(200, 1_500, 3)));
    graphs.push(("a sparse random graph", Csc::random(400, 500, 4)));
    graphs.push(("a cycle", Csc::from_edges(40, &cycle(0, 40))));
    graphs.push(("two cycles and a bridge", {
        Csc::from_edges(60, &[cycle(0, 25), cycle(25, 30), vec![(3, 30)]].concat())
    }));
    let mut all = Vec::new();
    for (name, csc) in graphs {
        all.push((format!("{name}, directed"), Graph::of(&csc, false)));
        all.push((format!("{name}, undirected"), Graph::of(&csc, true)));
    }
    all
}

/// `len` nodes starting with `first`, each with an arc to the next.
fn cycle(first: u64, len: u64) -> Vec<(u64, u64)> {
    (0..len).map(|at| (first + at, first + (at + 1) % len)).collect()
}

/// Small graphs with all special cases: loops, parallel arcs, nodes without arcs, chains, hubs.
fn graphs() -> impl Strategy<Value = Graph> {
    (1u64..40, any::<bool>()).prop_flat_map(|(nodes, symmetric)| {
        let edges = prop::collection::vec((0..nodes, 0..nodes), 0..100);
        edges.prop_map(move |edges| Graph { nodes, edges, symmetric })
    })
}

/// A result by node id.
fn by_node<T: Copy + Default>(run: &mut MemoryRun, raw: &Raw<T>, id: impl Fn(u32) -> T) -> Vec<T> {
    let mut found = vec![T::default(); run.shape().nodes as usize];
    for (partition, values) in raw.by_partition.here().iter().enumerate() {
        let nodes = run.nodes(partition).unwrap();
        assert_eq!(values.len(), nodes.len());
        for (node, &value) in nodes.into_iter().zip(values) {
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

fn ids(run: &mut MemoryRun, raw: &Raw<i64>) -> Vec<i64> {
    by_node(run, raw, i64::from)
}

fn distinct(values: &[i64]) -> u64 {
    values.iter().collect::<std::collections::BTreeSet<_>>().len() as u64
}

/// Partition sizes that give many partitions, a few, and one.
const LOGS: &[u32] = &[5, 8, 16];
/// For graphs of a few nodes.
const SMALL: &[u32] = &[1, 3, 2];

fn check_scc(name: &str, graph: &Graph, logs: &[u32]) {
    let expected = naive::strong::strong_components(&graph.csc());
    for (grid, mut run) in graph.runs(logs) {
        let raw = scc::scc(&mut run).unwrap();
        assert_eq!(ids(&mut run, &raw), expected, "{name}, {grid}");
        assert_eq!(raw.facts["components"], distinct(&expected), "{name}, {grid}");
    }
}

fn check_kcore(name: &str, graph: &Graph, logs: &[u32]) {
    let expected = naive::cores::core_numbers(&graph.csc(), !graph.symmetric);
    for (grid, mut run) in graph.runs(logs) {
        let raw = kcore::kcore(&mut run).unwrap();
        assert_eq!(ids(&mut run, &raw), expected, "{name}, {grid}");
        let degeneracy = expected.iter().max().copied().unwrap_or(0);
        assert_eq!(raw.facts["degeneracy"], degeneracy, "{name}, {grid}");
    }
}

fn check_labels(name: &str, graph: &Graph, logs: &[u32], iterations: u32) {
    let expected = naive::labels::label_propagation(&graph.csc(), !graph.symmetric, iterations);
    for (grid, mut run) in graph.runs(logs) {
        let raw = label_propagation::label_propagation(
            &mut run,
            &LabelPropagation { max_iterations: iterations, ..Default::default() },
        )
        .unwrap();
        assert_eq!(ids(&mut run, &raw), expected, "{name}, {grid}");
        assert_eq!(raw.facts["communities"], distinct(&expected), "{name}, {grid}");
    }
}

fn check_asynchronous_labels(name: &str, graph: &Graph, logs: &[u32], iterations: u32, seed: u64) {
    let (expected, settled) =
        naive::labels::asynchronous(&graph.csc(), !graph.symmetric, iterations, seed);
    let update = Update::Asynchronous;
    let options = LabelPropagation { max_iterations: iterations, update, seed };
    for (grid, mut run) in graph.runs(logs) {
        let raw = label_propagation::label_propagation(&mut run, &options).unwrap();
        assert_eq!(ids(&mut run, &raw), expected, "{name}, {grid}, seed {seed}");
        assert_eq!(raw.facts["communities"], distinct(&expected), "{name}, {grid}, seed {seed}");
        // It is only known after an iteration without changes that no node would change.
        let told = raw.facts["settled"].as_bool().unwrap();
        assert!(!told || settled, "{name}, {grid}, seed {seed}");
    }
}

fn check_triangles(name: &str, graph: &Graph, logs: &[u32]) {
    let expected = naive::triangles::triangles(&graph.csc());
    for (grid, mut run) in graph.runs(logs) {
        let raw = triangles::triangles(&mut run).unwrap();
        assert_eq!(ids(&mut run, &raw), expected, "{name}, {grid}");
        assert_eq!(raw.facts["triangles"], expected.iter().sum::<i64>() / 3, "{name}, {grid}");
    }
}

fn check_radii(name: &str, graph: &Graph, logs: &[u32], sources: u32, seed: u64) {
    let csc = graph.csc();
    let mut connected = vec![false; graph.nodes as usize];
    for &(source, target) in &graph.edges {
        connected[source as usize] = true;
        connected[target as usize] = true;
    }
    let order = Permutation::new(graph.nodes, seed, 0);
    let drawn: Vec<u64> = (0..graph.nodes)
        .map(|at| order.at(at))
        .filter(|&node| connected[node as usize])
        .take((sources as usize).next_multiple_of(64))
        .collect();
    for (flow, follow) in
        [(Flow::Along, Follow::Out), (Flow::Against, Follow::In), (Flow::Both, Follow::Both)]
    {
        let expected = naive::centrality::largest_distances(&csc, &drawn, follow);
        for (grid, mut run) in graph.runs(logs) {
            let raw = radii::radii(&mut run, sources, seed, flow).unwrap();
            let mut found = by_node(&mut run, &raw, |_| unreachable!());
            // A node without arcs is never drawn; by definition it reaches itself.
            for (found, &connected) in found.iter_mut().zip(&connected) {
                assert!(connected || *found == -1, "{name}, {grid}, seed {seed}");
            }
            assert_eq!(found, expected, "{name}, {grid}, {flow:?}, seed {seed}");
            assert_eq!(raw.facts["sources"], drawn.len(), "{name}, {grid}");
            let widest = expected.iter().max().copied().unwrap_or(0).max(0);
            assert_eq!(raw.facts["diameter_at_least"], widest, "{name}, {grid}");
        }
    }
}

fn check_betweenness(name: &str, graph: &Graph, logs: &[u32], samples: u32, seed: u64) {
    let (csc, nodes) = (graph.csc(), graph.nodes as f64);
    let all: Vec<u64> = (0..graph.nodes).collect();
    let order = Permutation::new(graph.nodes, seed, 0);
    let drawn: Vec<u64> = (0..u64::from(samples)).map(|at| order.at(at)).collect();
    let once = if graph.symmetric { 2.0 } else { 1.0 };
    let pairs = (nodes - 1.0) * (nodes - 2.0);
    let share = nodes / f64::from(samples);
    for (sources, ids, normalized, scale) in [
        (Sources::All, &all, false, 1.0 / once),
        (Sources::All, &all, true, 1.0 / pairs),
        (Sources::Given(&drawn), &drawn, false, 1.0 / once),
        (Sources::Given(&drawn), &drawn, true, 1.0 / pairs),
        (Sources::Drawn { samples, seed }, &drawn, true, share / pairs),
        (Sources::Drawn { samples, seed }, &drawn, false, share / once),
    ] {
        let expected: Vec<f64> = naive::centrality::betweenness(&csc, ids)
            .into_iter()
            .map(|sum| if sum > 0.0 { sum * scale } else { 0.0 })
            .collect();
        for (grid, mut run) in graph.runs(logs) {
            let raw = betweenness::betweenness(&mut run, sources, false, normalized).unwrap();
            let found = by_node(&mut run, &raw, |_| unreachable!());
            for (node, (found, expected)) in found.iter().zip(&expected).enumerate() {
                assert!(
                    (found - expected).abs() <= 1e-9 * expected,
                    "{name}, {grid}, {sources:?}, node {node}: {found}, expected {expected}"
                );
            }
        }
    }
}

#[test]
fn strong_components_are_as_defined() {
    for (name, graph) in zoo() {
        check_scc(&name, &graph, LOGS);
    }
}

#[test]
fn core_numbers_are_as_defined() {
    for (name, graph) in zoo() {
        check_kcore(&name, &graph, LOGS);
    }
}

#[test]
fn propagated_labels_are_as_defined() {
    for (name, graph) in zoo() {
        check_labels(&name, &graph, LOGS, 10);
        check_asynchronous_labels(&name, &graph, LOGS, 12, 5);
    }
}

#[test]
fn labels_that_are_only_exchanged_are_counted_and_asynchronous_ones_settle() {
    let star: Vec<(u64, u64)> = (1..40).map(|leaf| (0, leaf)).collect();
    let both_sides = |left: u64, right: u64| {
        (0..left).flat_map(move |u| (left..left + right).map(move |v| (u, v))).collect::<Vec<_>>()
    };
    // A triangle settles; the separate pair does not.
    let pair_and_triangle = vec![(0, 1), (2, 3), (3, 4), (4, 2)];
    let cases = [
        ("star", 40, star, 40),
        ("complete bipartite", 17, both_sides(5, 12), 17),
        ("pair and triangle", 5, pair_and_triangle, 2),
        ("triangle", 3, vec![(0, 1), (1, 2), (2, 0)], 0),
    ];
    for (name, nodes, edges, alternating) in cases {
        let graph = Graph { nodes, edges, symmetric: true };
        for (grid, mut run) in graph.runs(LOGS) {
            let options = LabelPropagation { max_iterations: 20, ..Default::default() };
            let raw = label_propagation::label_propagation(&mut run, &options).unwrap();
            assert_eq!(raw.facts["alternating"], alternating, "{name}, {grid}");
            assert_eq!(raw.facts["settled"], alternating == 0, "{name}, {grid}");
            for seed in 0..20 {
                let update = Update::Asynchronous;
                let options = LabelPropagation { max_iterations: 100, update, seed };
                let raw = label_propagation::label_propagation(&mut run, &options).unwrap();
                assert_eq!(raw.facts["settled"], true, "{name}, {grid}, seed {seed}");
                assert_eq!(raw.facts["alternating"], 0, "{name}, {grid}, seed {seed}");
            }
        }
    }
}

#[test]
fn triangles_are_as_defined() {
    for (name, graph) in zoo() {
        check_triangles(&name, &graph, LOGS);
    }
}

#[test]
fn results_do_not_depend_on_the_size_of_groups() {
    let csc = Csc::power_law(400, 3_000, 9);
    for symmetric in [false, true] {
        let graph = Graph::of(&csc, symmetric);
        let arcs: Vec<_> = graph.edges.iter().map(|&(u, v)| (u, v, 1.0)).collect();
        for order in [Order::Degree, Order::Natural] {
            let mut groups = std::collections::BTreeSet::new();
            let results = [0, 1_000, 4_000, 16_000, 1 << 30].map(|working| {
                let mut run = MemoryRun::new(graph.nodes, &arcs, symmetric, order, 4)
                    .with_working(Bytes(working));
                let triangles = triangles::triangles(&mut run).unwrap();
                groups.insert(triangles.facts["groups"].as_u64().unwrap());
                [
                    triangles.by_partition.here().to_vec(),
                    kcore::kcore(&mut run).unwrap().by_partition.here().to_vec(),
                    label_propagation::label_propagation(
                        &mut run,
                        &LabelPropagation { max_iterations: 9, ..Default::default() },
                    )
                    .unwrap()
                    .by_partition
                    .here()
                    .to_vec(),
                ]
            });
            assert!(groups.len() > 3 && groups.contains(&1), "{groups:?}");
            for result in &results[1..] {
                assert_eq!(result, &results[0], "{order:?}");
            }
        }
    }
}

#[test]
fn radii_are_as_defined() {
    for (name, graph) in zoo() {
        check_radii(&name, &graph, LOGS, 65, 7);
    }
}

#[test]
fn betweenness_is_as_defined() {
    // The definition needs cubic time.
    for (name, graph) in zoo().into_iter().filter(|(_, graph)| graph.nodes <= 400) {
        check_betweenness(&name, &graph, &[4, 16], 1.max(graph.nodes as u32 / 7), 5);
    }
}

#[test]
fn sources_that_are_not_there_are_refused() {
    let mut run = MemoryRun::new(5, &[(0, 1, 1.0)], false, Order::Degree, 1);
    for (sources, expected) in [
        (Sources::Given(&[4, 5]), "betweenness: source 5, the graph has 5 nodes (0 to 4)"),
        (
            Sources::Drawn { samples: 6, seed: 0 },
            "betweenness: samples 6, expected 1 to 5 (the graph's nodes)",
        ),
    ] {
        let error = betweenness::betweenness(&mut run, sources, false, true).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Invalid, expected.to_string()));
    }
    let error = radii::radii(&mut run, 0, 0, Flow::Along).unwrap_err();
    assert_eq!(error.to_string(), "radii: sources 0, expected 1 or more");
}

/// The results of the algorithms with all data in memory and one partition per group.
fn in_memory(graph: &Graph, order: Order, log2: u32) -> Vec<(Algorithm, Values)> {
    let arcs: Vec<_> = graph.edges.iter().map(|&(u, v)| (u, v, 1.0)).collect();
    let run = &mut MemoryRun::new(graph.nodes, &arcs, graph.symmetric, order, log2);
    let strong = scc::scc(run).unwrap();
    let cores = kcore::kcore(run).unwrap();
    let labels = label_propagation::label_propagation(
        run,
        &LabelPropagation { max_iterations: 5, ..Default::default() },
    )
    .unwrap();
    let corners = triangles::triangles(run).unwrap();
    let far = radii::radii(run, 64, 3, Flow::Against).unwrap();
    let drawn = Sources::Drawn { samples: 4, seed: 3 };
    let between = betweenness::betweenness(run, drawn, false, true).unwrap();
    vec![
        (Algorithm::Scc(Scc {}), Values::I64(ids(run, &strong))),
        (Algorithm::Kcore(Kcore {}), Values::I64(ids(run, &cores))),
        (
            Algorithm::LabelPropagation(LabelPropagation {
                max_iterations: 5,
                ..Default::default()
            }),
            Values::I64(ids(run, &labels)),
        ),
        (Algorithm::Triangles(Triangles {}), Values::I64(ids(run, &corners))),
        (
            Algorithm::Radii(Radii { sources: 64, seed: 3, flow: FlowName::In }),
            Values::I32(by_node(run, &far, |_| unreachable!())),
        ),
        (
            Algorithm::Betweenness(Betweenness {
                sources: None,
                samples: Some(4),
                seed: 3,
                weights: None,
                normalized: true,
            }),
            Values::F64(by_node(run, &between, |_| unreachable!())),
        ),
    ]
}

#[test]
fn a_stream_from_disk_gives_the_bits_of_memory() {
    let csc = Csc::power_law(3000, 20_000, 8);
    for (symmetric, order) in
        [(false, Order::Degree), (false, Order::Natural), (true, Order::Degree)]
    {
        let graph = Graph::of(&csc, symmetric);
        let directory = tempfile::tempdir().unwrap();
        let data_set = graph.write(directory.path());
        let options =
            BuildOptions { order: Some(order), partition_log2: Some(8), ..BuildOptions::default() };
        build(&RealDisk, &data_set, &options, &mut |_, _, _, _| Ok(())).unwrap();
        let data_set = DataSet::open(directory.path()).unwrap();
        for (algorithm, expected) in in_memory(&graph, order, 8) {
            for (memory, threads) in [(Bytes::mib(7), 1), (Bytes::mib(64), 3)] {
                let config = RunConfig {
                    memory,
                    threads: Some(threads),
                    build: false,
                    ..RunConfig::default()
                };
                let found = run(
                    &data_set,
                    &algorithm,
                    Inputs::default(),
                    &config,
                    &mut |_, _, _, _| Ok(()),
                )
                .unwrap();
                assert_eq!(
                    found.values, expected,
                    "{algorithm:?}, symmetric {symmetric}, {order:?}, {memory}, {threads} threads"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn strong_components_of_any_graph_are_as_defined(graph in graphs()) {
        check_scc("any", &graph, SMALL);
    }

    #[test]
    fn core_numbers_of_any_graph_are_as_defined(graph in graphs()) {
        check_kcore("any", &graph, SMALL);
    }

    #[test]
    fn propagated_labels_of_any_graph_are_as_defined(graph in graphs(), iterations in 1u32..6) {
        check_labels("any", &graph, SMALL, iterations);
    }

    #[test]
    fn asynchronous_labels_of_any_graph_are_as_defined(
        graph in graphs(), iterations in 1u32..9, seed in any::<u64>(),
    ) {
        check_asynchronous_labels("any", &graph, SMALL, iterations, seed);
    }

    #[test]
    fn triangles_of_any_graph_are_as_defined(graph in graphs()) {
        check_triangles("any", &graph, SMALL);
    }

    #[test]
    fn radii_of_any_graph_are_as_defined(graph in graphs(), seed in any::<u64>()) {
        check_radii("any", &graph, SMALL, 1, seed);
    }

    #[test]
    fn betweenness_of_any_graph_is_as_defined(
        graph in graphs(), samples in 1u32..40, seed in any::<u64>(),
    ) {
        let samples = samples.min(graph.nodes as u32);
        check_betweenness("any", &graph, SMALL, samples, seed);
    }
}
