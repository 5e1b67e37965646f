//! Many writers and readers work at the same time, while the log is folded again and again. Every
//! reader sees at least the LSN that it requires. It sees exactly the effects of the updates up to
//! the LSN of its snapshot, on a node, on its edges and on its graph.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use outercore_core::{Bytes, ErrorKind, Stream};
use outercore_format::{Rows, Update, keys};
use outercore_live::{LiveConfig, LiveGraph, Snapshot, Unwatched};
use outercore_store::dataset::DataSet;
use outercore_testkit::{LiveGraphs, LiveModel};

const GRAPHS: u64 = 5;
const WRITES: u64 = 150;

/// An observation of a reader: the LSN that it required, the LSN of its snapshot, a node, and the
/// node's state.
struct Seen {
    asked: u64,
    lsn: u64,
    node: u64,
    state: State,
}

/// A node's first feature, its in-degree, and the number of nodes in its graph.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    value: f32,
    degree: u64,
    graph: u64,
}

/// A writer's change of a node.
#[derive(Clone, Copy, Debug)]
enum Change {
    Value(f32),
    /// Adds a loop.
    Edge,
    /// Adds a node to its graph.
    Graph,
}

fn features(value: f32) -> Rows {
    let row = [value, 0.0, 0.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    Rows::from([(keys::FEATURES.to_owned(), row)])
}

fn update(node: u64, change: Change, graphs: &LiveGraphs) -> Update {
    match change {
        Change::Value(value) => Update::UpdateNode { node, rows: features(value) },
        Change::Edge => {
            let rows = Rows::from([(keys::EDGE_WEIGHTS.to_owned(), vec![0; 4])]);
            Update::AddEdge { source: node, target: node, rows }
        }
        Change::Graph => {
            let mut rows = features(0.0);
            rows.insert(keys::LABELS.to_owned(), vec![0; 8]);
            Update::AddNode { graph: Some(graphs.of[node as usize]), rows }
        }
    }
}

/// The state of a node in a snapshot; `None` if its arrays were replaced meanwhile.
fn state_in(snapshot: &Snapshot, node: u64, graphs: &LiveGraphs) -> Option<State> {
    let graph = snapshot.delta.nodes_of_graph(graphs.of[node as usize]).len() as u64;
    Some(State { value: value_in(snapshot, node)?, degree: degree_in(snapshot, node)?, graph })
}

fn degree_in(snapshot: &Snapshot, node: u64) -> Option<u64> {
    if let Some(degree) = snapshot.delta.in_degree(node, true) {
        return Some(degree);
    }
    match snapshot.data_set.read_rows(keys::OFFSETS, &[node, node + 1]) {
        Ok(ends) => {
            let end = |at: usize| u64::from_le_bytes(ends[at..at + 8].try_into().unwrap());
            Some(end(8) - end(0))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => panic!("{error}"),
    }
}

/// The first feature of a node; `None` if the arrays of the snapshot were replaced meanwhile.
fn value_in(snapshot: &Snapshot, node: u64) -> Option<f32> {
    let first = |row: &[u8]| f32::from_le_bytes(row[..4].try_into().unwrap());
    match snapshot.delta.node_row(keys::FEATURES, node) {
        Some(row) => Some(first(row)),
        None => match snapshot.data_set.read_rows(keys::FEATURES, &[node]) {
            Ok(row) => Some(first(&row)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => panic!("{error}"),
        },
    }
}

#[test]
fn no_reader_sees_less_than_it_asks_for_or_anything_but_a_prefix() {
    let directory = tempfile::tempdir().unwrap();
    let model = LiveModel::random_graphs(GRAPHS, true, 1);
    model.write(directory.path());
    let graphs = model.graphs.clone().unwrap();
    // With so little memory, nearly every check starts a fold, and the arrays of the snapshot are
    // exchanged.
    let config = LiveConfig { memory: Bytes(1500), log: Bytes(1 << 30), queue: 64, rest: 0 };
    let graph = LiveGraph::open(directory.path(), config, Arc::new(Unwatched)).unwrap();
    let writes: Mutex<BTreeMap<u64, (u64, Change)>> = Mutex::default();
    let seen: Mutex<Vec<Seen>> = Mutex::default();
    let (last, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let write = |writer: u64| {
        let mut draws = Stream::new(7, writer).uniform(0, 0, 0);
        let mut done = 0;
        while done < WRITES {
            let node = draws.below(model.nodes);
            let change = match draws.below(4) {
                0 => Change::Edge,
                1 => Change::Graph,
                _ => Change::Value((writer * WRITES + done) as f32),
            };
            match graph.write(vec![update(node, change, &graphs)]) {
                Ok(ack) => {
                    last.fetch_max(ack.lsn, Ordering::Relaxed);
                    assert!(writes.lock().unwrap().insert(ack.lsn, (node, change)).is_none());
                    done += 1;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Budget, "{error}"),
            }
        }
    };
    let read = |reader: u64| {
        let mut draws = Stream::new(8, reader).uniform(0, 0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let (asked, node) = (last.load(Ordering::Relaxed), draws.below(model.nodes));
            let snapshot = graph.snapshot();
            if let Some(state) = state_in(&snapshot, node, &graphs) {
                let lsn = snapshot.delta.lsn();
                seen.lock().unwrap().push(Seen { asked, lsn, node, state });
            }
        }
    };
    std::thread::scope(|scope| {
        let readers = [scope.spawn(|| read(0)), scope.spawn(|| read(1))];
        let writers = [0, 1, 2].map(|writer| scope.spawn(move || write(writer)));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    let (writes, seen) = (writes.into_inner().unwrap(), seen.into_inner().unwrap());
    assert!(writes.keys().copied().eq(1..=3 * WRITES), "an LSN twice, or one that is missing");
    let lists = model.in_lists();
    for Seen { asked, lsn, node, state } in &seen {
        assert!(lsn >= asked, "asked for {asked}, saw {lsn}");
        let of_graph = |node: u64| graphs.of[node as usize];
        let mut expected = State {
            value: model.x[*node as usize][0],
            degree: lists[*node as usize].len() as u64,
            graph: graphs.nodes(of_graph(*node), &model.removed).len() as u64,
        };
        for (written, change) in writes.range(..=lsn).map(|(_, write)| write) {
            match change {
                Change::Value(value) if written == node => expected.value = *value,
                Change::Edge if written == node => expected.degree += 1,
                Change::Graph if of_graph(*written) == of_graph(*node) => expected.graph += 1,
                _ => {}
            }
        }
        assert_eq!(*state, expected, "node {node} at {lsn}");
    }
    // After a fold by request, the snapshot keeps the older arrays, which it can still read.
    let older = graph.snapshot();
    let before = older.data_set.read_rows(keys::FEATURES, &[0]).unwrap();
    for value in [-1.0, -2.0] {
        let ack = graph.write(vec![update(0, Change::Value(value), &graphs)]).unwrap();
        assert_eq!(graph.fold().unwrap(), ack.lsn);
    }
    assert_eq!(older.data_set.read_rows(keys::FEATURES, &[0]).unwrap(), before);
    let folded = DataSet::open(directory.path()).unwrap();
    let row = folded.read_rows(keys::FEATURES, &[0]).unwrap();
    assert_eq!(row[..4], (-2.0f32).to_le_bytes());
    let folds = graph.status().folds;
    assert!(folds > 2 && seen.len() > 100, "{folds} folds, {} reads", seen.len());
    drop(graph);
    let data_set = outercore_live::open(directory.path(), &|| Ok(())).unwrap();
    assert_eq!(data_set.manifest().live.as_ref().unwrap().lsn, 3 * WRITES + 2);
}
