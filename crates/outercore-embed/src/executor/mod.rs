//! Follows an order of partitions: swaps them in and out while the caller trains.
//!
//! The caller asks for one step after the other and changes the rows of the partitions that the
//! step names. A partition that is written back or read lies in memory that a thread owns
//! meanwhile; it cannot be reached from here, so no read and no write of a slot in flight can
//! happen. Every so often the caller commits: the partitions, what the caller keeps in memory
//! (relations and their optimiser) and the position become durable together.

mod commit;
mod counters;
mod memory;
mod open;
mod passes;
mod rows;
mod states;
mod swap;
mod worker;

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use outercore_core::{Error, Result};
use outercore_io::{Disk, FileLock};

use crate::journal::{Position, ResidentRecord};
use crate::layout::TableLayout;
use crate::order::Order;
use crate::partition::{Slot, SlotMemory};
use crate::step::{Part, Resident, Step};
use crate::walk::{EpochVisits, Visit, Walk, WalkConfig, WalkState, Walks};

pub use counters::ExecutorCounters;
pub use memory::{ExecutorMemory, plan_memory};
pub use passes::SlotViews;
use swap::{Copies, Flight, Held};
use worker::Worker;

/// Trains a table larger than memory, a few partitions at a time.
///
/// An epoch is one walk through the order, or several ([`Walks`]). Each begins with what the one
/// before left in memory: odd ones go backwards, unless partitions are renamed.
///
/// **Memory**: the slots times [`TableLayout::partition_bytes`], and the engine's staging.
/// [`plan_memory`] adds them up.
///
/// # Example
/// ```
/// use std::sync::Arc;
/// use outercore_embed::{Executor, OrderConfig, OrderKind, Partitioning, TableLayout, partition_order};
/// use outercore_io::{EngineConfig, RealDisk};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let directory = directory.path();
/// let order = partition_order(&OrderConfig::new(OrderKind::Optimal, 6, 3))?;
/// let layout = TableLayout::new(Partitioning::new(1000, 6, 7)?, 8, 1)?;
/// let disk = Arc::new(RealDisk);
/// Executor::create(disk.clone(), directory, &layout, &order, b"", &mut |_, embeddings, _| {
///     embeddings.fill(0.5);
///     Ok(())
/// })?;
/// let mut executor = Executor::open(disk, directory, EngineConfig::default())?;
/// let mut buckets = 0;
/// while let Some(step) = executor.advance()? {
///     buckets += step.buckets.len();
///     for (_, embeddings, _) in executor.partitions_mut() {
///         embeddings[0] += 1.0;
///     }
/// }
/// executor.commit(b"relations")?;
/// assert_eq!((buckets, executor.position().epoch), (36, 1));
/// # Ok(())
/// # }
/// ```
pub struct Executor {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    layout: TableLayout,
    walks: Walks,
    /// The walk that the position is in.
    walk: Walk,
    /// Which parts of its buckets the epoch has trained; none before its first step.
    visits: Option<EpochVisits>,
    order_checksum: String,
    memory: SlotMemory,
    /// The slots' memory; none while the worker has it.
    slots: Vec<Option<Slot>>,
    held: Vec<Option<Held>>,
    copies: Vec<Copies>,
    generation: u64,
    position: Position,
    /// Whether the position's state has been entered, so that its steps are being handed out.
    entered: bool,
    /// Steps of the state that are still to be handed out.
    parts: VecDeque<Part>,
    /// Those of the states that were looked at ahead, which follow in this epoch.
    parts_ahead: VecDeque<(usize, VecDeque<Part>)>,
    /// Partitions of the last step handed out.
    current: Vec<Resident>,
    /// Whether the swap to the next state has begun.
    swap_begun: bool,
    in_flight: Vec<Flight>,
    /// What lay in the slots before a pass over the whole table emptied them.
    brings_back: Option<Vec<Option<usize>>>,
    /// An epoch has ended and the caller has not been told.
    epoch_ended: bool,
    failed: bool,
    resident: ResidentRecord,
    counters: ExecutorCounters,
    worker: Worker,
    /// Let go last, when the worker has ended.
    _lock: FileLock,
}

