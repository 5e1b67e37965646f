//! Peak memory is measured in a separate process, because other tests would add to it.

use std::io::{BufWriter, Write};
use std::process::Command;
use std::sync::Arc;

use outercore_core::{Bytes, Stream};
use outercore_format::{DType, NpyHeader};
use outercore_io::RealDisk;
use outercore_store::import::{EdgeImport, EdgeImportOptions};

const EDGES: u64 = 3_000_000;
const BUDGET: Bytes = Bytes::mib(16);

/// Memory of the program itself: code, stacks and the rounding of the allocator.
const PROGRAM: Bytes = Bytes::mib(8);

#[test]
fn peak_memory_stays_within_the_budget() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut text = BufWriter::new(std::fs::File::create(path("edges.txt")).unwrap());
    let mut array = BufWriter::new(std::fs::File::create(path("edges.npy")).unwrap());
    array.write_all(&NpyHeader::encode(DType::I64, &[EDGES, 2])).unwrap();
    let mut draws = Stream::new(1, 0).uniform(0, 0, 0);
    for _ in 0..EDGES {
        // A third of the edges lead to one node, which makes a bucket that does not fit in memory.
        let (source, any) = (draws.below(200_000), draws.below(300_000));
        let target = if any < 100_000 { 7 } else { any - 100_000 };
        writeln!(text, "{source} {target}").unwrap();
        array.write_all(bytemuck::bytes_of(&[source, target])).unwrap();
    }
    text.into_inner().unwrap();
    array.into_inner().unwrap();
    for input in ["edges.txt", "edges.npy"] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "memory::import_in_a_process", "--nocapture"])
            .current_dir(directory.path())
            .env("IMPORT_INPUT", input)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let peak = text.lines().find_map(|line| line.split_once("peak ")?.1.parse::<u64>().ok());
        let peak = Bytes::kib(peak.unwrap_or_else(|| panic!("{text}{:?}", output.stderr)));
        assert!(peak.0 <= BUDGET.0 + PROGRAM.0, "{input}: peak {peak} with a budget of {BUDGET}");
        println!("{input}: peak {peak}");
    }
}

/// Not a test by itself: the process that the test above measures.
#[test]
#[ignore = "run by peak_memory_stays_within_the_budget"]
fn import_in_a_process() {
    let Ok(input) = std::env::var("IMPORT_INPUT") else { return };
    let root = std::env::current_dir().unwrap().join(format!("{input}.graph"));
    let options = EdgeImportOptions {
        memory: BUDGET,
        threads: 2,
        undirected: true,
        ..EdgeImportOptions::default()
    };
    let mut import = EdgeImport::new(Arc::new(RealDisk), &root, options, "memory").unwrap();
    if input.ends_with("npy") {
        import.npy(input.as_ref(), &mut |_| Ok(())).unwrap();
    } else {
        import.text(input.as_ref(), &mut |_| Ok(())).unwrap();
    }
    assert!(import.finish(&mut |_| Ok(())).unwrap().num_edges > EDGES);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("peak {}", line.trim().trim_end_matches(" kB"));
}
