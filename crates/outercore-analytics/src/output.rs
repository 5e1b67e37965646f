//! Memory needs and results of algorithms.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outercore_core::{Bytes, Error, ErrorKind, ReadCounters, Result, StageCounters};
use outercore_far::FarCounters;
use outercore_format::{DType, NpyHeader};
use outercore_io::{Disk, RealDisk, WriteFile, path_of};
use serde::Serialize;

use crate::program::{Flow, Passes};
use crate::state::{Parts, PerNode, SpillCounters, Table, Traffic};

/// Values of all nodes, by node id.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Levels and distances in hops.
    I32(Vec<i32>),
    /// Ids and counts.
    I64(Vec<i64>),
    /// Ranks and distances.
    F64(Vec<f64>),
    /// Any of these types, in a file: for results that do not fit into memory.
    File(ResultFile),
}

impl Values {
    /// Moves the values to a file in `directory`, which needs no memory.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn into_file(self, directory: &Path) -> Result<ResultFile> {
        let (dtype, bytes): (_, &[u8]) = match &self {
            Self::File(file) => return Ok(file.clone()),
            Self::I32(values) => (i32::DTYPE, bytemuck::cast_slice(values)),
            Self::I64(values) => (i64::DTYPE, bytemuck::cast_slice(values)),
            Self::F64(values) => (f64::DTYPE, bytemuck::cast_slice(values)),
        };
        let len = bytes.len() as u64 / dtype.size() as u64;
        let mut unnamed = RealDisk.create_unnamed(directory)?;
        unnamed.file.write_all(&NpyHeader::encode(dtype, &[len]))?;
        unnamed.file.write_all(bytes)?;
        Ok(ResultFile { file: Arc::new(unnamed.into_handle()), dtype, len })
    }
}

/// A result as an `.npy` file without a name; it disappears when it is closed everywhere.
#[derive(Clone, Debug)]
pub struct ResultFile {
    /// The file, open for reading.
    pub file: Arc<File>,
    /// Type of the values.
    pub dtype: DType,
    /// Number of values.
    pub len: u64,
}

impl ResultFile {
    /// A path by which this process can open the file while this value exists.
    pub fn path(&self) -> PathBuf {
        path_of(&self.file)
    }
}

impl PartialEq for ResultFile {
    /// Whether it is the same file.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }
}

/// Memory needs of an algorithm; pure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Bytes of state per connected node.
    pub state_per_node: u64,
    /// Bytes that do not depend on the nodes and arcs.
    pub fixed: Bytes,
    /// Bytes of the result.
    pub output: Bytes,
    /// Additional memory that saves passes, if the algorithm can use any.
    pub working: Option<Working>,
    /// Number of passes over the grid, if known in advance.
    pub passes: Option<u64>,
    /// Needs with state in scratch files; `None` if that is not supported.
    pub spill: Option<SpillNeed>,
}

/// Needs of an algorithm with state in scratch files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillNeed {
    /// State that other partitions read, per node.
    pub shown: PerNode,
    /// State that never changes.
    pub fixed: PerNode,
    /// State that other partitions do not read.
    pub own: PerNode,
    /// Memory of a target partition.
    pub target: PerNode,
    /// Which state is read, and when.
    pub traffic: Traffic,
    /// Whether every pass except the last writes the own state.
    pub writes_own: bool,
    /// Whether a target may receive its sources in any order.
    pub any_order: bool,
    /// The direction in which values flow.
    pub flow: Flow,
    /// The table with the result.
    pub result: ResultTable,
}

/// A table from which a result is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultTable {
    /// State that other partitions read.
    Shown,
    /// State that other partitions do not read.
    Own,
}

/// Working memory: from the required minimum to the largest useful amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Working {
    /// The least sufficient memory.
    pub least: Bytes,
    /// More memory than this has no effect.
    pub most: Bytes,
}

/// The values of the nodes without arcs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Isolated<T> {
    /// The same value for all.
    Same(T),
    /// The id of the node.
    Itself,
    /// `scale` times the teleport vector's entry of the node.
    Teleport(T),
}

/// A result in the numbering of the grid.
#[derive(Debug)]
pub struct Raw<T> {
    /// Values by partition and local id.
    pub by_partition: Parts<T>,
    /// Values of the nodes without arcs.
    pub isolated: Isolated<T>,
    /// Additional facts about the result.
    pub facts: serde_json::Map<String, serde_json::Value>,
}

