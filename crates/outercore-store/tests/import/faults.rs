use std::path::Path;
use std::sync::Arc;

use outercore_core::{Error, ErrorKind, Result};
use outercore_format::{DType, NpyHeader};
use outercore_io::{Disk, FaultDisk, FaultKind, FaultPlan, RealDisk};
use outercore_store::import::{EdgeArtifacts, EdgeImportOptions, OnProgress, Phase};

use crate::model::{Csc, begin, naive, options, random_edges, read, scratch};

/// A graph with a hub, so that at least one bucket is sorted in runs.
fn edges() -> Vec<[u64; 2]> {
    let mut edges = random_edges(200, 40, 9);
    edges.extend((0..60).map(|i| [i % 37, 5]));
    edges
}

struct Input {
    directory: tempfile::TempDir,
    edges: Vec<[u64; 2]>,
    options: EdgeImportOptions,
}

impl Input {
    /// One third of the edges as text, one third as an array; the rest is pushed.
    fn new() -> Self {
        let directory = scratch();
        let edges = edges();
        let text: String = edges[..80].iter().map(|[u, v]| format!("{u} {v}\n")).collect();
        std::fs::write(directory.path().join("edges.txt"), text).unwrap();
        let mut array = NpyHeader::encode(DType::I64, &[80, 2]);
        array.extend(edges[80..160].iter().flatten().flat_map(|id| id.to_le_bytes()));
        std::fs::write(directory.path().join("edges.npy"), array).unwrap();
        let options = EdgeImportOptions { undirected: true, ..options() };
        Self { directory, edges, options }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn import(&self, disk: Arc<dyn Disk>, root: &Path) -> Result<EdgeArtifacts> {
        self.import_watched(disk, root, &mut |_| Ok(()))
    }

    fn import_watched(
        &self,
        disk: Arc<dyn Disk>,
        root: &Path,
        on_progress: OnProgress<'_>,
    ) -> Result<EdgeArtifacts> {
        let mut import = begin(disk, root, &self.options)?;
        import.text(&self.path("edges.txt"), &mut *on_progress)?;
        import.npy(&self.path("edges.npy"), &mut *on_progress)?;
        for batch in self.edges[160..].chunks(30) {
            import.push_pairs(batch)?;
        }
        import.finish(on_progress)
    }

    fn expected(&self) -> Csc {
        naive(&self.edges, &self.options)
    }

    /// Number of disk operations of an import without faults, with a margin because the order of
    /// threads varies.
    fn operations(&self) -> u64 {
        let root = self.path("count");
        std::fs::create_dir(&root).unwrap();
        let disk = Arc::new(FaultDisk::counting(&root));
        self.import(disk.clone(), &root).unwrap();
        disk.operations()
    }
}

#[test]
fn after_a_crash_at_any_operation_the_import_goes_on_to_the_same_arrays() {
    let input = Input::new();
    let (operations, expected) = (input.operations(), input.expected());
    assert!(operations > 100, "{operations} operations are too few for a test");
    for at in 0..operations {
        let root = input.path(&format!("crash-{at}"));
        std::fs::create_dir(&root).unwrap();
        let disk = FaultDisk::new(&root, FaultPlan { at, kind: FaultKind::Crash });
        let crashed = input.import(Arc::new(disk), &root);
        assert!(crashed.is_err(), "operation {at} of {operations}");
        let artifacts = input
            .import(Arc::new(RealDisk), &root)
            .unwrap_or_else(|error| panic!("after a crash at operation {at}: {error}"));
        assert_eq!(read(&root, &artifacts), expected, "after a crash at operation {at}");
        std::fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn crash_after_crash_the_import_still_ends() {
    let input = Input::new();
    let expected = input.expected();
    for step in [7, 23, 40] {
        let root = input.path(&format!("crashes-{step}"));
        std::fs::create_dir(&root).unwrap();
        let mut tries = 0;
        let artifacts = loop {
            let at = step + tries % 5;
            let disk = FaultDisk::new(&root, FaultPlan { at, kind: FaultKind::Crash });
            tries += 1;
            assert!(tries < 500, "no progress with a crash every {step} operations");
            match input.import(Arc::new(disk), &root) {
                Ok(artifacts) => break artifacts,
                // With so few operations a run may not reach the next durable point.
                Err(_) if tries == 60 => {
                    break input.import(Arc::new(RealDisk), &root).unwrap();
                }
                Err(_) => {}
            }
        };
        assert_eq!(read(&root, &artifacts), expected);
    }
}

#[test]
fn a_full_device_is_said_and_after_making_room_the_import_goes_on() {
    let input = Input::new();
    let (operations, expected) = (input.operations(), input.expected());
    for at in (0..operations).step_by(5) {
        let root = input.path(&format!("full-{at}"));
        std::fs::create_dir(&root).unwrap();
        let disk = FaultDisk::new(&root, FaultPlan { at, kind: FaultKind::NoSpace });
        if let Err(error) = input.import(Arc::new(disk), &root) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "operation {at}: {error}");
            assert!(error.to_string().contains("free space"), "{error}");
        }
        let artifacts = input.import(Arc::new(RealDisk), &root).unwrap();
        assert_eq!(read(&root, &artifacts), expected, "full at operation {at}");
    }
}

#[test]
fn a_failed_write_ends_the_import_with_its_own_error() {
    let input = Input::new();
    let (operations, expected) = (input.operations(), input.expected());
    for at in (0..operations).step_by(3) {
        let root = input.path(&format!("eio-{at}"));
        std::fs::create_dir(&root).unwrap();
        let disk = FaultDisk::new(&root, FaultPlan { at, kind: FaultKind::Eio });
        let error = input.import(Arc::new(disk), &root).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "operation {at}: {error}");
        assert!(error.to_string().contains(root.to_str().unwrap()), "{error}");
        let artifacts = input.import(Arc::new(RealDisk), &root).unwrap();
        assert_eq!(read(&root, &artifacts), expected, "failed at operation {at}");
    }
}

