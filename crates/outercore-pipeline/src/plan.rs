//! The memory plan: divides one budget between topology, row slots, staging and batches in flight.
//!
//! Pure: computes a plan from the trial batches and the device's cost model. The loader follows the
//! plan, `outercore plan` prints it, and the run record stores it.

use outercore_core::{Bytes, Error, ErrorKind, Result, hint};
use outercore_io::CostModel;
use serde::Serialize;

use outercore_far::Placed;

use crate::arrays::ArraysPlan;
use crate::config::TopologyMode;
use crate::row_space::PlannedPart;
use crate::trial::{Ranked, Trial};

/// Groups of batches that exist at the same time, without the announced ones: one is sampled, one
/// is fetched, one is consumed.
const GROUPS_AT_WORK: u64 = 3;

/// Groups whose batches carry rows of further arrays: one is filled, one is consumed.
const FILLED_GROUPS: u64 = 2;

/// Batches whose assembled features exist at the same time: the consumer's batch, and the next one
/// during assembly.
const DELIVERED_BATCHES: u64 = 2;

/// Bytes per column during its look-up: its id, its extent, and the coordinates of its draws.
const COLUMN_BYTES: u64 = 48;

/// Bookkeeping per row slot: an entry of the dynamic part or a sorted id of the constant part.
const SLOT_OVERHEAD: u64 = 24;

/// Shares of the row slots to try for the constant part.
const CONSTANT_SHARES: [f64; 7] = [0.0, 0.2, 0.4, 0.55, 0.7, 0.8, 0.9];

/// Scratch of a paged topology: with less, it reads single pages; more brings little.
const LEAST_WORKING: Bytes = Bytes::kib(512);
const MOST_WORKING: Bytes = Bytes::mib(64);

/// Number of budgets to try for the least sufficient one; each is a fiftieth larger than the
/// previous.
const MOST_GUESSES: u32 = 100;

/// Largest number of batches fetched together.
pub const MAX_GROUP: u32 = 256;

/// Group sizes to try.
const GROUPS: [u32; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// The loader's files in far memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FarPlan {
    /// Bytes found on the server under their content names.
    pub found: Bytes,
    /// Bytes copied to the server for this loader.
    pub placed: Bytes,
    /// Bytes left on the disk, because the server has no room.
    pub refused: Bytes,
}

impl FarPlan {
    pub(crate) fn add(&mut self, placed: Placed) {
        self.placed.0 += placed.bytes + placed.already;
        self.refused.0 += placed.refused;
    }
}

/// Where the topology is stored, and its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TopologyPlan {
    /// Sources (and edge ids) in memory.
    pub resident: bool,
    /// Offsets in memory.
    pub offsets_resident: bool,
    /// Scratch for the look-ups of a paged topology: larger requests are cut into pieces, and
    /// smaller pieces cause more reads.
    pub working: Bytes,
    /// Memory of the topology, including staging if it is paged.
    pub memory: Bytes,
}

/// Sizes in memory that the topology decision needs.
#[derive(Clone, Copy, Debug, Default)]
pub struct TopologySize {
    /// Bytes of the offsets.
    pub offsets: Bytes,
    /// Bytes of the sources array.
    pub sources: Bytes,
    /// Bytes of the edge-id array; 0 if each id equals its position or ids are not needed.
    pub edge_ids: Bytes,
}

/// Decides where the topology is stored. In `Auto` mode, a resident topology may take at most
/// `most`.
///
/// # Errors
/// `Budget` if the topology must be resident and does not fit.
pub fn plan_topology(
    mode: TopologyMode,
    size: TopologySize,
    budget: Bytes,
    staging: Bytes,
    most: Bytes,
) -> Result<TopologyPlan> {
    let resident = Bytes(size.offsets.0 + size.sources.0 + size.edge_ids.0);
    let fits = match mode {
        TopologyMode::Resident if resident > budget => {
            return Err(Error::new(
                ErrorKind::Budget,
                format!("a resident topology takes {resident}, the budget is {budget}"),
            )
            .hint(hint!("raise " {memory} ", or leave the topology on disk (`paged`)")));
        }
        TopologyMode::Resident => true,
        TopologyMode::Paged => false,
        TopologyMode::Auto => resident <= most,
    };
    if fits {
        return Ok(TopologyPlan {
            resident: true,
            offsets_resident: true,
            working: Bytes(0),
            memory: resident,
        });
    }
    let offsets_resident = size.offsets.0 <= budget.0 / 4;
    let offsets = if offsets_resident { size.offsets.0 } else { 0 };
    let working = Bytes((budget.0 / 8).clamp(LEAST_WORKING.0, MOST_WORKING.0));
    let memory = Bytes(offsets + staging.0 + working.0);
    Ok(TopologyPlan { resident: false, offsets_resident, working, memory })
}

