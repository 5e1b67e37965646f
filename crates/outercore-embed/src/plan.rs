//! Predicts the cost of an order on a device: bytes, seconds, and whether computing hides the I/O.
//!
//! Pure: computes a plan from an order, sizes and rates.

use outercore_core::{Bytes, Error, Result};
use serde::{Deserialize, Serialize};

use crate::order::{Bucket, Order, OrderKind, SwapMode, check, lower_bound};
use crate::walk::{WalkConfig, buckets_of};

/// Number of edges in each bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BucketEdges {
    /// The total, with equally many edges in every bucket.
    Even(u64),
    /// The count of bucket `(source, target)` is at `source * partitions + target`.
    Counted(Vec<u64>),
}

/// Input of a plan, in addition to the order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanInput {
    /// Number of nodes. Partitions differ by at most one node.
    pub nodes: u64,
    /// Bytes per node: its embedding and its optimiser state.
    pub row_bytes: u64,
    /// Bytes of a partition, if it has padding: partitions of a table fill whole pages, see
    /// [`TableLayout::partition_bytes`](crate::TableLayout::partition_bytes).
    #[serde(default)]
    pub partition_bytes: Option<u64>,
    /// The edges.
    pub edges: BucketEdges,
    /// Seconds to train one edge with its negatives.
    pub seconds_per_edge: f64,
    /// Bytes per second that the device reads.
    pub read_bandwidth: f64,
    /// Bytes per second that it writes.
    pub write_bandwidth: f64,
    /// Configuration of the walks through the order.
    #[serde(default)]
    pub walks: WalkConfig,
}

/// Whether the graph is dense enough that training hides the I/O (Legend 4, theorem 3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hiding {
    /// Edges divided by the square of the nodes.
    pub density: f64,
    /// The least density that hides the I/O; `None` if nothing can be trained during a swap.
    pub least_density: Option<f64>,
    /// Whether the graph is dense enough.
    pub holds: bool,
}

/// Predicted cost of an epoch in one order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderPlan {
    /// Method that constructed the order.
    pub kind: OrderKind,
    /// Number of partitions.
    pub partitions: usize,
    /// Slots for partitions.
    pub slots: usize,
    /// Destination of a loaded partition.
    pub mode: SwapMode,
    /// Configuration of the walks through the order.
    pub walks: WalkConfig,
    /// Buffer states of an epoch.
    pub states: usize,
    /// Lower bound of the states of an epoch in any order.
    pub least_states: usize,
    /// All states except the first of every walk.
    pub swaps: usize,
    /// Swaps during which a bucket can be trained.
    pub prefetchable: usize,
    /// Swaps that end, according to the model, before the training during them does.
    pub hidden: usize,
    /// Size of a partition.
    pub partition_bytes: Bytes,
    /// Memory of all slots.
    pub memory: Bytes,
    /// Bytes read by an epoch that starts with empty memory.
    pub bytes_read: Bytes,
    /// Bytes written by an epoch that empties the memory at its end.
    pub bytes_written: Bytes,
    /// Bytes read, and also bytes written, by an epoch between two others, which starts with the
    /// partitions that the previous one left in memory. With a spare slot the first swap of a walk
    /// moves nothing, because the partition that it loads left last and is still in memory.
    pub bytes_between: Bytes,
    /// Triples that an epoch reads if they are not kept in memory: a bucket is read whenever a part
    /// of it is trained.
    pub triples_read: u64,
    /// Seconds of computing.
    pub compute_seconds: f64,
    /// Seconds of device time for all swaps.
    pub swap_seconds: f64,
    /// Seconds in which computing waits for swaps.
    pub stall_seconds: f64,
    /// Expected seconds of an epoch between two others.
    pub epoch_seconds: f64,
    /// Additional seconds of a single epoch, for the first loads and the last stores.
    pub ends_seconds: f64,
    /// The result of theorem 3.
    pub hiding: Hiding,
}

