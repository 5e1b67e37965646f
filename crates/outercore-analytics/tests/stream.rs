//! Compares passes from disk with the same passes from memory, bit for bit, and tests failures.

mod fixture;

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fixture::{Pair, sim, sums};
use outercore_analytics::algorithms::bfs::Bfs;
use outercore_analytics::algorithms::kcore::Kcore;
use outercore_analytics::algorithms::pagerank::Pagerank;
use outercore_analytics::algorithms::scc::Scc;
use outercore_analytics::algorithms::sssp::Sssp;
use outercore_analytics::algorithms::triangles::Triangles;
use outercore_analytics::algorithms::wcc::Wcc;
use outercore_analytics::algorithms::{bfs, kcore, pagerank, scc, sssp, triangles, wcc};
use outercore_analytics::{
    Algorithm, EdgeProgram, Flow, FlowName, Inputs, Passes, PathResult, RunConfig, Selection,
    Source, Values, deliver, run,
};
use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_grid::{Arcs, Order, PIECE_EDGES};
use outercore_io::sim::{Fault, SimConfig};
use outercore_io::{Engine, EngineConfig, available_backends};
use outercore_testkit::Csc;

#[test]
fn sums_have_the_same_bits_for_all_threads_budgets_and_back_ends() {
    for symmetric in [false, true] {
        let pair = Pair::skewed(symmetric);
        let expected = sums(&mut pair.memory()).unwrap();
        let backends = available_backends().into_iter().filter(|b| b.missing.is_none());
        for backend in backends.map(|found| found.backend) {
            for threads in [1, 2, 7] {
                for (pinned, window) in [(0, 600_000), (700_000, 1_300_000), (1 << 30, 2 << 20)] {
                    let plan = pair.plan(Bytes(pinned), Bytes(window));
                    let engine =
                        EngineConfig { backend, staging: Bytes::mib(8), depth: 16, tier: None };
                    let mut quiet = |_: &str, _, _, _: &str| Ok(());
                    let engine = Engine::open(engine).unwrap();
                    let mut run = pair.open(plan, engine, threads, &mut quiet);
                    let found = sums(&mut run).unwrap();
                    let what = format!("{symmetric} {backend} {threads} {pinned}");
                    assert!(found == expected, "{what}");
                    let counters = run.counters();
                    assert_eq!(counters.pinned_bytes > 0, pinned > 0, "{what}");
                    assert_eq!(counters.passes, 4, "{what}");
                }
            }
        }
    }
}

#[test]
fn blocks_of_several_pieces_are_summed_piece_by_piece() {
    let graph = Csc::power_law(30_000, 1_200_000, 5);
    for symmetric in [false, true] {
        let pair = Pair::with_log2(&graph, symmetric, Order::Degree, 14);
        let grid = pair.grid();
        let cut = grid.pieces().iter().filter(|piece| piece.edges as usize == PIECE_EDGES);
        assert!(cut.count() > 4);
        let engine = Engine::open(EngineConfig::default());
        let plan = pair.plan(Bytes(700_000), Bytes(1_300_000));
        let mut quiet = |_: &str, _, _, _: &str| Ok(());
        let mut run = pair.open(plan, engine.unwrap(), 2, &mut quiet);
        assert!(sums(&mut run).unwrap() == sums(&mut pair.memory()).unwrap(), "{symmetric}");
    }
}

#[test]
fn sums_have_the_same_bits_whatever_order_the_device_answers_in() {
    let pair = Pair::skewed(true);
    let expected = sums(&mut pair.memory()).unwrap();
    for seed in 0..6 {
        let late = [(3, Fault::Delay(Duration::from_millis(5))), (9, Fault::Short(4096))];
        let config =
            SimConfig { seed, short_share: 0.2, script: late.into(), ..Default::default() };
        let plan = pair.plan(Bytes(400_000 * seed), Bytes(900_000));
        let mut quiet = |_: &str, _, _, _: &str| Ok(());
        let mut run = pair.open(plan, sim(config), 3, &mut quiet);
        assert!(sums(&mut run).unwrap() == expected, "seed {seed}");
    }
}

