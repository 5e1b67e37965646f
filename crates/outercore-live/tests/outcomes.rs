//! The errors that a client receives when a write fails, and the answers to repeated requests.

use std::path::{Path, PathBuf};

use outercore_core::{ErrorKind, Result};
use outercore_format::log::Key;
use outercore_format::{Rows, Update, keys};
use outercore_io::{Disk, FaultDisk, FaultKind, FaultPlan, FileLock, RealDisk};
use outercore_live::{Ack, Committer, Write};
use outercore_store::dataset::DataSet;
use outercore_store::delta::Applied;
use outercore_testkit::{LiveModel, SickDisk};

fn add_node(key: &str) -> Write {
    let rows = [(keys::FEATURES.to_owned(), vec![7; 12]), (keys::LABELS.to_owned(), vec![0; 8])];
    let updates = vec![Update::AddNode { graph: None, rows: Rows::from(rows) }];
    Write { updates, key: (!key.is_empty()).then(|| Key::new(key).unwrap()) }
}

const NODES: u64 = 5;

/// In memory if possible: on a disk, thousands of syncs would each wait.
fn data_set() -> (tempfile::TempDir, PathBuf, FileLock) {
    let memory = Path::new("/dev/shm");
    let directory = match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    };
    let root = directory.path().join("data");
    std::fs::create_dir(&root).unwrap();
    LiveModel::random(NODES, 9, true, 1).write(&root);
    let lock = FileLock::try_directory(&root).unwrap().unwrap();
    (directory, root, lock)
}

fn one(committer: &mut Committer<'_>, key: &str) -> Result<Ack> {
    committer.commit(vec![add_node(key)]).remove(0)
}

/// Results for added nodes; the ids of added nodes follow each other.
fn node(place: u64) -> Vec<Applied> {
    vec![Applied::Node(NODES + place)]
}

