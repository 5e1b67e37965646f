//! Damaged logs: acknowledged updates are never dropped silently.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use outercore_core::{Error, ErrorKind, Stream};
use outercore_format::{Rows, Update, keys};
use outercore_io::{FileLock, RealDisk};
use outercore_live::{Committer, open, verify};
use outercore_store::dataset::DataSet;
use outercore_testkit::LiveModel;

/// Commits of the log. Each has one record, except for the last, which has three.
const COMMITS: u64 = 4;
const RECORDS: u64 = COMMITS + 2;

/// The file with the end of the log.
const END: &str = "live/end";

fn add_node() -> Update {
    let rows = [(keys::FEATURES.to_owned(), vec![7; 12]), (keys::LABELS.to_owned(), vec![0; 8])];
    Update::AddNode { graph: None, rows: Rows::from(rows) }
}

/// As [`with_log`], but without the end recorded outside the log, like a log of an older version.
fn with_old_log(root: &Path) -> PathBuf {
    let path = with_log(root);
    std::fs::remove_file(root.join(END)).unwrap();
    path
}

/// A data set with a log of some records, one of them larger than 2 KiB.
fn with_log(root: &Path) -> PathBuf {
    LiveModel::random(5, 9, true, 1).write(root);
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
    for commit in 1..=COMMITS {
        let updates = vec![add_node(); if commit == 2 { 40 } else { 1 }];
        let writes = vec![updates; if commit == COMMITS { 3 } else { 1 }];
        committer.commit(writes).into_iter().for_each(|done| drop(done.unwrap()));
    }
    root.join("live/00000000000000000001.log")
}

fn records(root: &Path) -> outercore_core::Result<u64> {
    verify(&DataSet::open(root).unwrap())
}

#[test]
fn a_flipped_byte_of_an_old_log_is_found_and_only_the_last_write_may_be_taken_for_unfinished() {
    let directory = tempfile::tempdir().unwrap();
    let path = with_old_log(directory.path());
    let sound = std::fs::read(&path).unwrap();
    assert!(sound.len() > 2048, "{}", sound.len());
    let mut draws = Stream::new(1, 0).uniform(0, 0, 0);
    let (mut refused, mut cut) = (0, 0);
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << draws.below(8);
        std::fs::write(&path, &bytes).unwrap();
        match records(directory.path()) {
            Ok(found) => {
                assert!((COMMITS - 1..RECORDS).contains(&found), "byte {at}: {found} records");
                cut += 1;
            }
            Err(error) => {
                assert!(
                    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Version),
                    "byte {at}: {error}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 2048 && cut > 100, "{refused} {cut}");
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(records(directory.path()).unwrap(), RECORDS);
}

#[test]
fn an_old_log_that_ends_early_is_the_records_before_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = with_old_log(directory.path());
    let sound = std::fs::read(&path).unwrap();
    let mut last = 0;
    for len in 64..=sound.len() {
        std::fs::write(&path, &sound[..len]).unwrap();
        let found = records(directory.path()).unwrap();
        assert!(found == last || found == last + 1, "{len} bytes: {found} after {last}");
        last = found;
    }
    assert_eq!(last, RECORDS);
    // The first segment was complete before the manifest referred to it, so a shorter one is
    // damaged.
    std::fs::write(&path, &sound[..63]).unwrap();
    assert_eq!(records(directory.path()).unwrap_err().kind(), ErrorKind::Corrupt);
    std::fs::remove_file(&path).unwrap();
    let error = records(directory.path()).unwrap_err();
    assert!(error.to_string().contains("the log after update 0 is missing"), "{error}");
}

#[test]
fn what_was_torn_does_not_come_back_behind_later_records() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let path = with_old_log(root);
    let sound = std::fs::read(&path).unwrap();
    // The first record of the last write is torn; the other two are whole.
    let first_of_last = (64..sound.len())
        .step_by(8)
        .filter(|&at| sound[at..].starts_with(b"OCR\x01"))
        .nth(COMMITS as usize - 1)
        .unwrap();
    let mut torn = sound.clone();
    torn[first_of_last + 41] ^= 1;
    std::fs::write(&path, &torn).unwrap();
    assert_eq!(records(root).unwrap(), COMMITS - 1);
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    for again in 0..2 {
        let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
        assert_eq!(committer.snapshot().delta.lsn(), COMMITS - 1 + again);
        let done = committer.commit(vec![vec![add_node()]]).remove(0).unwrap();
        assert_eq!(done.lsn, COMMITS + again);
    }
    assert_eq!(records(root).unwrap(), COMMITS + 1);
}

