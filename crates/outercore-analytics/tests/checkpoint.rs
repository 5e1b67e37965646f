//! Runs that are stopped, killed and rejected, and resume from a checkpoint with the same bits.

mod fixture;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fixture::Pair;
use outercore_analytics::algorithms::label_propagation::LabelPropagation;
use outercore_analytics::algorithms::{bfs, kcore, label_propagation, pagerank, sssp, wcc};
use outercore_analytics::state::{Slots, Spill};
use outercore_analytics::{
    Algorithm, CheckpointConfig, Checkpoints, Flow, Inputs, MemoryRun, Outcome, RunConfig, deliver,
    run,
};
use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_grid::Order;
use outercore_io::{Backend, Disk, FaultDisk, FaultKind, FaultPlan, FileLock, RealDisk};
use outercore_testkit::Csc;

/// All algorithms that write checkpoints, on a grid in memory; values and facts as text.
const KINDS: [&str; 7] = ["pagerank", "weighted", "bfs", "sssp", "kcore", "labels", "wcc"];

fn compute(kind: &str, run: &mut MemoryRun) -> Result<String> {
    fn told<T: outercore_analytics::NodeValue + std::fmt::Debug>(
        run: &mut MemoryRun,
        raw: outercore_analytics::Raw<T>,
    ) -> Result<String> {
        let facts = serde_json::to_string(&raw.facts).unwrap();
        Ok(format!("{facts} {:?}", deliver(run, raw, &|_| 0.1)?))
    }
    let ranks = |run: &mut MemoryRun, weighted: bool| {
        let teleport = pagerank::Teleport::given(300, vec![3, 7], vec![1.0, 2.0])?;
        let options = pagerank::Pagerank {
            weights: weighted.then(|| "weight".into()),
            tolerance: 1e-3,
            ..Default::default()
        };
        let raw = pagerank::pagerank(run, &options, &teleport)?;
        told(run, raw)
    };
    match kind {
        "pagerank" => ranks(run, false),
        "weighted" => ranks(run, true),
        "bfs" => bfs::bfs(run, &bfs::Search::new(&[3], Flow::Both)).and_then(|raw| told(run, raw)),
        "sssp" => sssp::sssp(run, &sssp::Search::new(&[3], true, Flow::Both))
            .and_then(|raw| told(run, raw)),
        "kcore" => kcore::kcore(run).and_then(|raw| told(run, raw)),
        "labels" => label_propagation::label_propagation(
            run,
            &LabelPropagation { max_iterations: 9, ..Default::default() },
        )
        .and_then(|raw| told(run, raw)),
        _ => wcc::wcc(run).and_then(|raw| told(run, raw)),
    }
}

/// A graph with deep searches.
fn graph() -> Vec<(u64, u64, f64)> {
    let ring = (0..300).map(|at| (at, (at + 1) % 290, 1.0 + at as f64 % 7.0));
    ring.chain((0..300).step_by(9).map(|at| (at, (at * at + 3) % 300, 4.5))).collect()
}

/// A run in memory, or with its state in scratch files.
fn grid(spilled: Option<&Path>) -> MemoryRun {
    let run = MemoryRun::new(300, &graph(), false, Order::Natural, 5);
    let Some(directory) = spilled else { return run };
    let slots = Slots { group: 3, sources: 2, room: Bytes(100) };
    run.with_spill(Spill::create(directory, Backend::Mmap, slots).unwrap())
}

fn open(disk: Arc<dyn Disk>, root: &Path, resume: bool) -> Result<Checkpoints> {
    let fingerprint = serde_json::json!({ "test": 1 });
    Checkpoints::open(disk, &root.join("checkpoint"), fingerprint, Duration::ZERO, resume)
}

