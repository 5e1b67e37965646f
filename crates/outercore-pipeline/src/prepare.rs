//! Computes a memory plan from a configuration: loads or opens the topology, samples trial batches,
//! decides.

use std::sync::Arc;

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_far::{FarTier, OnProgress};
use outercore_format::keys::EDGE;
use outercore_io::arena::{HUGE_PAGE, UNIT};
use outercore_io::{CostModel, DeviceProfile, Engine, EngineConfig, Tier, reads_in_flight};
use outercore_sample::{SampleConfig, visits};
use outercore_store::Topology;
use outercore_store::dataset::DataSet;
use outercore_store::paged::PagedTopology;
use outercore_store::resident::ResidentTopology;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::MemoryPlan;
use crate::arrays::{ArraysPlan, BatchArray};
use crate::config::{Hotness, LoaderConfig, TopologyMode};
use crate::far;
use crate::hot::{self, Hot};
use crate::plan::{MAX_GROUP, PlanInput, TopologyPlan, TopologySize, plan_topology};
use crate::row_space::RowSpace;
use crate::rules::open_rules;
use crate::sampling::Sampling;
use crate::seed_list::SeedList;
use crate::trial::Trial;

/// Number of batches to sample in order to learn their size and how many rows they share. This is a
/// small part of an epoch, and at most the largest group size.
///
/// During the reads of the first group nothing is consumed, and while the last group is consumed
/// nothing is read. A short epoch therefore uses small groups.
fn trial_batches(batches: u64) -> u64 {
    let few = (batches / 8).clamp(4, TRIED);
    few.max((batches / 16).min(u64::from(MAX_GROUP))).min(batches)
}

/// Number of batches that are always sampled; more are sampled only while batches are small.
const TRIED: u64 = 32;

/// After this many nodes, no more small batches are sampled.
const TRIED_NODES: u64 = 1 << 18;

/// Seconds per group in addition to its reads: three threads pass the group on, and the device's
/// queue is empty meanwhile. Measured on two cores of a virtual machine; the device profile gives
/// the latency to add.
const HANDED_ON_S: f64 = 3e-4;

/// Latency of a device without a profile, a virtual SSD.
const USUAL_LATENCY_S: f64 = 1e-4;

/// Trial batches sampled together if there are rows to plan for.
const TRIAL_STEP: u64 = 4;

/// One part in this many of an epoch is pre-sampled: enough to rank the rows, and little of the
/// epoch's time.
const PRESAMPLED_SHARE: u64 = 8;

/// Least number of batches for ranking rows.
const MIN_PRESAMPLED: u64 = 32;

/// State that the loader needs to run epochs.
pub struct Prepared {
    /// The sampling stage.
    pub sampling: Arc<Sampling>,
    /// The memory plan.
    pub plan: MemoryPlan,
    /// The features, if any are delivered.
    pub rows: Option<RowSpace>,
    /// Rows of the constant part, ascending; moved out when they are read.
    pub constant: Vec<u64>,
    /// Heat of each row, if known.
    pub heat: Option<Arc<[u8]>>,
    /// Cost model of the device.
    pub cost: CostModel,
    /// Reads the features; moved into the fetcher.
    pub engine: Option<Engine>,
    /// Further arrays of batches, in the order of the configuration.
    pub arrays: Vec<BatchArray>,
    /// How to read the further arrays.
    pub array_reading: EngineConfig,
}

/// Read buffers of an engine that is not used.
const LEAST_STAGING: Bytes = Bytes::kib(64);

/// Bytes of read buffers: a small part of a small budget, and never more than 8 MiB.
///
/// 8 MiB has room for eight reads of the greatest length, or for a deep queue of short reads. On
/// the tested disk, more was slower, because copies are faster from buffers that stay in the
/// processor's cache. Sizes from one huge page upwards are whole huge pages, so that every long
/// read is on huge pages.
fn staging(budget: Bytes) -> Bytes {
    let share = (budget.0 / 16).clamp(1 << 20, 8 << 20);
    let step = if share < HUGE_PAGE as u64 { UNIT } else { HUGE_PAGE } as u64;
    Bytes(share / step * step)
}

