//! The interface between algorithms and the implementations of passes.

use std::sync::Arc;

use outercore_core::{Bytes, Result};
use outercore_grid::{Arcs, GridShape};

use crate::checkpoint::Checkpoints;
use crate::state::Spill;
use crate::task::Task;

/// The work per arc. It is called for one piece and one direction at a time.
///
/// # Contract
/// - A target partition is used by one thread at a time and receives its pieces in file order.
///   Sums are therefore the same for every number of threads, budget and back end.
/// - `source` does not change during a pass.
pub trait EdgeProgram: Sync {
    /// Per partition; all threads read it during a pass.
    type Source: Sync;
    /// Per partition; changed only by the thread that uses it.
    type Target: Send;
    /// Processes `arcs`.
    fn apply(&self, arcs: &Arcs<'_>, source: &Self::Source, target: &mut Self::Target);
}

/// Reads `values`, one for each column of a piece, from start to end, before the arcs read them in
/// arc order. From the shared cache of the cores, a stream of cache lines arrives several times as
/// fast as single lines. Does nothing for a piece with few arcs: with three arcs per line a pass
/// took 0.8 of the time, with one and a half 1.1.
pub(crate) fn fetch<T: bytemuck::Pod>(arcs: &Arcs<'_>, values: &[T]) {
    const LINE: usize = 64;
    const ARCS_A_LINE: usize = 2;
    let lines = bytemuck::cast_slice::<T, u8>(values).as_chunks::<LINE>().0;
    if arcs.columns.len() >= ARCS_A_LINE * lines.len() {
        let sum = lines.iter().fold(0, |sum: u8, line| sum.wrapping_add(line[0]));
        std::hint::black_box(sum);
    }
}

/// The direction in which values flow in a pass. On a symmetric grid the first three are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// From the source of an arc to its target.
    Along,
    /// From the target of an arc to its source.
    Against,
    /// In both directions: arcs as edges without direction. A loop of a directed grid counts twice.
    Both,
    /// Every stored edge once, `ToRows`: for programs that ignore the direction.
    Once,
}

/// The needs of a pass: a piece is visited in a direction if its source partition and its target
/// partition are both set.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// By partition.
    pub sources: &'a [bool],
    /// By partition.
    pub targets: &'a [bool],
    /// Direction.
    pub flow: Flow,
    /// Whether the program uses weights; the grid must have them.
    pub weights: bool,
}

/// In-degree or out-degree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Degree {
    /// Arcs that end at a node.
    In,
    /// Arcs that start at a node.
    Out,
}

/// Makes passes over a grid: from disk (`StreamRun`) or from memory
/// ([`MemoryRun`](crate::MemoryRun), the reference).
pub trait Passes {
    /// The grid.
    fn shape(&self) -> &GridShape;
    /// Makes one pass. `sources` and `targets` have one entry per partition.
    ///
    /// # Errors
    /// A failed or corrupt read; a stop request.
    fn pass<P: EdgeProgram>(
        &mut self,
        program: &P,
        sources: &[P::Source],
        targets: &mut [P::Target],
        select: &Selection<'_>,
    ) -> Result<()>;
    /// The tasks of a pass, by target partition, each list in file order.
    fn tasks(&self, select: &Selection<'_>) -> Vec<Vec<Task>>;
    /// The source partition of a task.
    fn source_of(&self, task: Task) -> usize;
    /// Executes some tasks of a pass, by target partition; `next` are the tasks of the next
    /// portion. All portions together, with the tasks of each target in file order, are a pass.
    ///
    /// # Errors
    /// As [`Passes::pass`].
    fn portion<P: EdgeProgram>(
        &mut self,
        program: &P,
        sources: &[P::Source],
        targets: &mut [P::Target],
        weights: bool,
        tasks: Vec<Vec<Task>>,
        next: Option<Vec<Vec<Task>>>,
    ) -> Result<()>;
    /// Starts a pass in portions: they count as one pass until [`Passes::end_portions`].
    fn begin_portions(&mut self) {}
    /// Ends the pass in portions.
    fn end_portions(&mut self) {}
    /// Scratch files for state that does not fit into memory, if there are any.
    fn spill(&self) -> Option<Arc<Spill>> {
        None
    }
    /// The checkpoints, if any are written.
    fn checkpoints(&mut self) -> Option<&mut Checkpoints> {
        None
    }
    /// Announces the probable needs of the pass after the next one. They can then be read while the
    /// next pass ends and state is updated (Fargraph+ 6.2). This is a hint for one pass: after a
    /// wrong hint, data is read again, and reading node arrays in between discards it.
    fn expect(&mut self, _next: &Selection<'_>) {}
    /// Delivers the selected pieces in file order on the calling thread: `each(row_partition,
    /// column_partition, arcs)`.
    fn stream(
        &mut self,
        select: &Selection<'_>,
        each: &mut dyn FnMut(usize, usize, &Arcs<'_>) -> Result<()>,
    ) -> Result<()>;
    /// Calls `each(partition)` for all partitions in parallel; returns the results by partition.
    fn partitions<T: Send>(&mut self, each: impl Fn(usize) -> T + Sync) -> Vec<T>;
    /// The degrees in a partition, by local id.
    fn degrees(&mut self, which: Degree, partition: usize) -> Result<Vec<u32>>;
    /// The node ids in a partition, by local id.
    fn nodes(&mut self, partition: usize) -> Result<Vec<u32>>;
    /// Passes the degrees in all partitions to `each(partition, local id, degree)`, in storage
    /// order. This takes one scan; separate calls per partition take several.
    fn scan_degrees(
        &mut self,
        which: Degree,
        each: &mut dyn FnMut(usize, usize, u32),
    ) -> Result<()> {
        for partition in 0..self.shape().partitions() {
            let degrees = self.degrees(which, partition)?;
            degrees
                .into_iter()
                .enumerate()
                .for_each(|(local, value)| each(partition, local, value));
        }
        Ok(())
    }
    /// Passes the node ids in all partitions to `each(partition, local id, node)`, in storage
    /// order.
    fn scan_nodes(&mut self, each: &mut dyn FnMut(usize, usize, u32)) -> Result<()> {
        for partition in 0..self.shape().partitions() {
            let nodes = self.nodes(partition)?;
            nodes.into_iter().enumerate().for_each(|(local, node)| each(partition, local, node));
        }
        Ok(())
    }
    /// Passes the ids of nodes without arcs to `each`, in runs.
    fn isolated(&mut self, each: &mut dyn FnMut(&[u32])) -> Result<()>;
    /// Partition and local id of each node; `None` if it has no arcs. Scans the order, so call it
    /// at most once or twice per run.
    fn place(&mut self, nodes: &[u64]) -> Result<Vec<Option<(usize, usize)>>>;
    /// Memory in addition to state that the plan gives the algorithm (gather slots).
    fn working(&self) -> Bytes;
    /// Reports the progress of an algorithm (`iteration 3`, done, total); returns an error if the
    /// run should stop.
    fn progress(&mut self, what: &str, done: u64, total: u64) -> Result<()>;
}
