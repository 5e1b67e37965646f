//! Caches that decide row by row, and the loop that runs them.

use std::collections::{BTreeSet, HashMap, HashSet};

use outercore_core::Stream;

use crate::dynamic::NoRoom;

/// A cache that exists only in the simulation. The rows of the current group are pinned: evictions
/// skip them and leave their state unchanged.
pub(super) trait Baseline {
    /// Number of rows held.
    fn len(&self) -> usize;
    /// Whether the row is held; records that `group` uses it.
    fn touch(&mut self, group: usize, row: u64) -> bool;
    /// Removes `count` rows that are not in `pinned` (sorted).
    fn evict(&mut self, group: usize, count: usize, pinned: &[u64]);
    /// Adds a row that is not held.
    fn insert(&mut self, group: usize, row: u64);
}

/// Runs `cache` over `trace`; returns the misses.
pub(super) fn run(
    trace: &[Vec<u64>],
    capacity: u32,
    mut cache: impl Baseline,
) -> Result<u64, NoRoom> {
    let mut misses = 0;
    for (group, rows) in trace.iter().enumerate() {
        let missing: Vec<u64> =
            rows.iter().copied().filter(|&row| !cache.touch(group, row)).collect();
        if rows.len() > capacity as usize {
            let hits = (rows.len() - missing.len()) as u32;
            return Err(NoRoom { needed: missing.len() as u32, free: capacity - hits });
        }
        misses += missing.len() as u64;
        let excess = (cache.len() + missing.len()).saturating_sub(capacity as usize);
        cache.evict(group, excess, rows);
        for row in missing {
            cache.insert(group, row);
        }
    }
    Ok(misses)
}

pub(super) fn is_pinned(pinned: &[u64], row: u64) -> bool {
    pinned.binary_search(&row).is_ok()
}

/// Evicts the row that was read longest ago; among equals the smaller row.
#[derive(Default)]
pub(super) struct Fifo {
    arrivals: BTreeSet<(usize, u64)>,
    held: HashSet<u64>,
}

impl Baseline for Fifo {
    fn len(&self) -> usize {
        self.held.len()
    }

    fn touch(&mut self, _group: usize, row: u64) -> bool {
        self.held.contains(&row)
    }

    fn evict(&mut self, _group: usize, count: usize, pinned: &[u64]) {
        let unpinned = self.arrivals.iter().filter(|(_, row)| !is_pinned(pinned, *row));
        for key in unpinned.take(count).copied().collect::<Vec<_>>() {
            self.arrivals.remove(&key);
            self.held.remove(&key.1);
        }
    }

    fn insert(&mut self, group: usize, row: u64) {
        self.arrivals.insert((group, row));
        self.held.insert(row);
    }
}

/// Evicts a row drawn uniformly.
pub(super) struct Random {
    held: HashSet<u64>,
    stream: Stream,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { held: HashSet::new(), stream: Stream::new(seed, 0) }
    }
}

impl Baseline for Random {
    fn len(&self) -> usize {
        self.held.len()
    }

    fn touch(&mut self, _group: usize, row: u64) -> bool {
        self.held.contains(&row)
    }

    fn evict(&mut self, group: usize, count: usize, pinned: &[u64]) {
        if count == 0 {
            return;
        }
        let mut rows: Vec<u64> =
            self.held.iter().copied().filter(|&row| !is_pinned(pinned, row)).collect();
        rows.sort_unstable();
        let mut draws = self.stream.uniform(group as u64, 0, 0);
        for _ in 0..count {
            let victim = rows.swap_remove(draws.below(rows.len() as u64) as usize);
            self.held.remove(&victim);
        }
    }

    fn insert(&mut self, _group: usize, row: u64) {
        self.held.insert(row);
    }
}

/// Evicts the row whose next use is farthest ahead, with the whole trace known; among equals the
/// larger row.
///
/// No policy has fewer misses. A group needs all its rows at once, so every policy can evict the
/// same rows, and the exchange argument of Belady's rule holds group by group.
pub(super) struct Belady<'a> {
    trace: &'a [Vec<u64>],
    /// For each group and row of the trace, the next group that uses it.
    next: Vec<Vec<usize>>,
    by_next: BTreeSet<(usize, u64)>,
    held: HashMap<u64, usize>,
}

impl<'a> Belady<'a> {
    pub(super) fn new(trace: &'a [Vec<u64>]) -> Self {
        let mut first_use = HashMap::new();
        let mut next: Vec<Vec<usize>> = Vec::with_capacity(trace.len());
        for (group, rows) in trace.iter().enumerate().rev() {
            let uses = rows.iter().map(|&row| first_use.insert(row, group).unwrap_or(usize::MAX));
            next.push(uses.collect());
        }
        next.reverse();
        Self { trace, next, by_next: BTreeSet::new(), held: HashMap::new() }
    }

    fn next_use(&self, group: usize, row: u64) -> usize {
        let at = self.trace[group].binary_search(&row).expect("a row of the group");
        self.next[group][at]
    }
}

impl Baseline for Belady<'_> {
    fn len(&self) -> usize {
        self.held.len()
    }

    fn touch(&mut self, group: usize, row: u64) -> bool {
        let next = self.next_use(group, row);
        let Some(held) = self.held.get_mut(&row) else { return false };
        self.by_next.remove(&(std::mem::replace(held, next), row));
        self.by_next.insert((next, row));
        true
    }

    fn evict(&mut self, _group: usize, count: usize, pinned: &[u64]) {
        let unpinned = self.by_next.iter().rev().filter(|(_, row)| !is_pinned(pinned, *row));
        for key in unpinned.take(count).copied().collect::<Vec<_>>() {
            self.by_next.remove(&key);
            self.held.remove(&key.1);
        }
    }

    fn insert(&mut self, group: usize, row: u64) {
        let next = self.next_use(group, row);
        self.by_next.insert((next, row));
        self.held.insert(row, next);
    }
}