/// The queue is deep enough for this share of the device's peak rate of small reads.
const SHARE_OF_PEAK: f64 = 0.95;

/// Fewest and most reads in flight, for any profile. If the device's cache answered the latency
/// measurement, the computed queue would be too short for cache misses. Beyond some hundreds, reads
/// only wait in the kernel instead of here, and each needs memory.
const DEPTHS: (usize, usize) = (32, 512);

/// How to read on a device, according to its profile if there is one.
fn reading(
    config: &LoaderConfig,
    profile: Option<&DeviceProfile>,
    far: Option<&Arc<FarTier>>,
) -> EngineConfig {
    let (fewest, most) = DEPTHS;
    let depth = profile.map_or(EngineConfig::default().depth, |profile| {
        reads_in_flight(profile, SHARE_OF_PEAK).clamp(fewest, most)
    });
    let tier = far.map(|far| Arc::clone(far) as Arc<dyn Tier>);
    EngineConfig { backend: config.backend, staging: staging(config.memory), depth, tier }
}

/// Loads or opens the topology, samples trial batches and divides the budget. Rows are read from
/// `source`.
///
/// A topology that would leave too little memory for rows is paged instead, unless it must be
/// resident. With `far`, the files of epochs are brought to far memory first; `on_progress(done,
/// total)` receives the bytes copied.
///
/// # Errors
/// `Budget`, with the least sufficient budget; `Invalid` for features that do not fit the graph;
/// `Io` if the memory server was lost and the configuration allows no fallback.
pub fn prepare(
    dataset: &DataSet,
    rows: Option<RowSpace>,
    seeds: SeedList,
    config: &LoaderConfig,
    far: Option<&Arc<FarTier>>,
    on_progress: OnProgress<'_>,
) -> Result<Prepared> {
    let mode = config.topology;
    let request = (rows, seeds);
    match prepare_with(dataset, request.clone(), config, mode, far, on_progress) {
        Err(error)
            if error.kind() == ErrorKind::Budget && config.topology == TopologyMode::Auto =>
        {
            prepare_with(dataset, request, config, TopologyMode::Paged, far, on_progress)
        }
        prepared => prepared,
    }
}

