//! The loader: epochs of batches. Sampling and fetching run ahead on separate threads.

mod batch;
mod epoch;

use std::ops::Range;
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use outercore_core::{Error, NodeId, ReadCounters, Result, StageClock};
use outercore_fabric::FabricPlane;
use outercore_far::{FarCounters, FarTier, OnProgress};
use outercore_format::{DType, Schema};
use outercore_store::dataset::DataSet;

use crate::arrays::{Arrays, BatchArray};
use crate::config::LoaderConfig;
use crate::counters::{Counters, Shared, SharedState, lock};
use crate::fetch::Fetcher;
use crate::forecast::{Forecast, OnReads, Tracing};
use crate::prepare::{Prepared, prepare};
use crate::room::RowRoom;
use crate::row_cache::RowCache;
use crate::row_space::RowSpace;
use crate::rules::times_of_nodes;
use crate::seed_list::{Input, SeedList};
use crate::stages::{FetchStage, SampleStage};
use crate::timeline::{Span, Stage, Timeline};
use crate::{MemoryPlan, Split};

pub use batch::Batch;
pub use epoch::{Advance, Epoch};

/// Nodes of the batches used to time stages: reading their rows takes some tenths of a second.
const TIMED_NODES: u64 = 1 << 16;

/// Delivers the mini-batches of a data set under a memory budget.
///
/// Reads nothing before the first [`Loader::plan`] or [`Loader::epoch`].
pub struct Loader {
    dataset: DataSet,
    seeds: SeedList,
    config: LoaderConfig,
    prepared: Option<Prepared>,
    fetcher: Option<Fetcher>,
    arrays: Option<Arrays>,
    next_group: u64,
    topology_reads: ReadCounters,
    far: Option<Arc<FarTier>>,
    far_counted: FarCounters,
    shared: SharedState,
}

impl Loader {
    /// Creates a loader for a data set, seeds (`None`: every node, in order) and a configuration.
    /// In a graph with several node types, seeds are ids within the configured input type.
    ///
    /// # Errors
    /// `Invalid` for a configuration value out of range or a seed that is not a node, `NotFound`
    /// for features that the data set does not have.
    pub fn new(dataset: DataSet, input: Option<Vec<NodeId>>, config: LoaderConfig) -> Result<Self> {
        config.validate()?;
        config.validate_types(dataset.schema())?;
        let nodes = input_range(&dataset, &config)?;
        let count = nodes.end - nodes.start;
        if let Some(ids) = &input
            && let Some((place, id)) = ids.iter().enumerate().find(|(_, id)| **id >= count)
        {
            return Err(Error::invalid(format!(
                "input node {id} at place {place}, expected ids below {count}"
            )));
        }
        if let Some(key) = &config.features {
            dataset.array(key)?;
        }
        for key in &config.arrays {
            BatchArray::new(&dataset, key)?;
        }
        let times = times_of_nodes(&dataset, &config, input.as_deref())?;
        let input = match input {
            None => Input::All(nodes),
            Some(mut ids) => {
                ids.iter_mut().for_each(|id| *id += nodes.start);
                Input::Nodes(Arc::new(ids))
            }
        };
        Ok(Self {
            seeds: SeedList::even(input, times, &config)?,
            dataset,
            config,
            prepared: None,
            fetcher: None,
            arrays: None,
            next_group: 0,
            topology_reads: ReadCounters::default(),
            far: None,
            far_counted: FarCounters::default(),
            shared: Arc::new(Mutex::new(Shared {
                counters: Counters::default(),
                timeline: Timeline::start(),
            })),
        })
    }

    /// Sets the time of each seed, in the order of the input, instead of the times of the nodes.
    ///
    /// Call it before the first plan or epoch.
    ///
    /// # Errors
    /// `Invalid`: a wrong number of times, or a configuration that does not use times.
    pub fn with_times(mut self, times: Vec<i64>) -> Result<Self> {
        if !self.config.has_times() {
            return Err(Error::invalid("times of seeds, but neither edges nor nodes with times"));
        }
        self.seeds = self.seeds.with_times(times)?;
        Ok(self)
    }

