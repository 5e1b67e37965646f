//! Creates and changes a data set with a crash or a refused write at every point.

mod tiny;

use std::collections::BTreeSet;
use std::path::Path;

use outercore_core::{Error, ErrorKind, Result};
use outercore_format::{DType, Manifest};
use outercore_io::{Disk, FaultDisk, FaultKind, FaultPlan, RealDisk};
use outercore_store::arrays::{ArrayBuilder, ArraySpec, Target};
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_store::editor::{ManifestEditor, commit};
use outercore_store::generations;
use outercore_store::npy::ArrayWriter;

/// A torn write depends only on the number of the operation, so counted operations before the task
/// vary it.
const TEARINGS: u64 = 4;

fn shifted(disk: &dyn Disk, root: &Path, by: u64) {
    for _ in 0..by {
        disk.create_dir_all(root.parent().unwrap()).unwrap();
    }
}

fn assert_sound(root: &Path, when: &str) {
    let report = check(root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
    assert!(report.is_sound(), "{when}: {:#?}", report.problems);
}

/// Asserts that the data set holds no files other than the manifest and the files that it names.
fn assert_tidy(root: &Path, when: &str) {
    let mut found = BTreeSet::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let manifest = DataSet::read_manifest(root).unwrap();
    let mut named: BTreeSet<_> = manifest.arrays.into_values().map(|array| array.file).collect();
    named.insert("graph.json".to_owned());
    assert_eq!(found, named, "{when}");
}

#[test]
fn a_change_takes_no_file_that_somebody_else_has_put_there_and_removes_none() {
    let (_directory, root) = tiny::on_disk();
    let key = "nodes/node/score";
    for file in ["nodes/node/score.npy", "nodes/node/score.1.npy"] {
        std::fs::write(root.join(file), "mine").unwrap();
    }
    for is_committed in [false, true] {
        let mut editor = ManifestEditor::open(&RealDisk, &root).unwrap();
        let file = editor.claim_file(key).unwrap();
        assert_eq!(file, "nodes/node/score.2.npy");
        let mut writer = ArrayWriter::create(&RealDisk, &root, &file, DType::F32, &[]).unwrap();
        writer.write_slice(&[0.5f32; 5]).unwrap();
        let entry = writer.finish().unwrap();
        if is_committed {
            editor.insert(key, entry);
            editor.commit().unwrap();
        } else {
            drop(editor);
        }
        assert_eq!(root.join(&file).exists(), is_committed);
    }
    for file in ["nodes/node/score.npy", "nodes/node/score.1.npy"] {
        assert_eq!(std::fs::read(root.join(file)).unwrap(), b"mine");
    }
    assert_sound(&root, "after all");
}

/// Replaces the features by wider ones, adds a split and drops the years.
fn change(disk: &dyn Disk, root: &Path) -> Result<()> {
    let mut editor = ManifestEditor::open(disk, root)?;
    let spec = ArraySpec::new(Target::Features, 5);
    let file = editor.claim_file(&spec.key())?;
    let mut features = ArrayBuilder::create(disk, root, &file, spec, DType::F32, &[400])?;
    features.push_rows(bytemuck::cast_slice(&[1.5f32; 2 * 400]), 2)?;
    features.push_rows(bytemuck::cast_slice(&[2.5f32; 3 * 400]), 3)?;
    features.finish(disk)?.add_to(editor.manifest_mut());

    let spec = ArraySpec::new(Target::Split("test".into()), 5);
    let file = editor.claim_file(&spec.key())?;
    let mut split = ArrayBuilder::create(disk, root, &file, spec, DType::U32, &[])?;
    split.push_rows(bytemuck::cast_slice(&[4u32, 3]), 2)?;
    split.finish(disk)?.add_to(editor.manifest_mut());

    editor.manifest_mut().arrays.remove("nodes/node/year");
    editor.commit()
}

fn manifests() -> (Manifest, Manifest) {
    let (_directory, root) = tiny::on_disk();
    let before = DataSet::read_manifest(&root).unwrap();
    change(&tiny::unsynced(&root), &root).unwrap();
    (before, DataSet::read_manifest(&root).unwrap())
}

#[test]
fn every_crash_point_of_making_a_data_set_leaves_none_or_a_whole_one() {
    let (_directory, root) = tiny::place();
    let counting = FaultDisk::counting(&root);
    tiny::write(&counting, &root).unwrap();
    let (mut none, mut whole) = (0, 0);
    for at in 0..counting.operations() {
        for shift in 0..TEARINGS {
            let (_directory, root) = tiny::place();
            let plan = FaultPlan { at: at + shift, kind: FaultKind::Crash };
            let disk = FaultDisk::new(&root, plan);
            shifted(&disk, &root, shift);
            let error = tiny::write(&disk, &root).unwrap_err();
            assert!(error.to_string().contains("simulated crash"), "{error}");
            match DataSet::open(&root) {
                Ok(_) => {
                    assert_sound(&root, &format!("crash at {at}, shifted by {shift}"));
                    whole += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "crash at {at}: {error}");
                    none += 1;
                }
            }
            tiny::write(&tiny::unsynced(&root), &root).unwrap();
            assert_sound(&root, "written again");
        }
    }
    assert!(none > 0 && whole > 0, "{none} without a data set, {whole} with a whole one");
}