fn prepare_with(
    dataset: &DataSet,
    (rows, seeds): (Option<RowSpace>, SeedList),
    config: &LoaderConfig,
    mode: TopologyMode,
    far: Option<&Arc<FarTier>>,
    on_progress: OnProgress<'_>,
) -> Result<Prepared> {
    let budget = config.memory;
    let arrays = batch_arrays(dataset, config)?;
    let profile = DeviceProfile::find(dataset.root())?;
    let cost = profile.as_ref().map_or_else(CostModel::default, CostModel::from);
    let reading = reading(config, profile.as_ref(), far);
    let heated = rows.is_some() && config.hotness == Hotness::Visits;
    // One byte per node.
    let of_heat = if heated { dataset.num_nodes() } else { 0 };
    let of_rows = rows.as_ref().map_or(0, |rows| rows.memory().0) + of_heat;
    let reserved = Bytes(config.reserved.0 + seeds.heap_bytes() + of_rows);

    let (staging, depth) = (reading.staging, reading.depth);
    let free = Bytes(budget.0.saturating_sub(reserved.0 + staging.0));
    let (rules, of_rules) = open_rules(dataset, config, free, &reading, cost)?;
    let reserved = Bytes(reserved.0 + of_rules.0);
    let free = Bytes(budget.0.saturating_sub(reserved.0 + staging.0));
    let most = most_resident(free, rows.is_some());
    let size = topology_size(dataset, config)?;
    let topology_plan = plan_topology(mode, size, free, staging, most)?;
    let slot_bytes = rows.as_ref().map_or(Bytes(0), RowSpace::slot_bytes);
    let left = Bytes(free.0.saturating_sub(topology_plan.memory.0));
    let fit = config.constant_share.is_none() && far::rows_fit(rows.as_ref(), left, slot_bytes);
    let far = far
        .map(|tier| far::bring(tier, dataset, config, topology_plan, fit, &reading, on_progress))
        .transpose()?;
    let most_arrays = most_arrays(left, rows.is_some());
    let mut engine = Engine::open(reading.clone())?;
    let array_reading = reading.clone();
    let topology = open_topology(dataset, config, topology_plan, &mut engine, reading, cost)?;
    let ranges = rows.as_ref().map(RowSpace::ranges);
    let pool = workers(config)?;
    let sample = SampleConfig { rules, ..config.sampling(dataset.schema()) };
    let sampling = Sampling::new(topology, sample, seeds, ranges, pool, config);
    let sampling = Arc::new(sampling);

    let (mut trial, mut heat) = (Trial::default(), None);
    run_trial(&sampling, rows.as_ref(), config.look_ahead, &mut trial)?;
    if let Some(rows) = &rows {
        let slots = (free.0 / slot_bytes.0.max(1)).min(rows.num_rows()) as usize;
        let hot = hot_rows(dataset, &sampling, config, slots, left, &mut engine)?;
        (trial.hot, heat) = (hot.rows, hot.heat);
    }
    let planned = rows.as_ref().map(RowSpace::planned).transpose()?;
    let wanted = PlanInput {
        budget,
        reserved,
        topology: topology_plan,
        staging,
        rows: planned.as_deref(),
        slot_bytes,
        edge_ids: config.needs_edge_ids(),
        arrays: ArraysPlan::new(&arrays, most_arrays, budget),
        look_ahead: config.look_ahead,
        group: config.group,
        constant_share: config.constant_share,
        trial: &trial,
        cost: &cost,
        pause_s: HANDED_ON_S
            + profile.as_ref().map_or(USUAL_LATENCY_S, |profile| profile.latency_s),
        max_read: engine.max_read(),
        depth,
        far,
    };
    let plan = decide(&wanted, &arrays, mode, (config.topology, size))?;
    let plan = MemoryPlan { all_rows: all_rows(&wanted, size)?, ..plan };
    let constant = constant_rows(trial.hot, &plan, rows.as_ref());
    let engine = Some(engine);
    Ok(Prepared { sampling, plan, rows, constant, heat, cost, engine, arrays, array_reading })
}

/// The plan for `wanted`. If further arrays leave too little memory, they stay on disk.
///
/// # Errors
/// `Budget`, with the least sufficient budget for the requested topology mode.
fn decide(
    wanted: &PlanInput<'_>,
    arrays: &[BatchArray],
    mode: TopologyMode,
    (asked, size): (TopologyMode, TopologySize),
) -> Result<MemoryPlan> {
    let budget = wanted.budget;
    let on_disk = |budget| ArraysPlan::new(arrays, Bytes(0), budget);
    // After `Auto` fails, the caller tries another mode. In the other modes, the error must name
    // the least sufficient budget.
    MemoryPlan::new(wanted)
        .or_else(|_| MemoryPlan::new(&PlanInput { arrays: on_disk(budget), ..*wanted }))
        .map_err(|error| match mode {
            TopologyMode::Auto => error,
            _ => PlanInput { arrays: on_disk(budget), ..*wanted }.refuse(|budget| {
                let wanted = PlanInput { arrays: on_disk(budget), ..*wanted };
                plans(&wanted, budget, asked, size)
            }),
        })
}

/// The sampling threads.
fn workers(config: &LoaderConfig) -> Result<Arc<ThreadPool>> {
    ThreadPoolBuilder::new()
        .num_threads(config.effective_threads())
        .thread_name(|i| format!("outercore-{i}"))
        .build()
        .map(Arc::new)
        .map_err(|error| Error::internal(format!("cannot start worker threads: {error}")))
}