/// Predicts the cost of an epoch in an order.
///
/// The model simulates the order state by state. The device does one thing at a time; a swap is one
/// write and one read of a partition. In place, a swap begins when all buckets of the evicted
/// partition are trained, or all buckets of the state for swaps in turn. With a spare slot, the
/// evicted partition is written during the next state, and the partition for the state after that
/// is read in its place. With renamed partitions, all buckets of the order count as equally large,
/// because they hold different partitions in each walk.
///
/// # Errors
/// Rates that are not positive, counts that do not match the partitions of the order, or an order
/// that the checker refuses.
///
/// # Example
/// ```
/// use outercore_embed::{
///     BucketEdges, OrderConfig, OrderKind, PlanInput, WalkConfig, partition_order, plan_order,
/// };
/// let order = partition_order(&OrderConfig::new(OrderKind::Optimal, 12, 3))?;
/// let input = PlanInput {
///     nodes: 86_100_000,
///     row_bytes: 800,
///     partition_bytes: None,
///     edges: BucketEdges::Even(304_700_000),
///     seconds_per_edge: 1e-7,
///     read_bandwidth: 3e9,
///     write_bandwidth: 2e9,
///     walks: WalkConfig::default(),
/// };
/// let plan = plan_order(&order, &input)?;
/// assert_eq!((plan.swaps, plan.prefetchable), (32, 32));
/// assert!(!plan.hiding.holds);
/// # Ok::<(), outercore_core::Error>(())
/// ```
pub fn plan_order(order: &Order, input: &PlanInput) -> Result<OrderPlan> {
    let facts = check(order)?;
    input.validate(order.partitions)?;
    let partition_bytes = input.partition_bytes(order.partitions);
    let bytes = |partitions: usize| Bytes(partition_bytes * partitions as u64);
    let read = partition_bytes as f64 / input.read_bandwidth;
    let write = partition_bytes as f64 / input.write_bandwidth;
    let work = Work::new(order, input);
    let stalls = match order.mode {
        SwapMode::InPlace => work.stalls_in_place(read + write),
        SwapMode::SpareSlot => work.stalls_with_spare(read, write),
    };
    let sweeps = input.walks.sweeps as usize;
    let compute_seconds = input.edges.total() * input.seconds_per_edge;
    let stall_seconds = stalls.iter().sum::<f64>() * sweeps as f64;
    let resident = order.states[0].resident.len();
    let swaps = order.swaps() * sweeps;
    // The partition that the first swap of a walk loads is still in memory.
    let spared = usize::from(order.mode == SwapMode::SpareSlot && order.swaps() > 0);
    let between = swaps - spared * sweeps;
    let alone = resident + between + spared;
    Ok(OrderPlan {
        kind: order.kind,
        partitions: order.partitions,
        slots: order.slots,
        mode: order.mode,
        walks: input.walks,
        states: facts.states * sweeps,
        least_states: lower_bound(order.partitions, resident) * sweeps,
        swaps,
        prefetchable: work.prefetchable() * sweeps,
        hidden: stalls.iter().filter(|&&stall| stall == 0.0).count() * sweeps,
        partition_bytes: Bytes(partition_bytes),
        memory: bytes(order.slots),
        bytes_read: bytes(alone),
        bytes_written: bytes(alone),
        bytes_between: bytes(between),
        triples_read: work.triples_read(),
        compute_seconds,
        swap_seconds: between as f64 * (read + write),
        stall_seconds,
        epoch_seconds: compute_seconds + stall_seconds,
        ends_seconds: (resident + spared) as f64 * (read + write),
        hiding: hiding(order, input, resident, bytes(order.slots)),
    })
}

/// The training work in the states of a walk.
struct Work<'a> {
    order: &'a Order,
    input: &'a PlanInput,
    /// Visits per walk, by bucket.
    visits: Vec<u32>,
    /// For each state, before and during the next swap in place: buckets and seconds.
    states: Vec<[(usize, f64); 2]>,
}

impl<'a> Work<'a> {
    fn new(order: &'a Order, input: &'a PlanInput) -> Self {
        let mut visits = vec![0; order.partitions * order.partitions];
        let at = |bucket: Bucket| bucket.source * order.partitions + bucket.target;
        for state in &order.states {
            for bucket in buckets_of(&state.resident, &state.buckets, input.walks.spread) {
                visits[at(bucket)] += 1;
            }
        }
        let sweeps = f64::from(input.walks.sweeps);
        let states = order.states.iter().enumerate().map(|(index, state)| {
            let swap = order.states.get(index + 1).and_then(|next| next.swap);
            let mut sides = [(0, 0.0); 2];
            for bucket in buckets_of(&state.resident, &state.buckets, input.walks.spread) {
                let before = input.walks.before(swap.as_slice(), bucket);
                let (buckets, seconds) = &mut sides[usize::from(!before)];
                let edges = input.edges_of(bucket, order.partitions);
                *buckets += 1;
                *seconds +=
                    edges * input.seconds_per_edge / (sweeps * f64::from(visits[at(bucket)]));
            }
            sides
        });
        Self { order, input, states: states.collect(), visits }
    }

    /// The states that are followed by a swap.
    fn swapped_from(&self) -> &[[(usize, f64); 2]] {
        &self.states[..self.order.swaps()]
    }

    /// Swaps of a walk during which a bucket can be trained.
    fn prefetchable(&self) -> usize {
        let meanwhile = |[before, during]: &&[(usize, f64); 2]| match self.order.mode {
            SwapMode::InPlace => during.0 > 0,
            SwapMode::SpareSlot => before.0 + during.0 > 0,
        };
        self.swapped_from().iter().filter(meanwhile).count()
    }

    /// For each swap of a walk, the seconds that computing waits.
    fn stalls_in_place(&self, swap: f64) -> Vec<f64> {
        self.swapped_from().iter().map(|[_, during]| (swap - during.1).max(0.0)).collect()
    }

    fn stalls_with_spare(&self, read: f64, write: f64) -> Vec<f64> {
        let mut stalls = Vec::with_capacity(self.order.swaps());
        let mut now = 0.0;
        // Time at which the next partition is in the spare slot. The first one is there from the
        // start.
        let mut ready = 0.0;
        for [before, during] in self.swapped_from() {
            now += before.1 + during.1;
            stalls.push(f64::max(ready - now, 0.0));
            now = now.max(ready);
            ready = now + write + read;
        }
        stalls
    }

