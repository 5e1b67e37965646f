//! Results do not depend on the content of far memory, nor on failures of its server.

mod fixture;

use std::sync::Arc;

use fixture::Pair;
use outercore_analytics::algorithms::bfs::Bfs;
use outercore_analytics::algorithms::kcore::Kcore;
use outercore_analytics::algorithms::pagerank::Pagerank;
use outercore_analytics::algorithms::sssp::Sssp;
use outercore_analytics::algorithms::wcc::Wcc;
use outercore_analytics::{
    Algorithm, Counters, FlowName, Inputs, Outcome, PathResult, RunConfig, Source, Values, plan,
    run, run_through,
};
use outercore_core::{Bytes, ErrorKind, Result};
use outercore_far::{
    Contents, FarOptions, FarTier, SegmentGroup, ServerConfig, ServerHandle, Token, serve,
};
use outercore_grid::Order;
use outercore_io::{Engine, EngineConfig};
use outercore_testkit::{Csc, HeapRemote};

fn options() -> FarOptions {
    let options = FarOptions::new("10.0.0.9:7411".parse().unwrap());
    FarOptions { chunk: Bytes::kib(64), queue_length: 8, ..options }
}

fn tier(server: &HeapRemote, options: &FarOptions) -> Arc<FarTier> {
    Arc::new(FarTier::over_remote(Arc::new(server.client()), options).unwrap())
}

fn pagerank(iterations: u32) -> Algorithm {
    Algorithm::Pagerank(Pagerank {
        damping: 0.85,
        max_iterations: iterations,
        tolerance: 0.0,
        weights: None,
        reverse: false,
    })
}

fn bfs() -> Algorithm {
    Algorithm::Bfs(Bfs {
        source: Source::Node(7),
        flow: FlowName::Out,
        cutoff: None,
        result: PathResult::Distances,
    })
}

fn sssp() -> Algorithm {
    Algorithm::Sssp(Sssp {
        source: Source::Node(7),
        weights: Some("w".into()),
        flow: FlowName::Out,
        cutoff: None,
        result: PathResult::Distances,
    })
}

fn config() -> RunConfig {
    RunConfig { memory: Bytes::mib(20), threads: Some(2), build: false, ..RunConfig::default() }
}

fn near(pair: &Pair, algorithm: &Algorithm, config: &RunConfig) -> Result<Outcome> {
    let mut quiet = |_: &str, _, _, _: &str| Ok(());
    run(&pair.data_set, algorithm, Inputs::default(), config, &mut quiet)
}

fn through(
    tier: Arc<FarTier>,
    pair: &Pair,
    algorithm: &Algorithm,
    config: &RunConfig,
) -> Result<Outcome> {
    let mut quiet = |_: &str, _, _, _: &str| Ok(());
    run_through(Some(tier), &pair.data_set, algorithm, Inputs::default(), config, &mut quiet)
}

/// Number of requests answered by far memory, and by the disk.
fn served(counters: &Counters) -> (u64, u64) {
    let far = counters.far.as_ref().unwrap();
    (far.far_requests, far.disk_requests)
}

#[test]
fn results_are_the_same_for_every_far_ratio_and_with_and_without_buffering() {
    for symmetric in [false, true] {
        let pair = Pair::skewed(symmetric);
        for algorithm in
            [pagerank(6), bfs(), sssp(), Algorithm::Wcc(Wcc {}), Algorithm::Kcore(Kcore {})]
        {
            let expected = near(&pair, &algorithm, &config()).unwrap();
            for far_ratio in [Some(0.0), Some(0.4), Some(1.0), None] {
                for buffering in [true, false] {
                    let what =
                        format!("{} {symmetric} {far_ratio:?} {buffering}", algorithm.name());
                    let server = HeapRemote::new(Bytes::mib(64));
                    let config = RunConfig { far_ratio, buffering, ..config() };
                    let outcome =
                        through(tier(&server, &options()), &pair, &algorithm, &config).unwrap();
                    assert!(outcome.values == expected.values, "{what}");
                    let (far, disk) = served(&outcome.counters);
                    let plan = &outcome.plan;
                    assert_eq!(far > 0, plan.far_bytes.0 > 0, "{what}: {plan:?}");
                    assert!(disk > 0, "{what}: node arrays are on disk");
                    if let Some(ratio) = far_ratio {
                        assert!(plan.far_ratio >= ratio, "{what}: {}", plan.far_ratio);
                    }
                    assert!(outcome.counters.prepare_seconds > 0.0, "{what}");
                    // A client that has ended has returned all memory.
                    assert_eq!(server.used(), Bytes(0), "{what}");
                }
            }
        }
    }
}