    /// Replaces the seeds by other global ids; the plan and the caches stay. Call it between
    /// epochs.
    pub fn reseed(&mut self, seeds: SeedList) {
        if let Some(prepared) = &mut self.prepared {
            prepared.sampling = Arc::new(prepared.sampling.reseeded(seeds.clone()));
        }
        self.seeds = seeds;
    }

    /// Reads through an existing tier, regardless of the far-memory options in the configuration.
    ///
    /// Call it before the first plan or epoch.
    #[must_use]
    pub fn through(mut self, far: Arc<FarTier>) -> Self {
        self.far = Some(far);
        self
    }

    /// Batches per epoch on this rank.
    pub fn num_batches(&self) -> u64 {
        self.seeds.num_batches()
    }

    /// Number of seeds.
    pub fn num_seeds(&self) -> u64 {
        self.seeds.count()
    }

    /// The types of the graph.
    pub fn schema(&self) -> &Arc<Schema> {
        self.dataset.schema()
    }

    /// Elements per feature row, by node type; 0 without features.
    ///
    /// # Errors
    /// Those of [`Loader::plan`].
    pub fn widths(&mut self) -> Result<Vec<usize>> {
        let types = self.dataset.schema().node_types().len();
        let rows = self.prepared()?.rows.as_ref();
        let width = |node_type| rows.and_then(|rows| rows.of_type(node_type));
        Ok((0..types).map(|of| width(of).map_or(0, |part| part.source.width)).collect())
    }

    /// Type and shape of each further array, in the order of the configuration.
    ///
    /// # Errors
    /// `NotFound`: an array is missing.
    pub fn array_types(&self) -> Result<Vec<(DType, Vec<u64>)>> {
        let arrays = self.config.arrays.iter();
        arrays.map(|key| self.dataset.array(key).map(|array| (array.dtype, array.shape))).collect()
    }

    /// The memory plan; computed on first use.
    ///
    /// **Cost** loads or opens the topology and samples trial batches; copies files to far memory
    /// that the server does not have.
    ///
    /// # Errors
    /// `Budget`, with the least sufficient budget; `Io` if the memory server cannot be reached or
    /// was lost, and the configuration allows no fallback.
    pub fn plan(&mut self) -> Result<&MemoryPlan> {
        self.plan_with(&mut |_, _| Ok(()))
    }

    /// Like [`Loader::plan`]. `on_progress(done, total)` receives the bytes copied to far memory,
    /// and may stop the copy by returning an error.
    ///
    /// # Errors
    /// As for [`Loader::plan`], and those of `on_progress`.
    pub fn plan_with(&mut self, on_progress: OnProgress<'_>) -> Result<&MemoryPlan> {
        Ok(&self.prepared_with(on_progress)?.plan)
    }

    /// Predicts the reads of epochs. Call it before the first epoch.
    ///
    /// **Cost** samples batches for a second or two; reads no rows.
    ///
    /// # Errors
    /// Those of [`Loader::plan`], and of sampling; `Invalid` once an epoch has begun.
    pub fn forecast(&mut self) -> Result<Forecast> {
        self.forecast_with(&mut |_, _| ())
    }

    /// Like [`Loader::forecast`]. `on_reads` receives the reads of each examined group, and the
    /// index of the node type among the types with features.
    ///
    /// # Errors
    /// As for [`Loader::forecast`].
    pub fn forecast_with(&mut self, on_reads: OnReads<'_>) -> Result<Forecast> {
        let policy = self.config.policy;
        let prepared = self.prepared()?;
        let Some(engine) = &prepared.engine else {
            return Err(Error::invalid("a forecast after the first epoch has begun"));
        };
        let tracing = Tracing {
            sampling: &prepared.sampling,
            plan: &prepared.plan,
            rows: prepared.rows.as_ref(),
            constant: &prepared.constant,
            cost: &prepared.cost,
            max_read: engine.max_read(),
            policy,
            heat: prepared.heat.as_ref(),
        };
        tracing.forecast(on_reads)
    }

    /// Takes the counters and the timeline collected since the last call.
    pub fn take_counters(&mut self) -> (Counters, Vec<Span>, u64) {
        if let Some(prepared) = &self.prepared {
            let reads = prepared.sampling.topology.read_counters();
            let before = std::mem::replace(&mut self.topology_reads, reads);
            lock(&self.shared).counters.topology_reads = reads.since(&before);
        }
        let far = self.far.as_ref().map(|far| {
            let now = far.counters();
            let since = now.since(&self.far_counted);
            self.far_counted = now;
            since
        });
        let mut shared = lock(&self.shared);
        shared.counters.far = far;
        let counters = std::mem::take(&mut shared.counters);
        let (spans, dropped) = shared.timeline.take();
        (counters, spans, dropped)
    }

