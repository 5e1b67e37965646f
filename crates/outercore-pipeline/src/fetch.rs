//! The second stage: from a group's rows to slots that hold them.

use std::sync::Arc;

use outercore_cache::{ConstantPart, DynamicPart, Policy};
use outercore_core::{CacheCounters, Context, Error, ReadCounters, Result};
use outercore_io::{CostModel, Engine, FileId, RowLayout, plan_rows};

use crate::features::by_place;
use crate::group::Group;
use crate::row_space::{Part, RowSpace, within};
use crate::rows::RowArena;
use crate::{MemoryPlan, Split};

/// Fills row slots from the device, through the constant and the dynamic part.
pub struct Fetcher {
    engine: Engine,
    rows: RowSpace,
    /// Of each part of the rows.
    files: Vec<(FileId, RowLayout)>,
    cost: CostModel,
    constant: ConstantPart,
    dynamic: DynamicPart,
    policy: Policy,
    heat: Option<Arc<[u8]>>,
    split: Split,
    /// Slots `0..constant_slots` belong to the constant part, the others to the dynamic one.
    arena: Arc<RowArena>,
    /// Reads since the last call of [`Fetcher::take_counters`].
    reads: ReadCounters,
    cache: CacheCounters,
}

/// A group whose look-ahead is known to the policy and whose rows are not yet there.
pub struct Announced {
    /// The group.
    pub group: Group,
    /// Slot of every row; those of the constant part are final.
    slots: Vec<u32>,
    /// Indices of the rows that the dynamic part is responsible for.
    others: Vec<u32>,
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
    /// Opens the feature files and takes the slots that the plan grants.
    pub fn open(
        mut engine: Engine,
        rows: RowSpace,
        cost: CostModel,
        policy: Policy,
        plan: &MemoryPlan,
    ) -> Result<Self> {
        let files = register(&mut engine, &rows)?;
        let split = plan.split;
        let slots = split.constant_slots as usize + split.dynamic_slots as usize;
        let arena = Arc::new(RowArena::new(slots, rows.slot_bytes()));
        Ok(Self {
            engine,
            rows,
            files,
            cost,
            constant: ConstantPart::new(Vec::new()),
            dynamic: DynamicPart::new(split.dynamic_slots, policy),
            policy,
            heat: None,
            split,
            arena,
            reads: ReadCounters::default(),
            cache: CacheCounters::default(),
        })
    }

    /// The slots, to assemble batches.
    pub fn arena(&self) -> Arc<RowArena> {
        Arc::clone(&self.arena)
    }

    /// Reads the rows of the constant part, in order of their place on the device.
    ///
    /// `rows` are sorted, distinct, and no more than the plan's constant slots.
    pub fn fill_constant(&mut self, rows: Vec<u64>) -> Result<()> {
        if rows.len() > self.split.constant_slots as usize {
            return Err(Error::internal(format!(
                "{} constant rows for {} slots",
                rows.len(),
                self.split.constant_slots
            )));
        }
        let slots: Vec<u32> = (0..rows.len() as u32).collect();
        self.read_rows(rows.clone(), slots)?;
        self.constant = ConstantPart::new(rows);
        Ok(())
    }

    /// Tells the dynamic part the heat of each row; to be called while it is empty.
    pub fn know_heat(&mut self, heat: Option<Arc<[u8]>>) {
        self.heat = heat;
        self.reset();
    }

    /// Reads rows from another file from now on, and keeps the cached rows. Only the rows of the nodes
    /// `replaced`, ascending, differ between the files. The current engine is closed before `open`
    /// opens another one.
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
        let mut held = Vec::new();
        new.constant.split(replaced, |at, slot| held.push((replaced[at], slot)), &mut Vec::new());
        let in_cache = new.dynamic.entries().filter(|(row, _)| replaced.binary_search(row).is_ok());
        held.extend(in_cache.map(|(row, slot)| (row, new.split.constant_slots + slot)));
        held.sort_unstable();
        let (rows, slots) = held.into_iter().unzip();
        new.read_rows(rows, slots)?;
        Ok(new)
    }

    /// Tells the policy what is coming; groups are announced in the order in which they are fetched.
    pub fn announce(&mut self, group: Group) -> Announced {
        let mut slots = vec![0; group.rows.len()];
        let mut others = Vec::new();
        self.constant.split(&group.rows, |index, slot| slots[index] = slot, &mut others);
        let rows: Vec<u64> = others.iter().map(|&index| group.rows[index as usize]).collect();
        self.dynamic.announce(group.number, &rows);
        Announced { group, slots, others }
    }

    /// Brings the group's rows into slots; gives it back unchanged if there is no room yet.
    ///
    /// **Cost** reads exactly the rows that no slot holds, with the gaps that are cheaper to read
    /// than to skip.
    pub fn fetch(&mut self, announced: Announced) -> Result<std::result::Result<Ready, Announced>> {
        let Announced { group, mut slots, others } = announced;
        let Ok(admission) = self.dynamic.admit(group.number) else {
            return Ok(Err(Announced { group, slots, others }));
        };
        let offset = self.split.constant_slots;
        for (&index, slot) in others.iter().zip(&admission.slots) {
            slots[index as usize] = offset + slot;
        }
        let (rows, targets): (Vec<u64>, Vec<u32>) = admission
            .misses
            .iter()
            .map(|&miss| others[miss as usize] as usize)
            .map(|index| (group.rows[index], slots[index]))
            .unzip();
        let misses = rows.len() as u64;
        self.read_rows(rows, targets)?;
        self.cache += CacheCounters {
            accesses: group.accesses(),
            distinct: group.rows.len() as u64,
            constant_hits: (group.rows.len() - others.len()) as u64,
            dynamic_hits: others.len() as u64 - misses,
            misses,
        };
        Ok(Ok(Ready { group, slots }))
    }

    /// Takes back a group that was announced last and found no room; see
    /// [`DynamicPart::withdraw`].
    pub fn withdraw(&mut self) {
        self.dynamic.withdraw();
    }

    /// The group has been consumed.
    pub fn release(&mut self, group: u64) {
        self.dynamic.release(group);
    }

    /// Forgets the dynamic part: what was announced and pinned is void after an aborted epoch.
    pub fn reset(&mut self) {
        self.dynamic = DynamicPart::new(self.split.dynamic_slots, self.policy);
        if let Some(heat) = &self.heat {
            self.dynamic.know_heat(Arc::clone(heat));
        }
    }

    /// Counters since the last call.
    pub fn take_counters(&mut self) -> (ReadCounters, CacheCounters) {
        (std::mem::take(&mut self.reads), std::mem::take(&mut self.cache))
    }

    /// The rows, to assemble batches.
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

/// The files of the rows, as the engine knows them.
fn register(engine: &mut Engine, rows: &RowSpace) -> Result<Vec<(FileId, RowLayout)>> {
    let files = rows.parts().iter().map(|Part { source, .. }| {
        let file = engine.register(&source.path)?;
        Ok((file, source.layout(engine.file_len(file))))
    });
    files.collect()
}
