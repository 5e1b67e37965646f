//! The data set with five nodes of the tests and of `tests/data/format-1`.
//!
//! Imported as undirected from the edge list `0 1, 1 2, 3 3, 0 4`.
#![allow(dead_code, reason = "every test binary uses a part of it")]

pub mod typed;

use std::path::{Path, PathBuf};

use half::bf16;
use outercore_core::Result;
use outercore_format::{ArrayEntry, Manifest, keys};
use outercore_io::{Disk, FaultDisk};
use outercore_store::editor::commit;
use outercore_store::npy::{ArrayWriter, Element};

/// Column offsets.
pub const OFFSETS: [u64; 6] = [0, 2, 4, 5, 6, 7];
/// In-neighbours of each node.
pub const SOURCES: [u32; 7] = [1, 4, 0, 2, 1, 3, 0];
/// Rows of the edge list.
pub const EDGE_IDS: [u32; 7] = [0, 3, 0, 1, 1, 2, 3];
/// Labels.
pub const LABELS: [i64; 5] = [0, 1, 2, 1, -1];

/// Features: row `v` is `v, v / 2, -v`.
pub fn features() -> Vec<bf16> {
    (0..5u8)
        .flat_map(|v| [f32::from(v), f32::from(v) / 2.0, -f32::from(v)])
        .map(bf16::from_f32)
        .collect()
}

/// Writes the data set to `root`.
pub fn write(disk: &dyn Disk, root: &Path) -> Result<()> {
    let mut manifest = Manifest::homogeneous(5, 7, true);
    manifest.created = "2026-01-31T12:00:00Z".into();
    manifest.edge_types.get_mut(keys::EDGE).expect("homogeneous").rows = Some(4);
    let mut add = |key: &str, entry: Result<ArrayEntry>| -> Result<()> {
        manifest.arrays.insert(key.into(), entry?);
        Ok(())
    };
    add(keys::OFFSETS, array(disk, root, keys::OFFSETS, &[], &OFFSETS))?;
    add(keys::SOURCES, array(disk, root, keys::SOURCES, &[], &SOURCES))?;
    add(keys::EDGE_IDS, array(disk, root, keys::EDGE_IDS, &[], &EDGE_IDS))?;
    add(keys::FEATURES, array(disk, root, keys::FEATURES, &[3], &features()))?;
    add(keys::LABELS, array(disk, root, keys::LABELS, &[], &LABELS))?;
    add("nodes/node/year", array(disk, root, "nodes/node/year", &[], &[2001i32, 2, 3, 4, 5]))?;
    add("splits/train", array(disk, root, "splits/train", &[], &[2i64, 0]))?;
    add("splits/valid", array(disk, root, "splits/valid", &[], &[1i64]))?;
    manifest.roles.features = Some(keys::FEATURES.into());
    manifest.roles.labels = Some(keys::LABELS.into());
    manifest.roles.classes = Some(3);
    for split in ["train", "valid"] {
        manifest.roles.splits.insert(split.into(), keys::split(split));
    }
    manifest.provenance.command = "outercore import edges.csv --undirected".into();
    manifest.provenance.outercore = "0.1.0".into();
    manifest.provenance.inputs = vec!["edges.csv".into()];
    commit(disk, root, &manifest)
}

fn array<T: Element>(
    disk: &dyn Disk,
    root: &Path,
    key: &str,
    row_shape: &[u64],
    elements: &[T],
) -> Result<ArrayEntry> {
    let mut writer = ArrayWriter::create(disk, root, &format!("{key}.npy"), T::DTYPE, row_shape)?;
    writer.write_slice(elements)?;
    writer.finish()
}

/// A temporary directory, and the path of a future data set in it.
pub fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let root = directory.path().join("tiny");
    (directory, root)
}

/// The data set in a temporary directory.
pub fn on_disk() -> (tempfile::TempDir, PathBuf) {
    let (directory, root) = place();
    write(&unsynced(&root), &root).expect("write the tiny data set");
    (directory, root)
}

/// A disk that works but never syncs, which makes tests with many data sets fast.
pub fn unsynced(root: &Path) -> FaultDisk {
    FaultDisk::counting(root)
}

/// Asserts that the directories hold the same files. `written_then` converts the bytes of a file to
/// the bytes that an earlier version wrote.
pub fn assert_same_files(
    written: &Path,
    frozen: &Path,
    written_then: impl Fn(&Path, Vec<u8>) -> Vec<u8>,
) {
    let names = files(written);
    assert_eq!(names, files(frozen));
    for name in names {
        let bytes = written_then(&name, std::fs::read(written.join(&name)).unwrap());
        let kept = std::fs::read(frozen.join(&name)).unwrap();
        assert!(bytes == kept, "{} differs", name.display());
    }
}

/// The relative paths of all files below `root`, in order.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files.push(path.strip_prefix(root).unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}