impl Executor {
    /// What the caller kept in memory, as committed last; read from the disk.
    ///
    /// # Errors
    /// `Corrupt`: it is not what was committed.
    pub fn resident_state(&self) -> Result<Vec<u8>> {
        self.resident.load(&self.directory, self.generation)
    }

    /// The buffer state that comes next, or whose steps are being handed out.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Shape of the partitions.
    pub fn layout(&self) -> &TableLayout {
        &self.layout
    }

    /// The order of a walk before partitions are renamed: backwards in odd ones, unless they are.
    pub fn order(&self, walk: u64) -> &Order {
        self.walks.order(walk)
    }

    /// How an epoch walks through the order.
    pub fn walk_config(&self) -> WalkConfig {
        self.walks.config()
    }

    /// Partitions that memory has room for.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// What it has cost so far.
    pub fn counters(&self) -> ExecutorCounters {
        self.counters
    }

    /// Where the slots lie: all embeddings as one float32 array `[slots x slot rows, dim]`, and the
    /// optimiser's state as another, empty if it has none. Slot `i` begins at row `i x slot rows`.
    ///
    /// The memory is there as long as the executor is. Who looks at it through these addresses may
    /// touch the rows of the last step's partitions only, until the next step is asked for.
    pub fn address_ranges(&self) -> [Range<*const u8>; 2] {
        self.memory.address_ranges()
    }

    /// The next step, or `None` once at the end of every epoch.
    ///
    /// What the caller changed for the last step is taken as done.
    ///
    /// **Cost**: blocks while a partition of this step is on its way.
    ///
    /// # Errors
    /// A read or write of a partition failed, or a partition is not what was written. No more
    /// steps are handed out then; the last commit is as it was.
    pub fn advance(&mut self) -> Result<Option<Step>> {
        self.guarded(Self::next_step)
    }

    /// What the next step trains, for who reads triples ahead; none after the last step of an
    /// epoch.
    pub fn upcoming(&mut self) -> Option<&[Visit]> {
        if !self.failed && self.parts.is_empty() && !self.epoch_ended {
            self.look_ahead();
        }
        let ahead = self.parts_ahead.iter().flat_map(|(_, parts)| parts);
        self.parts.iter().chain(ahead).next().map(|part| &*part.visits)
    }

    /// The partitions of the last step: number, embeddings and state, without the rows of no node.
    pub fn partitions_mut(&mut self) -> Vec<(usize, &mut [f32], &mut [f32])> {
        let (dim, width) = (self.layout.dim(), self.layout.state_width());
        let mut found: Vec<(usize, usize, &mut [f32], &mut [f32])> = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let place = self.current.iter().position(|resident| resident.slot == index);
            if let (Some(place), Some(slot)) = (place, slot) {
                let Resident { partition, rows, .. } = self.current[place];
                let (embeddings, state) = slot.numbers_mut();
                let embeddings = &mut embeddings[..rows as usize * dim];
                found.push((place, partition, embeddings, &mut state[..rows as usize * width]));
            }
        }
        found.sort_by_key(|(place, ..)| *place);
        found.into_iter().map(|(_, partition, rows, state)| (partition, rows, state)).collect()
    }

    /// Runs what changes the executor, unless an earlier failure has left it half-changed.
    fn guarded<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.failed {
            return Err(Error::invalid("partitions: an earlier read or write has failed")
                .hint("open the table again: it goes on from the last commit"));
        }
        let result = act(self);
        self.failed = result.is_err();
        result
    }

    /// Number of the position's state in its walk.
    fn index(&self) -> usize {
        self.walks.place_of(self.position.epoch, self.position.state).1
    }

    fn state(&self) -> &WalkState {
        &self.walk.states[self.index()]
    }

    /// The slot that holds a partition, or that it is being read into or written from.
    fn slot_of(&self, partition: usize) -> Option<usize> {
        self.held.iter().position(|held| held.is_some_and(|held| held.partition == partition))
    }
}
