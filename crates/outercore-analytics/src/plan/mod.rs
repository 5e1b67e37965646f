//! The memory plan: divides one budget between an algorithm's state and the streamed blocks.
//!
//! Pure: computes a plan from sizes. The run follows the plan.

mod spill;

use outercore_core::{Bytes, Error, ErrorKind, Result, hint};
use outercore_far::segments::check_ratio;
use outercore_format::{DType, NpyHeader};
use outercore_grid::{GridShape, Piece};
use outercore_io::CostModel;
use serde::{Deserialize, Serialize};

pub use self::spill::SpillPlan;
use crate::output::{Need, SpillNeed};
use crate::pins::choose;
use crate::segments::{Segment, slot_bytes};

/// Piece record, segment, and tasks of a pass.
const INDEX_PER_PIECE: u64 = 128;

/// Decoded rows and columns per thread.
const SCRATCH_PER_THREAD: Bytes = Bytes::kib(768);

/// Decoded weights per thread.
const WEIGHTS_PER_THREAD: Bytes = Bytes::kib(512);

/// Least and most memory of staging and of the window.
const STAGING: (Bytes, Bytes) = (Bytes::mib(1), Bytes::mib(8));
const WINDOW: (Bytes, Bytes) = (Bytes::mib(2), Bytes::mib(16));

/// Memory of each component, and the expected reads.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct RunPlan {
    /// The whole budget.
    pub budget: Bytes,
    /// The least sufficient budget.
    #[serde(default)]
    pub least: Bytes,
    /// The least budget that keeps state and result in memory.
    #[serde(default)]
    pub least_in_memory: Bytes,
    /// State of the algorithm.
    pub state: Bytes,
    /// The result in the grid's numbering and by node, and the inputs. All other state and the pins
    /// have been freed when the result is built.
    pub output: Bytes,
    /// Piece records and tasks.
    pub index: Bytes,
    /// Buffers of reads in flight.
    pub staging: Bytes,
    /// Segments read ahead.
    pub window: Bytes,
    /// Decoded pieces.
    pub scratch: Bytes,
    /// Additional memory that saves passes.
    pub working: Bytes,
    /// Segments that stay in memory.
    pub pinned: Bytes,
    /// Number of all segments.
    pub segments: u64,
    /// Number of segments that stay in memory.
    pub pinned_segments: u64,
    /// Whether weights are read.
    pub weighted: bool,
    /// Number of passes, if known in advance.
    pub passes: Option<u64>,
    /// Bytes read by a first pass over everything.
    pub bytes_first_pass: Bytes,
    /// Bytes read by every later pass.
    pub bytes_per_pass: Bytes,
    /// Expected seconds of the device, if the passes are known and no data is in far memory.
    pub seconds: Option<f64>,
    /// Share of the segments' bytes planned for far memory; 0 without far memory.
    #[serde(default)]
    pub far_ratio: f64,
    /// Bytes in far memory.
    #[serde(default)]
    pub far_bytes: Bytes,
    /// If the result does not fit into memory: the bytes of it that are assembled at a time, in a
    /// file.
    #[serde(default)]
    pub result_window: Option<Bytes>,
    /// How state is moved if it does not fit into memory.
    #[serde(default)]
    pub spill: Option<SpillPlan>,
    /// Most bytes of files in the scratch directory at one time: state and a result that do not fit
    /// into memory.
    #[serde(default)]
    pub disk: Bytes,
    /// Cost of checkpoints, if they are written.
    #[serde(default)]
    pub checkpoint: Option<CheckpointPlan>,
}

/// Cost of checkpoints.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct CheckpointPlan {
    /// Bytes of state per checkpoint.
    pub bytes: Bytes,
    /// Bytes of their directory, which has the last two checkpoints.
    pub disk: Bytes,
    /// Least seconds between checkpoints.
    pub seconds: f64,
}

