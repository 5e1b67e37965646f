//! A live graph that stops at any point: all acknowledged updates are present and complete, and
//! nothing else is.

use std::path::Path;

use outercore_core::{Bytes, ErrorKind, Result, Stream};
use outercore_format::Update;
use outercore_io::{Disk, FaultDisk, FaultKind, FaultPlan, FileLock, RealDisk};
use outercore_layout::{BuildOptions, Layout, Method, Precision};
use outercore_live::{Committer, verify};
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_testkit::LiveModel;

/// Number of shifts to test. The tearing of a crash depends only on its operation number, so
/// counting operations before the task changes it.
const TEARINGS: u64 = 3;

/// Number of histories: of directed and undirected graphs, and of many graphs.
const SEEDS: u64 = 3;

/// Number of records per history.
const RECORDS: usize = 14;

/// Records of a history, and the graph before the first record and after each.
struct History {
    records: Vec<Vec<Update>>,
    graphs: Vec<LiveModel>,
    /// Whether the features have layouts, which every fold must update.
    layouts: bool,
    /// The first graph, as a data set.
    written: tempfile::TempDir,
}

impl History {
    fn new(seed: u64) -> Self {
        let undirected = seed.is_multiple_of(2);
        let mut graph = match seed % 3 {
            2 => LiveModel::random_graphs(4, undirected, seed),
            _ => LiveModel::random(12, 30, undirected, seed),
        };
        let mut draws = Stream::new(seed, 9).uniform(0, 0, 0);
        let (mut records, mut graphs) = (Vec::new(), vec![graph.clone()]);
        while records.len() < RECORDS {
            let mut next = graph.clone();
            let updates: Vec<Update> = (0..1 + draws.below(3))
                .map(|_| next.draw(&mut draws))
                .filter(|update| next.clone().apply(update))
                .collect();
            if !updates.is_empty() && updates.iter().all(|update| next.apply(update)) {
                records.push(updates);
                graphs.push(next.clone());
                graph = next;
            }
        }
        let (layouts, written) = (!seed.is_multiple_of(2), directory());
        write(written.path(), &graphs[0], layouts);
        Self { records, graphs, layouts, written }
    }
}

/// Writes all records after `acknowledged`, in groups, and folds twice in between.
fn write_all(
    disk: &dyn Disk,
    root: &Path,
    history: &History,
    acknowledged: &mut u64,
) -> Result<()> {
    let lock = FileLock::try_directory(root)?.expect("nobody holds it");
    let mut committer = Committer::open(disk, root, &lock)?;
    assert!(committer.snapshot().delta.lsn() >= *acknowledged, "an acknowledged record is gone");
    *acknowledged = committer.snapshot().delta.lsn();
    while (*acknowledged as usize) < RECORDS {
        let first = *acknowledged as usize;
        let group = history.records[first..].iter().take(1 + first % 3);
        for done in committer.commit(group.cloned().collect()) {
            *acknowledged = done?.lsn;
        }
        if [5, 6, 10].contains(&first) {
            committer.fold(&lock, &|| Ok(()))?;
        }
        let snapshot = committer.snapshot();
        assert_eq!(snapshot.delta.num_nodes(), history.graphs[*acknowledged as usize].nodes);
    }
    Ok(())
}

