use std::path::Path;
use std::sync::Arc;

use outercore_core::{Error, ErrorKind, Result};
use outercore_format::{DType, Manifest};
use outercore_io::{Disk, FaultDisk, FaultKind, FaultPlan, RealDisk};
use outercore_store::arrays::{ArraySpec, Target};
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_store::editor::ManifestEditor;
use outercore_store::import::{GraphImport, GraphImportOptions, TripleImport, TripleImportOptions};

use crate::model::{options, random_edges, scratch};

/// Imports edges, pushed labels, and features copied from a file next to `root`.
pub fn make(disk: Arc<dyn Disk>, root: &Path, overwrite: bool, nodes: u64) -> Result<Manifest> {
    let features = root.with_extension("npy");
    if !features.exists() {
        let mut bytes = outercore_format::NpyHeader::encode(DType::F32, &[nodes, 2]);
        bytes.extend((0..2 * nodes).flat_map(|i| (i as f32).to_le_bytes()));
        std::fs::write(&features, bytes).unwrap();
    }
    let mut edges = options();
    edges.num_nodes = Some(nodes);
    let options = GraphImportOptions { edges, overwrite, ..GraphImportOptions::default() };
    let mut import = GraphImport::begin(disk, root, options, "test")?;
    import.edges().push_pairs(&random_edges(150, 40, 1))?;
    import.finish_edges(&mut |_| Ok(()))?;
    let labels = ArraySpec::new(Target::Labels, nodes);
    if !import.reuse(&labels, "labels")? {
        let mut builder = import.builder(&labels, DType::U8, &[])?;
        builder.push_rows(&vec![1; nodes as usize], nodes)?;
        import.add(builder, "labels")?;
    }
    let spec = ArraySpec::new(Target::Features, nodes);
    import.array_from_npy(&spec, &features, &mut |_| Ok(()))?;
    import.commit()
}

pub fn assert_sound(root: &Path) {
    let report = check(root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

pub fn operations(root: &Path, overwrite: bool) -> u64 {
    let disk = Arc::new(FaultDisk::counting(root));
    make(disk.clone(), root, overwrite, 50).unwrap();
    disk.operations()
}

#[test]
fn a_crash_at_any_operation_leaves_no_data_set_or_a_whole_one() {
    let directory = scratch();
    let root = directory.path().join("count");
    std::fs::create_dir(&root).unwrap();
    let operations = operations(&root, false);
    for at in 0..operations {
        let root = directory.path().join(format!("crash-{at}"));
        std::fs::create_dir(&root).unwrap();
        let disk = FaultDisk::new(&root, FaultPlan { at, kind: FaultKind::Crash });
        let crashed = make(Arc::new(disk), &root, false, 50);
        if root.join("graph.json").exists() {
            // After the commit, only the journal may be left.
            assert_sound(&root);
            let error = make(Arc::new(RealDisk), &root, false, 50).unwrap_err();
            assert!(error.to_string().contains("holds a data set already"), "{error}");
            assert!(!root.join(".import").exists());
        } else {
            assert!(crashed.is_err(), "operation {at} of {operations}");
            assert_eq!(DataSet::open(&root).err().unwrap().kind(), ErrorKind::NotFound);
            make(Arc::new(RealDisk), &root, false, 50)
                .unwrap_or_else(|error| panic!("after a crash at operation {at}: {error}"));
        }
        assert_sound(&root);
        std::fs::remove_dir_all(&root).unwrap();
    }
}

#[test]
fn one_import_writes_to_a_directory_and_others_are_refused() {
    let directory = scratch();
    let root = directory.path().join("graph");
    let begin = |overwrite| {
        let options =
            GraphImportOptions { edges: options(), overwrite, ..GraphImportOptions::default() };
        GraphImport::begin(Arc::new(RealDisk), &root, options, "test")
    };
    let refused = |error: Option<Error>| {
        let text = error.map_or_else(|| "it was not refused".to_owned(), |error| error.to_string());
        assert!(text.contains("somebody else writes to it"), "{text}");
    };
    // None of them notices the others, because the directory does not exist yet.
    let [mut import, mut late, mut latest] = [(); 3].map(|()| begin(false).unwrap());
    import.edges().push(&[0, 1], &[1, 2]).unwrap();
    refused(late.edges().push(&[0, 1], &[1, 2]).err());
    for overwrite in [false, true] {
        refused(begin(overwrite).err());
    }
    let triples = TripleImportOptions::default();
    refused(TripleImport::begin(Arc::new(RealDisk), &root, triples, "test").err());
    import.finish_edges(&mut |_| Ok(())).unwrap();
    import.commit().unwrap();
    // The lock is free again, but the directory now holds a data set.
    refused(latest.edges().push(&[0, 1], &[1, 2]).err());
    drop((late, latest));
    let editor = ManifestEditor::open(&RealDisk, &root).unwrap();
    refused(begin(true).err());
    drop(editor);
    begin(true).unwrap();
}

#[test]
fn an_array_that_is_given_twice_is_refused() {
    let directory = scratch();
    let root = directory.path().join("graph");
    let mut edges = options();
    edges.num_nodes = Some(3);
    let options = GraphImportOptions { edges, ..GraphImportOptions::default() };
    let mut import = GraphImport::begin(Arc::new(RealDisk), &root, options, "test").unwrap();
    import.edges().push(&[0, 1], &[1, 2]).unwrap();
    import.finish_edges(&mut |_| Ok(())).unwrap();
    let spec = ArraySpec::new(Target::Labels, 3);
    assert!(!import.reuse(&spec, "labels").unwrap());
    let mut builder = import.builder(&spec, DType::U8, &[]).unwrap();
    builder.push_rows(&[0, 1, 2], 3).unwrap();
    import.add(builder, "labels").unwrap();
    let again = [
        import.reuse(&spec, "labels").err(),
        import.reuse(&spec, "others").err(),
        import.builder(&spec, DType::U8, &[]).err(),
    ];
    for error in again {
        let error = error.expect("an error").to_string();
        assert!(error.contains("array `nodes/node/y` is given twice"), "{error}");
    }
    import.commit().unwrap();
    assert_sound(&root);
}

#[test]
fn arrays_follow_the_edges() {
    let directory = scratch();
    let root = directory.path().join("graph");
    let options = GraphImportOptions { edges: options(), ..GraphImportOptions::default() };
    let mut import = GraphImport::begin(Arc::new(RealDisk), &root, options, "test").unwrap();
    let spec = ArraySpec::new(Target::Labels, 5);
    let error = import.reuse(&spec, "labels").unwrap_err();
    assert!(error.to_string().contains("the edges are not finished"), "{error}");
    assert_eq!(import.commit().unwrap_err().kind(), ErrorKind::Invalid);
}
