//! Passes over a grid on disk: one thread reads ahead, others apply pieces in file order.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result, StageClock, StageCounters};
use outercore_grid::{Arcs, Decoder, Grid, GridShape, Order, Piece};
use outercore_io::{CostModel, Engine, FileId, PlannedRead, plan_range, return_free_memory};
use outercore_store::dataset::{ArrayRef, DataSet};
use rayon::prelude::*;

use crate::output::Counters;
use crate::pins::choose;
use crate::plan::RunPlan;
use crate::profile::Profile;
use crate::program::{Degree, EdgeProgram, Passes, Selection};
use crate::schedule::{Schedule, Task, tasks};
use crate::segments::{Segment, segments};

/// Told what a run does, how far it has come, how far it has to go (0: not known), and in which
/// unit. An error stops the run.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64, &str) -> Result<()>;

/// How long anybody waits before looking around: for the wish to stop, and for the clock.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// Below so many arcs, all in memory, threads cost more than they bring: passes over road networks
/// are tiny, and there are thousands.
const FEW_ARCS: u64 = 1 << 17;

/// Bytes of a node array that are read at a time.
const CHUNK: usize = 256 << 10;

/// Passes over a grid on disk, within a memory plan.
///
/// Every target partition gets its pieces in file order, so results have the same bits as with
/// [`MemoryRun`](crate::MemoryRun), whatever the budget, the threads and the back end.
pub struct StreamRun<'a> {
    grid: Grid,
    engine: Engine,
    files: Files,
    plan: RunPlan,
    segments: Vec<Segment>,
    /// By piece.
    segment_of: Vec<u32>,
    /// Which segments stay in memory once they have been read.
    pins: Vec<bool>,
    held: Vec<Option<Arc<Loaded>>>,
    decoders: Vec<Decoder>,
    pool: rayon::ThreadPool,
    threads: usize,
    dealt: Option<Dealt>,
    counters: Counters,
    /// By segment: how many passes wanted it, where that is asked for.
    wanted: Option<Vec<u32>>,
    started: Instant,
    phase: Phase,
    on_progress: OnProgress<'a>,
}

/// How a run makes its passes.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Threads that compute.
    pub threads: usize,
    /// Whether to count what passes want.
    pub profile: bool,
    /// The profile of an earlier run, by which to choose what stays in memory.
    pub reads_by_segment: Option<Vec<u32>>,
}

impl StreamOptions {
    /// The defaults, with so many threads.
    pub fn new(threads: usize) -> Self {
        Self { threads, profile: false, reads_by_segment: None }
    }
}

/// What the algorithm last said of its progress.
#[derive(Clone, Debug)]
struct Phase {
    what: String,
    done: u64,
    total: u64,
}

/// Where the grid's arrays are.
struct Files {
    blocks: File,
    weights: Option<File>,
    order: Option<File>,
    out_degrees: File,
    in_degrees: File,
}

#[derive(Clone, Copy)]
struct File {
    id: FileId,
    /// Where the data begins.
    data: u64,
}

impl File {
    fn register(engine: &mut Engine, array: &ArrayRef) -> Result<Self> {
        let id = engine.register(&array.path).with_context(|| format!("grid `{}`", array.key))?;
        Ok(Self { id, data: array.data_offset })
    }
}

/// Node arrays of consecutive partitions, so that a file in rank order is not read for each.
struct Dealt {
    what: NodeArray,
    first: usize,
    parts: Vec<Vec<u32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeArray {
    Order,
    Degrees(Degree),
}

/// Pieces in memory, still encoded.
struct Loaded {
    pieces: Range<usize>,
    blocks: u64,
    /// The bodies; they begin at multiples of 8.
    words: Vec<u64>,
    first_edge: u64,
    weights: Vec<f32>,
    /// By piece: whether its checksum has been compared since it was read.
    verified: Vec<AtomicBool>,
}

impl Loaded {
    fn new(pieces: &[Piece], part: &Segment, weighted: bool, mut words: Vec<u64>) -> Self {
        words.clear();
        words.resize((part.blocks.end - part.blocks.start).div_ceil(8) as usize, 0);
        let weights = if weighted { (part.weights.end - part.weights.start) / 4 } else { 0 };
        Self {
            blocks: part.blocks.start,
            words,
            first_edge: pieces[part.pieces.start].first_edge,
            weights: vec![0.0; weights as usize],
            verified: part.pieces.clone().map(|_| AtomicBool::new(false)).collect(),
            pieces: part.pieces.clone(),
        }
    }

