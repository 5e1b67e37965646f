//! Directed and undirected graphs, and their arcs read back from a grid.
#![allow(dead_code, reason = "every test takes its part")]

use std::fs;
use std::path::Path;

use outercore_format::{ArrayEntry, Checksum, DType, MANIFEST_FILE, Manifest, NpyHeader};
use outercore_grid::{Arcs, Decoder, Grid, PieceWeights, Side};
use outercore_store::dataset::DataSet;
use outercore_testkit::{Csc, Width, write_data_set};

/// A graph, and whether every edge represents two arcs.
pub struct Made {
    pub csc: Csc,
    pub undirected: bool,
    /// Weights by edge id.
    pub weights: Option<Vec<f64>>,
    pub rows: u64,
}

/// Source, target, bits of the weight.
pub type Arc = (u64, u64, u64);

impl Made {
    pub fn directed(nodes: u64, edges: &[(u64, u64)]) -> Self {
        let csc = Csc::from_edges(nodes, edges);
        Self { csc, undirected: false, weights: None, rows: edges.len() as u64 }
    }

    /// Every edge gives two arcs with its id; a loop gives one.
    pub fn undirected(nodes: u64, edges: &[(u64, u64)]) -> Self {
        let mut both: Vec<(u64, u64, u64)> = Vec::new();
        for (&(u, v), id) in edges.iter().zip(0..) {
            both.push((u, v, id));
            if u != v {
                both.push((v, u, id));
            }
        }
        let pairs: Vec<(u64, u64)> = both.iter().map(|arc| (arc.0, arc.1)).collect();
        let mut csc = Csc::from_edges(nodes, &pairs);
        for id in &mut csc.ids {
            *id = both[*id as usize].2;
        }
        Self { csc, undirected: true, weights: None, rows: edges.len() as u64 }
    }

    pub fn weighted(mut self, weights: Vec<f64>) -> Self {
        assert_eq!(weights.len() as u64, self.rows);
        self.weights = Some(weights);
        self
    }

    pub fn write(&self, root: &Path) -> DataSet {
        self.write_as(root, Width::Narrow)
    }

    pub fn write_as(&self, root: &Path, width: Width) -> DataSet {
        write_data_set(root, &self.csc, width);
        let mut manifest = DataSet::read_manifest(root).unwrap();
        let edges = manifest.edge_types.get_mut("edge").unwrap();
        edges.undirected = self.undirected;
        edges.rows = Some(self.rows);
        if let Some(weights) = &self.weights {
            write_array(root, &mut manifest, "edges/edge/w", DType::F64, weights);
        }
        fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
        DataSet::open(root).unwrap()
    }
}

pub fn write_array<T: bytemuck::Pod>(
    root: &Path,
    manifest: &mut Manifest,
    key: &str,
    dtype: DType,
    values: &[T],
) {
    write_shaped(root, manifest, key, dtype, &[values.len() as u64], values);
}

pub fn write_shaped<T: bytemuck::Pod>(
    root: &Path,
    manifest: &mut Manifest,
    key: &str,
    dtype: DType,
    shape: &[u64],
    values: &[T],
) {
    let data: &[u8] = bytemuck::cast_slice(values);
    let bytes = [NpyHeader::encode(dtype, shape), data.to_vec()].concat();
    let path = root.join(format!("{key}.npy"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    let entry = ArrayEntry::inside(key, dtype, shape, Checksum::of(data));
    manifest.arrays.insert(key.to_owned(), entry);
}

/// Every arc of the graph, sorted.
pub fn arcs_of(made: &Made) -> Vec<Arc> {
    let mut arcs = Vec::new();
    for target in 0..made.csc.num_nodes() {
        let range = made.csc.offsets[target as usize]..made.csc.offsets[target as usize + 1];
        for position in range {
            let position = position as usize;
            let weight = made.weights.as_ref().map_or(1.0, |w| w[made.csc.ids[position] as usize]);
            arcs.push((made.csc.sources[position], target, weight.to_bits()));
        }
    }
    arcs.sort_unstable();
    arcs
}

/// The rows of an array.
pub fn read<T: bytemuck::Pod>(data_set: &DataSet, key: &str) -> Vec<T> {
    bytemuck::pod_collect_to_vec(&data_set.read_array(key).unwrap())
}

/// Every arc that the grid represents, sorted.
pub fn grid_arcs(data_set: &DataSet, grid: &Grid) -> Vec<Arc> {
    let shape = grid.shape();
    let order: Vec<u32> = match grid.order() {
        Some(order) => read(data_set, &order.key),
        None => (0..shape.nodes as u32).collect(),
    };
    let body: Vec<u64> = read(data_set, &grid.blocks().key);
    let bytes: &[u8] = bytemuck::cast_slice(&body);
    let (mut single, mut double): (Vec<f32>, Vec<f64>) = (Vec::new(), Vec::new());
    match grid.weights() {
        Some(array) if array.dtype == DType::F64 => double = read(data_set, &array.key),
        Some(array) => single = read(data_set, &array.key),
        None => {}
    }
    let mut decoder = Decoder::default();
    let mut found = Vec::new();
    for piece in grid.pieces() {
        let range = piece.offset as usize..piece.offset as usize + piece.len as usize;
        let edges = piece.first_edge as usize..piece.first_edge as usize + piece.edges as usize;
        let weights = match (single.is_empty(), double.is_empty()) {
            (false, _) => PieceWeights::Single(&single[edges]),
            (_, false) => PieceWeights::Double(&double[edges]),
            _ => PieceWeights::None,
        };
        let arcs = decoder.decode(piece, shape, &bytes[range], weights, true).unwrap();
        let (row, column) = (piece.row_part as usize, piece.col_part as usize);
        let mut take = |arcs: Arcs<'_>, source_part, target_part| {
            arcs.for_each(|source, target, weight| {
                let node = |part, local| u64::from(order[shape.rank(part, local) as usize]);
                found.push((
                    node(source_part, source),
                    node(target_part, target),
                    weight.to_bits(),
                ));
            });
        };
        take(arcs, column, row);
        if shape.symmetric && !piece.is_loop {
            take(Arcs { side: Side::ToColumns, ..arcs }, row, column);
        }
    }
    found.sort_unstable();
    found
}

/// Graphs of every kind, directed and undirected.
pub fn zoo() -> Vec<(String, Made)> {
    let mut all = Vec::new();
    for (name, csc) in Csc::zoo() {
        let edges: Vec<(u64, u64)> = (0..csc.num_nodes())
            .flat_map(|target| {
                let range = csc.offsets[target as usize] as usize
                    ..csc.offsets[target as usize + 1] as usize;
                csc.sources[range].iter().map(move |source| (*source, target))
            })
            .collect();
        let nodes = csc.num_nodes();
        all.push((format!("{name}, directed"), Made::directed(nodes, &edges)));
        all.push((format!("{name}, undirected"), Made::undirected(nodes, &edges)));
    }
    all
}
