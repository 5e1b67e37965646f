//! A delta over a topology equals the graph that its updates define.

use outercore_core::{ErrorKind, Stream};
use outercore_format::{Checksum, NewEdge, Rows, Update, keys};
use outercore_io::{CostModel, Engine, EngineConfig};
use outercore_store::check::{CheckOptions, check as check_data_set};
use outercore_store::delta::{Applied, Delta, Overlay};
use outercore_store::paged::PagedTopology;
use outercore_store::resident::ResidentTopology;
use outercore_testkit::LiveModel;
use proptest::prelude::*;

fn check(mut model: LiveModel, seed: u64, steps: usize) {
    let directory = tempfile::tempdir().unwrap();
    let data_set = model.write(directory.path());
    let mut engine = Engine::open(EngineConfig::default()).unwrap();
    let resident = ResidentTopology::load(&data_set, &mut engine, true).unwrap();
    let config = EngineConfig::default();
    let paged = PagedTopology::open(&data_set, config, CostModel::default(), false).unwrap();
    let mut delta = Delta::new(&data_set).unwrap();
    let mut draws = Stream::new(seed, 1).uniform(0, 0, 0);
    let mut earlier = Vec::new();
    for step in 0..steps {
        let update = model.draw(&mut draws);
        let lsn = delta.lsn() + 1;
        let mut next = delta.clone();
        let applied = next.apply(lsn, std::slice::from_ref(&update), &paged);
        assert_eq!(applied.is_ok(), model.apply(&update), "seed {seed} step {step}: {update:?}");
        match applied {
            Ok(_) => delta = next,
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound)),
        }
        if step % 7 == 0 {
            earlier.push((delta.clone(), model.clone()));
        }
    }
    earlier.push((delta, model));
    for (delta, model) in &earlier {
        model.assert_topology(Overlay::new(&resident, delta).topology());
        model.assert_topology(Overlay::new(&paged, delta).topology());
        for (node, list) in model.in_lists().iter().enumerate() {
            let node = node as u64;
            let loops = list.iter().filter(|edge| edge.0 == node).count() as u64;
            if let Some(degree) = delta.in_degree(node, true) {
                assert_eq!(degree, list.len() as u64);
                assert_eq!(delta.in_degree(node, false), Some(degree - loops));
            }
            if let Some(row) = delta.node_row(keys::FEATURES, node) {
                let expected: Vec<u8> =
                    model.x[node as usize].iter().flat_map(|v| v.to_le_bytes()).collect();
                assert_eq!(row, expected);
            }
            assert_eq!(delta.is_removed(node), model.removed.contains(&node));
        }
        assert_eq!(delta.graphs().is_some(), model.graphs.is_some());
        if let (Some(found), Some(graphs)) = (delta.graphs(), &model.graphs) {
            graphs.assert_graphs(found, &model.removed);
            for graph in 0..graphs.count() {
                let nodes = graphs.nodes(graph, &model.removed);
                assert_eq!(delta.nodes_of_graph(graph), nodes);
                if let Some(row) = delta.graph_row(keys::GRAPH_LABELS, graph) {
                    assert_eq!(row, graphs.y[graph as usize].to_le_bytes());
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_history_gives_the_graph_that_its_updates_define(seed in any::<u32>(), undirected: bool) {
        let seed = u64::from(seed);
        check(LiveModel::random(1 + seed % 30, seed % 90, undirected, seed), seed, 60);
    }

    #[test]
    fn any_history_of_many_graphs_gives_those_that_its_updates_define(
        seed in any::<u32>(),
        undirected: bool,
    ) {
        let seed = u64::from(seed);
        check(LiveModel::random_graphs(1 + seed % 9, undirected, seed), seed, 80);
    }
}

#[test]
fn an_update_of_graphs_says_what_it_does_and_why_it_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = LiveModel::random_graphs(3, true, 4);
    let graphs = model.graphs.clone().unwrap();
    let (first, second) = (graphs.nodes(0, &model.removed), graphs.nodes(1, &model.removed));
    let data_set = model.write(directory.path());
    let config = EngineConfig::default();
    let paged = PagedTopology::open(&data_set, config, CostModel::default(), true).unwrap();
    let mut delta = Delta::new(&data_set).unwrap();
    let label = |key: &str| (key.to_owned(), 1i64.to_le_bytes().to_vec());
    let new = Rows::from([label(keys::LABELS), (keys::FEATURES.to_owned(), vec![0; 12])]);
    let edge = Rows::from([(keys::EDGE_WEIGHTS.to_owned(), vec![0; 4])]);
    let of_graph = Rows::from([label(keys::GRAPH_LABELS)]);
    let ends = |source, target| NewEdge { source, target, rows: edge.clone() };
    let register = |nodes: usize, edges: Vec<NewEdge>| Update::RegisterGraph {
        rows: of_graph.clone(),
        nodes: vec![new.clone(); nodes],
        edges,
    };
    let refused = |delta: &Delta, update: Update| {
        let error = delta.clone().apply(9, &[update], &paged).unwrap_err();
        (error.kind(), error.to_string())
    };
    let across = Update::AddEdge { source: first[0], target: second[0], rows: edge.clone() };
    assert!(refused(&delta, across).1.contains("no edge connects two graphs"));
    let homeless = Update::AddNode { graph: None, rows: new.clone() };
    assert!(refused(&delta, homeless).1.contains("a new node needs `graph`"));
    let nowhere = Update::AddNode { graph: Some(3), rows: new.clone() };
    assert!(refused(&delta, nowhere).1.contains("expected a graph below 3"));
    assert!(refused(&delta, register(0, Vec::new())).1.contains("a graph without nodes"));
    assert!(refused(&delta, register(1, vec![ends(0, 1)])).1.contains("edge 0: node 1, expected"));
    let unlabelled =
        Update::RegisterGraph { rows: Rows::new(), nodes: vec![new.clone()], edges: Vec::new() };
    assert!(refused(&delta, unlabelled).1.contains("array `graphs/y`: a new row needs a value"));
    // The next ids, and the number of added edges.
    let (nodes, edges) = (delta.num_nodes(), delta.num_edges());
    let update = register(2, vec![ends(0, 1), ends(1, 1)]);
    let applied = delta.apply(1, std::slice::from_ref(&update), &paged).unwrap();
    assert!(model.apply(&update));
    assert_eq!(applied, [Applied::Graph { graph: 3, first_node: nodes }]);
    assert_eq!(delta.num_edges(), edges + 3);
    let update = Update::UnregisterGraph { graph: 3 };
    let applied = delta.apply(2, std::slice::from_ref(&update), &paged).unwrap();
    assert!(model.apply(&update));
    assert_eq!((applied, delta.num_edges()), (vec![Applied::Removed(2)], edges));
    model.assert_topology(Overlay::new(&paged, &delta).topology());
    let (kind, text) = refused(&delta, update);
    assert_eq!((kind, text.as_str()), (ErrorKind::NotFound, "graph 3 was unregistered"));
    // The last node of a graph cannot be removed.
    for &node in &first[1..] {
        delta.apply(3, &[Update::RemoveNode { node }], &paged).unwrap();
    }
    let (kind, text) = refused(&delta, Update::RemoveNode { node: first[0] });
    assert!(kind == ErrorKind::Invalid && text.contains("is the last one of graph 0"), "{text}");
}

#[test]
fn one_graph_has_none_to_join_register_or_unregister() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = LiveModel::random(4, 9, true, 3).write(directory.path());
    let config = EngineConfig::default();
    let paged = PagedTopology::open(&data_set, config, CostModel::default(), true).unwrap();
    let delta = Delta::new(&data_set).unwrap();
    for update in [
        Update::AddNode { graph: Some(0), rows: Rows::new() },
        Update::RegisterGraph { rows: Rows::new(), nodes: vec![Rows::new()], edges: Vec::new() },
        Update::UnregisterGraph { graph: 0 },
    ] {
        let error = delta.clone().apply(1, &[update], &paged).unwrap_err();
        assert!(error.to_string().contains("the data set is one graph"), "{error}");
    }
}

#[test]
fn damaged_arrays_of_graphs_are_found_when_they_are_opened() {
    for first in [[0i64, 2, 2], [1, 2, 3], [0, 1, -3]] {
        let directory = tempfile::tempdir().unwrap();
        let model = LiveModel::random_graphs(3, true, 4);
        model.write(directory.path());
        let bytes: Vec<u8> = first.iter().flat_map(|node| node.to_le_bytes()).collect();
        let path = directory.path().join("graphs/first.npy");
        let stored = std::fs::read(&path).unwrap();
        let offset = stored.len() - bytes.len();
        std::fs::write(&path, [&stored[..offset], &bytes].concat()).unwrap();
        let data_set = outercore_store::dataset::DataSet::open(directory.path()).unwrap();
        let error = Delta::new(&data_set).unwrap_err();
        assert!(error.to_string().contains("`graphs/first`: checksum"), "{error}");
        // With a matching checksum, as if a program had written these bytes.
        let mut manifest = data_set.manifest().clone();
        manifest.arrays.get_mut("graphs/first").unwrap().checksum = Checksum::of(&bytes);
        std::fs::write(directory.path().join("graph.json"), manifest.to_json()).unwrap();
        let data_set = outercore_store::dataset::DataSet::open(directory.path()).unwrap();
        let error = Delta::new(&data_set).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(
            error.to_string().contains("`graphs/first`: expected nodes that ascend"),
            "{error}"
        );
        let report = check_data_set(directory.path(), &CheckOptions::default(), &mut |_, _| Ok(()));
        let report = report.unwrap();
        assert!(report.problems.iter().any(|one| one.message.contains("first node")), "{report:?}");
    }
}

#[test]
fn a_list_of_many_pieces_is_one_list() {
    let directory = tempfile::tempdir().unwrap();
    let mut model = LiveModel::random(4, 9000, false, 3);
    let data_set = model.write(directory.path());
    let config = EngineConfig::default();
    let paged = PagedTopology::open(&data_set, config, CostModel::default(), true).unwrap();
    let mut delta = Delta::new(&data_set).unwrap();
    let mut draws = Stream::new(5, 0).uniform(0, 0, 0);
    let updates: Vec<Update> = (0..2000)
        .map(|_| {
            let rows = Rows::from([(keys::EDGE_WEIGHTS.to_owned(), vec![0; 4])]);
            Update::AddEdge { source: draws.below(4), target: draws.below(4), rows }
        })
        .chain([Update::RemoveEdge { source: 1, target: 2 }])
        .collect();
    updates.iter().for_each(|update| assert!(model.apply(update)));
    let applied = delta.apply(1, &updates, &paged).unwrap();
    assert_eq!(applied[0], Applied::Edge(9000));
    model.assert_topology(&Overlay::new(&paged, &delta));
    assert!(delta.memory().0 > 11_000 * 12, "{}", delta.memory());
}

#[test]
fn rows_of_other_arrays_or_lengths_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = LiveModel::random(4, 9, true, 3).write(directory.path());
    let config = EngineConfig::default();
    let paged = PagedTopology::open(&data_set, config, CostModel::default(), true).unwrap();
    let mut delta = Delta::new(&data_set).unwrap();
    let x = |bytes: usize| Rows::from([(keys::FEATURES.to_owned(), vec![0; bytes])]);
    let refused = |update: Update| {
        let error = delta.clone().apply(1, &[update], &paged).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    assert!(
        refused(Update::AddNode { graph: None, rows: x(12) })
            .contains("`nodes/node/y`: a new row needs")
    );
    assert!(refused(Update::UpdateNode { node: 1, rows: x(11) }).contains("11 bytes, expected 12"));
    assert!(
        refused(Update::AddEdge { source: 0, target: 1, rows: Rows::new() }).contains("weight")
    );
    let other = Rows::from([("nodes/node/z".to_owned(), vec![])]);
    assert!(refused(Update::UpdateNode { node: 1, rows: other }).contains("it has nodes/node/x"));
    assert!(refused(Update::RemoveEdge { source: 9, target: 1 }).contains("a node below 4"));
    delta.apply(1, &[Update::RemoveNode { node: 2 }], &paged).unwrap();
    let error = delta.apply(2, &[Update::RemoveNode { node: 2 }], &paged).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::NotFound, "node 2 was removed")
    );
}