    /// Triples that an epoch reads.
    fn triples_read(&self) -> u64 {
        let sweeps = u64::from(self.input.walks.sweeps);
        let partitions = self.order.partitions;
        let read = self.visits.iter().enumerate().map(|(at, &visits)| {
            let bucket = Bucket { source: at / partitions, target: at % partitions };
            self.input.edges_of(bucket, partitions) * f64::from(visits)
        });
        read.sum::<f64>().round() as u64 * sweeps
    }
}

/// Theorem 3 for any number of slots.
///
/// During a swap, `pairs` pairs of two partitions can be trained, two buckets each:
/// `2 pairs t |E| / n^2` seconds. The swap takes `b |V| / n / (w + r)`, as in the paper, with `b`
/// bytes per node. Of `n` partitions, `s` fill the memory `M`, so `M = b |V| s / n`. So the I/O is
/// hidden if `|E| / |V|^2 >= b^2 s / (2 pairs M t (w + r))`. With three slots and `b = 8 d` this is
/// the paper's `96 d^2 / (M t (w + r))`. With several sweeps, each sweep trains only a part of
/// every pair, so the density must be higher by the number of sweeps.
fn hiding(order: &Order, input: &PlanInput, resident: usize, memory: Bytes) -> Hiding {
    let nodes = input.nodes as f64;
    let density = input.edges.total() / (nodes * nodes);
    let pairs = match order.mode {
        SwapMode::InPlace if input.walks.in_turn => 0,
        SwapMode::InPlace => resident.saturating_sub(2),
        SwapMode::SpareSlot => resident.saturating_sub(1),
    };
    let rate = input.seconds_per_edge * (input.read_bandwidth + input.write_bandwidth);
    let least_density = (pairs > 0 && rate > 0.0).then(|| {
        // Count the padding of partitions as part of its nodes.
        let bytes = match input.partition_bytes {
            Some(partition) => partition as f64 * order.partitions as f64 / nodes,
            None => input.row_bytes as f64,
        };
        let one =
            bytes * bytes * order.slots as f64 / (2.0 * pairs as f64 * memory.0 as f64 * rate);
        one * f64::from(input.walks.sweeps)
    });
    let holds = order.swaps() == 0 || least_density.is_some_and(|least| density >= least);
    Hiding { density, least_density, holds }
}

impl BucketEdges {
    fn total(&self) -> f64 {
        match self {
            Self::Even(edges) => *edges as f64,
            Self::Counted(counts) => counts.iter().map(|&count| count as f64).sum(),
        }
    }
}

impl PlanInput {
    fn partition_bytes(&self, partitions: usize) -> u64 {
        let of_nodes = self.nodes.div_ceil(partitions as u64) * self.row_bytes;
        self.partition_bytes.unwrap_or(of_nodes)
    }

    fn edges_of(&self, bucket: Bucket, partitions: usize) -> f64 {
        match &self.edges {
            BucketEdges::Counted(_) if self.walks.rename => {
                self.edges.total() / (partitions * partitions) as f64
            }
            BucketEdges::Even(edges) => *edges as f64 / (partitions * partitions) as f64,
            BucketEdges::Counted(counts) => {
                counts[bucket.source * partitions + bucket.target] as f64
            }
        }
    }

    fn validate(&self, partitions: usize) -> Result<()> {
        self.walks.validate()?;
        for (name, rate, may_be_zero) in [
            ("seconds per edge", self.seconds_per_edge, true),
            ("read bandwidth", self.read_bandwidth, false),
            ("write bandwidth", self.write_bandwidth, false),
        ] {
            if !rate.is_finite() || rate < 0.0 || (rate == 0.0 && !may_be_zero) {
                return Err(Error::invalid(format!(
                    "plan of an order: {name} is {rate}, expected a positive number"
                ))
                .hint("`outercore probe` measures the device"));
            }
        }
        if self.nodes == 0 || self.row_bytes == 0 {
            return Err(Error::invalid("plan of an order: expected nodes and bytes of a node"));
        }
        let of_nodes = self.nodes.div_ceil(partitions as u64).checked_mul(self.row_bytes);
        let size = of_nodes.map(|least| self.partition_bytes.unwrap_or(least));
        if let (Some(least), Some(size)) = (of_nodes, size)
            && size < least
        {
            return Err(Error::invalid(format!(
                "plan of an order: a partition of {size} bytes, expected the {least} of its nodes \
                 at least"
            )));
        }
        // A partition may be read in every state, and there are fewer states than buckets.
        let most = (2 * partitions * partitions) as u64 * u64::from(self.walks.sweeps);
        if size.and_then(|size| size.checked_mul(most)).is_none() {
            return Err(Error::invalid("plan of an order: more bytes than can be counted"));
        }
        match &self.edges {
            BucketEdges::Counted(counts) if counts.len() != partitions * partitions => {
                Err(Error::invalid(format!(
                    "plan of an order: edges of {} buckets, expected those of {partitions} x \
                     {partitions}",
                    counts.len()
                )))
            }
            _ => Ok(()),
        }
    }
}
