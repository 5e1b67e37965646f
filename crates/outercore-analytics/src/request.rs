//! From a data set and a wish to a result: checks, grid, plan, run, delivery.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_fabric::FabricPlane;
use outercore_far::FarTier;
use outercore_format::keys;
use outercore_grid::{BuildOptions, Grid};
use outercore_io::{CostModel, DeviceProfile, Engine, EngineConfig, RealDisk, Tier};
use outercore_store::dataset::DataSet;
use serde::{Deserialize, Serialize};

use crate::algorithms::degrees::DegreeName;
use crate::algorithms::pagerank::{PagerankOptions, Teleport};
use crate::algorithms::{self, Found};
use crate::checkpoint::{self, Checkpoints};
use crate::config::RunConfig;
use crate::far;
use crate::output::{Counters, Need, Values};
use crate::plan::{FarShare, PlanInput, RunPlan};
use crate::profile::Profile;
use crate::program::Flow;
use crate::segments::segments;
use crate::state::Spill;
use crate::stream_run::{OnProgress, StreamOptions, StreamRun};

/// Reads in flight at most; segments are long, so that staging sets the limit.
const DEPTH: usize = 64;

/// Which way to follow arcs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowName {
    /// From source to target.
    #[default]
    Out,
    /// From target to source.
    In,
    /// Both ways.
    Both,
}

impl From<FlowName> for Flow {
    fn from(name: FlowName) -> Self {
        match name {
            FlowName::Out => Self::Along,
            FlowName::In => Self::Against,
            FlowName::Both => Self::Both,
        }
    }
}

/// An algorithm with its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "algorithm", rename_all = "snake_case", deny_unknown_fields)]
pub enum Algorithm {
    /// [`pagerank`](algorithms::pagerank).
    Pagerank {
        /// Share that follows the arcs.
        damping: f64,
        /// Iterations at most.
        max_iterations: u32,
        /// Largest change of a result at rest.
        tolerance: f64,
        /// Edge array by which ranks are shared out.
        weights: Option<String>,
        /// Against the arcs.
        reverse: bool,
    },
    /// [`bfs`](algorithms::bfs).
    Bfs {
        /// Where it begins.
        source: u64,
        /// Which way.
        flow: FlowName,
    },
    /// [`sssp`](algorithms::sssp).
    Sssp {
        /// Where paths begin.
        source: u64,
        /// Edge array of lengths.
        weights: Option<String>,
        /// Which way.
        flow: FlowName,
    },
    /// [`wcc`](algorithms::wcc).
    Wcc {},
    /// [`scc`](algorithms::scc).
    Scc {},
    /// [`radii`](algorithms::radii).
    Radii {
        /// Nodes to search from.
        sources: u32,
        /// Of their draw.
        seed: u64,
        /// Which way.
        flow: FlowName,
    },
    /// [`betweenness`](algorithms::betweenness).
    Betweenness {
        /// Nodes from which paths are counted; all by default.
        sources: Option<Vec<u64>>,
        /// So many nodes instead.
        samples: Option<u32>,
        /// Of their draw.
        seed: u64,
        /// Divided by the number of pairs.
        normalized: bool,
    },
    /// [`kcore`](algorithms::kcore).
    Kcore {},
    /// [`label_propagation`](algorithms::label_propagation).
    LabelPropagation {
        /// Iterations at most.
        max_iterations: u32,
    },
    /// [`triangles`](algorithms::triangles).
    Triangles {},
    /// [`degrees`](algorithms::degrees).
    Degrees {
        /// Which.
        which: DegreeName,
    },
}

