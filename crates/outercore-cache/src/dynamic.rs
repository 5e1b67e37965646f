use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use crate::Policy;
use crate::merge::intersect;
use crate::select::Smallest;

/// No announced group uses the row again.
const NEVER: u32 = u32::MAX;

/// A slot that is not assigned yet.
const UNDECIDED: u32 = u32::MAX;

/// The dynamic part of the cache: `capacity` slots. Each decision covers a whole group of batches
/// and uses the announced groups ahead.
///
/// A group passes through [`announce`](Self::announce), [`admit`](Self::admit) and
/// [`release`](Self::release). Between `admit` and `release` its rows are pinned.
///
/// **Cost** 21 bytes per entry (16 for LRU) and 12 per announced row (8 for LRU); `admit` walks the
/// index.
///
/// # Example
/// ```
/// use outercore_cache::{DynamicPart, Policy};
/// let mut part = DynamicPart::new(2, Policy::Window);
/// part.announce(0, &[5, 8]);
/// part.announce(1, &[3]);
/// part.announce(2, &[5]);
/// assert_eq!(part.admit(0).unwrap().misses, [0, 1]);
/// part.release(0);
/// // Row 8 makes room: row 5 will be used again.
/// assert_eq!(part.admit(1).unwrap().misses, [0]);
/// part.release(1);
/// assert!(part.admit(2).unwrap().misses.is_empty());
/// ```
#[derive(Debug)]
pub struct DynamicPart {
    capacity: u32,
    policy: Policy,
    /// How often batches need each row; see [`DynamicPart::know_heat`].
    heat: Option<Arc<[u8]>>,
    index: Index,
    /// Groups announced but not admitted.
    pending: VecDeque<Pending>,
    /// Groups admitted; the first one is not released.
    active: VecDeque<Active>,
    /// Groups announced so far: the next sequence number. The index stores these numbers instead of
    /// the caller's group numbers, so four bytes suffice.
    announced: u32,
    /// Groups admitted so far.
    admitted: u32,
}

/// The rows held, ascending, as a structure of arrays, so each operation reads only the arrays it
/// needs. Slots `0..rows.len()` are in use.
#[derive(Debug, Default)]
struct Index {
    rows: Vec<u64>,
    slots: Vec<u32>,
    /// The last group that used the row.
    last: Vec<u32>,
    /// The next announced group that uses the row, or [`NEVER`]. Empty under LRU.
    next: Vec<u32>,
    /// Rank among the rows that no announced group uses: the heat, or the uses since the row was
    /// read. Empty under LRU.
    warmth: Vec<u8>,
}

#[derive(Debug)]
struct Pending {
    group: u64,
    rows: Vec<u64>,
    next: Vec<u32>,
}

#[derive(Debug)]
struct Active {
    group: u64,
    /// Number of rows that no later group uses.
    pinned: u32,
    released: bool,
}

/// The slots and misses of an admitted group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Slot of every row of the group.
    pub slots: Vec<u32>,
    /// Indices of the rows to read into their slots, ascending.
    pub misses: Vec<u32>,
}

/// Error: the group does not fit in addition to the pinned rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// Slots that the group's misses need.
    pub needed: u32,
    /// Available slots: empty, or with a row that is not pinned.
    pub free: u32,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cache slots needed, {} neither pinned nor wanted", self.needed, self.free)
    }
}

impl std::error::Error for NoRoom {}

impl DynamicPart {
    /// Creates an empty part of `capacity` slots.
    pub fn new(capacity: u32, policy: Policy) -> Self {
        let entries = capacity as usize;
        let ahead = if policy == Policy::Window { entries } else { 0 };
        let index = Index {
            rows: Vec::with_capacity(entries),
            slots: Vec::with_capacity(entries),
            last: Vec::with_capacity(entries),
            next: Vec::with_capacity(ahead),
            warmth: Vec::with_capacity(ahead),
        };
        Self {
            capacity,
            policy,
            heat: None,
            index,
            pending: VecDeque::new(),
            active: VecDeque::new(),
            announced: 0,
            admitted: 0,
        }
    }

    /// Gives an empty part `heat[row]`, which grows with the number of batches that need the row.
    /// Under [`Policy::Window`], heat then ranks the rows that no announced group uses, instead of
    /// their uses so far.
    pub fn know_heat(&mut self, heat: Arc<[u8]>) {
        debug_assert!(self.index.rows.is_empty(), "the rows held have no heat");
        self.heat = Some(heat);
    }

