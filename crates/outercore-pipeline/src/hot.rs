//! Chooses the rows of the constant part.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use outercore_cache::{heat_levels, hottest_of};
use outercore_core::{Context, Error, Result};
use outercore_format::{DType, Schema};
use outercore_io::Engine;
use outercore_sample::hotness::in_degree;
use outercore_sample::visits::expected_visits;
use outercore_store::Extent;
use outercore_store::dataset::DataSet;

use crate::sampling::Sampling;

/// Batches sampled together while counting.
const GROUP: usize = 4;

/// Bytes of a node array processed together; a multiple of every element size.
const CHUNK: u64 = 256 << 10;

/// The most used rows, by an estimate made before the first batch.
#[derive(Debug, Default)]
pub struct Hot {
    /// Rows by falling heat.
    pub rows: Vec<u64>,
    /// Heat of each row of the graph, if known; see [`DynamicPart::know_heat`].
    ///
    /// [`DynamicPart::know_heat`]: outercore_cache::DynamicPart::know_heat
    pub heat: Option<Arc<[u8]>>,
}

impl From<Vec<u64>> for Hot {
    fn from(rows: Vec<u64>) -> Self {
        Self { rows, heat: None }
    }
}

/// The rows that `batches` of epoch 0 need most often, by falling count (at most `slots`).
///
/// **Cost** samples the batches; two bytes per node while counting.
///
/// **Source** Helios 3.2.2, pre-sampling.
pub fn by_presampling(sampling: &Sampling, batches: Range<u64>, slots: usize) -> Result<Vec<u64>> {
    let mut hot = sampling.presample(batches, GROUP)?;
    Ok(hottest_wanted(&mut hot.counts, sampling, slots))
}

/// The hottest of the rows that are fetched, by falling heat (at most `slots`). Sets the heat of
/// all other rows to 0.
fn hottest_wanted<H: Copy + Ord + Default + Into<u64>>(
    heat: &mut [H],
    sampling: &Sampling,
    slots: usize,
) -> Vec<u64> {
    for (node, heat) in (0..).zip(&mut *heat) {
        if *heat > H::default() && !sampling.wants_row(node) {
            *heat = H::default();
        }
    }
    let mut rows = hottest_of(heat, slots);
    rows.sort_by_key(|&row| (Reverse(heat[row as usize]), row));
    rows
}

/// The rows that an epoch is expected to visit most often (at most `slots`), and the heat of all
/// rows. `mirrored` means that each edge leads both ways.
///
/// **Cost** the cost of [`expected_visits`]; afterwards one byte per node.
///
/// # Errors
/// Errors of the topology.
pub fn by_visits(sampling: &Sampling, mirrored: bool, slots: usize) -> Result<Hot> {
    let mirrored = mirrored && sampling.config().types.is_none();
    let seeds = sampling.all_seeds();
    let mut visits = expected_visits(&*sampling.topology, seeds, sampling.config(), mirrored)?;
    // For non-negative floats, the bit patterns have the same order as the values.
    let heat: &mut [u32] = bytemuck::cast_slice_mut(&mut visits);
    let rows = hottest_wanted(heat, sampling, slots);
    Ok(Hot { rows, heat: Some(heat_levels(&visits)) })
}

/// The rows of the nodes with the most in-edges, by falling in-degree (at most `slots`).
///
/// In an undirected graph these nodes are sampled most often. With several edge types, the type
/// with the most in-edges counts for each node.
///
/// **Cost** one pass over the offsets, and a look-up of the offsets of the chosen rows.
pub fn by_in_degree(sampling: &Sampling, schema: &Schema, slots: usize) -> Result<Vec<u64>> {
    let topology = &*sampling.topology;
    let (columns, _) = in_degree(topology, slots)?;
    let mut extents = vec![Extent::default(); columns.len()];
    topology.extents(&columns, &mut extents)?;
    let mut by_heat: Vec<(Reverse<u64>, u64)> = extents
        .iter()
        .zip(&columns)
        .map(|(extent, &column)| (Reverse(extent.degree), schema.target_of(column)))
        .collect();
    by_heat.sort_unstable();
    let mut seen = HashSet::new();
    let rows = by_heat.into_iter().map(|(_, row)| row);
    if !schema.is_typed() {
        return Ok(rows.collect());
    }
    Ok(rows.filter(|&row| sampling.wants_row(row) && seen.insert(row)).collect())
}