#[test]
fn a_failing_device_ends_the_pass_with_its_error() {
    let pair = Pair::skewed(true);
    for (nth, fault, kind) in [
        (5, Fault::Error(5), ErrorKind::Io),
        (40, Fault::Error(5), ErrorKind::Io),
        (12, Fault::Never, ErrorKind::Io),
    ] {
        let script: BTreeMap<_, _> = [(nth, fault)].into();
        let config = SimConfig { script, ..SimConfig::default() };
        let plan = pair.plan(Bytes(300_000), Bytes(700_000));
        let mut quiet = |_: &str, _, _, _: &str| Ok(());
        let mut run = pair.open(plan, sim(config), 2, &mut quiet);
        let error = sums(&mut run).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("file `"), "{error}");
    }
}

#[test]
fn a_corrupt_piece_is_named() {
    let pair = Pair::skewed(false);
    let grid = pair.grid();
    let piece = grid.pieces()[grid.pieces().len() / 2];
    let path = &grid.blocks().path;
    let mut bytes = fs::read(path).unwrap();
    bytes[(grid.blocks().data_offset + piece.offset) as usize + piece.len as usize / 2] ^= 1;
    fs::write(path, bytes).unwrap();
    for threads in [1, 4] {
        let plan = pair.plan(Bytes(0), Bytes(700_000));
        let mut quiet = |_: &str, _, _, _: &str| Ok(());
        let engine = Engine::open(EngineConfig::default()).unwrap();
        let error = sums(&mut pair.open(plan, engine, threads, &mut quiet)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let number = format!("piece {}: ", grid.pieces().len() / 2);
        assert!(error.to_string().contains(&number), "{error}");
        assert!(error.to_string().contains("hint: "), "{error}");
    }
}

/// Continues only after `look_around` was called.
struct Patient<'a>(&'a AtomicBool);

impl EdgeProgram for Patient<'_> {
    type Source = ();
    type Target = ();

    fn apply(&self, _: &Arcs<'_>, _: &(), _: &mut ()) {
        while !self.0.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    }
}

struct Panics;

impl EdgeProgram for Panics {
    type Source = ();
    type Target = ();

    fn apply(&self, _: &Arcs<'_>, _: &(), _: &mut ()) {
        panic!("expected by the test");
    }
}

#[test]
fn the_wish_to_stop_and_a_panic_end_a_pass_and_the_run_works_on() {
    let pair = Pair::skewed(true);
    let looked = AtomicBool::new(false);
    let mut refuse = |_: &str, _, _, _: &str| {
        if looked.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Interrupted, "stopped by the user"))
    };
    let plan = pair.plan(Bytes(200_000), Bytes(700_000));
    let mut run = pair.open(plan, sim(SimConfig::default()), 2, &mut refuse);
    let parts = run.shape().partitions();
    let all = vec![true; parts];
    let select = Selection { sources: &all, targets: &all, flow: Flow::Along, weights: false };
    let (sources, mut targets) = (vec![(); parts], vec![(); parts]);
    let error = run.pass(&Patient(&looked), &sources, &mut targets, &select).unwrap_err();
    assert_eq!(error.to_string(), "stopped by the user");
    let error = run.pass(&Panics, &sources, &mut targets, &select).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    let expected = sums(&mut pair.memory()).unwrap();
    assert!(sums(&mut run).unwrap() == expected);
}

/// The callback of a stream.
type Each<'a> = dyn FnMut(usize, usize, &Arcs<'_>) -> Result<()> + 'a;

#[test]
fn a_stream_brings_the_pieces_in_file_order_with_their_arcs() {
    for symmetric in [false, true] {
        let pair = Pair::skewed(symmetric);
        let list = |run: &mut dyn FnMut(&mut Each<'_>)| {
            let mut list = Vec::new();
            run(&mut |row, column, arcs| {
                let mut total = 0.0;
                arcs.for_each(|from, to, weight| {
                    total = total * 0.99 + (from * 3 + to) as f64 * weight;
                });
                list.push((row, column, total.to_bits()));
                Ok(())
            });
            list
        };
        let mut memory = pair.memory();
        let all = vec![true; memory.shape().partitions()];
        let select = Selection { sources: &all, targets: &all, flow: Flow::Both, weights: true };
        let expected = list(&mut |each| memory.stream(&select, each).unwrap());
        let plan = pair.plan(Bytes(300_000), Bytes(700_000));
        let mut quiet = |_: &str, _, _, _: &str| Ok(());
        let mut run = pair.open(plan, sim(SimConfig::default()), 1, &mut quiet);
        for _ in 0..2 {
            assert!(list(&mut |each| run.stream(&select, each).unwrap()) == expected);
        }
        let mut calls = 0;
        let error = run.stream(&select, &mut |_, _, _| {
            calls += 1;
            if calls == 3 { Err(Error::invalid("enough")) } else { Ok(()) }
        });
        assert_eq!((error.unwrap_err().to_string().as_str(), calls), ("enough", 3));
    }
}

