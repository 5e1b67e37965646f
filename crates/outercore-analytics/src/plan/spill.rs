//! The memory plan if the state of the nodes does not fit into memory: the number of partitions in
//! memory at one time, and the bytes that a pass then moves. Pure: simulates a pass without moving
//! bytes.

use outercore_core::{Bytes, Result};
use outercore_grid::Piece;
use serde::{Deserialize, Serialize};

use super::{PlanInput, RunPlan, STAGING, WINDOW, buffers, local, result_file, too_small};
use crate::output::{ResultTable, SpillNeed, Working};
use crate::pins::choose;
use crate::program::Selection;
use crate::schedule::{ends, tasks};
use crate::segments::{Segment, segment_of, wanted};
use crate::state::spill::BUFFERS;
use crate::state::steps::{Cached, plan_group};
use crate::state::{PerNode, Slots};
use crate::task::Task;

/// Least bytes of a result that are assembled at a time.
pub(super) const LEAST_WINDOW: u64 = 64 << 10;

/// Number of divisions of memory between targets and sources to compare.
const CANDIDATES: usize = 8;

/// Node ids by partition, while a result is assembled in a file.
const NODE_IDS: PerNode = PerNode::new(4, 0);

/// How state is moved through memory.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct SpillPlan {
    /// Target partitions in memory at one time.
    pub targets: u64,
    /// Source partitions in memory, without the one that is being loaded.
    pub sources: u64,
    /// Groups of targets in a pass over everything.
    pub groups: u64,
    /// Bytes of state that a pass over everything reads.
    pub read_per_pass: Bytes,
    /// Bytes of state that a pass over everything writes.
    pub written_per_pass: Bytes,
}

impl SpillPlan {
    /// The settings for a run; `room` is the memory for the result after all passes.
    pub fn slots(&self, room: Bytes) -> Slots {
        Slots { group: self.targets as usize, sources: self.sources as usize, room }
    }
}

/// Memory of components that do not depend on the division of state.
struct Fixed {
    index: u64,
    scratch: u64,
    staging: u64,
    window: u64,
    /// Segments that a far ratio keeps.
    kept: u64,
    /// For the algorithm, for scratch files, and for one partition that is opened or closed.
    rest: u64,
}

impl Fixed {
    fn total(&self) -> u64 {
        self.index + self.scratch + self.staging + self.window + self.kept + self.rest
    }

    /// The part of it that remains while a result is assembled, after all passes.
    fn delivering(&self) -> u64 {
        self.index + self.staging + self.window + self.rest
    }
}

/// Inputs of a plan that do not depend on the budget.
struct Parts {
    fixed: Fixed,
    /// Bytes of the segments.
    sizes: Vec<u64>,
    /// Whether a far ratio determines the kept segments.
    keeps: bool,
    /// Memory of an average target, of the largest target, and of a source.
    target: u64,
    largest: u64,
    shown: u64,
}

impl Parts {
    fn of(input: &PlanInput<'_>, need: &SpillNeed) -> Result<Self> {
        let shape = input.shape;
        // The first partition is the longest.
        let len = shape.partition_len(0) as u64;
        let shown = need.shown.total(len);
        // The number of gathered values equals the number of arcs. A group needs the average, a
        // single partition the maximum.
        let (target, largest) = match input.need.working {
            Some(Working { least, most }) => (most.0.div_ceil(shape.partitions() as u64), least.0),
            None => (need.target.total(len), need.target.total(len)),
        };
        let sizes: Vec<u64> =
            input.segments.iter().map(|segment| segment.bytes(input.weighted)).collect();
        let longest = sizes.iter().copied().max().unwrap_or(0);
        let (index, scratch) = buffers(input);
        let kept = local(input, &sizes)?;
        let fixed = Fixed {
            index,
            scratch,
            staging: STAGING.0.0,
            window: WINDOW.0.0.max(2 * longest),
            kept: kept.unwrap_or(0),
            rest: input.need.fixed.0 + BUFFERS.0 + shown + need.fixed.total(len),
        };
        Ok(Self { fixed, sizes, keeps: kept.is_some(), target, largest, shown })
    }

    fn least(&self, input: &PlanInput<'_>) -> u64 {
        // A target, a source, and the next source.
        let passing = self.fixed.total() + self.largest + 2 * self.shown;
        let result = self.fixed.delivering() + delivering(input);
        passing.max(result + LEAST_WINDOW.min(input.need.output.0))
    }
}

