//! Runs an algorithm on a data set and prints its cost.
//!
//! `cargo run --release -p outercore-analytics --example run_bench -- DATASET REQUEST [MEMORY]
//! [THREADS] [BACKEND]`, with a request such as `{"algorithm":"wcc"}`.

use outercore_analytics::{Algorithm, Inputs, RunConfig, run};
use outercore_core::{Error, Result};
use outercore_store::dataset::DataSet;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, request, rest @ ..] = &arguments[..] else {
        return Err(Error::invalid("expected DATASET REQUEST [MEMORY] [THREADS] [BACKEND]"));
    };
    let algorithm: Algorithm =
        serde_json::from_str(request).map_err(|error| Error::invalid(error.to_string()))?;
    let mut config = RunConfig::default();
    if let Some(memory) = rest.first() {
        config.memory = memory.parse()?;
    }
    if let Some(threads) = rest.get(1) {
        config.threads =
            Some(threads.parse().map_err(|_| Error::invalid("THREADS is not a number"))?);
    }
    if let Some(backend) = rest.get(2) {
        config.backend = backend.parse()?;
    }
    let data_set = DataSet::open(path)?;
    let outcome = run(&data_set, &algorithm, Inputs::default(), &config, &mut |_, _, _, _| Ok(()))?;
    let text = |value: serde_json::Result<String>| value.unwrap_or_else(|error| error.to_string());
    println!("plan {}", text(serde_json::to_string(&outcome.plan)));
    println!("counters {}", text(serde_json::to_string_pretty(&outcome.counters)));
    println!("facts {}", text(serde_json::to_string(&outcome.facts)));
    if let Some(peak) = peak() {
        println!("peak {peak}");
    }
    Ok(())
}

/// The peak memory of the process, as reported by the kernel.
fn peak() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().to_owned())
}