impl Algorithm {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pagerank { .. } => "pagerank",
            Self::Bfs { .. } => "bfs",
            Self::Sssp { .. } => "sssp",
            Self::Wcc {} => "wcc",
            Self::Scc {} => "scc",
            Self::Radii { .. } => "radii",
            Self::Betweenness { .. } => "betweenness",
            Self::Kcore {} => "kcore",
            Self::LabelPropagation { .. } => "label_propagation",
            Self::Triangles {} => "triangles",
            Self::Degrees { .. } => "degrees",
        }
    }

    /// Whether a run of it can leave checkpoints.
    pub fn leaves_checkpoints(&self) -> bool {
        matches!(
            self,
            Self::Pagerank { .. }
                | Self::Bfs { .. }
                | Self::Sssp { .. }
                | Self::Wcc {}
                | Self::Kcore {}
                | Self::LabelPropagation { .. }
        )
    }

    /// The edge array that it reads.
    pub fn weights(&self) -> Option<&str> {
        match self {
            Self::Pagerank { weights, .. } | Self::Sssp { weights, .. } => weights.as_deref(),
            _ => None,
        }
    }

    /// Checks options against a graph of `nodes` nodes.
    ///
    /// # Errors
    /// `Invalid`, naming the option, its value and the accepted range.
    pub fn validate(&self, nodes: u64) -> Result<()> {
        let name = self.name();
        let is_node = |source: u64| {
            if source < nodes {
                return Ok(());
            }
            let last = nodes.saturating_sub(1);
            Err(Error::invalid(format!(
                "{name}: source {source}, the graph has {nodes} nodes (0 to {last})"
            )))
        };
        match self {
            Self::Pagerank { .. } => {
                self.pagerank_options().map_or(Ok(()), |options| options.validate())
            }
            // An empty graph has an empty result and no node to begin with.
            Self::Bfs { source, .. } | Self::Sssp { source, .. } if nodes > 0 => is_node(*source),
            Self::Radii { sources: 0, .. } => {
                Err(Error::invalid("radii: sources 0, expected 1 or more"))
            }
            Self::Betweenness { sources: Some(_), samples: Some(_), .. } => {
                Err(Error::invalid("betweenness: both sources and samples, expected one of them"))
            }
            Self::Betweenness { samples: Some(samples), .. }
                if *samples == 0 || u64::from(*samples) > nodes =>
            {
                Err(Error::invalid(format!(
                    "betweenness: samples {samples}, expected 1 to {nodes}, the nodes of the graph"
                )))
            }
            Self::Betweenness { sources: Some(sources), .. } => {
                sources.iter().try_for_each(|&source| is_node(source))
            }
            Self::LabelPropagation { max_iterations: 0 } => {
                Err(Error::invalid("label_propagation: max_iterations 0, expected at least 1"))
            }
            _ => Ok(()),
        }
    }

    /// The options of PageRank, if that is what it is.
    pub(crate) fn pagerank_options(&self) -> Option<PagerankOptions> {
        match self {
            Self::Pagerank { damping, max_iterations, tolerance, weights, reverse } => {
                Some(PagerankOptions {
                    damping: *damping,
                    max_iterations: *max_iterations,
                    tolerance: *tolerance,
                    weighted: weights.is_some(),
                    reverse: *reverse,
                })
            }
            _ => None,
        }
    }
}

/// Dense inputs that JSON is no place for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// Node ids and weights of PageRank's teleport vector.
    pub personalization: Option<(Vec<u64>, Vec<f64>)>,
}

/// A result and how it came about.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// By node id.
    pub values: Values,
    /// The plan that was followed.
    pub plan: RunPlan,
    /// What it has cost.
    pub counters: Counters,
    /// What is worth saying beside the values.
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// What was held and how often it was wanted, where [`RunConfig::profile`] asked for it.
    pub profile: Option<Profile>,
}

/// Divides the budget as [`run`] would; builds nothing.
///
/// # Errors
/// `NotFound`: no grid. `Budget`, with the least that works. `Invalid` options.
pub fn plan(data_set: &DataSet, algorithm: &Algorithm, config: &RunConfig) -> Result<RunPlan> {
    check_graph(data_set)?;
    algorithm.validate(data_set.num_nodes())?;
    let grid = Grid::open(data_set)?;
    check_weights(data_set, &grid, algorithm.name(), algorithm.weights())?;
    let need = need(algorithm, &grid, 0, config);
    let purpose = Purpose { name: algorithm.name(), need, weighted: algorithm.weights().is_some() };
    divide(data_set, &grid, &purpose, config, config.far_share()?)
}

