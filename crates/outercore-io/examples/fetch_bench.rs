//! Measures how fast the engine executes a list of reads.
//!
//! ```text
//! fetch_bench FILE [--backend auto] [--depth 128] [--staging 8MiB] [--seconds 3] [--seed 0]
//!             [--read 4KiB | --stride 512 --density 0.01 | --list READS]
//!             [--save READS] [--save-iolog IOLOG]
//! ```
//! The reads are random reads of one size (`--read`), the read plan for random rows (`--stride`
//! bytes each, the given share of all rows), or `offset length` lines of a file (`--list`). They
//! can be saved as such lines, or as a log that fio replays (`fio --read_iolog=IOLOG
//! --replay_no_stall=1`, with offsets and lengths as the device sees them). The example prints one
//! line of JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, Context, Error, ErrorKind, ReadCounters, Result, Stream};
use outercore_io::{
    Backend, CostModel, Engine, EngineConfig, FileId, PlannedRead, RowLayout, plan_rows,
};

struct Options {
    file: PathBuf,
    config: EngineConfig,
    seconds: f64,
    seed: u64,
    read: Bytes,
    stride: Option<u64>,
    density: f64,
    list: Option<PathBuf>,
    save: Option<PathBuf>,
    save_iolog: Option<PathBuf>,
}

fn main() -> Result<()> {
    let options = parse(std::env::args().skip(1))?;
    let mut engine = Engine::open(options.config.clone())?;
    let file = engine.register(&options.file)?;
    let reads = make_reads(&engine, file, &options)?;
    if let Some(path) = &options.save {
        fs::write(path, lines(&reads, |read| format!("{} {}", read.offset, read.len)))?;
    }
    if let Some(path) = &options.save_iolog {
        fs::write(path, iolog(&options.file, &reads, engine.file_len(file))?)?;
    }
    let (counters, elapsed) = measure(&mut engine, file, &reads, options.seconds)?;
    let seconds = elapsed.as_secs_f64();
    println!(
        "{{\"backend\":\"{}\",\"reads\":{},\"seconds\":{seconds:.3},\"reads_per_s\":{:.0},\
         \"device_mb_per_s\":{:.1},\"useful_mb_per_s\":{:.1},\"mean_read\":{:.0}}}",
        engine.backend_name(),
        reads.len(),
        counters.requests as f64 / seconds,
        counters.bytes as f64 / seconds / 1e6,
        counters.useful_bytes as f64 / seconds / 1e6,
        counters.bytes as f64 / counters.requests.max(1) as f64,
    );
    Ok(())
}

/// Repeats the list until the time is over, then stops, even within the list.
fn measure(
    engine: &mut Engine,
    file: FileId,
    reads: &[PlannedRead],
    seconds: f64,
) -> Result<(ReadCounters, Duration)> {
    let begun = Instant::now();
    let before = engine.counters();
    let mut sum = 0u64;
    while begun.elapsed().as_secs_f64() < seconds {
        let outcome = engine.read(file, reads, &mut |_, bytes| {
            sum = sum.wrapping_add(u64::from(bytes[0]));
            if begun.elapsed().as_secs_f64() < seconds {
                return Ok(());
            }
            Err(Error::new(ErrorKind::Interrupted, "time is over"))
        });
        match outcome {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => break,
            Err(error) => return Err(error),
        }
    }
    std::hint::black_box(sum);
    Ok((engine.counters().since(&before), begun.elapsed()))
}

fn make_reads(engine: &Engine, file: FileId, options: &Options) -> Result<Vec<PlannedRead>> {
    let file_len = engine.file_len(file);
    let draws = Stream::new(options.seed, 0);
    if let Some(list) = &options.list {
        let text = fs::read_to_string(list).context(format!("list `{}`", list.display()))?;
        return text.lines().map(parse_read).collect();
    }
    if let Some(stride) = options.stride {
        let rows: Vec<u64> = (0..file_len / stride)
            .filter(|&row| draws.uniform(0, 0, row).unit() < options.density)
            .collect();
        let layout = RowLayout { base: 0, stride, file_len };
        return Ok(plan_rows(&rows, layout, &CostModel::default(), engine.max_read()).reads);
    }
    let places = file_len / options.read.0;
    if places == 0 {
        return Err(Error::invalid(format!("the file is shorter than {}", options.read)));
    }
    let mut draws = draws.uniform(0, 0, 0);
    let read =
        || PlannedRead { offset: draws.below(places) * options.read.0, len: options.read.0 as u32 };
    Ok(std::iter::repeat_with(read).take(1 << 20).collect())
}

fn parse_read(line: &str) -> Result<PlannedRead> {
    let wrong = || Error::invalid(format!("`{line}` is not `offset length`"));
    let (offset, len) = line.split_once(' ').ok_or_else(wrong)?;
    Ok(PlannedRead {
        offset: offset.parse().map_err(|_| wrong())?,
        len: len.parse().map_err(|_| wrong())?,
    })
}

fn iolog(file: &Path, reads: &[PlannedRead], file_len: u64) -> Result<String> {
    let file = fs::canonicalize(file)?;
    let name = file.display();
    let body = lines(reads, |read| {
        let start = read.offset & !4095;
        let end = read.end().next_multiple_of(4096).min(file_len & !4095);
        format!("{name} read {start} {}", end.saturating_sub(start).max(4096))
    });
    Ok(format!("fio version 2 iolog\n{name} add\n{name} open\n{body}{name} close\n"))
}

fn lines(reads: &[PlannedRead], line: impl Fn(&PlannedRead) -> String) -> String {
    reads.iter().map(|read| line(read) + "\n").collect()
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let file = arguments.next().ok_or_else(|| Error::invalid("which file?"))?;
    let mut options = Options {
        file: file.into(),
        config: EngineConfig::default(),
        seconds: 3.0,
        seed: 0,
        read: Bytes::kib(4),
        stride: None,
        density: 0.01,
        list: None,
        save: None,
        save_iolog: None,
    };
    while let Some(flag) = arguments.next() {
        let value = arguments.next().ok_or_else(|| Error::invalid(format!("{flag} what?")))?;
        match flag.as_str() {
            "--backend" => options.config.backend = value.parse::<Backend>()?,
            "--depth" => options.config.depth = number(&value)?,
            "--staging" => options.config.staging = value.parse()?,
            "--seconds" => options.seconds = number(&value)?,
            "--seed" => options.seed = number(&value)?,
            "--read" => options.read = value.parse()?,
            "--stride" => options.stride = Some(number(&value)?),
            "--density" => options.density = number(&value)?,
            "--list" => options.list = Some(value.into()),
            "--save" => options.save = Some(value.into()),
            "--save-iolog" => options.save_iolog = Some(value.into()),
            _ => return Err(Error::invalid(format!("unknown option `{flag}`"))),
        }
    }
    Ok(options)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| Error::invalid(format!("`{text}` is not a number")))
}
