//! Further arrays of batches: rows of nodes or of edges, in their stored form.

use std::ops::Range;

use outercore_core::{Bytes, Context, Error, ErrorKind, ReadCounters, Result, hint};
use outercore_format::DType;
use outercore_format::keys::{EDGE, Group as KeyGroup, NODE, OFFSETS, SOURCES, is_topology};
use outercore_io::arena::UNIT;
use outercore_io::{CostModel, Engine, EngineConfig, FileId, RowLayout, plan_rows};
use outercore_store::dataset::{ArrayRef, DataSet};
use rayon::ThreadPool;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::group::{Group, RowsOf};

/// Rows of a resident array that one task copies.
const COPY_ROWS: usize = 4096;

/// Scratch per row looked up on disk: its key, its number, and at worst a separate read, in lists
/// that grow by doubling.
const BYTES_A_ROW: u64 = 80;

/// Most scratch for rows looked up on disk together.
const WORKING: Bytes = Bytes::mib(4);

/// Read buffers and scratch each take one part in this many of the budget.
const SHARE: u64 = 32;

/// An array of a data set whose rows go into batches.
#[derive(Clone, Debug)]
pub struct BatchArray {
    /// The array in the data set.
    pub array: ArrayRef,
    /// Whether the rows belong to nodes or to edges.
    pub rows_of: RowsOf,
}

impl BatchArray {
    /// The array under `key`.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for an array with another number of rows, or an array that belongs
    /// neither to nodes nor to edges.
    pub fn new(dataset: &DataSet, key: &str) -> Result<Self> {
        let array = dataset.array(key)?;
        let schema = dataset.schema();
        let (rows_of, rows) = match KeyGroup::of(&array.key) {
            KeyGroup::Node { node_type: NODE, .. } if !schema.is_typed() => {
                (RowsOf::Nodes, dataset.num_nodes())
            }
            KeyGroup::Edge { edge_type: EDGE, .. }
                if !schema.is_typed() && array.key != OFFSETS && array.key != SOURCES =>
            {
                let rows = dataset.manifest().edge_types.get(EDGE).and_then(|edges| edges.rows);
                (RowsOf::Edges, rows.unwrap_or(array.rows()))
            }
            KeyGroup::Node { node_type, .. } if schema.is_typed() => {
                let nodes = schema.node_types()[schema.node_type(node_type)?].nodes.clone();
                (RowsOf::NodesOf(nodes.clone()), nodes.end - nodes.start)
            }
            KeyGroup::Edge { edge_type, .. } if schema.is_typed() && !is_topology(&array.key) => {
                let rows = schema.edge_types()[schema.edge_type(edge_type)?].rows.clone();
                (RowsOf::EdgesOf(rows.clone()), rows.end - rows.start)
            }
            _ => {
                return Err(Error::invalid(format!(
                    "array `{key}`: expected an array of nodes or of edges"
                ))
                .hint("name one below `nodes/` or `edges/`"));
            }
        };
        if array.rows() != rows {
            let of = if rows_of.are_nodes() { "nodes" } else { "imported edges" };
            return Err(Error::invalid(format!(
                "array `{key}`: {} rows, expected one for each of {rows} {of}",
                array.rows()
            ))
            .hint("replace it with `add_node_array` or `add_edge_array`, or leave it out"));
        }
        Ok(Self { array, rows_of })
    }

    /// Most bytes of a row in a batch: `bfloat16` is delivered as `float32`.
    fn delivered_bytes(&self) -> u64 {
        let row = self.array.row_bytes();
        if self.array.dtype == DType::BF16 { 3 * row } else { row }
    }
}

/// Memory of the further arrays of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraysPlan {
    /// Number of arrays in memory: the arrays with the shortest rows.
    pub resident: u64,
    /// Number of arrays on disk; their rows are read for each batch.
    pub paged: u64,
    /// Memory of the resident arrays, read buffers and scratch.
    pub memory: Bytes,
    /// Bytes per node of a batch.
    pub node_bytes: u64,
    /// Bytes per edge of a batch.
    pub edge_bytes: u64,
}

