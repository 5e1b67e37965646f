//! Building a grid from the CSC within a memory budget.
//!
//! Three passes over the arcs: out-degrees (not in a symmetric graph), edges of every block, and
//! dealing edges to their blocks; then every block is sorted and encoded. The manifest is changed
//! last, at once.

mod deal;
mod degrees;
mod encode;
mod input;
mod plan;
mod record;

use std::fs::File;
use std::path::PathBuf;
use std::time::Instant;

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_format::{ArrayEntry, DType, keys};
use outercore_io::Disk;
use outercore_store::dataset::{ArrayRef, DataSet};
use outercore_store::editor::ManifestEditor;
use outercore_store::npy::ArrayWriter;
use rayon::{ThreadPool, ThreadPoolBuilder};
use serde::Serialize;

use self::deal::{Layout, Sink, count, deal};
use self::degrees::{Degrees, Ranks, choose, out_degrees};
use self::encode::{Dealt, Outputs, Written, encode_all};
use self::input::{Input, Pass, read_weights};
use self::plan::Facts;
use self::record::Record;
use crate::header::{
    self, BLOCKS, GridHeader, HEADER, IN_DEGREES, MAX_PARTITION_LOG2, MAX_PARTITIONS, ORDER,
    OUT_DEGREES, PIECES, WEIGHTS, edge_array,
};
use crate::open::{Grid, RECORD_WORDS};
use crate::order::partition_log2;
use crate::shape::{GridShape, Order};

/// Where edges are dealt to; removed after a build and before the next.
const TEMPORARY: &str = ".grid";

/// Rows that are written between two looks at the wish to stop.
const STEP: usize = 1 << 18;

/// Told what a build does, how far it has come, how far it has to go, and in which unit. An error
/// stops it.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64, &str) -> Result<()>;

/// How a grid is built.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Everything the build keeps in memory.
    pub memory: Bytes,
    /// Threads; by default those of the machine, at most 16.
    pub threads: Option<usize>,
    /// The edge array to take weights from, a name below `edges/edge/`.
    pub weights: Option<String>,
    /// The order of the nodes; by default the given one where most arcs are short, else by degree.
    pub order: Option<Order>,
    /// Partitions of at most `1 << partition_log2` nodes, 1 to 16; by default by the size of the
    /// graph.
    pub partition_log2: Option<u32>,
    /// Whether to replace a grid that is there.
    pub overwrite: bool,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            memory: Bytes::gib(1),
            threads: None,
            weights: None,
            order: None,
            partition_log2: None,
            overwrite: false,
        }
    }
}

/// What was built, or was there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BuildSummary {
    /// Nodes of the graph.
    pub nodes: u64,
    /// Nodes with an arc.
    pub connected: u64,
    /// Arcs of the CSC.
    pub arcs: u64,
    /// Stored edges: half the arcs of a symmetric graph, loops apart.
    pub edges: u64,
    /// Partitions of the nodes.
    pub partitions: u64,
    /// Blocks that have edges.
    pub blocks: u64,
    /// Pieces of those blocks.
    pub pieces: u64,
    /// How the nodes are numbered.
    pub order: Order,
    /// Whether every edge is stored once for two arcs.
    pub symmetric: bool,
    /// Bytes of the pieces, weights and tables apart.
    pub bytes: Bytes,
    /// `bytes` for each arc of the CSC; 0 without arcs.
    pub bytes_per_arc: f64,
    /// Bytes of the arrays that the grid is made of.
    pub input: Bytes,
    /// Bytes written, the temporary file included; 0 if the grid was there.
    pub written: Bytes,
    /// Wall-clock seconds.
    pub seconds: f64,
}

