//! Passes from disk against the same passes from memory, bit for bit, and what goes wrong on the
//! way.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outercore_analytics::algorithms::{bfs, kcore, pagerank, scc, sssp, triangles, wcc};
use outercore_analytics::{
    Algorithm, EdgeProgram, Flow, FlowName, Inputs, MemoryRun, OnProgress, Passes, PlanInput,
    RunConfig, RunPlan, Selection, StreamOptions, StreamRun, Values, deliver, run, segments,
};
use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_format::{ArrayEntry, Checksum, DType, MANIFEST_FILE, NpyHeader};
use outercore_grid::{Arcs, BuildOptions, Grid, Order, build};
use outercore_io::sim::{Fault, SimConfig, SimReader};
use outercore_io::{Arena, CostModel, Engine, EngineConfig, RealDisk, available_backends};
use outercore_store::dataset::DataSet;
use outercore_testkit::{Csc, Width, write_data_set};

/// Weighted sums of source values, in an order that their bits tell.
struct Sum;

impl EdgeProgram for Sum {
    type Source = Vec<f64>;
    type Target = Vec<f64>;

    fn apply(&self, arcs: &Arcs<'_>, source: &Vec<f64>, target: &mut Vec<f64>) {
        arcs.for_each(|from, to, weight| target[to] += source[from] * f64::from(weight));
    }
}

fn edge_list(graph: &Csc) -> Vec<(u64, u64)> {
    let mut edges = Vec::new();
    for target in 0..graph.num_nodes() as usize {
        let arcs = graph.offsets[target] as usize..graph.offsets[target + 1] as usize;
        edges.extend(graph.sources[arcs].iter().map(|&source| (source, target as u64)));
    }
    edges
}

/// A data set with a grid and the same grid in memory.
struct Pair {
    directory: tempfile::TempDir,
    data_set: DataSet,
    edges: Vec<(u64, u64, f32)>,
    symmetric: bool,
    order: Order,
    nodes: u64,
}

const LOG2: u32 = 9;

impl Pair {
    fn new(graph: &Csc, symmetric: bool, order: Order) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let root = directory.path();
        let listed = edge_list(graph);
        let nodes = graph.num_nodes();
        let weights: Vec<f32> =
            (0..listed.len()).map(|edge| (edge * 7919 % 101) as f32 / 7.0).collect();
        let mut arcs = listed.clone();
        let mut ids: Vec<u64> = (0..listed.len() as u64).collect();
        if symmetric {
            for (id, &(source, target)) in (0..).zip(&listed) {
                if source != target {
                    arcs.push((target, source));
                    ids.push(id);
                }
            }
        }
        let mut csc = Csc::from_edges(nodes, &arcs);
        csc.ids.iter_mut().for_each(|id| *id = ids[*id as usize]);
        write_data_set(root, &csc, Width::Narrow);
        let mut manifest = DataSet::read_manifest(root).unwrap();
        let edges = manifest.edge_types.get_mut("edge").unwrap();
        edges.undirected = symmetric;
        edges.rows = Some(listed.len() as u64);
        let data: &[u8] = bytemuck::cast_slice(&weights);
        let shape = [weights.len() as u64];
        let bytes = [NpyHeader::encode(DType::F32, &shape), data.to_vec()].concat();
        fs::create_dir_all(root.join("edges/edge")).unwrap();
        fs::write(root.join("edges/edge/w.npy"), bytes).unwrap();
        let entry = ArrayEntry::inside("edges/edge/w", DType::F32, &shape, Checksum::of(data));
        manifest.arrays.insert("edges/edge/w".into(), entry);
        fs::write(root.join(MANIFEST_FILE), manifest.to_json()).unwrap();
        let options = BuildOptions {
            weights: Some("w".into()),
            order: Some(order),
            partition_log2: Some(LOG2),
            ..BuildOptions::default()
        };
        let data_set = DataSet::open(root).unwrap();
        build(&RealDisk, &data_set, &options, &mut |_, _, _, _| Ok(())).unwrap();
        let edges =
            listed.iter().zip(&weights).map(|(&(from, to), &weight)| (from, to, weight)).collect();
        let data_set = DataSet::open(root).unwrap();
        Self { directory, data_set, edges, symmetric, order, nodes }
    }

    fn skewed(symmetric: bool) -> Self {
        Self::new(&Csc::power_law(30_000, 500_000, 5), symmetric, Order::Degree)
    }

    fn memory(&self) -> MemoryRun {
        MemoryRun::new(self.nodes, &self.edges, self.symmetric, self.order, LOG2)
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    fn grid(&self) -> Grid {
        Grid::open(&self.data_set).unwrap()
    }

    /// A plan with so much for pins and for reading ahead.
    fn plan(&self, pinned: Bytes, window: Bytes) -> RunPlan {
        let grid = self.grid();
        let segments = segments(grid.pieces());
        assert!(segments.len() > 5, "{} segments", segments.len());
        let plan = RunPlan::new(&PlanInput {
            algorithm: "test",
            budget: Bytes::mib(64),
            threads: 7,
            shape: grid.shape(),
            pieces: grid.pieces().len(),
            segments: &segments,
            weighted: true,
            need: Default::default(),
            cost: &CostModel::default(),
            far: None,
            reads_by_segment: None,
        });
        RunPlan { pinned, window, ..plan.unwrap() }
    }

    fn open<'a>(
        &self,
        plan: RunPlan,
        engine: Engine,
        threads: usize,
        on_progress: OnProgress<'a>,
    ) -> StreamRun<'a> {
        let options = StreamOptions::new(threads);
        StreamRun::open(&self.data_set, self.grid(), plan, engine, &options, on_progress).unwrap()
    }
}