/// The least budget with state in scratch files.
///
/// # Errors
/// `Invalid`: a far ratio out of range.
pub(super) fn least(input: &PlanInput<'_>, need: &SpillNeed) -> Result<Bytes> {
    Ok(Bytes(Parts::of(input, need)?.least(input)))
}

/// A division of memory, and the bytes that a pass over everything then moves.
#[derive(Clone, Copy)]
struct Division {
    group: usize,
    sources: usize,
    pinned: u64,
    groups: u64,
    loads: u64,
    first_pass: u64,
    later_pass: u64,
}

/// The plan with state in scratch files.
///
/// # Errors
/// `Budget`, with the least sufficient budget.
pub(super) fn plan(input: &PlanInput<'_>, need: &SpillNeed) -> Result<RunPlan> {
    let parts = Parts::of(input, need)?;
    if input.budget.0 < parts.least(input) {
        return Err(too_small(input));
    }
    let division = divide(input, need, &parts);
    let Parts { fixed, sizes, target, largest, shown, .. } = parts;
    let targets = (division.group as u64 * target).max(largest);
    let sources = (division.sources as u64 + 1) * shown;
    let gathers = input.need.working.is_some();
    let (read, written) = moved(input, need, division.loads);
    let rest = input.budget.0 - fixed.delivering();
    let whole = input.need.output.0 + delivering(input) <= rest;
    let spill = SpillPlan {
        // Gathers are limited only by their working memory.
        targets: if gathers { input.shape.partitions() as u64 } else { division.group as u64 },
        sources: division.sources as u64,
        groups: division.groups,
        read_per_pass: Bytes(read),
        written_per_pass: Bytes(written),
    };
    let total: u64 = sizes.iter().sum();
    let far_bytes = if input.far.is_some() { total - division.pinned } else { 0 };
    let pinned_segments = choose(&sizes, division.pinned, input.reads_by_segment)
        .into_iter()
        .filter(|pinned| *pinned)
        .count() as u64;
    let window = (rest - delivering(input)).min(input.need.output.0);
    let seconds = input.need.passes.filter(|_| far_bytes == 0).map(|passes| {
        let moved = read + written;
        let first = input.cost.seconds(sizes.len() as u64, Bytes(division.first_pass + moved));
        let later = input.cost.seconds(sizes.len() as u64, Bytes(division.later_pass + moved));
        if passes == 0 { 0.0 } else { first + (passes - 1) as f64 * later }
    });
    Ok(RunPlan {
        budget: input.budget,
        least: Bytes(0),
        least_in_memory: Bytes(0),
        state: Bytes(if gathers { sources } else { targets + sources } + fixed.rest),
        output: Bytes(fixed.rest + delivering(input) + window),
        index: Bytes(fixed.index),
        staging: Bytes(fixed.staging),
        window: Bytes(fixed.window),
        scratch: Bytes(fixed.scratch),
        working: Bytes(if gathers { targets } else { 0 }),
        pinned: Bytes(division.pinned),
        segments: sizes.len() as u64,
        pinned_segments,
        weighted: input.weighted,
        passes: input.need.passes,
        bytes_first_pass: Bytes(division.first_pass),
        bytes_per_pass: Bytes(division.later_pass),
        seconds,
        far_ratio: far_bytes as f64 / total.max(1) as f64,
        far_bytes: Bytes(far_bytes),
        result_window: (!whole).then_some(Bytes(window)),
        spill: Some(spill),
        disk: disk(input, need, whole),
        checkpoint: None,
    })
}

/// Bytes of one kind of state of all nodes.
fn of_all(input: &PlanInput<'_>, kind: PerNode) -> u64 {
    let shape = input.shape;
    (0..shape.partitions()).map(|part| kind.moved(shape.partition_len(part) as u64)).sum()
}

/// Bytes of state that a pass over everything reads, including `loads` of sources, and writes.
fn moved(input: &PlanInput<'_>, need: &SpillNeed, loads: u64) -> (u64, u64) {
    let traffic = need.traffic;
    let times = |kind: PerNode, often: &[bool]| {
        often.iter().filter(|&&moves| moves).count() as u64 * of_all(input, kind)
    };
    let read = times(need.shown, &[traffic.open_shown, traffic.close_shown])
        + times(need.fixed, &[traffic.open_fixed, traffic.close_fixed])
        + times(need.own, &[traffic.open_own])
        + loads;
    (read, times(need.shown, &[true]) + times(need.own, &[need.writes_own]))
}