#[test]
fn state_goes_to_scratch_files_while_edges_are_far() {
    for symmetric in [false, true] {
        let graph = Csc::power_law(300_000, 900_000, 5);
        let pair = Pair::with_log2(&graph, symmetric, Order::Degree, 14);
        for algorithm in
            [pagerank(4), bfs(), sssp(), Algorithm::Wcc(Wcc {}), Algorithm::Kcore(Kcore {})]
        {
            let expected = near(&pair, &algorithm, &RunConfig { build: false, ..config() });
            let expected = expected.unwrap();
            for far_ratio in [None, Some(0.4), Some(1.0)] {
                let small =
                    RunConfig { memory: Bytes(1), far: Some(options()), far_ratio, ..config() };
                let error = plan(&pair.data_set, &algorithm, Inputs::default(), &small);
                let text = error.unwrap_err().to_string();
                let least = text.split("works is ").nth(1).unwrap().lines().next().unwrap();
                let least: Bytes = least.parse().unwrap();
                for memory in [least, Bytes(least.0 + 700_000)] {
                    let config = RunConfig { memory, ..small.clone() };
                    let what = format!("{} {symmetric} {far_ratio:?} {memory}", algorithm.name());
                    let planned = plan(&pair.data_set, &algorithm, Inputs::default(), &config);
                    let planned = planned.unwrap();
                    let server = HeapRemote::new(Bytes::mib(64));
                    let found = through(tier(&server, &options()), &pair, &algorithm, &config);
                    let found = found.unwrap();
                    assert_eq!(found.plan, planned, "{what}");
                    assert!(planned.peak().0 <= memory.0, "{what}: {planned:?}");
                    assert!(planned.spill.is_some() || memory > least, "{what}");
                    assert!(values(&found) == values(&expected), "{what}");
                    assert_eq!(served(&found.counters).0 > 0, planned.far_bytes.0 > 0, "{what}");
                    assert!(far_ratio.is_none_or(|ratio| planned.far_ratio >= ratio), "{what}");
                    if far_ratio == Some(1.0) {
                        assert_eq!(planned.pinned, Bytes(0), "{what}");
                    }
                    assert_eq!(server.used(), Bytes(0), "{what}");
                }
            }
        }
    }
}

/// The values as bytes, in memory or in a file.
fn values(outcome: &Outcome) -> Vec<u8> {
    match &outcome.values {
        Values::I32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Values::I64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Values::F64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Values::File(file) => {
            let bytes = std::fs::read(file.path()).unwrap();
            bytes[bytes.len() - file.dtype.size() * file.len as usize..].to_vec()
        }
    }
}

#[test]
fn a_server_without_room_holds_what_fits_and_the_disk_the_rest() {
    let pair = Pair::skewed(true);
    let expected = near(&pair, &pagerank(5), &config()).unwrap();
    let config = RunConfig { far_ratio: Some(1.0), ..config() };
    let all = Bytes::mib(64);
    let mut last = 0;
    for size in [Bytes::kib(4), Bytes::kib(300), Bytes::kib(900), all] {
        let server = HeapRemote::new(size);
        let outcome = through(tier(&server, &options()), &pair, &pagerank(5), &config).unwrap();
        assert!(outcome.values == expected.values, "{size}");
        let placed = outcome.counters.far.as_ref().unwrap().placed_bytes;
        assert!(placed <= size.0 && placed >= last, "{placed} of {size}");
        assert_eq!(placed >= outcome.plan.far_bytes.0, size == all, "{placed}");
        last = placed;
    }
}

