//! The interface of a run for algorithms: passes, portions of passes, and arrays of nodes.

use std::sync::{Arc, Mutex, PoisonError};

use outercore_core::{Bytes, Result};
use outercore_grid::{Arcs, GridShape};
use rayon::prelude::*;

use super::drive::heed;
use super::node_arrays::NodeArray;
use super::work::Hands;
use super::{Phase, StreamRun};
use crate::checkpoint::Checkpoints;
use crate::output::PassCounters;
use crate::program::{Degree, EdgeProgram, Passes, Selection};
use crate::schedule::{ends, tasks};
use crate::state::Spill;
use crate::task::Task;

impl Passes for StreamRun<'_> {
    fn shape(&self) -> &GridShape {
        self.shared.layout.grid.shape()
    }

    fn expect(&mut self, next: &Selection<'_>) {
        let possible = !next.weights || self.plan.weighted;
        self.expected =
            (self.shared.layout.buffering && possible).then(|| (self.tasks(next), next.weights));
    }

    fn tasks(&self, select: &Selection<'_>) -> Vec<Vec<Task>> {
        let grid = &self.shared.layout.grid;
        tasks(grid.pieces(), grid.shape().symmetric, select)
    }

    fn source_of(&self, task: Task) -> usize {
        ends(&self.shared.layout.grid.pieces()[task.piece()], task.side()).0
    }

    fn portion<P: EdgeProgram>(
        &mut self,
        program: &P,
        sources: &[P::Source],
        targets: &mut [P::Target],
        weights: bool,
        tasks: Vec<Vec<Task>>,
        next: Option<Vec<Vec<Task>>>,
    ) -> Result<()> {
        if self.shared.layout.buffering
            && let Some(next) = next
        {
            self.expected = Some((next, weights));
        }
        let shared = Arc::clone(&self.shared);
        let pieces = shared.layout.grid.pieces();
        let targets: Vec<Mutex<&mut P::Target>> = targets.iter_mut().map(Mutex::new).collect();
        let hands = Hands::Many(&|target, task, arcs| {
            let (source, _) = ends(&pieces[task.piece()], task.side());
            // The lock is always free: only one thread at a time claims a list.
            let mut target = targets[target].lock().unwrap_or_else(PoisonError::into_inner);
            program.apply(arcs, &sources[source], &mut target);
            Ok(())
        });
        self.drive(tasks, weights, hands)
    }

    fn begin_portions(&mut self) {
        // Transfers between passes belong to no pass.
        self.moved();
        self.portions = Some(PassCounters::default());
    }

    fn end_portions(&mut self) {
        let moved = self.moved();
        if let Some(mut pass) = self.portions.take() {
            pass.spill_read += moved.read.0;
            pass.spill_written += moved.written.0;
            self.count(pass);
        }
    }

    fn spill(&self) -> Option<Arc<Spill>> {
        self.spill.clone()
    }

    fn checkpoints(&mut self) -> Option<&mut Checkpoints> {
        self.checkpoints.as_mut()
    }

    fn pass<P: EdgeProgram>(
        &mut self,
        program: &P,
        sources: &[P::Source],
        targets: &mut [P::Target],
        select: &Selection<'_>,
    ) -> Result<()> {
        let tasks = self.tasks(select);
        self.portion(program, sources, targets, select.weights, tasks, None)
    }

    fn stream(
        &mut self,
        select: &Selection<'_>,
        each: &mut dyn FnMut(usize, usize, &Arcs<'_>) -> Result<()>,
    ) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let grid = &shared.layout.grid;
        let by_target = tasks(grid.pieces(), grid.shape().symmetric, select);
        // A single list of all tasks is executed in file order.
        let mut all: Vec<Task> = by_target.into_iter().flatten().collect();
        all.sort_unstable();
        let hands = Hands::One(&mut |_, task, arcs| {
            let piece = &grid.pieces()[task.piece()];
            each(piece.row_part as usize, piece.col_part as usize, arcs)
        });
        self.drive(vec![all], select.weights, hands)
    }

    fn partitions<T: Send>(&mut self, each: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let partitions = self.shape().partitions();
        self.pool.install(|| (0..partitions).into_par_iter().map(&each).collect())
    }

    fn degrees(&mut self, which: Degree, partition: usize) -> Result<Vec<u32>> {
        self.node_array(NodeArray::Degrees(which), partition)
    }

    fn nodes(&mut self, partition: usize) -> Result<Vec<u32>> {
        self.node_array(NodeArray::Order, partition)
    }

    fn scan_degrees(
        &mut self,
        which: Degree,
        each: &mut dyn FnMut(usize, usize, u32),
    ) -> Result<()> {
        self.shared.drop_ahead();
        self.shared.layout.scan(&mut self.reader.engine(), NodeArray::Degrees(which), each)
    }

    fn scan_nodes(&mut self, each: &mut dyn FnMut(usize, usize, u32)) -> Result<()> {
        self.shared.drop_ahead();
        self.shared.layout.scan(&mut self.reader.engine(), NodeArray::Order, each)
    }

    fn isolated(&mut self, each: &mut dyn FnMut(&[u32])) -> Result<()> {
        self.shared.drop_ahead();
        self.shared.layout.isolated(&mut self.reader.engine(), each)
    }

    fn place(&mut self, nodes: &[u64]) -> Result<Vec<Option<(usize, usize)>>> {
        self.shared.drop_ahead();
        self.shared.layout.place(&mut self.reader.engine(), nodes)
    }

    fn working(&self) -> Bytes {
        self.plan.working
    }

    fn progress(&mut self, what: &str, done: u64, total: u64) -> Result<()> {
        self.phase = Phase { what: what.to_owned(), done, total };
        heed((self.on_progress)(what, done, total, "passes"), &mut self.checkpoints)
    }
}

impl StreamRun<'_> {
    /// The part of a node array that belongs to a partition.
    fn node_array(&mut self, what: NodeArray, partition: usize) -> Result<Vec<u32>> {
        self.shared.drop_ahead();
        let layout = &self.shared.layout;
        layout.node_array(&mut self.reader.engine(), &mut self.dealt, what, partition)
    }
}
