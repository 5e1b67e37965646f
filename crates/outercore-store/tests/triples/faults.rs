use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outercore_core::{Error, ErrorKind, Result};
use outercore_io::{Disk, FaultDisk, FaultKind, FaultPlan, RealDisk};
use outercore_store::import::{
    Duplicates, OnProgress, Part, PartSummary, Phase, TripleImportOptions, Unknown,
};

use crate::model::{Graph, Row, begin, naive, options, push, random_parts, read, scratch, text};

struct Input {
    directory: tempfile::TempDir,
    parts: BTreeMap<Part, Vec<Row>>,
    options: TripleImportOptions,
}

impl Input {
    /// Half of the training triples as text, half pushed; one part as plain text, one compressed.
    fn new() -> Self {
        let directory = scratch();
        let parts = random_parts(60, 3);
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("train.tsv"), text(&parts[&Part::Train][..30])).unwrap();
        std::fs::write(path("valid.tsv"), text(&parts[&Part::Valid])).unwrap();
        let packed = zstd::encode_all(text(&parts[&Part::Test]).as_bytes(), 3).unwrap();
        std::fs::write(path("test.tsv.zst"), packed).unwrap();
        let options = TripleImportOptions { duplicates: Duplicates::Drop, ..options() };
        Self { directory, parts, options }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn import(&self, disk: Arc<dyn Disk>, root: &Path) -> Result<BTreeMap<Part, PartSummary>> {
        self.import_watched(disk, root, &mut |_| Ok(()))
    }