#[test]
fn a_write_whose_outcome_is_unknown_says_so_and_is_not_there_once_the_disk_is_well() {
    let (_directory, root, lock) = data_set();
    let disk = SickDisk::default();
    let mut committer = Committer::open(&disk, &root, &lock).unwrap();
    assert_eq!(one(&mut committer, "").unwrap().lsn, 1);
    disk.fail(true);
    assert_eq!(one(&mut committer, "a").unwrap_err().kind(), ErrorKind::Unknown);
    // Nothing of this write has reached the disk.
    assert_eq!(one(&mut committer, "b").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(committer.renew().unwrap_err().kind(), ErrorKind::Io);
    assert!(committer.failure().is_some());
    assert_eq!(committer.snapshot().delta.lsn(), 1);
    disk.fail(false);
    committer.renew().unwrap();
    assert_eq!(committer.failure(), None);
    drop(committer);
    let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    assert_eq!(committer.snapshot().delta.lsn(), 1);
    let ack = one(&mut committer, "a").unwrap();
    assert_eq!((ack.lsn, ack.applied), (2, node(1)));
}

#[test]
fn after_a_restart_a_write_whose_outcome_was_unknown_is_told_by_its_key() {
    let (_directory, root, lock) = data_set();
    let disk = SickDisk::default();
    let mut committer = Committer::open(&disk, &root, &lock).unwrap();
    disk.fail(true);
    let writes = vec![add_node("a"), add_node("b")];
    for done in committer.commit(writes) {
        assert_eq!(done.unwrap_err().kind(), ErrorKind::Unknown);
    }
    drop(committer);
    // The system's memory still had the records.
    let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    assert_eq!(committer.snapshot().delta.lsn(), 2);
    for (key, place) in [("b", 1), ("a", 0)] {
        let ack = one(&mut committer, key).unwrap();
        assert_eq!((ack.lsn, ack.applied), (place + 1, node(place)));
    }
    assert_eq!(committer.snapshot().delta.num_nodes(), NODES + 2);
}

#[test]
fn a_key_gets_its_first_answer_after_a_restart_and_after_folds() {
    let (_directory, root, lock) = data_set();
    let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    let writes = vec![add_node("a"), add_node("b"), add_node("a"), add_node(""), add_node("a")];
    let done: Vec<Ack> = committer.commit(writes).into_iter().map(Result::unwrap).collect();
    let lsns: Vec<u64> = done.iter().map(|ack| ack.lsn).collect();
    assert_eq!(lsns, [1, 2, 1, 3, 1]);
    assert_eq!((&done[2].applied, &done[4].applied), (&node(0), &node(0)));
    for round in 0..4 {
        for (key, place) in [("a", 0), ("b", 1)] {
            let ack = one(&mut committer, key).unwrap();
            assert_eq!((ack.lsn, ack.applied), (place + 1, node(place)), "round {round}");
        }
        if round % 2 == 0 {
            committer.fold(&lock, &|| Ok(())).unwrap();
        }
        drop(committer);
        committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    }
    assert_eq!(committer.snapshot().delta.num_nodes(), NODES + 3);
    // A command that reads the data set has folded the log.
    drop((committer, lock));
    let data_set = outercore_live::open(&root, &|| Ok(())).unwrap();
    assert_eq!(data_set.num_nodes(), NODES + 3);
    let lock = FileLock::try_directory(&root).unwrap().unwrap();
    let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    assert_eq!(one(&mut committer, "b").unwrap().lsn, 2);
}

#[test]
fn a_refused_request_leaves_its_key_free() {
    let (_directory, root, lock) = data_set();
    let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    let wrong = Write { updates: vec![Update::RemoveNode { node: 99 }], ..add_node("a") };
    let done = committer.commit(vec![wrong, add_node("a"), add_node("a")]);
    assert_eq!(done[0].as_ref().unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(done[1].as_ref().unwrap(), done[2].as_ref().unwrap());
    assert_eq!(committer.snapshot().delta.num_nodes(), NODES + 1);
}

#[test]
fn the_oldest_keys_are_forgotten_first() {
    let (_directory, root, lock) = data_set();
    let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    for from in [0, 4096] {
        let writes = (from..from + 4096).map(|key: u64| add_node(&key.to_string()));
        committer.commit(writes.collect::<Vec<Write>>()).into_iter().for_each(|done| {
            done.unwrap();
        });
    }
    committer.fold(&lock, &|| Ok(())).unwrap();
    drop(committer);
    let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    assert_eq!(one(&mut committer, "4096").unwrap().lsn, 4097);
    assert_eq!(one(&mut committer, "8191").unwrap().lsn, 8192);
    assert_eq!(one(&mut committer, "4095").unwrap().lsn, 8193);
}

#[test]
fn no_crash_and_no_failed_operation_makes_a_key_take_effect_twice() {
    /// Sends each request until it is answered; reopens the log after each failure.
    fn send_all(
        disk: &dyn Disk,
        root: &Path,
        lock: &FileLock,
        answers: &mut Vec<Ack>,
    ) -> Result<()> {
        let mut committer = Committer::open(disk, root, lock)?;
        while answers.len() < 4 {
            let key = format!("key {}", answers.len());
            answers.push(one(&mut committer, &key)?);
            if answers.len() == 2 {
                committer.fold(lock, &|| Ok(()))?;
            }
        }
        Ok(())
    }
    let count = {
        let (_directory, root, lock) = data_set();
        let disk = FaultDisk::counting(&root);
        send_all(&disk, &root, &lock, &mut Vec::new()).unwrap();
        disk.operations()
    };
    for at in 0..count {
        for kind in [FaultKind::Crash, FaultKind::Eio, FaultKind::NoSpace] {
            let (_directory, root, lock) = data_set();
            let mut answers = Vec::new();
            let disk = FaultDisk::new(&root, FaultPlan { at, kind });
            let _ = send_all(&disk, &root, &lock, &mut answers);
            send_all(&RealDisk, &root, &lock, &mut answers).unwrap();
            let found: Vec<(u64, Vec<Applied>)> =
                answers.into_iter().map(|ack| (ack.lsn, ack.applied)).collect();
            let expected: Vec<_> = (0..4).map(|place| (place + 1, node(place))).collect();
            assert_eq!(found, expected, "{kind:?} at {at}");
            drop(lock);
            let data_set = outercore_live::open(&root, &|| Ok(())).unwrap();
            assert_eq!(data_set.num_nodes(), NODES + 4, "{kind:?} at {at}");
        }
    }
}

#[test]
fn damaged_answers_are_found() {
    let (_directory, root, lock) = data_set();
    let mut committer = Committer::open(&RealDisk, &root, &lock).unwrap();
    one(&mut committer, "a").unwrap();
    committer.fold(&lock, &|| Ok(())).unwrap();
    drop(committer);
    let path = root.join("live/answers");
    let sound = std::fs::read(&path).unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bytes).unwrap();
        let error = Committer::open(&RealDisk, &root, &lock).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}");
    }
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(DataSet::open(&root).unwrap().manifest().lsn(), 1);
    drop(Committer::open(&RealDisk, &root, &lock).unwrap());
}
