//! Computes a result from a data set and a request: checks, grid, plan, run, delivery.

use std::sync::Arc;

use outercore_core::{Bytes, Result};
use outercore_far::FarTier;
use outercore_grid::{Grid, GridSource};
use outercore_store::dataset::DataSet;

use crate::algorithms::Algorithm;
use crate::config::RunConfig;
use crate::output::{Counters, Need, Values};
use crate::plan::RunPlan;
use crate::prepare::{Purpose, checkpoints, divide, need, open, planned, scratch};
use crate::profile::Profile;
use crate::result::Found;
use crate::source::{check_grid, open_grid};
use crate::stream_run::{OnProgress, StreamRun};
use crate::teleport::Teleport;

/// Dense inputs that do not fit into JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inputs {
    /// Node ids and weights of PageRank's teleport vector.
    pub personalization: Option<(Vec<u64>, Vec<f64>)>,
}

impl Inputs {
    /// Number of entries of the teleport vector.
    fn entries(&self) -> u64 {
        self.personalization.as_ref().map_or(0, |given| given.0.len() as u64)
    }

    /// The teleport vector of a graph of `nodes` nodes.
    fn teleport(self, nodes: u64) -> Result<Teleport> {
        match self.personalization {
            Some((ids, weights)) if nodes > 0 => Teleport::given(nodes, ids, weights),
            _ => Ok(Teleport::uniform(nodes)),
        }
    }
}

/// A result, with the plan and the cost of its run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// By node id; for a graph with several types, by the grid's node numbers.
    pub values: Values,
    /// The plan of the run.
    pub plan: RunPlan,
    /// Cost of the run.
    pub counters: Counters,
    /// Additional facts about the result.
    pub facts: serde_json::Map<String, serde_json::Value>,
    /// Profile of the run, if [`RunConfig::profile`] is set.
    pub profile: Option<Profile>,
}

/// Divides the budget like [`run`] with the same arguments; builds nothing.
///
/// # Errors
/// `NotFound`: no grid. `Budget`, with the least sufficient budget. `Invalid` options.
/// `Unsupported`: checkpoints of an algorithm that writes none.
pub fn plan(
    data_set: &DataSet,
    algorithm: &Algorithm,
    inputs: Inputs,
    config: &RunConfig,
) -> Result<RunPlan> {
    let nodes = GridSource::of(data_set, config.relation.as_deref())?.nodes();
    algorithm.validate(nodes)?;
    let personalized = inputs.entries();
    inputs.teleport(nodes)?;
    let grid = Grid::open(data_set)?;
    check_grid(data_set, &grid, algorithm.name(), algorithm.weights(), config)?;
    let need = need(algorithm, &grid, personalized, config);
    let purpose = Purpose::of(algorithm, need);
    divide(data_set, &grid, &purpose, config, config.far_share()?)
}

/// Runs an algorithm on a data set; first builds its grid if `config` allows it.
///
/// **Cost**: memory within the budget of `config`, plus at most 48 MiB.
///
/// # Errors
/// `Invalid`: options, weights, a stale grid that must not be built. `NotFound`: no grid, no such
/// weights. `Budget`, with the least sufficient budget. `Corrupt` and `Io` of the reads. Errors of
/// `on_progress`.
pub fn run(
    data_set: &DataSet,
    algorithm: &Algorithm,
    inputs: Inputs,
    config: &RunConfig,
    on_progress: OnProgress<'_>,
) -> Result<Outcome> {
    run_through(None, data_set, algorithm, inputs, config, on_progress)
}

/// [`run`] through an open tier, regardless of the far-memory options in `config`.
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
    let nodes = GridSource::of(data_set, config.relation.as_deref())?.nodes();
    algorithm.validate(nodes)?;
    let personalized = inputs.entries();
    let teleport = inputs.teleport(nodes)?;
    let (data_set, grid) =
        open_grid(data_set, algorithm.name(), algorithm.weights(), config, on_progress)?;
    let need = need(algorithm, &grid, personalized, config);
    let purpose = Purpose::of(algorithm, need);
    let plan = planned(far.is_some(), &data_set, &grid, &purpose, config)?;
    // Opened after the plan: a run that is rejected for lack of memory must not touch their
    // directory.
    let checkpoints = checkpoints(&data_set, &grid, algorithm, &teleport, config)?;
    let mut run = open(far, &data_set, grid, plan.clone(), config, on_progress)?;
    if let Some(checkpoints) = checkpoints {
        run.leave_checkpoints(checkpoints);
    }
    let found = algorithm.run(&mut run, &teleport)?;
    run.release();
    let file = plan.result_window.map(|window| (scratch(&data_set, config), window));
    let zeros = algorithm.zeros(&mut run)?;
    let Found { values, facts } = found.deliver(&mut run, &zeros, &teleport, file)?;
    let mut counters = run.counters();
    counters.iterations =
        facts.get("iterations").and_then(serde_json::Value::as_u64).unwrap_or_default();
    let profile = run.profile();
    Ok(Outcome { values, plan, counters, facts, profile })
}

/// Opens a grid for a caller that makes its own passes; first builds it if `config` allows it.
///
/// The caller uses `held` bytes of the budget for state and results.
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

/// [`stream`] through an open tier, regardless of the far-memory options in `config`.
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
    let (data_set, grid) = open_grid(data_set, "a stream", weights, config, &mut *on_progress)?;
    let need = Need { fixed: held, ..Need::default() };
    let purpose = Purpose { algorithm: None, need, weighted: weights.is_some() };
    let plan = planned(far.is_some(), &data_set, &grid, &purpose, config)?;
    open(far, &data_set, grid, plan, config, on_progress)
}
