//! Policies run over a recorded trace, to compare their hits without reading a byte.

use std::collections::{BTreeSet, HashMap, HashSet};

use outercore_core::Stream;

use crate::dynamic::{DynamicPart, NoRoom};
use crate::policy::Policy;

/// A policy to be compared. The first two run the very code of [`DynamicPart`]; the last two are
/// baselines that only exist here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulated {
    /// [`Policy::Window`], seeing `ahead` groups beyond the one admitted.
    Window {
        /// Groups known ahead.
        ahead: usize,
    },
    /// Belady over a super-batch: `groups` groups are known at a time, nothing beyond them.
    SuperBatch {
        /// Groups in a super-batch; at least 1.
        groups: usize,
    },
    /// [`Policy::Lru`].
    Lru,
    /// The row that was read longest ago leaves.
    Fifo,
    /// A row drawn uniformly leaves.
    Random {
        /// Seed of the draws.
        seed: u64,
    },
}

/// What a policy achieved on a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Distinct rows per group, summed over groups.
    pub distinct: u64,
    /// Those that were held already.
    pub hits: u64,
}

impl Hits {
    /// Share of the distinct rows that were held already, in `0.0..=1.0`.
    pub fn ratio(&self) -> f64 {
        if self.distinct == 0 { 0.0 } else { self.hits as f64 / self.distinct as f64 }
    }
}

/// Runs `policy` with `capacity` slots over `trace`, whose groups hold sorted, unique rows. One
/// group is pinned at a time.
///
/// # Errors
/// [`NoRoom`] if a group alone exceeds the capacity.
///
/// # Example
/// ```
/// use outercore_cache::simulate::{Simulated, simulate};
/// let trace = [vec![1, 2], vec![3], vec![1], vec![2]];
/// assert_eq!(simulate(&trace, 2, Simulated::Lru).unwrap().hits, 0);
/// assert_eq!(simulate(&trace, 2, Simulated::Window { ahead: 2 }).unwrap().hits, 1);
/// ```
pub fn simulate(trace: &[Vec<u64>], capacity: u32, policy: Simulated) -> Result<Hits, NoRoom> {
    let misses = match policy {
        Simulated::Window { ahead } => {
            run_dynamic(trace, capacity, Policy::Window, |group| group + ahead + 1)?
        }
        Simulated::SuperBatch { groups } => {
            let groups = groups.max(1);
            run_dynamic(trace, capacity, Policy::Window, |group| (group / groups + 1) * groups)?
        }
        Simulated::Lru => run_dynamic(trace, capacity, Policy::Lru, |group| group + 1)?,
        Simulated::Fifo => run_baseline(trace, capacity, Fifo::default())?,
        Simulated::Random { seed } => run_baseline(
            trace,
            capacity,
            Random { held: HashSet::new(), stream: Stream::new(seed, 0) },
        )?,
    };
    let distinct = trace.iter().map(|rows| rows.len() as u64).sum();
    Ok(Hits { distinct, hits: distinct - misses })
}

/// `known(group)` groups have been announced when `group` is admitted.
fn run_dynamic(
    trace: &[Vec<u64>],
    capacity: u32,
    policy: Policy,
    known: impl Fn(usize) -> usize,
) -> Result<u64, NoRoom> {
    let mut part = DynamicPart::new(capacity, policy);
    let (mut misses, mut announced) = (0, 0);
    for group in 0..trace.len() {
        let until = known(group).min(trace.len());
        while announced < until {
            part.announce(announced as u64, &trace[announced]);
            announced += 1;
        }
        misses += part.admit(group as u64)?.misses.len() as u64;
        part.release(group as u64);
    }
    Ok(misses)
}

/// A cache without a look-ahead.
trait Baseline {
    fn holds(&self, row: u64) -> bool;
    fn len(&self) -> usize;
    /// Removes `count` rows that are not in `pinned` (sorted).
    fn evict(&mut self, group: usize, count: usize, pinned: &[u64]);
    fn insert(&mut self, group: usize, row: u64);
}

fn run_baseline(
    trace: &[Vec<u64>],
    capacity: u32,
    mut cache: impl Baseline,
) -> Result<u64, NoRoom> {
    let mut misses = 0;
    for (group, rows) in trace.iter().enumerate() {
        if rows.len() > capacity as usize {
            let hits = rows.iter().filter(|&&row| cache.holds(row)).count() as u32;
            return Err(NoRoom { needed: rows.len() as u32 - hits, free: capacity - hits });
        }
        let missing: Vec<u64> = rows.iter().copied().filter(|&row| !cache.holds(row)).collect();
        misses += missing.len() as u64;
        let excess = (cache.len() + missing.len()).saturating_sub(capacity as usize);
        cache.evict(group, excess, rows);
        for row in missing {
            cache.insert(group, row);
        }
    }
    Ok(misses)
}

#[derive(Default)]
struct Fifo {
    arrivals: BTreeSet<(usize, u64)>,
    arrived: HashMap<u64, usize>,
}

impl Baseline for Fifo {
    fn holds(&self, row: u64) -> bool {
        self.arrived.contains_key(&row)
    }

    fn len(&self) -> usize {
        self.arrived.len()
    }

    fn evict(&mut self, _group: usize, count: usize, pinned: &[u64]) {
        let unpinned = self.arrivals.iter().filter(|(_, row)| pinned.binary_search(row).is_err());
        for key in unpinned.take(count).copied().collect::<Vec<_>>() {
            self.arrivals.remove(&key);
            self.arrived.remove(&key.1);
        }
    }

    fn insert(&mut self, group: usize, row: u64) {
        self.arrivals.insert((group, row));
        self.arrived.insert(row, group);
    }
}

struct Random {
    held: HashSet<u64>,
    stream: Stream,
}

impl Baseline for Random {
    fn holds(&self, row: u64) -> bool {
        self.held.contains(&row)
    }

    fn len(&self) -> usize {
        self.held.len()
    }

    fn evict(&mut self, group: usize, count: usize, pinned: &[u64]) {
        let mut rows: Vec<u64> =
            self.held.iter().copied().filter(|row| pinned.binary_search(row).is_err()).collect();
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
