//! Runs policies over a recorded trace, to compare their hits without any reads.

use std::sync::Arc;

mod baseline;
mod s3_fifo;
mod sieve;

use crate::dynamic::{DynamicPart, NoRoom};
use crate::policy::Policy;

use baseline::{Belady, Fifo, Random};
use s3_fifo::S3Fifo;
use sieve::Sieve;

/// A policy to compare. The first three run the same code as [`DynamicPart`]; the others exist only
/// here, as bounds and baselines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulated {
    /// [`Policy::Window`], with `ahead` groups known beyond the admitted one.
    Window {
        /// Groups known ahead.
        ahead: usize,
    },
    /// Belady over a super-batch: `groups` groups are known at a time, and none after them.
    SuperBatch {
        /// Groups in a super-batch; at least 1.
        groups: usize,
    },
    /// [`Policy::Lru`].
    Lru,
    /// Evicts the row whose next use is farthest ahead, with the whole trace known: the upper
    /// bound.
    Belady,
    /// SIEVE (NSDI 2024): a queue in order of arrival, with a hand that spares recently used rows.
    Sieve,
    /// S3-FIFO (SOSP 2023): a small queue for new rows, and a main queue for rows used again.
    S3Fifo,
    /// Evicts the row that was read longest ago.
    Fifo,
    /// Evicts a row drawn uniformly.
    Random {
        /// Seed of the draws.
        seed: u64,
    },
}

/// Hits of a policy on a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Distinct rows per group, summed over groups.
    pub distinct: u64,
    /// Distinct rows that were already held, summed over groups.
    pub hits: u64,
}

impl Hits {
    fn new(trace: &[Vec<u64>], misses: u64) -> Self {
        let distinct = trace.iter().map(|rows| rows.len() as u64).sum();
        Self { distinct, hits: distinct - misses }
    }

    /// Share of the distinct rows that were already held, in `0.0..=1.0`.
    pub fn ratio(&self) -> f64 {
        if self.distinct == 0 { 0.0 } else { self.hits as f64 / self.distinct as f64 }
    }
}

/// Runs `policy` with `capacity` slots over `trace`, whose groups hold sorted, unique rows. One
/// group is pinned at a time.
///
/// # Errors
/// [`NoRoom`] if a single group exceeds the capacity.
///
/// # Example
/// ```
/// use outercore_cache::simulate::{Simulated, simulate};
/// let trace = [vec![1, 2], vec![3], vec![1], vec![2]];
/// assert_eq!(simulate(&trace, 2, Simulated::Lru).unwrap().hits, 0);
/// assert_eq!(simulate(&trace, 2, Simulated::Window { ahead: 2 }).unwrap().hits, 1);
/// ```
pub fn simulate(trace: &[Vec<u64>], capacity: u32, policy: Simulated) -> Result<Hits, NoRoom> {
    let window = || DynamicPart::new(capacity, Policy::Window);
    let misses = match policy {
        Simulated::Window { ahead } => run_dynamic(trace, window(), |group| group + ahead + 1)?,
        Simulated::SuperBatch { groups } => {
            let groups = groups.max(1);
            run_dynamic(trace, window(), |group| (group / groups + 1) * groups)?
        }
        Simulated::Lru => {
            run_dynamic(trace, DynamicPart::new(capacity, Policy::Lru), |group| group + 1)?
        }
        Simulated::Belady => baseline::run(trace, capacity, Belady::new(trace))?,
        Simulated::Sieve => baseline::run(trace, capacity, Sieve::default())?,
        Simulated::S3Fifo => baseline::run(trace, capacity, S3Fifo::new(capacity))?,
        Simulated::Fifo => baseline::run(trace, capacity, Fifo::default())?,
        Simulated::Random { seed } => baseline::run(trace, capacity, Random::new(seed))?,
    };
    Ok(Hits::new(trace, misses))
}

/// [`Simulated::Window`] with `heat[row]` known, as passed to [`DynamicPart::know_heat`].
///
/// # Errors
/// As [`simulate`].
pub fn simulate_heated(
    trace: &[Vec<u64>],
    capacity: u32,
    ahead: usize,
    heat: Arc<[u8]>,
) -> Result<Hits, NoRoom> {
    let mut part = DynamicPart::new(capacity, Policy::Window);
    part.know_heat(heat);
    let misses = run_dynamic(trace, part, |group| group + ahead + 1)?;
    Ok(Hits::new(trace, misses))
}

/// Counts the misses; before `group` is admitted, `known(group)` groups have been announced.
fn run_dynamic(
    trace: &[Vec<u64>],
    mut part: DynamicPart,
    known: impl Fn(usize) -> usize,
) -> Result<u64, NoRoom> {
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
