//! Runs the bodies of fuzz targets without a fuzzer: over stored inputs, and over random changes of
//! them.
//!
//! A body accepts any bytes and panics if a property does not hold. `fuzz/` runs the same bodies
//! under libFuzzer, which observes the branches that an input takes.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use outercore_core::{Error, ErrorKind, Stream, Uniform};

/// Longest input after changes.
const LONGEST: usize = 1 << 14;

/// Numbers that decoders often handle wrongly.
const EDGES: [u64; 12] =
    [0, 1, 7, 8, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 1 << 32, i64::MAX as u64, u64::MAX];

/// Runs `body` over the stored inputs of the target `name`, then over random changes of them for
/// `OUTERCORE_FUZZ_SECONDS` (1 by default).
///
/// # Panics
/// If the body panics, naming the input; if no input is stored.
pub fn run(name: &str, body: fn(&[u8])) {
    let mut inputs = Vec::new();
    for kind in ["corpus", "crashes"] {
        for path in files(&root().join(kind).join(name)) {
            let input = fs::read(&path).unwrap();
            attempt(&path.display().to_string(), &input, body);
            inputs.push(input);
        }
    }
    assert!(!inputs.is_empty(), "target `{name}`: `fuzz/corpus/{name}` has no input");
    let seconds = std::env::var("OUTERCORE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Instant::now() + Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let mut seed = 0;
    while Instant::now() < end {
        let mut input = mutated(&inputs, seed);
        input.truncate(LONGEST);
        attempt(&format!("seed {seed}"), &input, body);
        seed += 1;
    }
    println!("{name}: {} kept inputs, {seed} random ones", inputs.len());
}

/// Stores an input, for the test that creates the first inputs.
///
/// # Panics
/// If the file system returns an error.
pub fn keep(name: &str, input: &str, bytes: &[u8]) {
    let directory = root().join("corpus").join(name);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(input), bytes).unwrap();
}

/// Bytes from outside never cause an internal error, and the error always has a message.
///
/// # Panics
/// If the error is internal or has no message.
pub fn assert_told(error: &Error) {
    assert!(error.kind() != ErrorKind::Internal, "internal error: {error}");
    assert!(!error.message().trim().is_empty(), "an error without a message");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn attempt(what: &str, input: &[u8], body: fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(input))) {
        let bytes: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("{what}, {} bytes: {bytes}", input.len());
        std::panic::resume_unwind(panic);
    }
}

/// One of the inputs, changed in a few places.
pub fn mutated(inputs: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut draws = Stream::new(seed, 0xF0).uniform(0, 0, 0);
    let mut input = pick(inputs, &mut draws).clone();
    for _ in 0..=draws.below(4) {
        change(&mut input, inputs, &mut draws);
    }
    input
}

fn pick<'a, T>(all: &'a [T], draws: &mut Uniform) -> &'a T {
    &all[draws.below(all.len() as u64) as usize]
}

fn change(input: &mut Vec<u8>, inputs: &[Vec<u8>], draws: &mut Uniform) {
    let len = input.len() as u64;
    let at = draws.below(len + 1) as usize;
    let end = (at + draws.below(16) as usize + 1).min(input.len());
    match draws.below(9) {
        0 if at < input.len() => input[at] ^= 1 << draws.below(8),
        1 if at < input.len() => input[at] = draws.below(256) as u8,
        2 => drop(input.drain(at..end)),
        3 => {
            let part = input[at..end].to_vec();
            drop(input.splice(at..at, part));
        }
        4 => input.truncate(at),
        5 => {
            // The end of another input, from a random position.
            let other = pick(inputs, draws);
            let from = draws.below(other.len() as u64 + 1) as usize;
            let to = (from + draws.below(64) as usize).min(other.len());
            drop(input.splice(at..end, other[from..to].iter().copied()));
        }
        6 => {
            // A binary number of any width.
            let number = pick(&EDGES, draws).to_le_bytes();
            let width = 1 << draws.below(4);
            for (byte, new) in input[at..].iter_mut().zip(&number[..width]) {
                *byte = *new;
            }
        }
        7 => {
            // A decimal number, in place of existing digits.
            let digit = |byte: &u8| byte.is_ascii_digit();
            let start = input[at..].iter().position(digit).map_or(at, |found| at + found);
            let digits = input[start..].iter().take_while(|byte| digit(byte)).count();
            let number = pick(&EDGES, draws).to_string();
            drop(input.splice(start..start + digits, number.into_bytes()));
        }
        _ => input.insert(at, draws.below(256) as u8),
    }
}
