//! Bytes of a grid, bytes written and peak memory of a build.

mod common;

use std::process::Command;

use common::Made;
use outercore_core::{Bytes, Stream};
use outercore_grid::{BuildOptions, build};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;
use outercore_testkit::Csc;

/// An R-MAT graph with ids in random order: a = 0.57, b = c = 0.19.
fn r_mat(scale: u32, edge_factor: u64) -> Vec<(u64, u64)> {
    let label = outercore_core::Permutation::new(1 << scale, 0, 0);
    (0..edge_factor << scale)
        .map(|edge| {
            let mut draws = Stream::new(0, 0).uniform(0, 0, edge);
            let (mut source, mut target) = (0, 0);
            for _ in 0..scale {
                let (down, right) = match draws.unit() {
                    draw if draw < 0.57 => (0, 0),
                    draw if draw < 0.76 => (0, 1),
                    draw if draw < 0.95 => (1, 0),
                    _ => (1, 1),
                };
                source = source << 1 | down;
                target = target << 1 | right;
            }
            (label.at(source), label.at(target))
        })
        .collect()
}

#[test]
fn a_grid_takes_few_bytes_an_arc_and_few_writes() {
    let edges = r_mat(14, 16);
    for made in [Made::directed(1 << 14, &edges), Made::undirected(1 << 14, &edges)] {
        let directory = tempfile::tempdir().unwrap();
        let data_set = made.write(directory.path());
        let options = BuildOptions { memory: Bytes::mib(8), ..BuildOptions::default() };
        let summary = build(&RealDisk, &data_set, &options, &mut |_, _, _, _| Ok(())).unwrap();
        let most = if summary.symmetric { 1.5 } else { 3.0 };
        assert!(summary.bytes_per_arc <= most, "{summary:?}");
        assert!(summary.written.0 <= 2 * summary.input.0, "{summary:?}");
    }
}

/// Too little memory to deal the edges in memory; with weights, these take 16 MiB of it.
fn budget(weighted: bool) -> Bytes {
    Bytes::mib(if weighted { 40 } else { 24 })
}

/// Memory of the program without data: its code, its stacks, the allocator's rounding.
const PROGRAM: Bytes = Bytes::mib(12);

#[test]
fn peak_memory_stays_within_the_budget() {
    for (undirected, weighted) in [(false, false), (true, false), (false, true)] {
        let directory = tempfile::tempdir().unwrap();
        let graph = Csc::power_law(800_000, 4_000_000, 7);
        let edges: Vec<(u64, u64)> = graph
            .sources
            .iter()
            .zip(0..)
            .map(|(source, at)| (*source, at * 31 % 700_001))
            .collect();
        let made = if undirected { Made::undirected } else { Made::directed };
        let weights = (0..edges.len()).map(|id| id as f64).collect();
        made(800_000, &edges).weighted(weights).write(directory.path());
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "build_in_a_process", "--nocapture"])
            .current_dir(directory.path())
            .env("GRID_WEIGHTED", weighted.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let peak = text.lines().find_map(|line| line.split_once("peak ")?.1.parse::<u64>().ok());
        let peak = Bytes::kib(peak.unwrap_or_else(|| panic!("{text}{:?}", output.stderr)));
        let budget = budget(weighted);
        assert!(peak.0 <= budget.0 + PROGRAM.0, "peak {peak} with a budget of {budget}");
        println!("peak {peak} with a budget of {budget}");
    }
}

/// Not a separate test: the test above starts this as a process and measures it.
#[test]
#[ignore = "run by peak_memory_stays_within_the_budget"]
fn build_in_a_process() {
    let Ok(weighted) = std::env::var("GRID_WEIGHTED") else { return };
    let weighted = weighted == "true";
    let data_set = DataSet::open(std::env::current_dir().unwrap()).unwrap();
    let options = BuildOptions {
        memory: budget(weighted),
        threads: Some(2),
        weights: weighted.then(|| "w".into()),
        ..BuildOptions::default()
    };
    let summary = build(&RealDisk, &data_set, &options, &mut |_, _, _, _| Ok(())).unwrap();
    assert!(summary.written.0 > 4 * summary.edges + summary.bytes.0, "nothing was dealt to a file");
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    println!("peak {}", line.trim().trim_end_matches(" kB"));
}