/// Most bytes of scratch files at one time; `whole` means that the result fits into memory.
fn disk(input: &PlanInput<'_>, need: &SpillNeed, whole: bool) -> Bytes {
    let of_all = |kind| of_all(input, kind);
    let passing = 2 * of_all(need.shown) + of_all(need.fixed) + of_all(need.own);
    let kept = match need.result {
        ResultTable::Shown => 2 * of_all(need.shown),
        ResultTable::Own => of_all(need.own),
    };
    // Values in the numbering of the grid, node ids, and the result.
    let result = if whole { 0 } else { kept + of_all(NODE_IDS) + result_file(input).0 };
    Bytes(passing.max(result))
}

/// Memory while a result is assembled, without its window: ids and values of a partition.
fn delivering(input: &PlanInput<'_>) -> u64 {
    let per_node = input.need.output.0.div_ceil(input.shape.nodes.max(1));
    (2 * per_node + 4) * input.shape.partition_len(0) as u64
}

/// The best of several divisions of the remaining memory between targets, sources and pins.
fn divide(input: &PlanInput<'_>, need: &SpillNeed, parts: &Parts) -> Division {
    let Parts { fixed, sizes, keeps, target, largest, shown } = parts;
    let (target, largest, shown) = (*target, *largest, *shown);
    let room = input.budget.0 - fixed.total();
    let partitions = input.shape.partitions();
    let all = vec![true; partitions];
    let select =
        Selection { sources: &all, targets: &all, flow: need.flow, weights: input.weighted };
    let lists = tasks(input.records, input.shape.symmetric, &select);
    let segment_of = segment_of(input.segments, input.records.len());
    let total: u64 = sizes.iter().sum();
    let mut best: Option<Division> = None;
    let (mut tried, mut groups) = (0, 1);
    while tried < CANDIDATES && groups <= partitions {
        let group = partitions.div_ceil(groups);
        groups = (groups + 1).max(if tried > 3 { groups + groups / 4 } else { 0 });
        let taken = (group as u64 * target).max(largest);
        if taken + 2 * shown > room {
            continue;
        }
        let slots = ((room - taken) / shown.max(1) - 1).min(partitions as u64) as usize;
        let left = room - taken - (slots as u64 + 1) * shown;
        let left = if *keeps { fixed.kept } else { left };
        let pins = choose(sizes, left, input.reads_by_segment);
        let mut pass = Pass {
            input,
            segment_of: &segment_of,
            pins: &pins,
            held: vec![false; sizes.len()],
            sizes,
            first: 0,
            later: 0,
        };
        let pinned = sizes.iter().zip(&pins).filter(|pin| *pin.1).map(|pin| pin.0).sum();
        let mut cached = Cached::new(partitions, slots);
        let order: Vec<usize> = (0..partitions).collect();
        let source_of = |task: Task| ends(&input.records[task.piece()], task.side()).0;
        let (mut loads, mut count) = (0, 0);
        for group in order.chunks(group) {
            count += 1;
            for step in plan_group(group, &lists, &source_of, need.any_order, &mut cached) {
                let len = |part| input.shape.partition_len(part) as u64;
                loads += step.load.map_or(0, |source| need.shown.moved(len(source)));
                pass.step(&step.tasks);
            }
        }
        let division = Division {
            group,
            sources: slots,
            pinned,
            groups: count,
            loads,
            first_pass: pass.first,
            later_pass: pass.later,
        };
        let moved = |division: &Division| division.loads + division.later_pass;
        if best.as_ref().is_none_or(|best| moved(&division) < moved(best)) {
            best = Some(division);
        }
        tried += 1;
    }
    best.unwrap_or(Division {
        group: 1,
        sources: 1,
        pinned: 0,
        groups: partitions as u64,
        loads: 0,
        first_pass: total,
        later_pass: total,
    })
}

/// Counts the bytes of edges that a pass reads.
struct Pass<'a> {
    input: &'a PlanInput<'a>,
    segment_of: &'a [u32],
    pins: &'a [bool],
    held: Vec<bool>,
    sizes: &'a [u64],
    first: u64,
    later: u64,
}

impl Pass<'_> {
    fn step(&mut self, tasks: &[(usize, Vec<Task>)]) {
        let tasks = tasks.iter().flat_map(|tasks| &tasks.1);
        for (segment, first, last) in wanted(tasks, self.segment_of, self.pins.len()) {
            if self.pins[segment] {
                let new = !std::mem::replace(&mut self.held[segment], true);
                self.first += if new { self.sizes[segment] } else { 0 };
                continue;
            }
            let records: &[Piece] = self.input.records;
            let weight_bytes = self.input.weight_bytes();
            let bytes =
                Segment::between(records, first, last, weight_bytes).bytes(self.input.weighted);
            self.first += bytes;
            self.later += bytes;
        }
    }
}