    fn import_watched(
        &self,
        disk: Arc<dyn Disk>,
        root: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<BTreeMap<Part, PartSummary>> {
        let mut import = begin(disk, root, &self.options)?;
        import.text(Part::Train, &self.path("train.tsv"), None, &mut *on_progress)?;
        for batch in self.parts[&Part::Train][30..].chunks(7) {
            push(&mut import, Part::Train, batch)?;
        }
        import.text(Part::Valid, &self.path("valid.tsv"), None, &mut *on_progress)?;
        import.text(Part::Test, &self.path("test.tsv.zst"), None, &mut *on_progress)?;
        let parts = import.finish(on_progress)?.parts.clone();
        import.commit()?;
        Ok(parts)
    }

    fn expected(&self) -> Graph {
        naive(&self.parts, &self.options)
    }

    fn operations(&self) -> u64 {
        let root = self.path("count");
        std::fs::create_dir(&root).unwrap();
        let disk = Arc::new(FaultDisk::counting(&root));
        self.import(disk.clone(), &root).unwrap();
        disk.operations()
    }
}

/// Whether the import reached its commit, after which it only removes files.
fn is_committed(root: &Path) -> bool {
    root.join("graph.json").exists()
}

#[test]
fn after_a_crash_at_any_operation_the_import_goes_on_to_the_same_arrays() {
    let input = Input::new();
    let (operations, expected) = (input.operations(), input.expected());
    assert!(operations > 100, "{operations} operations are too few for a test");
    let whole = input.path("whole");
    let found = input.import(Arc::new(RealDisk), &whole).unwrap();
    assert_eq!(read(&whole), expected);
    for at in 0..operations {
        let root = input.path(&format!("crash-{at}"));
        std::fs::create_dir(&root).unwrap();
        let disk = FaultDisk::new(&root, FaultPlan { at, kind: FaultKind::Crash });
        let crashed = input.import(Arc::new(disk), &root);
        if is_committed(&root) {
            assert_eq!(read(&root), expected, "committed before a crash at operation {at}");
        } else {
            assert!(crashed.is_err(), "operation {at} of {operations}");
            let again = input
                .import(Arc::new(RealDisk), &root)
                .unwrap_or_else(|error| panic!("after a crash at operation {at}: {error}"));
            assert_eq!(again, found, "after a crash at operation {at}");
            assert_eq!(read(&root), expected, "after a crash at operation {at}");
        }
        assert!(!root.join(".import").exists() || is_committed(&root));
        std::fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn a_full_device_or_a_failed_write_is_said_and_later_the_import_goes_on() {
    let input = Input::new();
    let (operations, expected) = (input.operations(), input.expected());
    for at in (0..operations).step_by(3) {
        for (kind, told) in
            [(FaultKind::NoSpace, ErrorKind::NoSpace), (FaultKind::Eio, ErrorKind::Io)]
        {
            let root = input.path(&format!("{kind:?}-{at}"));
            std::fs::create_dir(&root).unwrap();
            let disk = FaultDisk::new(&root, FaultPlan { at, kind });
            if let Err(error) = input.import(Arc::new(disk), &root) {
                assert_eq!(error.kind(), told, "operation {at}: {error}");
            }
            if !is_committed(&root) {
                input.import(Arc::new(RealDisk), &root).unwrap();
            }
            assert_eq!(read(&root), expected, "{kind:?} at operation {at}");
            std::fs::remove_dir_all(&root).unwrap();
        }
    }
}

#[test]
fn stopped_by_the_user_anywhere_the_import_goes_on() {
    let input = Input::new();
    let expected = input.expected();
    let mut calls = 0;
    input
        .import_watched(Arc::new(RealDisk), &input.path("calls"), &mut |_| {
            calls += 1;
            Ok(())
        })
        .unwrap();
    assert!(calls > 10, "{calls} calls");
    for stop in 1..=calls {
        let root = input.path(&format!("stop-{stop}"));
        let mut left = stop;
        let error = input
            .import_watched(Arc::new(RealDisk), &root, &mut |_| {
                left -= 1;
                if left == 0 { Err(Error::new(ErrorKind::Interrupted, "stopped")) } else { Ok(()) }
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "call {stop}: {error}");
        let check = &mut |progress: outercore_store::import::Progress| {
            assert!(progress.done <= progress.total, "{progress:?}");
            Ok(())
        };
        input.import_watched(Arc::new(RealDisk), &root, check).unwrap();
        assert_eq!(read(&root), expected, "stopped at call {stop}");
    }
}

#[test]
fn other_inputs_or_columns_do_not_go_on_with_an_unfinished_import_but_other_rules_do() {
    let mut input = Input::new();
    let root = input.path("graph");
    let stop_in_write = &mut |progress: outercore_store::import::Progress| match progress.phase {
        Phase::Read => Ok(()),
        _ => Err(Error::new(ErrorKind::Interrupted, "stopped")),
    };
    let error = input.import_watched(Arc::new(RealDisk), &root, stop_in_write).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}");
    let refused = |input: &Input, expected: &str| {
        let error = input.import(Arc::new(RealDisk), &root).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let message = error.to_string();
        assert!(message.contains(expected) && message.contains("`overwrite=true`"), "{message}");
    };
    input.options.columns = "htr".parse().unwrap();
    refused(&input, "holds the unfinished import of other input or with other options");
    input.options.columns = "hrt".parse().unwrap();
    let train = input.parts.get_mut(&Part::Train).unwrap();
    let last = train.pop().unwrap();
    refused(&input, "source 2 of the triples has 29 triples, but the unfinished import took 30");
    input.parts.get_mut(&Part::Train).unwrap().extend([last.clone(), last]);
    refused(&input, "source 2 of the triples has 31 triples, but the unfinished import took 30");
    input.parts.get_mut(&Part::Train).unwrap().pop();
    let valid = std::fs::read(input.path("valid.tsv")).unwrap();
    std::fs::write(input.path("valid.tsv"), [&valid[..], b"a\tb\tc\n"].concat()).unwrap();
    refused(&input, "has changed since the import was begun");
    std::fs::write(input.path("valid.tsv"), &valid).unwrap();
    assert!(!is_committed(&root));

    // The time of the file has changed, so the import starts again.
    input.options.overwrite = true;
    input.options.unknown = Unknown::Error;
    let error = input.import(Arc::new(RealDisk), &root).unwrap_err();
    assert!(error.to_string().contains("`valid` has"), "{error}");
    assert!(error.to_string().contains("`unknown=drop`"), "{error}");
    input.options.overwrite = false;
    for unknown in [Unknown::Keep, Unknown::Drop] {
        let copy = input.path(&format!("{unknown:?}"));
        std::fs::create_dir_all(copy.join(".import")).unwrap();
        for file in std::fs::read_dir(root.join(".import")).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.join(".import").join(file.file_name())).unwrap();
        }
        input.options.unknown = unknown;
        let disk = FaultDisk::counting(&copy);
        input.import(Arc::new(disk), &copy).unwrap();
        assert_eq!(read(&copy), input.expected(), "{unknown:?}");
    }
}

#[test]
fn after_a_refusal_the_mended_input_is_taken() {
    let mut input = Input::new();
    let root = input.path("graph");
    input.options.unknown = Unknown::Error;
    input.import(Arc::new(RealDisk), &root).unwrap_err();
    assert!(root.join(".import").exists());
    let error = outercore_store::dataset::DataSet::open(&root).unwrap_err().to_string();
    assert!(error.contains("refused") && !error.contains("to resume"), "{error}");
    for (change, columns) in [("columns", "htr"), ("nothing", "hrt")] {
        input.options.columns = columns.parse().unwrap();
        let error = input.import(Arc::new(RealDisk), &root).unwrap_err().to_string();
        assert!(!error.contains("unfinished"), "{change}: {error}");
    }
    let known = text(&input.parts[&Part::Train][..1]);
    std::fs::write(input.path("valid.tsv"), &known).unwrap();
    let packed = zstd::encode_all(known.as_bytes(), 3).unwrap();
    std::fs::write(input.path("test.tsv.zst"), packed).unwrap();
    input.import(Arc::new(RealDisk), &root).unwrap();
    let other = input.path("other");
    input.import(Arc::new(RealDisk), &other).unwrap();
    assert_eq!(read(&root), read(&other));
}

#[test]
fn the_journal_of_an_import_of_edges_is_not_taken_for_one_of_triples() {
    let input = Input::new();
    let root = input.path("graph");
    std::fs::create_dir_all(root.join(".import")).unwrap();
    for (journal, kind) in [
        ("{\"kind\":\"edges\",\"version\":3}", ErrorKind::Invalid),
        ("{\"kind\":\"triples\",\"version\":2}", ErrorKind::Version),
        ("{\"kind\":\"triples\",\"version\":4}", ErrorKind::Version),
        ("{\"kind\":\"triples\",\"version\":3}", ErrorKind::Corrupt),
        ("", ErrorKind::Corrupt),
    ] {
        std::fs::write(root.join(".import/journal.json"), journal).unwrap();
        let error = input.import(Arc::new(RealDisk), &root).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("`overwrite=true`"), "{error}");
    }
    let overwrite = TripleImportOptions { overwrite: true, ..input.options.clone() };
    let again = Input { options: overwrite, ..input };
    again.import(Arc::new(RealDisk), &root).unwrap();
    assert_eq!(read(&root), again.expected());
    let kept = TripleImportOptions { overwrite: false, ..again.options.clone() };
    let error = Input { options: kept, ..again }.import(Arc::new(RealDisk), &root).unwrap_err();
    assert!(error.to_string().contains("holds a data set already"), "{error}");
}