/// A data set with a log of four segments; the last segment is `empty` or has records.
fn with_segments(root: &Path, empty: bool) -> Vec<PathBuf> {
    LiveModel::random(5, 9, true, 1).write(root);
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
    for segment in 0..4 {
        let records = if segment == 3 && empty { 0 } else { 2 };
        for _ in 0..records {
            committer.commit(vec![vec![add_node()]]).remove(0).unwrap();
        }
        if segment < 3 {
            committer.rotate().unwrap();
        }
    }
    drop(committer);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(root.join("live"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    paths.sort();
    assert_eq!(paths.len(), 4);
    paths
}

#[test]
fn a_log_that_was_cut_anywhere_is_found() {
    for empty in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let paths = with_segments(root, empty);
        let whole = if empty { 6 } else { 8 };
        assert_eq!(records(root).unwrap(), whole);
        for path in &paths {
            let sound = std::fs::read(path).unwrap();
            for len in 0..sound.len() {
                std::fs::write(path, &sound[..len]).unwrap();
                let error = records(root).expect_err(&format!("{}: {len}", path.display()));
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            }
            std::fs::remove_file(path).unwrap();
            assert_eq!(records(root).unwrap_err().kind(), ErrorKind::Corrupt, "{}", path.display());
            std::fs::write(path, sound).unwrap();
        }
        assert_eq!(records(root).unwrap(), whole);
    }
}

#[test]
fn a_flipped_byte_of_a_log_is_found_wherever_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = with_log(directory.path());
    for path in [path, directory.path().join(END)] {
        let sound = std::fs::read(&path).unwrap();
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).unwrap();
            match records(directory.path()) {
                // One whole slot of the end is enough.
                Ok(found) => assert!(path.ends_with(END) && found == RECORDS, "byte {at}"),
                Err(error) => assert!(path.extension().is_some(), "byte {at}: {error}"),
            }
        }
        std::fs::write(&path, &sound).unwrap();
    }
}

#[test]
fn a_log_that_was_cut_to_nothing_after_a_fold_is_refused_by_whoever_opens_the_data_set() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    with_segments(root, false);
    drop(open(root, &|| Ok(())).unwrap());
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
    committer.commit(vec![vec![add_node()]]).remove(0).unwrap();
    drop((committer, lock));
    // The same length as after the fold, when no update waited.
    std::fs::File::options()
        .write(true)
        .open(root.join("live/00000000000000000009.log"))
        .unwrap()
        .set_len(64)
        .unwrap();
    let error = open(root, &|| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("update 9 was acknowledged"), "{error}");
}

#[test]
fn the_log_of_a_data_set_that_was_here_before_is_no_part_of_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    with_segments(root, false);
    // An import overwrites the data set.
    LiveModel::random(5, 9, true, 2).write(root);
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    for lsn in 1..3 {
        let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
        assert_eq!(committer.commit(vec![vec![add_node()]]).remove(0).unwrap().lsn, lsn);
    }
    assert_eq!(records(root).unwrap(), 2);
}

#[test]
fn a_log_that_was_cut_says_what_is_lost_and_the_file_to_remove_to_go_on_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let path = with_segments(root, false).pop().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 8]).unwrap();
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    let opened = Committer::open(&RealDisk, root, &lock).map(|_| ()).unwrap_err();
    for error in [records(root).unwrap_err(), opened] {
        let text = error.to_string();
        assert!(text.contains("ends with update 7") && text.contains("update 8 was"), "{text}");
        assert!(text.contains("from a copy") && text.contains("remove `live/end`"), "{text}");
    }
    std::fs::remove_file(root.join(END)).unwrap();
    let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
    assert_eq!(committer.commit(vec![vec![add_node()]]).remove(0).unwrap().lsn, 8);
    drop(committer);
    assert_eq!(records(root).unwrap(), 8);
}

