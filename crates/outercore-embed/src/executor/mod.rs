//! Follows an order of partitions: swaps them in and out while the caller trains.
//!
//! The caller asks for one step after the other and changes the rows of the partitions that the
//! step names. A partition that is written back or read lies in memory that a thread owns
//! meanwhile; it cannot be reached from here, so no read and no write of a slot in flight can
//! happen. Every so often the caller commits: the partitions, what the caller keeps in memory
//! (relations and their optimiser) and the position become durable together.

mod counters;
mod memory;
mod passes;
mod states;
mod step;
mod worker;

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use outercore_core::{Error, ErrorKind, Result};
use outercore_io::{Disk, Engine, EngineConfig, FileLock};

use crate::journal::{self, Journal, PartitionRecord, Position, ResidentRecord};
use crate::layout::TableLayout;
use crate::order::{Order, State};
use crate::partition::{CopyIndex, Fill, PartitionFile, Slot, SlotMemory, Sums};
use crate::walk::{EpochVisits, WalkConfig, Walks};

pub use counters::ExecutorCounters;
pub use memory::{ExecutorMemory, plan_memory};
pub use passes::SlotViews;
use step::Part;
pub(crate) use step::pools;
pub use step::{Resident, Step};
use worker::{Answer, Job, Load, Store, Swapped, Worker};

/// Trains a table larger than memory, a few partitions at a time.
///
/// An epoch is one walk through the order, or several ([`Walks`]). Each begins with what the one
/// before left in memory: odd ones go backwards, unless partitions are renamed.
///
/// **Memory**: the order's slots times [`TableLayout::partition_bytes`], and the engine's staging.
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
    walk: Order,
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
    /// Partitions of the last step handed out.
    current: Vec<Resident>,
    /// Whether the swap to the next state has begun.
    swap_begun: bool,
    in_flight: Option<Flight>,
    /// What lay in the slots before a pass over the whole table emptied them.
    brings_back: Option<Vec<Option<usize>>>,
    /// An epoch has ended and the caller has not been told.
    epoch_ended: bool,
    failed: bool,
    resident: Vec<u8>,
    counters: ExecutorCounters,
    worker: Worker,
    /// Let go last, when the worker has ended.
    _lock: FileLock,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    partition: usize,
    /// Newer than both copies on disk.
    changed: bool,
}

/// The two copies of a partition.
#[derive(Clone, Debug)]
struct Copies {
    /// What the journal names.
    committed: PartitionRecord,
    /// What is to be read.
    latest: CopyIndex,
    sums: Sums,
    /// Whether `latest` was written since the commit.
    newer: bool,
}

/// A slot that the worker has.
#[derive(Clone, Copy, Debug)]
struct Flight {
    slot: usize,
    stores: Option<usize>,
    loads: Option<usize>,
}

impl Executor {
    /// Creates a table in `directory`, with its partitions as `fill` makes them: it is given a
    /// partition's number, embeddings and state, all zeros. `resident` is what the caller keeps in
    /// memory (relations and their optimiser), of which nothing is known here.
    ///
    /// A creation that was stopped leaves nothing that can be opened, and can be done again.
    ///
    /// **Cost**: writes every partition once; the file has room for each twice.
    ///
    /// # Errors
    /// `Invalid`: there is a table, or the order has another number of partitions. Those of `fill`
    /// and of the disk.
    pub fn create(
        disk: Arc<dyn Disk>,
        directory: &Path,
        layout: &TableLayout,
        order: &Order,
        resident: &[u8],
        fill: Fill<'_>,
    ) -> Result<()> {
        let walks = WalkConfig::default();
        Self::create_with(disk, directory, layout, order, walks, resident, &mut || Ok(()), fill)
    }

