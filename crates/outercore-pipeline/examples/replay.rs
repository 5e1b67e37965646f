//! Repeats the feature reads of a loader's second epoch with the engine only, to show how fast the
//! device could be. Prints one JSON line.
//!
//! ```text
//! replay DATASET CONFIG
//! ```
//!
//! `CONFIG` is the JSON of a loader's configuration; the seeds are the split `train`. The example
//! first runs the cache over two epochs to find their reads. It then makes the reads of all groups
//! of the second epoch one after the other, without waiting between groups, and drops the bytes.

use std::time::Instant;

use outercore_core::{Error, Result};
use outercore_io::{Engine, EngineConfig, PlannedRead};
use outercore_pipeline::{Loader, LoaderConfig};
use outercore_store::dataset::DataSet;

fn run(arguments: &[String]) -> Result<()> {
    let [dataset, config] = arguments else {
        return Err(Error::invalid("expected DATASET and CONFIG"));
    };
    let config: LoaderConfig =
        serde_json::from_str(config).map_err(|error| Error::invalid(error.to_string()))?;
    let dataset = DataSet::open(dataset)?;
    let key = config.features.clone().ok_or_else(|| Error::invalid("no features"))?;
    let array = dataset.array(&key)?;
    let split = dataset.array("splits/train")?;
    let bytes = std::fs::read(&split.path)?;
    let ids = bytes[split.data_offset as usize..].as_chunks::<8>().0;
    let ids = ids.iter().map(|id| u64::from_le_bytes(*id)).collect();

    let mut reads: Vec<PlannedRead> = Vec::new();
    let mut loader = Loader::new(dataset.clone(), Some(ids), config)?;
    let forecast = loader.forecast_with(&mut |_, group| reads.extend(group))?;
    if forecast.traced < 2 * forecast.batches {
        return Err(Error::invalid("an epoch that is too long to be looked at"));
    }
    let reads = reads.split_off(forecast.first.rows.requests as usize);
    let plan = loader.plan()?;
    let (staging, depth) = (plan.staging, plan.reads_in_flight);
    drop(loader);
    let usual = EngineConfig::default();
    let mut engine = Engine::open(EngineConfig { staging, depth, ..usual })?;
    let file = engine.register(&array.path)?;
    let started = Instant::now();
    let mut sum = 0u64;
    let counters = engine.read(file, &reads, &mut |_, bytes| {
        sum = sum.wrapping_add(bytes.first().copied().unwrap_or(0).into());
        Ok(())
    })?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{}",
        serde_json::json!({
            "program": "replay", "seconds": seconds, "requests": counters.requests,
            "bytes": counters.bytes, "depth": depth, "sum": sum,
        })
    );
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = run(&arguments) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
