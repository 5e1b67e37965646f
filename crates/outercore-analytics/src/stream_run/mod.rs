//! Passes over a grid on disk: one thread reads ahead, others apply pieces in file order.
//!
//! [`layout`] says what a pass has to read, [`reader`] reads it, [`work`] computes, and [`shared`] is
//! what they have in common. [`drive`] has them do one pass, [`passes`] is what algorithms see of it.
//! [`node_arrays`] are read between passes.

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

/// Told what a run does, how far it has come, how far it has to go (0: not known), and in which
/// unit. An error stops the run.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64, &str) -> Result<()>;

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

    /// Keeps state in scratch files, which the plan has asked for.
    pub(crate) fn spill_to(&mut self, spill: Spill) {
        self.spill = Some(Arc::new(spill));
    }

    /// Leaves checkpoints between passes.
    pub(crate) fn leave_checkpoints(&mut self, checkpoints: Checkpoints) {
        self.checkpoints = Some(checkpoints);
    }
}