/// Inputs of [`MemoryPlan::new`].
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    /// The whole budget.
    pub budget: Bytes,
    /// Memory used by the caller, including the input nodes.
    pub reserved: Bytes,
    /// Plan of the topology.
    pub topology: TopologyPlan,
    /// Buffers of the feature reads.
    pub staging: Bytes,
    /// Location of the feature rows of each node type; `None` without features.
    pub rows: Option<&'a [PlannedPart]>,
    /// Memory of one row slot, which holds a row of any node type.
    pub slot_bytes: Bytes,
    /// Whether batches carry edge ids.
    pub edge_ids: bool,
    /// Further arrays of batches.
    pub arrays: ArraysPlan,
    /// Number of groups announced ahead.
    pub look_ahead: u32,
    /// Batches per group, if fixed.
    pub group: Option<u32>,
    /// Share of the constant part, if fixed.
    pub constant_share: Option<f64>,
    /// Results of the trial batches.
    pub trial: &'a Trial,
    /// Cost model of the device.
    pub cost: &'a CostModel,
    /// Seconds between two groups in which the device has no reads.
    pub pause_s: f64,
    /// Longest single read.
    pub max_read: Bytes,
    /// Reads in flight.
    pub depth: usize,
    /// Files in far memory.
    pub far: Option<FarPlan>,
}

/// Division of the row slots, and the number of batches fetched together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Split {
    /// Batches per group.
    pub group: u32,
    /// Slots of the constant part.
    pub constant_slots: u32,
    /// Slots of the dynamic part.
    pub dynamic_slots: u32,
    /// Expected rows read per batch.
    pub misses_per_batch: f64,
    /// Expected read requests per batch.
    pub requests_per_batch: f64,
    /// Expected bytes read per batch.
    pub bytes_per_batch: f64,
    /// Expected time of the fetching stage per batch, in seconds.
    pub seconds_per_batch: f64,
}

/// Memory of each component, and the expected reads.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryPlan {
    /// The whole budget.
    pub budget: Bytes,
    /// Memory used by the caller: input nodes, labels.
    pub reserved: Bytes,
    /// Plan of the topology.
    pub topology: TopologyPlan,
    /// Buffers of the feature reads.
    pub staging: Bytes,
    /// Sampled subgraphs in flight.
    pub sampled: Bytes,
    /// Assembled batches.
    pub delivered: Bytes,
    /// Row slots with their bookkeeping.
    pub slots: Bytes,
    /// Reads in flight at the same time, as far as their buffers have room.
    pub reads_in_flight: usize,
    /// Groups sampled ahead of the group that is being fetched.
    pub look_ahead: u32,
    /// Division of the slots.
    pub split: Split,
    /// Feature rows of all node types; 0 without features.
    pub num_rows: u64,
    /// Most nodes of a batch in the trial.
    pub nodes_per_batch: u64,
    /// Most bytes of a batch's assembled feature rows in the trial.
    pub row_bytes_per_batch: u64,
    /// Most edges of a batch in the trial.
    pub edges_per_batch: u64,
    /// A budget with which all feature rows stay in memory; an upper bound, the same for every
    /// budget. `None` without feature rows, and with further arrays, whose memory varies.
    pub all_rows: Option<Bytes>,
    /// Files in far memory, if there is a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far: Option<FarPlan>,
    /// Further arrays of batches, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrays: Option<ArraysPlan>,
}

