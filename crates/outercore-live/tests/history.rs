//! Many writers and readers at once, while the log is folded again and again: every reader sees at
//! least what it asks for, and exactly what the updates up to its LSN make.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outercore_core::{Bytes, ErrorKind, Stream};
use outercore_format::{Rows, Update, keys};
use outercore_live::{LiveConfig, LiveGraph, Snapshot, Unwatched};
use outercore_testkit::LiveModel;

const NODES: u64 = 12;
const WRITES: u64 = 150;

/// What a reader saw: the LSN it asked for, that of its snapshot, a node and its first feature.
struct Seen {
    asked: u64,
    lsn: u64,
    node: u64,
    value: f32,
}

fn update(node: u64, value: f32) -> Update {
    let row = [value, 0.0, 0.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    Update::UpdateNode { node, rows: Rows::from([(keys::FEATURES.to_owned(), row)]) }
}

/// The first feature of a node; `None` where the arrays of the snapshot were replaced meanwhile.
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
    let model = LiveModel::random(NODES, 30, true, 1);
    model.write(directory.path());
    // So little memory that nearly every look folds, and the arrays beneath are exchanged.
    let config =
        LiveConfig { memory: Bytes(1500), log: Bytes(1 << 30), queue: 64, rest: Duration::ZERO };
    let graph = LiveGraph::open(directory.path(), config, Arc::new(Unwatched)).unwrap();
    let writes: Mutex<BTreeMap<u64, (u64, f32)>> = Mutex::default();
    let seen: Mutex<Vec<Seen>> = Mutex::default();
    let (last, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let write = |writer: u64| {
        let mut draws = Stream::new(7, writer).uniform(0, 0, 0);
        let mut done = 0;
        while done < WRITES {
            let (node, value) = (draws.below(NODES), (writer * WRITES + done) as f32);
            match graph.write(vec![update(node, value)]) {
                Ok(ack) => {
                    last.fetch_max(ack.lsn, Ordering::Relaxed);
                    assert!(writes.lock().unwrap().insert(ack.lsn, (node, value)).is_none());
                    done += 1;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Budget, "{error}"),
            }
        }
    };
    let read = |reader: u64| {
        let mut draws = Stream::new(8, reader).uniform(0, 0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let (asked, node) = (last.load(Ordering::Relaxed), draws.below(NODES));
            let snapshot = graph.snapshot();
            if let Some(value) = value_in(&snapshot, node) {
                let lsn = snapshot.delta.lsn();
                seen.lock().unwrap().push(Seen { asked, lsn, node, value });
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
    for Seen { asked, lsn, node, value } in &seen {
        assert!(lsn >= asked, "asked for {asked}, saw {lsn}");
        let newest = writes.range(..=lsn).rev().find(|(_, write)| write.0 == *node);
        let expected = newest.map_or(model.x[*node as usize][0], |(_, write)| write.1);
        assert_eq!(*value, expected, "node {node} at {lsn}");
    }
    // Folded by request alone, the snapshot stands on arrays that are gone; refreshed it does not.
    graph.write(vec![update(0, -1.0)]).unwrap();
    let lsn = graph.refresh().unwrap();
    let snapshot = graph.snapshot();
    assert_eq!((lsn, snapshot.data_set.manifest().live.as_ref().unwrap().lsn), (lsn, lsn));
    assert_eq!(
        snapshot.data_set.read_rows(keys::FEATURES, &[0]).unwrap()[..4],
        (-1.0f32).to_le_bytes()
    );
    let folds = graph.status().folds;
    assert!(folds > 2 && seen.len() > 100, "{folds} folds, {} reads", seen.len());
    drop(graph);
    let data_set = outercore_live::open(directory.path(), &|| Ok(())).unwrap();
    assert_eq!(data_set.manifest().live.as_ref().unwrap().lsn, 3 * WRITES + 1);
}
