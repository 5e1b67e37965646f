//! The fetching stage: brings a group's rows into slots.

use std::sync::Arc;

use outercore_core::{CacheCounters, Context, Error, ReadCounters, Result};
use outercore_io::{CostModel, Engine, FileId, RowLayout, plan_rows};

use crate::features::by_place;
use crate::group::Group;
use crate::room::RowRoom;
use crate::row_cache::{Admitted, Announced, RowCache};
use crate::row_space::{Part, RowSpace, within};
use crate::rows::RowArena;

/// Reads rows from the device into slots of the constant and the dynamic part.
pub struct Fetcher {
    engine: Engine,
    rows: RowSpace,
    /// File and layout of each part of the rows.
    files: Vec<(FileId, RowLayout)>,
    cost: CostModel,
    cache: RowCache,
    arena: Arc<RowArena>,
    /// Reads since the last call of [`Fetcher::take_counters`].
    reads: ReadCounters,
}

/// A group whose rows are all in their slots.
#[derive(Debug)]
pub struct Ready {
    /// The group.
    pub group: Group,
    /// Slot of every row of the group.
    pub slots: Vec<u32>,
}

impl Fetcher {
    /// Opens the feature files, then takes the engine and the slots of `cache`.
    ///
    /// # Errors
    /// A feature file is missing; the engine stays where it is. `Internal`: no engine.
    pub fn open(
        engine: &mut Option<Engine>,
        rows: RowSpace,
        cost: CostModel,
        cache: RowCache,
    ) -> Result<Self> {
        let gone = || Error::internal("the engine is gone");
        let files = register(engine.as_mut().ok_or_else(gone)?, &rows)?;
        let engine = engine.take().ok_or_else(gone)?;
        let arena = Arc::new(RowArena::new(cache.slots(), rows.slot_bytes()));
        let reads = ReadCounters::default();
        Ok(Self { engine, rows, files, cost, cache, arena, reads })
    }

    /// Frees the slots and returns the engine.
    pub fn into_engine(self) -> Engine {
        self.engine
    }

    /// The slots, for assembling batches.
    pub fn arena(&self) -> Arc<RowArena> {
        Arc::clone(&self.arena)
    }

    /// See [`RowCache::room`].
    pub fn room(&self) -> RowRoom {
        self.cache.room()
    }

    /// Reads the rows of the constant part, in the order of their places on the device.
    ///
    /// `rows` must be sorted and distinct, and at most as many as the plan's constant slots.
    pub fn fill_constant(&mut self, rows: Vec<u64>) -> Result<()> {
        let slots = self.cache.constant_slots();
        if rows.len() > slots as usize {
            let count = rows.len();
            return Err(Error::internal(format!("{count} constant rows for {slots} slots")));
        }
        let slots: Vec<u32> = (0..rows.len() as u32).collect();
        self.read_rows(rows.clone(), slots)?;
        self.cache.fill_constant(rows);
        Ok(())
    }

    /// Reads from other files from now on, and keeps the cached rows. Only the rows of the nodes
    /// `replaced`, ascending, differ between the files. The current engine is closed before `open`
    /// opens the new one.
    ///
    /// **Cost** Reads the replaced rows that are cached.
    ///
    /// # Errors
    /// Those of `open`; failed reads.
    pub fn follow(
        self,
        open: impl FnOnce() -> Result<Engine>,
        rows: RowSpace,
        replaced: &[u64],
    ) -> Result<Self> {
        drop(self.engine);
        let mut engine = open()?;
        let files = register(&mut engine, &rows)?;
        let mut new = Self { engine, rows, files, ..self };
        let (rows, slots) = new.cache.held(replaced).into_iter().unzip();
        new.read_rows(rows, slots)?;
        Ok(new)
    }

    /// See [`RowCache::announce`].
    pub fn announce(&mut self, group: Group) -> Announced {
        self.cache.announce(group)
    }

    /// Brings the group's rows into slots. Returns the group unchanged if there is not enough room
    /// yet.
    ///
    /// **Cost** reads exactly the rows that are not in a slot, and gaps that are cheaper to read
    /// than to skip.
    pub fn fetch(&mut self, announced: Announced) -> Result<std::result::Result<Ready, Announced>> {
        let Admitted { group, slots, missed, targets } = match self.cache.admit(announced) {
            Ok(admitted) => admitted,
            Err(announced) => return Ok(Err(announced)),
        };
        self.read_rows(missed, targets)?;
        Ok(Ok(Ready { group, slots }))
    }

    /// See [`RowCache::withdraw`].
    pub fn withdraw(&mut self) {
        self.cache.withdraw();
    }

    /// Releases the group, after the consumer has finished with it.
    pub fn release(&mut self, group: u64) {
        self.cache.release(group);
    }

    /// See [`RowCache::reset`].
    pub fn reset(&mut self) {
        self.cache.reset();
    }

    /// Counters since the last call.
    pub fn take_counters(&mut self) -> (ReadCounters, CacheCounters) {
        (std::mem::take(&mut self.reads), self.cache.take_counters())
    }

    /// The rows, for assembling batches.
    pub fn rows(&self) -> &RowSpace {
        &self.rows
    }

    /// Reads the rows of the nodes `rows`, ascending, into `slots`.
    fn read_rows(&mut self, rows: Vec<u64>, slots: Vec<u32>) -> Result<()> {
        let Self { engine, files, cost, arena, reads, .. } = self;
        for (Part { nodes, source, .. }, &(file, layout)) in self.rows.parts().iter().zip(&*files) {
            let own = within(&rows, nodes);
            if own.is_empty() {
                continue;
            }
            let mut rows: Vec<u64> =
                rows[own.clone()].iter().map(|row| row - nodes.start).collect();
            let mut slots = slots[own].to_vec();
            by_place(source.places.as_deref(), &mut rows, &mut slots);
            let plan = plan_rows(&rows, layout, cost, engine.max_read());
            let stride = layout.stride as usize;
            let counters = engine
                .read(file, &plan.reads, &mut |index, bytes| {
                    let start = plan.reads[index].offset;
                    for place in plan.rows_of[index].clone() {
                        let place = place as usize;
                        let at = (layout.base + rows[place] * layout.stride - start) as usize;
                        arena.store(slots[place], &bytes[at..at + stride]);
                    }
                    Ok(())
                })
                .with_context(|| format!("feature rows of `{}`", source.path.display()))?;
            let useful_bytes = rows.len() as u64 * layout.stride;
            *reads += ReadCounters { useful_bytes, ..counters };
        }
        Ok(())
    }
}

/// Registers the files of the rows with the engine.
fn register(engine: &mut Engine, rows: &RowSpace) -> Result<Vec<(FileId, RowLayout)>> {
    let files = rows.parts().iter().map(|Part { source, .. }| {
        let file = engine.register(&source.path)?;
        Ok((file, source.layout(engine.file_len(file))))
    });
    files.collect()
}