/// Runs an algorithm on a data set, building its grid first where `config` says so.
///
/// **Cost**: memory within the budget of `config`, 48 MiB more at most.
///
/// # Errors
/// `Invalid`: options, weights, a stale grid that is not to be built. `NotFound`: no grid, no such
/// weights. `Budget`, with the least that works. `Corrupt` and `Io` of the reads. What
/// `on_progress` returns.
pub fn run(
    data_set: &DataSet,
    algorithm: &Algorithm,
    inputs: Inputs,
    config: &RunConfig,
    on_progress: OnProgress<'_>,
) -> Result<Outcome> {
    run_through(None, data_set, algorithm, inputs, config, on_progress)
}

/// [`run`] through a tier that is there already, whatever `config` says of far memory.
///
/// # Errors
/// As [`run`].
pub fn run_through(
    far: Option<Arc<FarTier>>,
    data_set: &DataSet,
    algorithm: &Algorithm,
    inputs: Inputs,
    config: &RunConfig,
    on_progress: OnProgress<'_>,
) -> Result<Outcome> {
    check_graph(data_set)?;
    let nodes = data_set.num_nodes();
    algorithm.validate(nodes)?;
    let personalized = inputs.personalization.as_ref().map_or(0, |given| given.0.len() as u64);
    let teleport = match inputs.personalization {
        Some((ids, weights)) if nodes > 0 => Teleport::given(nodes, ids, weights)?,
        _ => Teleport::uniform(nodes),
    };
    let (data_set, grid) =
        open_grid(data_set, algorithm.name(), algorithm.weights(), config, on_progress)?;
    let need = need(algorithm, &grid, personalized, config);
    let purpose = Purpose { name: algorithm.name(), need, weighted: algorithm.weights().is_some() };
    let checkpoints = checkpoints(&data_set, &grid, algorithm, &teleport, config)?;
    let mut run = open(far, &data_set, grid, &purpose, config, on_progress)?;
    if let Some(checkpoints) = checkpoints {
        run.leave_checkpoints(checkpoints);
    }
    let plan = run.plan().clone();
    let found = algorithms::compute(&mut run, algorithm, &teleport)?;
    run.release();
    let file = plan.result_window.map(|window| (result_path(&data_set, config), window));
    let Found { values, facts } = found.deliver(&mut run, algorithm, &teleport, file)?;
    let mut counters = run.counters();
    counters.iterations =
        facts.get("iterations").and_then(serde_json::Value::as_u64).unwrap_or_default();
    let profile = run.profile();
    Ok(Outcome { values, plan, counters, facts, profile })
}

/// What an algorithm takes, checkpoints included.
fn need(algorithm: &Algorithm, grid: &Grid, personalized: u64, config: &RunConfig) -> Need {
    let mut need = algorithms::need(algorithm, grid, personalized);
    need.fixed.0 += config.checkpoint.as_ref().map_or(0, |_| checkpoint::MEMORY.0);
    need
}

/// Where scratch files of a run go.
fn scratch<'c>(data_set: &'c DataSet, config: &'c RunConfig) -> &'c Path {
    config.scratch.as_deref().unwrap_or(data_set.root())
}

/// A result that memory has no room for is put together there.
fn result_path(data_set: &DataSet, config: &RunConfig) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    scratch(data_set, config).join(format!("result-{}-{number}.npy", std::process::id()))
}

/// The checkpoints that a run leaves, where it is to leave any.
fn checkpoints(
    data_set: &DataSet,
    grid: &Grid,
    algorithm: &Algorithm,
    teleport: &Teleport,
    config: &RunConfig,
) -> Result<Option<Checkpoints>> {
    let Some(wanted) = &config.checkpoint else { return Ok(None) };
    let name = algorithm.name();
    if !algorithm.leaves_checkpoints() {
        let text = format!("{name} leaves no checkpoints");
        return Err(Error::new(ErrorKind::Unsupported, text)
            .hint("pagerank, bfs, sssp, wcc, kcore and label_propagation do"));
    }
    if !(0.0..=1e9).contains(&wanted.seconds) {
        let seconds = wanted.seconds;
        return Err(Error::invalid(format!(
            "checkpoints {seconds} seconds apart, expected 0 to 1e9"
        )));
    }
    let header = grid.header();
    let fingerprint = serde_json::json!({
        "algorithm": algorithm,
        "teleport": teleport.digest(),
        "graph": header.topology,
        "grid": [
            serde_json::json!(header.order),
            serde_json::json!(header.partition_log2),
            serde_json::json!(header.connected),
        ],
    });
    let interval = Duration::from_secs_f64(wanted.seconds);
    let disk = Arc::new(RealDisk);
    Checkpoints::open(disk, &wanted.directory, fingerprint, interval, wanted.resume)
        .with_context(|| format!("{name} of `{}`", data_set.root().display()))
        .map(Some)
}

