//! The frozen data set of format version 4, with several types of nodes and edges. Every later
//! version opens and checks it with the same meaning, and the writer still produces it byte for
//! byte.

mod tiny;

use std::path::{Path, PathBuf};

use bytemuck::cast_slice;
use outercore_core::{ErrorKind, Result};
use outercore_format::{MANIFEST_FILE, Manifest};
use outercore_io::RealDisk;
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;

fn frozen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/format-4")
}

#[test]
fn the_frozen_data_set_opens_and_checks() -> Result<()> {
    let graph = DataSet::open(frozen())?;
    let manifest = graph.manifest();
    assert_eq!((manifest.version, manifest.is_typed()), (4, true));
    let schema = manifest.schema()?;
    let nodes: Vec<_> = schema.node_types().iter().map(|t| (&*t.name, t.nodes.clone())).collect();
    assert_eq!(nodes, [("author", 0..2), ("paper", 2..5), ("venue", 5..5)]);
    let edges: Vec<_> = schema
        .edge_types()
        .iter()
        .map(|t| (&*t.name, t.source, t.target, t.columns.clone(), t.rows.clone()))
        .collect();
    let expected =
        [("author__writes__paper", 0, 1, 0..3, 0..3), ("paper__cites__paper", 1, 1, 3..6, 3..5)];
    assert_eq!(edges, expected);
    for (key, bytes) in [
        ("edges/edge/offsets", cast_slice::<_, u8>(&tiny::typed::OFFSETS)),
        ("edges/edge/sources", cast_slice(&tiny::typed::SOURCES)),
        ("edges/edge/ids", cast_slice(&tiny::typed::EDGE_IDS)),
        ("edges/author__writes__paper/weight", cast_slice(&tiny::typed::WEIGHTS)),
        ("nodes/author/x", cast_slice(&tiny::typed::OF_AUTHORS)),
        ("nodes/paper/x", cast_slice(&tiny::typed::OF_PAPERS)),
        ("names/class.bytes", b"KDDVLDB"),
    ] {
        assert_eq!(graph.read_array(key)?, bytes, "{key}");
    }
    assert_eq!(manifest.roles.typed_features["author"], "nodes/author/x");
    assert_eq!(graph.labels()?.key, "nodes/paper/y");
    assert_eq!(graph.read_i64(&graph.labels()?.key)?, tiny::typed::LABELS);
    assert_eq!(graph.splits().collect::<Vec<_>>(), ["train", "valid"]);
    assert_eq!(graph.read_split("train")?, [2]);
    let report = check(&frozen(), &CheckOptions::default(), &mut |_, _| Ok(()))?;
    assert!(report.is_sound(), "{:#?}", report.problems);
    Ok(())
}

#[test]
fn the_writer_still_writes_version_4_byte_for_byte() {
    let (_directory, root) = tiny::typed::on_disk();
    tiny::assert_same_files(&root, &frozen(), |_, bytes| bytes);
}

#[test]
fn types_in_a_manifest_of_version_1_are_refused() {
    let text = std::fs::read_to_string(frozen().join(MANIFEST_FILE)).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json.as_object_mut().unwrap().remove("checksum");
    json["version"] = 1.into();
    let error = Manifest::from_json(json.to_string().as_bytes()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("version 1, expected"), "{error}");
}

/// Was run once, when version 4 was frozen. A later version gets a separate directory.
#[test]
#[ignore = "writes tests/data/format-4, which is frozen"]
fn freeze() {
    assert!(!frozen().exists(), "format version 4 is frozen");
    tiny::typed::write(&RealDisk, &frozen()).unwrap();
}
