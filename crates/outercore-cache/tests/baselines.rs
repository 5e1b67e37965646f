//! Compares the policies of the simulation with naive models that search lists, and with a search
//! for the fewest misses.

use std::collections::{BTreeSet, HashMap};

use outercore_cache::simulate::{Simulated, simulate};
use proptest::prelude::*;

const ROWS: u64 = 9;

/// A cache that takes one group after the other.
trait Model {
    fn holds(&self, row: u64) -> bool;
    fn len(&self) -> usize;
    fn touch(&mut self, row: u64);
    fn evict_one(&mut self, pinned: &[u64]);
    fn insert(&mut self, row: u64);
}

fn misses(trace: &[Vec<u64>], capacity: usize, mut model: impl Model) -> u64 {
    let mut misses = 0;
    for rows in trace {
        let (held, missing): (Vec<u64>, Vec<u64>) = rows.iter().partition(|&&row| model.holds(row));
        held.into_iter().for_each(|row| model.touch(row));
        misses += missing.len() as u64;
        while model.len() + missing.len() > capacity {
            model.evict_one(rows);
        }
        missing.into_iter().for_each(|row| model.insert(row));
    }
    misses
}

/// Rows, oldest first, with their marks; the hand is the next row to examine.
#[derive(Default)]
struct NaiveSieve {
    queue: Vec<(u64, bool)>,
    hand: Option<u64>,
}

impl Model for NaiveSieve {
    fn holds(&self, row: u64) -> bool {
        self.queue.iter().any(|entry| entry.0 == row)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn touch(&mut self, row: u64) {
        self.queue.iter_mut().find(|entry| entry.0 == row).unwrap().1 = true;
    }

    fn evict_one(&mut self, pinned: &[u64]) {
        let hand = self.hand.and_then(|hand| self.queue.iter().position(|entry| entry.0 == hand));
        let mut at = hand.unwrap_or(0);
        loop {
            let entry = &mut self.queue[at];
            if !pinned.contains(&entry.0) {
                if !entry.1 {
                    break;
                }
                entry.1 = false;
            }
            at = (at + 1) % self.queue.len();
        }
        self.queue.remove(at);
        self.hand = self.queue.get(at).map(|entry| entry.0);
    }

    fn insert(&mut self, row: u64) {
        self.queue.push((row, false));
    }
}

/// Two lists of rows, oldest first, the rows that left the small list, and the uses.
struct NaiveS3Fifo {
    most_main: usize,
    small: Vec<u64>,
    main: Vec<u64>,
    ghosts: Vec<u64>,
    uses: HashMap<u64, u32>,
}

impl NaiveS3Fifo {
    fn new(capacity: usize) -> Self {
        let most_main = capacity - (capacity / 10).max(1);
        let (small, main, ghosts, uses) = Default::default();
        Self { most_main, small, main, ghosts, uses }
    }
}

fn oldest_unpinned(queue: &[u64], pinned: &[u64]) -> Option<usize> {
    queue.iter().position(|row| !pinned.contains(row))
}

impl Model for NaiveS3Fifo {
    fn holds(&self, row: u64) -> bool {
        self.uses.contains_key(&row)
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn touch(&mut self, row: u64) {
        let uses = self.uses.get_mut(&row).unwrap();
        *uses = (*uses + 1).min(3);
    }

    fn evict_one(&mut self, pinned: &[u64]) {
        loop {
            let from_small = oldest_unpinned(&self.small, pinned);
            let from_main = oldest_unpinned(&self.main, pinned);
            let prefer_main = self.main.len() > self.most_main;
            if let Some(at) = from_main.filter(|_| prefer_main || from_small.is_none()) {
                let row = self.main.remove(at);
                let uses = self.uses[&row];
                if uses == 0 {
                    self.uses.remove(&row);
                    return;
                }
                self.uses.insert(row, uses - 1);
                self.main.push(row);
                continue;
            }
            let row = self.small.remove(from_small.unwrap());
            if self.uses[&row] < 2 {
                self.uses.remove(&row);
                self.ghosts.push(row);
                if self.ghosts.len() > self.most_main {
                    self.ghosts.remove(0);
                }
                return;
            }
            self.uses.insert(row, 0);
            self.main.push(row);
        }
    }

    fn insert(&mut self, row: u64) {
        let ghost = self.ghosts.iter().position(|&ghost| ghost == row);
        match ghost {
            Some(at) => {
                self.ghosts.remove(at);
                self.main.push(row);
            }
            None => self.small.push(row),
        }
        self.uses.insert(row, 0);
    }
}

/// The fewest misses of any policy. After each group, tries every choice of rows to hold.
fn fewest_misses(trace: &[Vec<u64>], capacity: u32) -> u64 {
    let mut least = HashMap::from([(0u32, 0u64)]);
    for rows in trace {
        let group = rows.iter().fold(0, |set, row| set | 1 << row);
        let mut after: HashMap<u32, u64> = HashMap::new();
        for (held, misses) in least {
            let misses = misses + u64::from((group & !held).count_ones());
            let all = held | group;
            for kept in (0..1u32 << ROWS).filter(|kept| kept & !all == 0 && kept & group == group) {
                if kept.count_ones() <= capacity {
                    let best = after.entry(kept).or_insert(u64::MAX);
                    *best = misses.min(*best);
                }
            }
        }
        least = after;
    }
    least.into_values().min().unwrap_or(0)
}

fn trace(rows: u64, groups: usize) -> impl Strategy<Value = Vec<Vec<u64>>> {
    let group = proptest::collection::btree_set(0..rows, 0..5)
        .prop_map(|rows: BTreeSet<u64>| rows.into_iter().collect());
    proptest::collection::vec(group, 0..groups)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_choice_of_rows_has_fewer_misses_than_belady(
        trace in trace(ROWS, 8),
        capacity in 4u32..7,
    ) {
        let expected = fewest_misses(&trace, capacity);
        for policy in [
            Simulated::Belady,
            Simulated::Window { ahead: trace.len() },
            Simulated::SuperBatch { groups: trace.len() },
        ] {
            let hits = simulate(&trace, capacity, policy).unwrap();
            prop_assert_eq!(hits.distinct - hits.hits, expected, "{:?}", policy);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn sieve_and_s3_fifo_equal_their_naive_models(
        trace in trace(40, 60),
        capacity in 4usize..30,
    ) {
        let distinct: u64 = trace.iter().map(|rows| rows.len() as u64).sum();
        let sieve = simulate(&trace, capacity as u32, Simulated::Sieve).unwrap();
        prop_assert_eq!(distinct - sieve.hits, misses(&trace, capacity, NaiveSieve::default()));
        let s3_fifo = simulate(&trace, capacity as u32, Simulated::S3Fifo).unwrap();
        prop_assert_eq!(distinct - s3_fifo.hits, misses(&trace, capacity, NaiveS3Fifo::new(capacity)));
    }
}
