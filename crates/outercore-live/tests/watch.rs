//! The reports of a live graph to its observer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outercore_core::{Bytes, ErrorKind};
use outercore_format::{Rows, Update, keys};
use outercore_live::{Commit, LiveConfig, LiveGraph, Watch};
use outercore_testkit::LiveModel;

#[derive(Default)]
struct Told {
    commits: Mutex<Vec<Commit>>,
    folds: Mutex<Vec<bool>>,
}

impl Watch for Told {
    fn committed(&self, commit: &Commit) {
        self.commits.lock().unwrap().push(*commit);
    }

    fn folded(&self, _: Duration, failed: bool) {
        self.folds.lock().unwrap().push(failed);
    }
}

#[test]
fn commits_and_folds_are_told_with_what_they_did() {
    let directory = tempfile::tempdir().unwrap();
    LiveModel::random(5, 9, true, 1).write(directory.path());
    let told = Arc::new(Told::default());
    let config = LiveConfig::default();
    let graph = LiveGraph::open(directory.path(), config, Arc::clone(&told) as _).unwrap();
    let add_node = || Update::AddNode {
        graph: None,
        rows: Rows::from([
            (keys::FEATURES.to_owned(), vec![7; 12]),
            (keys::LABELS.to_owned(), vec![0; 8]),
        ]),
    };
    let before = graph.status().log;
    graph.write(vec![add_node(), add_node()]).unwrap();
    let refused = graph.write(vec![Update::RemoveNode { node: 100 }]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let grew = Bytes(graph.status().log.0 - before.0);
    graph.fold().unwrap();
    let commits = told.commits.lock().unwrap().clone();
    let first = Commit { took: Duration::ZERO, ..commits[0] };
    let took = Duration::ZERO;
    assert_eq!(first, Commit { records: 1, updates: 2, bytes: grew, took, failed: false });
    assert!(commits[0].took > Duration::ZERO);
    assert_eq!((commits.len(), commits[1].records, commits[1].bytes), (2, 0, Bytes(0)));
    assert_eq!(*told.folds.lock().unwrap(), [false]);
}