/// Cost of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counters {
    /// Number of passes over blocks.
    pub passes: u64,
    /// All reads: of blocks, weights and node arrays.
    pub reads: ReadCounters,
    /// Bytes of blocks and weights that were in memory when passes needed them.
    pub pinned_bytes: u64,
    /// Stored edges applied; an edge applied in both directions counts twice.
    pub arcs: u64,
    /// Wall-clock seconds from the first pass to the result.
    pub seconds: f64,
    /// The reading thread: `busy` copies, `starved` waits for the device, `blocked` waits for room.
    pub io: StageCounters,
    /// All computing threads together: `busy` computes, `starved` waits for bytes.
    pub compute: StageCounters,
    /// Iterations of the algorithm, if it has any.
    pub iterations: u64,
    /// Memory of the algorithm's state.
    pub peak_state: Bytes,
    /// Seconds before the first pass for filling far memory and reading pins; not included in
    /// `seconds`.
    pub prepare_seconds: f64,
    /// Reads from far memory, if there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<FarCounters>,
    /// Seconds within passes.
    pub pass_seconds: f64,
    /// Seconds within passes in which reads were in flight.
    pub device_seconds: f64,
    /// Seconds within passes in which threads computed, summed over threads.
    pub compute_seconds: f64,
    /// Share of the seconds within passes in which reads were in flight.
    pub device_busy: f64,
    /// Share of the threads' seconds within passes in which they computed.
    pub cores_busy: f64,
    /// Transfers to and from scratch files, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spill: Option<SpillCounters>,
    /// Number of checkpoints written.
    pub checkpoints: u64,
    /// Bytes of state written to them.
    pub checkpoint_bytes: u64,
    /// The first passes, at most 1,000.
    pub by_pass: Vec<PassCounters>,
}

/// Cost of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PassCounters {
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Bytes of blocks and weights that have arrived since the previous pass, including those for
    /// the next pass.
    pub bytes: u64,
    /// Bytes of blocks and weights that pins served.
    pub pinned_bytes: u64,
    /// Bytes of blocks and weights that had been read or requested before the pass began.
    pub ahead_bytes: u64,
    /// Stored edges applied.
    pub arcs: u64,
    /// Seconds in which reads were in flight.
    pub device_seconds: f64,
    /// Seconds in which the reading thread waited for room because the computing threads were
    /// behind.
    pub blocked_seconds: f64,
    /// Seconds in which threads computed, summed over threads.
    pub compute_seconds: f64,
    /// Number of computing threads.
    pub threads: u64,
    /// Bytes of state read from scratch files.
    #[serde(skip_serializing_if = "is_zero")]
    pub spill_read: u64,
    /// Bytes of state written to scratch files.
    #[serde(skip_serializing_if = "is_zero")]
    pub spill_written: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl std::ops::AddAssign for PassCounters {
    fn add_assign(&mut self, more: Self) {
        self.seconds += more.seconds;
        self.bytes += more.bytes;
        self.pinned_bytes += more.pinned_bytes;
        self.ahead_bytes += more.ahead_bytes;
        self.arcs += more.arcs;
        self.device_seconds += more.device_seconds;
        self.blocked_seconds += more.blocked_seconds;
        self.compute_seconds += more.compute_seconds;
        self.threads = self.threads.max(more.threads);
        self.spill_read += more.spill_read;
        self.spill_written += more.spill_written;
    }
}

/// Possible types of node values.
pub trait NodeValue: Copy + Default + Send + bytemuck::Pod {
    /// Type in the file.
    const DTYPE: DType;
    /// The id of a node as a value.
    fn of_node(node: u32) -> Self;
    /// The value times a share of the teleport vector.
    fn scaled(self, share: f64) -> Self;
    /// Wraps values of this type.
    fn wrap(values: Vec<Self>) -> Values;
}

impl NodeValue for i32 {
    const DTYPE: DType = DType::I32;
    fn of_node(node: u32) -> Self {
        node as i32
    }
    fn scaled(self, share: f64) -> Self {
        (f64::from(self) * share) as i32
    }
    fn wrap(values: Vec<Self>) -> Values {
        Values::I32(values)
    }
}

impl NodeValue for i64 {
    const DTYPE: DType = DType::I64;
    fn of_node(node: u32) -> Self {
        i64::from(node)
    }
    fn scaled(self, share: f64) -> Self {
        (self as f64 * share) as i64
    }
    fn wrap(values: Vec<Self>) -> Values {
        Values::I64(values)
    }
}

impl NodeValue for f64 {
    const DTYPE: DType = DType::F64;
    fn of_node(node: u32) -> Self {
        f64::from(node)
    }
    fn scaled(self, share: f64) -> Self {
        self * share
    }
    fn wrap(values: Vec<Self>) -> Values {
        Values::F64(values)
    }
}