/// Checks that the state after a stop is the result of all records up to some record, including at
/// least the acknowledged ones.
fn assert_recovered(root: &Path, history: &History, acknowledged: u64, when: &str) -> u64 {
    let data_set = outercore_live::open(root, &|| Ok(())).unwrap_or_else(|e| panic!("{when}: {e}"));
    let lsn = data_set.manifest().lsn();
    assert!(lsn >= acknowledged, "{when}: {acknowledged} acknowledged, {lsn} found");
    history.graphs[lsn as usize].assert_arrays(&data_set);
    let report = check(root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
    assert!(report.is_sound(), "{when}: {:#?}", report.problems);
    for precision in Precision::ALL.into_iter().filter(|_| history.layouts) {
        let layout = Layout::open(&data_set, "nodes/node/x", precision);
        assert!(layout.unwrap_or_else(|error| panic!("{when}: {error}")).is_some(), "{when}");
    }
    let problems = outercore_layout::verify(&data_set, &mut |_, _, _, _| Ok(())).unwrap();
    assert!(problems.is_empty(), "{when}: {problems:#?}");
    lsn
}

fn shifted(disk: &dyn Disk, root: &Path, by: u64) {
    for _ in 0..by {
        disk.create_dir_all(root.parent().unwrap()).unwrap();
    }
}

/// A directory in memory if possible: on a disk, thousands of syncs would each wait.
fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

/// Writes a graph, and two layouts of its features if `layouts`.
fn write(root: &Path, graph: &LiveModel, layouts: bool) {
    let data_set = graph.write(root);
    let wanted = [(Method::Degree, Precision::Exact), (Method::Glist, Precision::Int8)];
    for (method, precision) in wanted.into_iter().filter(|_| layouts) {
        let array = Some("nodes/node/x".to_owned());
        let options = BuildOptions { array, method, precision, memory: Bytes::mib(32) };
        outercore_layout::build(&RealDisk, &data_set, &options, &mut |_, _, _, _| Ok(())).unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        match from.is_dir() {
            true => copy(&from, &to),
            false => drop(std::fs::copy(&from, &to).unwrap()),
        }
    }
}

/// A directory whose data set is the history's first graph.
fn place(history: &History) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = directory();
    let root = directory.path().join("data");
    copy(history.written.path(), &root);
    (directory, root)
}

fn operations(history: &History) -> u64 {
    let (_directory, root) = place(history);
    let counting = FaultDisk::counting(&root);
    write_all(&counting, &root, history, &mut 0).unwrap();
    assert_recovered(&root, history, RECORDS as u64, "without a fault");
    counting.operations()
}

#[test]
fn every_crash_point_keeps_what_was_acknowledged_and_the_log_goes_on() {
    for seed in 0..SEEDS {
        let history = History::new(seed);
        for at in 0..operations(&history) {
            // Tests each tearing at every third place, and each place with every third seed.
            let shift = (at + seed) % TEARINGS;
            let when = format!("seed {seed}, crash at {at}, tearing {shift}");
            let (_directory, root) = place(&history);
            let mut acknowledged = 0;
            for next in [at, at / 2, at / 3] {
                let plan = FaultPlan { at: next + shift, kind: FaultKind::Crash };
                let disk = FaultDisk::new(&root, plan);
                shifted(&disk, &root, shift);
                // In the second and third run there may be less to write. A crash while the end of
                // the log is recorded is not reported.
                let _ = write_all(&disk, &root, &history, &mut acknowledged);
                assert!(disk.crashed() || next < at, "{when}");
                if next % 2 == 0 {
                    // In the other rounds the next writer finds the unchanged log.
                    acknowledged = assert_recovered(&root, &history, acknowledged, &when);
                }
            }
            write_all(&RealDisk, &root, &history, &mut acknowledged).unwrap();
            assert_recovered(&root, &history, RECORDS as u64, &when);
        }
    }
}

#[test]
fn a_full_or_failing_disk_refuses_writes_and_loses_none() {
    let history = History::new(3);
    for at in 0..operations(&history) {
        for kind in [FaultKind::NoSpace, FaultKind::Eio] {
            let when = format!("{kind:?} at {at}");
            let (_directory, root) = place(&history);
            let disk = FaultDisk::new(&root, FaultPlan { at, kind });
            let mut acknowledged = 0;
            match write_all(&disk, &root, &history, &mut acknowledged) {
                // The failed operation may be a clean-up, which the next one completes.
                Ok(()) => assert_eq!(acknowledged, RECORDS as u64, "{when}"),
                Err(error) => {
                    let kind = error.kind();
                    let kinds = [ErrorKind::NoSpace, ErrorKind::Io, ErrorKind::Unknown];
                    assert!(kinds.contains(&kind), "{when}: {error}");
                    let found = assert_recovered(&root, &history, acknowledged, &when);
                    // A rejected update never appears later, unless the error says that it may.
                    assert!(found == acknowledged || kind == ErrorKind::Unknown, "{when}: {error}");
                }
            }
            acknowledged = assert_recovered(&root, &history, acknowledged, &when);
            write_all(&RealDisk, &root, &history, &mut acknowledged).unwrap();
            assert_recovered(&root, &history, RECORDS as u64, &when);
        }
    }
}

/// Number of operations for opening a log without records.
fn to_open(root: &Path, lock: &FileLock) -> u64 {
    drop(Committer::open(&RealDisk, root, lock).unwrap());
    let counting = FaultDisk::counting(root);
    let committer = Committer::open(&counting, root, lock).unwrap();
    let operations = counting.operations();
    drop(committer);
    operations
}

