//! A topology on disk, accessed by planned reads.

use std::sync::{Mutex, PoisonError};

use outercore_core::{Bytes, Context, EdgeId, NodeId, ReadCounters, Result};
use outercore_format::DType;
use outercore_format::keys::{EDGE_IDS, OFFSETS, SOURCES};
use outercore_io::{CostModel, Engine, EngineConfig, FileId, PlannedRead, RowLayout, plan_rows};

use crate::dataset::{ArrayRef, DataSet};
use crate::ids::{
    beyond_the_edges, corrupt, decreasing, identity, no_such_node, no_such_position,
    no_such_source, not_ids,
};
use crate::offsets::Offsets;
use crate::topology::{Extent, Topology};

/// Scratch bytes for each row that a piece of a request needs: its number, its value, and in the
/// worst case a separate planned read. The reads are in lists that grow by doubling.
const BYTES_A_ROW: usize = 8 + 8 + 2 * (size_of::<PlannedRead>() + 8);

/// Scratch bytes for each place in a piece of a request.
const BYTES_A_PLACE: usize = 8;

/// A [`Topology`] that stays on disk. Every call sorts the requested rows, removes duplicates and
/// reads the pages with the remaining rows; nearby reads are merged if that is cheaper.
///
/// Larger requests need fewer reads per position, so request a whole group of batches at once.
/// Calls from several threads run one after the other.
#[derive(Debug)]
pub struct PagedTopology {
    nodes: u64,
    columns: u64,
    edges: u64,
    offsets: PagedOffsets,
    sources: PagedIds,
    /// `None` if edge ids equal positions.
    ids: Option<PagedIds>,
    cost: CostModel,
    staging: Bytes,
    working: Bytes,
    reading: Mutex<Reading>,
}

#[derive(Debug)]
enum PagedOffsets {
    Resident(Offsets),
    Paged(PagedIds),
}

/// A file with an array of ids.
#[derive(Clone, Copy, Debug)]
struct PagedIds {
    key: &'static str,
    rows: u64,
    file: FileId,
    layout: RowLayout,
}

/// State that only one call at a time may use.
#[derive(Debug)]
struct Reading {
    engine: Engine,
    counters: ReadCounters,
    scratch: Scratch,
}

/// Buffers for one piece of a request, reused between calls.
#[derive(Debug, Default)]
struct Scratch {
    /// The requested row for each place of the request, with the place: `row << shift | place`,
    /// sorted.
    keys: Vec<u64>,
    /// The rows to read, ascending and distinct.
    rows: Vec<u64>,
    /// Their values.
    values: Vec<u64>,
}

impl PagedTopology {
    /// Default working memory; see [`with_working_memory`](Self::with_working_memory).
    pub const WORKING_MEMORY: Bytes = Bytes::mib(16);

    /// Opens the topology of a data set, with a separate I/O engine.
    ///
    /// With `offsets_resident`, the offsets are read into memory: 4 bytes per column, or 8 from
    /// 2^32 edges. Each hop then needs one round of reads less.
    ///
    /// # Errors
    /// A missing file, or a file that is shorter than the manifest says. For resident offsets also
    /// damaged offsets, or too little memory.
    pub fn open(
        data_set: &DataSet,
        config: EngineConfig,
        cost: CostModel,
        offsets_resident: bool,
    ) -> Result<Self> {
        let staging = config.staging;
        let mut engine = Engine::open(config)?;
        let (nodes, edges) = (data_set.num_nodes(), data_set.num_edges());
        let array = data_set.array(OFFSETS)?;
        let offsets = if offsets_resident {
            PagedOffsets::Resident(Offsets::load(&array, &mut engine, edges)?)
        } else {
            PagedOffsets::Paged(PagedIds::open(OFFSETS, &array, &mut engine)?)
        };
        let sources = PagedIds::open(SOURCES, &data_set.array(SOURCES)?, &mut engine)?;
        let ids = if data_set.has_array(EDGE_IDS) {
            Some(PagedIds::open(EDGE_IDS, &data_set.array(EDGE_IDS)?, &mut engine)?)
        } else {
            None
        };
        let counters = engine.counters();
        Ok(Self {
            nodes,
            columns: data_set.num_columns(),
            edges,
            offsets,
            sources,
            ids,
            cost,
            staging,
            working: Self::WORKING_MEMORY,
            reading: Mutex::new(Reading { engine, counters, scratch: Scratch::default() }),
        })
    }

    /// Sets the memory for lookups, in addition to staging. A larger request is split into pieces,
    /// which run one after the other.
    #[must_use]
    pub fn with_working_memory(mut self, working: Bytes) -> Self {
        self.working = working;
        self
    }

    /// The maximum memory of the topology: staging, working memory and resident offsets.
    pub fn memory(&self) -> Bytes {
        let offsets = match &self.offsets {
            PagedOffsets::Resident(offsets) => offsets.memory(),
            PagedOffsets::Paged(_) => Bytes(0),
        };
        Bytes(self.staging.0 + self.working.0 + offsets.0)
    }