/// Whether `wanted` has a plan with another budget.
fn plans(wanted: &PlanInput<'_>, budget: Bytes, mode: TopologyMode, size: TopologySize) -> bool {
    let staging = staging(budget);
    let free = Bytes(budget.0.saturating_sub(wanted.reserved.0 + staging.0));
    let most = most_resident(free, wanted.rows.is_some());
    let modes = match mode {
        TopologyMode::Auto => [TopologyMode::Auto, TopologyMode::Paged],
        _ => [mode, mode],
    };
    modes.into_iter().any(|mode| {
        plan_topology(mode, size, free, staging, most)
            .and_then(|topology| {
                MemoryPlan::new(&PlanInput { budget, topology, staging, ..*wanted })
            })
            .is_ok()
    })
}

/// The least budget that surely holds all feature rows. With it, a paged topology may become
/// resident or keep its pages: the larger of the two counts.
fn all_rows(wanted: &PlanInput<'_>, size: TopologySize) -> Result<Option<Bytes>> {
    if wanted.arrays != ArraysPlan::default() {
        return Ok(None);
    }
    let resident = Bytes(size.offsets.0 + size.sources.0 + size.edge_ids.0);
    let mut budget = Bytes(0);
    loop {
        let staging = staging(budget);
        let mut topology = wanted.topology;
        if !topology.resident {
            topology = plan_topology(TopologyMode::Paged, size, budget, staging, Bytes(0))?;
            topology.memory = topology.memory.max(resident);
        }
        let input = PlanInput { budget, staging, topology, ..*wanted };
        match input.with_all_rows() {
            Some(needed) if needed > budget => budget = needed,
            needed => return Ok(needed.map(|_| budget)),
        }
    }
}

fn constant_rows(mut hot: Vec<u64>, plan: &MemoryPlan, rows: Option<&RowSpace>) -> Vec<u64> {
    let slots = u64::from(plan.split.constant_slots);
    if slots > 0 && slots == plan.num_rows {
        return rows.map(RowSpace::ranges).into_iter().flatten().flatten().collect();
    }
    hot.truncate(slots as usize);
    hot.sort_unstable();
    hot.shrink_to_fit();
    hot
}

fn batch_arrays(dataset: &DataSet, config: &LoaderConfig) -> Result<Vec<BatchArray>> {
    config.arrays.iter().map(|key| BatchArray::new(dataset, key)).collect()
}

/// Sizes of the arrays of a topology.
pub fn topology_size(dataset: &DataSet, config: &LoaderConfig) -> Result<TopologySize> {
    let bytes = |key: &str| -> Result<Bytes> {
        let array = dataset.array(key)?;
        Ok(Bytes(array.shape.iter().product::<u64>() * array.dtype.size() as u64))
    };
    if config.fan_outs.is_empty() {
        return Ok(TopologySize::default());
    }
    let edge_ids = if config.needs_edge_ids() && dataset.has_array("edges/edge/ids") {
        bytes("edges/edge/ids")?
    } else {
        Bytes(0)
    };
    Ok(TopologySize {
        offsets: ResidentTopology::offsets_memory(dataset.num_columns(), dataset.num_edges()),
        sources: bytes("edges/edge/sources")?,
        edge_ids,
    })
}

/// Opens or loads a topology according to the plan.
pub fn open_topology(
    dataset: &DataSet,
    config: &LoaderConfig,
    plan: TopologyPlan,
    engine: &mut Engine,
    reading: EngineConfig,
    cost: CostModel,
) -> Result<Arc<dyn Topology>> {
    if config.fan_outs.is_empty() {
        // No hop examines edges: an unused paged topology costs almost nothing.
        let reading = EngineConfig { staging: LEAST_STAGING, depth: 1, ..reading };
        return Ok(Arc::new(PagedTopology::open(dataset, reading, cost, false)?));
    }
    if plan.resident {
        return Ok(Arc::new(ResidentTopology::load(dataset, engine, config.needs_edge_ids())?));
    }
    let paged = PagedTopology::open(dataset, reading, cost, plan.offsets_resident)?;
    Ok(Arc::new(paged.with_working_memory(plan.working)))
}