#[test]
fn stopped_by_the_user_anywhere_the_import_goes_on_without_losing_a_phase() {
    let input = Input::new();
    let expected = input.expected();
    let mut calls = 0;
    let root = input.path("calls");
    input
        .import_watched(Arc::new(RealDisk), &root, &mut |_| {
            calls += 1;
            Ok(())
        })
        .unwrap();
    for stop in 1..=calls {
        let root = input.path(&format!("stop-{stop}"));
        let mut left = stop;
        let mut stopped_in = None;
        let error = input
            .import_watched(Arc::new(RealDisk), &root, &mut |progress| {
                left -= 1;
                stopped_in = Some(progress.phase);
                if left == 0 { Err(Error::new(ErrorKind::Interrupted, "stopped")) } else { Ok(()) }
            })
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted, "call {stop}: {error}");
        let mut first = None;
        let artifacts = input
            .import_watched(Arc::new(RealDisk), &root, &mut |progress| {
                first.get_or_insert(progress.phase);
                assert!(progress.done <= progress.total, "{progress:?}");
                Ok(())
            })
            .unwrap();
        if stopped_in == Some(Phase::Sort) {
            assert_ne!(first, Some(Phase::Partition), "call {stop}");
        }
        assert_eq!(read(&root, &artifacts), expected, "stopped at call {stop}");
    }
}

#[test]
fn a_finished_import_run_again_changes_nothing() {
    let input = Input::new();
    let root = input.path("again");
    let first = input.import(Arc::new(RealDisk), &root).unwrap();
    let disk = Arc::new(FaultDisk::counting(&root));
    assert_eq!(input.import(disk.clone(), &root).unwrap(), first);
    assert!(disk.operations() <= 4, "{} operations", disk.operations());
}

#[test]
fn other_options_inputs_or_counts_do_not_go_on_with_an_unfinished_import() {
    let mut input = Input::new();
    let root = input.path("graph");
    let mut calls = 0;
    input
        .import_watched(Arc::new(RealDisk), &root, &mut |progress| {
            calls += u64::from(progress.phase == Phase::Partition);
            if calls == 5 { Err(Error::new(ErrorKind::Interrupted, "stopped")) } else { Ok(()) }
        })
        .unwrap_err();
    let refused = |input: &Input, expected: &str| {
        let error = input.import(Arc::new(RealDisk), &root).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let message = error.to_string();
        assert!(message.contains(expected) && message.contains("`overwrite=true`"), "{message}");
    };
    input.options.undirected = false;
    refused(&input, "holds the unfinished import of other input or with other options");
    input.options.undirected = true;
    let last = input.edges.pop().unwrap();
    refused(
        &input,
        "source 3 of the edges has 99 edges, but the unfinished import took 100 from it",
    );
    input.edges.push(last);
    input.edges.push(last);
    refused(
        &input,
        "source 3 of the edges has 101 edges, but the unfinished import took 100 from it",
    );
    input.edges.pop();
    let text = std::fs::read(input.path("edges.txt")).unwrap();
    std::fs::write(input.path("edges.txt"), [&text[..], b"1 2\n"].concat()).unwrap();
    refused(&input, "has changed since the import was begun");
    assert!(!root.join("graph.json").exists());
}

