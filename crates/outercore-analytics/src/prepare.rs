//! Prepares a run before its first pass: plan, checkpoints, engine, far memory, scratch files.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, Result, hint};
use outercore_fabric::FabricPlane;
use outercore_far::FarTier;
use outercore_grid::{Grid, GridHeader};
use outercore_io::{CostModel, Disk, Engine, EngineConfig, RealDisk, Tier, free_space};
use outercore_store::dataset::DataSet;
use serde_json::Value;

use crate::algorithm::{Leaves, Scale};
use crate::algorithms::Algorithm;
use crate::checkpoint::{self, Checkpoints};
use crate::config::{CheckpointConfig, RunConfig};
use crate::far;
use crate::output::Need;
use crate::plan::{CheckpointPlan, FarShare, PlanInput, RunPlan};
use crate::segments::segments;
use crate::state::Spill;
use crate::stream_run::{OnProgress, StreamOptions, StreamRun};
use crate::teleport::Teleport;

/// Most reads in flight; segments are long, so staging is the limit.
const DEPTH: usize = 64;

/// Needs of an algorithm, including checkpoints.
pub(crate) fn need(
    algorithm: &Algorithm,
    grid: &Grid,
    personalized: u64,
    config: &RunConfig,
) -> Need {
    let mut need = algorithm.need(&Scale::of(grid, personalized));
    if config.checkpoint.is_some() && algorithm.leaves_checkpoints() != Leaves::Never {
        need.fixed.0 += checkpoint::MEMORY.0;
    }
    need
}

/// Directory for scratch files of a run, and for a result that does not fit into memory.
pub(crate) fn scratch<'c>(data_set: &'c DataSet, config: &'c RunConfig) -> &'c Path {
    config.scratch.as_deref().unwrap_or(data_set.root())
}

/// The requested checkpoints, if the algorithm writes any.
fn wanted_of<'c>(
    algorithm: &Algorithm,
    config: &'c RunConfig,
) -> Result<Option<&'c CheckpointConfig>> {
    let wanted =
        config.checkpoint.as_ref().filter(|_| algorithm.leaves_checkpoints() != Leaves::Never);
    let Some(wanted) = wanted else { return Ok(None) };
    if !(0.0..=1e9).contains(&wanted.seconds) {
        let seconds = wanted.seconds;
        return Err(Error::invalid(format!(
            "checkpoints {seconds} seconds apart, expected 0 to 1e9"
        )));
    }
    Ok(Some(wanted))
}

/// An algorithm without the option that only limits iterations: its state does not depend on it.
fn described(algorithm: &Algorithm) -> Value {
    let mut described = serde_json::json!(algorithm);
    if let Value::Object(options) = &mut described {
        options.remove(checkpoint::WHEN_TO_END);
    }
    described
}

/// The properties that a checkpoint and a resumed run must share. The grid's version decides the
/// order of sums, and therefore their last bits.
fn fingerprint(algorithm: &Algorithm, teleport: &Teleport, grid: &GridHeader) -> Value {
    let mut fingerprint = serde_json::json!({
        "algorithm": described(algorithm),
        "teleport": teleport.digest(),
        "graph": grid.topology,
        "grid": {
            "version": grid.version,
            "order": grid.order,
            "partition_log2": grid.partition_log2,
            "connected": grid.connected,
        },
    });
    // Left out without a relation, so that older checkpoints still match.
    if let Some(relation) = &grid.relation {
        fingerprint["relation"] = relation.as_str().into();
    }
    fingerprint
}

/// The checkpoints of a run, if it is to write any.
pub(crate) fn checkpoints(
    data_set: &DataSet,
    grid: &Grid,
    algorithm: &Algorithm,
    teleport: &Teleport,
    config: &RunConfig,
) -> Result<Option<Checkpoints>> {
    let Some(wanted) = wanted_of(algorithm, config)? else { return Ok(None) };
    let name = algorithm.name();
    let fingerprint = fingerprint(algorithm, teleport, grid.header());
    let interval = Duration::from_secs_f64(wanted.seconds);
    let disk = Arc::new(RealDisk);
    Checkpoints::open(disk, &wanted.directory, fingerprint, interval, wanted.resume)
        .with_context(|| format!("{name} of `{}`", data_set.root().display()))
        .map(Some)
}

/// Description of a run for the division of memory.
pub(crate) struct Purpose<'a> {
    /// `None` if the caller makes the passes.
    pub(crate) algorithm: Option<&'a Algorithm>,
    pub(crate) need: Need,
    pub(crate) weighted: bool,
}

impl<'a> Purpose<'a> {
    pub(crate) fn of(algorithm: &'a Algorithm, need: Need) -> Self {
        Self { algorithm: Some(algorithm), need, weighted: algorithm.weights().is_some() }
    }