    /// The same for an epoch of several walks, and with something beside the table: `prepare` is
    /// called when the directory is held and known to have no table, before anything of the table
    /// is written.
    ///
    /// # Errors
    /// As [`Executor::create`]; those of `prepare`.
    #[allow(clippy::too_many_arguments, reason = "a table is made of that much")]
    pub fn create_with(
        disk: Arc<dyn Disk>,
        directory: &Path,
        layout: &TableLayout,
        order: &Order,
        walks: WalkConfig,
        resident: &[u8],
        prepare: &mut dyn FnMut() -> Result<()>,
        fill: Fill<'_>,
    ) -> Result<()> {
        let (found, expected) = (order.partitions, layout.partitioning().partitions());
        if found != expected {
            return Err(Error::invalid(format!(
                "an order of {found} partitions for a table of {expected}"
            )));
        }
        crate::order::check(order)?;
        walks.validate()?;
        let slots = order.slots.min(order.partitions);
        if layout.slot_rows().saturating_mul(slots as u64) > u64::from(u32::MAX) {
            return Err(Error::invalid(format!(
                "{slots} slots of {} rows: expected fewer than 2^32 rows in memory",
                layout.slot_rows()
            ))
            .hint("choose more partitions"));
        }
        disk.create_dir_all(directory)?;
        if let Some(parent) = directory.parent().filter(|parent| parent.is_dir()) {
            disk.sync_dir(parent)?;
        }
        let _lock = lock(directory)?;
        if Journal::exists(directory) {
            return Err(Error::invalid(format!("`{}` holds a table", directory.display()))
                .hint("go on with it, or choose another directory"));
        }
        prepare()?;
        let (_memory, mut memory) = SlotMemory::new(layout, 1)?;
        let sums = PartitionFile::create(&*disk, directory, layout, &mut memory[0], fill)?;
        let checksum = journal::save_order(&*disk, directory, order)?;
        let first = Journal::first(*layout, checksum, walks, slots, sums, resident);
        first.commit(&*disk, directory, resident)
    }

