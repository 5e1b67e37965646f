//! The frozen data set of format version 1: every later version opens and checks it with the same
//! meaning, and the writer still produces it byte for byte.

mod tiny;

use std::path::{Path, PathBuf};

use outercore_core::Result;
use outercore_format::{DType, MANIFEST_FILE};
use outercore_io::RealDisk;
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;

fn frozen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/format-1")
}

#[test]
fn the_frozen_data_set_opens_and_checks() -> Result<()> {
    let graph = DataSet::open(frozen())?;
    assert_eq!((graph.num_nodes(), graph.num_edges()), (5, 7));
    assert_eq!((graph.num_features(), graph.num_classes()), (3, 3));
    assert_eq!(graph.splits().collect::<Vec<_>>(), ["train", "valid"]);
    assert_eq!(graph.read_split("train")?, [2, 0]);
    assert_eq!(graph.read_i64(&graph.labels()?.key)?, tiny::LABELS);
    let x = graph.features()?;
    assert_eq!((x.dtype, x.shape.as_slice(), x.data_offset), (DType::BF16, &[5, 3][..], 4096));
    assert_eq!(graph.read_array("x")?, bytemuck::cast_slice::<_, u8>(&tiny::features()));
    assert_eq!(
        graph.read_array("edges/edge/offsets")?,
        bytemuck::cast_slice::<_, u8>(&tiny::OFFSETS)
    );
    assert_eq!(
        graph.read_array("edges/edge/sources")?,
        bytemuck::cast_slice::<_, u8>(&tiny::SOURCES)
    );
    assert_eq!(graph.read_array("edges/edge/ids")?, bytemuck::cast_slice::<_, u8>(&tiny::EDGE_IDS));
    let report = check(&frozen(), &CheckOptions::default(), &mut |_, _| Ok(()))?;
    assert!(report.is_sound(), "{:#?}", report.problems);
    Ok(())
}

#[test]
fn the_writer_still_writes_version_1_byte_for_byte() {
    let (_directory, root) = tiny::on_disk();
    tiny::assert_same_files(&root, &frozen(), |name, bytes| {
        if name != Path::new(MANIFEST_FILE) {
            return bytes;
        }
        // Manifests of version 1 had no checksum. Readers of that version ignore it.
        let lines = String::from_utf8(bytes).unwrap();
        let checksum = lines.lines().nth(1).unwrap();
        assert!(checksum.starts_with("  \"checksum\": \"xxh3:"), "{checksum}");
        lines.replacen(&format!("{checksum}\n"), "", 1).into_bytes()
    });
}

/// Was run once, when version 1 was frozen. A later version gets a separate directory.
#[test]
#[ignore = "writes tests/data/format-1, which is frozen"]
fn freeze() {
    assert!(!frozen().exists(), "format version 1 is frozen");
    tiny::write(&RealDisk, &frozen()).unwrap();
}
