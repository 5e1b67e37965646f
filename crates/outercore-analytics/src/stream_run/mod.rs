//! Passes over a grid on disk: one thread reads ahead, others apply pieces in file order.
//!
//! [`layout`] says what a pass has to read, [`reader`] reads it, [`work`] computes, and [`shared`] is
//! what they have in common. [`node_arrays`] are read between passes.

mod layout;
mod loaded;
mod node_arrays;
mod reader;
mod shared;
mod work;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_far::{FarCounters, FarTier};
use outercore_grid::{Arcs, Decoder, Grid, GridShape};
use outercore_io::{Engine, return_free_memory};
use outercore_store::dataset::DataSet;
use rayon::prelude::*;

use self::layout::{Files, Layout, PartSlots};
use self::node_arrays::{Dealt, NodeArray};
use self::reader::Reader;
use self::shared::Shared;
use self::work::Hands;
use crate::checkpoint::Checkpoints;
use crate::output::{Counters, PassCounters};
use crate::pins::choose;
use crate::plan::RunPlan;
use crate::profile::Profile;
use crate::program::{Degree, EdgeProgram, Passes, Selection};
use crate::schedule::{Task, ends, tasks};
use crate::segments::{segment_of, segments};
use crate::state::{Spill, SpillCounters};

/// Told what a run does, how far it has come, how far it has to go (0: not known), and in which
/// unit. An error stops the run.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64, &str) -> Result<()>;

/// Below so many arcs, all in memory, threads cost more than they bring: passes over road networks
/// are tiny, and there are thousands.
const FEW_ARCS: u64 = 1 << 17;

/// Passes that are counted one by one.
const COUNTED_PASSES: usize = 1_000;

/// Passes over a grid on disk, within a memory plan.
///
/// Every target partition gets its pieces in file order, so results have the same bits as with
/// [`MemoryRun`](crate::MemoryRun), whatever the budget, the threads and the back end.
pub struct StreamRun<'a> {
    shared: Arc<Shared>,
    reader: Reader,
    plan: RunPlan,
    decoders: Vec<Decoder>,
    pool: rayon::ThreadPool,
    threads: usize,
    dealt: Option<Dealt>,
    /// The tasks of the pass after the next one, and whether it wants weights.
    expected: Option<(Vec<Vec<Task>>, bool)>,
    /// Of a pass in portions: what they have cost so far.
    portions: Option<PassCounters>,
    /// Bytes that had arrived when a pass, or a portion of one, was last counted.
    bytes_seen: u64,
    /// Scratch files for state, where it has no room, and what was moved when the pass began.
    spill: Option<Arc<Spill>>,
    spilled: SpillCounters,
    checkpoints: Option<Checkpoints>,
    counters: Counters,
    /// By segment: how many passes wanted it, where that is asked for.
    wanted: Option<Vec<u32>>,
    /// Far memory below the engine, and what it had done before.
    far: Option<(Arc<FarTier>, FarCounters)>,
    started: Instant,
    phase: Phase,
    on_progress: OnProgress<'a>,
}

/// How a run makes its passes.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Threads that compute.
    pub threads: usize,
    /// Whether to read while others compute; without, one segment is read, then computed.
    pub buffering: bool,
    /// Whether to count what passes want.
    pub profile: bool,
    /// The profile of an earlier run, by which to choose what stays in memory.
    pub reads_by_segment: Option<Vec<u32>>,
}

impl StreamOptions {
    /// The defaults, with so many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads, buffering: true, profile: false, reads_by_segment: None }
    }
}

/// What the algorithm last said of its progress.
#[derive(Clone, Debug)]
struct Phase {
    what: String,
    done: u64,
    total: u64,
}