    /// Opens a table at its last commit. `engine` says how to read.
    ///
    /// **Cost**: reserves the memory; reads nothing until the first step is asked for.
    ///
    /// # Errors
    /// `NotFound`: no table. `Invalid`: another process trains it. `Version`, `Corrupt`: not one
    /// that can be read.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, engine: EngineConfig) -> Result<Self> {
        let lock = lock(directory)?;
        let journal = Journal::load(directory)?;
        // The journal may have been replaced by a process that was killed before it could make the
        // new name durable; what the old one names is about to be overwritten.
        disk.sync_dir(directory)?;
        let resident = journal.load_resident(directory)?;
        let order = journal::load_order(directory, &journal)?;
        let layout = journal.layout;
        let mut walks = Walks::new(order.clone(), journal.walks)?;
        let fits = order.partitions == journal.partitions.len()
            && journal.slots.len() == order.slots.min(order.partitions)
            && journal.position.state < walks.states();
        if !fits {
            return Err(Error::corrupt(format!(
                "journal of partitions in `{}`: does not fit its order of partitions",
                directory.display()
            )));
        }
        let Position { epoch, state } = journal.position;
        let walk = walks.walk(walks.place_of(epoch, state).0).clone();
        let (memory, slots) = SlotMemory::new(&layout, journal.slots.len())?;
        let file = PartitionFile::open(&*disk, directory, &layout, Engine::open(engine)?)?;
        let worker = Worker::start(file, layout.partition_bytes().0)?;
        let copies = journal.partitions.into_iter().map(|committed| Copies {
            latest: committed.copy,
            sums: committed.sums.clone(),
            newer: false,
            committed,
        });
        let mut executor = Self {
            disk,
            directory: directory.to_owned(),
            layout,
            walks,
            walk,
            visits: None,
            order_checksum: journal.order,
            memory,
            held: vec![None; slots.len()],
            slots: slots.into_iter().map(Some).collect(),
            copies: copies.collect(),
            generation: journal.generation,
            position: journal.position,
            entered: false,
            parts: VecDeque::new(),
            current: Vec::new(),
            swap_begun: false,
            in_flight: None,
            brings_back: None,
            epoch_ended: false,
            failed: false,
            resident,
            counters: ExecutorCounters::default(),
            worker,
            _lock: lock,
        };
        executor.load_again(&journal.slots)?;
        Ok(executor)
    }

    /// Shape and order of the table in `directory`, and how its epochs walk through that, without
    /// opening it.
    ///
    /// # Errors
    /// As [`Executor::open`].
    pub fn describe(directory: &Path) -> Result<(TableLayout, Walks)> {
        let journal = Journal::load(directory)?;
        let order = journal::load_order(directory, &journal)?;
        Ok((journal.layout, Walks::new(order, journal.walks)?))
    }

    /// What the caller kept in memory, as committed last.
    pub fn resident_state(&self) -> &[u8] {
        &self.resident
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

    /// Makes all that was trained durable, with `resident`: what the caller keeps in memory.
    ///
    /// Allowed before the first step, after a step that ends its state, and at the end of an epoch.
    /// A run that is opened from here goes on exactly.
    ///
    /// **Cost**: waits for the swap under way; writes the partitions in memory that have changed.
    ///
    /// # Errors
    /// `Invalid`: in the midst of a state. As [`Executor::advance`]; if the disk fails, it is either
    /// this commit or the last one that counts.
    pub fn commit(&mut self, resident: &[u8]) -> Result<()> {
        if !self.parts.is_empty() {
            return Err(Error::invalid(format!(
                "commit in the midst of state {} of epoch {}",
                self.position.state, self.position.epoch
            ))
            .hint("commit after a step that ends its state"));
        }
        self.guarded(|executor| executor.make_durable(resident))
    }

    /// Embeddings of a partition from `first_row` on, `rows` of them: from memory where they are,
    /// else from disk.
    ///
    /// For use between epochs: rows of the step under way are as they are by now.
    ///
    /// **Cost**: one sequential read where the partition is not in memory. Only a whole partition,
    /// all [`TableLayout::slot_rows`] of it, can be compared with its checksum.
    ///
    /// # Errors
    /// `Invalid`: no such rows. As [`Executor::advance`].
    pub fn read_rows(&mut self, partition: usize, first_row: u64, rows: u64) -> Result<Vec<f32>> {
        let all = self.layout.slot_rows();
        let known = partition < self.copies.len();
        if !known || first_row.checked_add(rows).is_none_or(|end| end > all) {
            return Err(Error::invalid(format!(
                "{rows} rows of partition {partition} from row {first_row}: expected up to {all} \
                 rows of {} partitions",
                self.copies.len()
            )));
        }
        self.guarded(|executor| executor.rows_of(partition, first_row, rows))
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

    /// Hands a slot to the worker: to write back what has changed in it, and to read `load`.
    fn begin(&mut self, slot: usize, load: Option<usize>) -> Result<()> {
        let missing = || Error::internal(format!("slot {slot} is in flight"));
        let stores = self.held[slot].filter(|held| held.changed).map(|held| held.partition);
        let memory = self.slots[slot].take().ok_or_else(missing)?;
        let store = stores
            .map(|partition| Store { partition, copy: 1 - self.copies[partition].committed.copy });
        let read = load.map(|partition| self.read_of(partition));
        self.in_flight = Some(Flight { slot, stores, loads: load });
        self.worker.ask(Job::Swap { slot: memory, store, load: read })
    }

    /// Waits for the slot in flight, if there is one.
    fn finish(&mut self) -> Result<()> {
        let Some(Flight { slot, stores, loads }) = self.in_flight.take() else {
            return Ok(());
        };
        let start = Instant::now();
        let Answer::Swap(Swapped {
            slot: memory,
            stored,
            result,
            busy_s,
            bytes_read,
            bytes_written,
        }) = self.worker.answer()?
        else {
            return Err(Error::internal("rows instead of a slot"));
        };
        self.slots[slot] = Some(memory);
        self.counters.waited_s += start.elapsed().as_secs_f64();
        self.counters.swap_s += busy_s;
        self.counters.bytes_read += bytes_read;
        self.counters.bytes_written += bytes_written;
        result?;
        if let (Some(partition), Some(sums)) = (stores, stored) {
            let copies = &mut self.copies[partition];
            copies.latest = 1 - copies.committed.copy;
            copies.sums = sums;
            copies.newer = true;
            self.counters.stores += 1;
            self.held[slot] = Some(Held { partition, changed: false });
        }
        if let Some(partition) = loads {
            self.counters.loads += 1;
            self.held[slot] = Some(Held { partition, changed: false });
        }
        Ok(())
    }

    fn make_durable(&mut self, resident: &[u8]) -> Result<()> {
        if self.entered {
            self.leave()?;
        }
        let (start, before) = (Instant::now(), self.counters);
        for slot in 0..self.slots.len() {
            if self.held[slot].is_some_and(|held| held.changed) {
                self.begin(slot, None)?;
                self.finish()?;
            }
        }
        let generation = self.generation + 1;
        let record = |copies: &Copies| {
            if copies.newer {
                PartitionRecord { copy: copies.latest, generation, sums: copies.sums.clone() }
            } else {
                copies.committed.clone()
            }
        };
        let partitions: Vec<PartitionRecord> = self.copies.iter().map(record).collect();
        let journal = Journal {
            version: journal::VERSION,
            generation,
            layout: self.layout,
            order: self.order_checksum.clone(),
            walks: self.walks.config(),
            position: self.position,
            slots: match &self.brings_back {
                Some(partitions) => partitions.clone(),
                None => self.held.iter().map(|held| held.map(|held| held.partition)).collect(),
            },
            partitions,
            resident: ResidentRecord::of(resident),
        };
        journal.commit(&*self.disk, &self.directory, resident)?;
        self.generation = generation;
        for (copies, committed) in self.copies.iter_mut().zip(journal.partitions) {
            *copies = Copies {
                latest: committed.copy,
                sums: committed.sums.clone(),
                newer: false,
                committed,
            };
        }
        self.resident = resident.to_vec();
        self.counters.commits += 1;
        self.counters.commit_s += start.elapsed().as_secs_f64();
        // What was written for the commit hides behind nothing and is counted as such.
        (self.counters.swap_s, self.counters.waited_s) = (before.swap_s, before.waited_s);
        Ok(())
    }

    /// Brings back what lay in memory at the last commit, each partition into its slot.
    fn load_again(&mut self, slots: &[Option<usize>]) -> Result<()> {
        let resident = self.state().resident.clone();
        for (slot, partition) in slots.iter().enumerate() {
            if let Some(partition) = partition.filter(|partition| resident.contains(partition)) {
                self.begin(slot, Some(partition))?;
                self.finish()?;
            }
        }
        Ok(())
    }

    fn rows_of(&mut self, partition: usize, first_row: u64, rows: u64) -> Result<Vec<f32>> {
        self.finish()?;
        let dim = self.layout.dim() as u64;
        let (start, len) = ((first_row * dim) as usize, (rows * dim) as usize);
        let slot = self.slot_of(partition).and_then(|slot| self.slots[slot].as_ref());
        if let Some(slot) = slot {
            return Ok(slot.embeddings()[start..start + len].to_vec());
        }
        let load = self.read_of(partition);
        self.worker.ask(Job::Rows { load, first_row, rows: vec![0.0; len] })?;
        match self.worker.answer()? {
            Answer::Rows(rows) => rows,
            Answer::Swap(_) => Err(Error::internal("a slot instead of rows")),
        }
    }

    fn read_of(&self, partition: usize) -> Load {
        let Copies { latest, sums, .. } = &self.copies[partition];
        Load { partition, copy: *latest, sums: sums.clone() }
    }

    /// Number of the position's state in its walk.
    fn index(&self) -> usize {
        self.walks.place_of(self.position.epoch, self.position.state).1
    }

    fn state(&self) -> &State {
        &self.walk.states[self.index()]
    }

    /// The slot that holds a partition, or that it is being read into or written from.
    fn slot_of(&self, partition: usize) -> Option<usize> {
        self.held.iter().position(|held| held.is_some_and(|held| held.partition == partition))
    }
}

/// Keeps other processes from the table in `directory`.
fn lock(directory: &Path) -> Result<FileLock> {
    if !directory.is_dir() {
        let text = format!("partitions in `{}`: no such directory", directory.display());
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    FileLock::acquire(&directory.join("lock"))
}