#[test]
fn every_crash_point_of_a_change_leaves_the_old_data_set_or_the_new_one() {
    let (before, after) = manifests();
    let (_directory, root) = tiny::on_disk();
    let counting = FaultDisk::counting(&root);
    change(&counting, &root).unwrap();
    let (mut old, mut new) = (0, 0);
    for at in 0..counting.operations() {
        for shift in 0..TEARINGS {
            let (_directory, root) = tiny::on_disk();
            let plan = FaultPlan { at: at + shift, kind: FaultKind::Crash };
            let disk = FaultDisk::new(&root, plan);
            shifted(&disk, &root, shift);
            let done = change(&disk, &root);
            assert!(disk.crashed());
            let when = format!("crash at {at}, shifted by {shift}");
            let manifest = DataSet::open(&root).expect(&when).manifest().clone();
            assert_sound(&root, &when);
            if manifest == before {
                assert!(done.is_err(), "{when}: reported as done, but undone");
                old += 1;
            } else {
                assert_eq!(manifest, after, "{when}");
                new += 1;
            }
            // The next change succeeds, and removes the files that the crash left.
            change(&tiny::unsynced(&root), &root).expect(&when);
            assert_sound(&root, &when);
            assert_tidy(&root, &when);
        }
    }
    assert!(old > 0 && new > 0, "{old} old, {new} new");
}

#[test]
fn a_full_or_failing_disk_at_any_operation_is_an_error_that_loses_nothing() {
    let (before, after) = manifests();
    let (_directory, root) = tiny::on_disk();
    let counting = FaultDisk::counting(&root);
    change(&counting, &root).unwrap();
    for at in 0..counting.operations() {
        for kind in [FaultKind::NoSpace, FaultKind::Eio] {
            let (_directory, root) = tiny::on_disk();
            let done = change(&FaultDisk::new(&root, FaultPlan { at, kind }), &root);
            let when = format!("{kind:?} at {at}");
            let manifest = DataSet::open(&root).expect(&when).manifest().clone();
            assert_sound(&root, &when);
            match done {
                // Only an error while removing old files may be ignored.
                Ok(()) => assert_eq!(manifest, after, "{when}"),
                Err(error) => {
                    let expected = match kind {
                        FaultKind::NoSpace => ErrorKind::NoSpace,
                        _ => ErrorKind::Io,
                    };
                    assert_eq!(error.kind(), expected, "{when}: {error}");
                    assert!(error.to_string().contains('`'), "{when}: {error}");
                    assert!(manifest == before || manifest == after, "{when}");
                }
            }
            change(&tiny::unsynced(&root), &root).expect(&when);
            assert_sound(&root, &when);
        }
    }
}

#[test]
fn a_reader_keeps_the_files_of_its_manifest_until_it_has_gone() {
    let (_directory, root) = tiny::on_disk();
    let graph = DataSet::open(&root).unwrap();
    let x = graph.read_array("x").unwrap();
    let mut editor = ManifestEditor::open(&RealDisk, &root).unwrap();
    let spec = ArraySpec::new(Target::Features, 5);
    let file = editor.claim_file(&spec.key()).unwrap();
    assert_eq!(file, "nodes/node/x.1.npy");
    let mut builder =
        ArrayBuilder::create(&RealDisk, &root, &file, spec, DType::F32, &[1]).unwrap();
    builder.push_rows(&[0; 20], 5).unwrap();
    builder.finish(&RealDisk).unwrap().add_to(editor.manifest_mut());
    assert_eq!(graph.read_array("x").unwrap(), x);
    editor.commit().unwrap();
    assert_eq!(DataSet::open(&root).unwrap().features().unwrap().shape, [5, 1]);
    assert_eq!(graph.read_array("x").unwrap(), x);
    let generation = graph.generation().to_owned();
    let copy = DataSet::open_generation(&root, &generation).unwrap().unwrap();
    assert_eq!(copy.features().unwrap().shape, graph.features().unwrap().shape);
    for reader in [graph, copy] {
        generations::tidy(&root).unwrap();
        assert!(root.join("nodes/node/x.npy").exists());
        drop(reader);
    }
    generations::tidy(&root).unwrap();
    assert!(!root.join("nodes/node/x.npy").exists() && !generations::are_left(&root));
    assert!(DataSet::open_generation(&root, &generation).unwrap().is_none());
}

#[test]
fn one_changes_a_data_set_and_others_are_refused_or_wait() {
    let (_directory, root) = tiny::on_disk();
    let editor = ManifestEditor::open(&RealDisk, &root).unwrap();
    let error = change(&tiny::unsynced(&root), &root).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("somebody else writes to it"), "{error}");

    let give_up = &mut || Err(Error::new(ErrorKind::Interrupted, "enough"));
    let error = ManifestEditor::wait(&RealDisk, &root, give_up).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Interrupted);

    let mut editor = Some(editor);
    let mut let_go = || {
        editor.take();
        Ok(())
    };
    drop(ManifestEditor::wait(&RealDisk, &root, &mut let_go).unwrap());
    assert!(editor.is_none());
    change(&tiny::unsynced(&root), &root).unwrap();
    assert_sound(&root, "after all");
}

#[test]
fn a_change_that_overlooks_another_is_refused() {
    let (_directory, root) = tiny::on_disk();
    let editor = ManifestEditor::open(&RealDisk, &root).unwrap();
    // A writer that takes no lock.
    let mut other = DataSet::read_manifest(&root).unwrap();
    other.arrays.remove("nodes/node/year");
    commit(&RealDisk, &root, &other).unwrap();
    let error = editor.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("changed by somebody else"), "{error}");
}