impl CheckpointPlan {
    /// Checkpoints `seconds` apart, for an algorithm with these needs; `None` if it writes none.
    pub fn new(need: &Need, shape: &GridShape, seconds: f64) -> Option<Self> {
        let state = need.spill?;
        let of = |len| {
            let own = if state.traffic.open_own { state.own.total(len) } else { 0 };
            state.shown.total(len) + own
        };
        let partitions = 0..shape.partitions();
        let bytes: u64 = partitions.map(|part| of(shape.partition_len(part) as u64)).sum();
        Some(Self { bytes: Bytes(bytes), disk: Bytes(2 * bytes), seconds })
    }
}

/// Inputs of [`RunPlan::new`].
#[derive(Debug)]
pub struct PlanInput<'a> {
    /// Name of the algorithm, for messages; `None` if the caller makes the passes.
    pub algorithm: Option<&'a str>,
    /// The whole budget.
    pub budget: Bytes,
    /// Number of computing threads.
    pub threads: usize,
    /// The grid.
    pub shape: &'a GridShape,
    /// Number of pieces of the grid.
    pub pieces: usize,
    /// Piece records, needed if state may go to scratch files.
    pub records: &'a [Piece],
    /// Its segments.
    pub segments: &'a [Segment],
    /// Whether weights are read.
    pub weighted: bool,
    /// Needs of the algorithm.
    pub need: Need,
    /// Cost model of the device.
    pub cost: &'a CostModel,
    /// Far memory for segments that do not stay, if there is any.
    pub far: Option<FarShare>,
    /// By segment: number of passes of an earlier run that needed it.
    pub reads_by_segment: Option<&'a [u32]>,
}

impl PlanInput<'_> {
    /// Bytes of a stored weight; 0 without weights.
    pub(crate) fn weight_bytes(&self) -> u64 {
        let end = self.segments.last().map_or(0, |segment| segment.weights.end);
        end / self.shape.edges.max(1)
    }
}

/// Amount of segments for far memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FarShare {
    /// The segments that the budget does not keep.
    Rest,
    /// This share of their bytes (0 to 1), even if the budget would keep more.
    Ratio(f64),
}

impl RunPlan {
    /// Divides the budget: first state, then buffers, then memory that saves passes, then pins.
    ///
    /// # Errors
    /// `Budget`, with the least sufficient budget.
    pub fn new(input: &PlanInput<'_>) -> Result<Self> {
        Ok(Self {
            least: least(input)?,
            least_in_memory: least_in_memory(input)?,
            ..Self::divided(input)?
        })
    }

    fn divided(input: &PlanInput<'_>) -> Result<Self> {
        let PlanInput { budget, need, weighted, .. } = *input;
        let state = need.state_per_node * input.shape.connected + need.fixed.0;
        let (index, scratch) = buffers(input);
        let sizes: Vec<u64> =
            input.segments.iter().map(|segment| segment.bytes(weighted)).collect();
        let two_slots = 2 * slot_bytes(input.segments, weighted).0;
        let staging = (budget.0 / 16).clamp(STAGING.0.0, STAGING.1.0);
        let window = (budget.0 / 8).clamp(WINDOW.0.0, WINDOW.1.0).max(two_slots);
        let least_working = need.working.map_or(0, |working| working.least.0);
        let local = local(input, &sizes)?;
        // Segments kept by a far ratio must fit; without a ratio, pins take the remaining memory.
        let kept = local.unwrap_or(0);

        let streaming = index + staging + window + scratch + state;
        let result = delivered(input);
        let delivering = index + staging + window + result;
        // With a smaller budget, staging and window would be smaller too.
        let least_buffers = STAGING.0.0 + WINDOW.0.0.max(two_slots);
        if streaming + least_working + kept > budget.0 || delivering > budget.0 {
            if budget >= least_in_memory(input)? {
                return Ok(Self::with_least_buffers(input, &sizes, local));
            }
            // The result can be assembled in a file, and state can go to scratch files.
            let held = result - need.output.0;
            if budget.0 >= least_with_file(input)?.0 {
                let mut plan = Self::with_least_buffers(input, &sizes, local);
                let window = budget.0 - (index + held + least_buffers);
                plan.result_window = Some(Bytes(window.min(need.output.0)));
                plan.output = Bytes(held + window.min(need.output.0));
                plan.disk = result_file(input);
                return Ok(plan);
            }
            return match spill_need(input) {
                Some(spill) => spill::plan(input, &spill),
                None => Err(too_small(input)),
            };
        }
        let rest = budget.0 - streaming - kept;
        // A far ratio determines the pins, so all remaining memory may save passes.
        let share = if local.is_some() { rest } else { rest / 2 };
        let working =
            need.working.map_or(0, |working| working.most.0.min(share.max(working.least.0)));
        let taken = Taken { state, index, scratch, staging, window, working };
        Ok(Self::assemble(input, &sizes, local, &taken))
    }

