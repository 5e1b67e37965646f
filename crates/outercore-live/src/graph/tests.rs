use std::time::{Duration, Instant};

use outercore_format::log::Key;
use outercore_format::{Rows, Update, keys};
use outercore_testkit::{LiveModel, SickDisk};

use super::*;
use crate::Unwatched;

fn add_node(key: &str) -> Write {
    let rows = [(keys::FEATURES.to_owned(), vec![7; 12]), (keys::LABELS.to_owned(), vec![0; 8])];
    let updates = vec![Update::AddNode { graph: None, rows: Rows::from(rows) }];
    Write { updates, key: Some(Key::new(key).unwrap()) }
}

#[test]
fn writes_recover_by_themselves_once_the_disk_is_well() {
    let directory = tempfile::tempdir().unwrap();
    LiveModel::random(5, 9, true, 1).write(directory.path());
    let lock = FileLock::try_directory(directory.path()).unwrap().unwrap();
    let disk = SickDisk::default();
    let owned: Arc<dyn Disk> = Arc::new(disk.clone());
    let settings = (LiveConfig::default(), Arc::new(Unwatched) as Arc<dyn Watch>);
    let graph = LiveGraph::start(directory.path(), owned, lock, settings).unwrap();
    assert_eq!(graph.write(add_node("a")).unwrap().lsn, 1);
    disk.fail(true);
    assert_eq!(graph.write(add_node("b")).unwrap_err().kind(), ErrorKind::Unknown);
    assert!(graph.status().failure.is_some());
    assert_eq!(graph.snapshot().delta.num_nodes(), 6);
    disk.fail(false);
    let since = Instant::now();
    while graph.status().failure.is_some() {
        assert!(since.elapsed() < Duration::from_secs(120), "{:?}", graph.status());
        std::thread::yield_now();
    }
    assert_eq!(graph.write(add_node("b")).unwrap().lsn, 2);
    assert_eq!(graph.snapshot().delta.num_nodes(), 7);
}