    /// Announces the rows (sorted, unique) of a future group. Groups must be announced in the order
    /// in which they will be admitted.
    pub fn announce(&mut self, group: u64, rows: &[u64]) {
        debug_assert!(rows.is_sorted_by(|a, b| a < b), "rows of group {group} are not sorted");
        let sequence = self.announced;
        self.announced += 1;
        let mut next = Vec::new();
        if self.policy == Policy::Window {
            // Only the last known use of a row points to this group: each earlier use already has
            // its next use.
            let first_known_use = |next: &mut u32| {
                if *next == NEVER {
                    *next = sequence;
                }
            };
            for earlier in &mut self.pending {
                intersect(&earlier.rows, rows, |i, _| first_known_use(&mut earlier.next[i]));
            }
            let index = &mut self.index;
            intersect(&index.rows, rows, |i, _| first_known_use(&mut index.next[i]));
            next = vec![NEVER; rows.len()];
        }
        self.pending.push_back(Pending { group, rows: rows.to_vec(), next });
    }

    /// Withdraws the last announced group, which has not been admitted and never will be.
    ///
    /// Only valid under [`Policy::Lru`], which stores no future uses.
    pub fn withdraw(&mut self) {
        debug_assert!(self.policy == Policy::Lru, "the window policy has noted its rows");
        if self.pending.pop_back().is_some() {
            self.announced -= 1;
        }
    }

    /// Assigns slots to the next announced group and pins them.
    ///
    /// # Errors
    /// [`NoRoom`], without any change, if the pinned rows and the group's rows together exceed the
    /// capacity.
    ///
    /// # Panics
    /// If `group` is not the next one announced.
    pub fn admit(&mut self, group: u64) -> Result<Admission, NoRoom> {
        let next_group = self.pending.front().map(|pending| pending.group);
        assert_eq!(Some(group), next_group, "groups are admitted in the order announced");
        let pending = &self.pending[0];
        let pinned_from = self.pinned_from();

        let mut slots = vec![UNDECIDED; pending.rows.len()];
        let mut held_at = Vec::new();
        let mut hits_pinned = 0u32;
        intersect(&pending.rows, &self.index.rows, |i, at| {
            slots[i] = self.index.slots[at];
            hits_pinned += u32::from(self.index.last[at] >= pinned_from);
            held_at.push((i as u32, at as u32));
        });
        let needed = (slots.len() - held_at.len()) as u32;
        let free = self.capacity - self.pinned() - (held_at.len() as u32 - hits_pinned);
        if needed > free {
            return Err(NoRoom { needed, free });
        }

        let pending = self.pending.pop_front().expect("checked above");
        let sequence = self.admitted;
        self.admitted += 1;
        for (i, at) in held_at {
            let (i, at) = (i as usize, at as usize);
            let last = std::mem::replace(&mut self.index.last[at], sequence);
            if last >= pinned_from {
                self.active[(last - pinned_from) as usize].pinned -= 1;
            }
            if self.policy == Policy::Window {
                self.index.next[at] = pending.next[i];
                if self.heat.is_none() {
                    self.index.warmth[at] = self.index.warmth[at].saturating_add(1);
                }
            }
        }
        self.active.push_back(Active { group, pinned: slots.len() as u32, released: false });

        let used = self.index.rows.len() as u32;
        let empty = self.capacity - used;
        let freed = self.index.evict(needed.saturating_sub(empty) as usize, pinned_from);
        let mut misses = Vec::with_capacity(needed as usize);
        let mut room = freed.into_iter().chain(used..);
        for (i, slot) in slots.iter_mut().enumerate() {
            if *slot == UNDECIDED {
                *slot = room.next().expect("slots were counted above");
                misses.push(i as u32);
            }
        }
        self.index.insert(&pending, &slots, &misses, sequence, self.heat.as_deref());
        Ok(Admission { slots, misses })
    }

    /// Releases a group: its rows may be evicted, unless another group pins them. Takes effect once
    /// all groups admitted earlier have been released too.
    ///
    /// # Panics
    /// If `group` has not been admitted, or was released before.
    pub fn release(&mut self, group: u64) {
        let released =
            self.active.iter_mut().find(|active| active.group == group && !active.released);
        released.unwrap_or_else(|| panic!("group {group} is not admitted")).released = true;
        while self.active.front().is_some_and(|active| active.released) {
            self.active.pop_front();
        }
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Number of rows that must stay because an unreleased group uses them.
    pub fn pinned(&self) -> u32 {
        self.active.iter().map(|active| active.pinned).sum()
    }

    /// Number of rows held, pinned or not.
    pub fn len(&self) -> u32 {
        self.index.rows.len() as u32
    }

    /// Whether the part holds no rows.
    pub fn is_empty(&self) -> bool {
        self.index.rows.is_empty()
    }

    /// The rows held, ascending, with their slots.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.index.rows.iter().copied().zip(self.index.slots.iter().copied())
    }