    /// The plan with the smallest staging and window.
    fn with_least_buffers(input: &PlanInput<'_>, sizes: &[u64], local: Option<u64>) -> Self {
        let need = input.need;
        let two_slots = 2 * slot_bytes(input.segments, input.weighted).0;
        let state = need.state_per_node * input.shape.connected + need.fixed.0;
        let (index, scratch) = buffers(input);
        let working = need.working.map_or(0, |working| working.least.0);
        let (staging, window) = (STAGING.0.0, WINDOW.0.0.max(two_slots));
        let taken = Taken { state, index, scratch, staging, window, working };
        Self::assemble(input, sizes, local, &taken)
    }

    fn assemble(input: &PlanInput<'_>, sizes: &[u64], local: Option<u64>, taken: &Taken) -> Self {
        let room = input.budget.0.saturating_sub(taken.total());
        let room = room.min(local.unwrap_or(u64::MAX));
        let pins = choose(sizes, room, input.reads_by_segment);
        let total: u64 = sizes.iter().sum();
        let pinned: u64 = sizes.iter().zip(&pins).filter(|pin| *pin.1).map(|pin| pin.0).sum();
        let pinned_segments = pins.iter().filter(|pin| **pin).count() as u64;
        let per_segment = if input.weighted { 2 } else { 1 };
        let far_bytes = if input.far.is_some() { total - pinned } else { 0 };
        let seconds = input.need.passes.filter(|_| far_bytes == 0).map(|passes| {
            let first = input.cost.seconds(per_segment * sizes.len() as u64, Bytes(total));
            let unpinned = per_segment * (sizes.len() as u64 - pinned_segments);
            let other = input.cost.seconds(unpinned, Bytes(total - pinned));
            if passes == 0 { 0.0 } else { first + (passes - 1) as f64 * other }
        });
        Self {
            budget: input.budget,
            least: Bytes(0),
            least_in_memory: Bytes(0),
            state: Bytes(taken.state),
            output: Bytes(delivered(input)),
            index: Bytes(taken.index),
            staging: Bytes(taken.staging),
            window: Bytes(taken.window),
            scratch: Bytes(taken.scratch),
            working: Bytes(taken.working),
            pinned: Bytes(pinned),
            segments: sizes.len() as u64,
            pinned_segments,
            weighted: input.weighted,
            passes: input.need.passes,
            bytes_first_pass: Bytes(total),
            bytes_per_pass: Bytes(total - pinned),
            seconds,
            far_ratio: far_bytes as f64 / total.max(1) as f64,
            far_bytes: Bytes(far_bytes),
            result_window: None,
            spill: None,
            disk: Bytes(0),
            checkpoint: None,
        }
    }

    /// The most memory in use at one time.
    pub fn peak(&self) -> Bytes {
        let buffers = self.index.0 + self.staging.0 + self.window.0;
        let streaming = buffers + self.state.0 + self.scratch.0 + self.working.0 + self.pinned.0;
        Bytes(streaming.max(buffers + self.output.0))
    }
}

/// Bytes of a plan with state in memory, without pins.
struct Taken {
    state: u64,
    index: u64,
    scratch: u64,
    staging: u64,
    window: u64,
    working: u64,
}

impl Taken {
    fn total(&self) -> u64 {
        self.state + self.index + self.scratch + self.staging + self.window + self.working
    }
}

/// Bytes of piece records and tasks, and of decoded pieces.
fn buffers(input: &PlanInput<'_>) -> (u64, u64) {
    let weights = if input.weighted { WEIGHTS_PER_THREAD.0 } else { 0 };
    let per_thread = SCRATCH_PER_THREAD.0 + weights;
    (INDEX_PER_PIECE * input.pieces as u64, per_thread * input.threads as u64)
}