#[test]
fn after_a_refusal_the_mended_input_is_taken() {
    let input = Input::new();
    let root = input.path("graph");
    let refuse = |options: &EdgeImportOptions| {
        let mut import = begin(Arc::new(RealDisk), &root, options)?;
        import.text(&input.path("edges.txt"), &mut |_| Ok(()))?;
        import.npy(&input.path("edges.npy"), &mut |_| Ok(()))?;
        import.push(&[-1], &[0])
    };
    let other = EdgeImportOptions { undirected: false, ..input.options.clone() };
    for options in [&input.options, &other, &input.options] {
        let error = refuse(options).unwrap_err().to_string();
        assert!(error.contains("is negative"), "{error}");
        assert!(root.join(".import/journal.json").exists());
    }
    let text = std::fs::read_to_string(input.path("edges.txt")).unwrap();
    std::fs::write(input.path("edges.txt"), text.replace("0 ", "1 ")).unwrap();
    let found = input.import(Arc::new(RealDisk), &root).unwrap();
    let fresh = input.path("fresh");
    let expected = input.import(Arc::new(RealDisk), &fresh).unwrap();
    assert_eq!(read(&root, &found), read(&fresh, &expected));
}

#[test]
fn a_damaged_or_newer_journal_is_refused() {
    let input = Input::new();
    let root = input.path("graph");
    std::fs::create_dir_all(root.join(".import")).unwrap();
    for (journal, kind) in [
        ("{\"kind\":\"triples\",\"version\":3}", ErrorKind::Invalid),
        ("{\"kind\":\"edges\",\"version\":4}", ErrorKind::Version),
        ("{\"version\":2}", ErrorKind::Version),
        ("{\"kind\":\"edges\",\"version\":2}", ErrorKind::Version),
        ("{\"kind\":\"edges\",\"version\":3}", ErrorKind::Corrupt),
        ("", ErrorKind::Corrupt),
    ] {
        std::fs::write(root.join(".import/journal.json"), journal).unwrap();
        let error = input.import(Arc::new(RealDisk), &root).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("`overwrite=true`"), "{error}");
    }
}

#[test]
fn a_directory_with_a_data_set_is_left_alone() {
    let input = Input::new();
    let root = input.path("graph");
    let graph = outercore_testkit::Csc::power_law(10, 20, 1);
    outercore_testkit::write_data_set(&root, &graph, outercore_testkit::Width::Narrow);
    let error = input.import(Arc::new(RealDisk), &root).unwrap_err();
    assert!(error.to_string().contains("holds a data set already"), "{error}");
}

#[test]
fn packed_text_goes_on_from_the_middle() {
    let input = Input::new();
    let text: String = input.edges.iter().map(|[u, v]| format!("{u},{v}\n")).collect();
    let path = input.path("edges.zst");
    std::fs::write(&path, zstd::encode_all(text.as_bytes(), 3).unwrap()).unwrap();
    let root = input.path("graph");
    let mut begun = begin(Arc::new(RealDisk), &root, &input.options).unwrap();
    let mut calls = 0;
    begun
        .text(&path, &mut |_| {
            calls += 1;
            if calls == 9 { Err(Error::new(ErrorKind::Interrupted, "stopped")) } else { Ok(()) }
        })
        .unwrap_err();
    let unusable = begun.finish(&mut |_| Ok(())).unwrap_err();
    assert!(unusable.to_string().contains("stopped by an error before"), "{unusable}");
    drop(begun);
    let mut import = begin(Arc::new(RealDisk), &root, &input.options).unwrap();
    assert!(import.is_resumed());
    import.text(&path, &mut |_| Ok(())).unwrap();
    let artifacts = import.finish(&mut |_| Ok(())).unwrap();
    assert_eq!(read(&root, &artifacts), input.expected());
}

#[test]
fn a_generator_begins_after_what_is_durable() {
    let input = Input::new();
    let root = input.path("graph");
    let disk = FaultDisk::new(&root, FaultPlan { at: 20, kind: FaultKind::Crash });
    std::fs::create_dir(&root).unwrap();
    let mut import = begin(Arc::new(disk), &root, &input.options).unwrap();
    let crashed = input.edges.chunks(10).try_for_each(|batch| import.push_pairs(batch));
    crashed.unwrap_err();
    drop(import);
    let mut import = begin(Arc::new(RealDisk), &root, &input.options).unwrap();
    let durable = import.pushed_before().unwrap();
    assert!(durable > 0 && durable < input.edges.len() as u64, "{durable}");
    import.skip_pushed(durable).unwrap();
    import.push_pairs(&input.edges[durable as usize..]).unwrap();
    let artifacts = import.finish(&mut |_| Ok(())).unwrap();
    assert_eq!(read(&root, &artifacts), input.expected());
}
