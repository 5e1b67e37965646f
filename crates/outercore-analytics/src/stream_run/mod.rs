//! Passes over a grid on disk: one thread reads ahead, and others apply pieces in file order.
//!
//! [`layout`] determines the reads of a pass, [`reader`] reads, [`work`] computes, and [`shared`]
//! is their common state. [`drive`] executes one pass, and [`passes`] is the interface for
//! algorithms. [`node_arrays`] are read between passes.

mod drive;
mod layout;
mod loaded;
mod node_arrays;
mod options;
mod passes;
mod reader;
mod shared;
mod work;

use std::sync::Arc;
use std::time::Instant;

use outercore_core::{Error, ErrorKind, Result};
use outercore_far::{FarCounters, FarTier};
use outercore_grid::{Decoder, Grid, rebuild_command};
use outercore_io::{Engine, return_free_memory};
use outercore_store::dataset::DataSet;

use self::layout::{Files, Layout, PartSlots};
use self::node_arrays::Dealt;
pub use self::options::StreamOptions;
use self::reader::Reader;
use self::shared::Shared;
use crate::checkpoint::Checkpoints;
use crate::output::{Counters, PassCounters};
use crate::pins::choose;
use crate::plan::RunPlan;
use crate::profile::Profile;
use crate::segments::{segment_of, segments};
use crate::state::{Spill, SpillCounters};
use crate::task::Task;

/// Progress of a run: called with the phase, the amount done, the total (0: unknown), and the unit.
/// An error stops the run.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64, &str) -> Result<()>;

/// Passes over a grid on disk, according to a memory plan.
///
/// Every target partition receives its pieces in file order. Results therefore have the same bits
/// as with [`MemoryRun`](crate::MemoryRun), for any budget, number of threads and back end.
pub struct StreamRun<'a> {
    shared: Arc<Shared>,
    reader: Reader,
    plan: RunPlan,
    decoders: Vec<Decoder>,
    pool: rayon::ThreadPool,
    threads: usize,
    dealt: Option<Dealt>,
    /// The tasks of the pass after the next one, and whether it needs weights.
    expected: Option<(Vec<Vec<Task>>, bool)>,
    /// Cost so far of a pass in portions.
    portions: Option<PassCounters>,
    /// Bytes that had arrived when a pass, or a portion of one, was last counted.
    bytes_seen: u64,
    /// Scratch files for state that does not fit, and the transfers before the pass.
    spill: Option<Arc<Spill>>,
    spilled: SpillCounters,
    checkpoints: Option<Checkpoints>,
    counters: Counters,
    /// By segment: the number of passes that needed it, if counted.
    wanted: Option<Vec<u32>>,
    /// Far memory below the engine, and its counters at the start.
    far: Option<(Arc<FarTier>, FarCounters)>,
    started: Instant,
    phase: Phase,
    on_progress: OnProgress<'a>,
}

/// The algorithm's last progress report.
#[derive(Clone, Debug)]
struct Phase {
    what: String,
    done: u64,
    total: u64,
}

impl<'a> StreamRun<'a> {
    /// Prepares passes over `grid` according to `plan`; `engine` reads all files.
    ///
    /// **Cost**: opens files; reads nothing.
    ///
    /// # Errors
    /// A missing file; `Invalid`: the plan needs weights that the grid does not have; no threads.
    pub fn open(
        data_set: &DataSet,
        grid: Grid,
        plan: RunPlan,
        mut engine: Engine,
        options: &StreamOptions,
        on_progress: OnProgress<'a>,
    ) -> Result<Self> {
        if plan.weighted && grid.weights().is_none() {
            let root = data_set.root();
            let command = rebuild_command(data_set, grid.source().relation(), Some("NAME"));
            let text = format!("the grid of `{}` has no weights", root.display());
            return Err(Error::invalid(text).hint(format!("run `{command}`")));
        }
        let files = Files::register(&mut engine, &grid)?;
        let segments = segments(grid.pieces(), grid.weight_bytes());
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

    /// Cost of the passes so far.
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

    /// The profile of the run, if counted.
    pub fn profile(&self) -> Option<Profile> {
        let layout = &self.shared.layout;
        let sizes: Vec<u64> =
            layout.segments.iter().map(|segment| segment.bytes(self.plan.weighted)).collect();
        let wanted = self.wanted.clone()?;
        Some(Profile::new(&self.plan, &sizes, &layout.pins, wanted))
    }

    /// The plan of the run.
    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// Reads the pinned segments before the first pass, and starts the counters. `far`, with the
    /// earlier counters `counted`, has been filled since `began`.
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

    /// Reads the pinned segments before the first pass, instead of during it.
    ///
    /// # Errors
    /// A failed read; a stop request.
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

    /// Frees the memory of pinned segments, to make room for a result. Later passes read them
    /// again.
    pub fn release(&mut self) {
        self.shared.drop_ahead();
        self.shared.lock().data.fill_with(|| None);
        self.dealt = None;
        self.decoders.fill_with(Decoder::default);
        return_free_memory();
    }

    /// Stores state in scratch files, as planned.
    pub(crate) fn spill_to(&mut self, spill: Spill) {
        self.spill = Some(Arc::new(spill));
    }

    /// Writes checkpoints between passes.
    pub(crate) fn leave_checkpoints(&mut self, checkpoints: Checkpoints) {
        self.checkpoints = Some(checkpoints);
    }
}