impl<'a> StreamRun<'a> {
    /// Prepares passes over `grid` as `plan` says; `engine` reads all files.
    ///
    /// **Cost**: opens files; reads nothing.
    ///
    /// # Errors
    /// A missing file; `Invalid`: the plan wants weights that the grid has not; no threads.
    pub fn open(
        data_set: &DataSet,
        grid: Grid,
        plan: RunPlan,
        mut engine: Engine,
        options: &StreamOptions,
        on_progress: OnProgress<'a>,
    ) -> Result<Self> {
        if plan.weighted && grid.weights().is_none() {
            let root = data_set.root().display();
            return Err(Error::invalid(format!("the grid of `{root}` has no weights"))
                .hint(format!("run `outercore grid {root} --weights NAME --overwrite`")));
        }
        let files = Files::register(&mut engine, &grid)?;
        let segments = segments(grid.pieces());
        let segment_of = segment_of(&segments, grid.pieces().len());
        let sizes: Vec<u64> = segments.iter().map(|s| s.bytes(plan.weighted)).collect();
        let threads = options.threads.max(1);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|number| format!("outercore-nodes-{number}"))
            .build()
            .map_err(|error| Error::new(ErrorKind::Io, format!("no threads: {error}")))?;
        let wanted = options.profile.then(|| vec![0; segments.len()]);
        let shared = Arc::new(Shared::new(Layout {
            pins: choose(&sizes, plan.pinned.0, options.reads_by_segment.as_deref()),
            segment_of: segment_of.into(),
            weighted: plan.weighted,
            slots: PartSlots::within(plan.window, &engine, &segments, plan.weighted)?,
            buffering: options.buffering,
            grid,
            files,
            segments,
        }));
        Ok(Self {
            reader: Reader::new(Arc::clone(&shared), engine),
            shared,
            decoders: (0..threads).map(|_| Decoder::default()).collect(),
            counters: Counters { peak_state: plan.state, ..Counters::default() },
            wanted,
            far: None,
            started: Instant::now(),
            phase: Phase { what: "pass".into(), done: 0, total: 0 },
            dealt: None,
            expected: None,
            portions: None,
            bytes_seen: 0,
            spill: None,
            spilled: SpillCounters::default(),
            checkpoints: None,
            plan,
            pool,
            threads,
            on_progress,
        })
    }

    /// What the passes so far have cost.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        counters.reads = self.reader.engine().counters();
        counters.io = self.shared.lock().reader.counters;
        counters.far = self.far.as_ref().map(|(far, before)| far.counters().since(before));
        counters.spill = self.spill.as_ref().map(|spill| spill.counters());
        counters.checkpoints = self.checkpoints.as_ref().map_or(0, Checkpoints::written);
        counters.checkpoint_bytes = self.checkpoints.as_ref().map_or(0, Checkpoints::bytes);
        counters.seconds = self.started.elapsed().as_secs_f64();
        counters
    }

    /// What is held and how often passes have wanted it, where that was asked for.
    pub fn profile(&self) -> Option<Profile> {
        let layout = &self.shared.layout;
        let sizes: Vec<u64> =
            layout.segments.iter().map(|segment| segment.bytes(self.plan.weighted)).collect();
        let wanted = self.wanted.clone()?;
        Some(Profile::new(&self.plan, &sizes, &layout.pins, wanted))
    }

    /// The plan that is followed.
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Reads what stays in memory before the first pass, and counts from here on; `far`, whose
    /// counters were `counted` before, has been filled since `began`.
    pub(crate) fn prepare(
        &mut self,
        far: Arc<FarTier>,
        counted: FarCounters,
        began: Instant,
    ) -> Result<()> {
        self.far = Some((far, counted));
        self.preload()?;
        self.started = Instant::now();
        self.counters.prepare_seconds = (self.started - began).as_secs_f64();
        Ok(())
    }

    /// Reads what stays in memory before the first pass, instead of in it.
    ///
    /// # Errors
    /// A failed read; the wish to stop.
    pub fn preload(&mut self) -> Result<()> {
        let layout = &self.shared.layout;
        let state = self.shared.lock();
        let missing = |&segment: &usize| layout.pins[segment] && state.data[segment].is_none();
        let parts: Vec<_> = (0..layout.segments.len())
            .filter(missing)
            .map(|segment| layout.whole(segment, state.pass))
            .collect();
        drop(state);
        if parts.is_empty() {
            return Ok(());
        }
        let total = parts.iter().map(|part| part.bytes()).sum();
        self.reader.start()?;
        let on_progress = &mut *self.on_progress;
        let loaded =
            self.shared.load(parts, &mut |done| on_progress("preload", done, total, "bytes"));
        self.bytes_seen = self.shared.lock().reader.bytes;
        loaded
    }

    /// Gives the memory of pinned segments back, to make room for a result. Later passes read
    /// them again.
    pub fn release(&mut self) {
        self.shared.drop_ahead();
        self.shared.lock().data.fill_with(|| None);
        self.dealt = None;
        self.decoders.fill_with(Decoder::default);
        return_free_memory();
    }

    /// Does the tasks of a pass, list by list in their order.
    fn drive(&mut self, tasks: Vec<Vec<Task>>, weights: bool, hands: Hands<'_>) -> Result<()> {
        if weights && !self.plan.weighted {
            return Err(Error::internal("a pass over weights that the plan knows nothing of"));
        }
        self.dealt = None;
        let expected = self.expected.take();
        let began = Instant::now();
        let shared = Arc::clone(&self.shared);
        let layout = &shared.layout;
        let state = shared.lock();
        let held: Vec<bool> = state.data.iter().map(Option::is_some).collect();
        let pass = state.pass + 1;
        let reader_before = state.reader.counters;
        drop(state);

        let wanted = layout.parts(&tasks, weights, &held, pass);
        let next = expected.map_or_else(Vec::new, |(tasks, weights)| {
            layout.first_parts(layout.parts(&tasks, weights, &held, pass + 1))
        });
        let pinned_bytes = self.note_wanted(&tasks, &held, weights);
        let pieces = layout.grid.pieces();
        let arcs: u64 =
            tasks.iter().flatten().map(|task| u64::from(pieces[task.piece()].edges)).sum();
        let lists = tasks.iter().filter(|list| !list.is_empty()).count();
        let few = arcs < FEW_ARCS && wanted.is_empty();
        let one = few || matches!(hands, Hands::One(_));
        let threads = if one { 1 } else { self.threads.min(lists.max(1)) };
        if !wanted.is_empty() || !next.is_empty() {
            self.reader.start()?;
        }

        let phase = &self.phase;
        let (on_progress, checkpoints) = (&mut *self.on_progress, &mut self.checkpoints);
        let mut look_around = |done: u64| {
            let told = match phase.total {
                0 => on_progress("pass", done, arcs, "arcs"),
                total => on_progress(&phase.what, phase.done, total, "passes"),
            };
            heed(told, checkpoints)
        };
        let ahead_bytes = shared.begin(tasks, wanted, next, threads);
        let decoders = &mut self.decoders[..threads];
        let compute = shared.compute(hands, weights, decoders, &mut look_around);
        let error = shared.end();

        let state = shared.lock();
        let reader = state.reader.counters;
        let bytes_before = std::mem::replace(&mut self.bytes_seen, state.reader.bytes);
        let moved = self.moved();
        self.count(PassCounters {
            spill_read: moved.read.0,
            spill_written: moved.written.0,
            seconds: began.elapsed().as_secs_f64(),
            bytes: state.reader.bytes - bytes_before,
            pinned_bytes,
            ahead_bytes,
            arcs: state.arcs,
            device_seconds: reader.busy_s + reader.starved_s
                - reader_before.busy_s
                - reader_before.starved_s,
            blocked_seconds: reader.blocked_s - reader_before.blocked_s,
            compute_seconds: compute.busy_s,
            threads: threads as u64,
        });
        self.counters.compute += compute;
        error.map_or(Ok(()), Err)
    }

    /// Counts which segments a pass wants; returns the bytes of them that are held.
    fn note_wanted(&mut self, tasks: &[Vec<Task>], held: &[bool], weights: bool) -> u64 {
        let layout = &self.shared.layout;
        let mut served = vec![false; held.len()];
        for task in tasks.iter().flatten() {
            served[layout.segment_of[task.piece()] as usize] = true;
        }
        if let Some(wanted) = &mut self.wanted {
            for (wanted, _) in wanted.iter_mut().zip(&served).filter(|pair| *pair.1) {
                *wanted = wanted.saturating_add(1);
            }
        }
        (0..held.len())
            .filter(|&segment| served[segment] && held[segment])
            .map(|segment| layout.segments[segment].bytes(weights))
            .sum()
    }

    /// What has been moved to and from scratch files since this was last asked for.
    fn moved(&mut self) -> SpillCounters {
        let Some(spill) = &self.spill else { return SpillCounters::default() };
        let now = spill.counters();
        now.since(&std::mem::replace(&mut self.spilled, now))
    }

    /// Adds a pass to the counters, or a portion to its pass.
    fn count(&mut self, pass: PassCounters) {
        if let Some(portions) = &mut self.portions {
            *portions += pass;
            return;
        }
        let counters = &mut self.counters;
        counters.passes += 1;
        counters.pinned_bytes += pass.pinned_bytes;
        counters.arcs += pass.arcs;
        counters.pass_seconds += pass.seconds;
        counters.device_seconds += pass.device_seconds;
        counters.compute_seconds += pass.compute_seconds;
        let share = |seconds: f64, of: f64| if of > 0.0 { (seconds / of).min(1.0) } else { 0.0 };
        counters.device_busy = share(counters.device_seconds, counters.pass_seconds);
        let all_threads = counters.pass_seconds * self.threads as f64;
        counters.cores_busy = share(counters.compute_seconds, all_threads);
        if counters.by_pass.len() < COUNTED_PASSES {
            counters.by_pass.push(pass);
        }
    }

    /// Keeps state in scratch files, which the plan has asked for.
    pub(crate) fn spill_to(&mut self, spill: Spill) {
        self.spill = Some(Arc::new(spill));
    }

    /// Leaves checkpoints between passes.
    pub(crate) fn leave_checkpoints(&mut self, checkpoints: Checkpoints) {
        self.checkpoints = Some(checkpoints);
    }

    /// The part of a node array that belongs to a partition.
    fn node_array(&mut self, what: NodeArray, partition: usize) -> Result<Vec<u32>> {
        self.shared.drop_ahead();
        let layout = &self.shared.layout;
        layout.node_array(&mut self.reader.engine(), &mut self.dealt, what, partition)
    }
}

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
            // Never contended: a list is claimed by one thread at a time.
            let mut target = targets[target].lock().unwrap_or_else(PoisonError::into_inner);
            program.apply(arcs, &sources[source], &mut target);
            Ok(())
        });
        self.drive(tasks, weights, hands)
    }

    fn begin_portions(&mut self) {
        // What was moved between passes belongs to none.
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
        // One list of all is done in file order.
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

/// What the caller wants after a report of progress: the wish to stop waits for a checkpoint, where
/// one will be left.
fn heed(told: Result<()>, checkpoints: &mut Option<Checkpoints>) -> Result<()> {
    match (told, checkpoints) {
        (Err(error), Some(checkpoints)) => checkpoints.wait_for_pass(error),
        (told, _) => told,
    }
}