#[test]
fn a_damaged_end_is_found_and_that_of_another_data_set_says_nothing() {
    let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    with_log(one.path());
    with_segments(other.path(), false);
    let sound = std::fs::read(one.path().join(END)).unwrap();
    std::fs::write(one.path().join(END), vec![0; sound.len()]).unwrap();
    let error = records(one.path()).unwrap_err();
    assert!(error.to_string().contains("remove `live/end`"), "{error}");
    std::fs::copy(other.path().join(END), one.path().join(END)).unwrap();
    assert_eq!(records(one.path()).unwrap(), RECORDS);
    // The next writer creates it again.
    let lock = FileLock::try_directory(one.path()).unwrap().unwrap();
    drop(Committer::open(&RealDisk, one.path(), &lock).unwrap());
    let path = one.path().join("live/00000000000000000001.log");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 8]).unwrap();
    assert_eq!(records(one.path()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_large_record_is_read_and_a_damaged_length_asks_for_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    LiveModel::random(5, 9, true, 1).write(root);
    let lock = FileLock::try_directory(root).unwrap().unwrap();
    let mut committer = Committer::open(&RealDisk, root, &lock).unwrap();
    for updates in [1, 60_000, 1, 50_000] {
        committer.commit(vec![vec![add_node(); updates]]).remove(0).unwrap();
    }
    drop(committer);
    assert_eq!(records(root).unwrap(), 4);
    let path = root.join("live/00000000000000000001.log");
    let sound = std::fs::read(&path).unwrap();
    assert!(sound.len() > 4 << 20, "{}", sound.len());
    for at in [200, sound.len() / 2, sound.len() - 1] {
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(records(root).unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
    }
}

#[test]
fn the_log_of_another_data_set_is_refused() {
    let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (path, stray) = (with_log(one.path()), with_log(other.path()));
    std::fs::copy(stray, &path).unwrap();
    let error = records(one.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("belongs to another data set"), "{error}");
}

#[test]
fn a_segment_under_another_name_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = with_log(directory.path());
    let twice = path.with_file_name(format!("{:020}.log", RECORDS + 1));
    std::fs::copy(&path, twice).unwrap();
    assert_eq!(records(directory.path()).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn any_bytes_at_all_end_in_an_error_or_in_fewer_records() {
    let directory = tempfile::tempdir().unwrap();
    let path = with_old_log(directory.path());
    let sound = std::fs::read(&path).unwrap();
    for seed in 0..400 {
        let mut draws = Stream::new(seed, 0).uniform(0, 0, 0);
        let mut bytes = sound.clone();
        for _ in 0..1 + draws.below(4) {
            let place =
                |draws: &mut outercore_core::Uniform| draws.below(sound.len() as u64) as usize;
            let (from, to, len) = (place(&mut draws), place(&mut draws), place(&mut draws) / 4);
            match draws.below(4) {
                0 => bytes.truncate(to),
                1 => bytes.extend_from_within(
                    from.min(bytes.len())..(from + len).min(bytes.len()).max(from.min(bytes.len())),
                ),
                2 => bytes.iter_mut().skip(to).take(len).for_each(|byte| *byte = 0),
                _ => bytes.iter_mut().skip(to).take(8).for_each(|byte| *byte ^= 0x5a),
            }
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(found) = records(directory.path()) {
            assert!(found <= RECORDS, "seed {seed}: {found}");
            let before = bytes.iter().zip(&sound).take_while(|(a, b)| a == b).count();
            // All records before the first change are present.
            let whole = (64..sound.len())
                .step_by(8)
                .filter(|&at| sound[at..].starts_with(b"OCR\x01") && at < before)
                .count() as u64;
            assert!(found + 1 >= whole, "seed {seed}: {found} of {whole}");
        }
    }
}

#[test]
fn a_reader_is_told_of_a_fold_only_when_it_is_done() {
    let directory = tempfile::tempdir().unwrap();
    with_log(directory.path());
    let request = directory.path().join("live/1-0.request");
    std::fs::write(&request, b"").unwrap();
    let calls = Cell::new(0);
    let stop_in_fold = || {
        calls.set(calls.get() + 1);
        match calls.get() {
            1 => Ok(()),
            _ => Err(Error::new(ErrorKind::Interrupted, "stopped")),
        }
    };
    let error = open(directory.path(), &stop_in_fold).unwrap_err();
    assert_eq!((error.kind(), calls.get()), (ErrorKind::Interrupted, 2));
    assert!(request.exists());
    let folded = open(directory.path(), &|| Ok(())).unwrap();
    assert_eq!(folded.manifest().live.as_ref().unwrap().lsn, RECORDS);
    assert!(!request.exists());
}
