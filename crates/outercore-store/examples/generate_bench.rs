//! Measures the speed of the graph generators.
//!
//! ```text
//! cargo run --release -p outercore-store --example generate_bench -- DIRECTORY [NODES]
//! ```
//! Generates a planted graph of NODES nodes (128 features, degree 20) and an R-MAT graph of scale
//! 20 in DIRECTORY. Prints the seconds of each phase, and removes both graphs.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use outercore_core::{Error, Result};
use outercore_io::RealDisk;
use outercore_store::generate::{PlantedOptions, RmatOptions, planted, rmat};
use outercore_store::import::{GraphImportOptions, OnProgress, Phase};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(directory) = arguments.first() else {
        return Err(Error::invalid("usage: generate_bench DIRECTORY [NODES]"));
    };
    let nodes = arguments.get(1).map_or(Ok(1_000_000), |text| text.parse());
    let nodes = nodes.map_err(|error| Error::invalid(format!("NODES: {error}")))?;
    let root = Path::new(directory).join("generate-bench");
    let import = GraphImportOptions::default;
    timed("planted", &root, &mut |on_progress| {
        let options = PlantedOptions { nodes, ..PlantedOptions::default() };
        planted(Arc::new(RealDisk), &root, options, import(), on_progress).map(drop)
    })?;
    timed("rmat", &root, &mut |on_progress| {
        let options = RmatOptions { scale: 20, edge_factor: 16, seed: 1 };
        rmat(Arc::new(RealDisk), &root, options, import(), on_progress).map(drop)
    })
}

fn timed(
    name: &str,
    root: &Path,
    make: &mut dyn FnMut(OnProgress<'_>) -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    let mut ends: Vec<(Phase, u64, f64)> = Vec::new();
    make(&mut |progress| {
        let now = (progress.phase, progress.total, begun.elapsed().as_secs_f64());
        match ends.last_mut().filter(|(phase, ..)| *phase == progress.phase) {
            Some(last) => *last = now,
            None => ends.push(now),
        }
        Ok(())
    })?;
    println!("{name}: {:.2} s", begun.elapsed().as_secs_f64());
    for (phase, total, end) in ends {
        println!("  {phase} of {total} until {end:.2} s");
    }
    std::fs::remove_dir_all(root)?;
    Ok(())
}