    /// Calls `answer(place, values)` once for each place of `wanted`, in any order. `values` are
    /// the rows `wanted[place] .. wanted[place] + SPAN` of `array`.
    fn look_up<const SPAN: usize>(
        &self,
        array: &PagedIds,
        wanted: &[u64],
        mut answer: impl FnMut(usize, [u64; SPAN]) -> Result<()>,
    ) -> Result<()> {
        // The place is stored in the low bits of a key, as many as row numbers leave free.
        let shift = array.rows.leading_zeros().min(32);
        let affordable = self.working.as_usize() / (BYTES_A_PLACE + SPAN * BYTES_A_ROW);
        let piece = affordable.clamp(1, 1 << shift);
        // Every call refills the scratch buffers, so they are valid even if an earlier call
        // panicked.
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let Reading { engine, counters, scratch } = &mut *reading;
        for (piece_index, wanted) in wanted.chunks(piece).enumerate() {
            scratch.ask(wanted, SPAN as u64, shift);
            *counters += scratch.fetch(array, engine, &self.cost)?;
            let mut row = 0;
            for &key in &scratch.keys {
                while scratch.rows[row] != key >> shift {
                    row += 1;
                }
                let place = (key & ((1 << shift) - 1)) as usize;
                let values = std::array::from_fn(|i| scratch.values[row + i]);
                answer(piece_index * piece + place, values)?;
            }
        }
        Ok(())
    }
}

impl Topology for PagedTopology {
    fn num_nodes(&self) -> u64 {
        self.nodes
    }

    fn num_columns(&self) -> u64 {
        self.columns
    }

    fn num_edges(&self) -> u64 {
        self.edges
    }

    fn extents(&self, columns: &[NodeId], extents: &mut [Extent]) -> Result<()> {
        let offsets = match &self.offsets {
            PagedOffsets::Resident(offsets) => return offsets.extents(columns, extents),
            PagedOffsets::Paged(offsets) => offsets,
        };
        assert_eq!(columns.len(), extents.len(), "one place in the answer for each column");
        if let Some(&column) = columns.iter().find(|&&column| column >= self.columns) {
            return Err(no_such_node(column, self.columns));
        }
        self.look_up(offsets, columns, |place, [start, end]| {
            if start > end {
                return Err(decreasing(columns[place] + 1, start, end));
            }
            if end > self.edges {
                return Err(beyond_the_edges(columns[place] + 1, end, self.edges));
            }
            extents[place] = Extent { start, degree: end - start };
            Ok(())
        })
    }

    fn sources(&self, positions: &[u64], sources: &mut [NodeId]) -> Result<()> {
        check_positions(positions, sources, self.edges)?;
        self.look_up(&self.sources, positions, |place, [source]| {
            if source >= self.nodes {
                return Err(no_such_source(positions[place], source, self.nodes));
            }
            sources[place] = source;
            Ok(())
        })
    }

    fn edge_ids(&self, positions: &[u64], ids: &mut [EdgeId]) -> Result<()> {
        check_positions(positions, ids, self.edges)?;
        let Some(stored) = &self.ids else { return identity(positions, self.edges, ids) };
        self.look_up(stored, positions, |place, [id]| {
            ids[place] = id;
            Ok(())
        })
    }

    fn read_counters(&self) -> ReadCounters {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner).counters
    }
}

fn check_positions(positions: &[u64], answers: &[u64], edges: u64) -> Result<()> {
    assert_eq!(positions.len(), answers.len(), "one place in the answer for each position");
    match positions.iter().find(|&&position| position >= edges) {
        Some(&position) => Err(no_such_position(position, edges)),
        None => Ok(()),
    }
}

impl PagedIds {
    fn open(key: &'static str, array: &ArrayRef, engine: &mut Engine) -> Result<Self> {
        if !matches!(array.dtype, DType::U32 | DType::U64) {
            return Err(not_ids(key, array.dtype));
        }
        let file = engine.register(&array.path).with_context(|| format!("array `{key}`"))?;
        let file_len = engine.file_len(file);
        let end = array.data_offset + array.data_len();
        if file_len < end {
            let found = format!("its file has {file_len} bytes, expected at least {end}");
            return Err(corrupt(key, found));
        }
        let layout = RowLayout { base: array.data_offset, stride: array.row_bytes(), file_len };
        Ok(Self { key, rows: array.rows(), file, layout })
    }

    /// The element that starts `bytes`.
    fn value(&self, bytes: &[u8]) -> u64 {
        if self.layout.stride == 4 {
            u64::from(u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes")))
        } else {
            u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
        }
    }
}

impl Scratch {
    /// Sorts a request for `span` rows, starting at each of `wanted`.
    fn ask(&mut self, wanted: &[u64], span: u64, shift: u32) {
        self.keys.clear();
        self.keys
            .extend(wanted.iter().zip(0..).map(|(&row, place): (_, u64)| row << shift | place));
        self.keys.sort_unstable();
        self.rows.clear();
        let mut unseen = 0;
        for key in &self.keys {
            let row = key >> shift;
            self.rows.extend(row.max(unseen)..row + span);
            unseen = row + span;
        }
    }

    /// Reads the values of the requested rows.
    fn fetch(
        &mut self,
        array: &PagedIds,
        engine: &mut Engine,
        cost: &CostModel,
    ) -> Result<ReadCounters> {
        let Self { rows, values, .. } = self;
        values.clear();
        values.resize(rows.len(), 0);
        let layout = array.layout;
        let plan = plan_rows(rows, layout, cost, engine.max_read());
        let on_data = &mut |read: usize, bytes: &[u8]| {
            let start = plan.reads[read].offset - layout.base;
            for place in plan.rows_of[read].clone() {
                let place = place as usize;
                let at = rows[place] * layout.stride - start;
                values[place] = array.value(&bytes[at as usize..]);
            }
            Ok(())
        };
        let done = engine.read(array.file, &plan.reads, on_data);
        let done = done.with_context(|| format!("array `{}`", array.key))?;
        // Gaps between merged reads are not useful bytes, although they were planned.
        Ok(ReadCounters { useful_bytes: plan.useful_bytes, ..done })
    }
}