#[test]
fn a_fault_at_any_operation_of_an_overwrite_leaves_the_old_data_set_or_the_new_one() {
    let mut input = Input::new();
    let old = Input { parts: random_parts(20, 9), ..Input::new() };
    std::fs::write(old.path("train.tsv"), text(&old.parts[&Part::Train][..20])).unwrap();
    std::fs::write(old.path("valid.tsv"), text(&old.parts[&Part::Valid])).unwrap();
    input.options.overwrite = true;
    let root = input.path("count");
    let make_old = |root: &Path| {
        let mut import = begin(Arc::new(RealDisk), root, &old.options).unwrap();
        import.text(Part::Train, &old.path("train.tsv"), None, &mut |_| Ok(())).unwrap();
        import.finish(&mut |_| Ok(())).unwrap();
        import.commit().unwrap();
        std::fs::write(root.join("triples/mine.csv"), "mine").unwrap();
        read(root)
    };
    let (before, expected) = (make_old(&root), input.expected());
    let counting = Arc::new(FaultDisk::counting(&root));
    input.import(counting.clone(), &root).unwrap();
    for at in 0..counting.operations() {
        let kinds = [FaultKind::Crash, FaultKind::NoSpace, FaultKind::Eio];
        let kind = kinds[at as usize % 3];
        let root = input.path(&format!("overwrite-{at}"));
        make_old(&root);
        let disk = FaultDisk::new(&root, FaultPlan { at, kind });
        let _ = input.import(Arc::new(disk), &root);
        let found = read(&root);
        assert!(found == before || found == expected, "{kind:?} at operation {at}");
        input
            .import(Arc::new(RealDisk), &root)
            .unwrap_or_else(|error| panic!("after {kind:?} at operation {at}: {error}"));
        assert_eq!(read(&root), expected, "after {kind:?} at operation {at}");
        assert_eq!(std::fs::read_to_string(root.join("triples/mine.csv")).unwrap(), "mine");
        assert!(!root.join(".import").exists());
        std::fs::remove_dir_all(&root).unwrap();
    }
}