/// Builds the grid of a data set; one that is there and is as asked for is left as it is.
///
/// The bytes of the grid depend on the graph, the weights, the order and the partition size alone,
/// not on the memory or the threads.
///
/// **Cost**: reads the sources two or three times; writes 4 bytes a stored edge (8 with weights) to a
/// temporary file unless half the memory holds them, and the grid. Memory: 12 bytes a node (8 in
/// natural order), 4 bytes a row of the weights, buffers.
///
/// # Errors
/// `Budget`, with the least that works. `Invalid`: a stale grid or one built with other options is
/// there and `overwrite` is not set; a weight that is not finite; no homogeneous graph. `NotFound`:
/// no such weights. `Unsupported`: 2^32 nodes, or more than 4096 partitions. `Corrupt`: arrays that
/// contradict each other. Those of the disk and of `on_progress`; the data set stays as it was.
///
/// # Example
/// ```
/// use outercore_grid::{BuildOptions, Grid, build};
/// use outercore_io::RealDisk;
/// use outercore_store::dataset::DataSet;
/// use outercore_testkit::{Csc, Width, write_data_set};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path();
/// let graph = write_data_set(root, &Csc::power_law(1000, 5000, 1), Width::Narrow);
/// let summary = build(&RealDisk, &graph, &BuildOptions::default(), &mut |_, _, _, _| Ok(()))?;
/// assert_eq!(summary.edges, 5000);
/// let grid = Grid::open(&DataSet::open(root)?)?;
/// assert_eq!(grid.pieces().iter().map(|piece| u64::from(piece.edges)).sum::<u64>(), 5000);
/// # Ok(())
/// # }
/// ```
pub fn build(
    disk: &dyn Disk,
    data_set: &DataSet,
    options: &BuildOptions,
    on_progress: OnProgress<'_>,
) -> Result<BuildSummary> {
    let started = Instant::now();
    if let Some(log2) = options.partition_log2
        && !(1..=MAX_PARTITION_LOG2).contains(&log2)
    {
        return Err(Error::invalid(format!(
            "grid: partition_log2 {log2}, expected 1 to {MAX_PARTITION_LOG2}"
        )));
    }
    if Grid::is_built(data_set) && !options.overwrite {
        let mut summary = keep(data_set, options)?;
        summary.seconds = started.elapsed().as_secs_f64();
        return Ok(summary);
    }
    let mut builder = Builder::new(disk, data_set, options)?;
    let done = builder.build(on_progress);
    // What cannot be removed now is removed by the next build.
    let _ = disk.remove_dir_all(&data_set.root().join(TEMPORARY));
    match done {
        Ok(mut summary) => {
            summary.seconds = started.elapsed().as_secs_f64();
            Ok(summary)
        }
        Err(error) => {
            for path in &builder.files {
                let _ = disk.remove_file(path);
            }
            Err(explain(error).context(format!("grid of `{}`", data_set.root().display())))
        }
    }
}

/// Says what to do about a data set that may not be written to.
fn explain(error: Error) -> Error {
    const EACCES: i32 = 13;
    const EROFS: i32 = 30;
    match error.os_error() {
        Some(EACCES | EROFS) => {
            error.hint("build it with `outercore grid` where you may write, or copy the data set")
        }
        _ => error,
    }
}

/// The summary of the grid that is there.
///
/// # Errors
/// `Invalid` if it is stale or was built with other options.
fn keep(data_set: &DataSet, options: &BuildOptions) -> Result<BuildSummary> {
    let grid = Grid::open(data_set)?;
    let (header, shape) = (grid.header(), grid.shape());
    let other = |what: &str, found: &str, wanted: &str| {
        let root = data_set.root().display();
        Error::invalid(format!("the grid of `{root}` has {what} {found}, expected {wanted}"))
            .hint(format!("rebuild: `outercore grid {root} --overwrite`"))
    };
    if let Some(wanted) = options.weights.as_deref().map(short_name)
        && header.weights.as_deref() != Some(wanted)
    {
        let found = header.weights.as_deref().unwrap_or("none");
        return Err(other("weights", found, wanted));
    }
    if let Some(wanted) = options.order
        && shape.order != wanted
    {
        let name = |order: Order| format!("{order:?}").to_lowercase();
        return Err(other("order", &name(shape.order), &name(wanted)));
    }
    if let Some(wanted) = options.partition_log2
        && shape.partition_log2 != wanted
    {
        let found = shape.partition_log2.to_string();
        return Err(other("partition_log2", &found, &wanted.to_string()));
    }
    let input = Input::open(data_set, header.weights.is_some())?;
    let blocks =
        grid.pieces().chunk_by(|a, b| (a.row_part, a.col_part) == (b.row_part, b.col_part));
    let written = Written {
        bytes: header.codec_bytes,
        edges: shape.edges,
        pieces: grid.pieces().len() as u64,
        blocks: blocks.count() as u64,
        least_weight: header.least_weight,
    };
    let weights = header
        .weights
        .as_deref()
        .map_or(Ok(0), |name| data_set.array(&edge_array(name)).map(|array| array.data_len()))?;
    Ok(summary(shape, &written, input.bytes() + weights, 0))
}