/// Opens a grid for passes of one's own, building it first where `config` says so.
///
/// `held` bytes of the budget are the caller's, for state and results.
///
/// # Errors
/// As [`run`].
pub fn stream<'a>(
    data_set: &DataSet,
    weights: Option<&str>,
    held: Bytes,
    config: &RunConfig,
    on_progress: OnProgress<'a>,
) -> Result<StreamRun<'a>> {
    stream_through(None, data_set, weights, held, config, on_progress)
}

/// [`stream`] through a tier that is there already, whatever `config` says of far memory.
///
/// # Errors
/// As [`run`].
pub fn stream_through<'a>(
    far: Option<Arc<FarTier>>,
    data_set: &DataSet,
    weights: Option<&str>,
    held: Bytes,
    config: &RunConfig,
    on_progress: OnProgress<'a>,
) -> Result<StreamRun<'a>> {
    check_graph(data_set)?;
    let (data_set, grid) = open_grid(data_set, "a stream", weights, config, &mut *on_progress)?;
    let need = Need { fixed: held, ..Need::default() };
    let purpose = Purpose { name: "a stream", need, weighted: weights.is_some() };
    open(far, &data_set, grid, &purpose, config, on_progress)
}

fn check_graph(data_set: &DataSet) -> Result<()> {
    if data_set.manifest().edge_types.contains_key(keys::EDGE) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "data set `{}` has no edge type `{}`",
        data_set.root().display(),
        keys::EDGE
    )))
}

/// The grid of a data set with the weights asked for, built if it may be; and the data set as it is
/// then.
fn open_grid(
    data_set: &DataSet,
    algorithm: &str,
    weights: Option<&str>,
    config: &RunConfig,
    on_progress: OnProgress<'_>,
) -> Result<(DataSet, Grid)> {
    if let Some(name) = weights {
        data_set
            .array(&format!("edges/{}/{name}", keys::EDGE))
            .map_err(|_| no_weights(data_set, name))?;
    }
    let refused = match Grid::open(data_set) {
        Ok(grid) => {
            let checked = check_weights(data_set, &grid, algorithm, weights);
            // Weights that are negative stay so, however often the grid is built.
            let as_asked = weights.is_none() || grid.header().weights.as_deref() == weights;
            match checked {
                Ok(()) => return Ok((data_set.clone(), grid)),
                Err(error) if as_asked => return Err(error),
                Err(error) => error,
            }
        }
        Err(error) => error,
    };
    if !config.build || !matches!(refused.kind(), ErrorKind::NotFound | ErrorKind::Invalid) {
        return Err(refused);
    }
    let options = BuildOptions {
        memory: config.memory,
        threads: config.threads,
        weights: weights.map(str::to_owned),
        overwrite: true,
        ..BuildOptions::default()
    };
    outercore_grid::build(&RealDisk, data_set, &options, on_progress)?;
    let data_set = DataSet::open(data_set.root())?;
    let grid = Grid::open(&data_set)?;
    check_weights(&data_set, &grid, algorithm, weights)?;
    Ok((data_set, grid))
}

fn no_weights(data_set: &DataSet, name: &str) -> Error {
    let prefix = format!("edges/{}/", keys::EDGE);
    let own = [keys::OFFSETS, keys::SOURCES, keys::EDGE_IDS];
    let arrays = data_set.manifest().arrays.keys().filter(|key| !own.contains(&key.as_str()));
    let there: Vec<&str> = arrays.filter_map(|key| key.strip_prefix(&prefix)).collect();
    let error =
        Error::new(ErrorKind::NotFound, format!("edge array `{name}` is not in the data set"));
    if there.is_empty() {
        error.hint("add one with `Graph.add_edge_array` or `outercore import --edge-weights`")
    } else {
        error.hint(format!("it has {}", there.join(", ")))
    }
}