fn sim(config: SimConfig) -> Engine {
    let arena = Arena::new(Bytes::mib(1)).unwrap();
    Engine::over(Box::new(SimReader::open(config)), arena, Duration::from_secs(2))
}

/// Three passes with different selections; the bits of all sums.
fn sums<R: Passes>(run: &mut R) -> Result<Vec<u64>> {
    let parts = run.shape().partitions();
    let mut bits = Vec::new();
    let all = vec![true; parts];
    let some: Vec<bool> = (0..parts).map(|part| part % 3 != 1).collect();
    for (flow, sources, targets, weights) in [
        (Flow::Along, &all, &all, true),
        (Flow::Both, &all, &some, false),
        (Flow::Against, &some, &all, true),
        (Flow::Once, &some, &some, true),
    ] {
        let mut values = Vec::new();
        for part in 0..parts {
            let ids = run.nodes(part)?;
            values.push(ids.iter().map(|&id| 1.0 / (f64::from(id) + 3.0)).collect::<Vec<_>>());
        }
        let mut found: Vec<Vec<f64>> =
            (0..parts).map(|part| vec![0.0; run.shape().partition_len(part)]).collect();
        let select = Selection { sources, targets, flow, weights };
        run.pass(&Sum, &values, &mut found, &select)?;
        bits.extend(found.iter().flatten().map(|sum| sum.to_bits()));
    }
    Ok(bits)
}

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
                        EngineConfig { backend, staging: Bytes::mib(1), depth: 16, tier: None };
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

/// Goes on only when somebody has looked around.
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

/// What a stream calls.
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
                    total = total * 0.99 + (from * 3 + to) as f64 * f64::from(weight);
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
    let natural = Pair::new(&Csc::random(20_000, 400_000, 3), false, Order::Natural);
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
        let options = pagerank::PagerankOptions::default();
        let raw = pagerank::pagerank(&mut memory, &options, &teleport).unwrap();
        let ranks = deliver(&mut memory, raw, &|node| teleport.of(node)).unwrap();
        let raw = bfs::bfs(&mut memory, 7, Flow::Along).unwrap();
        let levels = deliver(&mut memory, raw, &|_| 0.0).unwrap();
        let raw = sssp::sssp(&mut memory, 7, true, Flow::Along).unwrap();
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
                Algorithm::Pagerank {
                    damping: 0.85,
                    max_iterations: 100,
                    tolerance: 1e-6,
                    weights: None,
                    reverse: false,
                },
                Values::F64(ranks),
            ),
            (Algorithm::Bfs { source: 7, flow: FlowName::Out }, Values::I32(levels)),
            (
                Algorithm::Sssp { source: 7, weights: Some("w".into()), flow: FlowName::Out },
                Values::F64(distances),
            ),
            (Algorithm::Wcc {}, whole("wcc")),
            (Algorithm::Scc {}, whole("scc")),
            (Algorithm::Kcore {}, whole("kcore")),
            (Algorithm::Triangles {}, whole("triangles")),
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
    let error = refuse(r#"{"algorithm":"bfs","source":70000,"flow":"out"}"#, &normal);
    let expected = "bfs: source 70000, the graph has 30000 nodes (0 to 29999)";
    assert_eq!(error.to_string(), expected);
    let missing = r#"{"algorithm":"sssp","source":0,"weights":"v","flow":"out"}"#;
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
        r#"{"algorithm":"bfs","source":0,"flow":"both"}"#,
        r#"{"algorithm":"sssp","source":0,"weights":"w","flow":"in"}"#,
        r#"{"algorithm":"wcc"}"#,
        r#"{"algorithm":"scc"}"#,
        r#"{"algorithm":"radii","sources":4,"seed":1,"flow":"out"}"#,
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
                };
                assert_eq!(len as u64, nodes, "{request} {edges:?}");
            }
        }
    }
}

#[test]
fn a_path_takes_a_pass_for_each_node_and_all_are_short() {
    let pair = Pair::new(&Csc::path(3_000), false, Order::Natural);
    let algorithm = Algorithm::Bfs { source: 0, flow: FlowName::Out };
    let mut quiet = |_: &str, _, _, _: &str| Ok(());
    let config = RunConfig::default();
    let outcome = run(&pair.data_set, &algorithm, Inputs::default(), &config, &mut quiet).unwrap();
    assert_eq!(outcome.values, Values::I32((0..3_000).collect()));
    assert_eq!(outcome.counters.passes, 2_999);
    // The grid once, the order to place the source and to deliver.
    assert!(outcome.counters.reads.requests <= 12, "{:?}", outcome.counters.reads);
}