/// Converts a result to the order of node ids. `teleport(node)` is the node's share of the teleport
/// vector; it is called if the result refers to the vector.
///
/// **Cost**: 8 bytes per node in addition to the result, which is freed partition by partition;
/// reads the grid's order.
///
/// # Errors
/// A failed read.
pub fn deliver<T: NodeValue, R: Passes>(
    run: &mut R,
    mut raw: Raw<T>,
    teleport: &dyn Fn(u64) -> f64,
) -> Result<Vec<T>> {
    let mut values = vec![T::default(); run.shape().nodes as usize];
    fill(run, &mut raw, teleport, 0, &mut values, true, &mut |run, part| run.nodes(part))?;
    Ok(values)
}

/// Like [`deliver`], but into an `.npy` file, `window` bytes at a time. The values of the nodes
/// `known` are given.
///
/// **Cost**: reads the result and the grid's order once per window.
///
/// # Errors
/// A failed read or write; a stop request.
pub(crate) fn deliver_file<T: NodeValue, R: Passes>(
    run: &mut R,
    mut raw: Raw<T>,
    teleport: &dyn Fn(u64) -> f64,
    known: (&[u64], T),
    directory: &Path,
    window: Bytes,
) -> Result<ResultFile> {
    let nodes = run.shape().nodes;
    let step = (window.0 / size_of::<T>() as u64).max(1);
    RealDisk.create_dir_all(directory)?;
    let mut unnamed = RealDisk.create_unnamed(directory)?;
    let mut write = |run: &mut R, file: &mut dyn WriteFile| -> Result<()> {
        let header = NpyHeader::encode(T::DTYPE, &[nodes]);
        if let Some(spill) = run.spill() {
            spill.hold(header.len() as u64 + nodes * size_of::<T>() as u64);
        }
        file.write_all(&header)?;
        // The order is stored by rank; with scratch files, it is distributed to the partitions
        // once.
        let mut ids = match run.spill() {
            Some(_) if step < nodes => Some(Table::build(run, 1, |run, part| run.nodes(part))?),
            _ => None,
        };
        let mut first = 0;
        while first < nodes {
            run.progress("result", first / step, nodes.div_ceil(step))?;
            let mut values = vec![T::default(); step.min(nodes - first) as usize];
            let is_last = first + step >= nodes;
            fill(run, &mut raw, teleport, first, &mut values, is_last, &mut |run, part| {
                match &mut ids {
                    Some(ids) => ids.with(part, |ids| Ok(ids.clone())),
                    None => run.nodes(part),
                }
            })?;
            for at in known.0.iter().filter_map(|node| node.checked_sub(first)) {
                if let Some(place) = values.get_mut(at as usize) {
                    *place = known.1;
                }
            }
            file.write_all(bytemuck::cast_slice(&values))?;
            first += step;
        }
        Ok(())
    };
    let written = write(run, &mut *unnamed.file);
    if let Err(error) = written {
        let shown = directory.display();
        if error.kind() == ErrorKind::NoSpace {
            let text = format!("result in `{shown}`: no space left on the device");
            return Err(Error::new(ErrorKind::NoSpace, text)
                .hint("free space, or choose another directory by `scratch`"));
        }
        return Err(match error.kind() {
            ErrorKind::Interrupted => error,
            _ => error.context(format!("result in `{shown}`")),
        });
    }
    Ok(ResultFile { file: Arc::new(unnamed.into_handle()), dtype: T::DTYPE, len: nodes })
}

/// Writes the values of nodes starting with `first` into `values`. `last` means that the result is
/// not needed again.
fn fill<T: NodeValue, R: Passes>(
    run: &mut R,
    raw: &mut Raw<T>,
    teleport: &dyn Fn(u64) -> f64,
    first: u64,
    values: &mut [T],
    last: bool,
    nodes: &mut dyn FnMut(&mut R, usize) -> Result<Vec<u32>>,
) -> Result<()> {
    let mut put = |node: u32, value: T| {
        if let Some(at) = u64::from(node).checked_sub(first)
            && let Some(place) = values.get_mut(at as usize)
        {
            *place = value;
        }
    };
    let here = raw.by_partition.here();
    if here.is_empty() {
        for part in 0..run.shape().partitions() {
            let found = raw.by_partition.take(part, last)?;
            for (node, value) in nodes(run, part)?.into_iter().zip(found) {
                put(node, value);
            }
        }
    } else {
        // One scan of the order, instead of one per few partitions.
        run.scan_nodes(&mut |part, local, node| put(node, here[part][local]))?;
    }
    if last {
        raw.by_partition = Parts::Here(Vec::new());
    }
    let isolated = raw.isolated;
    run.isolated(&mut |nodes| {
        for &node in nodes {
            put(
                node,
                match isolated {
                    Isolated::Same(value) => value,
                    Isolated::Itself => T::of_node(node),
                    Isolated::Teleport(scale) => scale.scaled(teleport(u64::from(node))),
                },
            );
        }
    })
}
