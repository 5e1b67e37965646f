//! Tests `kill -9` at random moments, while several threads write, one folds and one answers. The
//! next start must open the data set with every acknowledged update.
//!
//! `OUTERCORE_KILL_ROUNDS` sets the number of kills; the test starts itself as the process to kill.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outercore_core::{Bytes, Stream};
use outercore_format::{Rows, Update, keys};
use outercore_live::{LiveConfig, LiveGraph, Unwatched};
use outercore_pipeline::{Ask, Degrees, Features, Precision, RequestConfig, Requests, Sharing};
use outercore_store::check::{CheckOptions, check};
use outercore_store::dataset::DataSet;
use outercore_store::delta::Applied;
use outercore_testkit::LiveModel;

const ROUNDS: u64 = 200;

/// Number of threads that write at the same time.
const WRITERS: u64 = 4;

/// Tells a process that it is the one to be killed, and gives the root of the data set.
const ROOT: &str = "OUTERCORE_KILL_ROOT";

/// Number of columns of the features.
const COLUMNS: usize = 3;

fn update_node(node: u64, value: f32) -> Update {
    let row = [value; COLUMNS].iter().flat_map(|value| value.to_le_bytes()).collect();
    Update::UpdateNode { node, rows: Rows::from([(keys::FEATURES.to_owned(), row)]) }
}

/// Configuration of the answering thread.
fn reading() -> RequestConfig {
    RequestConfig {
        features: Some(Features { key: keys::FEATURES.into(), precision: Precision::Exact }),
        fan_outs: vec![5],
        replace: false,
        most_nodes: 8,
        degrees: Degrees::None,
        memory: Bytes::mib(16),
        reserved: Bytes(0),
        growth: Bytes::kib(64),
        threads: 1,
        sharing: Sharing::default(),
    }
}

/// Answers from the newest snapshot until it is killed, like a server.
fn answer_for_ever(graph: &LiveGraph, first: Requests) {
    let (mut open, mut generation) = (Some(first), 0);
    let mut draws = Stream::new(std::process::id().into(), WRITERS).uniform(0, 0, 0);
    loop {
        let view = graph.snapshot();
        if view.generation != generation {
            let before = open.take().filter(|_| generation + 1 == view.generation);
            let followed =
                before.map(|before| before.follow(&view.data_set, &view.replaced).unwrap());
            open = followed.flatten();
            generation = view.generation;
        }
        let mut requests =
            open.take().unwrap_or_else(|| Requests::open(&view.data_set, &reading()).unwrap());
        let ask = Ask {
            delta: Some(&view.delta),
            seed: 1,
            requests: vec![vec![draws.below(view.delta.num_nodes())]],
            is_known: &|_| false,
        };
        let check = |_: usize, found: &outercore_pipeline::Neighbourhood<'_>| {
            assert_eq!(found.x.len(), COLUMNS * found.sampled.nodes.len());
            Ok(())
        };
        requests.answer(ask, &check).unwrap();
        open = Some(requests);
    }
}

fn add_edge(source: u64, target: u64) -> Update {
    let rows = Rows::from([(keys::EDGE_WEIGHTS.to_owned(), vec![0; 4])]);
    Update::AddEdge { source, target, rows }
}