fn check_weights(
    data_set: &DataSet,
    grid: &Grid,
    algorithm: &str,
    weights: Option<&str>,
) -> Result<()> {
    let Some(name) = weights else { return Ok(()) };
    if grid.header().weights.as_deref() != Some(name) {
        let root = data_set.root().display();
        return Err(Error::invalid(format!(
            "the grid of `{root}` is without the weights `{name}`"
        ))
        .hint(format!("run `outercore grid {root} --weights {name} --overwrite`")));
    }
    match grid.header().least_weight {
        Some(least) if least < 0.0 && algorithm != "a stream" => Err(Error::invalid(format!(
            "{algorithm}: weights go down to {least}, expected 0 or more"
        ))),
        _ => Ok(()),
    }
}

/// What is to run, as far as memory goes.
struct Purpose<'a> {
    /// For messages.
    name: &'a str,
    need: Need,
    weighted: bool,
}

fn divide(
    data_set: &DataSet,
    grid: &Grid,
    purpose: &Purpose<'_>,
    config: &RunConfig,
    far: Option<FarShare>,
) -> Result<RunPlan> {
    let cost = match DeviceProfile::load(data_set.root()) {
        Ok(profile) => CostModel::from(&profile),
        Err(error) if error.kind() == ErrorKind::NotFound => CostModel::default(),
        Err(error) => return Err(error),
    };
    let segments = segments(grid.pieces());
    let profiled = config.reads_by_segment.as_ref().map_or(segments.len(), Vec::len);
    if profiled != segments.len() {
        return Err(Error::invalid(format!(
            "the profile has {profiled} segments, the grid of `{}` has {}",
            data_set.root().display(),
            segments.len()
        ))
        .hint("profile a run on this grid"));
    }
    RunPlan::new(&PlanInput {
        algorithm: purpose.name,
        budget: config.memory,
        threads: config.effective_threads()?,
        shape: grid.shape(),
        pieces: grid.pieces().len(),
        records: grid.pieces(),
        segments: &segments,
        weighted: purpose.weighted,
        need: purpose.need,
        cost: &cost,
        far,
        reads_by_segment: config.reads_by_segment.as_deref(),
    })
}

fn open<'a>(
    far: Option<Arc<FarTier>>,
    data_set: &DataSet,
    grid: Grid,
    purpose: &Purpose<'_>,
    config: &RunConfig,
    on_progress: OnProgress<'a>,
) -> Result<StreamRun<'a>> {
    let share = match &far {
        Some(_) => config.share_of(true)?,
        None => config.far_share()?,
    };
    let plan = divide(data_set, &grid, purpose, config, share)?;
    let began = Instant::now();
    let far = match (far, &config.far) {
        (None, Some(options)) => {
            let plane = FabricPlane::default();
            Some(Arc::new(FarTier::connect_with(options, Some(&plane))?))
        }
        (far, _) => far,
    };
    let engine = |tier: Option<Arc<dyn Tier>>| {
        // Segments are read ahead in staging, where they then stay.
        let (backend, staging) = (config.backend, Bytes(plan.staging.0 + plan.window.0));
        Engine::open(EngineConfig { backend, staging, depth: DEPTH, tier })
    };
    let counted = far.as_ref().map(|far| far.counters());
    let reads = config.reads_by_segment.as_deref();
    if let Some(far) = &far {
        far::bring(far, &grid, &plan, reads, &mut engine(None)?, on_progress)?;
    }
    let options = StreamOptions {
        threads: config.effective_threads()?,
        buffering: config.buffering,
        profile: config.profile,
        reads_by_segment: config.reads_by_segment.clone(),
    };
    let engine = engine(far.clone().map(|far| far as Arc<dyn Tier>))?;
    let spill = match plan.spill {
        Some(spill) => {
            let slots = spill.slots(plan.result_window.unwrap_or(plan.state));
            Some(Spill::create(scratch(data_set, config), config.backend, slots)?)
        }
        None => None,
    };
    let mut run = StreamRun::open(data_set, grid, plan, engine, &options, on_progress)?;
    if let Some(spill) = spill {
        run.spill_to(spill);
    }
    if let (Some(far), Some(counted)) = (far, counted) {
        run.prepare(far, counted, began)?;
    }
    Ok(run)
}
