//! Runs whose budget is smaller than the state of the nodes: they give the bits of runs in memory,
//! move the planned bytes, and handle failures.

mod fixture;

use std::path::Path;

use fixture::Pair;
use outercore_analytics::algorithms::degrees::{self, DegreeName};
use outercore_analytics::algorithms::label_propagation::LabelPropagation;
use outercore_analytics::algorithms::{bfs, kcore, label_propagation, pagerank, sssp, wcc};
use outercore_analytics::state::{Slots, Spill};
use outercore_analytics::{
    Algorithm, CheckpointConfig, Flow, Inputs, MemoryRun, NodeValue, Outcome, Passes, Raw,
    RunConfig, RunPlan, Values, deliver, plan, run, stream,
};
use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_grid::Order;
use outercore_io::Backend;
use outercore_testkit::Csc;
use proptest::prelude::*;

const PAGERANK: &str = r#"{"algorithm":"pagerank","damping":0.85,"max_iterations":3,"tolerance":0,"weights":null,"reverse":false}"#;

const ALL: [&str; 8] = [
    PAGERANK,
    r#"{"algorithm":"pagerank","damping":0.85,"max_iterations":50,"tolerance":1e-4,"weights":"w","reverse":true}"#,
    r#"{"algorithm":"bfs","source":3,"direction":"both"}"#,
    r#"{"algorithm":"sssp","source":3,"weights":"w","direction":"out"}"#,
    r#"{"algorithm":"wcc"}"#,
    r#"{"algorithm":"label_propagation","max_iterations":4}"#,
    r#"{"algorithm":"label_propagation","max_iterations":9,"update":"asynchronous","seed":3}"#,
    r#"{"algorithm":"degrees","which":"total"}"#,
];

fn request(text: &str) -> Algorithm {
    serde_json::from_str(text).unwrap()
}

fn execute(pair: &Pair, algorithm: &Algorithm, config: &RunConfig) -> Result<Outcome> {
    run(&pair.data_set, algorithm, Inputs::default(), config, &mut |_, _, _, _| Ok(()))
}

fn config(memory: Bytes, threads: usize) -> RunConfig {
    RunConfig { memory, threads: Some(threads), build: false, ..RunConfig::default() }
}

