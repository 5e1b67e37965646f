//! Overwriting a directory: an import leaves either the old content or the new data set.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use outercore_core::ErrorKind;
use outercore_format::Provenance;
use outercore_io::{Disk, FaultDisk, FaultKind, FaultPlan, RealDisk};
use outercore_store::dataset::DataSet;
use outercore_store::editor::ManifestEditor;
use outercore_store::import::{GraphImport, GraphImportOptions};

use crate::graph::{assert_sound, make, operations};
use crate::model::{options, scratch};

/// Files of the user in places where an import also writes.
const USERS: [&str; 3] = ["notes.txt", "edges/part0.csv", "edges/edge/mine.npy"];

fn add_files_of_the_user(root: &Path) {
    for file in USERS {
        std::fs::write(root.join(file), "mine").unwrap();
    }
}

fn assert_files_of_the_user(root: &Path, when: &str) {
    for file in USERS {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        assert_eq!(text, "mine", "`{file}` {when}");
    }
}

/// All files below `root`, by their relative paths.
fn files(root: &Path) -> BTreeSet<String> {
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
    found
}

fn begin(root: &Path, options: GraphImportOptions) -> outercore_core::Result<GraphImport> {
    GraphImport::begin(Arc::new(RealDisk), root, options, "test")
}

fn graph_options(overwrite: bool) -> GraphImportOptions {
    GraphImportOptions { edges: options(), overwrite, ..GraphImportOptions::default() }
}

/// An import of one text file.
fn import_text(root: &Path, text: &Path, overwrite: bool) -> outercore_core::Result<()> {
    let mut import = begin(root, graph_options(overwrite))?;
    import.edges().text(text, &mut |_| Ok(()))?;
    import.finish_edges(&mut |_| Ok(()))?;
    import.commit().map(|_| ())
}

/// Injects a fault at every step of an overwrite, then runs the same command again.
fn overwrite_with(kind: FaultKind, step: usize) {
    let directory = scratch();
    let root = directory.path().join("count");
    make(Arc::new(RealDisk), &root, false, 60).unwrap();
    std::fs::remove_file(root.with_extension("npy")).unwrap();
    let operations = operations(&root, true);
    assert!(operations > 50, "{operations} operations are too few for a test");
    let (mut old, mut new) = (0, 0);
    for at in (0..operations).step_by(step) {
        let root = directory.path().join(format!("{kind:?}-{at}"));
        let when = format!("after {kind:?} at operation {at} of {operations}");
        make(Arc::new(RealDisk), &root, false, 60).unwrap();
        add_files_of_the_user(&root);
        std::fs::remove_file(root.with_extension("npy")).unwrap();
        let disk = FaultDisk::new(&root, FaultPlan { at, kind });
        let _ = make(Arc::new(disk), &root, true, 50);
        assert_sound(&root);
        match DataSet::open(&root).unwrap().num_nodes() {
            60 => old += 1,
            50 => new += 1,
            other => panic!("{other} nodes {when}"),
        }
        assert_files_of_the_user(&root, &when);
        make(Arc::new(RealDisk), &root, true, 50).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_sound(&root);
        let data = DataSet::open(&root).unwrap();
        assert_eq!(data.num_nodes(), 50);
        assert_files_of_the_user(&root, &when);
        let arrays = data.manifest().arrays.values().map(|entry| entry.file.clone());
        let mut expected: BTreeSet<String> = arrays.collect();
        expected.extend(USERS.map(str::to_owned));
        expected.insert("graph.json".to_owned());
        assert_eq!(files(&root), expected, "{when}");
        std::fs::remove_dir_all(&root).unwrap();
    }
    assert!(old > 0 && new > 0, "{old} old data sets and {new} new ones");
}

#[test]
fn a_crash_at_any_operation_of_an_overwrite_leaves_the_old_data_set_or_the_new_one() {
    overwrite_with(FaultKind::Crash, 1);
}

#[test]
fn a_full_device_or_a_failed_write_during_an_overwrite_leaves_a_whole_data_set() {
    overwrite_with(FaultKind::NoSpace, 3);
    overwrite_with(FaultKind::Eio, 3);
}

#[test]
fn an_overwrite_that_is_refused_leaves_every_file_as_it_was() {
    let directory = scratch();
    let root = directory.path().join("graph");
    make(Arc::new(RealDisk), &root, false, 50).unwrap();
    add_files_of_the_user(&root);
    let before = files(&root);
    let manifest = std::fs::read(root.join("graph.json")).unwrap();
    let text = directory.path().join("edges.txt");
    for bad in ["0 1\n1 2\nno edge\n", "", "0 1\n1 99999999999\n"] {
        std::fs::write(&text, bad).unwrap();
        let error = import_text(&root, &text, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(files(&root), before, "after {bad:?}");
        assert_eq!(std::fs::read(root.join("graph.json")).unwrap(), manifest);
        assert_sound(&root);
    }
}

#[test]
fn an_overwrite_leaves_files_of_the_user_alone_and_none_of_the_old_data_set() {
    let directory = scratch();
    let root = directory.path().join("graph");
    make(Arc::new(RealDisk), &root, false, 50).unwrap();
    add_files_of_the_user(&root);
    let before = files(&root);
    for _ in 0..3 {
        make(Arc::new(RealDisk), &root, true, 50).unwrap();
        assert_sound(&root);
        assert_files_of_the_user(&root, "after an overwrite");
        assert_eq!(files(&root).len(), before.len());
    }
}

#[test]
fn an_import_that_read_nothing_leaves_nothing_and_a_corrected_one_is_not_refused() {
    let directory = scratch();
    let root = directory.path().join("new/graph");
    let text = directory.path().join("edges.txt");
    std::fs::write(&text, "0 1\nno edge\n").unwrap();
    import_text(&root, &text, false).unwrap_err();
    assert!(!directory.path().join("new").exists());
    import_text(&root, &directory.path().join("missing.txt"), false).unwrap_err();
    assert!(!directory.path().join("new").exists());
    std::fs::write(&text, "0 1\n1 2\n").unwrap();
    import_text(&root, &text, false).unwrap();
    assert_sound(&root);
}

#[test]
fn a_directory_with_something_else_in_it_is_refused_and_left_alone() {
    let directory = scratch();
    let text = directory.path().join("edges.txt");
    std::fs::write(&text, "0 1\n1 2\n").unwrap();
    for (file, told) in [
        ("edges/part0.csv", "no data set, expected an empty or a new directory"),
        ("graph.json", "graph.json"),
        (".import/mine", "no data set, expected an empty or a new directory"),
    ] {
        for overwrite in [false, true] {
            let root = scratch();
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "{\"nodes\": []}").unwrap();
            let error = import_text(root.path(), &text, overwrite).unwrap_err().to_string();
            assert!(error.contains(told) && error.contains("`out`"), "{file}: {error}");
            assert_eq!(files(root.path()), BTreeSet::from([file.to_owned()]));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"nodes\": []}");
        }
    }
}