#[test]
fn a_server_that_dies_at_any_time_changes_no_bits_or_ends_the_run_by_name() {
    let pair = Pair::skewed(true);
    let expected = near(&pair, &bfs(), &config()).unwrap();
    let config = RunConfig { far_ratio: Some(1.0), ..config() };
    let (mut lost, mut ended) = (0, 0);
    for requests in (0..8).chain((8..160).step_by(19)) {
        let server = HeapRemote::new(Bytes::mib(64));
        server.die_after(requests);
        let outcome = through(tier(&server, &options()), &pair, &bfs(), &config).unwrap();
        assert!(outcome.values == expected.values, "{requests}");
        lost += u32::from(outcome.counters.far.unwrap().lost.is_some());

        let server = HeapRemote::new(Bytes::mib(64));
        let options = FarOptions { fallback: false, ..options() };
        let tier = tier(&server, &options);
        server.die_after(requests);
        match through(tier, &pair, &bfs(), &config) {
            Ok(outcome) => assert!(outcome.values == expected.values, "{requests}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{requests}: {error}");
                assert!(error.to_string().contains("10.0.0.9:7411"), "{requests}: {error}");
                ended += 1;
            }
        }
    }
    assert!(lost > 5 && ended > 5, "{lost} {ended}");
}

#[test]
fn files_that_are_kept_on_the_server_are_found_and_not_copied() {
    let pair = Pair::skewed(true);
    let expected = near(&pair, &sssp(), &config()).unwrap();
    let server = HeapRemote::new(Bytes::mib(64));
    let keeper = tier(&server, &options());
    let mut engine = Engine::open(EngineConfig::default()).unwrap();
    let grid = pair.grid();
    let weights = grid.weights().unwrap();
    for array in [grid.blocks(), weights, grid.order().unwrap()] {
        let contents = Contents {
            name: &array.content_name(),
            checksum: &array.checksum,
            data: array.data_offset..array.data_offset + array.data_len(),
        };
        keeper.keep(&array.path, &contents, &mut engine, &mut |_, _| Ok(())).unwrap();
    }
    let used = server.used();
    let outcome = through(tier(&server, &options()), &pair, &sssp(), &config()).unwrap();
    assert!(outcome.values == expected.values);
    let far = outcome.counters.far.unwrap();
    assert_eq!((far.placed_bytes, far.disk_requests), (0, 0), "{far:?}");
    assert!(far.found_bytes >= used.0 && far.far_requests > 0, "{far:?}");
    assert_eq!(server.used(), used);
}

struct Served {
    directory: tempfile::TempDir,
    server: ServerHandle,
}

impl Served {
    fn start(unix: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let token = Token::create_file(&directory.path().join("token")).unwrap();
        let socket = format!("unix:{}", directory.path().join("socket").display());
        let address = if unix { socket.as_str() } else { "127.0.0.1:0" };
        let config = ServerConfig::new(address.parse().unwrap(), Bytes::mib(64), token);
        Self { server: serve(config).unwrap(), directory }
    }

    fn options(&self) -> FarOptions {
        let token_file = Some(self.directory.path().join("token"));
        FarOptions { token_file, ..FarOptions::new(self.server.addresses()[0].clone()) }
    }
}