/// The least sufficient budget, from the message for an insufficient one.
fn least(pair: &Pair, algorithm: &Algorithm, threads: usize) -> Bytes {
    let error =
        plan(&pair.data_set, algorithm, Inputs::default(), &config(Bytes(1), threads)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    least_of(&error)
}

fn least_of(error: &Error) -> Bytes {
    let text = error.to_string();
    text.split("works is ").nth(1).unwrap().lines().next().unwrap().parse().unwrap()
}

/// The exact least budget; messages round it up to `told`. One byte less is rejected.
fn exactly(told: Bytes, plan: impl Fn(Bytes) -> Result<RunPlan>) -> Bytes {
    let least = plan(told).unwrap().least;
    assert!(least <= told && told.0 - least.0 < 110 << 10, "{least} {told}");
    assert_eq!(plan(least).unwrap().least, least);
    assert_eq!(plan(Bytes(least.0 - 1)).unwrap_err().kind(), ErrorKind::Budget);
    least
}

/// The values as bits, in memory or in a file.
fn bits(values: &Values) -> Vec<u64> {
    match values {
        Values::I32(values) => values.iter().map(|&value| value as u64).collect(),
        Values::I64(values) => values.iter().map(|&value| value as u64).collect(),
        Values::F64(values) => values.iter().map(|value| value.to_bits()).collect(),
        Values::File(file) => {
            let bytes = std::fs::read(file.path()).unwrap();
            let size = file.dtype.size();
            let data = &bytes[bytes.len() - size * file.len as usize..];
            data.chunks_exact(size)
                .map(|value| match size {
                    4 => i32::from_le_bytes(value.try_into().unwrap()) as u64,
                    _ => u64::from_le_bytes(value.try_into().unwrap()),
                })
                .collect()
        }
    }
}

/// Names in the data set's directory.
fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A graph whose state is larger than the buffers of a run.
fn large(symmetric: bool, order: Order) -> Pair {
    let mut edges = Vec::new();
    for (at, edge) in
        fixture::edge_list(&Csc::power_law(300_000, 900_000, 5)).into_iter().enumerate()
    {
        edges.push(edge);
        // Every node has an edge.
        if at < 300_000 {
            edges.push((at as u64, (at as u64 * 7 + 1) % 300_000));
        }
    }
    Pair::with_log2(&Csc::from_edges(300_000, &edges), symmetric, order, 14)
}

#[test]
fn results_are_those_of_a_run_in_memory() {
    for (symmetric, order) in [(false, Order::Degree), (true, Order::Natural)] {
        let pair = large(symmetric, order);
        // The other algorithms are tested on any graph below.
        for text in ALL {
            let algorithm = request(text);
            let expected = execute(&pair, &algorithm, &config(Bytes::gib(1), 2)).unwrap();
            assert!(expected.plan.spill.is_none());
            let before = names(pair.root());
            for (threads, extra) in [(2, 0), (1, 1_000_000)] {
                let budget = Bytes(least(&pair, &algorithm, threads).0 + extra);
                let config = config(budget, threads);
                let found = execute(&pair, &algorithm, &config).unwrap();
                let what = format!("{text} {budget} {threads} {:?}", found.plan.spill);
                assert!(found.plan.peak() <= budget, "{what} {:?}", found.plan);
                assert!(bits(&found.values) == bits(&expected.values), "{what}");
                assert_eq!(found.facts, expected.facts, "{what}");
                assert_eq!(names(pair.root()), before, "{text}");
                if extra == 0 {
                    let spill = found.plan.spill.expect("the least budget keeps no state");
                    assert!(spill.groups > 3, "{what}");
                }
            }
        }
    }
}

/// All algorithms that can store their state in scratch files, on a grid in memory; values and
/// facts as text.
fn compute(kind: usize, run: &mut MemoryRun, source: u64) -> String {
    fn told<T: NodeValue + std::fmt::Debug>(run: &mut MemoryRun, raw: Raw<T>) -> String {
        let facts = serde_json::to_string(&raw.facts).unwrap();
        format!("{facts} {:?}", deliver(run, raw, &|_| 0.1).unwrap())
    }
    let nodes = run.shape().nodes;
    let ranks = |run: &mut MemoryRun, weighted: bool, reverse| {
        let teleport = pagerank::Teleport::given(nodes, vec![source], vec![1.0]).unwrap();
        let options = pagerank::Pagerank {
            weights: weighted.then(|| "weight".into()),
            reverse,
            tolerance: if weighted { 1e-3 } else { 0.0 },
            max_iterations: if weighted { 200 } else { 5 },
            ..Default::default()
        };
        pagerank::pagerank(run, &options, &teleport).unwrap()
    };
    let flow = [Flow::Along, Flow::Against, Flow::Both][kind % 3];
    match kind {
        0..3 => {
            bfs::bfs(run, &bfs::Search::new(&[source], flow)).map(|raw| told(run, raw)).unwrap()
        }
        3..6 => sssp::sssp(run, &sssp::Search::new(&[source], kind > 3, flow))
            .map(|raw| told(run, raw))
            .unwrap(),
        6 => wcc::wcc(run).map(|raw| told(run, raw)).unwrap(),
        7 => kcore::kcore(run).map(|raw| told(run, raw)).unwrap(),
        8 => label_propagation::label_propagation(
            run,
            &LabelPropagation { max_iterations: 4, ..Default::default() },
        )
        .map(|raw| told(run, raw))
        .unwrap(),
        9 => degrees::degrees(run, DegreeName::Total).map(|raw| told(run, raw)).unwrap(),
        kind => {
            let raw = ranks(run, kind % 2 == 0, kind > 11);
            told(run, raw)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn results_of_any_graph_are_those_of_a_run_in_memory(
        nodes in 1u64..120,
        edges in prop::collection::vec((any::<u32>(), any::<u32>(), 0u8..9), 0..300),
        (symmetric, natural, local) in any::<(bool, bool, bool)>(),
        (group, sources, log2) in (1usize..9, 1usize..9, 1u32..5),
        (kind, source, working) in (0usize..14, any::<u64>(), 0u64..3_000),
    ) {
        let edges: Vec<(u64, u64, f64)> = edges
            .into_iter()
            .map(|(from, to, weight)| {
                let from = u64::from(from) % nodes;
                // Chains connect neighbouring partitions, random graphs do not.
                let to = if local { (from + u64::from(to % 3)) % nodes } else { u64::from(to) % nodes };
                (from, to, f64::from(weight) / 3.0)
            })
            .collect();
        let order = if natural { Order::Natural } else { Order::Degree };
        let new = || {
            MemoryRun::new(nodes, &edges, symmetric, order, log2).with_working(Bytes(working))
        };
        let source = source % nodes;
        let expected = compute(kind, &mut new(), source);
        let directory = tempfile::tempdir().unwrap();
        let slots = Slots { group, sources, room: Bytes(100) };
        let spill = Spill::create(directory.path(), Backend::Threads, slots).unwrap();
        let mut run = new().with_spill(spill);
        prop_assert_eq!(compute(kind, &mut run, source), expected);
    }
}

#[test]
fn the_plan_says_what_a_pass_moves() {
    let mut spilled = 0;
    for symmetric in [false, true] {
        let pair = large(symmetric, Order::Degree);
        for text in [
            PAGERANK,
            r#"{"algorithm":"pagerank","damping":0.85,"max_iterations":3,"tolerance":0,"weights":"w","reverse":true}"#,
            r#"{"algorithm":"pagerank","damping":0.85,"max_iterations":40,"tolerance":1e-2,"weights":null,"reverse":false}"#,
        ] {
            let algorithm = request(text);
            let least = least(&pair, &algorithm, 2);
            for extra in [0, 700_000, 1_500_000] {
                let config = config(Bytes(least.0 + extra), 2);
                let planned = plan(&pair.data_set, &algorithm, Inputs::default(), &config).unwrap();
                let Some(spill) = planned.spill else { continue };
                let found = execute(&pair, &algorithm, &config).unwrap();
                assert_eq!(found.plan, planned);
                assert_eq!(found.counters.spill.unwrap().most, planned.disk, "{text} {planned:?}");
                let weighted = usize::from(planned.weighted);
                let passes = &found.counters.by_pass[weighted..];
                assert!(passes.len() >= 2, "{}", passes.len());
                for (at, pass) in passes.iter().enumerate() {
                    let what = format!("{text} {extra} {at} {planned:?}");
                    assert_eq!(pass.spill_read, spill.read_per_pass.0, "{what}");
                    assert_eq!(pass.spill_written, spill.written_per_pass.0, "{what}");
                    let first = at + weighted == 0;
                    let bytes =
                        if first { planned.bytes_first_pass } else { planned.bytes_per_pass };
                    assert_eq!(pass.bytes, bytes.0, "{what}");
                }
                spilled += 1;
            }
        }
    }
    assert!(spilled > 9, "{spilled} runs kept state in scratch files");
}

#[test]
fn only_an_algorithm_whose_state_has_to_fit_is_told_so() {
    let pair = large(false, Order::Degree);
    let told = |text| {
        let error = execute(&pair, &request(text), &config(Bytes(1), 2)).unwrap_err().to_string();
        assert!(error.contains("hint: raise `memory`"), "{error}");
        error.contains("the state of this algorithm has to fit")
    };
    assert!(told(r#"{"algorithm":"scc"}"#));
    assert!(!told(PAGERANK));
    let quiet = &mut |_: &str, _: u64, _: u64, _: &str| Ok(());
    let opened = stream(&pair.data_set, None, Bytes(0), &config(Bytes(1), 2), quiet);
    let error = opened.err().unwrap().to_string();
    assert!(error.contains("too small for a stream on"), "{error}");
    assert!(!error.contains("has to fit"), "{error}");
}

#[test]
fn the_plan_knows_of_personalization_and_checkpoints() {
    let pair = large(false, Order::Degree);
    let personalization = Some(((0..300_000).step_by(7).collect(), vec![1.5; 42_858]));
    let inputs = || Inputs { personalization: personalization.clone() };
    let kept = pair.root().join("kept");
    for text in [PAGERANK, ALL[2], ALL[3], ALL[4], ALL[5]] {
        let algorithm = request(text);
        let ranks = text == PAGERANK;
        let given = || if ranks { inputs() } else { Inputs::default() };
        for memory in [Bytes(1), Bytes::mib(64)] {
            let config = RunConfig {
                checkpoint: Some(CheckpointConfig {
                    directory: kept.clone(),
                    seconds: 0.0,
                    resume: false,
                }),
                ..config(memory, 2)
            };
            let least = match plan(&pair.data_set, &algorithm, given(), &config) {
                Ok(planned) => planned.least,
                Err(error) => exactly(least_of(&error), |memory| {
                    let config = RunConfig { memory, ..config.clone() };
                    plan(&pair.data_set, &algorithm, given(), &config)
                }),
            };
            let config = RunConfig { memory: memory.max(least), ..config };
            let planned = plan(&pair.data_set, &algorithm, given(), &config).unwrap();
            let what = format!("{text} {memory} {planned:?}");
            assert_eq!(planned.least, least, "{what}");
            let plain = RunConfig { checkpoint: None, ..config.clone() };
            let without = plan(&pair.data_set, &algorithm, Inputs::default(), &plain).unwrap();
            assert!(without.least < least && without.checkpoint.is_none(), "{what}");
            let found = run(&pair.data_set, &algorithm, given(), &config, &mut |_, _, _, _| Ok(()));
            let found = found.unwrap();
            assert_eq!(found.plan, planned);
            assert_eq!(found.counters.peak_state, planned.state, "{what}");
            let (count, bytes) = (found.counters.checkpoints, found.counters.checkpoint_bytes);
            match planned.checkpoint {
                Some(checkpoint) => {
                    assert!(count > 0, "{what}");
                    assert_eq!(bytes, count * checkpoint.bytes.0, "{what}");
                    let states = ["state-0.bin", "state-1.bin"].map(|name| kept.join(name));
                    let sizes = states.map(|path| path.metadata().map_or(0, |found| found.len()));
                    assert!(sizes.iter().sum::<u64>() <= checkpoint.disk.0, "{what}");
                }
                None => {
                    assert!(algorithm.name() == "wcc" && planned.spill.is_none(), "{what}");
                    assert_eq!((count, bytes), (0, 0));
                }
            }
            if ranks {
                // Divisors and the teleport vector are in memory, or are read once per pass.
                assert_eq!(planned.spill.is_some(), memory == Bytes(1));
                for pass in &found.counters.by_pass {
                    // Checkpoints read the shown state between passes.
                    let read = planned.spill.map_or(0, |spill| spill.read_per_pass.0);
                    assert_eq!(pass.spill_read, read, "{what}");
                }
            }
            assert_eq!(kept.exists(), count > 0, "{what}");
            if count > 0 {
                std::fs::remove_dir_all(&kept).unwrap();
            }
        }
    }
}

#[test]
fn a_larger_budget_moves_less() {
    let pair = large(false, Order::Degree);
    let algorithm = request(PAGERANK);
    let least = least(&pair, &algorithm, 1);
    let mut last = u64::MAX;
    for part in 0..8u64 {
        let config = config(Bytes(least.0 + 300_000 * part), 1);
        let plan = plan(&pair.data_set, &algorithm, Inputs::default(), &config).unwrap();
        let Some(spill) = plan.spill else { break };
        let moved = spill.read_per_pass.0 + plan.bytes_per_pass.0;
        assert!(moved <= last, "{part}: {moved} after {last}");
        last = moved;
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let pair = Pair::skewed(true);
    for name in ["scc", "triangles"] {
        let algorithm = request(&format!(r#"{{"algorithm":"{name}"}}"#));
        let error = execute(&pair, &algorithm, &config(Bytes::mib(1), 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        let text = error.to_string();
        assert!(text.contains("the least that works is"), "{text}");
        assert!(text.contains("the state of this algorithm has to fit"), "{text}");
    }
    let pair = large(true, Order::Natural);
    let algorithm = request(PAGERANK);
    let least = least(&pair, &algorithm, 1);
    let nowhere = pair.root().join("graph.json");
    let config = RunConfig { scratch: Some(nowhere), ..config(least, 1) };
    let error = execute(&pair, &algorithm, &config).unwrap_err().to_string();
    assert!(error.contains("scratch directory `"), "{error}");
}

#[test]
fn the_wish_to_stop_ends_a_run_and_leaves_nothing() {
    let pair = large(false, Order::Natural);
    let algorithm = request(PAGERANK);
    let config = config(least(&pair, &algorithm, 2), 2);
    let before = names(pair.root());
    let mut calls = 0;
    let mut stop = |_: &str, _, _, _: &str| {
        calls += 1;
        if calls < 3 { Ok(()) } else { Err(Error::new(ErrorKind::Interrupted, "stopped")) }
    };
    let error = run(&pair.data_set, &algorithm, Inputs::default(), &config, &mut stop).unwrap_err();
    assert_eq!(error.to_string(), "stopped");
    assert_eq!(names(pair.root()), before);
}
