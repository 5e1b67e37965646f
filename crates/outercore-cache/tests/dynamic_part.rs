//! Compares the dynamic part with a naive model: hash maps, a full sort, no optimisations.

use std::collections::{BTreeSet, HashMap, VecDeque};

use outercore_cache::{DynamicPart, NoRoom, Policy};
use proptest::prelude::*;

/// Belady-in-window and LRU straight from their definitions.
struct Naive {
    capacity: usize,
    policy: Policy,
    heat: Option<Vec<u8>>,
    uses: HashMap<u64, u8>,
    last_use: HashMap<u64, u64>,
    pending: VecDeque<(u64, Vec<u64>)>,
    active: VecDeque<(u64, Vec<u64>, bool)>,
}

impl Naive {
    fn new(capacity: usize, policy: Policy, heat: Option<Vec<u8>>) -> Self {
        let (uses, last_use, pending, active) = Default::default();
        Self { capacity, policy, heat, uses, last_use, pending, active }
    }

    /// Greater for rows that the policy keeps longer.
    fn worth(&self, row: u64) -> (u64, u8, u64) {
        let last = self.last_use[&row];
        match (self.policy, self.next_use(row)) {
            (Policy::Lru, _) => (0, 0, last),
            (Policy::Window, u64::MAX) => match &self.heat {
                Some(heat) => (0, heat[row as usize], last),
                None => (0, self.uses[&row], last),
            },
            (Policy::Window, next) => (u64::MAX - next, 0, 0),
        }
    }

    fn pinned(&self) -> BTreeSet<u64> {
        self.active.iter().flat_map(|(_, rows, _)| rows.iter().copied()).collect()
    }

    fn next_use(&self, row: u64) -> u64 {
        let group = self.pending.iter().find(|(_, rows)| rows.contains(&row));
        group.map_or(u64::MAX, |&(group, _)| group)
    }

    /// The indices of the misses.
    fn admit(&mut self) -> Result<Vec<u32>, NoRoom> {
        let (group, rows) = self.pending.pop_front().unwrap();
        let misses: Vec<u32> = (0..rows.len() as u32)
            .filter(|&i| !self.last_use.contains_key(&rows[i as usize]))
            .collect();
        let mut needed_rows = self.pinned();
        needed_rows.extend(rows.iter().copied());
        if needed_rows.len() > self.capacity {
            let free = self.capacity - (needed_rows.len() - misses.len());
            self.pending.push_front((group, rows));
            return Err(NoRoom { needed: misses.len() as u32, free: free as u32 });
        }
        let unpinned = self.last_use.keys().filter(|row| !needed_rows.contains(row));
        let mut victims: Vec<_> = unpinned.map(|&row| (self.worth(row), row)).collect();
        victims.sort_unstable();
        let excess = (self.last_use.len() + misses.len()).saturating_sub(self.capacity);
        for (_, row) in &victims[..excess] {
            self.last_use.remove(row);
            self.uses.remove(row);
        }
        for &row in &rows {
            self.last_use.insert(row, group);
            let uses = self.uses.entry(row).or_default();
            *uses = uses.saturating_add(1);
        }
        self.active.push_back((group, rows, false));
        Ok(misses)
    }

    fn release(&mut self, group: u64) {
        self.active.iter_mut().find(|active| active.0 == group).unwrap().2 = true;
        while self.active.front().is_some_and(|active| active.2) {
            self.active.pop_front();
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Announce(BTreeSet<u64>),
    Admit,
    /// Releases the n-th of the admitted groups (modulo their number).
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => proptest::collection::btree_set(0u64..40, 0..12).prop_map(Step::Announce),
        3 => Just(Step::Admit),
        2 => (0usize..3).prop_map(Step::Release),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn every_decision_equals_the_naive_model(
        capacity in 0u32..30,
        lru in any::<bool>(),
        heat in proptest::option::of(proptest::collection::vec(0u8..4, 40)),
        steps in proptest::collection::vec(step(), 0..80),
    ) {
        let policy = if lru { Policy::Lru } else { Policy::Window };
        let mut part = DynamicPart::new(capacity, policy);
        if let Some(heat) = &heat {
            part.know_heat(heat.clone().into());
        }
        let mut naive = Naive::new(capacity as usize, policy, heat);
        let mut groups = 0;
        let mut admitted: Vec<u64> = Vec::new();
        for step in steps {
            match step {
                Step::Announce(rows) => {
                    let rows: Vec<u64> = rows.into_iter().collect();
                    part.announce(groups, &rows);
                    naive.pending.push_back((groups, rows));
                    groups += 1;
                }
                Step::Admit => {
                    let Some((group, rows)) = naive.pending.front().cloned() else { continue };
                    let before: Vec<(u64, u32)> = part.entries().collect();
                    let pinned: Vec<u64> = naive.pinned().into_iter().collect();
                    match (part.admit(group), naive.admit()) {
                        (Ok(admission), Ok(misses)) => {
                            prop_assert_eq!(&admission.misses, &misses);
                            admitted.push(group);
                            let now: HashMap<u64, u32> = part.entries().collect();
                            for (row, slot) in rows.iter().zip(&admission.slots) {
                                prop_assert_eq!(now[row], *slot);
                            }
                            for (row, slot) in before {
                                if pinned.contains(&row) {
                                    prop_assert_eq!(now.get(&row), Some(&slot));
                                }
                            }
                        }
                        (Err(found), Err(expected)) => {
                            prop_assert_eq!(found, expected);
                            prop_assert_eq!(part.entries().collect::<Vec<_>>(), before);
                        }
                        (found, expected) => prop_assert!(false, "{found:?} {expected:?}"),
                    }
                }
                Step::Release(nth) => {
                    if admitted.is_empty() { continue }
                    let group = admitted.remove(nth % admitted.len());
                    part.release(group);
                    naive.release(group);
                }
            }
            let rows: BTreeSet<u64> = part.entries().map(|(row, _)| row).collect();
            let slots: BTreeSet<u32> = part.entries().map(|(_, slot)| slot).collect();
            prop_assert_eq!(&rows, &naive.last_use.keys().copied().collect::<BTreeSet<_>>());
            prop_assert_eq!(slots.len(), rows.len());
            prop_assert!(slots.iter().all(|&slot| slot < capacity));
            prop_assert!(part.entries().is_sorted());
            prop_assert_eq!(part.pinned() as usize, naive.pinned().len());
            prop_assert_eq!(part.announced(), naive.pending.len());
        }
    }
}

#[test]
fn the_index_takes_21_bytes_an_entry() {
    let mut part = DynamicPart::new(10_000, Policy::Window);
    for group in 0..40 {
        let rows: Vec<u64> = (0..3000).map(|i| (i * 7 + group * 1900) % 100_000).collect();
        let mut rows: Vec<u64> = rows;
        rows.sort_unstable();
        part.announce(group, &rows);
        part.admit(group).unwrap();
        part.release(group);
        assert!(part.len() <= 10_000);
    }
    assert_eq!(part.heap_bytes(), 210_000);
    assert_eq!(DynamicPart::new(10_000, Policy::Lru).heap_bytes(), 160_000);
}

#[test]
#[should_panic(expected = "group 3 is not admitted")]
fn releasing_a_group_twice_is_a_bug_that_shows() {
    let mut part = DynamicPart::new(2, Policy::Lru);
    part.announce(3, &[1]);
    part.announce(4, &[2]);
    part.admit(3).unwrap();
    part.admit(4).unwrap();
    part.release(3);
    part.release(3);
}