    /// Number of groups announced but not admitted.
    pub fn announced(&self) -> usize {
        self.pending.len()
    }

    /// Bytes of memory of the index and the announced groups.
    pub fn heap_bytes(&self) -> usize {
        let index = self.index.rows.capacity() * size_of::<u64>()
            + (self.index.slots.capacity()
                + self.index.last.capacity()
                + self.index.next.capacity())
                * size_of::<u32>()
            + self.index.warmth.capacity();
        let pending = self.pending.iter().map(|pending| {
            pending.rows.capacity() * size_of::<u64>() + pending.next.capacity() * size_of::<u32>()
        });
        index + pending.sum::<usize>()
    }

    /// The oldest group that still pins its rows. An entry is pinned if this group or a later one
    /// used it.
    fn pinned_from(&self) -> u32 {
        self.admitted - self.active.len() as u32
    }
}

impl Index {
    /// The key for evictions: smaller keys are evicted first.
    fn eviction_key(&self, at: usize) -> u64 {
        let last = u64::from(self.last[at]);
        match self.next.get(at) {
            None => last,
            Some(&NEVER) => u64::from(self.warmth[at]) << 32 | last,
            // Rows with the same next use are equal: each choice costs the same number of reads.
            Some(&next) => 1 << 63 | u64::from(!next),
        }
    }

    /// Removes `count` entries whose last use is before `pinned_from`, and returns their slots.
    fn evict(&mut self, count: usize, pinned_from: u32) -> Vec<u32> {
        if count == 0 {
            return Vec::new();
        }
        let len = self.rows.len();
        let mut victims = Smallest::of(count, || {
            (0..len).filter(|&at| self.last[at] < pinned_from).map(|at| self.eviction_key(at))
        });
        let mut freed = Vec::with_capacity(count);
        let mut kept = 0;
        for at in 0..len {
            if self.last[at] < pinned_from && victims.picks(self.eviction_key(at)) {
                freed.push(self.slots[at]);
                continue;
            }
            self.rows[kept] = self.rows[at];
            self.slots[kept] = self.slots[at];
            self.last[kept] = self.last[at];
            if !self.next.is_empty() {
                self.next[kept] = self.next[at];
                self.warmth[kept] = self.warmth[at];
            }
            kept += 1;
        }
        debug_assert_eq!(freed.len(), count);
        self.resize(kept);
        freed
    }

    /// Merges the misses of a group into the index, in place and from the back.
    fn insert(
        &mut self,
        group: &Pending,
        slots: &[u32],
        misses: &[u32],
        sequence: u32,
        heat: Option<&[u8]>,
    ) {
        let mut old = self.rows.len();
        self.resize(old + misses.len());
        for (inserted_before, &miss) in misses.iter().enumerate().rev() {
            let miss = miss as usize;
            let row = group.rows[miss];
            let stay = count_below_from_back(&self.rows[..old], row);
            let shift = inserted_before + 1;
            self.rows.copy_within(stay..old, stay + shift);
            self.slots.copy_within(stay..old, stay + shift);
            self.last.copy_within(stay..old, stay + shift);
            if !group.next.is_empty() {
                self.next.copy_within(stay..old, stay + shift);
                self.next[stay + inserted_before] = group.next[miss];
                self.warmth.copy_within(stay..old, stay + shift);
                self.warmth[stay + inserted_before] = heat.map_or(1, |heat| heat[row as usize]);
            }
            self.rows[stay + inserted_before] = row;
            self.slots[stay + inserted_before] = slots[miss];
            self.last[stay + inserted_before] = sequence;
            old = stay;
        }
    }

    fn resize(&mut self, len: usize) {
        self.rows.resize(len, 0);
        self.slots.resize(len, 0);
        self.last.resize(len, 0);
        if self.next.capacity() > 0 {
            self.next.resize(len, NEVER);
            self.warmth.resize(len, 0);
        }
    }
}

/// The number of elements of `sorted` below `row`, found by a search from the end with growing
/// steps.
fn count_below_from_back(sorted: &[u64], row: u64) -> usize {
    let mut step = 1;
    while step < sorted.len() && sorted[sorted.len() - step] > row {
        step *= 2;
    }
    let low = sorted.len().saturating_sub(step);
    low + sorted[low..].partition_point(|&held| held < row)
}