/// The nodes with the largest values of a node array, by falling value (at most `slots`); equal
/// values by rising id.
///
/// **Cost** reads the array once; 16 bytes per slot while choosing.
///
/// # Errors
/// `NotFound`: no such array. `Invalid`: more than one number per node, or values that are not
/// numbers.
pub fn by_array(
    dataset: &DataSet,
    key: &str,
    slots: usize,
    engine: &mut Engine,
) -> Result<Vec<u64>> {
    let array = dataset.array(key).context("hotness")?;
    let nodes = dataset.num_nodes();
    let numbers: fn(&[u8]) -> Vec<f64> = match array.dtype {
        DType::F64 => |bytes| bytemuck::pod_collect_to_vec::<u8, f64>(bytes),
        DType::F32 => |bytes| widened::<f32>(bytes),
        DType::I32 => |bytes| widened::<i32>(bytes),
        DType::U32 => |bytes| widened::<u32>(bytes),
        // Beyond 2^53, neighbouring integers become the same heat.
        DType::I64 => |bytes| {
            bytemuck::pod_collect_to_vec::<u8, i64>(bytes).into_iter().map(|v| v as f64).collect()
        },
        other => {
            return Err(Error::invalid(format!("hotness `{key}`: type {other}"))
                .hint("float32, float64, int32 and int64 arrays will do"));
        }
    };
    if array.shape != [nodes] {
        return Err(Error::invalid(format!(
            "hotness `{key}`: shape {:?}, expected one value for each of {nodes} nodes",
            array.shape
        )));
    }
    let width = array.dtype.size() as u64;
    let file = engine.register(&array.path)?;
    let mut chunk = vec![0; CHUNK as usize];
    // The coolest row is at the top of the heap, to be replaced next.
    let mut hottest: BinaryHeap<Reverse<Heat>> = BinaryHeap::with_capacity(slots);
    let mut first = 0;
    while first < nodes && slots > 0 {
        let bytes = ((nodes - first) * width).min(CHUNK);
        let chunk = &mut chunk[..bytes as usize];
        engine.read_into(file, array.data_offset + first * width, chunk)?;
        for (node, value) in (first..).zip(numbers(chunk)) {
            if value.is_nan() {
                return Err(Error::invalid(format!("hotness `{key}`: NaN at node {node}")));
            }
            let heat = Heat { value, node: Reverse(node) };
            if hottest.len() < slots {
                hottest.push(Reverse(heat));
            } else if let Some(mut coolest) = hottest.peek_mut()
                && heat > coolest.0
            {
                coolest.0 = heat;
            }
        }
        first += bytes / width;
    }
    // Sorted ascending by `Reverse`, so the hottest row comes first.
    Ok(hottest.into_sorted_vec().into_iter().map(|Reverse(heat)| heat.node.0).collect())
}

fn widened<T: bytemuck::AnyBitPattern + bytemuck::NoUninit + Into<f64>>(bytes: &[u8]) -> Vec<f64> {
    bytemuck::pod_collect_to_vec::<u8, T>(bytes).into_iter().map(Into::into).collect()
}

/// Ordered by value, then by smaller id; values are never NaN.
#[derive(Clone, Copy, PartialEq)]
struct Heat {
    value: f64,
    node: Reverse<u64>,
}

impl Eq for Heat {}

impl Ord for Heat {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.value.total_cmp(&other.value).then(self.node.cmp(&other.node))
    }
}

impl PartialOrd for Heat {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use outercore_io::EngineConfig;

    use super::*;

    /// A data set of `values.len()` nodes with one array.
    fn with_array(root: &std::path::Path, dtype: &str, bytes: &[u8], nodes: usize) -> DataSet {
        let entry = |file: &str, dtype: DType, shape: Vec<u64>, bytes: &[u8]| {
            let mut content = outercore_format::NpyHeader::encode(dtype, &shape);
            content.extend(bytes);
            std::fs::write(root.join(file), content).unwrap();
            serde_json::json!({
                "file": file, "dtype": dtype.to_string(), "shape": shape, "data_offset": 4096,
                "checksum": outercore_format::Checksum::of(bytes), "external": false,
            })
        };
        let offsets = vec![0; 8 * (nodes + 1)];
        let manifest = serde_json::json!({
            "format": "outercore", "version": 1, "created": "2026-01-01T00:00:00Z",
            "node_types": {"node": {"count": nodes}},
            "edge_types": {"edge": {"source": "node", "target": "node", "count": 0,
                                     "undirected": false}},
            "arrays": {
                "nodes/node/heat": entry("h.npy", dtype.parse().unwrap(), vec![nodes as u64], bytes),
                "edges/edge/offsets": entry("o.npy", DType::U64, vec![nodes as u64 + 1], &offsets),
                "edges/edge/sources": entry("s.npy", DType::U32, vec![0], &[]),
            },
            "roles": {"splits": {}},
            "provenance": {},
        });
        std::fs::write(root.join("graph.json"), manifest.to_string()).unwrap();
        DataSet::open(root).unwrap()
    }

    fn hottest(dtype: &str, bytes: &[u8], nodes: usize, slots: usize) -> Result<Vec<u64>> {
        let root = tempfile::tempdir().unwrap();
        let dataset = with_array(root.path(), dtype, bytes, nodes);
        let mut engine = Engine::open(EngineConfig::default()).unwrap();
        by_array(&dataset, "nodes/node/heat", slots, &mut engine)
    }

    #[test]
    fn the_largest_values_come_first_and_ties_go_to_the_smaller_id() {
        // More than one chunk of every type.
        let values: Vec<i32> = (0..150_000).map(|node| (node * 7919) % 1000 - 400).collect();
        let mut expected: Vec<u64> = (0..values.len() as u64).collect();
        expected.sort_by_key(|&node| (Reverse(values[node as usize]), node));
        let as_bytes: [(&str, Vec<u8>); 4] = [
            ("int32", values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            ("int64", values.iter().flat_map(|&v| i64::from(v).to_le_bytes()).collect()),
            ("float32", values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect()),
            ("float64", values.iter().flat_map(|&v| f64::from(v).to_le_bytes()).collect()),
        ];
        for (dtype, bytes) in as_bytes {
            for slots in [0, 1, 1234, values.len(), values.len() + 5] {
                let found = hottest(dtype, &bytes, values.len(), slots).unwrap();
                assert!(found == expected[..slots.min(expected.len())], "{dtype}, {slots} slots");
            }
        }
    }

    #[test]
    fn what_is_no_number_has_no_heat() {
        let bytes: Vec<u8> = [1.0, f32::NAN].iter().flat_map(|v| v.to_le_bytes()).collect();
        let error = hottest("float32", &bytes, 2, 2).unwrap_err().to_string();
        assert!(error.contains("NaN at node 1"), "{error}");
        let error = hottest("int8", &[1, 2], 2, 2).unwrap_err().to_string();
        assert!(error.contains("type int8"), "{error}");
    }
}