/// Writes until it is killed, and prints each acknowledged edge: number, id, ends.
fn write_for_ever(root: &Path) {
    // A short log, so that it is folded again and again.
    let config = LiveConfig { memory: Bytes::mib(1), log: Bytes::kib(2), queue: 64, rest: 0 };
    let graph = LiveGraph::open(root, config, Arc::new(Unwatched)).unwrap();
    let nodes = graph.snapshot().delta.num_nodes();
    // The first updates may be folded before the arrays have been opened.
    let first = graph.snapshot();
    let value = std::process::id() as f32;
    let all: Vec<Update> = (0..nodes).map(|node| update_node(node, value)).collect();
    drop(graph.write(all));
    let requests = Requests::open(&first.data_set, &reading()).unwrap();
    drop(first);
    println!("ready");
    std::thread::scope(|scope| {
        scope.spawn(|| answer_for_ever(&graph, requests));
        for writer in 0..WRITERS {
            let graph = &graph;
            scope.spawn(move || {
                let mut draws = Stream::new(std::process::id().into(), writer).uniform(0, 0, 0);
                loop {
                    let (source, target) = (draws.below(nodes), draws.below(nodes));
                    // The server rejects writes while too many updates wait to be folded.
                    let Ok(ack) = graph.write(vec![add_edge(source, target)]) else { continue };
                    assert!(graph.snapshot().delta.lsn() >= ack.lsn, "acknowledged and not seen");
                    let [Applied::Edge(id)] = ack.applied[..] else { panic!("{ack:?}") };
                    let line = format!("{} {id} {source} {target}\n", ack.lsn);
                    // One write per line, because a pipe accepts a short write as a whole.
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_killed_process_loses_nothing_that_it_has_acknowledged() {
    if let Some(root) = std::env::var_os(ROOT) {
        return write_for_ever(root.as_ref());
    }
    let rounds =
        std::env::var("OUTERCORE_KILL_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("data");
    std::fs::create_dir(&root).unwrap();
    let model = LiveModel::random(50, 100, true, 1);
    model.write(&root);
    let mut acknowledged = BTreeSet::new();
    let (mut last, mut folds) = (0, BTreeSet::new());
    for round in 0..rounds {
        let new = killed(&root, round);
        last = new.iter().map(|edge| edge[0]).max().unwrap_or(last);
        acknowledged.extend(new.into_iter().map(|[_, id, source, target]| (id, source, target)));
        if round % 10 == 9 || round + 1 == rounds {
            // In the other rounds the next process finds the unchanged log.
            let data_set = outercore_live::open(&root, &|| Ok(())).unwrap();
            assert_there(&data_set, &acknowledged, last, round);
        }
        folds.insert(DataSet::open(&root).unwrap().manifest().live.as_ref().unwrap().lsn);
    }
    let report = check(&root, &CheckOptions::default(), &mut |_, _| Ok(())).unwrap();
    assert!(report.is_sound(), "{:#?}", report.problems);
    println!("{rounds} kills, {} acknowledged, {} folds", acknowledged.len(), folds.len());
    assert!(acknowledged.len() as u64 > 3 * rounds, "{}", acknowledged.len());
}

/// Starts a writer, kills it after some time, and returns its acknowledged edges.
fn killed(root: &Path, round: u64) -> Vec<[u64; 4]> {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["a_killed_process_loses_nothing", "--nocapture", "--test-threads=1"])
        .env(ROOT, root)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(writer.stdout.take().unwrap());
    let is_ready = AtomicBool::new(false);
    let mut told = Vec::new();
    std::thread::scope(|scope| {
        let (is_ready, writer) = (&is_ready, &mut writer);
        scope.spawn(move || {
            while !is_ready.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(200));
            }
            let mut draws = Stream::new(round, 0).uniform(0, 0, 0);
            std::thread::sleep(Duration::from_micros(draws.below(150_000)));
            writer.kill().unwrap();
        });
        for line in lines.lines() {
            let line = line.unwrap();
            if line.contains("ready") {
                is_ready.store(true, Ordering::Relaxed);
            }
            let numbers: Vec<u64> =
                line.split(' ').filter_map(|number| number.parse().ok()).collect();
            told.extend(<[u64; 4]>::try_from(numbers));
        }
        // The process may have ended without a kill; a check below detects this.
        is_ready.store(true, Ordering::Relaxed);
    });
    let mut said = String::new();
    std::io::Read::read_to_string(&mut writer.stderr.take().unwrap(), &mut said).unwrap();
    let status = writer.wait().unwrap();
    assert_eq!(status.signal(), Some(9), "round {round}: it ended by itself: {said}");
    told
}

/// Checks that every acknowledged edge is in the arrays, in both directions, and that no number was
/// assigned twice.
fn assert_there(
    data_set: &DataSet,
    acknowledged: &BTreeSet<(u64, u64, u64)>,
    last: u64,
    round: u64,
) {
    let lsn = data_set.manifest().live.as_ref().unwrap().lsn;
    assert!(lsn >= last, "round {round}: update {last} acknowledged, {lsn} found");
    let numbers = |key: &str| -> Vec<u64> {
        let bytes = data_set.read_array(key).unwrap();
        let width = data_set.array(key).unwrap().dtype.size();
        let wide = |bytes: &[u8]| {
            let mut wide = [0; 8];
            wide[..width].copy_from_slice(bytes);
            u64::from_le_bytes(wide)
        };
        bytes.chunks(width).map(wide).collect()
    };
    let (ends, sources, ids) =
        (numbers(keys::OFFSETS), numbers(keys::SOURCES), numbers(keys::EDGE_IDS));
    let mut found = BTreeSet::new();
    for (target, ends) in (0..).zip(ends.windows(2)) {
        for place in ends[0] as usize..ends[1] as usize {
            found.insert((ids[place], sources[place], target));
        }
    }
    for &(id, source, target) in acknowledged {
        for edge in [(id, source, target), (id, target, source)] {
            assert!(found.contains(&edge), "round {round}: edge {edge:?} is gone");
        }
    }
}
