//! The reads and hits of epochs match the forecast.

mod common;

use common::{PATIENCE, base};
use outercore_cache::Policy;
use outercore_core::{Bytes, CacheCounters, ErrorKind, ReadCounters};
use outercore_pipeline::{
    Advance, EpochForecast, Forecast, Hotness, Loader, LoaderConfig, TopologyMode,
};
use outercore_store::dataset::DataSet;
use outercore_testkit::Csc;

/// Hits and reads of features, and of topology, in an epoch.
fn epoch(loader: &mut Loader, number: u64) -> (CacheCounters, ReadCounters, ReadCounters) {
    loader.take_counters();
    let mut epoch = loader.epoch(number, 0).unwrap();
    while epoch.advance(PATIENCE).unwrap() == Advance::Batch {}
    loader.finish(epoch).unwrap();
    let (counters, _, _) = loader.take_counters();
    (counters.cache, counters.feature_reads, counters.topology_reads)
}

fn settings() -> Vec<LoaderConfig> {
    let (resident, paged) = (Bytes::kib(1900), Bytes::mib(3));
    let budget = |memory| LoaderConfig { memory, batch_size: 8, ..base() };
    let few = LoaderConfig { constant_share: Some(0.3), group: Some(2), ..budget(resident) };
    let few = LoaderConfig { topology: TopologyMode::Resident, ..few };
    vec![
        few.clone(),
        LoaderConfig { policy: Policy::Lru, look_ahead: 0, ..few.clone() },
        LoaderConfig { hotness: Hotness::None, look_ahead: 3, ..few.clone() },
        LoaderConfig {
            topology: TopologyMode::Paged,
            memory: paged,
            group: None,
            constant_share: None,
            ..few
        },
        budget(Bytes::mib(64)),
    ]
}

#[test]
fn epochs_read_and_hit_what_was_forecast() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::power_law(20_000, 60_000, 1);
    common::write(directory.path(), &graph);
    let seeds: Vec<u64> = (0..20_000).step_by(40).collect();
    for config in settings() {
        let said = format!("{config:?}");
        let dataset = DataSet::open(directory.path()).unwrap();
        let mut loader = Loader::new(dataset, Some(seeds.clone()), config).unwrap();
        let forecast = loader.forecast().unwrap();
        assert_eq!(forecast.traced, 2 * loader.num_batches(), "{said}");
        assert_eq!(forecast.batches, loader.num_batches(), "{said}");
        let fits = loader.plan().unwrap().holds_all_rows();
        for (number, expected) in [(0, forecast.first), (1, forecast.later)] {
            let (cache, features, topology) = epoch(&mut loader, number);
            let rows = expected.rows;
            assert_eq!(rows.accesses, cache.accesses as f64, "{said}");
            assert_eq!(rows.misses, cache.misses as f64, "{said}");
            assert!((expected.hit_ratio - cache.hit_ratio()).abs() < 1e-12, "{said}");
            let fill = if number == 0 { forecast.fill.requests } else { 0.0 };
            assert_eq!(rows.requests + fill, features.requests as f64, "{said}");
            assert_eq!(cache.misses == 0, fits, "{said}: {cache:?}");
            // The expected requests are half of those of both epochs together.
            let near = expected.topology_requests - topology.requests as f64;
            assert!(near.abs() <= 0.1 * topology.requests as f64 + 1.0, "{said}: {near}");
        }
    }
}

#[test]
fn timing_the_stages_delivers_one_group_and_leaves_the_caches_empty() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::power_law(20_000, 60_000, 1));
    let seeds: Vec<u64> = (0..20_000).step_by(40).collect();
    let config = settings().swap_remove(0);
    let open = || {
        let dataset = DataSet::open(directory.path()).unwrap();
        Loader::new(dataset, Some(seeds.clone()), config.clone()).unwrap()
    };
    let mut untried = open();
    let expected = [epoch(&mut untried, 0), epoch(&mut untried, 1)];

    let mut loader = open();
    for _ in 0..2 {
        let mut timed = loader.time_stages().unwrap();
        let mut batches = 0;
        while timed.advance(PATIENCE).unwrap() == Advance::Batch {
            batches += 1;
        }
        loader.finish(timed).unwrap();
        let (counters, _, _) = loader.take_counters();
        assert_eq!((batches, counters.groups), (2, 1));
        assert_eq!(counters.cache.misses, counters.cache.distinct);
    }
    assert_eq!([epoch(&mut loader, 0), epoch(&mut loader, 1)], expected);
    for error in [loader.time_stages().err().unwrap(), loader.forecast().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_feature_file_that_is_back_is_found_by_the_next_try() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::power_law(2000, 6000, 1));
    let features = directory.path().join("nodes/node/x.npy");
    let away = directory.path().join("away.npy");
    let dataset = DataSet::open(directory.path()).unwrap();
    let mut loader = Loader::new(dataset, Some((0..200).collect()), base()).unwrap();
    loader.plan().unwrap();
    std::fs::rename(&features, &away).unwrap();
    for error in [loader.time_stages().err().unwrap(), loader.epoch(0, 0).err().unwrap()] {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    std::fs::rename(&away, &features).unwrap();
    let timed = loader.time_stages().unwrap();
    loader.finish(timed).unwrap();
    assert!(epoch(&mut loader, 0).0.accesses > 0);
}

#[test]
fn visits_decide_in_a_cache_without_a_constant_part() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::power_law(20_000, 60_000, 1));
    let misses = |hotness| {
        let memory = Bytes::kib(2400);
        let few = settings().swap_remove(0);
        let config = LoaderConfig { constant_share: Some(0.0), hotness, memory, ..few };
        let dataset = DataSet::open(directory.path()).unwrap();
        let seeds = (0..20_000).step_by(2).collect();
        let mut loader = Loader::new(dataset, Some(seeds), config).unwrap();
        epoch(&mut loader, 0).0.misses + epoch(&mut loader, 1).0.misses
    };
    let (visits, unknown) = (misses(Hotness::Visits), misses(Hotness::None));
    assert!(visits < unknown, "{visits} misses by visits, {unknown} without");
}

#[test]
fn without_features_and_without_seeds_nothing_is_read() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::power_law(500, 4000, 1));
    for (features, seeds) in [(None, vec![1, 2, 3]), (base().features, vec![])] {
        let dataset = DataSet::open(directory.path()).unwrap();
        let config = LoaderConfig { features, batch_size: 2, ..base() };
        let mut loader = Loader::new(dataset, Some(seeds), config).unwrap();
        let Forecast { first, later, .. } = loader.forecast().unwrap();
        for EpochForecast { rows, .. } in [first, later] {
            assert_eq!((rows.misses, rows.requests, rows.bytes), (0.0, 0.0, 0.0));
        }
    }
}
