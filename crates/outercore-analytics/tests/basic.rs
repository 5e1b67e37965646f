//! Compares PageRank, searches, components and degrees with their definitions.

use outercore_analytics::algorithms::degrees::DegreeName;
use outercore_analytics::algorithms::pagerank::{Pagerank, Teleport};
use outercore_analytics::algorithms::{bfs, degrees, pagerank, sssp, wcc};
use outercore_analytics::{Flow, MemoryRun, deliver};
use outercore_grid::Order;
use outercore_testkit::Csc;
use outercore_testkit::naive::{components, paths, ranks};
use proptest::prelude::*;

/// A weight that depends only on the ends, so that the order of parallel arcs does not matter.
fn weight(source: u64, target: u64) -> f64 {
    ((source.min(target) * 7 + source.max(target) * 3) % 11) as f64 * 0.5
}

fn arcs(graph: &Csc) -> Vec<(u64, u64)> {
    let targets = (0..graph.num_nodes()).flat_map(|target| {
        (graph.offsets[target as usize]..graph.offsets[target as usize + 1])
            .map(move |arc| (arc, target))
    });
    targets.map(|(arc, target)| (graph.sources[arc as usize], target)).collect()
}

/// A run, and the arcs that it represents.
fn both_ways(graph: &Csc, symmetric: bool, order: Order, log2: u32) -> (MemoryRun, Csc) {
    let listed = arcs(graph);
    let weighted: Vec<_> = listed.iter().map(|&(s, t)| (s, t, weight(s, t))).collect();
    let run = MemoryRun::new(graph.num_nodes(), &weighted, symmetric, order, log2);
    let mut all = listed.clone();
    if symmetric {
        all.extend(listed.iter().filter(|(s, t)| s != t).map(|&(s, t)| (t, s)));
    }
    (run, Csc::from_edges(graph.num_nodes(), &all))
}

fn transposed(graph: &Csc) -> Csc {
    let turned: Vec<_> = arcs(graph).into_iter().map(|(s, t)| (t, s)).collect();
    Csc::from_edges(graph.num_nodes(), &turned)
}

fn weights_of(graph: &Csc) -> Vec<f64> {
    arcs(graph).into_iter().map(|(s, t)| weight(s, t)).collect()
}

fn close(found: &[f64], expected: &[f64], what: &str) {
    for (node, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs() / expected.abs().max(1e-300);
        assert!(error < 1e-10 || found == expected, "{what}: node {node}: {found} {expected}");
    }
}

fn check(graph: &Csc, symmetric: bool, order: Order, log2: u32, name: &str) {
    let what = format!("{name}, symmetric {symmetric}, {order:?}, 2^{log2}");
    let (mut run, full) = both_ways(graph, symmetric, order, log2);
    let turned = transposed(&full);
    let nodes = full.num_nodes();
    let arc_weights = weights_of(&full);
    let turned_weights = weights_of(&turned);

    for (reverse, weighted) in [(false, false), (true, false), (false, true), (true, true)] {
        let options = Pagerank {
            max_iterations: 7,
            tolerance: 0.0,
            weights: weighted.then(|| "weight".into()),
            reverse,
            damping: 0.85,
        };
        let (graph, weights) =
            if reverse { (&turned, &turned_weights) } else { (&full, &arc_weights) };
        let weight = |arc: usize| if weighted { weights[arc] } else { 1.0 };
        let ids: Vec<u64> = (0..nodes).step_by(3).collect();
        let given = ids.iter().map(|&id| (id % 5) as f64 + 1.0).collect();
        for teleport in [Teleport::uniform(nodes), Teleport::given(nodes, ids, given).unwrap()] {
            let dense: Vec<f64> = (0..nodes).map(|node| teleport.of(node)).collect();
            let expected = ranks::pagerank(graph, 0.85, 7, weight, &dense);
            let raw = pagerank::pagerank(&mut run, &options, &teleport).unwrap();
            let found = deliver(&mut run, raw, &|node| teleport.of(node)).unwrap();
            close(&found, &expected, &format!("{what}: pagerank {reverse} {weighted}"));
            assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{what}");
        }
    }
    let united = Csc::from_edges(nodes, &[arcs(&full), arcs(&turned)].concat());
    for source in [0, nodes / 2, nodes - 1] {
        for (flow, graph) in [(Flow::Along, &full), (Flow::Against, &turned), (Flow::Both, &united)]
        {
            let raw = bfs::bfs(&mut run, &bfs::Search::new(&[source], flow)).unwrap();
            let mut found = deliver(&mut run, raw, &|_| 0.0).unwrap();
            found[source as usize] = 0;
            assert_eq!(found, paths::levels(graph, source), "{what}: bfs {source} {flow:?}");
            for weighted in [false, true] {
                let weights = weights_of(graph);
                let weight = |arc: usize| if weighted { weights[arc] } else { 1.0 };
                let raw =
                    sssp::sssp(&mut run, &sssp::Search::new(&[source], weighted, flow)).unwrap();
                let mut found = deliver(&mut run, raw, &|_| 0.0).unwrap();
                found[source as usize] = 0.0;
                let expected = paths::distances(graph, source, weight);
                assert_eq!(found, expected, "{what}: sssp {source} {flow:?} {weighted}");
            }
        }
    }
    let raw = wcc::wcc(&mut run).unwrap();
    let expected = components::weak_components(&full);
    let count = (0..nodes as i64).zip(&expected).filter(|(node, label)| node == *label).count();
    assert_eq!(raw.facts["components"], count, "{what}");
    assert_eq!(deliver(&mut run, raw, &|_| 0.0).unwrap(), expected, "{what}: wcc");

    let mut expected = [vec![0i64; nodes as usize], vec![0i64; nodes as usize]];
    for (source, target) in arcs(&full) {
        expected[0][target as usize] += 1;
        expected[1][source as usize] += 1;
    }
    let total = if symmetric {
        expected[0].clone()
    } else {
        expected[0].iter().zip(&expected[1]).map(|(a, b)| a + b).collect()
    };
    for (which, mut expected) in [
        (DegreeName::In, expected[0].clone()),
        (DegreeName::Out, expected[1].clone()),
        (DegreeName::Total, total),
    ] {
        let raw = degrees::degrees(&mut run, which).unwrap();
        let facts = raw.facts.clone();
        assert_eq!(deliver(&mut run, raw, &|_| 0.0).unwrap(), expected, "{what}: {which:?}");
        expected.sort_unstable();
        assert_eq!(facts["median"], expected[(expected.len() - 1) / 2], "{what}: {which:?}");
        assert_eq!(facts["max"], *expected.last().unwrap(), "{what}: {which:?}");
    }
}

