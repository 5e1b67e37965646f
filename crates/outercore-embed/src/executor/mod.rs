//! Follows an order of partitions and swaps them while the caller trains.
//!
//! The caller requests one step after the other and changes the rows of the partitions in the step.
//! While a partition is read or written, a thread owns its memory. The memory cannot be reached
//! from here, so it cannot be used during a read or write. From time to time the caller commits:
//! the partitions, the caller's own state (relations and their optimiser) and the position become
//! durable together.

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
/// An epoch is one walk through the order, or several ([`Walks`]). Each walk begins with the
/// partitions that the previous one left in memory: odd walks run backwards, unless partitions are
/// renamed.
///
/// **Memory**: [`TableLayout::partition_bytes`] times the number of slots, and the engine's
/// staging. [`plan_memory`] adds them up.
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
    /// The walk of the current position.
    walk: Walk,
    /// The parts of buckets that the epoch has trained; `None` before its first step.
    visits: Option<EpochVisits>,
    order_checksum: String,
    memory: SlotMemory,
    /// Memory of the slots; `None` while the worker holds it.
    slots: Vec<Option<Slot>>,
    held: Vec<Option<Held>>,
    copies: Vec<Copies>,
    generation: u64,
    position: Position,
    /// Whether the state at the position was entered, so that its steps are being returned.
    entered: bool,
    /// Remaining steps of the state.
    parts: VecDeque<Part>,
    /// Steps of later states in this epoch that were computed ahead.
    parts_ahead: VecDeque<(usize, VecDeque<Part>)>,
    /// Partitions of the last returned step.
    current: Vec<Resident>,
    /// Whether the swap to the next state has begun.
    swap_begun: bool,
    in_flight: Vec<Flight>,
    /// The partitions in the slots before a pass over the whole table emptied them.
    brings_back: Option<Vec<Option<usize>>>,
    /// An epoch has ended, but the caller has not been notified.
    epoch_ended: bool,
    failed: bool,
    resident: ResidentRecord,
    counters: ExecutorCounters,
    worker: Worker,
    /// Last field, so that the lock is released only after the worker has ended.
    _lock: FileLock,
}

impl Executor {
    /// The caller's state at the last commit, read from disk.
    ///
    /// # Errors
    /// `Corrupt`: it differs from the committed state.
    pub fn resident_state(&self) -> Result<Vec<u8>> {
        self.resident.load(&self.directory, self.generation)
    }

    /// The current or next buffer state.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Shape of the partitions.
    pub fn layout(&self) -> &TableLayout {
        &self.layout
    }

    /// The order of a walk before partitions are renamed. Without renaming, odd walks run
    /// backwards.
    pub fn order(&self, walk: u64) -> &Order {
        self.walks.order(walk)
    }

    /// Configuration of the walks.
    pub fn walk_config(&self) -> WalkConfig {
        self.walks.config()
    }

    /// Number of partitions that fit in memory.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Cost so far.
    pub fn counters(&self) -> ExecutorCounters {
        self.counters
    }

    /// Addresses of the slots: all embeddings as one float32 array `[slots x slot rows, dim]`, and
    /// the state of the optimiser as another one, which may be empty. Slot `i` begins at row
    /// `i x slot rows`.
    ///
    /// The memory lives as long as the executor. Code that uses these addresses may only touch rows
    /// of the last step's partitions, and only until the next step is requested.
    pub fn address_ranges(&self) -> [Range<*const u8>; 2] {
        self.memory.address_ranges()
    }

    /// The next step, or `None` once at the end of every epoch.
    ///
    /// Changes for the last step count as finished.
    ///
    /// **Cost**: blocks until the partitions of this step are in memory.
    ///
    /// # Errors
    /// A read or write of a partition failed, or a checksum does not match. No more steps are
    /// returned then; the last commit is intact.
    pub fn advance(&mut self) -> Result<Option<Step>> {
        self.guarded(Self::next_step)
    }

    /// The visits of the next step, for reading triples ahead; `None` after the last step of an
    /// epoch.
    pub fn upcoming(&mut self) -> Option<&[Visit]> {
        if !self.failed && self.parts.is_empty() && !self.epoch_ended {
            self.look_ahead();
        }
        let ahead = self.parts_ahead.iter().flat_map(|(_, parts)| parts);
        self.parts.iter().chain(ahead).next().map(|part| &*part.visits)
    }

    /// The partitions of the last step: number, embeddings and state, without padding rows.
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

    /// Runs a change of the executor, unless an earlier failure has left it half changed.
    fn guarded<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.failed {
            return Err(Error::invalid("partitions: an earlier read or write has failed")
                .hint("open the table again: it goes on from the last commit"));
        }
        let result = act(self);
        self.failed = result.is_err();
        result
    }

    /// Index of the current state in its walk.
    fn index(&self) -> usize {
        self.walks.place_of(self.position.epoch, self.position.state).1
    }

    fn state(&self) -> &WalkState {
        &self.walk.states[self.index()]
    }

    /// The slot of a partition, including a slot that it is being read into or written from.
    fn slot_of(&self, partition: usize) -> Option<usize> {
        self.held.iter().position(|held| held.is_some_and(|held| held.partition == partition))
    }
}
