//! SIEVE: a queue in order of arrival, and a hand that spares the rows used since its last pass.

use std::collections::HashMap;

use super::baseline::{Baseline, is_pinned};

const NONE: usize = usize::MAX;

/// The cache; the uses of a group arrive in the order of its rows.
///
/// # Source
/// Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU", NSDI 2024, algorithm 1.
pub(super) struct Sieve {
    entries: Vec<Entry>,
    /// Places in `entries` without a row.
    empty: Vec<usize>,
    place_of: HashMap<u64, usize>,
    newest: usize,
    oldest: usize,
    /// The next row that the hand examines; `NONE` starts at the oldest.
    hand: usize,
}

struct Entry {
    row: u64,
    used: bool,
    newer: usize,
    older: usize,
}

impl Default for Sieve {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            empty: Vec::new(),
            place_of: HashMap::new(),
            newest: NONE,
            oldest: NONE,
            hand: NONE,
        }
    }
}

impl Sieve {
    /// Removes the row at `place` from the queue.
    fn remove(&mut self, place: usize) {
        let Entry { row, newer, older, .. } = self.entries[place];
        match newer {
            NONE => self.newest = older,
            _ => self.entries[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            _ => self.entries[older].newer = newer,
        }
        self.place_of.remove(&row);
        self.empty.push(place);
    }
}

impl Baseline for Sieve {
    fn len(&self) -> usize {
        self.place_of.len()
    }

    fn touch(&mut self, _group: usize, row: u64) -> bool {
        let Some(&place) = self.place_of.get(&row) else { return false };
        self.entries[place].used = true;
        true
    }

    fn evict(&mut self, _group: usize, count: usize, pinned: &[u64]) {
        for _ in 0..count {
            let mut place = self.hand;
            loop {
                if place == NONE {
                    place = self.oldest;
                }
                let entry = &mut self.entries[place];
                if !is_pinned(pinned, entry.row) && !std::mem::take(&mut entry.used) {
                    break;
                }
                place = entry.newer;
            }
            self.hand = self.entries[place].newer;
            self.remove(place);
        }
    }

    fn insert(&mut self, _group: usize, row: u64) {
        let entry = Entry { row, used: false, newer: NONE, older: self.newest };
        let place = match self.empty.pop() {
            Some(place) => {
                self.entries[place] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        match self.newest {
            NONE => self.oldest = place,
            newest => self.entries[newest].newer = place,
        }
        self.newest = place;
        self.place_of.insert(row, place);
    }
}
