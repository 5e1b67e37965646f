//! Runs cache policies over a recorded trace and prints one line of JSON per policy.
//!
//! ```text
//! policies TRACE CAPACITY HEAT POLICY...
//! ```
//!
//! `TRACE` holds little-endian u64: the number of groups, the row count of each group, then the
//! rows, sorted and distinct within a group. `CAPACITY` is a number of rows. `HEAT` has a float32
//! for each row, for example its expected visits. Policies: `belady`, `window-N` (N groups known
//! ahead), `heated-N` (the same, with heat known), `super-batch-N` (N groups known at a time),
//! `lru`, `sieve`, `s3-fifo`, `fifo`, `random`.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use outercore_cache::heat_levels;
use outercore_cache::simulate::{Simulated, simulate, simulate_heated};

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [trace, capacity, heat, policies @ ..] = arguments else {
        return Err("expected TRACE CAPACITY HEAT POLICY...".into());
    };
    let trace = read_trace(trace)?;
    let capacity: u32 = capacity.parse()?;
    let heat = heat_levels(&read_heat(heat)?);
    for name in policies {
        let hits = match name.strip_prefix("heated-") {
            Some(ahead) => simulate_heated(&trace, capacity, ahead.parse()?, Arc::clone(&heat))?,
            None => simulate(&trace, capacity, parse(name)?)?,
        };
        println!(
            r#"{{"policy": "{name}", "capacity": {capacity}, "distinct": {}, "misses": {}}}"#,
            hits.distinct,
            hits.distinct - hits.hits
        );
    }
    Ok(())
}

fn parse(name: &str) -> Result<Simulated, Box<dyn Error>> {
    Ok(match name {
        "belady" => Simulated::Belady,
        "lru" => Simulated::Lru,
        "sieve" => Simulated::Sieve,
        "s3-fifo" => Simulated::S3Fifo,
        "fifo" => Simulated::Fifo,
        "random" => Simulated::Random { seed: 0 },
        _ => {
            if let Some(ahead) = name.strip_prefix("window-") {
                Simulated::Window { ahead: ahead.parse()? }
            } else if let Some(groups) = name.strip_prefix("super-batch-") {
                Simulated::SuperBatch { groups: groups.parse()? }
            } else {
                return Err(format!("`{name}` is not a policy").into());
            }
        }
    })
}

fn read_heat(path: &str) -> Result<Vec<f32>, Box<dyn Error>> {
    let bytes = std::fs::read(path).map_err(|error| format!("heat `{path}`: {error}"))?;
    let words = bytes.chunks_exact(4);
    Ok(words.map(|word| f32::from_le_bytes(word.try_into().expect("chunks of four"))).collect())
}

/// Reads the groups from a file in the format above.
fn read_trace(path: &str) -> Result<Vec<Vec<u64>>, Box<dyn Error>> {
    let bytes = std::fs::read(path).map_err(|error| format!("trace `{path}`: {error}"))?;
    let mut words = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight bytes")));
    let short = || format!("trace `{path}`: it ends early");
    let groups = words.next().ok_or_else(short)? as usize;
    let lengths: Vec<u64> = words.by_ref().take(groups).collect();
    let mut trace = Vec::with_capacity(groups);
    for length in lengths {
        let rows: Vec<u64> = words.by_ref().take(length as usize).collect();
        if rows.len() as u64 != length {
            return Err(short().into());
        }
        if !rows.is_sorted_by(|a, b| a < b) {
            return Err(format!("trace `{path}`: group {} is not sorted", trace.len()).into());
        }
        trace.push(rows);
    }
    Ok(trace)
}
