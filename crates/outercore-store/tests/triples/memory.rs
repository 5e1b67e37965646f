//! Peak memory is measured in a separate process, because other tests would add to it.

use std::io::{BufWriter, Write};
use std::process::Command;
use std::sync::Arc;

use outercore_core::{Bytes, Stream};
use outercore_io::RealDisk;
use outercore_store::import::{Part, TripleImport, TripleImportOptions};

const TRIPLES: u64 = 600_000;
const BUDGET: Bytes = Bytes::mib(16);

/// Memory of the program itself: code, stacks and the rounding of the allocator.
const PROGRAM: Bytes = Bytes::mib(8);

#[test]
fn peak_memory_stays_within_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("train.tsv");
    let mut text = BufWriter::new(std::fs::File::create(path).unwrap());
    let mut draws = Stream::new(1, 0).uniform(0, 0, 0);
    for _ in 0..TRIPLES {
        let (head, tail, relation) = (draws.below(500_000), draws.below(500_000), draws.below(99));
        writeln!(text, "/entity/{head:010}\t/relation/{relation}\t/entity/{tail:010}").unwrap();
    }
    text.into_inner().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "memory::import_in_a_process", "--nocapture"])
        .current_dir(directory.path())
        .env("IMPORT_INPUT", "train.tsv")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let peak = text.lines().find_map(|line| line.split_once("peak ")?.1.parse::<u64>().ok());
    let peak = Bytes::kib(peak.unwrap_or_else(|| panic!("{text}{:?}", output.stderr)));
    assert!(peak.0 <= BUDGET.0 + PROGRAM.0, "peak {peak} with a budget of {BUDGET}");
    println!("peak {peak}");
}

/// Not a test by itself: the process that the test above measures.
#[test]
#[ignore = "run by peak_memory_stays_within_the_budget"]
fn import_in_a_process() {
    let Ok(input) = std::env::var("IMPORT_INPUT") else { return };
    let root = std::env::current_dir().unwrap().join("graph");
    let options = TripleImportOptions { memory: BUDGET, ..TripleImportOptions::default() };
    let mut import = TripleImport::begin(Arc::new(RealDisk), &root, options, "memory").unwrap();
    import.text(Part::Train, input.as_ref(), None, &mut |_| Ok(())).unwrap();
    let found = import.finish(&mut |_| Ok(())).unwrap();
    assert_eq!(found.parts[&Part::Train].triples, TRIPLES);
    import.commit().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("peak {}", peak.trim().trim_end_matches(" kB"));
}