impl ArraysPlan {
    /// Plans to keep arrays in memory as long as they take at most `most` in total.
    ///
    /// Arrays with the shortest rows come first: a read of a whole page for one short row wastes
    /// the most.
    pub fn new(arrays: &[BatchArray], most: Bytes, budget: Bytes) -> Self {
        let mut plan = Self::default();
        let mut taken = 0u64;
        for index in by_row(arrays) {
            let len = arrays[index].array.data_len();
            if plan.paged == 0 && taken.saturating_add(len) <= most.0 {
                taken += len;
                plan.resident += 1;
            } else {
                plan.paged += 1;
            }
        }
        for array in arrays {
            if array.rows_of.are_nodes() {
                plan.node_bytes += array.delivered_bytes();
            } else {
                plan.edge_bytes += array.delivered_bytes();
            }
        }
        if !arrays.is_empty() {
            plan.memory = Bytes(taken + staging(budget).0 + working(budget).0);
        }
        plan
    }

    /// Bytes of the array rows of a batch.
    pub fn of_batch(&self, nodes: u64, edges: u64) -> u64 {
        nodes * self.node_bytes + edges * self.edge_bytes
    }
}

/// Bytes of read buffers.
fn staging(budget: Bytes) -> Bytes {
    let share = (budget.0 / SHARE).clamp(256 << 10, 4 << 20);
    Bytes(share / UNIT as u64 * UNIT as u64)
}

fn working(budget: Bytes) -> Bytes {
    Bytes((budget.0 / SHARE).clamp(128 << 10, WORKING.0))
}

/// The indices of the arrays, sorted by row length, shortest first.
fn by_row(arrays: &[BatchArray]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..arrays.len()).collect();
    order.sort_by_key(|&index| arrays[index].array.row_bytes());
    order
}

/// Opened arrays; adds their rows to the batches of a group.
pub struct Arrays {
    arrays: Vec<(BatchArray, Home)>,
    engine: Engine,
    cost: CostModel,
    /// Number of rows looked up together.
    piece: usize,
    counted: ReadCounters,
}

/// Whether an array is in memory or on disk.
enum Home {
    Memory(Vec<u8>),
    Disk(FileId, RowLayout),
}

impl Arrays {
    /// Opens `arrays` and reads those that the plan keeps in memory.
    ///
    /// # Errors
    /// A file is missing or shorter than the manifest says; a failed read; insufficient memory.
    pub fn open(
        arrays: Vec<BatchArray>,
        plan: ArraysPlan,
        budget: Bytes,
        reading: &EngineConfig,
        cost: CostModel,
    ) -> Result<Self> {
        let reading = EngineConfig { staging: staging(budget), tier: None, ..reading.clone() };
        let mut engine = Engine::open(reading)?;
        let order = by_row(&arrays);
        let resident = &order[..plan.resident as usize];
        let mut opened = Vec::with_capacity(arrays.len());
        for (index, array) in arrays.into_iter().enumerate() {
            let key = array.array.key.clone();
            let home = open_one(&mut engine, &array.array, resident.contains(&index));
            opened.push((array, home.with_context(|| format!("array `{key}`"))?));
        }
        let piece = (working(budget).0 / BYTES_A_ROW) as usize;
        Ok(Self { arrays: opened, engine, cost, piece, counted: ReadCounters::default() })
    }

    /// Adds the rows of all arrays to each batch of `group`.
    ///
    /// **Cost** a copy from memory, or reads of the distinct rows on disk, a piece at a time.
    ///
    /// # Errors
    /// `Corrupt`: an edge id without a row. A failed or short read.
    pub fn fetch(&mut self, group: &mut Group, pool: &ThreadPool) -> Result<()> {
        let Self { arrays, engine, cost, piece, .. } = self;
        for batch in &mut group.batches {
            batch.arrays.clear();
        }
        for (array, home) in arrays {
            let row_bytes = array.array.row_bytes() as usize;
            let mut filled = Vec::with_capacity(group.batches.len());
            for batch in &group.batches {
                let ids = batch.ids(&array.rows_of);
                check(&array.array, &array.rows_of, &ids)?;
                let mut rows = vec![0; ids.len() * row_bytes];
                if let Home::Memory(values) = home {
                    copy_rows(values, row_bytes, &ids, &mut rows, pool);
                }
                filled.push(rows);
            }
            if let Home::Disk(file, layout) = home {
                let mut wanted = Vec::with_capacity(*piece);
                for (number, batch) in (0u32..).zip(&group.batches) {
                    for (place, id) in (0u32..).zip(batch.ids(&array.rows_of).iter()) {
                        wanted.push((*id, number, place));
                        if wanted.len() == *piece {
                            let reads = (&mut *engine, *file, *layout, &*cost);
                            read_rows(reads, &mut wanted, &mut filled)
                                .with_context(|| format!("array `{}`", array.array.key))?;
                        }
                    }
                }
                read_rows((&mut *engine, *file, *layout, &*cost), &mut wanted, &mut filled)
                    .with_context(|| format!("array `{}`", array.array.key))?;
            }
            for (batch, rows) in group.batches.iter_mut().zip(filled) {
                batch.arrays.push(rows);
            }
        }
        Ok(())
    }

