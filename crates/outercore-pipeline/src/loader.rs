//! The loader: epochs of batches, with sampling and fetching running ahead on their own threads.

mod batch;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use outercore_core::{Context, Error, NodeId, ReadCounters, Result, StageClock};
use outercore_fabric::FabricPlane;
use outercore_far::{FarCounters, FarTier, OnProgress};
use outercore_format::{DType, Schema};
use outercore_sample::{SampledBatch, Shelf};
use outercore_store::dataset::DataSet;
use rayon::prelude::*;

use crate::MemoryPlan;
use crate::arrays::{Arrays, BatchArray};
use crate::config::LoaderConfig;
use crate::counters::{Counters, Shared, SharedState, lock};
use crate::fetch::Fetcher;
use crate::fetch::Ready;
use crate::group::GroupBatch;
use crate::prepare::{Prepared, prepare};
use crate::row_space::{RowSpace, covers};
use crate::rows::RowArena;
use crate::sampling::{Input, Sampling};
use crate::share::Share;
use crate::stages::{FetchStage, SampleStage};
use crate::timeline::{Span, Stage, Timeline};

pub use batch::Batch;

/// Rows gathered by one task when a batch is assembled.
const GATHER_ROWS: usize = 1024;

/// Delivers the mini-batches of a data set under a memory budget.
///
/// Nothing is read before the first [`Loader::plan`] or [`Loader::epoch`].
pub struct Loader {
    dataset: DataSet,
    input: Input,
    config: LoaderConfig,
    share: Share,
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
    /// Binds a data set, the seeds (`None`: every node, in order) and a configuration. In a graph of
    /// several node types seeds are ids within the configuration's input type.
    ///
    /// # Errors
    /// `Invalid` for a configuration out of range or a seed that is no node, `NotFound` for features
    /// that the data set does not have.
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
        let input = match input {
            None => Input::All(nodes),
            Some(mut ids) => {
                ids.iter_mut().for_each(|id| *id += nodes.start);
                Input::Nodes(Arc::new(ids))
            }
        };
        Ok(Self {
            share: Share::new(input.len(), &config)?,
            dataset,
            input,
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

    /// Reads through a tier that is there already, whatever the configuration says of far memory.
    ///
    /// To be called before the first plan or epoch.
    #[must_use]
    pub fn through(mut self, far: Arc<FarTier>) -> Self {
        self.far = Some(far);
        self
    }

    /// Batches per epoch, of this rank.
    pub fn num_batches(&self) -> u64 {
        self.share.num_batches()
    }

    /// Nodes in the seed list.
    pub fn num_seeds(&self) -> u64 {
        self.input.len()
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
    /// `NotFound`: an array is gone.
    pub fn array_types(&self) -> Result<Vec<(DType, Vec<u64>)>> {
        let arrays = self.config.arrays.iter();
        arrays.map(|key| self.dataset.array(key).map(|array| (array.dtype, array.shape))).collect()
    }

    /// The memory plan; made on first use.
    ///
    /// **Cost** loads or opens the topology and samples trial batches; copies to far memory what the
    /// server does not have.
    ///
    /// # Errors
    /// `Budget`, with the least that would do; `Io` when the memory server cannot be reached, or is
    /// gone and not to be done without.
    pub fn plan(&mut self) -> Result<&MemoryPlan> {
        self.plan_with(&mut |_, _| Ok(()))
    }

    /// As [`Loader::plan`]; `on_progress(done, total)` gets the bytes that are copied to far memory,
    /// and may end it by an error.
    ///
    /// # Errors
    /// As for [`Loader::plan`], and those of `on_progress`.
    pub fn plan_with(&mut self, on_progress: OnProgress<'_>) -> Result<&MemoryPlan> {
        Ok(&self.prepared_with(on_progress)?.plan)
    }

    /// Takes the counters and the timeline since the last call.
    pub fn take_counters(&mut self) -> (Counters, Vec<Span>, u64) {
        if let Some(prepared) = &self.prepared {
            let reads = prepared.sampling.topology.read_counters();
            let before = std::mem::replace(&mut self.topology_reads, reads);
            lock(&self.shared).counters.topology_reads = ReadCounters {
                requests: reads.requests - before.requests,
                bytes: reads.bytes - before.bytes,
                useful_bytes: reads.useful_bytes - before.useful_bytes,
            };
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

    /// Starts an epoch at a batch; the cache keeps what earlier epochs left in it.
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
        let Some(prepared) = &self.prepared else {
            return Err(Error::internal("the loader lost its plan"));
        };
        let plan = &prepared.plan;
        let (sampled_sender, sampled) = sync_channel(0);
        let (ready_sender, ready) = sync_channel(0);
        let (release, released) = channel();
        let sample_stage = SampleStage {
            sampling: Arc::clone(&prepared.sampling),
            epoch,
            batches: first_batch..batches,
            group: u64::from(plan.split.group),
            ahead: prepared.sampling.begun_ahead(plan.look_ahead),
            max_rows: max_rows(plan),
            next_group: self.next_group,
            shared: Arc::clone(&self.shared),
        };
        let arena = self.fetcher.as_ref().map(|fetcher| (fetcher.arena(), fetcher.rows().clone()));
        let fetch_stage = FetchStage {
            fetcher: self.fetcher.take(),
            arrays: self.arrays.take(),
            pool: Arc::clone(&prepared.sampling.pool),
            look_ahead: plan.look_ahead as usize,
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
            clock: StageClock::start(),
            shared: Arc::clone(&self.shared),
        })
    }

    /// Takes back what an epoch borrowed; call it when the epoch is over or abandoned.
    ///
    /// # Errors
    /// The first error of a stage that the consumer has not seen.
    pub fn finish(&mut self, epoch: Epoch) -> Result<()> {
        let (fetcher, arrays, next_group, result) = epoch.stop();
        self.fetcher = fetcher;
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
            let (input, far) = (self.input.clone(), self.far.as_ref());
            let rows = RowSpace::chosen(&self.dataset, &self.config)?;
            let (dataset, config) = (&self.dataset, &self.config);
            self.prepared = Some(prepare(dataset, rows, input, config, far, on_progress)?);
        }
        self.prepared.as_mut().ok_or_else(|| Error::internal("the loader lost its plan"))
    }

    fn open_fetcher(&mut self) -> Result<()> {
        let policy = self.config.policy;
        let Some(prepared) = &mut self.prepared else { return Ok(()) };
        let (Some(rows), None) = (&prepared.rows, &self.fetcher) else { return Ok(()) };
        let started = lock(&self.shared).timeline.now();
        let engine = prepared.engine.take().ok_or_else(|| Error::internal("the engine is gone"))?;
        let mut fetcher =
            Fetcher::open(engine, rows.clone(), prepared.cost, policy, &prepared.plan)?;
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

/// The global ids of the nodes that seeds are among.
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

/// Distinct rows that several batches may need together: those of the constant part, and half of
/// the dynamic slots, so that the next group can be fetched while this one is consumed.
pub fn max_rows(plan: &MemoryPlan) -> u64 {
    let constant = u64::from(plan.split.constant_slots);
    if constant == plan.num_rows {
        return u64::MAX;
    }
    constant + u64::from(plan.split.dynamic_slots) / 2
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    Ok(std::thread::Builder::new().name(name.to_owned()).spawn(work)?)
}

/// Whether there is a next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advance {
    /// [`Epoch::batch`] is the next batch.
    Batch,
    /// The epoch is over.
    End,
    /// Nothing came within the time given; ask again.
    NotYet,
}

/// One pass over the seeds.
///
/// A batch is looked at where it is ([`Epoch::batch`], [`Epoch::gather`]) and given up by the next
/// [`Epoch::advance`]; so the slots of its rows are never held longer than the pipeline expects.
pub struct Epoch {
    sampling: Arc<Sampling>,
    arena: Option<(Arc<RowArena>, RowSpace)>,
    ready: Option<Receiver<Result<Ready>>>,
    release: Option<Sender<u64>>,
    sampler: JoinHandle<u64>,
    fetch: JoinHandle<(Option<Fetcher>, Option<Arrays>)>,
    current: Option<Ready>,
    position: usize,
    /// Whether the batch there was taken.
    taken: bool,
    clock: StageClock,
    shared: SharedState,
}

impl Epoch {
    /// Moves to the next batch, waiting for it at most `patience`.
    ///
    /// # Errors
    /// The first error of any stage; afterwards the epoch is over.
    pub fn advance(&mut self, patience: Duration) -> Result<Advance> {
        self.taken = false;
        if let Some(ready) = &self.current {
            self.position += 1;
            if self.position < ready.group.batches.len() {
                return Ok(Advance::Batch);
            }
        }
        if let Some(Ready { group, .. }) = self.current.take() {
            let number = group.number;
            self.sampling.give_back(group);
            if let Some(release) = &self.release {
                // The fetch stage may be gone after an error; the next receive tells.
                let _ = release.send(number);
            }
        }
        let Some(receiver) = &self.ready else { return Ok(Advance::End) };
        let mut away = 0.0;
        self.clock.lap(&mut away);
        let received = receiver.recv_timeout(patience);
        self.clock.lap(&mut lock(&self.shared).counters.assemble.starved_s);
        match received {
            Ok(Ok(ready)) => {
                self.position = 0;
                self.current = Some(ready);
                Ok(Advance::Batch)
            }
            Ok(Err(error)) => {
                self.ready = None;
                Err(error)
            }
            Err(RecvTimeoutError::Timeout) => Ok(Advance::NotYet),
            Err(RecvTimeoutError::Disconnected) => {
                // The epoch is over, or a stage panicked; `Loader::finish` tells which.
                self.ready = None;
                Ok(Advance::End)
            }
        }
    }

    /// The batch that the last [`Epoch::advance`] moved to, unless it was taken.
    pub fn batch(&self) -> Option<Batch<'_>> {
        self.reached().filter(|_| !self.taken)
    }

    /// Takes the subgraph of the batch and the places of its seeds in the input; its features can
    /// be gathered all the same.
    ///
    /// The memory is at home on [`Epoch::shelf`].
    pub fn take_batch(&mut self) -> Option<(SampledBatch, Vec<u64>)> {
        if self.taken {
            return None;
        }
        let batch = self.current.as_mut()?.group.batches.get_mut(self.position)?;
        self.taken = true;
        // What is left still has its number.
        let left = SampledBatch { batch: batch.sampled.batch, ..SampledBatch::default() };
        Some((std::mem::replace(&mut batch.sampled, left), std::mem::take(&mut batch.input_ids)))
    }

    /// Takes the rows of the further arrays of the batch, array by array in the order of the
    /// configuration: those of its nodes or of its edges, one after the other as they are stored.
    pub fn take_arrays(&mut self) -> Vec<Vec<u8>> {
        let batch = self.current.as_mut().and_then(|ready| {
            let batch: Option<&mut GroupBatch> = ready.group.batches.get_mut(self.position);
            batch
        });
        batch.map(|batch| std::mem::take(&mut batch.arrays)).unwrap_or_default()
    }

    /// Where the memory of batches that nobody looks at any more waits for other ones.
    pub fn shelf(&self) -> &Arc<Shelf> {
        &self.sampling.shelf
    }

    fn reached(&self) -> Option<Batch<'_>> {
        let ready = self.current.as_ref()?;
        let batch = ready.group.batches.get(self.position)?;
        Some(Batch { ready, batch })
    }

    /// Writes the feature rows of the batch's nodes of one type, in the order of the batch.
    ///
    /// **Shapes** `out`: nodes x width, row-major.
    ///
    /// # Errors
    /// `Invalid` if `out` has another size, there is no batch or the type has no features, or a
    /// feature does not fit `float32` (with its node and column).
    pub fn gather(&mut self, node_type: usize, out: &mut [f32]) -> Result<()> {
        let started = lock(&self.shared).timeline.now();
        let part = self.arena.as_ref().and_then(|(arena, rows)| {
            rows.of_type(node_type).map(|part| (arena, part, rows.parts().len() == 1))
        });
        let Some((arena, part, only)) = part else {
            return Err(Error::invalid("the loader delivers no features"));
        };
        let Some(Batch { ready, batch }) = self.reached() else {
            return Err(Error::invalid("there is no batch to gather"));
        };
        let width = part.source.width;
        let whole = only && part.nodes == (0..self.sampling.topology.num_nodes());
        let index = if whole {
            Cow::Borrowed(&batch.row_index[..])
        } else {
            let nodes = batch.sampled.nodes.iter().zip(&batch.row_index);
            let own = nodes.filter(|(node, _)| covers(std::slice::from_ref(&part.nodes), *node));
            Cow::Owned(own.map(|(_, &index)| index).collect())
        };
        if out.len() != index.len() * width {
            return Err(Error::invalid(format!(
                "room for {} values, expected {} nodes x {width} features",
                out.len(),
                index.len()
            )));
        }
        let chunks = out.par_chunks_mut(GATHER_ROWS * width).zip(index.par_chunks(GATHER_ROWS));
        self.sampling.pool.install(|| {
            chunks.try_for_each(|(out, index)| {
                for (row, &place) in out.chunks_exact_mut(width).zip(index) {
                    let slot = ready.slots[place as usize];
                    part.source.deliver(arena, slot, row).with_context(|| {
                        let node = ready.group.rows[place as usize] - part.nodes.start;
                        format!("features of node {node}")
                    })?;
                }
                Ok::<(), Error>(())
            })
        })?;
        let item = batch.sampled.batch;
        let mut shared = lock(&self.shared);
        shared.counters.assemble.items += 1;
        let now = shared.timeline.now();
        shared.counters.assemble.busy_s += now - started;
        shared.timeline.record(Stage::Assemble, item, started);
        Ok(())
    }

    /// Stops the stages and takes back the fetcher, the arrays and the number of the next group.
    fn stop(mut self) -> (Option<Fetcher>, Option<Arrays>, u64, Result<()>) {
        // Both channels close, so that a stage that waits to send or receive comes to its end.
        self.current = None;
        self.ready = None;
        self.release = None;
        let mut result = Ok(());
        let (fetcher, arrays) = self.fetch.join().unwrap_or_else(|panic| {
            result = Err(stage_panicked("fetch", &*panic));
            (None, None)
        });
        let next_group = self.sampler.join().unwrap_or_else(|panic| {
            result = Err(stage_panicked("sample", &*panic));
            0
        });
        (fetcher, arrays, next_group, result)
    }
}

fn stage_panicked(stage: &str, panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default();
    Error::internal(format!("the {stage} stage panicked: {text}"))
}
