//! Arrays added to a data set: either all of them are added, or none.

use std::collections::BTreeSet;
use std::path::Path;

use outercore_core::Result;
use outercore_format::{DType, Manifest};
use outercore_io::RealDisk;
use outercore_store::addition::Addition;
use outercore_store::arrays::{ArraySpec, Target};
use outercore_store::dataset::DataSet;
use outercore_store::editor::commit;

fn empty_data_set(root: &Path) -> Result<()> {
    let mut manifest = Manifest::homogeneous(2, 0, false);
    manifest.edge_types.clear();
    commit(&RealDisk, root, &manifest)
}

fn files(root: &Path) -> BTreeSet<String> {
    let found = walk(root).into_iter();
    found.map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
}

fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Adds labels of floats, which have two files until the last row decides their form.
fn add_labels(root: &Path, rows: &[f64], end: bool) -> Result<()> {
    let mut addition = Addition::begin(&RealDisk, root, false, &mut || Ok(()))?;
    let spec = ArraySpec::new(Target::Labels, addition.rows(&Target::Labels, None)?);
    let mut builder = addition.builder(&spec, DType::F64, &[])?;
    let bytes: Vec<u8> = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
    builder.push_rows(&bytes, rows.len() as u64)?;
    if !end {
        return Ok(());
    }
    addition.add(builder)?;
    addition.commit(&["y.csv".to_owned()])
}

#[test]
fn what_is_not_committed_leaves_no_file() -> Result<()> {
    let directory = tempfile::tempdir()?;
    empty_data_set(directory.path())?;
    let before = files(directory.path());
    add_labels(directory.path(), &[0.5, 1.0], false)?;
    assert_eq!(files(directory.path()), before);
    assert!(add_labels(directory.path(), &[0.5], true).is_err());
    assert_eq!(files(directory.path()), before);
    Ok(())
}

#[test]
fn labels_are_classes_or_numbers_and_files_of_others_stay() -> Result<()> {
    for (rows, dtype) in [([0.0, 1.0], DType::I64), ([0.5, 1.0], DType::F64)] {
        let directory = tempfile::tempdir()?;
        let root = directory.path();
        empty_data_set(root)?;
        std::fs::create_dir_all(root.join("nodes/node"))?;
        std::fs::write(root.join("nodes/node/y.numbers.npy"), "mine")?;
        add_labels(root, &rows, true)?;
        let data_set = DataSet::open(root)?;
        assert_eq!(data_set.array("y")?.dtype, dtype);
        assert_eq!(std::fs::read(root.join("nodes/node/y.numbers.npy"))?, b"mine");
        assert_eq!(data_set.manifest().provenance.inputs, ["y.csv"]);
        assert_eq!(files(root).len(), 3);
    }
    Ok(())
}