    fn body(&self, piece: &Piece) -> &[u8] {
        let start = (piece.offset - self.blocks) as usize;
        &bytemuck::cast_slice(&self.words)[start..start + piece.len as usize]
    }

    fn weights(&self, piece: &Piece, wanted: bool) -> &[f32] {
        if !wanted {
            return &[];
        }
        let start = (piece.first_edge - self.first_edge) as usize;
        &self.weights[start..start + piece.edges as usize]
    }
}

/// One read of a pass: where its bytes belong.
struct Place {
    /// Index into the parts of the pass.
    part: usize,
    into: Into,
    /// Byte of the destination.
    at: u64,
}

#[derive(Clone, Copy)]
enum Into {
    Blocks,
    Weights,
}

/// A part of a segment that a pass reads.
struct Part {
    segment: usize,
    range: Segment,
    weighted: bool,
    reads: u32,
}

impl Part {
    fn bytes(&self) -> u64 {
        self.range.bytes(self.weighted)
    }
}

/// What the threads of a pass share.
struct Shared<'s> {
    state: Mutex<State<'s>>,
    /// There is something to claim, or nothing more will be.
    work: Condvar,
    /// A segment was freed.
    room: Condvar,
    /// Everybody may go home.
    ended: Condvar,
    window: u64,
    pins: &'s [bool],
}

struct State<'s> {
    schedule: Schedule<'s>,
    /// By segment.
    data: Vec<Option<Arc<Loaded>>>,
    /// Bytes read ahead or being read, and not yet done.
    admitted: u64,
    /// Buffers to use again.
    spare: Vec<Vec<u64>>,
    error: Option<Error>,
    stop: bool,
    arcs: u64,
    workers: usize,
}