#[test]
fn results_match_their_definitions_on_every_graph_of_the_zoo() {
    for (name, graph) in Csc::zoo() {
        let small = graph.num_nodes() <= 300;
        for symmetric in [false, true] {
            check(&graph, symmetric, Order::Degree, if small { 4 } else { 9 }, name);
            check(&graph, symmetric, Order::Natural, if small { 5 } else { 10 }, name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn results_match_their_definitions_on_random_graphs(
        nodes in 1u64..60,
        edges in 0u64..200,
        seed: u64,
        skewed: bool,
        symmetric: bool,
        natural: bool,
        log2 in 0u32..7,
    ) {
        let make = if skewed { Csc::power_law } else { Csc::random };
        let order = if natural { Order::Natural } else { Order::Degree };
        check(&make(nodes, edges, seed), symmetric, order, log2, &format!("seed {seed}"));
    }
}

#[test]
fn connected_nodes_without_in_arcs_count_once_in_the_median() {
    // With in-degrees 0, 0, 3, 3, 3 the median is 3; counting the zeros twice made it 2.
    let into = |target: u64| [(0, target), (1, target), (0, target)];
    let edges: Vec<_> = (2..6).flat_map(into).collect();
    check(&Csc::from_edges(7, &edges[..9]), false, Order::Degree, 1, "three of degree 3");
    check(&Csc::from_edges(6, &edges), false, Order::Degree, 1, "four of degree 3");
    check(&Csc::from_edges(5, &edges[..9]), false, Order::Natural, 1, "nobody is isolated");
}

#[test]
fn ranks_that_do_not_come_to_rest_are_refused_with_a_way_out() {
    let mut run =
        MemoryRun::new(3, &[(0, 1, 1.0), (1, 0, 1.0), (2, 0, 1.0)], false, Order::Degree, 2);
    let options = Pagerank { max_iterations: 2, tolerance: 1e-9, ..Default::default() };
    let error = pagerank::pagerank(&mut run, &options, &Teleport::uniform(3)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("after 2 iterations, wanted 1e-9\nhint: raise max_iterations"), "{text}");
    let options = Pagerank { damping: 1.5, ..options };
    let error = pagerank::pagerank(&mut run, &options, &Teleport::uniform(3)).unwrap_err();
    assert_eq!(error.to_string(), "pagerank: damping 1.5, expected 0 <= damping < 1");
    assert!(Teleport::given(3, vec![1], vec![0.0]).is_err());
    assert!(Teleport::given(3, vec![1], vec![f64::NAN]).is_err());
    assert!(Teleport::given(3, vec![3], vec![1.0]).is_err());
    let twice = Teleport::given(3, vec![2, 1, 2], vec![1.0, 2.0, 1.0]).unwrap();
    assert_eq!(twice, Teleport::given(3, vec![1, 2], vec![1.0, 1.0]).unwrap());
}
