//! Shared by the other tests: a naive CSC, and options that make a small import take every path.

use std::path::Path;
use std::sync::Arc;

use outercore_core::{Bytes, Result, Stream};
use outercore_io::{Disk, RealDisk};
use outercore_store::import::{
    Duplicates, EdgeArtifacts, EdgeImport, EdgeImportOptions, SelfLoops, Tuning,
};

/// A temporary directory in memory if possible, because the tests sync thousands of times.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.or_else(|_| tempfile::tempdir()).unwrap()
}

/// Column starts, sources and edge ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Csc {
    pub offsets: Vec<u64>,
    pub sources: Vec<u64>,
    pub ids: Vec<u64>,
}

/// The CSC according to its definition.
pub fn naive(edges: &[[u64; 2]], options: &EdgeImportOptions) -> Csc {
    let largest = edges.iter().flatten().max().map_or(0, |id| id + 1);
    let nodes = options.num_nodes.unwrap_or(largest);
    let mut arcs = Vec::new();
    for (id, &[u, v]) in (0u64..).zip(edges) {
        if u != v || options.self_loops != SelfLoops::Drop {
            arcs.push((v, u, id));
        }
        if options.undirected && u != v {
            arcs.push((u, v, id));
        }
    }
    if options.self_loops == SelfLoops::Add {
        for v in 0..nodes {
            if !arcs.iter().any(|&(target, source, _)| target == v && source == v) {
                arcs.push((v, v, edges.len() as u64 + v));
            }
        }
    }
    arcs.sort();
    if options.duplicates == Duplicates::Drop {
        arcs.dedup_by_key(|arc| (arc.0, arc.1));
    }
    Csc {
        offsets: (0..=nodes).map(|v| arcs.partition_point(|arc| arc.0 < v) as u64).collect(),
        sources: arcs.iter().map(|arc| arc.1).collect(),
        ids: arcs.iter().map(|arc| arc.2).collect(),
    }
}

/// Buffers of a few edges, so that a small graph passes through many buckets and durable points.
pub fn tiny() -> Tuning {
    Tuning {
        text_block: 64,
        edge_block: 7,
        histogram_slots: 16,
        combining: 2000,
        smallest_buffer: 1,
        sorting: 3000,
        bucket_arcs: 20,
        run: 200,
        checkpoint: 500,
        wide: false,
    }
}

pub fn options() -> EdgeImportOptions {
    EdgeImportOptions {
        memory: Bytes::mib(16),
        threads: 2,
        tuning: Some(tiny()),
        ..EdgeImportOptions::default()
    }
}

/// `count` edges between `nodes` nodes. Low ids are frequent, so that there are self-loops and
/// duplicates.
pub fn random_edges(count: u64, nodes: u64, seed: u64) -> Vec<[u64; 2]> {
    let mut draws = Stream::new(seed, 0).uniform(0, 0, 0);
    let mut node = || {
        let bound = draws.below(nodes) + 1;
        draws.below(bound)
    };
    (0..count).map(|_| [node(), node()]).collect()
}

pub fn begin(disk: Arc<dyn Disk>, root: &Path, options: &EdgeImportOptions) -> Result<EdgeImport> {
    EdgeImport::new(disk, root, options.clone(), "test")
}

/// Imports `edges` from memory.
pub fn import(
    root: &Path,
    options: &EdgeImportOptions,
    edges: &[[u64; 2]],
) -> Result<EdgeArtifacts> {
    let mut import = begin(Arc::new(RealDisk), root, options)?;
    import.push_pairs(edges)?;
    import.finish(&mut |_| Ok(()))
}

/// Reads the arrays from disk and checks them against their entries.
pub fn read(root: &Path, artifacts: &EdgeArtifacts) -> Csc {
    let column = |key: &str| -> Option<Vec<u64>> {
        let entry = artifacts.arrays.get(key)?;
        let bytes = std::fs::read(root.join(&entry.file)).unwrap();
        let header = outercore_format::NpyHeader::parse(&bytes).unwrap();
        assert_eq!((header.dtype, &header.shape), (entry.dtype, &entry.shape), "{key}");
        let data = &bytes[header.data_offset as usize..];
        assert_eq!(data.len() as u64, header.data_len(), "{key}");
        assert_eq!(outercore_format::Checksum::of(data), entry.checksum, "{key}");
        Some(match entry.dtype.size() {
            4 => data.as_chunks().0.iter().map(|&b| u64::from(u32::from_le_bytes(b))).collect(),
            _ => data.as_chunks().0.iter().map(|&b| u64::from_le_bytes(b)).collect(),
        })
    };
    let identity = || (0..artifacts.num_edges).collect();
    let csc = Csc {
        offsets: column("edges/edge/offsets").unwrap(),
        sources: column("edges/edge/sources").unwrap(),
        ids: column("edges/edge/ids").unwrap_or_else(identity),
    };
    let has_ids = artifacts.arrays.contains_key("edges/edge/ids");
    assert_eq!(root.join("edges/edge/ids.npy").exists(), has_ids);
    assert_eq!(has_ids, csc.ids != (0..artifacts.num_edges).collect::<Vec<_>>());
    assert_eq!(csc.offsets.len() as u64, artifacts.num_nodes + 1);
    assert_eq!(csc.sources.len() as u64, artifacts.num_edges);
    csc
}