    /// Starts an epoch at a batch. The cache keeps its rows from earlier epochs.
    ///
    /// # Errors
    /// Those of [`Loader::plan`]; `Invalid` for a batch past the end; failed reads of the constant
    /// part.
    pub fn epoch(&mut self, epoch: u64, first_batch: u64) -> Result<Epoch> {
        let batches = self.num_batches();
        if first_batch > batches {
            return Err(Error::invalid(format!(
                "batch {first_batch} of an epoch of {batches} batches"
            )));
        }
        self.prepared()?;
        self.open_fetcher()?;
        self.open_arrays()?;
        let plan = &self.prepared()?.plan;
        let (group, look_ahead) = (plan.split.group, plan.look_ahead);
        let fetcher = self.fetcher.take();
        self.begin(epoch, first_batch..batches, group, look_ahead, fetcher)
    }

    /// Starts some batches of an epoch in order to time the stages. The stages work one after the
    /// other, so the counters show the time of each stage without overlap. The batches are fetched
    /// together if there is room. The cache starts empty and is dropped at the end.
    ///
    /// Call it before the first epoch, and end it with [`Loader::finish`].
    ///
    /// # Errors
    /// Those of [`Loader::plan`]; `Invalid` once an epoch has begun.
    pub fn time_stages(&mut self) -> Result<Epoch> {
        let batches = self.num_batches();
        let policy = self.config.policy;
        self.prepared()?;
        self.open_arrays()?;
        let prepared = self.prepared()?;
        if prepared.engine.is_none() {
            return Err(Error::invalid("stages are timed before the first epoch begins"));
        }
        let MemoryPlan { split, nodes_per_batch, .. } = prepared.plan;
        let fits = TIMED_NODES / nodes_per_batch.max(1);
        let group = fits.clamp(1, split.group.into()).min(batches);
        // Use full batches, but not the first ones of the epoch: the device might have them cached
        // when the epoch begins.
        let end = if batches > group { batches - 1 } else { batches };
        let slots = split.constant_slots + split.dynamic_slots;
        let split = Split { constant_slots: 0, dynamic_slots: slots, ..split };
        let open = |rows| {
            let cache = RowCache::new(split, policy, None);
            Fetcher::open(&mut prepared.engine, rows, prepared.cost, cache)
        };
        let fetcher = prepared.rows.clone().map(open).transpose()?;
        let mut epoch = self.begin(0, end - group..end, group as u32, 0, fetcher)?;
        epoch.is_timed = true;
        Ok(epoch)
    }

    /// Starts the stages over some batches of an epoch.
    fn begin(
        &mut self,
        epoch: u64,
        batches: Range<u64>,
        group: u32,
        look_ahead: u32,
        fetcher: Option<Fetcher>,
    ) -> Result<Epoch> {
        let Some(prepared) = &self.prepared else {
            return Err(Error::internal("the loader lost its plan"));
        };
        let (sampled_sender, sampled) = sync_channel(0);
        let (ready_sender, ready) = sync_channel(0);
        let (release, released) = channel();
        let sample_stage = SampleStage {
            sampling: Arc::clone(&prepared.sampling),
            epoch,
            batches,
            group: u64::from(group),
            ahead: prepared.sampling.begun_ahead(look_ahead),
            room: fetcher.as_ref().map_or_else(RowRoom::unlimited, Fetcher::room),
            next_group: self.next_group,
            shared: Arc::clone(&self.shared),
        };
        let arena = fetcher.as_ref().map(|fetcher| (fetcher.arena(), fetcher.rows().clone()));
        let fetch_stage = FetchStage {
            fetcher,
            arrays: self.arrays.take(),
            pool: Arc::clone(&prepared.sampling.pool),
            look_ahead: look_ahead as usize,
            shared: Arc::clone(&self.shared),
        };
        let sampler = spawn("outercore-sample", move || sample_stage.run(&sampled_sender))?;
        let fetch =
            spawn("outercore-fetch", move || fetch_stage.run(&sampled, &ready_sender, &released))?;
        Ok(Epoch {
            sampling: Arc::clone(&prepared.sampling),
            arena,
            ready: Some(ready),
            release: Some(release),
            sampler,
            fetch,
            current: None,
            position: 0,
            taken: false,
            is_timed: false,
            clock: StageClock::start(),
            shared: Arc::clone(&self.shared),
        })
    }