impl MemoryPlan {
    /// Divides the budget for the least expected time of the fetching stage per batch.
    ///
    /// For every candidate, the trial rows pass through the real read planner. The expectation
    /// therefore includes merged reads, gaps and the hits of the constant part.
    ///
    /// # Errors
    /// `Budget`, with the least sufficient budget.
    pub fn new(input: &PlanInput<'_>) -> Result<Self> {
        if input.rows.is_none() {
            return Self::without_rows(input);
        }
        let num_rows = input.num_rows();
        let free = |group: u32| -> Option<u64> {
            input.budget.0.checked_sub(input.fixed() + input.in_flight(group)).map(|rest| {
                (rest / (input.slot_bytes.0 + SLOT_OVERHEAD)).min(u64::from(u32::MAX / 2))
            })
        };

        // If everything fits, the constant part holds every row.
        let relaxed = input.relaxed_group();
        if input.constant_share.is_none()
            && let Some(slots) = free(relaxed)
            && slots >= num_rows
        {
            let split = Split {
                group: relaxed,
                constant_slots: num_rows as u32,
                dynamic_slots: 0,
                ..Split::default()
            };
            return Ok(input.finish(split, num_rows));
        }

        let ranks = Ranked::new(input.trial);
        let trials = input.trial.count();
        let groups: Vec<u32> = match input.group {
            Some(group) => vec![group.min(MAX_GROUP)],
            None => GROUPS.into_iter().filter(|&g| g <= trials).collect(),
        };
        let fixed_share = input.constant_share.map(|share| vec![share]);
        let shares = fixed_share.as_deref().unwrap_or(&CONSTANT_SHARES);

        let mut best: Option<Split> = None;
        for &group in &groups {
            let Some(slots) = free(group) else { continue };
            let rows = ranks.distinct(input.trial, group.min(trials));
            for &share in shares {
                let constant = (slots as f64 * share) as u64;
                let constant = constant.min(input.trial.hot.len() as u64).min(num_rows);
                let dynamic = (slots - constant).min(num_rows);
                let missed = rows.iter().filter(|&&(_, rank)| u64::from(rank) >= constant);
                let missed = missed.map(|&(row, _)| row).collect();
                let Some(split) = input.split(group, (constant, dynamic), missed) else {
                    continue;
                };
                let least = best.map_or(f64::INFINITY, |best| best.seconds_per_batch * 0.999);
                if split.seconds_per_batch < least {
                    best = Some(split);
                }
            }
        }
        match best {
            Some(split) => Ok(input.finish(split, num_rows)),
            None => Err(input.too_small()),
        }
    }

    /// The share of feature rows in [`MemoryPlan::delivered`].
    #[must_use]
    pub fn delivered_rows(&self) -> Bytes {
        Bytes(DELIVERED_BATCHES * self.row_bytes_per_batch)
    }

    /// Whether all feature rows stay in memory, so that none is read twice.
    #[must_use]
    pub fn holds_all_rows(&self) -> bool {
        u64::from(self.split.constant_slots) == self.num_rows
    }

    fn without_rows(input: &PlanInput<'_>) -> Result<Self> {
        let group = input.relaxed_group();
        let fits = |group| input.fixed() + input.in_flight(group) <= input.budget.0;
        let group = (1..=group).rev().find(|&group| fits(group));
        match group {
            Some(group) => Ok(input.finish(Split { group, ..Split::default() }, 0)),
            None => Err(input.too_small()),
        }
    }
}

