//! Tiny data sets with features, and the expected content of their layouts.

use std::path::Path;

use outercore_format::{ArrayEntry, Checksum, DType, Manifest, NpyHeader, keys};
use outercore_store::dataset::DataSet;
use outercore_testkit::Csc;

/// Number of columns of the features.
pub const WIDTH: usize = 5;

/// The features of a node: a fraction, a flag, a constant, and two other values.
pub fn row(node: u64) -> [f32; WIDTH] {
    let flag = f32::from(u8::from(node.is_multiple_of(3)));
    [node as f32 / 7.0 - 3.0, flag, 0.3, -(node as f32), (node % 200) as f32]
}

/// The features of all nodes.
pub fn rows(nodes: u64) -> Vec<f32> {
    (0..nodes).flat_map(row).collect()
}

/// Writes an array.
#[allow(dead_code)]
pub fn entry(root: &Path, key: &str, dtype: DType, shape: &[u64], bytes: &[u8]) -> ArrayEntry {
    let path = root.join(format!("{key}.npy"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut content = NpyHeader::encode(dtype, shape);
    content.extend(bytes);
    std::fs::write(path, content).unwrap();
    ArrayEntry::inside(key, dtype, shape, Checksum::of(bytes))
}

/// Writes a graph with features as a data set.
pub fn write(root: &Path, graph: &Csc, features: &[f32]) -> DataSet {
    let (nodes, edges) = (graph.num_nodes(), graph.num_edges());
    let sources: Vec<u32> = graph.sources.iter().map(|&source| source as u32).collect();
    let mut manifest = Manifest::homogeneous(nodes, edges, false);
    let arrays: [(&str, DType, Vec<u64>, &[u8]); 3] = [
        (keys::OFFSETS, DType::U64, vec![nodes + 1], bytemuck::cast_slice(&graph.offsets)),
        (keys::SOURCES, DType::U32, vec![edges], bytemuck::cast_slice(&sources)),
        (
            keys::FEATURES,
            DType::F32,
            vec![nodes, features.len() as u64 / nodes],
            bytemuck::cast_slice(features),
        ),
    ];
    for (key, dtype, shape, bytes) in arrays {
        manifest.arrays.insert(key.into(), entry(root, key, dtype, &shape, bytes));
    }
    manifest.roles.features = Some(keys::FEATURES.into());
    std::fs::write(root.join("graph.json"), manifest.to_json()).unwrap();
    DataSet::open(root).unwrap()
}