/// Most memory of a topology that is resident by choice of the plan. This is half of the free
/// memory if rows need the rest, otherwise all except for the room of the batches in flight.
fn most_resident(free: Bytes, rows: bool) -> Bytes {
    Bytes(if rows { free.0 / 2 } else { free.0 / 8 * 7 })
}

/// Most memory of further arrays that are resident: a quarter of what the topology leaves if
/// feature rows need the rest, otherwise half.
fn most_arrays(left: Bytes, rows: bool) -> Bytes {
    Bytes(if rows { left.0 / 4 } else { left.0 / 2 })
}

/// Samples the first batches of epoch 0. If there are `rows` to plan for, keeps the distinct nodes
/// of these batches.
///
/// Without rows, the memory of these batches and of the sampling threads stays allocated for the
/// first epoch. It therefore samples as many batches together as an epoch starts with.
fn run_trial(
    sampling: &Sampling,
    rows: Option<&RowSpace>,
    look_ahead: u32,
    trial: &mut Trial,
) -> Result<()> {
    let batches = trial_batches(sampling.num_batches());
    let step = if rows.is_some() { TRIAL_STEP } else { 1 + sampling.begun_ahead(look_ahead) };
    let mut next = 0;
    let mut nodes = 0;
    while next < batches && (next < TRIED || nodes < TRIED_NODES) {
        let until = (next + step).min(batches);
        for (sampled, _) in sampling.sample(0, next..until)? {
            nodes += sampled.nodes.len() as u64;
            trial.nodes = trial.nodes.max(sampled.nodes.len() as u64);
            trial.edges = trial.edges.max(sampled.num_edges() as u64);
            trial.columns = trial.columns.max(sampled.picked.len() as u64);
            trial.scratch = trial.scratch.max(sampled.scratch);
            if let Some(rows) = rows {
                let nodes = sampled.nodes.iter().filter(|&node| sampling.wants_row(node));
                let mut nodes: Vec<u64> = nodes.collect();
                nodes.sort_unstable();
                trial.row_bytes = trial.row_bytes.max(rows.delivered_bytes(&nodes));
                nodes.dedup();
                trial.batches.push(nodes);
            } else {
                sampling.shelf.give_back(sampled);
            }
        }
        next = until;
    }
    Ok(())
}

/// Rows by falling heat, at most `slots` of them, using at most the memory that the topology has
/// `left`.
fn hot_rows(
    dataset: &DataSet,
    sampling: &Sampling,
    config: &LoaderConfig,
    slots: usize,
    left: Bytes,
    engine: &mut Engine,
) -> Result<Hot> {
    // Expected visits also provide the heat of the dynamic part.
    let none_constant = config.constant_share == Some(0.0) && config.hotness != Hotness::Visits;
    if config.hotness == Hotness::None || none_constant {
        return Ok(Hot::default());
    }
    if let Hotness::Array(key) = &config.hotness {
        dataset.require_one_type("a cache filled by the values of an array")?;
        return hot::by_array(dataset, key, slots, engine).map(Hot::from);
    }
    let nodes = sampling.topology.num_nodes();
    let may_visit =
        visits::are_known(sampling.config()) && visits::memory(nodes).0 <= left.0 / 8 * 7;
    if config.hotness == Hotness::Visits && may_visit {
        let edges = dataset.manifest().edge_types.get(EDGE);
        let mirrored = edges.is_some_and(|edges| edges.undirected);
        return hot::by_visits(sampling, mirrored, slots);
    }
    let counters_fit = nodes * 2 <= left.0 / 2;
    if config.hotness == Hotness::InDegree || !counters_fit {
        return hot::by_in_degree(sampling, dataset.schema(), slots).map(Hot::from);
    }
    let batches = sampling.num_batches();
    let presampled = (batches / PRESAMPLED_SHARE).max(MIN_PRESAMPLED).min(batches);
    // Pre-sample at the end of the epoch. The trial uses its start; ranking the rows by the same
    // batches would make the plan too optimistic.
    hot::by_presampling(sampling, batches - presampled..batches, slots).map(Hot::from)
}

#[cfg(test)]
mod tests;
