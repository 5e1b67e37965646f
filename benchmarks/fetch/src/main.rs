//! Benchmark: reads given rows of an array through the read planner and the engine, and prints the
//! cost as one line of JSON.
//!
//! ```text
//! fetch ARRAY ROWS --base 4096 --stride 512 [--backend uring] [--depth 128] [--group N]
//!       [--profile DIR] [--trace FILE]
//! ```
//!
//! `ROWS` holds sorted little-endian u64 row numbers. They are planned and read in groups of
//! `--group` rows (all at once without it), and copied into one buffer, as the pipeline does.
//! `--trace` writes the reads that the device receives as an fio log.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use outercore_core::{Bytes, Context, Error, Result};
use outercore_io::{
    Backend, CostModel, DeviceProfile, Engine, EngineConfig, PlannedRead, RowLayout, plan_rows,
};

struct Options {
    array: PathBuf,
    rows: PathBuf,
    base: u64,
    stride: u64,
    backend: Backend,
    depth: usize,
    staging: Bytes,
    group: usize,
    profile: Option<PathBuf>,
    trace: Option<PathBuf>,
}

impl Options {
    fn parse() -> Result<Self> {
        let mut places = Vec::new();
        let mut options = Self {
            array: PathBuf::new(),
            rows: PathBuf::new(),
            base: 4096,
            stride: 512,
            backend: Backend::Auto,
            depth: EngineConfig::default().depth,
            staging: EngineConfig::default().staging,
            group: usize::MAX,
            profile: None,
            trace: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let Some(name) = argument.strip_prefix("--") else {
                places.push(PathBuf::from(argument));
                continue;
            };
            let value = arguments
                .next()
                .ok_or_else(|| Error::invalid(format!("option `--{name}` has no value")))?;
            match name {
                "base" => options.base = number(name, &value)?,
                "stride" => options.stride = number(name, &value)?,
                "backend" => options.backend = Backend::from_str(&value)?,
                "depth" => options.depth = number(name, &value)? as usize,
                "staging-mib" => options.staging = Bytes::mib(number(name, &value)?),
                "group" => options.group = number(name, &value)?.max(1) as usize,
                "profile" => options.profile = Some(value.into()),
                "trace" => options.trace = Some(value.into()),
                _ => return Err(Error::invalid(format!("unknown option `--{name}`"))),
            }
        }
        let [array, rows] = <[PathBuf; 2]>::try_from(places)
            .map_err(|found| Error::invalid(format!("expected ARRAY and ROWS, found {found:?}")))?;
        Ok(Self { array, rows, ..options })
    }
}

fn number(name: &str, value: &str) -> Result<u64> {
    value.parse().map_err(|_| Error::invalid(format!("option `--{name}`: no number: `{value}`")))
}

fn read_rows(path: &Path) -> Result<Vec<u64>> {
    let bytes = fs::read(path).with_context(|| format!("rows `{}`", path.display()))?;
    Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// The reads of all groups in fio's log format, widened to whole granules as in the engine.
fn trace(array: &Path, groups: &[Vec<PlannedRead>], granule: u64, file_len: u64) -> String {
    let name = array.display();
    let mut log = format!("fio version 2 iolog\n{name} add\n{name} open\n");
    for read in groups.iter().flatten() {
        let start = read.offset / granule * granule;
        // fio refuses lengths that are not a multiple of the block, so the last read is shortened
        // by one block.
        let end = read.end().next_multiple_of(granule).min(file_len / granule * granule);
        if end > start {
            let _ = writeln!(log, "{name} read {start} {}", end - start);
        }
    }
    let _ = writeln!(log, "{name} close");
    log
}

fn run(options: &Options) -> Result<()> {
    let rows = read_rows(&options.rows)?;
    let cost = match &options.profile {
        Some(directory) => CostModel::from(&DeviceProfile::load(directory)?),
        None => CostModel::default(),
    };
    let mut engine = Engine::open(EngineConfig {
        backend: options.backend,
        staging: options.staging,
        depth: options.depth,
        ..EngineConfig::default()
    })?;
    let file = engine.register(&options.array)?;
    let layout =
        RowLayout { base: options.base, stride: options.stride, file_len: engine.file_len(file) };
    let stride = options.stride as usize;
    let mut buffer = vec![1u8; rows.len().min(options.group) * stride];
    let mut plans = Vec::new();
    let mut checksum = 0u64;

    let started = Instant::now();
    for group in rows.chunks(options.group) {
        let plan = plan_rows(group, layout, &cost, engine.max_read());
        engine.read(file, &plan.reads, &mut |index, bytes| {
            let first = plan.reads[index].offset;
            let range = plan.rows_of[index].start as usize..plan.rows_of[index].end as usize;
            for place in range {
                let begin = (options.base + group[place] * options.stride - first) as usize;
                buffer[place * stride..(place + 1) * stride]
                    .copy_from_slice(&bytes[begin..begin + stride]);
            }
            Ok(())
        })?;
        checksum = checksum.wrapping_add(u64::from(buffer[stride - 1]));
        plans.push(plan.reads);
    }
    let seconds = started.elapsed().as_secs_f64();

    if let Some(path) = &options.trace {
        let log = trace(&options.array, &plans, u64::from(cost.granule), layout.file_len);
        fs::write(path, log).with_context(|| format!("trace `{}`", path.display()))?;
    }
    let counters = engine.counters();
    println!(
        "{}",
        serde_json::json!({
            "program": "outercore-fetch",
            "backend": engine.backend_name(),
            "rows": rows.len(),
            "seconds": seconds,
            "requests": counters.requests,
            "bytes": counters.bytes,
            "checksum": checksum,
        })
    );
    Ok(())
}

fn main() {
    if let Err(error) = Options::parse().and_then(|options| run(&options)) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