#[test]
fn places_and_nodes_are_those_of_the_grid_in_memory() {
    let natural = Pair::new(&Csc::random(20_000, 600_000, 3), false, Order::Natural);
    for pair in [Pair::skewed(true), natural] {
        let mut memory = pair.memory();
        // Room for one partition at a time.
        let plan = pair.plan(Bytes(0), Bytes(3_000));
        let mut quiet = |_: &str, _, _, _: &str| Ok(());
        let mut run = pair.open(plan, sim(SimConfig::default()), 2, &mut quiet);
        assert_eq!(run.shape().connected, memory.shape().connected);
        for part in 0..memory.shape().partitions() {
            assert_eq!(run.nodes(part).unwrap(), memory.nodes(part).unwrap());
            for which in [outercore_analytics::Degree::In, outercore_analytics::Degree::Out] {
                let expected = memory.degrees(which, part).unwrap();
                assert_eq!(run.degrees(which, part).unwrap(), expected);
            }
        }
        let some: Vec<u64> = (0..pair.nodes).rev().step_by(997).chain([5, 5]).collect();
        assert_eq!(run.place(&some).unwrap(), memory.place(&some).unwrap());
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        run.isolated(&mut |ids| found.extend_from_slice(ids)).unwrap();
        memory.isolated(&mut |ids| expected.extend_from_slice(ids)).unwrap();
        assert_eq!(found, expected);
    }
}

#[test]
fn results_from_disk_are_those_from_memory() {
    for symmetric in [false, true] {
        let pair = Pair::skewed(symmetric);
        let mut memory = pair.memory();
        let teleport = pagerank::Teleport::uniform(pair.nodes);
        let options = pagerank::Pagerank::default();
        let raw = pagerank::pagerank(&mut memory, &options, &teleport).unwrap();
        let ranks = deliver(&mut memory, raw, &|node| teleport.of(node)).unwrap();
        let raw = bfs::bfs(&mut memory, &bfs::Search::new(&[7], Flow::Along)).unwrap();
        let levels = deliver(&mut memory, raw, &|_| 0.0).unwrap();
        let raw = sssp::sssp(&mut memory, &sssp::Search::new(&[7], true, Flow::Along)).unwrap();
        let distances = deliver(&mut memory, raw, &|_| 0.0).unwrap();
        let mut whole = |algorithm: &str| {
            let raw = match algorithm {
                "wcc" => wcc::wcc(&mut memory),
                "scc" => scc::scc(&mut memory),
                "kcore" => kcore::kcore(&mut memory),
                _ => triangles::triangles(&mut memory),
            };
            Values::I64(deliver(&mut memory, raw.unwrap(), &|_| 0.0).unwrap())
        };
        let expected = [
            (
                Algorithm::Pagerank(Pagerank {
                    damping: 0.85,
                    max_iterations: 100,
                    tolerance: 1e-6,
                    weights: None,
                    reverse: false,
                }),
                Values::F64(ranks),
            ),
            (
                Algorithm::Bfs(Bfs {
                    source: Source::Node(7),
                    flow: FlowName::Out,
                    cutoff: None,
                    result: PathResult::Distances,
                }),
                Values::I32(levels),
            ),
            (
                Algorithm::Sssp(Sssp {
                    source: Source::Node(7),
                    weights: Some("w".into()),
                    flow: FlowName::Out,
                    cutoff: None,
                    result: PathResult::Distances,
                }),
                Values::F64(distances),
            ),
            (Algorithm::Wcc(Wcc {}), whole("wcc")),
            (Algorithm::Scc(Scc {}), whole("scc")),
            (Algorithm::Kcore(Kcore {}), whole("kcore")),
            (Algorithm::Triangles(Triangles {}), whole("triangles")),
        ];
        for (algorithm, expected) in &expected {
            for (memory, threads) in [(Bytes::mib(20), 1), (Bytes::gib(1), 3)] {
                let config = RunConfig { memory, threads: Some(threads), ..Default::default() };
                let mut quiet = |_: &str, _, _, _: &str| Ok(());
                let outcome =
                    run(&pair.data_set, algorithm, Inputs::default(), &config, &mut quiet).unwrap();
                let name = algorithm.name();
                assert!(outcome.values == *expected, "{name} {symmetric} {memory} {threads}");
            }
        }
    }
}

