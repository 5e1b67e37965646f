use std::collections::BTreeMap;
use std::path::Path;

use outercore_core::Result;
use outercore_format::keys::{EDGE_IDS, OFFSETS, SOURCES};
use outercore_format::{ArrayEntry, DType};
use outercore_io::Disk;
use serde::{Deserialize, Serialize};

use super::options::{Duplicates, EdgeImportOptions, SelfLoops};
use super::output::Output;
use super::plan::Plan;

const DIRECTORIES: [&str; 2] = ["edges/edge", "edges"];

/// Size of the CSC so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CscState {
    /// Number of closed columns.
    pub nodes: u64,
    /// Number of arcs in them.
    pub arcs: u64,
    /// Number of arcs whose edge id differs from their position.
    pub displaced: u64,
    pub duplicates_dropped: u64,
    pub loops_added: u64,
}

/// Paths of the array files inside the data set.
#[derive(Clone, Debug)]
pub(crate) struct CscFiles {
    pub offsets: String,
    pub sources: String,
    pub ids: String,
}

/// Writes the arrays of the CSC from arcs in CSC order.
pub(crate) struct CscWriter {
    outputs: Outputs,
    files: CscFiles,
    state: CscState,
    drop_duplicates: bool,
    /// The id of the self-loop added to node 0, if self-loops are added.
    first_loop_id: Option<u64>,
    /// The previous source in the open column.
    last_source: Option<u64>,
    has_loop: bool,
}

impl CscWriter {
    /// Continues from `state`, which is the default at the start.
    pub fn open(
        disk: &dyn Disk,
        root: &Path,
        files: CscFiles,
        plan: &Plan,
        options: &EdgeImportOptions,
        state: CscState,
    ) -> Result<Self> {
        let add = options.self_loops == SelfLoops::Add;
        let num_sources = options.num_sources.unwrap_or(plan.num_nodes);
        let largest_id = plan.input_edges.saturating_sub(1) + if add { plan.num_nodes } else { 0 };
        let mut outputs = Outputs {
            offsets: Column::open(
                disk,
                root,
                &files.offsets,
                DType::U64,
                state.nodes + u64::from(state != CscState::default()),
            )?,
            sources: Column::open(disk, root, &files.sources, width(num_sources), state.arcs)?,
            ids: Column::open(disk, root, &files.ids, width(largest_id), state.arcs)?,
        };
        if state == CscState::default() {
            outputs.offsets.put(0)?;
            sync_directories(disk, root)?;
        }
        Ok(Self {
            outputs,
            files,
            state,
            drop_duplicates: options.duplicates == Duplicates::Drop,
            first_loop_id: add.then_some(plan.input_edges),
            last_source: None,
            has_loop: false,
        })
    }

    /// Number of columns and arcs so far.
    pub fn state(&self) -> CscState {
        self.state
    }

    /// Adds the next arc; arcs must be sorted by target, source and id.
    #[inline]
    pub fn arc(&mut self, target: u64, source: u64, id: u64) -> Result<()> {
        if self.state.nodes < target {
            self.close_before(target)?;
        }
        if self.drop_duplicates && self.last_source == Some(source) {
            self.state.duplicates_dropped += 1;
            return Ok(());
        }
        self.last_source = Some(source);
        if self.first_loop_id.is_some() {
            if source > target && !self.has_loop {
                self.add_loop(target)?;
            }
            self.has_loop |= source == target;
        }
        self.write(source, id)
    }

    /// Closes the columns of all nodes below `node`.
    pub fn close_before(&mut self, node: u64) -> Result<()> {
        while self.state.nodes < node {
            if self.first_loop_id.is_some() && !self.has_loop {
                self.add_loop(self.state.nodes)?;
            }
            self.last_source = None;
            self.has_loop = false;
            self.outputs.offsets.put(self.state.arcs)?;
            self.state.nodes += 1;
        }
        Ok(())
    }

    fn add_loop(&mut self, node: u64) -> Result<()> {
        let Some(first) = self.first_loop_id else { return Ok(()) };
        self.has_loop = true;
        self.state.loops_added += 1;
        self.write(node, first + node)
    }

    #[inline(always)]
    fn write(&mut self, source: u64, id: u64) -> Result<()> {
        self.state.displaced += u64::from(id != self.state.arcs);
        self.state.arcs += 1;
        self.outputs.sources.put(source)?;
        self.outputs.ids.put(id)
    }

    /// Makes all closed columns durable. No column may be open.
    pub fn sync(&mut self) -> Result<CscState> {
        self.outputs.offsets.sync()?;
        self.outputs.sources.sync()?;
        self.outputs.ids.sync()?;
        Ok(self.state)
    }

    /// Completes the arrays and returns their entries.
    ///
    /// Edge ids that are just `0, 1, 2, ...` get no entry. The caller removes their file, once the
    /// import can no longer be resumed.
    pub fn finish(self, disk: &dyn Disk, root: &Path) -> Result<BTreeMap<String, ArrayEntry>> {
        let identity = self.state.displaced == 0;
        let mut entries = BTreeMap::new();
        let files = &self.files;
        entries.insert(OFFSETS.to_owned(), self.outputs.offsets.finish(&files.offsets)?);
        entries.insert(SOURCES.to_owned(), self.outputs.sources.finish(&files.sources)?);
        let ids = self.outputs.ids.finish(&files.ids)?;
        if !identity {
            entries.insert(EDGE_IDS.to_owned(), ids);
        }
        sync_directories(disk, root)?;
        Ok(entries)
    }
}

/// Creates the directories of the arrays.
pub(crate) fn create_directories(disk: &dyn Disk, root: &Path) -> Result<()> {
    disk.create_dir_all(&root.join(DIRECTORIES[0]))?;
    sync_directories(disk, root)
}

fn sync_directories(disk: &dyn Disk, root: &Path) -> Result<()> {
    for directory in DIRECTORIES {
        disk.sync_dir(&root.join(directory))?;
    }
    disk.sync_dir(root)
}

/// 32 bits if they hold `value`, as the format requires.
fn width(value: u64) -> DType {
    if value < 1 << 32 { DType::U32 } else { DType::U64 }
}

struct Outputs {
    offsets: Column,
    sources: Column,
    ids: Column,
}

/// An output file with a buffer of rows.
struct Column {
    output: Output,
    wide: bool,
    buffer: Vec<u8>,
}

impl Column {
    const BUFFER: usize = 256 << 10;

    fn open(disk: &dyn Disk, root: &Path, file: &str, dtype: DType, rows: u64) -> Result<Self> {
        let output = Output::open(disk, &root.join(file), dtype, rows)?;
        let buffer = Vec::with_capacity(Self::BUFFER + 8);
        Ok(Self { output, wide: dtype == DType::U64, buffer })
    }

    #[inline(always)]
    fn put(&mut self, value: u64) -> Result<()> {
        if self.wide {
            self.buffer.extend_from_slice(&value.to_le_bytes());
        } else {
            self.buffer.extend_from_slice(&(value as u32).to_le_bytes());
        }
        if self.buffer.len() < Self::BUFFER { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        self.output.append(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.output.sync()
    }

    fn finish(mut self, file: &str) -> Result<ArrayEntry> {
        self.flush()?;
        self.output.finish(file)
    }
}
