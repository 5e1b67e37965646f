//! Hot rows compared with a count by hand.

use outercore_core::{Bytes, Stream};
use outercore_sample::hotness::{HotRows, PresampleConfig, in_degree, presample};
use outercore_sample::{FanOut, SampleConfig, Seeds, sample_group};
use outercore_store::resident::ResidentTopology;
use outercore_testkit::{Csc, TypedGraph};

fn resident(graph: &Csc) -> ResidentTopology {
    let Csc { offsets, sources, ids } = graph.clone();
    ResidentTopology::from_csc(offsets, sources, Some(ids.into())).unwrap()
}

#[test]
fn presampling_counts_the_batches_that_want_a_node() {
    let graph = resident(&Csc::power_law(3000, 40_000, 2));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let fan_outs = vec![FanOut::Take(5), FanOut::Take(5)];
    let config = SampleConfig { fan_outs, edge_ids: true, ..SampleConfig::full_neighbours() };
    let stream = Stream::new(1, 0);
    let seeds: Vec<Seeds> = (0..10)
        .map(|batch| Seeds {
            batch,
            nodes: (batch * 100..batch * 100 + 100).collect(),
            times: vec![],
        })
        .collect();
    let ahead = PresampleConfig { max_batches: 7, group: 3 };
    let hot = presample(&graph, stream, seeds.clone().into_iter(), &config, &pool, ahead).unwrap();
    assert_eq!(hot.batches, 7);

    let mut expected = vec![0u16; 3000];
    for batch in sample_group(&graph, stream, seeds[..7].to_vec(), &config, &pool).unwrap() {
        for node in batch.nodes.iter() {
            expected[node as usize] += 1;
        }
    }
    assert_eq!(hot.counts, expected);
    assert_eq!(HotRows::memory(3000), Bytes(6000));

    let accesses: u64 = expected.iter().map(|&count| u64::from(count)).sum();
    let covered: u64 = hot.hottest(500).iter().map(|&row| u64::from(expected[row as usize])).sum();
    let share = hot.coverage().share(500);
    assert!((share - covered as f64 / accesses as f64).abs() < 1e-12, "{share}");
    assert_eq!(hot.coverage().rows(), expected.iter().filter(|&&count| count > 0).count() as u64);
}

#[test]
fn in_degree_ranks_nodes_by_their_columns() {
    for (name, graph) in Csc::zoo() {
        let degree = |node: u64| graph.offsets[node as usize + 1] - graph.offsets[node as usize];
        let mut order: Vec<u64> = (0..graph.num_nodes()).filter(|&node| degree(node) > 0).collect();
        order.sort_by_key(|&node| (u64::MAX - degree(node), node));
        order.truncate(20);
        let covered: u64 = order.iter().map(|&node| degree(node)).sum();
        order.sort_unstable();
        let (rows, coverage) = in_degree(&resident(&graph), 20).unwrap();
        assert_eq!(rows, order, "{name}");
        let expected = covered as f64 / graph.num_edges().max(1) as f64;
        assert!((coverage.share(20) - expected).abs() < 1e-12, "{name}");
    }
}

#[test]
fn in_degree_of_a_typed_graph_looks_at_each_column() {
    let writes = [(0, 0), (1, 0), (2, 0), (0, 1)];
    let node_types = [("author", 5), ("paper", 2)];
    // Fewer columns than nodes: authors have no columns.
    let one = TypedGraph::new(&node_types, &[("author", "writes", "paper", &writes)]);
    // More columns than nodes; the last column has the most in-edges.
    let reviews = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)];
    let several = TypedGraph::new(
        &node_types,
        &[
            ("author", "reads", "paper", &writes),
            ("author", "knows", "author", &[(0, 1)]),
            ("author", "writes", "paper", &reviews),
        ],
    );
    for (graph, hottest) in [(one, vec![0]), (several, vec![5, 8])] {
        let Csc { offsets, sources, ids } = graph.union();
        let degree = |column: u64| offsets[column as usize + 1] - offsets[column as usize];
        let columns = graph.schema.num_columns();
        let (rows, coverage) = {
            let nodes = graph.schema.num_nodes();
            let (offsets, ids) = (offsets.clone(), Some(ids.into()));
            let graph = ResidentTopology::from_columns(nodes, offsets, sources, ids).unwrap();
            in_degree(&graph, hottest.len()).unwrap()
        };
        assert_eq!(rows, hottest);
        let some = (0..columns).filter(|&column| degree(column) > 0).count();
        assert_eq!(coverage.rows(), some as u64);
    }
}