#[test]
fn a_write_goes_on_after_one_for_which_there_was_no_room() {
    let history = History::new(4);
    let (_directory, root) = place(&history);
    let lock = FileLock::try_directory(&root).unwrap().unwrap();
    // One operation fails: the first one after opening.
    let plan = FaultPlan { at: to_open(&root, &lock), kind: FaultKind::Eio };
    let disk = FaultDisk::new(&root, plan);
    let mut committer = Committer::open(&disk, &root, &lock).unwrap();
    let refused = committer.commit(vec![history.records[0].clone()]).remove(0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Io);
    assert!(committer.failure().is_some());
    assert_eq!(committer.snapshot().delta.lsn(), 0);
    let done = committer.commit(vec![history.records[0].clone()]).remove(0).unwrap();
    assert_eq!((done.lsn, committer.failure()), (1, None));
    drop((committer, lock));
    assert_eq!(assert_recovered(&root, &history, 1, "after a refusal"), 1);
}

#[test]
fn after_a_failed_sync_a_new_segment_replaces_what_was_written_of_the_records() {
    let history = History::new(5);
    for before in 0..3 {
        let (_directory, root) = place(&history);
        let lock = FileLock::try_directory(&root).unwrap().unwrap();
        // The operations of opening; a write, a sync and a recorded end per record; then a write
        // and its sync.
        let at = to_open(&root, &lock) + 3 * before + 1;
        let disk = FaultDisk::new(&root, FaultPlan { at, kind: FaultKind::Eio });
        let mut committer = Committer::open(&disk, &root, &lock).unwrap();
        for record in &history.records[..before as usize] {
            committer.commit(vec![record.clone()]).remove(0).unwrap();
        }
        // The failed records are complete in the old segment, because the simulated disk has stored
        // them.
        let failed = history.records[before as usize + 1..][..2].to_vec();
        for done in committer.commit(failed) {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::Io);
        }
        assert!(committer.failure().is_some());
        assert_eq!(committer.snapshot().delta.lsn(), before);
        drop(committer);
        assert_eq!(verify(&DataSet::open(&root).unwrap()).unwrap(), before);
        let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
        let next = history.records[before as usize].clone();
        assert_eq!(committer.commit(vec![next]).remove(0).unwrap().lsn, before + 1);
        drop((committer, lock));
        let found = assert_recovered(&root, &history, before + 1, "after a failed sync");
        assert_eq!(found, before + 1);
    }
}

#[test]
fn a_file_that_was_folded_away_never_comes_back_under_its_name() {
    let history = History::new(7);
    let (_directory, root) = place(&history);
    let lock = FileLock::try_directory(&root).unwrap().unwrap();
    let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    let mut files = std::collections::BTreeSet::new();
    for record in &history.records {
        committer.commit(vec![record.clone()]).remove(0).unwrap();
        committer.fold(&lock, &|| Ok(())).unwrap();
        for array in DataSet::read_manifest(&root).unwrap().arrays.into_values() {
            let file = root.join(&array.file);
            let written = file.metadata().unwrap().modified().unwrap();
            // Either the same file, or a new name.
            let is_known = files.iter().any(|(known, when)| *known == file && *when != written);
            assert!(!is_known, "{}", file.display());
            files.insert((file, written));
        }
    }
    assert!(files.len() > 20, "{}", files.len());
}

#[test]
fn refused_updates_take_no_memory() {
    let history = History::new(6);
    let (_directory, root) = place(&history);
    let lock = FileLock::try_directory(&root).unwrap().unwrap();
    let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    for node in 0..12 {
        let refused = vec![Update::RemoveEdge { source: node, target: 12 }];
        let too_late = Update::RemoveEdge { source: 1 << 40, target: node };
        for done in committer.commit(vec![refused, vec![too_late]]) {
            assert_eq!(done.unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
    assert_eq!(committer.snapshot().delta.memory().0, 0);
}

#[test]
fn a_data_set_that_takes_no_updates_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let mut manifest = outercore_format::Manifest::homogeneous(2, 0, false);
    manifest.edge_types.clear();
    std::fs::write(root.join("graph.json"), manifest.to_json()).unwrap();
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    let error = Committer::open(&RealDisk, root, &lock).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(DataSet::open(root).unwrap().manifest().live.is_none());
    assert!(!root.join("live").exists());
}