/// Bytes of segments that a far ratio keeps in memory, if a ratio is given.
fn local(input: &PlanInput<'_>, sizes: &[u64]) -> Result<Option<u64>> {
    let Some(FarShare::Ratio(ratio)) = input.far else { return Ok(None) };
    check_ratio(ratio)?;
    let total: u64 = sizes.iter().sum();
    Ok(Some(total.saturating_sub((ratio * total as f64).ceil() as u64)))
}

/// Memory while the result is converted from the grid's numbering to node ids.
fn delivered(input: &PlanInput<'_>) -> u64 {
    let Need { output, fixed, .. } = input.need;
    let per_node = output.0.div_ceil(input.shape.nodes.max(1));
    output.0 + per_node * input.shape.connected + fixed.0
}

/// Needs with state in scratch files, if supported.
fn spill_need(input: &PlanInput<'_>) -> Option<SpillNeed> {
    input.need.spill.filter(|_| !input.records.is_empty())
}

/// The least sufficient budget.
fn least(input: &PlanInput<'_>) -> Result<Bytes> {
    let here = least_in_memory(input)?.min(least_with_file(input)?);
    match spill_need(input) {
        Some(need) => Ok(here.min(spill::least(input, &need)?)),
        None => Ok(here),
    }
}

/// The least budget for state in memory, with the smallest buffers.
fn least_in_memory(input: &PlanInput<'_>) -> Result<Bytes> {
    let (passing, delivering) = least_phases(input)?;
    Ok(Bytes(passing.max(delivering)))
}

/// The least budget for state in memory and a result in a file.
fn least_with_file(input: &PlanInput<'_>) -> Result<Bytes> {
    let (passing, delivering) = least_phases(input)?;
    Ok(Bytes(passing.max(delivering - input.need.output.0 + spill::LEAST_WINDOW)))
}

/// The least memory with state in memory: during passes, and during delivery of the result.
fn least_phases(input: &PlanInput<'_>) -> Result<(u64, u64)> {
    let need = input.need;
    let (index, scratch) = buffers(input);
    let two_slots = 2 * slot_bytes(input.segments, input.weighted).0;
    let least_buffers = STAGING.0.0 + WINDOW.0.0.max(two_slots);
    let state = need.state_per_node * input.shape.connected + need.fixed.0;
    let working = need.working.map_or(0, |working| working.least.0);
    let sizes: Vec<u64> =
        input.segments.iter().map(|segment| segment.bytes(input.weighted)).collect();
    let kept = local(input, &sizes)?.unwrap_or(0);
    let passing = index + scratch + state + working + least_buffers + kept;
    Ok((passing, index + delivered(input) + least_buffers))
}

/// Bytes of a result in a file.
fn result_file(input: &PlanInput<'_>) -> Bytes {
    let header = NpyHeader::encode(DType::F64, &[input.shape.nodes]);
    Bytes(header.len() as u64 + input.need.output.0)
}

fn too_small(input: &PlanInput<'_>) -> Error {
    let least = match least(input) {
        Ok(least) => least.readable(),
        Err(error) => return error,
    };
    let has_to_fit = input.algorithm.is_some() && input.need.spill.is_none();
    Error::new(
        ErrorKind::Budget,
        format!(
            "a budget of {} is too small for {} on {} connected nodes; the least that works is {least}",
            input.budget,
            input.algorithm.unwrap_or("a stream"),
            input.shape.connected,
        ),
    )
    .needs(least)
    .hint(match input.far {
        Some(FarShare::Ratio(_)) => {
            hint!("raise " {memory} " or " {far_ratio} ", or use fewer threads")
        }
        _ if has_to_fit => hint!(
            "raise " {memory} ", or use fewer threads: the state of this algorithm has to fit"
        ),
        _ => hint!("raise " {memory} ", or use fewer threads"),
    })
}

#[cfg(test)]
mod tests {
    use outercore_grid::Order;

    use super::*;
    use crate::output::Working;

    fn shape(connected: u64) -> GridShape {
        GridShape {
            nodes: connected,
            connected,
            partition_log2: 16,
            order: Order::Degree,
            symmetric: true,
            arcs: 0,
            edges: 0,
            weighted: false,
        }
    }