impl PlanInput<'_> {
    /// Feature rows of all node types.
    fn num_rows(&self) -> u64 {
        let parts = self.rows.into_iter().flatten();
        parts.map(|part| part.nodes.end - part.nodes.start).sum()
    }

    /// Batches per group if no feature rows are read.
    fn relaxed_group(&self) -> u32 {
        self.group.unwrap_or(4).min(MAX_GROUP)
    }

    /// Memory of everything, with a slot for each feature row; `None` without feature rows.
    pub(crate) fn with_all_rows(&self) -> Option<Bytes> {
        let slots = self.num_rows() * (self.slot_bytes.0 + SLOT_OVERHEAD);
        (slots > 0).then(|| Bytes(self.fixed() + self.in_flight(self.relaxed_group()) + slots))
    }

    /// The expected reads of `group` batches that are fetched together, given the rows that miss
    /// the constant part. `None` if the dynamic part cannot hold these rows.
    fn split(
        &self,
        group: u32,
        (constant, dynamic): (u64, u64),
        missed: Vec<u64>,
    ) -> Option<Split> {
        // Two groups are pinned at the same time: one is consumed, one is fetched. The slack covers
        // batches larger than those of the trial. A group that is too large is halved, but a single
        // batch must fit.
        let rows = missed.len() as u64;
        let all = self.num_rows();
        let needed = (2 * rows * 21 / 20).min(all);
        let least = if group == 1 { rows * 5 / 4 } else { rows * 21 / 20 }.min(all);
        let overlaps = needed <= dynamic;
        if least > dynamic || !overlaps && group > 1 && self.group.is_none() {
            return None;
        }
        let (mut requests, mut bytes, mut reading) = (0, 0, 0.0);
        for part in self.rows.into_iter().flatten() {
            let (reads, seconds) = part.reads(&missed, self.cost, self.max_read);
            requests += reads.len();
            bytes += reads.iter().map(|read| u64::from(read.len)).sum::<u64>();
            reading += seconds;
        }
        let batches = f64::from(group.min(self.trial.count()));
        // With a single pinned group, reading cannot overlap with consuming.
        let overlap = if overlaps { 1.0 } else { 2.0 };
        let seconds = overlap * reading + self.pause_s;
        Some(Split {
            group,
            constant_slots: constant as u32,
            dynamic_slots: dynamic as u32,
            misses_per_batch: rows as f64 / batches,
            requests_per_batch: requests as f64 / batches,
            bytes_per_batch: bytes as f64 / batches,
            seconds_per_batch: seconds / batches,
        })
    }

    /// Memory that does not depend on the group.
    fn fixed(&self) -> u64 {
        let arrays = self.arrays.memory.0;
        let rules = self.trial.scratch / 8 * 9;
        self.reserved.0
            + self.topology.memory.0
            + self.staging.0
            + arrays
            + rules
            + self.delivered().0
    }

    fn delivered(&self) -> Bytes {
        let batch = self.trial.row_bytes + self.trial.nodes * 16 + self.trial.edges * 24;
        Bytes(DELIVERED_BATCHES * (batch + self.array_rows()))
    }

    /// Bytes of the further arrays' rows in a batch.
    fn array_rows(&self) -> u64 {
        self.arrays.of_batch(self.trial.nodes, self.trial.edges)
    }

    /// Memory of all sampled subgraphs that exist at the same time, and transient memory for
    /// sampling a group.
    fn in_flight(&self, group: u32) -> u64 {
        let edge = 4 + if self.edge_ids { 8 } else { 0 };
        let Trial { nodes, edges, columns, .. } = self.trial;
        // With one node type, a node has at most one column; with several types, it may have one
        // for each edge type.
        let more = columns.saturating_sub(*nodes);
        let stored = nodes * 16 + more * 4 + edges * edge;
        let transient = nodes * 32 + more * COLUMN_BYTES + edges * (16 + edge);
        let filled = self.array_rows() * FILLED_GROUPS;
        let batch = stored * (GROUPS_AT_WORK + u64::from(self.look_ahead)) + transient + filled;
        u64::from(group) * batch
    }

    fn finish(&self, split: Split, num_rows: u64) -> MemoryPlan {
        let slots = u64::from(split.constant_slots) + u64::from(split.dynamic_slots);
        MemoryPlan {
            budget: self.budget,
            reserved: self.reserved,
            topology: self.topology,
            staging: self.staging,
            sampled: Bytes(self.in_flight(split.group)),
            delivered: self.delivered(),
            slots: Bytes(slots * (self.slot_bytes.0 + SLOT_OVERHEAD)),
            reads_in_flight: self.depth,
            look_ahead: self.look_ahead,
            split,
            num_rows,
            nodes_per_batch: self.trial.nodes,
            row_bytes_per_batch: self.trial.row_bytes,
            edges_per_batch: self.trial.edges,
            all_rows: None,
            far: self.far,
            arrays: (self.arrays != ArraysPlan::default()).then_some(self.arrays),
        }
    }

    /// Approximately the least sufficient budget. Parts that depend on the budget are taken as for
    /// the current budget.
    fn least(&self) -> Bytes {
        let rows = self.trial.rows() * 13 / 10;
        let slots = rows * (self.slot_bytes.0 + SLOT_OVERHEAD);
        Bytes(self.fixed() + self.in_flight(1) + slots)
    }

    fn too_small(&self) -> Error {
        self.refused(self.least())
    }

    fn refused(&self, least: Bytes) -> Error {
        let text =
            format!("a budget of {} is too small; the least that works is {least}", self.budget);
        let hint = if self.arrays == ArraysPlan::default() {
            hint!("raise " {memory} ", or lower the batch size or the fan-outs")
        } else {
            let others = ", lower the batch size or the fan-outs, or deliver fewer `arrays`";
            hint!("raise " {memory} {(others)})
        };
        Error::new(ErrorKind::Budget, text).needs(least).hint(hint)
    }

    /// The error of [`MemoryPlan::new`], naming a budget for which `plans` returns true. It tries
    /// budgets upwards from the approximate least, in steps of a fiftieth.
    pub(crate) fn refuse(&self, plans: impl Fn(Bytes) -> bool) -> Error {
        let mut least = self.least().max(self.budget).readable();
        // This ends soon: most of a budget of twice the size is free.
        for _ in 0..MOST_GUESSES {
            if plans(least) {
                break;
            }
            least = Bytes(least.0 + least.0 / 50).readable();
        }
        self.refused(least)
    }
}

#[cfg(test)]
mod tests;
