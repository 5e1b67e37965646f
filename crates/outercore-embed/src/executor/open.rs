//! Creates a table, and opens it at its last commit.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use outercore_core::{Error, ErrorKind, Result};
use outercore_io::{Disk, Engine, EngineConfig, FileLock};

use super::{Copies, Executor, ExecutorCounters, Worker};
use crate::journal::{self, Journal, Position};
use crate::layout::TableLayout;
use crate::order::Order;
use crate::partition::{Fill, PartitionFile, SlotMemory};
use crate::walk::{WalkConfig, Walks};

impl Executor {
    /// Creates a table in `directory`. `fill` receives the number, the embeddings and the state of
    /// each partition, all zeros, and sets their initial values. `resident` is the caller's state
    /// in memory (relations and their optimiser), stored as bytes.
    ///
    /// An interrupted creation leaves nothing that can be opened, and can be repeated.
    ///
    /// **Cost**: writes every partition once; the file has room for two copies of each.
    ///
    /// # Errors
    /// `Invalid`: a table exists, or the order has another number of partitions. Errors of `fill`
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

    /// As [`Executor::create`], for an epoch of several walks and with additional files: `prepare`
    /// is called when the directory is locked and known to have no table, before any file of the
    /// table is written.
    ///
    /// # Errors
    /// As [`Executor::create`]; errors of `prepare`.
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
        walks.validate()?;
        let (found, expected) = (walks.partitions(order), layout.partitioning().partitions());
        if found != expected {
            return Err(Error::invalid(format!(
                "an order of {found} partitions for a table of {expected}"
            )));
        }
        crate::order::check(order)?;
        let slots = walks.slots(order);
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

    /// Opens a table at its last commit; `engine` configures the reads.
    ///
    /// **Cost**: reserves the memory; reads nothing until the first step is requested.
    ///
    /// # Errors
    /// `NotFound`: no table. `Invalid`: another process trains it. `Version`, `Corrupt`: it cannot
    /// be read.
    pub fn open(disk: Arc<dyn Disk>, directory: &Path, engine: EngineConfig) -> Result<Self> {
        let lock = lock(directory)?;
        let journal = Journal::load(directory)?;
        // A killed process may have replaced the journal without making the new name durable. Sync
        // it now, because training will overwrite the partitions that the old journal names.
        disk.sync_dir(directory)?;
        journal.resident.load(directory, journal.generation)?;
        let order = journal::load_order(directory, &journal)?;
        let layout = journal.layout;
        let mut walks = Walks::new(order, journal.walks)?;
        let fits = walks.partitions() == journal.partitions.len()
            && journal.slots.len() == walks.slots()
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
        let copies = journal.partitions.into_iter().map(Copies::of);
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
            parts_ahead: VecDeque::new(),
            current: Vec::new(),
            swap_begun: false,
            in_flight: Vec::new(),
            brings_back: None,
            epoch_ended: false,
            failed: false,
            resident: journal.resident,
            counters: ExecutorCounters::default(),
            worker,
            _lock: lock,
        };
        executor.load_again(&journal.slots)?;
        Ok(executor)
    }

    /// Shape and order of the table in `directory` and its walks, without opening it.
    ///
    /// # Errors
    /// As [`Executor::open`].
    pub fn describe(directory: &Path) -> Result<(TableLayout, Walks)> {
        let journal = Journal::load(directory)?;
        let order = journal::load_order(directory, &journal)?;
        Ok((journal.layout, Walks::new(order, journal.walks)?))
    }
}

/// Locks the table in `directory` against other processes.
fn lock(directory: &Path) -> Result<FileLock> {
    if !directory.is_dir() {
        let text = format!("partitions in `{}`: no such directory", directory.display());
        return Err(Error::new(ErrorKind::NotFound, text));
    }
    FileLock::acquire(&directory.join("lock"))
}