#[test]
fn an_input_that_lies_in_the_data_set_that_it_would_replace_is_refused() {
    let directory = scratch();
    let root = directory.path().join("graph");
    make(Arc::new(RealDisk), &root, false, 50).unwrap();
    let before = files(&root);
    let input = root.join("edges/edge/sources.npy");
    let mut import = begin(&root, graph_options(true)).unwrap();
    let error = import.edges().npy_columns(&input, &input, &mut |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains("where the data set is to be written"), "{error}");
    drop(import);
    assert_eq!(files(&root), before);
    assert_sound(&root);
}

#[test]
fn another_import_is_told_the_command_that_finishes_the_one_that_was_stopped() {
    let directory = scratch();
    let root = directory.path().join("graph");
    std::fs::create_dir(&root).unwrap();
    let told = |command: &str| GraphImportOptions {
        provenance: Provenance { command: command.to_owned(), ..Provenance::default() },
        ..graph_options(false)
    };
    let disk = FaultDisk::counting(&root);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let mut import = GraphImport::begin(disk, &root, told("outercore import a.csv"), "a").unwrap();
    import.edges().push(&[0, 1], &[1, 2]).unwrap();
    import.finish_edges(&mut |_| Ok(())).unwrap();
    drop(import);
    let error = GraphImport::begin(Arc::new(RealDisk), &root, told("x"), "b").err().unwrap();
    let error = error.to_string();
    assert!(error.contains("finish it by `outercore import a.csv`"), "{error}");
    assert!(error.contains("`overwrite=true`"), "{error}");
}

#[test]
fn an_overwrite_that_was_stopped_goes_on_while_the_old_data_set_is_there() {
    let directory = scratch();
    let root = directory.path().join("graph");
    make(Arc::new(RealDisk), &root, false, 60).unwrap();
    let start = || {
        let mut import = begin(&root, graph_options(true)).unwrap();
        let is_resumed = import.edges().is_resumed();
        import.edges().push(&[0, 1], &[1, 2]).unwrap();
        import.finish_edges(&mut |_| Ok(())).unwrap();
        (import, is_resumed)
    };
    let (stopped, is_resumed) = start();
    assert!(!is_resumed);
    drop(stopped);
    assert_eq!(DataSet::open(&root).unwrap().num_nodes(), 60);
    let (import, is_resumed) = start();
    assert!(is_resumed);
    import.commit().unwrap();
    assert_eq!(DataSet::open(&root).unwrap().num_nodes(), 3);
}

#[test]
fn a_change_of_the_old_data_set_takes_no_file_of_an_overwrite_that_was_stopped() {
    let directory = scratch();
    let root = directory.path().join("graph");
    make(Arc::new(RealDisk), &root, false, 60).unwrap();
    let mut import = begin(&root, graph_options(true)).unwrap();
    import.edges().push(&[0, 1], &[1, 2]).unwrap();
    import.finish_edges(&mut |_| Ok(())).unwrap();
    drop(import);
    let mut editor = ManifestEditor::open(&RealDisk, &root).unwrap();
    assert_eq!(editor.claim_file("edges/edge/sources").unwrap(), "edges/edge/sources.2.npy");
    assert!(root.join("edges/edge/sources.1.npy").exists());
}

#[test]
fn a_source_that_was_not_taken_whole_may_change_before_the_import_goes_on() {
    let directory = scratch();
    let root = directory.path().join("graph");
    let (whole, text) = (directory.path().join("a.txt"), directory.path().join("b.txt"));
    let lines =
        |first: u64| -> String { (first..first + 200).map(|i| format!("{i} 0\n")).collect() };
    std::fs::write(&whole, lines(0)).unwrap();
    std::fs::write(&text, lines(200) + "no edge\n").unwrap();
    let take = || {
        let mut import = begin(&root, graph_options(false)).unwrap();
        import.edges().text(&whole, &mut |_| Ok(()))?;
        import.edges().text(&text, &mut |_| Ok(()))?;
        import.finish_edges(&mut |_| Ok(()))?;
        import.commit()
    };
    let error = take().unwrap_err();
    assert!(error.to_string().contains("line 201"), "{error}");
    assert!(root.join(".import/journal.json").exists(), "the first source was taken whole");
    std::fs::write(&text, lines(300)).unwrap();
    let manifest = take().unwrap();
    assert_eq!(manifest.edge_types["edge"].count, 400);
    assert_eq!(DataSet::open(&root).unwrap().num_nodes(), 500);
    assert_sound(&root);
}
