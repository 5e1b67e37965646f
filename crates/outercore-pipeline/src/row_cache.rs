//! Decides which rows of a group are in memory and which to read; moves no bytes.

use std::sync::Arc;

use outercore_cache::{ConstantPart, DynamicPart, Policy};
use outercore_core::CacheCounters;

use crate::Split;
use crate::group::Group;
use crate::room::RowRoom;

/// The constant and the dynamic part with one numbering of slots. Slots below `constant_slots`
/// belong to the constant part.
pub struct RowCache {
    constant: Arc<ConstantPart>,
    dynamic: DynamicPart,
    policy: Policy,
    heat: Option<Arc<[u8]>>,
    split: Split,
    counters: CacheCounters,
}

/// A group that the policy knows but whose rows are not in memory yet.
pub struct Announced {
    /// The group.
    pub group: Group,
    /// Slot of every row; slots in the constant part are final.
    slots: Vec<u32>,
    /// Indices of the rows that belong to the dynamic part.
    others: Vec<u32>,
}

/// A group with assigned slots.
pub struct Admitted {
    /// The group.
    pub group: Group,
    /// Slot of every row.
    pub slots: Vec<u32>,
    /// Rows that are not in a slot yet, ascending.
    pub missed: Vec<u64>,
    /// The slots of the missed rows.
    pub targets: Vec<u32>,
}

impl RowCache {
    /// An empty cache, with the heat of each row if known; see [`DynamicPart::know_heat`].
    pub fn new(split: Split, policy: Policy, heat: Option<Arc<[u8]>>) -> Self {
        Self {
            constant: Arc::default(),
            dynamic: dynamic_part(&split, policy, heat.as_ref()),
            policy,
            heat,
            split,
            counters: CacheCounters::default(),
        }
    }

    /// Sets the rows of the constant part: `rows`, sorted and distinct, with row `i` in slot `i`.
    pub fn fill_constant(&mut self, rows: Vec<u64>) {
        self.constant = Arc::new(ConstantPart::new(rows));
    }

    /// The limit for rows that several batches need together.
    pub fn room(&self) -> RowRoom {
        RowRoom::new(Arc::clone(&self.constant), self.split.dynamic_slots)
    }

    /// Most rows of the constant part.
    pub fn constant_slots(&self) -> u32 {
        self.split.constant_slots
    }

    /// Slots of both parts.
    pub fn slots(&self) -> usize {
        self.split.constant_slots as usize + self.split.dynamic_slots as usize
    }

    /// Whether the dynamic part has no empty slot.
    pub fn is_full(&self) -> bool {
        self.dynamic.len() == self.dynamic.capacity()
    }

    /// Those of `rows` that are in memory, with their slots. Both ascend by row.
    pub fn held(&self, rows: &[u64]) -> Vec<(u64, u32)> {
        let mut held = Vec::new();
        self.constant.split(rows, |at, slot| held.push((rows[at], slot)), &mut Vec::new());
        let in_cache = self.dynamic.entries().filter(|(row, _)| rows.binary_search(row).is_ok());
        held.extend(in_cache.map(|(row, slot)| (row, self.split.constant_slots + slot)));
        held.sort_unstable();
        held
    }

    /// Announces a group to the policy. Groups must be announced in the order in which they are
    /// fetched.
    pub fn announce(&mut self, group: Group) -> Announced {
        let mut slots = vec![0; group.rows.len()];
        let mut others = Vec::new();
        self.constant.split(&group.rows, |index, slot| slots[index] = slot, &mut others);
        let rows: Vec<u64> = others.iter().map(|&index| group.rows[index as usize]).collect();
        self.dynamic.announce(group.number, &rows);
        Announced { group, slots, others }
    }

    /// Assigns slots to the next announced group. Returns the group unchanged if there is not
    /// enough room.
    pub fn admit(&mut self, announced: Announced) -> Result<Admitted, Announced> {
        let Announced { group, mut slots, others } = announced;
        let Ok(admission) = self.dynamic.admit(group.number) else {
            return Err(Announced { group, slots, others });
        };
        let offset = self.split.constant_slots;
        for (&index, slot) in others.iter().zip(&admission.slots) {
            slots[index as usize] = offset + slot;
        }
        let (missed, targets): (Vec<u64>, Vec<u32>) = admission
            .misses
            .iter()
            .map(|&miss| others[miss as usize] as usize)
            .map(|index| (group.rows[index], slots[index]))
            .unzip();
        let misses = missed.len() as u64;
        self.counters += CacheCounters {
            accesses: group.accesses(),
            distinct: group.rows.len() as u64,
            constant_hits: (group.rows.len() - others.len()) as u64,
            dynamic_hits: others.len() as u64 - misses,
            misses,
        };
        Ok(Admitted { group, slots, missed, targets })
    }

    /// Withdraws the last announced group, which found no room; see [`DynamicPart::withdraw`].
    pub fn withdraw(&mut self) {
        self.dynamic.withdraw();
    }

    /// Releases the group, after the consumer has finished with it.
    pub fn release(&mut self, group: u64) {
        self.dynamic.release(group);
    }

    /// Empties the dynamic part: after an aborted epoch, its announced and pinned groups are
    /// invalid.
    pub fn reset(&mut self) {
        self.dynamic = dynamic_part(&self.split, self.policy, self.heat.as_ref());
    }

    /// Counters since the last call.
    pub fn take_counters(&mut self) -> CacheCounters {
        std::mem::take(&mut self.counters)
    }
}

fn dynamic_part(split: &Split, policy: Policy, heat: Option<&Arc<[u8]>>) -> DynamicPart {
    let mut dynamic = DynamicPart::new(split.dynamic_slots, policy);
    if let Some(heat) = heat {
        dynamic.know_heat(Arc::clone(heat));
    }
    dynamic
}