    /// Takes back what an epoch borrowed. Call it when the epoch is over or abandoned.
    ///
    /// # Errors
    /// The first stage error that the consumer has not received.
    pub fn finish(&mut self, epoch: Epoch) -> Result<()> {
        let is_timed = epoch.is_timed;
        let (fetcher, arrays, next_group, result) = epoch.stop();
        match (fetcher, &mut self.prepared) {
            (Some(fetcher), Some(prepared)) if is_timed => {
                prepared.engine = Some(fetcher.into_engine());
            }
            (fetcher, _) => self.fetcher = fetcher,
        }
        self.arrays = arrays;
        self.next_group = self.next_group.max(next_group);
        result
    }

    fn prepared(&mut self) -> Result<&mut Prepared> {
        self.prepared_with(&mut |_, _| Ok(()))
    }

    fn prepared_with(&mut self, on_progress: OnProgress<'_>) -> Result<&mut Prepared> {
        if self.prepared.is_none() {
            if let (None, Some(options)) = (&self.far, &self.config.far) {
                let plane = FabricPlane::default();
                self.far = Some(Arc::new(FarTier::connect_with(options, Some(&plane))?));
            }
            if self.config.has_times() && !self.seeds.has_times() && self.seeds.count() > 0 {
                return Err(Error::invalid("the seeds have no times, and their nodes have none")
                    .hint("give the time of each seed (`input_time`)"));
            }
            let (seeds, far) = (self.seeds.clone(), self.far.as_ref());
            let rows = RowSpace::chosen(&self.dataset, &self.config)?;
            let (dataset, config) = (&self.dataset, &self.config);
            self.prepared = Some(prepare(dataset, rows, seeds, config, far, on_progress)?);
        }
        self.prepared.as_mut().ok_or_else(|| Error::internal("the loader lost its plan"))
    }

    fn open_fetcher(&mut self) -> Result<()> {
        let policy = self.config.policy;
        let Some(prepared) = &mut self.prepared else { return Ok(()) };
        let (Some(rows), None) = (&prepared.rows, &self.fetcher) else { return Ok(()) };
        let started = lock(&self.shared).timeline.now();
        let cache = RowCache::new(prepared.plan.split, policy, prepared.heat.clone());
        let engine = &mut prepared.engine;
        let mut fetcher = Fetcher::open(engine, rows.clone(), prepared.cost, cache)?;
        fetcher.fill_constant(std::mem::take(&mut prepared.constant))?;
        let mut shared = lock(&self.shared);
        let (reads, _) = fetcher.take_counters();
        shared.counters.feature_reads += reads;
        shared.timeline.record(Stage::Fetch, 0, started);
        drop(shared);
        self.fetcher = Some(fetcher);
        Ok(())
    }

    fn open_arrays(&mut self) -> Result<()> {
        let Some(prepared) = &self.prepared else { return Ok(()) };
        let (Some(plan), None) = (prepared.plan.arrays, &self.arrays) else { return Ok(()) };
        let (arrays, reading) = (prepared.arrays.clone(), &prepared.array_reading);
        let mut opened = Arrays::open(arrays, plan, prepared.plan.budget, reading, prepared.cost)?;
        lock(&self.shared).counters.feature_reads += opened.take_counters();
        self.arrays = Some(opened);
        Ok(())
    }
}

/// The global ids that seeds may have.
fn input_range(dataset: &DataSet, config: &LoaderConfig) -> Result<Range<u64>> {
    let schema = dataset.schema();
    match &config.input_type {
        Some(name) => Ok(schema.node_types()[schema.node_type(name)?].nodes.clone()),
        None if schema.is_typed() => Err(Error::invalid(
            "seeds: the graph has several node types, expected the one of seeds",
        )),
        None => Ok(0..schema.num_nodes()),
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    Ok(std::thread::Builder::new().name(name.to_owned()).spawn(work)?)
}
