//! What algorithms need and return.

use outercore_core::{Bytes, ReadCounters, Result, StageCounters};
use outercore_far::FarCounters;
use serde::Serialize;

use crate::program::Passes;

/// Values of all nodes, by node id.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Levels and distances in hops.
    I32(Vec<i32>),
    /// Ids and counts.
    I64(Vec<i64>),
    /// Ranks and distances.
    F64(Vec<f64>),
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
#[derive(Clone, Debug)]
pub struct Raw<T> {
    /// By partition, by local id.
    pub by_partition: Vec<Vec<T>>,
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
    /// The first passes, at most 1,000.
    pub by_pass: Vec<PassCounters>,
}

/// What a pass has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PassCounters {
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Bytes of blocks and weights that arrived meanwhile, those for the next pass included.
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
}

/// What the values of nodes can be.
pub trait NodeValue: Copy + Default + Send {
    /// A node's own id as a value.
    fn of_node(node: u32) -> Self;
    /// The value times a share of the teleport vector.
    fn scaled(self, share: f64) -> Self;
    /// Values of one type as values of any.
    fn wrap(values: Vec<Self>) -> Values;
}

impl NodeValue for i32 {
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
    raw: Raw<T>,
    teleport: &dyn Fn(u64) -> f64,
) -> Result<Vec<T>> {
    let mut values = vec![T::default(); run.shape().nodes as usize];
    for (part, found) in raw.by_partition.into_iter().enumerate() {
        for (node, value) in run.nodes(part)?.into_iter().zip(found) {
            values[node as usize] = value;
        }
    }
    run.isolated(&mut |nodes| {
        for &node in nodes {
            values[node as usize] = match raw.isolated {
                Isolated::Same(value) => value,
                Isolated::Itself => T::of_node(node),
                Isolated::Teleport(scale) => scale.scaled(teleport(u64::from(node))),
            };
        }
    })?;
    Ok(values)
}