#[test]
fn requests_that_cannot_be_met_are_refused_by_name() {
    let pair = Pair::skewed(true);
    let refuse = |request: &str, config: &RunConfig| {
        let algorithm: Algorithm = serde_json::from_str(request).unwrap();
        let mut quiet = |_: &str, _, _, _: &str| Ok(());
        run(&pair.data_set, &algorithm, Inputs::default(), config, &mut quiet).unwrap_err()
    };
    let normal = RunConfig::default();
    let error = refuse(r#"{"algorithm":"bfs","source":70000,"direction":"out"}"#, &normal);
    let expected = "bfs: source 70000, the graph has 30000 nodes (0 to 29999)";
    assert_eq!(error.to_string(), expected);
    let missing = r#"{"algorithm":"sssp","source":0,"weights":"v","direction":"out"}"#;
    let error = refuse(missing, &normal);
    assert_eq!(error.to_string(), "edge array `v` is not in the data set\nhint: it has w");
    let small = RunConfig { memory: Bytes::mib(1), ..normal };
    let error = refuse(r#"{"algorithm":"wcc"}"#, &small);
    assert_eq!(error.kind(), ErrorKind::Budget);
    assert!(error.to_string().contains("too small for wcc on"), "{error}");
    assert!(pair.root().exists());
}

#[test]
fn graphs_with_next_to_nothing_in_them_have_results_of_their_length() {
    let requests = [
        r#"{"algorithm":"pagerank","damping":0.85,"max_iterations":50,"tolerance":1e-6,"weights":null,"reverse":false}"#,
        r#"{"algorithm":"bfs","source":0,"direction":"both"}"#,
        r#"{"algorithm":"sssp","source":0,"weights":"w","direction":"in"}"#,
        r#"{"algorithm":"wcc"}"#,
        r#"{"algorithm":"scc"}"#,
        r#"{"algorithm":"radii","sources":4,"seed":1,"direction":"out"}"#,
        r#"{"algorithm":"betweenness","sources":null,"samples":null,"seed":0,"normalized":true}"#,
        r#"{"algorithm":"kcore"}"#,
        r#"{"algorithm":"label_propagation","max_iterations":3}"#,
        r#"{"algorithm":"triangles"}"#,
        r#"{"algorithm":"degrees","which":"total"}"#,
    ];
    for (nodes, edges) in [(0, &[][..]), (1, &[]), (6, &[]), (1, &[(0, 0)]), (4, &[(2, 1)])] {
        for symmetric in [false, true] {
            let pair = Pair::new(&Csc::from_edges(nodes, edges), symmetric, Order::Degree);
            for request in requests {
                let algorithm: Algorithm = serde_json::from_str(request).unwrap();
                let mut quiet = |_: &str, _, _, _: &str| Ok(());
                let config = RunConfig::default();
                let outcome =
                    run(&pair.data_set, &algorithm, Inputs::default(), &config, &mut quiet);
                let outcome =
                    outcome.unwrap_or_else(|error| panic!("{request} {nodes} {edges:?}: {error}"));
                let len = match &outcome.values {
                    Values::I32(values) => values.len(),
                    Values::I64(values) => values.len(),
                    Values::F64(values) => values.len(),
                    Values::File(file) => file.len as usize,
                };
                assert_eq!(len as u64, nodes, "{request} {edges:?}");
            }
        }
    }
}

#[test]
fn a_path_takes_a_pass_for_each_node_and_all_are_short() {
    let pair = Pair::new(&Csc::path(3_000), false, Order::Natural);
    let algorithm = Algorithm::Bfs(Bfs {
        source: Source::Node(0),
        flow: FlowName::Out,
        cutoff: None,
        result: PathResult::Distances,
    });
    let mut quiet = |_: &str, _, _, _: &str| Ok(());
    let config = RunConfig::default();
    let outcome = run(&pair.data_set, &algorithm, Inputs::default(), &config, &mut quiet).unwrap();
    assert_eq!(outcome.values, Values::I32((0..3_000).collect()));
    assert_eq!(outcome.counters.passes, 2_999);
    // One read of the grid, and one of the order each for placing the source and for delivery.
    assert!(outcome.counters.reads.requests <= 12, "{:?}", outcome.counters.reads);
}
