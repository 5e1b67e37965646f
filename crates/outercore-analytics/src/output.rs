//! What algorithms need and return.

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
    /// Any of these, in a file: where memory has no room for a result.
    File(ResultFile),
}

impl Values {
    /// The values as a file in `directory`, which needs no memory.
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

/// A result as an `.npy` that has no name and is gone when nobody has it open.
#[derive(Clone, Debug)]
pub struct ResultFile {
    /// The file, open for reading.
    pub file: Arc<File>,
    /// What a value is.
    pub dtype: DType,
    /// How many there are.
    pub len: u64,
}

impl ResultFile {
    /// A path by which this process can open it, as long as this value is there.
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

/// What an algorithm takes; pure, beside each algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Bytes of state for each connected node.
    pub state_per_node: u64,
    /// Bytes whatever the graph.
    pub fixed: Bytes,
    /// Bytes of the result.
    pub output: Bytes,
    /// Memory in which more saves passes, where there is any.
    pub working: Option<Working>,
    /// Passes over the grid, where they are known beforehand.
    pub passes: Option<u64>,
    /// What it takes where its state is in scratch files; `None` where that cannot be.
    pub spill: Option<SpillNeed>,
}

/// What an algorithm takes where its state is in scratch files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpillNeed {
    /// What others read, for each node.
    pub shown: PerNode,
    /// What never changes.
    pub fixed: PerNode,
    /// What nobody else reads.
    pub own: PerNode,
    /// Memory of a target partition.
    pub target: PerNode,
    /// What is read when.
    pub traffic: Traffic,
    /// Whether every pass but the last writes what is its own.
    pub writes_own: bool,
    /// Whether a target may hear its sources in any order.
    pub any_order: bool,
    /// Which way values flow.
    pub flow: Flow,
    /// Which table the result is in.
    pub result: ResultTable,
}

/// A table that a result is delivered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultTable {
    /// What others read.
    Shown,
    /// What nobody else reads.
    Own,
}

/// Working memory: from what works at all to where more does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Working {
    /// The least that works.
    pub least: Bytes,
    /// More than this does not help.
    pub most: Bytes,
}

/// The values of the nodes without arcs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Isolated<T> {
    /// The same for all.
    Same(T),
    /// Its own id.
    Itself,
    /// `scale` times the teleport vector's entry of the node.
    Teleport(T),
}

/// A result in the numbering of the grid.
#[derive(Debug)]
pub struct Raw<T> {
    /// By partition, by local id.
    pub by_partition: Parts<T>,
    /// The nodes without arcs.
    pub isolated: Isolated<T>,
    /// What is worth saying beside the values.
    pub facts: serde_json::Map<String, serde_json::Value>,
}

/// What a run has cost.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counters {
    /// Passes over blocks.
    pub passes: u64,
    /// All reads: blocks, weights, node arrays.
    pub reads: ReadCounters,
    /// Bytes of blocks and weights that passes found in memory.
    pub pinned_bytes: u64,
    /// Stored edges applied; an edge that is applied both ways counts twice.
    pub arcs: u64,
    /// Wall-clock seconds from the first pass to the result.
    pub seconds: f64,
    /// The reading thread: `busy` copies, `starved` waits for the device, `blocked` for room.
    pub io: StageCounters,
    /// The computing threads together: `busy` computes, `starved` waits for bytes.
    pub compute: StageCounters,
    /// Iterations of the algorithm, where it has any.
    pub iterations: u64,
    /// Memory of the algorithm's state.
    pub peak_state: Bytes,
    /// Seconds before the first pass in which far memory was filled and pins were read; not part of
    /// `seconds`.
    pub prepare_seconds: f64,
    /// What far memory has served, where there is any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<FarCounters>,
    /// Seconds within passes.
    pub pass_seconds: f64,
    /// Of those, seconds in which reads were in flight.
    pub device_seconds: f64,
    /// Seconds in which threads computed within passes, all together.
    pub compute_seconds: f64,
    /// Of the seconds within passes, the share in which reads were in flight.
    pub device_busy: f64,
    /// Of the threads' seconds within passes, the share in which they computed.
    pub cores_busy: f64,
    /// What was moved to scratch files and back, where there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spill: Option<SpillCounters>,
    /// Checkpoints that were left.
    pub checkpoints: u64,
    /// Bytes of state written to them.
    pub checkpoint_bytes: u64,
    /// The first passes, at most 1,000.
    pub by_pass: Vec<PassCounters>,
}

/// What a pass has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PassCounters {
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Bytes of blocks and weights that have arrived since the pass before, those for the next pass
    /// included.
    pub bytes: u64,
    /// Bytes of blocks and weights that pins served.
    pub pinned_bytes: u64,
    /// Bytes of blocks and weights that had been read, or asked for, before the pass began.
    pub ahead_bytes: u64,
    /// Stored edges applied.
    pub arcs: u64,
    /// Seconds in which reads were in flight.
    pub device_seconds: f64,
    /// Seconds in which the reading thread waited for room: the threads are behind.
    pub blocked_seconds: f64,
    /// Seconds in which threads computed, all together.
    pub compute_seconds: f64,
    /// Threads that computed.
    pub threads: u64,
    /// Bytes of state read from scratch files.
    #[serde(skip_serializing_if = "is_zero")]
    pub spill_read: u64,
    /// Bytes of state written to them.
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

/// What the values of nodes can be.
pub trait NodeValue: Copy + Default + Send + bytemuck::Pod {
    /// What it is in a file.
    const DTYPE: DType;
    /// A node's own id as a value.
    fn of_node(node: u32) -> Self;
    /// The value times a share of the teleport vector.
    fn scaled(self, share: f64) -> Self;
    /// Values of one type as values of any.
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

/// Brings a result into the order of node ids; `teleport(node)` is the node's share of the teleport
/// vector, asked for where the result is in those terms.
///
/// **Cost**: 8 bytes a node beside the result, which is freed partition by partition; reads the
/// grid's order.
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

/// The same into an `.npy`, `window` bytes at a time; the value of the nodes `known` is given.
///
/// **Cost**: reads the result and the grid's order once for each window.
///
/// # Errors
/// A failed read or write; the wish to stop.
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
        // The order lies by rank: with scratch files it is dealt to the partitions once.
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
                .hint("free space, or choose another directory with --set scratch=DIR"));
        }
        return Err(match error.kind() {
            ErrorKind::Interrupted => error,
            _ => error.context(format!("result in `{shown}`")),
        });
    }
    Ok(ResultFile { file: Arc::new(unnamed.into_handle()), dtype: T::DTYPE, len: nodes })
}

/// Puts the values of the nodes from `first` on into `values`; `last`: the result is not wanted
/// again.
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
        // One scan of the order, instead of one for each few partitions.
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