/// For every operation: runs until the planned fault, then resumes with state in the other kind of
/// place.
fn survives(kind: FaultKind, first_spilled: bool) {
    let elsewhere = tempfile::tempdir().unwrap();
    let spilled = |yes: bool| yes.then(|| elsewhere.path());
    for name in KINDS {
        if name == "wcc" && !first_spilled {
            // A single pass has no checkpoint to resume from.
            continue;
        }
        let expected = compute(name, &mut grid(spilled(name == "wcc"))).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let disk = Arc::new(FaultDisk::counting(directory.path()));
        let counting = open(disk.clone(), directory.path(), false).unwrap();
        let mut run = grid(spilled(first_spilled)).with_checkpoints(counting);
        assert_eq!(compute(name, &mut run).unwrap(), expected, "{name}");
        let operations = disk.operations();
        assert!(operations > 20, "{name}: {operations}");
        let mut resumed = 0;
        // Every operation of the first three checkpoints, then some later ones.
        for at in (0..operations.min(24)).chain((24..operations).step_by(29)) {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path();
            let disk = Arc::new(FaultDisk::new(root, FaultPlan { at, kind }));
            let stopped = open(disk, root, false).and_then(|checkpoints| {
                compute(name, &mut grid(spilled(first_spilled)).with_checkpoints(checkpoints))
            });
            match stopped {
                // A full disk ends the checkpoints, not the run.
                Ok(found) => {
                    assert_eq!(kind, FaultKind::NoSpace);
                    assert!(found == expected, "{name} {kind:?} at {at}: other results");
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::NoSpace), "{error}");
                }
            }
            let found = match open(Arc::new(RealDisk), root, true) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    open(Arc::new(RealDisk), root, false).unwrap()
                }
                other => {
                    resumed += 1;
                    other.unwrap_or_else(|error| panic!("{name} {kind:?} at {at}: {error}"))
                }
            };
            let mut run = grid(spilled(!first_spilled || name == "wcc")).with_checkpoints(found);
            let found = compute(name, &mut run);
            let found = found.unwrap_or_else(|error| panic!("{name} {kind:?} at {at}: {error}"));
            assert!(found == expected, "{name} {kind:?} at {at}: other results");
        }
        assert!(resumed > 8, "{name}: {resumed} of {operations} went on from a checkpoint");
    }
}

#[test]
fn a_crash_at_every_operation_leaves_a_run_that_goes_on_exactly() {
    survives(FaultKind::Crash, false);
    survives(FaultKind::Crash, true);
}

#[test]
fn a_full_or_failing_device_at_every_operation_leaves_a_run_that_goes_on_exactly() {
    survives(FaultKind::NoSpace, false);
    survives(FaultKind::Eio, true);
}

#[test]
fn a_fault_of_scratch_files_ends_a_run_with_a_clear_error() {
    let directory = tempfile::tempdir().unwrap();
    let slots = Slots { group: 2, sources: 1, room: Bytes(100) };
    let with = |disk: Arc<FaultDisk>| {
        let spill = Spill::create_on(disk, directory.path(), Backend::Mmap, slots)?;
        let run = MemoryRun::new(300, &graph(), false, Order::Natural, 5);
        compute("pagerank", &mut run.with_spill(spill))
    };
    let disk = Arc::new(FaultDisk::counting(directory.path()));
    let expected = compute("pagerank", &mut grid(None)).unwrap();
    assert_eq!(with(disk.clone()).unwrap(), expected);
    let operations = disk.operations() - 1;
    for kind in [FaultKind::NoSpace, FaultKind::Eio] {
        for at in (0..operations).step_by(5) {
            let disk = Arc::new(FaultDisk::new(directory.path(), FaultPlan { at, kind }));
            let Err(error) = with(disk) else {
                // A full disk still has room for removing names.
                continue;
            };
            let text = error.to_string();
            assert!(text.contains("state of the nodes in scratch directory `"), "{text}");
            assert_eq!(
                kind == FaultKind::NoSpace,
                text.contains("directory by `scratch`"),
                "{text}"
            );
        }
    }
}

const PAGERANK: &str = r#"{"algorithm":"pagerank","damping":0.85,"max_iterations":12,"tolerance":0,"weights":null,"reverse":false}"#;

fn execute(
    pair: &Pair,
    request: &str,
    config: &RunConfig,
    on_progress: &mut dyn FnMut(&str, u64, u64, &str) -> Result<()>,
) -> Result<Outcome> {
    let algorithm: Algorithm = serde_json::from_str(request).unwrap();
    run(&pair.data_set, &algorithm, Inputs::default(), config, on_progress)
}

fn config(pair: &Pair, memory: Bytes, resume: bool, seconds: f64) -> RunConfig {
    let directory = pair.root().join("kept");
    RunConfig {
        memory,
        threads: Some(2),
        build: false,
        checkpoint: Some(CheckpointConfig { directory, seconds, resume }),
        ..RunConfig::default()
    }
}

