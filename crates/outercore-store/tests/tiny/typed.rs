//! The data set with several types of the tests and of `tests/data/format-4`.
//!
//! Two authors, three papers and no venue. Rows of the imported edges: `author,writes,paper` has
//! `1 2, 1 0, 0 0`, and `paper,cites,paper` has `2 0, 0 1`.

use std::path::{Path, PathBuf};

use outercore_core::Result;
use outercore_format::{ArrayEntry, EdgeType, Manifest, NodeType, keys};
use outercore_io::Disk;
use outercore_store::editor::commit;

use super::{array, place, unsynced};

/// Authors have the global ids 0 and 1, papers 2 to 4.
pub const NODE_TYPES: [(&str, u64); 3] = [("author", 2), ("paper", 3), ("venue", 0)];
/// Three columns of each edge type.
pub const OFFSETS: [u64; 7] = [0, 2, 2, 3, 4, 5, 5];
/// Global ids.
pub const SOURCES: [u32; 5] = [0, 1, 1, 4, 2];
/// Rows of both edge types.
pub const EDGE_IDS: [u32; 5] = [2, 1, 0, 3, 4];
/// Classes of the papers.
pub const LABELS: [i64; 3] = [1, -1, 0];
/// Features of the authors.
pub const OF_AUTHORS: [f32; 4] = [0.5, 1.0, 1.5, 2.0];
/// Features of the papers.
pub const OF_PAPERS: [i8; 9] = [1, 2, 3, -4, -5, -6, 7, 8, 9];
/// Weights of `author,writes,paper`, by rows of that type.
pub const WEIGHTS: [f32; 3] = [0.25, 0.5, 0.75];

/// Writes the data set to `root`.
pub fn write(disk: &dyn Disk, root: &Path) -> Result<()> {
    let mut manifest = Manifest::homogeneous(0, 0, false);
    manifest.created = "2026-11-30T12:00:00Z".into();
    manifest.node_types =
        NODE_TYPES.map(|(name, count)| (name.into(), NodeType::of(count))).into_iter().collect();
    let edge_type = |source: &str, target: &str, count: u64| EdgeType {
        source: source.into(),
        target: target.into(),
        count,
        undirected: false,
        rows: Some(count),
    };
    manifest.edge_types = [
        ("author__writes__paper".to_owned(), edge_type("author", "paper", 3)),
        ("paper__cites__paper".to_owned(), edge_type("paper", "paper", 2)),
    ]
    .into();
    manifest.version = manifest.needed_version();
    let mut add = |key: &str, entry: Result<ArrayEntry>| -> Result<()> {
        manifest.arrays.insert(key.into(), entry?);
        Ok(())
    };
    add(keys::OFFSETS, array(disk, root, keys::OFFSETS, &[], &OFFSETS))?;
    add(keys::SOURCES, array(disk, root, keys::SOURCES, &[], &SOURCES))?;
    add(keys::EDGE_IDS, array(disk, root, keys::EDGE_IDS, &[], &EDGE_IDS))?;
    for key in ["nodes/paper/x", "nodes/author/x", "nodes/paper/y", "nodes/paper/year"] {
        let entry = match key {
            "nodes/author/x" => array(disk, root, key, &[2], &OF_AUTHORS),
            "nodes/paper/x" => array(disk, root, key, &[3], &OF_PAPERS),
            "nodes/paper/y" => array(disk, root, key, &[], &LABELS),
            _ => array(disk, root, key, &[], &[2001i64, 2002, 2003]),
        };
        add(key, entry)?;
    }
    let weights = "edges/author__writes__paper/weight";
    add(weights, array(disk, root, weights, &[], &WEIGHTS))?;
    add("splits/train", array(disk, root, "splits/train", &[], &[2i64]))?;
    add("splits/valid", array(disk, root, "splits/valid", &[], &[0i64]))?;
    let ends = "names/class.offsets";
    add(ends, array(disk, root, ends, &[], &[0u64, 3, 7]))?;
    add("names/class.bytes", array(disk, root, "names/class.bytes", &[], b"KDDVLDB"))?;
    for node_type in ["author", "paper"] {
        manifest.roles.typed_features.insert(node_type.into(), format!("nodes/{node_type}/x"));
    }
    manifest.roles.labels = Some("nodes/paper/y".into());
    manifest.roles.classes = Some(2);
    for split in ["train", "valid"] {
        manifest.roles.splits.insert(split.into(), keys::split(split));
    }
    manifest.provenance.command = "outercore import --nodes paper=papers.csv".into();
    manifest.provenance.outercore = "0.1.0".into();
    manifest.provenance.inputs = vec!["papers.csv".into()];
    commit(disk, root, &manifest)
}

/// The data set in a temporary directory.
pub fn on_disk() -> (tempfile::TempDir, PathBuf) {
    let (directory, root) = place();
    write(&unsynced(&root), &root).expect("write the tiny typed data set");
    (directory, root)
}