    /// Cost of checkpoints, if a run that follows `plan` writes any.
    fn checkpoints(
        &self,
        plan: &RunPlan,
        grid: &Grid,
        config: &RunConfig,
    ) -> Result<Option<CheckpointPlan>> {
        let Some(algorithm) = self.algorithm else { return Ok(None) };
        let Some(wanted) = wanted_of(algorithm, config)? else { return Ok(None) };
        if algorithm.leaves_checkpoints() == Leaves::WhereSpilled && plan.spill.is_none() {
            return Ok(None);
        }
        Ok(CheckpointPlan::new(&self.need, grid.shape(), wanted.seconds))
    }
}

/// Divides the budget.
pub(crate) fn divide(
    data_set: &DataSet,
    grid: &Grid,
    purpose: &Purpose<'_>,
    config: &RunConfig,
    far: Option<FarShare>,
) -> Result<RunPlan> {
    let cost = CostModel::of_device(data_set.root())?;
    let segments = segments(grid.pieces(), grid.weight_bytes());
    let profiled = config.reads_by_segment.as_ref().map_or(segments.len(), Vec::len);
    if profiled != segments.len() {
        return Err(Error::invalid(format!(
            "the profile has {profiled} segments, the grid of `{}` has {}",
            data_set.root().display(),
            segments.len()
        ))
        .hint("profile a run on this grid"));
    }
    let mut plan = RunPlan::new(&PlanInput {
        algorithm: purpose.algorithm.map(Algorithm::name),
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
    })?;
    plan.checkpoint = purpose.checkpoints(&plan, grid, config)?;
    Ok(plan)
}

/// The plan of a run, after checking that scratch files have room. `tier` means that far memory is
/// already open.
pub(crate) fn planned(
    tier: bool,
    data_set: &DataSet,
    grid: &Grid,
    purpose: &Purpose<'_>,
    config: &RunConfig,
) -> Result<RunPlan> {
    let share = if tier { config.share_of(true)? } else { config.far_share()? };
    let plan = divide(data_set, grid, purpose, config, share)?;
    check_room(plan.disk, scratch(data_set, config), free_space)?;
    Ok(plan)
}

/// Opens everything that passes need, and fills far memory if there is any.
pub(crate) fn open<'a>(
    far: Option<Arc<FarTier>>,
    data_set: &DataSet,
    grid: Grid,
    plan: RunPlan,
    config: &RunConfig,
    on_progress: OnProgress<'a>,
) -> Result<StreamRun<'a>> {
    let began = Instant::now();
    let far = match (far, &config.far) {
        (None, Some(options)) => {
            let plane = FabricPlane::default();
            Some(Arc::new(FarTier::connect_with(options, Some(&plane))?))
        }
        (far, _) => far,
    };
    let engine = |tier: Option<Arc<dyn Tier>>| {
        // Segments that are read ahead stay in staging.
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

/// Checks that the scratch directory has room for all files of a run; `free` returns the free
/// space.
fn check_room(
    wanted: Bytes,
    directory: &Path,
    free: impl FnOnce(&Path) -> Result<Bytes>,
) -> Result<()> {
    if wanted == Bytes(0) {
        return Ok(());
    }
    let describe = || format!("scratch directory `{}`", directory.display());
    RealDisk.create_dir_all(directory).with_context(describe)?;
    let free = free(directory)?;
    if wanted <= free {
        return Ok(());
    }
    let text = format!("{free} are free, the run writes up to {wanted}");
    Err(Error::new(ErrorKind::NoSpace, text)
        .hint(hint!("free space, choose another directory by `scratch`, or raise " {memory})))
    .with_context(describe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_of_one_version_of_the_grid() {
        let algorithm: Algorithm =
            serde_json::from_value(serde_json::json!({"algorithm": "wcc"})).unwrap();
        let of_version = |version: u32| {
            let grid: GridHeader = serde_json::from_value(serde_json::json!({
                "format": "outercore-grid", "version": version, "nodes": 4, "connected": 4,
                "partition_log2": 1, "partitions": 2, "order": "natural", "symmetric": false,
                "arcs": 3, "edges": 3, "loops": 0, "codec_bytes": 64, "weights": null,
                "least_weight": null, "topology": ["a", "b", "c", ""],
            }))
            .unwrap();
            fingerprint(&algorithm, &Teleport::uniform(4), &grid)
        };
        assert_eq!(of_version(2), of_version(2));
        assert_ne!(of_version(1), of_version(2));
    }

    #[test]
    fn a_full_scratch_disk_is_refused_with_what_it_takes() {
        let root = tempfile::tempdir().unwrap();
        let scratch = root.path().join("scratch");
        check_room(Bytes(0), &scratch, |_| panic!("nobody asks")).unwrap();
        assert!(!scratch.exists());
        let check = |free: Bytes| {
            check_room(Bytes::mib(3), &scratch, |asked| {
                assert_eq!(asked, scratch);
                Ok(free)
            })
        };
        check(Bytes::mib(3)).unwrap();
        let error = check(Bytes::mib(2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        let text = error.to_string();
        assert!(text.contains("2.0 MiB are free, the run writes up to 3.0 MiB"), "{text}");
        assert!(text.contains(&format!("scratch directory `{}`", scratch.display())), "{text}");
        assert!(text.contains("directory by `scratch`"), "{text}");
    }
}