    fn plan(budget: Bytes, need: Need) -> Result<RunPlan> {
        far_plan(budget, need, None)
    }

    fn far_plan(budget: Bytes, need: Need, far: Option<FarShare>) -> Result<RunPlan> {
        let segments: Vec<Segment> = (0..400u64)
            .map(|at| Segment {
                pieces: at as usize..at as usize + 1,
                blocks: at * 250_000..(at + 1) * 250_000,
                weights: at * 4..at * 4 + 4,
            })
            .collect();
        RunPlan::new(&PlanInput {
            algorithm: Some("pagerank"),
            budget,
            threads: 2,
            shape: &shape(1_000_000),
            pieces: 400,
            records: &[],
            segments: &segments,
            weighted: false,
            need,
            cost: &CostModel::default(),
            far,
            reads_by_segment: None,
        })
    }

    #[test]
    fn every_plan_stays_within_its_budget_and_the_least_works() {
        let working = Some(Working { least: Bytes::mib(1), most: Bytes::mib(20) });
        for working in [None, working] {
            let output = Bytes(8_000_000);
            let need =
                Need { state_per_node: 20, output, working, passes: Some(5), ..Need::default() };
            let error = plan(Bytes::mib(1), need).unwrap_err().to_string();
            let least = error.split("works is ").nth(1).unwrap().lines().next().unwrap();
            let least: Bytes = least.parse().unwrap();
            for budget in [least.0, least.0 * 3 / 2, 64 << 20, 100 << 20, 1 << 30] {
                let plan = plan(Bytes(budget), need).unwrap();
                assert!(plan.peak().0 <= budget, "{budget}: {plan:?}");
                assert_eq!(plan.bytes_per_pass.0 + plan.pinned.0, 100_000_000);
            }
            let exact = plan(Bytes::gib(1), need).unwrap().least;
            assert!(exact <= least && least.0 - exact.0 < 110 << 10, "{exact} {least}");
            assert_eq!(plan(exact, need).unwrap().least, exact);
            assert!(plan(Bytes(exact.0 - 1), need).is_err(), "{exact}");
            assert_eq!(plan(Bytes::gib(1), need).unwrap().bytes_per_pass, Bytes(0));
        }
    }

    #[test]
    fn a_far_ratio_is_followed_or_refused_with_the_least_that_works() {
        let working = Some(Working { least: Bytes::mib(1), most: Bytes::mib(20) });
        for working in [None, working] {
            let need = Need { state_per_node: 20, working, ..Need::default() };
            let rest = far_plan(Bytes::mib(64), need, Some(FarShare::Rest)).unwrap();
            let near = plan(Bytes::mib(64), need).unwrap();
            assert_eq!((rest.pinned, rest.far_bytes), (near.pinned, near.bytes_per_pass));
            assert_eq!((near.far_ratio, near.far_bytes), (0.0, Bytes(0)));
            for ratio in [0.0, 0.3, 0.7, 1.0] {
                let far = Some(FarShare::Ratio(ratio));
                let error = far_plan(Bytes::mib(1), need, far).unwrap_err().to_string();
                let least = error.split("works is ").nth(1).unwrap().lines().next().unwrap();
                let least: Bytes = least.parse().unwrap();
                assert!(error.contains("far_ratio"), "{error}");
                for budget in [least, Bytes(2 * least.0), Bytes::gib(1)] {
                    let plan = far_plan(budget, need, far).unwrap();
                    assert!(plan.peak().0 <= budget.0, "{budget}: {plan:?}");
                    assert!((plan.far_ratio - ratio).abs() < 0.01, "{ratio}: {plan:?}");
                    assert!(plan.far_ratio >= ratio, "{ratio}: {plan:?}");
                    assert_eq!(plan.far_bytes.0 + plan.pinned.0, 100_000_000);
                }
                assert!(far_plan(Bytes(least.0 - 220_000), need, far).is_err(), "{least}");
            }
            let error = far_plan(Bytes::gib(1), need, Some(FarShare::Ratio(1.5))).unwrap_err();
            assert!(error.to_string().contains("far ratio 1.5"), "{error}");
        }
    }
}
