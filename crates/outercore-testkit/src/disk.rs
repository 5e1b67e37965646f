//! Tiny data sets on disk, written byte by byte from the format specification.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use outercore_format::{ArrayEntry, Checksum, DType, MANIFEST_FILE, Manifest, NpyHeader, keys};
use outercore_store::dataset::DataSet;

use crate::Csc;

/// The width of node and edge ids on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// `uint32`.
    Narrow,
    /// `uint64`.
    Wide,
}

impl Width {
    fn dtype(self) -> DType {
        match self {
            Self::Narrow => DType::U32,
            Self::Wide => DType::U64,
        }
    }

    fn bytes(self, values: &[u64]) -> Vec<u8> {
        match self {
            Self::Narrow => values.iter().flat_map(|&value| (value as u32).to_le_bytes()).collect(),
            Self::Wide => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }
}

/// Writes `graph` as a data set without features into the directory `root` and opens it. Edge ids
/// are left out if each equals its position.
///
/// # Panics
/// If the file system returns an error.
pub fn write_data_set(root: &Path, graph: &Csc, width: Width) -> DataSet {
    let mut arrays = BTreeMap::new();
    let mut write = |key: &str, width: Width, values: &[u64]| {
        let data = width.bytes(values);
        let shape = [values.len() as u64];
        let path = root.join(format!("{key}.npy"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, [NpyHeader::encode(width.dtype(), &shape), data.clone()].concat()).unwrap();
        let entry = ArrayEntry::inside(key, width.dtype(), &shape, Checksum::of(&data));
        arrays.insert(key.to_owned(), entry);
    };
    write(keys::OFFSETS, Width::Wide, &graph.offsets);
    write(keys::SOURCES, width, &graph.sources);
    if !graph.ids.iter().copied().eq(0..graph.num_edges()) {
        write(keys::EDGE_IDS, width, &graph.ids);
    }
    let manifest =
        Manifest { arrays, ..Manifest::homogeneous(graph.num_nodes(), graph.num_edges(), false) };
    fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
    DataSet::open(root).unwrap()
}
