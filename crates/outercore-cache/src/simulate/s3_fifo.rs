//! S3-FIFO: a small queue for new rows, a main queue for rows used again, and the ids of rows that
//! left the small queue.

use std::collections::{HashMap, VecDeque};

use super::baseline::{Baseline, is_pinned};

/// Uses are counted up to this number.
const MOST_USES: u8 = 3;

/// With this many uses, a row moves from the small queue to the main one.
const USES_TO_STAY: u8 = 2;

/// The cache; the uses of a group arrive in the order of its rows.
///
/// # Source
/// Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023,
/// algorithm 1, with the sizes of the paper: a tenth for the small queue, and as many remembered
/// ids as the main queue has rows.
pub(super) struct S3Fifo {
    /// Rows of the main queue when both queues are full.
    most_main: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    /// Rows that left the small queue and when, oldest first; some of them have been admitted
    /// again.
    ghosts: VecDeque<(u64, u64)>,
    ghost_since: HashMap<u64, u64>,
    /// Number of rows that have left the small queue so far.
    left: u64,
    uses: HashMap<u64, u8>,
}

impl S3Fifo {
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Self {
            most_main: capacity - (capacity / 10).max(1).min(capacity),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            ghost_since: HashMap::new(),
            left: 0,
            uses: HashMap::new(),
        }
    }

    fn remember(&mut self, row: u64) {
        self.left += 1;
        self.ghost_since.insert(row, self.left);
        self.ghosts.push_back((row, self.left));
        while self.ghost_since.len() > self.most_main {
            let (oldest, since) = self.ghosts.pop_front().expect("a name for each ghost");
            if self.ghost_since.get(&oldest) == Some(&since) {
                self.ghost_since.remove(&oldest);
            }
        }
    }

    /// Evicts a row, or moves one from the small queue to the main one. Returns whether it evicted.
    fn step(&mut self, pinned: &mut Pinned<'_>) -> bool {
        let from_main = self.main.len() + pinned.main.len() > self.most_main;
        let queues = if from_main { [true, false] } else { [false, true] };
        for is_main in queues {
            if is_main && let Some(row) = next(&mut self.main, pinned.rows, &mut pinned.main) {
                let uses = self.uses.get_mut(&row).expect("held");
                if *uses > 0 {
                    *uses -= 1;
                    self.main.push_back(row);
                    return false;
                }
                self.uses.remove(&row);
                return true;
            }
            if !is_main && let Some(row) = next(&mut self.small, pinned.rows, &mut pinned.small) {
                if self.uses[&row] >= USES_TO_STAY {
                    self.uses.insert(row, 0);
                    self.main.push_back(row);
                    return false;
                }
                self.uses.remove(&row);
                self.remember(row);
                return true;
            }
        }
        unreachable!("fewer rows are pinned than held")
    }
}

/// Rows that must not leave, and the skipped ones among them, oldest first.
struct Pinned<'a> {
    rows: &'a [u64],
    small: Vec<u64>,
    main: Vec<u64>,
}

/// The oldest unpinned row of a queue.
fn next(queue: &mut VecDeque<u64>, pinned: &[u64], passed: &mut Vec<u64>) -> Option<u64> {
    while let Some(row) = queue.pop_front() {
        if !is_pinned(pinned, row) {
            return Some(row);
        }
        passed.push(row);
    }
    None
}

impl Baseline for S3Fifo {
    fn len(&self) -> usize {
        self.uses.len()
    }

    fn touch(&mut self, _group: usize, row: u64) -> bool {
        let Some(uses) = self.uses.get_mut(&row) else { return false };
        *uses = (*uses + 1).min(MOST_USES);
        true
    }

    fn evict(&mut self, _group: usize, count: usize, pinned: &[u64]) {
        let mut pinned = Pinned { rows: pinned, small: Vec::new(), main: Vec::new() };
        let mut evicted = 0;
        while evicted < count {
            evicted += usize::from(self.step(&mut pinned));
        }
        for (queue, passed) in [(&mut self.small, pinned.small), (&mut self.main, pinned.main)] {
            passed.into_iter().rev().for_each(|row| queue.push_front(row));
        }
    }

    fn insert(&mut self, _group: usize, row: u64) {
        let was_ghost = self.ghost_since.remove(&row).is_some();
        let queue = if was_ghost { &mut self.main } else { &mut self.small };
        queue.push_back(row);
        self.uses.insert(row, 0);
    }
}
