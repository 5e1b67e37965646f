use std::fs;
use std::path::PathBuf;

use outercore_core::{ErrorKind, Result};

use super::{FaultDisk, FaultKind, FaultPlan};
use crate::disk::Disk;

fn root() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    (directory, root)
}

fn plan(at: u64, kind: FaultKind) -> FaultPlan {
    FaultPlan { at, kind }
}

#[test]
fn every_crash_point_of_a_replacement_leaves_the_old_bytes_or_the_new_ones() {
    let (_directory, root) = root();
    let path = root.join("a.json");
    let counting = FaultDisk::counting(&root);
    counting.replace(&path, b"the old").unwrap();
    let operations = counting.operations();
    assert_eq!(operations, 5, "create, write, sync, rename, sync_dir");
    let mut seen = Vec::new();
    for at in 0..operations {
        let disk = FaultDisk::new(&root, plan(at, FaultKind::Crash));
        let error = disk.replace(&path, b"something new").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("simulated crash"), "{error}");
        seen.push(fs::read(&path).unwrap());
        assert!(disk.crashed() && disk.create(&path).is_err());
        fs::write(&path, b"the old").unwrap();
    }
    for content in &seen {
        assert!([&b"the old"[..], b"something new"].contains(&content.as_slice()));
    }
}

#[test]
fn a_replacement_without_its_syncs_loses_bytes_at_some_crash_point() {
    let (_directory, root) = root();
    let path = root.join("a");
    let careless = |disk: &FaultDisk| -> Result<()> {
        disk.create(&root.join("t"))?.write_all(b"something new")?;
        disk.rename(&root.join("t"), &path)?;
        for _ in 0..20 {
            disk.create_dir_all(&root)?;
        }
        Ok(())
    };
    let mut torn = 0;
    for at in 0..20 {
        let _ = fs::remove_file(root.join("t"));
        fs::write(&path, b"the old").unwrap();
        let disk = FaultDisk::new(&root, plan(at, FaultKind::Crash));
        careless(&disk).unwrap_err();
        let content = fs::read(&path).unwrap();
        torn += u32::from(content != b"the old" && content != b"something new");
    }
    assert!(torn > 0, "the model lets unsynced bytes survive every crash");
}

#[test]
fn synced_bytes_survive_and_unsynced_overwrites_may_not() {
    let mut outcomes = std::collections::BTreeSet::new();
    for at in 5..40 {
        let (_directory, root) = root();
        let path = root.join("a");
        let disk = FaultDisk::new(&root, plan(at, FaultKind::Crash));
        let mut file = disk.create(&path).unwrap();
        file.write_all(b"header").unwrap();
        file.sync().unwrap();
        disk.sync_dir(&root).unwrap();
        file.write_at(0, b"HEADER").unwrap();
        while disk.create_dir_all(&root).is_ok() {}
        outcomes.insert(fs::read_to_string(&path).unwrap());
    }
    assert!(outcomes.iter().all(|content| content.eq_ignore_ascii_case("header")));
    assert!(outcomes.contains("header") && outcomes.contains("HEADER"), "{outcomes:?}");
}

#[test]
fn a_name_that_was_not_synced_may_be_gone() {
    let mut there = 0;
    for at in 3..40 {
        let (_directory, root) = root();
        let disk = FaultDisk::new(&root, plan(at, FaultKind::Crash));
        let mut file = disk.create(&root.join("a")).unwrap();
        file.write_all(b"x").unwrap();
        file.sync().unwrap();
        while disk.create_dir_all(&root).is_ok() {}
        there += u32::from(root.join("a").exists());
    }
    assert!((1..37).contains(&there), "{there}");
}

#[test]
fn a_removal_that_was_not_synced_may_be_undone() {
    let mut there = 0;
    for at in 1..40 {
        let (_directory, root) = root();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/a"), b"kept").unwrap();
        let disk = FaultDisk::new(&root, plan(at, FaultKind::Crash));
        disk.remove_dir_all(&root.join("d")).unwrap();
        assert!(!root.join("d").exists());
        while disk.create_dir_all(&root).is_ok() {}
        if root.join("d").exists() {
            assert_eq!(fs::read(root.join("d/a")).unwrap(), b"kept");
            there += 1;
        }
    }
    assert!((1..39).contains(&there), "{there}");
}

#[test]
fn a_full_device_stays_full_but_lets_files_be_removed() {
    let (_directory, root) = root();
    let path = root.join("a");
    let disk = FaultDisk::new(&root, plan(1, FaultKind::NoSpace));
    let mut file = disk.create(&path).unwrap();
    assert_eq!(file.write_all(b"0123").unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(fs::read(&path).unwrap(), b"01");
    assert_eq!(file.write_all(b"0123").unwrap_err().kind(), ErrorKind::NoSpace);
    disk.remove_file(&path).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_refused_operation_changes_nothing_and_the_next_one_works() {
    let (_directory, root) = root();
    let path = root.join("a");
    let disk = FaultDisk::new(&root, plan(1, FaultKind::Eio));
    let mut file = disk.create(&path).unwrap();
    let error = file.write_all(b"0123").unwrap_err();
    assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(libc::EIO)));
    file.write_all(b"4567").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"4567");
}