fn short_name(name: &str) -> &str {
    name.strip_prefix("edges/edge/").unwrap_or(name)
}

fn summary(shape: &GridShape, written: &Written, input: u64, bytes: u64) -> BuildSummary {
    BuildSummary {
        nodes: shape.nodes,
        connected: shape.connected,
        arcs: shape.arcs,
        edges: shape.edges,
        partitions: shape.partitions() as u64,
        blocks: written.blocks,
        pieces: written.pieces,
        order: shape.order,
        symmetric: shape.symmetric,
        bytes: Bytes(written.bytes),
        bytes_per_arc: written.bytes as f64 / shape.arcs.max(1) as f64,
        input: Bytes(input),
        written: Bytes(bytes),
        seconds: 0.0,
    }
}

/// A build under way.
struct Builder<'a> {
    disk: &'a dyn Disk,
    data_set: &'a DataSet,
    options: &'a BuildOptions,
    input: Input,
    pool: ThreadPool,
    threads: usize,
    /// Files made so far, which a build that fails removes.
    files: Vec<PathBuf>,
    entries: Vec<(&'static str, ArrayEntry)>,
    /// Bytes of the temporary file.
    dealt: u64,
}

impl<'a> Builder<'a> {
    fn new(disk: &'a dyn Disk, data_set: &'a DataSet, options: &'a BuildOptions) -> Result<Self> {
        let threads = options.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(2, |threads| threads.get().min(16))
        });
        if threads == 0 {
            return Err(Error::invalid("grid: 0 threads, expected at least 1"));
        }
        let pool = ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| Error::new(ErrorKind::Io, error.to_string()).context("threads"))?;
        let input = Input::open(data_set, options.weights.is_some())?;
        Ok(Self {
            disk,
            data_set,
            options,
            input,
            pool,
            threads,
            files: Vec::new(),
            entries: Vec::new(),
            dealt: 0,
        })
    }

    fn build(&mut self, on_progress: OnProgress<'_>) -> Result<BuildSummary> {
        let weight_rows = self.weight_rows();
        let mut editor = ManifestEditor::open(self.disk, self.data_set.root())?;
        for key in header::ALL {
            editor.manifest_mut().arrays.remove(key);
        }
        self.disk.remove_dir_all(&self.data_set.root().join(TEMPORARY))?;
        let name = self.options.weights.as_deref().map(short_name);
        let facts = Facts {
            memory: self.options.memory,
            threads: self.threads,
            nodes: self.input.nodes,
            buffer_per_arc: self.input.buffer_per_arc(),
            record: if name.is_some() { 8 } else { 4 },
            weights: self.weight_array().map_or(0, |array| array.rows()),
        };
        facts.check_ordering(self.options.order.unwrap_or(Order::Natural))?;
        let weights = match name {
            Some(name) => read_weights(self.data_set, name, weight_rows)?,
            None => Vec::new(),
        };
        let (degrees, order) = self.degrees(&facts, on_progress)?;
        let mut shape = GridShape {
            nodes: self.input.nodes,
            connected: degrees.connected(),
            partition_log2: 0,
            order,
            symmetric: self.input.symmetric,
            arcs: self.input.arcs,
            edges: 0,
            weighted: name.is_some(),
        };
        shape.partition_log2 =
            self.options.partition_log2.unwrap_or_else(|| partition_log2(shape.connected));
        if shape.partitions() as u64 > MAX_PARTITIONS {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} partitions, expected at most {MAX_PARTITIONS}", shape.partitions()),
            )
            .hint("leave out `--partition-log2`, or make it larger"));
        }
        let ranks = Ranks::new(order, &degrees);
        self.write_nodes(&editor, &ranks, &degrees, on_progress)?;
        let (into, places) = ranks.places(degrees, &shape);
        let topology = header::topology(self.data_set.manifest(), name);
        let mut header = GridHeader::new(&shape, topology);
        header.weights = name.map(str::to_owned);
        let written = match name {
            None => {
                self.blocks::<u32>(&editor, &facts, into, places, weights, &mut header, on_progress)
            }
            Some(_) => {
                self.blocks::<u64>(&editor, &facts, into, places, weights, &mut header, on_progress)
            }
        }?;
        let mut writer = self.create(&editor, HEADER, DType::U8, &[])?;
        writer.write(&header.to_json()?)?;
        self.finish(HEADER, writer)?;
        let bytes = self.entries.iter().map(|(_, entry)| {
            entry.data_offset + entry.shape.iter().product::<u64>() * entry.dtype.size() as u64
        });
        let bytes = bytes.sum::<u64>() + self.dealt;
        let input = self.input.bytes() + self.weight_array().map_or(0, |array| array.data_len());
        for (key, entry) in self.entries.drain(..) {
            editor.insert(key, entry);
        }
        // From here on the files may be the data set's.
        self.files.clear();
        editor.commit()?;
        Ok(summary(&header.shape(), &written, input, bytes))
    }

    /// Rows that an edge array must have, where that is known.
    fn weight_rows(&self) -> Option<u64> {
        let manifest = self.data_set.manifest();
        match self.data_set.has_array(keys::EDGE_IDS) {
            true => manifest.edge_types.get(keys::EDGE).and_then(|edges| edges.rows),
            false => Some(self.input.arcs),
        }
    }

    /// The edge array of the weights, if it is there.
    fn weight_array(&self) -> Option<ArrayRef> {
        let name = self.options.weights.as_deref()?;
        self.data_set.array(&edge_array(name)).ok()
    }

    /// Degrees, and the order asked for or that suits.
    fn degrees(&self, facts: &Facts, on_progress: OnProgress<'_>) -> Result<(Degrees, Order)> {
        let Self { input, threads, .. } = self;
        let into = input
            .in_degrees(&mut |nodes| on_progress("in-degrees", nodes, input.nodes, "nodes"))?;
        let pass = self.pass(facts, &into);
        let out = match input.symmetric {
            true => None,
            false => Some(out_degrees(&pass, *threads, &mut |arcs| {
                on_progress("out-degrees", arcs, input.arcs, "arcs")
            })?),
        };
        let order = match self.options.order {
            Some(order) => order,
            // Sorting takes memory that keeping the given order does not.
            None if facts.check_ordering(Order::Degree).is_err() => Order::Natural,
            None => choose(&pass, input, *threads)?,
        };
        Ok((Degrees { into, out }, order))
    }

    fn pass<'b>(&'b self, facts: &Facts, degrees: &'b [u32]) -> Pass<'b> {
        let chunk = facts.chunk();
        Pass { input: &self.input, degrees, pool: &self.pool, chunk, rows: None, places: None }
    }

    /// Writes the order and the degrees.
    fn write_nodes(
        &mut self,
        editor: &ManifestEditor<'_>,
        ranks: &Ranks,
        degrees: &Degrees,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let total = self.input.nodes;
        let mut column = |builder: &mut Self, key, value: &dyn Fn(u32, bool) -> Option<u32>| {
            let mut writer = builder.create(editor, key, DType::U32, &[])?;
            let mut rows = Vec::with_capacity(STEP.min(total as usize));
            let mut done = 0;
            ranks.for_each(degrees, |node, has_arcs| {
                rows.extend(value(node, has_arcs));
                done += 1;
                if rows.len() == STEP {
                    writer.write_slice(&rows)?;
                    rows.clear();
                    on_progress("order", done, total, "nodes")?;
                }
                Ok(())
            })?;
            writer.write_slice(&rows)?;
            builder.finish(key, writer)
        };
        if !ranks.is_identity(degrees) {
            column(self, ORDER, &|node, _| Some(node))?;
        }
        column(self, OUT_DEGREES, &|node, has_arcs| {
            has_arcs.then(|| degrees.out_of(node as usize))
        })?;
        if degrees.out.is_some() {
            let into = |node: u32, has_arcs: bool| has_arcs.then(|| degrees.into[node as usize]);
            column(self, IN_DEGREES, &into)?;
        }
        Ok(())
    }

    /// Counts, deals and encodes the edges.
    #[expect(clippy::too_many_arguments, reason = "takes over what it can give back early")]
    fn blocks<R: Record>(
        &mut self,
        editor: &ManifestEditor<'_>,
        facts: &Facts,
        into: Vec<u32>,
        places: Vec<u32>,
        weights: Vec<f32>,
        header: &mut GridHeader,
        on_progress: OnProgress<'_>,
    ) -> Result<Written> {
        let layout = Layout::new(&header.shape());
        let (arcs, threads) = (self.input.arcs, self.threads);
        let pass = Pass { places: Some(&places), ..self.pass(facts, &into) };
        let counts = count(&pass, &places, layout, threads, &mut |done| {
            on_progress("count", done, arcs, "arcs")
        })?;
        header.edges = counts.edges.iter().sum();
        header.loops = counts.loops;
        let plan = facts.dealing(&counts.edges)?;
        let directory = self.data_set.root().join(TEMPORARY);
        let path = directory.join("edges");
        let mut dealt_bytes = 0;
        let mut sink = match plan.buffer {
            None => Sink::<R>::in_memory(&counts.edges),
            Some(capacity) => {
                self.disk.create_dir_all(&directory)?;
                dealt_bytes = header.edges * size_of::<R>() as u64;
                Sink::to_file(self.disk, &path, &counts.edges, capacity)?
            }
        };
        let rows = R::WEIGHTED.then_some(weights.len() as u64);
        let pass = Pass { rows, ..pass };
        deal(&pass, &places, layout, threads, &weights, &mut sink, &mut |done| {
            on_progress("deal", done, arcs, "arcs")
        })?;
        self.dealt = dealt_bytes;
        drop((into, places, weights));
        let dealt = match sink.into_memory() {
            Some(records) => Dealt::Memory(records),
            None => {
                Dealt::File(File::open(&path).with_context(|| format!("`{}`", path.display()))?)
            }
        };
        let weights = match R::WEIGHTED {
            true => Some(self.create(editor, WEIGHTS, DType::F32, &[])?),
            false => None,
        };
        let mut outputs = Outputs {
            blocks: self.create(editor, BLOCKS, DType::U8, &[])?,
            pieces: self.create(editor, PIECES, DType::U64, &[RECORD_WORDS as u64])?,
            weights,
            written: Written::default(),
        };
        let edges = header.edges;
        encode_all(
            dealt,
            &counts.edges,
            layout,
            plan.batch,
            &self.pool,
            &mut outputs,
            &mut |done| on_progress("encode", done, edges, "edges"),
        )?;
        self.finish(BLOCKS, outputs.blocks)?;
        self.finish(PIECES, outputs.pieces)?;
        if let Some(weights) = outputs.weights {
            self.finish(WEIGHTS, weights)?;
        }
        header.codec_bytes = outputs.written.bytes;
        header.least_weight = outputs.written.least_weight;
        Ok(outputs.written)
    }

    fn create(
        &mut self,
        editor: &ManifestEditor<'_>,
        key: &str,
        dtype: DType,
        row_shape: &[u64],
    ) -> Result<ArrayWriter> {
        let file = editor.free_file(key);
        self.files.push(self.data_set.root().join(&file));
        ArrayWriter::create(self.disk, self.data_set.root(), &file, dtype, row_shape)
    }

    fn finish(&mut self, key: &'static str, writer: ArrayWriter) -> Result<()> {
        self.entries.push((key, writer.finish()?));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_data_set_that_may_not_be_written_to_says_what_to_do() {
        for (number, is_explained) in [(13, true), (30, true), (5, false)] {
            let error = explain(Error::from(io::Error::from_raw_os_error(number)));
            assert_eq!(error.to_string().contains("where you may write"), is_explained, "{error}");
        }
    }
}
