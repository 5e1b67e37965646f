//! A delta over a topology is the graph that its updates define.

use outercore_core::{ErrorKind, Stream};
use outercore_format::{Rows, Update, keys};
use outercore_io::{CostModel, Engine, EngineConfig};
use outercore_store::delta::{Applied, Delta, Overlay};
use outercore_store::paged::PagedTopology;
use outercore_store::resident::ResidentTopology;
use outercore_testkit::LiveModel;
use proptest::prelude::*;

fn check(seed: u64, undirected: bool, steps: usize) {
    let directory = tempfile::tempdir().unwrap();
    let mut model = LiveModel::random(1 + seed % 30, seed % 90, undirected, seed);
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
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_history_gives_the_graph_that_its_updates_define(seed in any::<u32>(), undirected: bool) {
        check(seed.into(), undirected, 60);
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
    assert!(refused(Update::AddNode { rows: x(12) }).contains("`nodes/node/y`: a new row needs"));
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
