//! Generators of graphs of any size. The same seed gives the same graph, independent of threads,
//! memory and interruptions.
//!
//! Every edge, label and feature row is a function of the seed and its number. Generated edges pass
//! through the import like other edges.

mod planted;
mod rmat;
mod signal;

use outercore_core::{Error, Result};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::import::{EdgeImport, OnProgress, Phase, Progress, Unit};

pub use planted::{Planted, PlantedOptions, planted};
pub use rmat::{Rmat, RmatOptions, rmat};

/// Separates these random draws from the draws of a sampler with the same seed.
const SEED_MASK: u64 = 0x6E4A_11D0_6E4A_11D0;

/// Edges generated at a time: 2 MiB.
const BLOCK: u64 = 128 << 10;

/// A graph whose edges can be computed by number.
trait EdgeSource: Sync {
    fn num_edges(&self) -> u64;
    fn edge(&self, number: u64) -> [u64; 2];
}

/// Pushes all edges to the import, except edges that it already has.
fn push_edges(
    source: &dyn EdgeSource,
    pool: &ThreadPool,
    import: &mut EdgeImport,
    on_progress: OnProgress<'_>,
) -> Result<()> {
    let total = source.num_edges();
    let durable = import.pushed_before()?;
    import.skip_pushed(durable)?;
    let mut edges = Vec::new();
    for first in (durable..total).step_by(BLOCK as usize) {
        let end = (first + BLOCK).min(total);
        let numbers = (0..(end - first) as u32).into_par_iter().with_min_len(1024);
        pool.install(|| {
            numbers.map(|n| source.edge(first + u64::from(n))).collect_into_vec(&mut edges)
        });
        import.push_pairs(&edges)?;
        on_progress(Progress { phase: Phase::Generate, done: end, total, unit: Unit::Edges })?;
    }
    Ok(())
}

fn pool(threads: usize) -> Result<ThreadPool> {
    ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|error| Error::internal(format!("{threads} threads to generate with: {error}")))
}