impl<'s> Shared<'s> {
    fn lock(&self) -> MutexGuard<'_, State<'s>> {
        // Nothing that can panic runs while this is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the pass; the first error is the one that is told.
    fn fail(&self, error: Error) {
        let mut state = self.lock();
        state.error.get_or_insert(error);
        state.stop = true;
        drop(state);
        self.wake_all();
    }

    fn wake_all(&self) {
        self.work.notify_all();
        self.room.notify_all();
        self.ended.notify_all();
    }

    /// Claims and does tasks until none are left or the pass is stopped. `look_around` is called
    /// now and then, without the lock.
    fn work(
        &self,
        job: &Job<'_>,
        decoder: &mut Decoder,
        apply: &mut dyn FnMut(usize, Task, &Arcs<'_>) -> Result<()>,
        look_around: &mut dyn FnMut(u64) -> Result<()>,
    ) -> StageCounters {
        let mut counters = StageCounters::default();
        let mut clock = StageClock::start();
        let mut state = self.lock();
        let mut looked = Instant::now();
        loop {
            if state.stop || state.schedule.tasks_left() == 0 {
                break;
            }
            if looked.elapsed() >= LOOK_AROUND {
                let arcs = state.arcs;
                drop(state);
                looked = Instant::now();
                if let Err(error) = look_around(arcs) {
                    self.fail(error);
                }
                state = self.lock();
                continue;
            }
            let Some((list, task)) = state.schedule.claim() else {
                clock.lap(&mut counters.busy_s);
                state = match self.work.wait_timeout(state, LOOK_AROUND) {
                    Ok(woken) => woken.0,
                    Err(poisoned) => poisoned.into_inner().0,
                };
                clock.lap(&mut counters.starved_s);
                continue;
            };
            let piece = &job.pieces[task.piece()];
            let loaded = state.data[job.segment_of[task.piece()] as usize].clone();
            drop(state);

            let outcome = match &loaded {
                Some(loaded) => {
                    job.apply(piece, task, loaded, decoder, &mut |arcs| apply(list, task, arcs))
                }
                None => Err(Error::internal("a task was handed out before its bytes were there")),
            };
            drop(loaded);
            counters.items += 1;
            if let Err(error) = outcome {
                self.fail(error);
                state = self.lock();
                break;
            }
            state = self.lock();
            state.arcs += u64::from(piece.edges);
            if let Some(segment) = state.schedule.finish(list, task)
                && !self.pins[segment]
                && let Some(loaded) = state.data[segment].take()
                && let Some(loaded) = Arc::into_inner(loaded)
            {
                state.admitted -= job.admitted[segment];
                state.spare.push(loaded.words);
                self.room.notify_one();
            }
            if state.schedule.tasks_left() == 0 {
                self.wake_all();
            } else if state.schedule.has_work() {
                self.work.notify_one();
            }
        }
        drop(state);
        clock.lap(&mut counters.busy_s);
        counters
    }

    /// Reads what the pass needs, as far ahead as the window allows.
    fn read(
        &self,
        engine: &mut Engine,
        job: &Job<'_>,
        parts: &[Part],
        reads: &[(FileId, PlannedRead)],
        places: &[Place],
    ) -> Result<StageCounters> {
        let begun = Instant::now();
        let (mut copying, mut blocked) = (0.0, 0.0);
        let mut admitted_parts = 0;
        let mut loading: HashMap<usize, (Loaded, u32)> = HashMap::new();
        let stopped = || Error::new(ErrorKind::Interrupted, "stopped");
        let mut may_begin = |index: usize, idle: bool| {
            let part = places[index].part;
            if part < admitted_parts {
                return Ok(true);
            }
            // What stays in memory has room of its own.
            let bytes = if self.pins[parts[part].segment] { 0 } else { parts[part].bytes() };
            let mut state = self.lock();
            let since = Instant::now();
            loop {
                if state.stop {
                    return Err(stopped());
                }
                if state.admitted == 0 || state.admitted + bytes <= self.window {
                    break;
                }
                if !idle {
                    return Ok(false);
                }
                state = match self.room.wait_timeout(state, LOOK_AROUND) {
                    Ok(woken) => woken.0,
                    Err(poisoned) => poisoned.into_inner().0,
                };
            }
            blocked += since.elapsed().as_secs_f64();
            state.admitted += bytes;
            admitted_parts = part + 1;
            Ok(true)
        };
        let mut on_data = |index: usize, bytes: &[u8]| {
            let since = Instant::now();
            let place = &places[index];
            let part = &parts[place.part];
            let (loaded, missing) = loading.entry(place.part).or_insert_with(|| {
                let spare = self.lock().spare.pop().unwrap_or_default();
                (Loaded::new(job.pieces, &part.range, part.weighted, spare), part.reads)
            });
            let destination = match place.into {
                Into::Blocks => bytemuck::cast_slice_mut(&mut loaded.words),
                Into::Weights => bytemuck::cast_slice_mut::<f32, u8>(&mut loaded.weights),
            };
            let at = place.at as usize;
            destination[at..at + bytes.len()].copy_from_slice(bytes);
            *missing -= 1;
            if *missing == 0
                && let Some((loaded, _)) = loading.remove(&place.part)
            {
                let mut state = self.lock();
                if state.stop {
                    return Err(stopped());
                }
                state.data[part.segment] = Some(Arc::new(loaded));
                let new = state.schedule.arrived(part.segment);
                drop(state);
                if new > 1 {
                    self.work.notify_all();
                } else if new == 1 {
                    self.work.notify_one();
                }
            }
            copying += since.elapsed().as_secs_f64();
            Ok(())
        };
        let outcome = engine.read_paced(reads, &mut may_begin, &mut on_data);
        let total = begun.elapsed().as_secs_f64();
        outcome.map(|_| StageCounters {
            items: parts.len() as u64,
            busy_s: copying,
            blocked_s: blocked,
            starved_s: (total - copying - blocked).max(0.0),
        })
    }
}

/// What a pass works on.
struct Job<'s> {
    shape: &'s GridShape,
    pieces: &'s [Piece],
    segment_of: &'s [u32],
    weights: bool,
    /// By segment: bytes that count against the window.
    admitted: &'s [u64],
}

impl Job<'_> {
    fn apply(
        &self,
        piece: &Piece,
        task: Task,
        loaded: &Loaded,
        decoder: &mut Decoder,
        apply: &mut dyn FnMut(&Arcs<'_>) -> Result<()>,
    ) -> Result<()> {
        // The other side of the piece may be decoded at the same time, unverified: that is safe,
        // and a bad checksum ends the pass all the same.
        let verified = &loaded.verified[task.piece() - loaded.pieces.start];
        let verify = !verified.swap(true, Ordering::Relaxed);
        let weights = loaded.weights(piece, self.weights);
        let arcs = decoder
            .decode(piece, self.shape, loaded.body(piece), weights, verify)
            .with_context(|| format!("piece {}", task.piece()))?;
        catch_unwind(AssertUnwindSafe(|| apply(&Arcs { side: task.side(), ..arcs })))
            .unwrap_or_else(|_| Err(Error::internal("an edge program panicked")))
    }
}

/// Who applies the tasks of a pass.
enum Hands<'h> {
    /// Threads: `apply(list, task, arcs)`.
    Many(&'h (dyn Fn(usize, Task, &Arcs<'_>) -> Result<()> + Sync)),
    /// The calling thread.
    One(&'h mut dyn FnMut(usize, Task, &Arcs<'_>) -> Result<()>),
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
        let weights = match grid.weights() {
            Some(weights) => Some(File::register(&mut engine, weights)?),
            None if plan.weighted => {
                let root = data_set.root().display();
                return Err(Error::invalid(format!("the grid of `{root}` has no weights"))
                    .hint(format!("run `outercore grid {root} --weights NAME --overwrite`")));
            }
            None => None,
        };
        let files = Files {
            blocks: File::register(&mut engine, grid.blocks())?,
            weights,
            order: grid.order().map(|order| File::register(&mut engine, order)).transpose()?,
            out_degrees: File::register(&mut engine, grid.out_degrees())?,
            in_degrees: File::register(&mut engine, grid.in_degrees())?,
        };
        let segments = segments(grid.pieces());
        let mut segment_of = vec![0; grid.pieces().len()];
        for (number, segment) in segments.iter().enumerate() {
            segment_of[segment.pieces.clone()].fill(number as u32);
        }
        let sizes: Vec<u64> = segments.iter().map(|s| s.bytes(plan.weighted)).collect();
        let threads = options.threads.max(1);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|number| format!("outercore-nodes-{number}"))
            .build()
            .map_err(|error| Error::new(ErrorKind::Io, format!("no threads: {error}")))?;
        Ok(Self {
            pins: choose(&sizes, plan.pinned.0, options.reads_by_segment.as_deref()),
            held: segments.iter().map(|_| None).collect(),
            decoders: (0..threads).map(|_| Decoder::default()).collect(),
            counters: Counters { peak_state: plan.state, ..Counters::default() },
            wanted: options.profile.then(|| vec![0; segments.len()]),
            started: Instant::now(),
            phase: Phase { what: "pass".into(), done: 0, total: 0 },
            dealt: None,
            grid,
            engine,
            files,
            plan,
            segments,
            segment_of,
            pool,
            threads,
            on_progress,
        })
    }

    /// What the passes so far have cost.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        counters.reads = self.engine.counters();
        counters.seconds = self.started.elapsed().as_secs_f64();
        counters
    }

    /// What is held and how often passes have wanted it, where that was asked for.
    pub fn profile(&self) -> Option<Profile> {
        let sizes: Vec<u64> =
            self.segments.iter().map(|segment| segment.bytes(self.plan.weighted)).collect();
        let wanted = self.wanted.clone()?;
        Some(Profile::new(&self.plan, &sizes, &self.pins, wanted))
    }

    /// The plan that is followed.
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Gives the memory of pinned segments back, to make room for a result. Later passes read
    /// them again.
    pub fn release(&mut self) {
        self.held.fill_with(|| None);
        self.dealt = None;
        self.decoders.fill_with(Decoder::default);
        return_free_memory();
    }

    /// What a pass has to read: parts of segments, and the reads that bring them.
    fn parts(
        &self,
        tasks: &[Vec<Task>],
        weights: bool,
    ) -> (Vec<Part>, Vec<(FileId, PlannedRead)>, Vec<Place>) {
        let mut wanted: Vec<Option<(usize, usize)>> = vec![None; self.segments.len()];
        for task in tasks.iter().flatten() {
            let piece = task.piece();
            let (first, last) =
                wanted[self.segment_of[piece] as usize].get_or_insert((piece, piece));
            (*first, *last) = ((*first).min(piece), (*last).max(piece));
        }
        let (mut parts, mut reads, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (segment, wanted) in wanted.into_iter().enumerate() {
            let Some((first, last)) = wanted else { continue };
            if self.held[segment].is_some() {
                continue;
            }
            let pinned = self.pins[segment];
            let range = if pinned {
                self.segments[segment].clone()
            } else {
                Segment::between(self.grid.pieces(), first, last)
            };
            // What stays has to serve every later pass.
            let weighted = if pinned { self.plan.weighted } else { weights };
            let before = reads.len();
            let mut add = |file: File, into: Into, range: &Range<u64>| {
                let absolute = file.data + range.start..file.data + range.end;
                let start = absolute.start;
                for read in plan_range(absolute, &CostModel::default(), self.engine.max_read()) {
                    reads.push((file.id, read));
                    places.push(Place { part: parts.len(), into, at: read.offset - start });
                }
            };
            add(self.files.blocks, Into::Blocks, &range.blocks);
            if weighted && let Some(file) = self.files.weights {
                add(file, Into::Weights, &range.weights);
            }
            let reads = (reads.len() - before) as u32;
            parts.push(Part { segment, range, weighted, reads });
        }
        (parts, reads, places)
    }

    /// Does the tasks of a pass, list by list in their order.
    fn drive(&mut self, tasks: Vec<Vec<Task>>, weights: bool, hands: Hands<'_>) -> Result<()> {
        if weights && !self.plan.weighted {
            return Err(Error::internal("a pass over weights that the plan knows nothing of"));
        }
        self.dealt = None;
        let (parts, reads, places) = self.parts(&tasks, weights);
        let pieces = self.grid.pieces();
        let arcs: u64 =
            tasks.iter().flatten().map(|task| u64::from(pieces[task.piece()].edges)).sum();
        let mut served = vec![false; self.segments.len()];
        for task in tasks.iter().flatten() {
            served[self.segment_of[task.piece()] as usize] = true;
        }
        self.counters.passes += 1;
        if let Some(wanted) = &mut self.wanted {
            for (wanted, _) in wanted.iter_mut().zip(&served).filter(|pair| *pair.1) {
                *wanted = wanted.saturating_add(1);
            }
        }
        self.counters.pinned_bytes += (0..served.len())
            .filter(|&segment| served[segment] && self.held[segment].is_some())
            .map(|segment| self.segments[segment].bytes(weights))
            .sum::<u64>();
        let mut admitted = vec![0; self.segments.len()];
        for part in &parts {
            admitted[part.segment] = part.bytes();
        }
        let job = Job {
            shape: self.grid.shape(),
            pieces,
            segment_of: &self.segment_of,
            weights,
            admitted: &admitted,
        };
        let lists = tasks.iter().filter(|list| !list.is_empty()).count();
        let few = arcs < FEW_ARCS && parts.is_empty();
        let threads = if few { 1 } else { self.threads.min(lists.max(1)) };
        let ready = self.held.iter().map(Option::is_some).collect();
        let shared = Shared {
            state: Mutex::new(State {
                schedule: Schedule::new(tasks, &self.segment_of, ready),
                data: std::mem::take(&mut self.held),
                admitted: 0,
                spare: Vec::new(),
                error: None,
                stop: false,
                arcs: 0,
                workers: threads,
            }),
            work: Condvar::new(),
            room: Condvar::new(),
            ended: Condvar::new(),
            window: self.plan.window.0,
            pins: &self.pins,
        };
        let phase = &self.phase;
        let on_progress = &mut *self.on_progress;
        let mut look_around = |done: u64| match phase.total {
            0 => on_progress("pass", done, arcs, "arcs"),
            total => on_progress(&phase.what, phase.done, total, "passes"),
        };
        let engine = &mut self.engine;
        let decoders = &mut self.decoders;
        let (shared_ref, job_ref) = (&shared, &job);
        let (io, compute) = std::thread::scope(|scope| {
            let reader = (!parts.is_empty()).then(|| {
                let (parts, reads, places) = (&parts, &reads, &places);
                scope.spawn(move || {
                    let outcome = catch_unwind(AssertUnwindSafe(|| {
                        shared_ref.read(engine, job_ref, parts, reads, places)
                    }));
                    let outcome = outcome
                        .unwrap_or_else(|_| Err(Error::internal("the reader of a pass panicked")));
                    outcome.unwrap_or_else(|error| {
                        shared_ref.fail(error);
                        StageCounters::default()
                    })
                })
            });
            let mut compute = StageCounters::default();
            match hands {
                Hands::Many(apply) if !few => {
                    let workers: Vec<_> = decoders[..threads]
                        .iter_mut()
                        .map(|decoder| {
                            scope.spawn(move || {
                                let counters = catch_unwind(AssertUnwindSafe(|| {
                                    shared_ref.work(
                                        job_ref,
                                        decoder,
                                        &mut |list, task, arcs| apply(list, task, arcs),
                                        &mut |_| Ok(()),
                                    )
                                }));
                                if counters.is_err() {
                                    shared_ref.fail(Error::internal("a worker panicked"));
                                }
                                let mut state = shared_ref.lock();
                                state.workers -= 1;
                                drop(state);
                                shared_ref.ended.notify_all();
                                counters.unwrap_or_default()
                            })
                        })
                        .collect();
                    watch(shared_ref, &mut look_around);
                    for worker in workers {
                        compute += worker.join().unwrap_or_default();
                    }
                }
                Hands::Many(apply) => {
                    let mut apply = |list: usize, task, arcs: &Arcs<'_>| apply(list, task, arcs);
                    compute = shared.work(&job, &mut decoders[0], &mut apply, &mut look_around);
                }
                Hands::One(apply) => {
                    compute = shared.work(&job, &mut decoders[0], apply, &mut look_around);
                }
            }
            // Whatever ended the work, a reader that waits for room must know.
            shared_ref.wake_all();
            let io = reader.map(|reader| reader.join().unwrap_or_default());
            (io.unwrap_or_default(), compute)
        });
        let state = shared.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.held = state.data;
        for (held, &pinned) in self.held.iter_mut().zip(&self.pins) {
            if !pinned {
                *held = None;
            }
        }
        self.counters.io += io;
        self.counters.compute += compute;
        self.counters.arcs += state.arcs;
        match state.error {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The part of a node array that belongs to a partition.
    fn node_array(&mut self, what: NodeArray, partition: usize) -> Result<Vec<u32>> {
        let shape = *self.grid.shape();
        let file = match what {
            NodeArray::Order => self.files.order,
            NodeArray::Degrees(Degree::In) => Some(self.files.in_degrees),
            NodeArray::Degrees(Degree::Out) => Some(self.files.out_degrees),
        };
        let len = shape.partition_len(partition);
        let Some(file) = file else {
            return Ok((0..len).map(|local| shape.rank(partition, local) as u32).collect());
        };
        if shape.order == Order::Natural || shape.partitions() == 1 {
            let start = shape.rank(partition, 0);
            let mut values = vec![0u32; len];
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
            self.engine.read_into(file.id, file.data + 4 * start, bytes)?;
            return checked(what, &shape, values);
        }
        let cached = self.dealt.as_ref().is_some_and(|dealt| {
            dealt.what == what
                && (dealt.first..dealt.first + dealt.parts.len()).contains(&partition)
        });
        if !cached {
            self.dealt = None;
            self.dealt = Some(self.deal(what, file, partition)?);
        }
        let dealt = self.dealt.as_ref().expect("just dealt");
        Ok(dealt.parts[partition - dealt.first].clone())
    }

    /// Reads a node array once for as many partitions from `first` on as the window has room for,
    /// which is empty between passes.
    fn deal(&mut self, what: NodeArray, file: File, first: usize) -> Result<Dealt> {
        let shape = *self.grid.shape();
        let partitions = shape.partitions();
        let room = self.plan.window.as_usize() / (4 * shape.partition_len(0)).max(1);
        let end = (first + room.max(1)).min(partitions);
        let mut parts: Vec<Vec<u32>> =
            (first..end).map(|part| Vec::with_capacity(shape.partition_len(part))).collect();
        let mut part = 0;
        self.each_chunk(file, 0..shape.connected, &mut |values| {
            for &value in values {
                if (first..end).contains(&part) {
                    parts[part - first].push(value);
                }
                part = if part + 1 == partitions { 0 } else { part + 1 };
            }
            Ok(())
        })?;
        let parts =
            parts.into_iter().map(|values| checked(what, &shape, values)).collect::<Result<_>>()?;
        Ok(Dealt { what, first, parts })
    }

    /// Elements of a `u32` array, a chunk at a time.
    fn each_chunk(
        &mut self,
        file: File,
        elements: Range<u64>,
        each: &mut dyn FnMut(&[u32]) -> Result<()>,
    ) -> Result<()> {
        let mut chunk = vec![0u32; CHUNK / 4];
        let mut at = elements.start;
        while at < elements.end {
            let len = ((elements.end - at) as usize).min(chunk.len());
            let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut chunk[..len]);
            self.engine.read_into(file.id, file.data + 4 * at, bytes)?;
            each(&chunk[..len])?;
            at += len as u64;
        }
        Ok(())
    }
}

/// Waits for the workers, looking around.
fn watch(shared: &Shared<'_>, look_around: &mut dyn FnMut(u64) -> Result<()>) {
    let mut state = shared.lock();
    while state.workers > 0 {
        let (woken, timeout) = match shared.ended.wait_timeout(state, LOOK_AROUND) {
            Ok(woken) => woken,
            Err(poisoned) => poisoned.into_inner(),
        };
        state = woken;
        if timeout.timed_out() && !state.stop {
            let arcs = state.arcs;
            drop(state);
            if let Err(error) = look_around(arcs) {
                shared.fail(error);
            }
            state = shared.lock();
        }
    }
}

/// Node ids that are nodes.
fn checked(what: NodeArray, shape: &GridShape, values: Vec<u32>) -> Result<Vec<u32>> {
    if what == NodeArray::Order
        && let Some(wrong) = values.iter().find(|&&node| u64::from(node) >= shape.nodes)
    {
        return Err(no_node(*wrong, shape));
    }
    Ok(values)
}

fn no_node(found: u32, shape: &GridShape) -> Error {
    Error::corrupt(format!("grid `grid/edge/order`: node {found} of {} nodes", shape.nodes))
        .hint("run `outercore check DATASET`; `outercore grid DATASET --overwrite` mends it")
}

impl Passes for StreamRun<'_> {
    fn shape(&self) -> &GridShape {
        self.grid.shape()
    }

    fn pass<P: EdgeProgram>(
        &mut self,
        program: &P,
        sources: &[P::Source],
        targets: &mut [P::Target],
        select: &Selection<'_>,
    ) -> Result<()> {
        let tasks = tasks(self.grid.pieces(), self.grid.shape().symmetric, select);
        let targets: Vec<Mutex<&mut P::Target>> = targets.iter_mut().map(Mutex::new).collect();
        let pieces: Vec<(u32, u32)> =
            self.grid.pieces().iter().map(|piece| (piece.row_part, piece.col_part)).collect();
        self.drive(
            tasks,
            select.weights,
            Hands::Many(&|target, task, arcs| {
                let (row, column) = pieces[task.piece()];
                let (source, _) = task.side().ends(row, column);
                // Never contended: a list is claimed by one thread at a time.
                let mut target = targets[target].lock().unwrap_or_else(PoisonError::into_inner);
                program.apply(arcs, &sources[source as usize], &mut target);
                Ok(())
            }),
        )
    }

    fn stream(
        &mut self,
        select: &Selection<'_>,
        each: &mut dyn FnMut(usize, usize, &Arcs<'_>) -> Result<()>,
    ) -> Result<()> {
        let by_target = tasks(self.grid.pieces(), self.grid.shape().symmetric, select);
        // One list of all is done in file order.
        let mut all: Vec<Task> = by_target.into_iter().flatten().collect();
        all.sort_unstable();
        let ends: Vec<(u32, u32)> =
            self.grid.pieces().iter().map(|piece| (piece.row_part, piece.col_part)).collect();
        self.drive(
            vec![all],
            select.weights,
            Hands::One(&mut |_, task, arcs| {
                let (row, column) = ends[task.piece()];
                each(row as usize, column as usize, arcs)
            }),
        )
    }

    fn partitions<T: Send>(&mut self, each: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let partitions = self.grid.shape().partitions();
        self.pool.install(|| (0..partitions).into_par_iter().map(&each).collect())
    }

    fn degrees(&mut self, which: Degree, partition: usize) -> Result<Vec<u32>> {
        self.node_array(NodeArray::Degrees(which), partition)
    }

    fn nodes(&mut self, partition: usize) -> Result<Vec<u32>> {
        self.node_array(NodeArray::Order, partition)
    }

    fn isolated(&mut self, each: &mut dyn FnMut(&[u32])) -> Result<()> {
        let shape = *self.grid.shape();
        let Some(order) = self.files.order else {
            let mut ranks = shape.connected..shape.nodes;
            loop {
                let run: Vec<u32> =
                    ranks.by_ref().take(CHUNK / 4).map(|rank| rank as u32).collect();
                if run.is_empty() {
                    return Ok(());
                }
                each(&run);
            }
        };
        self.each_chunk(order, shape.connected..shape.nodes, &mut |nodes| {
            if let Some(wrong) = nodes.iter().find(|&&node| u64::from(node) >= shape.nodes) {
                return Err(no_node(*wrong, &shape));
            }
            each(nodes);
            Ok(())
        })
    }

    fn place(&mut self, nodes: &[u64]) -> Result<Vec<Option<(usize, usize)>>> {
        let shape = *self.grid.shape();
        let Some(order) = self.files.order else {
            let place = |&node: &u64| (node < shape.connected).then(|| shape.place(node));
            return Ok(nodes.iter().map(place).collect());
        };
        let mut wanted: Vec<(u64, usize)> = nodes.iter().copied().zip(0..).collect();
        wanted.sort_unstable();
        let mut places = vec![None; nodes.len()];
        let mut rank = 0;
        self.each_chunk(order, 0..shape.connected, &mut |found| {
            for &node in found {
                let node = u64::from(node);
                let first = wanted.partition_point(|&(wanted, _)| wanted < node);
                for &(_, at) in wanted[first..].iter().take_while(|wanted| wanted.0 == node) {
                    places[at] = Some(shape.place(rank));
                }
                rank += 1;
            }
            Ok(())
        })?;
        Ok(places)
    }

    fn working(&self) -> Bytes {
        self.plan.working
    }

    fn progress(&mut self, what: &str, done: u64, total: u64) -> Result<()> {
        self.phase = Phase { what: what.to_owned(), done, total };
        (self.on_progress)(what, done, total, "passes")
    }
}