#[test]
fn the_wish_to_stop_leaves_a_checkpoint_that_other_budgets_go_on_from() {
    let pair = Pair::with_log2(&Csc::random(250_000, 900_000, 5), true, Order::Degree, 13);
    let quiet = &mut |_: &str, _: u64, _: u64, _: &str| Ok(());
    let expected = execute(&pair, PAGERANK, &RunConfig::default(), quiet).unwrap();
    let (small, large) = (Bytes::mib(7), Bytes::mib(64));
    for (first, second) in [(large, small), (small, large)] {
        let mut stop = |_: &str, done, _, _: &str| match done {
            5 => Err(Error::new(ErrorKind::Interrupted, "stopped by the user")),
            _ => Ok(()),
        };
        let before = config(&pair, first, false, 1e6);
        let error = execute(&pair, PAGERANK, &before, &mut stop).unwrap_err();
        assert_eq!(error.to_string(), "stopped by the user");
        let error = execute(&pair, PAGERANK, &before, quiet).unwrap_err();
        assert!(error.to_string().contains("exists"), "{error}");
        let found = execute(&pair, PAGERANK, &config(&pair, second, true, 1e6), quiet).unwrap();
        assert_eq!(found.plan.spill.is_some(), second == small, "{:?}", found.plan);
        assert!(found.values == expected.values);
        assert_eq!(found.facts, expected.facts);
        // The pass during which the request arrived was completed, and is not repeated.
        assert_eq!(found.counters.passes, 6);
        std::fs::remove_dir_all(pair.root().join("kept")).unwrap();
    }
}

#[test]
fn a_run_goes_on_to_more_iterations_than_it_was_begun_with() {
    let pair = Pair::skewed(false);
    let quiet = &mut |_: &str, _: u64, _: u64, _: &str| Ok(());
    let labels = r#"{"algorithm":"label_propagation","max_iterations":12}"#;
    for (request, few) in [(PAGERANK, 5), (labels, 3)] {
        let expected = execute(&pair, request, &RunConfig::default(), quiet).unwrap();
        let shorter = request.replace(":12", &format!(":{few}"));
        let config = |resume| config(&pair, Bytes::gib(1), resume, 0.0);
        let first = execute(&pair, &shorter, &config(false), quiet).unwrap();
        assert_eq!((first.counters.passes, first.counters.checkpoints), (few, few), "{request}");
        let found = execute(&pair, request, &config(true), quiet).unwrap();
        assert!(found.values == expected.values, "{request}");
        assert_eq!(found.facts, expected.facts);
        // The last checkpoint is before the last of the first run's iterations.
        let all = expected.counters.passes;
        assert_eq!(found.counters.passes, all - (few - 1), "{request}");
        let error = execute(&pair, &request.replace(":12", ":1"), &config(true), quiet);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("max_iterations is 1"), "{text}");
        std::fs::remove_dir_all(pair.root().join("kept")).unwrap();
    }
    // If a run does not converge, its state is not lost.
    let early = PAGERANK.replace("\"tolerance\":0", "\"tolerance\":1e-5");
    let config = |resume| config(&pair, Bytes::gib(1), resume, 0.0);
    let error = execute(&pair, &early.replace(":12", ":4"), &config(false), quiet).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("resume the run with a higher max_iterations"), "{text}");
    let none = RunConfig { checkpoint: None, ..config(false) };
    let text = execute(&pair, &early.replace(":12", ":4"), &none, quiet).unwrap_err().to_string();
    assert!(text.contains("raise max_iterations, or set tolerance=0"), "{text}");
    let enough = early.replace(":12", ":100");
    let found = execute(&pair, &enough, &config(true), quiet).unwrap();
    let expected = execute(&pair, &enough, &RunConfig::default(), quiet).unwrap();
    assert!(found.values == expected.values);
    assert_eq!(found.facts, expected.facts);
}

#[test]
fn a_run_without_a_checkpoint_leaves_the_directory_as_it_was() {
    let pair = Pair::skewed(false);
    let quiet = &mut |_: &str, _: u64, _: u64, _: &str| Ok(());
    let mut stop = |_: &str, _, _, _: &str| Err(Error::invalid("enough"));
    let above = pair.root().join("above");
    let directory = above.join("kept");
    let config = |memory, resume| RunConfig {
        checkpoint: Some(CheckpointConfig { directory: directory.clone(), seconds: 1e6, resume }),
        ..config(&pair, memory, false, 1e6)
    };
    // Rejected by the plan, stopped at once by the caller, or finished before a checkpoint was due.
    let wcc = r#"{"algorithm":"wcc"}"#;
    let mut ends = || {
        let error = execute(&pair, PAGERANK, &config(Bytes(1), false), quiet).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        let error = execute(&pair, PAGERANK, &config(Bytes::gib(1), false), &mut stop).unwrap_err();
        assert!(error.to_string().contains("enough"), "{error}");
        let done = execute(&pair, wcc, &config(Bytes::gib(1), false), quiet).unwrap();
        assert_eq!(done.counters.checkpoints, 0);
    };
    ends();
    assert!(!above.exists());
    std::fs::create_dir(&above).unwrap();
    ends();
    assert!(above.exists() && !directory.exists());
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("state-0.bin"), "somebody's").unwrap();
    ends();
    let quiet = &mut |_: &str, _: u64, _: u64, _: &str| Ok(());
    let error = execute(&pair, PAGERANK, &config(Bytes::gib(1), true), quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let left: Vec<_> =
        std::fs::read_dir(&directory).unwrap().map(|one| one.unwrap().path()).collect();
    assert_eq!(left, [directory.join("state-0.bin")]);
}

