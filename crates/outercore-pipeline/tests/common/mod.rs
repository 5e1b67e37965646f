//! Tiny data sets on disk, written straight from the format specification.

use std::path::Path;

use outercore_format::{DType, NpyHeader};
use outercore_testkit::Csc;

/// Columns of the feature matrix.
pub const WIDTH: usize = 6;

/// The feature row of a node: values that name node and column.
pub fn feature_row(node: u64) -> [f32; WIDTH] {
    std::array::from_fn(|column| node as f32 + column as f32 / 8.0)
}

/// Writes `graph` with features as a data set of format 1.
pub fn write(root: &Path, graph: &Csc) {
    let nodes = graph.num_nodes();
    let narrow = |values: &[u64]| values.iter().flat_map(|&v| (v as u32).to_le_bytes()).collect();
    let wide = |values: &[u64]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let features: Vec<u8> = (0..nodes)
        .flat_map(|node| feature_row(node).into_iter().flat_map(f32::to_le_bytes))
        .collect();
    let edges = graph.num_edges();
    let arrays: [(&str, DType, Vec<u64>, Vec<u8>); 4] = [
        ("edges/edge/offsets", DType::U64, vec![nodes + 1], wide(&graph.offsets)),
        ("edges/edge/sources", DType::U32, vec![edges], narrow(&graph.sources)),
        ("edges/edge/ids", DType::U32, vec![edges], narrow(&graph.ids)),
        ("nodes/node/x", DType::F32, vec![nodes, WIDTH as u64], features),
    ];
    let mut entries = serde_json::Map::new();
    for (key, dtype, shape, bytes) in arrays {
        let path = root.join(format!("{key}.npy"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut content = NpyHeader::encode(dtype, &shape);
        content.extend(&bytes);
        std::fs::write(&path, content).unwrap();
        entries.insert(
            key.to_owned(),
            serde_json::json!({
                "file": format!("{key}.npy"), "dtype": dtype.to_string(), "shape": shape,
                "data_offset": 4096, "checksum": outercore_format::Checksum::of(&bytes),
                "external": false,
            }),
        );
    }
    let manifest = serde_json::json!({
        "format": "outercore", "version": 1, "created": "2026-01-01T00:00:00Z",
        "node_types": {"node": {"count": nodes}},
        "edge_types": {"edge": {"source": "node", "target": "node", "count": edges,
                                 "undirected": false}},
        "arrays": entries,
        "roles": {"features": "nodes/node/x", "splits": {}},
        "provenance": {"command": "test", "outercore": "0.1.0", "inputs": [], "options": {}},
    });
    std::fs::write(root.join("graph.json"), manifest.to_string()).unwrap();
}
