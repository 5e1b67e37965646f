//! Tiny data sets on disk, written directly from the format specification, and the batches that a
//! loader delivers from them.

use std::path::Path;
use std::time::Duration;

use outercore_core::Bytes;
use outercore_format::{DType, NpyHeader};
use outercore_pipeline::{Advance, Loader, LoaderConfig};
use outercore_testkit::Csc;

/// Number of columns of the feature matrix.
pub const WIDTH: usize = 6;

/// The feature row of a node: its values identify node and column.
pub fn feature_row(node: u64) -> [f32; WIDTH] {
    std::array::from_fn(|column| node as f32 + column as f32 / 8.0)
}

/// The weight of an edge, by its id.
pub fn weight_of(id: u64) -> f64 {
    id as f64 / 3.0
}

/// A row of a node array of three dimensions.
pub fn place_of(node: u64) -> [i16; 3] {
    [node as i16, -1, 7]
}

/// Values with ties.
pub fn heat_of(node: u64) -> f32 {
    (node * 7919 % 97) as f32 - 40.0
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
    let heat = (0..nodes).flat_map(|node| heat_of(node).to_le_bytes()).collect();
    let weight = (0..edges).flat_map(|id| weight_of(id).to_le_bytes()).collect();
    let place = (0..nodes).flat_map(|node| place_of(node).into_iter().flat_map(i16::to_le_bytes));
    let place = place.collect();
    let arrays: [(&str, DType, Vec<u64>, Vec<u8>); 7] = [
        ("edges/edge/offsets", DType::U64, vec![nodes + 1], wide(&graph.offsets)),
        ("edges/edge/sources", DType::U32, vec![edges], narrow(&graph.sources)),
        ("edges/edge/ids", DType::U32, vec![edges], narrow(&graph.ids)),
        ("nodes/node/x", DType::F32, vec![nodes, WIDTH as u64], features),
        ("nodes/node/heat", DType::F32, vec![nodes], heat),
        ("nodes/node/place", DType::I16, vec![nodes, 3, 1], place),
        ("edges/edge/weight", DType::F64, vec![edges], weight),
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

pub const PATIENCE: Duration = Duration::from_secs(30);

/// The content of a batch, for comparisons.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivered {
    pub nodes: Vec<u64>,
    pub edges: Vec<(i64, i64)>,
    pub edge_ids: Vec<u64>,
    pub input_ids: Vec<u64>,
    pub features: Vec<f32>,
    /// Rows of the further arrays.
    pub arrays: Vec<Vec<u8>>,
}

/// All batches of an epoch starting at `first`.
#[allow(dead_code)]
pub fn deliver(loader: &mut Loader, epoch: u64, first: u64) -> Vec<Delivered> {
    deliver_with(loader, epoch, first, true)
}

/// All batches of an epoch of a loader that delivers no features.
#[allow(dead_code)]
pub fn deliver_without_features(loader: &mut Loader, epoch: u64) -> Vec<Delivered> {
    deliver_with(loader, epoch, 0, false)
}

fn deliver_with(loader: &mut Loader, epoch: u64, first: u64, features: bool) -> Vec<Delivered> {
    let width = loader.widths().unwrap()[0];
    let mut run = loader.epoch(epoch, first).unwrap();
    let mut batches = Vec::new();
    loop {
        match run.advance(PATIENCE).unwrap() {
            Advance::Batch => {}
            Advance::End => break,
            Advance::NotYet => panic!("no batch in {PATIENCE:?}"),
        }
        let batch = run.batch().unwrap();
        let sampled = batch.sampled();
        let (mut rows, mut cols) = (vec![0; sampled.num_edges()], vec![0; sampled.num_edges()]);
        sampled.write_edge_index(&mut rows, &mut cols);
        let mut delivered = Delivered {
            nodes: sampled.nodes.iter().collect(),
            edges: rows.into_iter().zip(cols).collect(),
            edge_ids: sampled.edge_ids.clone(),
            input_ids: batch.input_ids().to_vec(),
            features: vec![f32::NAN; sampled.nodes.len() * width],
            arrays: Vec::new(),
        };
        delivered.arrays = run.take_arrays();
        if features {
            run.gather(0, &mut delivered.features).unwrap();
        }
        batches.push(delivered);
    }
    loader.finish(run).unwrap();
    batches
}

/// Small batches, features included.
#[allow(dead_code)]
pub fn base() -> LoaderConfig {
    LoaderConfig {
        fan_outs: vec![4, 3],
        batch_size: 16,
        shuffle: true,
        seed: 5,
        features: Some("nodes/node/x".to_owned()),
        memory: Bytes::mib(64),
        threads: 2,
        ..LoaderConfig::default()
    }
}