#[test]
fn results_through_a_server_are_those_without() {
    let pair = Pair::skewed(true);
    let algorithms = [pagerank(6), bfs(), sssp()];
    let expected = algorithms.each_ref().map(|one| near(&pair, one, &config()).unwrap().values);
    for unix in [false, true] {
        let served = Served::start(unix);
        for (algorithm, expected) in algorithms.iter().zip(&expected) {
            for (far_ratio, buffering) in [(Some(0.5), true), (Some(1.0), true), (None, false)] {
                let far = Some(served.options());
                let config = RunConfig { far, far_ratio, buffering, ..config() };
                let outcome = near(&pair, algorithm, &config).unwrap();
                assert!(outcome.values == *expected, "{} {unix} {far_ratio:?}", algorithm.name());
                let far = outcome.counters.far.unwrap();
                assert_eq!(far.far_requests > 0, outcome.plan.far_bytes.0 > 0, "{far:?}");
                assert_eq!(far.failed_over, 0, "{far:?}");
            }
        }
        served.server.stop();
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let pair = Pair::skewed(true);
    let served = Served::start(false);
    let far = served.options();
    let address = far.address.to_string();
    served.server.stop();
    let config = RunConfig { far: Some(far), ..config() };
    let error = near(&pair, &bfs(), &config).unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
}

#[test]
fn far_ratios_that_cannot_be_met_are_refused_with_what_would_work() {
    let pair = Pair::skewed(true);
    let error = near(&pair, &bfs(), &RunConfig { far_ratio: Some(0.5), ..config() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("`far=HOST:PORT`"), "{error}");
    let other_grid = RunConfig { reads_by_segment: Some(vec![1; 3]), ..config() };
    let error = plan(&pair.data_set, &bfs(), Inputs::default(), &other_grid).unwrap_err();
    assert!(error.to_string().contains("profile has 3 segments"), "{error}");
    let far = Some(options());
    let wrong = RunConfig { far: far.clone(), far_ratio: Some(1.2), ..config() };
    let error = plan(&pair.data_set, &bfs(), Inputs::default(), &wrong).unwrap_err();
    assert_eq!(error.to_string().lines().next(), Some("far ratio 1.2, expected 0 to 1"));
    let tight = |far_ratio, memory| {
        let config = RunConfig { far: far.clone(), far_ratio: Some(far_ratio), memory, ..config() };
        plan(&pair.data_set, &bfs(), Inputs::default(), &config)
    };
    let all_away = tight(1.0, Bytes::mib(1)).unwrap_err().to_string();
    let all_kept = tight(0.0, Bytes::mib(1)).unwrap_err();
    assert_eq!(all_kept.kind(), ErrorKind::Budget);
    let least = |text: &str| -> Bytes {
        text.split("works is ").nth(1).unwrap().lines().next().unwrap().parse().unwrap()
    };
    let (away, kept) = (least(&all_away), least(&all_kept.to_string()));
    assert!(away < kept, "{away} {kept}");
    assert_eq!(tight(1.0, away).unwrap().pinned, Bytes(0));
    assert_eq!(tight(0.0, kept).unwrap().far_bytes, Bytes(0));
    assert!(tight(0.0, away).is_err());
}

#[test]
fn a_profile_says_what_was_wanted_and_what_stays_follows_it() {
    let pair = Pair::skewed(false);
    // Distances in a graph whose far side is never reached: some segments are needed often, some
    // never.
    let profiled = RunConfig { profile: true, ..config() };
    let outcome = near(&pair, &sssp(), &profiled).unwrap();
    let profile = outcome.profile.unwrap();
    assert!(near(&pair, &sssp(), &config()).unwrap().profile.is_none());
    assert_eq!(profile.reads_by_segment.len() as u64, outcome.plan.segments);
    let most = u64::from(profile.reads_by_segment.iter().copied().max().unwrap());
    assert!(most > 0 && most <= outcome.counters.passes, "{most}");
    let groups: Vec<SegmentGroup> = profile.classes.iter().map(|class| class.group).collect();
    for group in [1u8, 2, 3, 4] {
        assert!(groups.contains(&group.try_into().unwrap()), "{groups:?}");
    }
    let edges: u64 = profile
        .classes
        .iter()
        .filter(|class| class.group >= SegmentGroup::Edges)
        .map(|class| class.bytes.0)
        .sum();
    assert_eq!(edges, outcome.plan.bytes_first_pass.0);

    // A profile in which only the last segments are needed keeps these.
    let count = outcome.plan.segments as usize;
    let reads: Vec<u32> = (0..count).map(|segment| u32::from(segment + 3 > count)).collect();
    let server = HeapRemote::new(Bytes::mib(64));
    let kept = RunConfig {
        profile: true,
        far_ratio: Some(0.9),
        reads_by_segment: Some(reads.clone()),
        ..config()
    };
    let again = through(tier(&server, &options()), &pair, &sssp(), &kept).unwrap();
    assert!(again.values == outcome.values);
    let classes = again.profile.unwrap().classes;
    let local: u64 = classes
        .iter()
        .filter(|class| class.group >= SegmentGroup::Edges)
        .map(|class| class.local.0)
        .sum();
    assert_eq!(local, again.plan.pinned.0);
    assert!(local > 0, "{classes:?}");
}