#[test]
fn a_first_checkpoint_that_fails_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir(&root).unwrap();
    // After the directory: the state, its length, and the record before it gets its name.
    for at in 1..6 {
        let disk = Arc::new(FaultDisk::new(&root, FaultPlan { at, kind: FaultKind::Eio }));
        let stopped = open(disk, &root, false).and_then(|checkpoints| {
            compute("pagerank", &mut grid(None).with_checkpoints(checkpoints))
        });
        assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 0, "{at}");
    }
}

#[test]
fn a_second_wish_to_stop_is_granted_at_once() {
    let pair = Pair::skewed(true);
    let mut calls = 0;
    let mut stop = |what: &str, _, _, _: &str| {
        calls += u32::from(what == "iteration");
        if calls > 2 { Err(Error::new(ErrorKind::Interrupted, "stopped")) } else { Ok(()) }
    };
    // Without room for pins, the pass takes long enough to be interrupted.
    let config = config(&pair, Bytes::gib(1), false, 1e6);
    assert!(execute(&pair, PAGERANK, &config, &mut stop).is_err());
    assert!(pair.root().join("kept/checkpoint.json").exists());
}

#[test]
fn checkpoints_of_something_else_are_refused() {
    let pair = Pair::new(&Csc::power_law(12_000, 60_000, 5), false, Order::Degree);
    let quiet = &mut |_: &str, _: u64, _: u64, _: &str| Ok(());
    let resumed = config(&pair, Bytes::gib(1), true, 0.0);
    let error = execute(&pair, PAGERANK, &resumed, quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("does not exist"), "{error}");
    let done = execute(&pair, PAGERANK, &config(&pair, Bytes::gib(1), false, 0.0), quiet).unwrap();
    assert!(done.counters.checkpoints > 0);
    let other = PAGERANK.replace("0.85", "0.9");
    let error = execute(&pair, &other, &resumed, quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("algorithm {"), "{error}");
    assert!(!error.to_string().contains("max_iterations"), "{error}");
    let another = Pair::new(&Csc::power_law(12_000, 60_000, 6), false, Order::Degree);
    let error = execute(&another, PAGERANK, &RunConfig { ..resumed.clone() }, quiet).unwrap_err();
    assert!(error.to_string().contains("graph ["), "{error}");
    let record = pair.root().join("kept/checkpoint.json");
    let text = std::fs::read_to_string(&record).unwrap();
    std::fs::write(&record, text.replace("\"version\": 1", "\"version\": 2")).unwrap();
    let error = execute(&pair, PAGERANK, &resumed, quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Version, "{error}");
    std::fs::write(&record, &text[..text.len() / 2]).unwrap();
    let error = execute(&pair, PAGERANK, &resumed, quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let other = text.replace("\"bytes\": ", "\"bytes\": 1");
    assert_ne!(other, text);
    std::fs::write(&record, other).unwrap();
    let error = execute(&pair, PAGERANK, &resumed, quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("checksum"), "{error}");
    std::fs::write(&record, text).unwrap();
    let held = FileLock::acquire(&pair.root().join("kept/checkpoint.lock")).unwrap();
    let error = execute(&pair, PAGERANK, &resumed, quiet).unwrap_err();
    assert!(error.to_string().contains("another process holds it"), "{error}");
    drop(held);
    for state in ["state-0.bin", "state-1.bin"] {
        let path = pair.root().join("kept").join(state);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let error = execute(&pair, PAGERANK, &resumed, quiet).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    // An algorithm without checkpoints ignores existing ones.
    let found = execute(&pair, r#"{"algorithm":"scc"}"#, &resumed, quiet).unwrap();
    assert_eq!(found.counters.checkpoints, 0);
}
