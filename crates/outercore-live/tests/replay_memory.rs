//! A log many times larger than the memory for changes is replayed within that memory plus a
//! constant.
//!
//! The test starts itself as the process whose memory is measured.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use outercore_core::Bytes;
use outercore_format::{Rows, Update, keys};
use outercore_io::{FileLock, RealDisk};
use outercore_live::{Committer, LiveConfig, LiveGraph, Unwatched, open, verify};
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_testkit::LiveModel;

/// Tells the process its task, and the root of the data set.
const TASK: &str = "OUTERCORE_MEMORY_TASK";
const ROOT: &str = "OUTERCORE_MEMORY_ROOT";

const MEMORY: Bytes = Bytes::mib(16);

/// Memory of a process in addition to its budget.
const CONSTANT: Bytes = Bytes::mib(48);

/// Records of the log, and nodes that each adds: as changes they need 70 MiB of memory.
const RECORDS: u64 = 100;
const NODES: u64 = 2000;

fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Executes a task, and prints its peak memory.
fn measure(task: &str, root: &Path) {
    let before = status("VmRSS");
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    match task {
        "count" => assert_eq!(verify(&DataSet::open(root).unwrap()).unwrap(), RECORDS),
        "start" => {
            let config = LiveConfig { memory: MEMORY, ..LiveConfig::default() };
            let graph = LiveGraph::open(root, config, Arc::new(Unwatched)).unwrap();
            assert_eq!(graph.status().lsn, RECORDS);
            assert!(graph.status().memory <= MEMORY);
        }
        _ => assert_eq!(open(root, &|| Ok(())).unwrap().num_nodes(), 5 + RECORDS * NODES),
    }
    println!("peak {}", status("VmHWM") - before);
}

#[test]
fn counting_starting_and_folding_stay_within_the_memory_for_changes() {
    if let Some(root) = std::env::var_os(ROOT) {
        return measure(&std::env::var(TASK).unwrap(), root.as_ref());
    }
    if !Path::new("/proc/self/clear_refs").exists() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    LiveModel::random(5, 9, true, 1).write(root);
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
    let row = [(keys::FEATURES.to_owned(), vec![7; 12]), (keys::LABELS.to_owned(), vec![0; 8])];
    let add_node = Update::AddNode { graph: None, rows: Rows::from(row) };
    for _ in 0..RECORDS {
        let updates = vec![add_node.clone(); NODES as usize];
        committer.commit(vec![updates]).remove(0).unwrap();
    }
    assert!(committer.snapshot().delta.memory().0 > 4 * MEMORY.0);
    drop((committer, lock));
    // The last task folds the remaining records.
    for task in ["count", "start", "fold"] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["counting_starting", "--nocapture", "--test-threads=1"])
            .env(ROOT, root)
            .env(TASK, task)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&child.stdout);
        let told = text.lines().find_map(|line| line.split_once("peak ")).map(|(_, peak)| peak);
        let peak: u64 = told.unwrap_or_else(|| panic!("{task}: {text}")).parse().unwrap();
        assert!(peak < MEMORY.0 + CONSTANT.0, "{task}: {}", Bytes(peak));
        println!("{task}: {}", Bytes(peak));
    }
    let report = check(root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
}