    /// Reads since the last call.
    pub fn take_counters(&mut self) -> ReadCounters {
        let now = self.engine.counters();
        let before = std::mem::replace(&mut self.counted, now);
        now.since(&before)
    }
}

fn open_one(engine: &mut Engine, array: &ArrayRef, resident: bool) -> Result<Home> {
    let len = array.data_len();
    if len == 0 {
        return Ok(Home::Memory(Vec::new()));
    }
    let file = engine.register(&array.path)?;
    let file_len = engine.file_len(file);
    let end = array.data_offset + len;
    if file_len < end {
        return Err(Error::corrupt(format!(
            "its file has {file_len} bytes, expected at least {end}"
        )));
    }
    if !resident {
        let layout = RowLayout { base: array.data_offset, stride: array.row_bytes(), file_len };
        return Ok(Home::Disk(file, layout));
    }
    let mut values = Vec::new();
    values.try_reserve_exact(len as usize).map_err(|_| {
        Error::new(ErrorKind::Budget, format!("no memory for its {len} bytes")).hint(hint!(
            "lower " {memory} ": then it stays on disk"
        ))
    })?;
    values.resize(len as usize, 0);
    engine.read_into(file, array.data_offset, &mut values)?;
    Ok(Home::Memory(values))
}

fn check(array: &ArrayRef, of: &RowsOf, ids: &[u64]) -> Result<()> {
    let rows = array.rows();
    let Some(place) = ids.iter().position(|&id| id >= rows) else { return Ok(()) };
    let id = ids[place];
    let of = if of.are_nodes() { "node" } else { "edge id" };
    Err(Error::corrupt(format!(
        "array `{}`: no row for {of} {id} (at place {place} of a batch), it has {rows} rows",
        array.key
    ))
    .hint("run `outercore check DATASET`"))
}

fn copy_rows(values: &[u8], row_bytes: usize, ids: &[u64], rows: &mut [u8], pool: &ThreadPool) {
    if row_bytes == 0 {
        return;
    }
    let pieces = rows.par_chunks_mut(COPY_ROWS * row_bytes).zip(ids.par_chunks(COPY_ROWS));
    pool.install(|| {
        pieces.for_each(|(rows, ids)| {
            for (row, &id) in rows.chunks_exact_mut(row_bytes).zip(ids) {
                let start = id as usize * row_bytes;
                row.copy_from_slice(&values[start..start + row_bytes]);
            }
        });
    });
}

/// Reads the rows of `wanted` (row, batch, place in the batch) into `filled`, and empties `wanted`.
fn read_rows(
    (engine, file, layout, cost): (&mut Engine, FileId, RowLayout, &CostModel),
    wanted: &mut Vec<(u64, u32, u32)>,
    filled: &mut [Vec<u8>],
) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    wanted.sort_unstable();
    let mut rows: Vec<u64> = wanted.iter().map(|&(row, ..)| row).collect();
    rows.dedup();
    let stride = layout.stride as usize;
    let plan = plan_rows(&rows, layout, cost, engine.max_read());
    engine.read(file, &plan.reads, &mut |read, bytes| {
        let start = plan.reads[read].offset - layout.base;
        let Range { start: first, end } = plan.rows_of[read].clone();
        let rows = &rows[first as usize..end as usize];
        let from = wanted.partition_point(|&(row, ..)| row < rows[0]);
        for &(row, batch, place) in &wanted[from..] {
            if row > rows[rows.len() - 1] {
                break;
            }
            let at = (row * layout.stride - start) as usize;
            let to = place as usize * stride;
            filled[batch as usize][to..to + stride].copy_from_slice(&bytes[at..at + stride]);
        }
        Ok(())
    })?;
    wanted.clear();
    Ok(())
}
