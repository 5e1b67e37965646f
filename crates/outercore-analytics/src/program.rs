//! What an algorithm says, and what runs it.

use std::sync::Arc;

use outercore_core::{Bytes, Result};
use outercore_grid::{Arcs, GridShape};

use crate::checkpoint::Checkpoints;
use crate::state::Spill;
use crate::task::Task;

/// What happens along an arc. Called for one piece and one direction at a time.
///
/// # Contract
/// - A target partition is held by one thread at a time and sees its pieces in file order: the same sums for every
///   number of threads, budget and back end.
/// - `source` does not change during a pass.
pub trait EdgeProgram: Sync {
    /// Per partition, read by everybody during a pass.
    type Source: Sync;
    /// Per partition, changed by its holder.
    type Target: Send;
    /// Applies `arcs`.
    fn apply(&self, arcs: &Arcs<'_>, source: &Self::Source, target: &mut Self::Target);
}

/// Reads `values`, one for each column of a piece, from beginning to end before the arcs read them
/// in their order: from the cache that the cores share, a stream of cache lines comes several times
/// as fast as single ones. Does nothing for a piece of few arcs: with three a line a pass took 0.8
/// of the time, with one and a half 1.1.
pub(crate) fn fetch<T: bytemuck::Pod>(arcs: &Arcs<'_>, values: &[T]) {
    const LINE: usize = 64;
    const ARCS_A_LINE: usize = 2;
    let lines = bytemuck::cast_slice::<T, u8>(values).as_chunks::<LINE>().0;
    if arcs.columns.len() >= ARCS_A_LINE * lines.len() {
        let sum = lines.iter().fold(0, |sum: u8, line| sum.wrapping_add(line[0]));
        std::hint::black_box(sum);
    }
}

/// Which way values flow in a pass. On a symmetric grid the first three are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// From the source of an arc to its target.
    Along,
    /// From the target of an arc to its source.
    Against,
    /// Both: arcs as edges without direction. A loop of a directed grid counts twice.
    Both,
    /// Every stored edge once, `ToRows`: for programs that do not mind the direction.
    Once,
}

/// What a pass needs: a piece is visited in a direction if its source partition and its target partition are set.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// By partition.
    pub sources: &'a [bool],
    /// By partition.
    pub targets: &'a [bool],
    /// Direction.
    pub flow: Flow,
    /// Whether the program looks at weights; the grid must have them.
    pub weights: bool,
}

/// Which degree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Degree {
    /// Arcs that end at a node.
    In,
    /// Arcs that start at a node.
    Out,
}

/// Something that makes passes over a grid: from disk (`StreamRun`) or from memory ([`MemoryRun`](crate::MemoryRun), the reference).
pub trait Passes {
    /// The grid.
    fn shape(&self) -> &GridShape;
    /// One pass. `sources` and `targets` have an entry for each partition.
    ///
    /// # Errors
    /// A failed or corrupt read; the wish to stop.
    fn pass<P: EdgeProgram>(
        &mut self,
        program: &P,
        sources: &[P::Source],
        targets: &mut [P::Target],
        select: &Selection<'_>,
    ) -> Result<()>;
    /// The tasks of a pass, by target partition, each list in file order.
    fn tasks(&self, select: &Selection<'_>) -> Vec<Vec<Task>>;
    /// The partition that a task's values come from.
    fn source_of(&self, task: Task) -> usize;
    /// Some tasks of a pass, by target partition; `next` is what the next portion will do. Together,
    /// and target by target in file order, they are a pass.
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
    /// Portions that follow count as one pass, until [`Passes::end_portions`].
    fn begin_portions(&mut self) {}
    /// The pass that was done in portions is over.
    fn end_portions(&mut self) {}
    /// Scratch files for state that memory has no room for, where there are any.
    fn spill(&self) -> Option<Arc<Spill>> {
        None
    }
    /// Where checkpoints are left, if they are.
    fn checkpoints(&mut self) -> Option<&mut Checkpoints> {
        None
    }
    /// Says what the pass after the next one will probably want, so that it can be read while the
    /// next one ends and state is brought up to date (Fargraph+ 6.2). A hint for one pass: what
    /// turns out otherwise is read again, and reading node arrays in between forgets it.
    fn expect(&mut self, _next: &Selection<'_>) {}
    /// The selected pieces in file order on the calling thread: `each(row_partition, column_partition, arcs)`.
    fn stream(
        &mut self,
        select: &Selection<'_>,
        each: &mut dyn FnMut(usize, usize, &Arcs<'_>) -> Result<()>,
    ) -> Result<()>;
    /// Calls `each(partition)` for all partitions in parallel; results by partition.
    fn partitions<T: Send>(&mut self, each: impl Fn(usize) -> T + Sync) -> Vec<T>;
    /// The degrees in a partition, by local id.
    fn degrees(&mut self, which: Degree, partition: usize) -> Result<Vec<u32>>;
    /// The node ids in a partition, by local id.
    fn nodes(&mut self, partition: usize) -> Result<Vec<u32>>;
    /// The degrees in all partitions, `each(partition, local id, degree)`, in the order in which they
    /// lie: one scan, where asking for one partition after the other takes several.
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
    /// The node ids in all partitions, likewise.
    fn scan_nodes(&mut self, each: &mut dyn FnMut(usize, usize, u32)) -> Result<()> {
        for partition in 0..self.shape().partitions() {
            let nodes = self.nodes(partition)?;
            nodes.into_iter().enumerate().for_each(|(local, node)| each(partition, local, node));
        }
        Ok(())
    }
    /// The node ids without arcs are passed in runs to `each`.
    fn isolated(&mut self, each: &mut dyn FnMut(&[u32])) -> Result<()>;
    /// Partition and local id of a node; `None` if it has no arc. Scans the order: at most one call a run or two.
    fn place(&mut self, nodes: &[u64]) -> Result<Vec<Option<(usize, usize)>>>;
    /// Memory beyond state that the plan gave the algorithm (gather slots).
    fn working(&self) -> Bytes;
    /// Says how far an algorithm is (`iteration 3`, done, total) and asks whether to stop.
    fn progress(&mut self, what: &str, done: u64, total: u64) -> Result<()>;
}
