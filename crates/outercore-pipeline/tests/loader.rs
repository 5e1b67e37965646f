//! A loader delivers the same batches as a naive sampler in memory, for any budget, back end,
//! policy, grouping and number of threads.

mod common;

use common::{Delivered, PATIENCE, base, deliver};
use outercore_cache::Policy;
use outercore_core::{Bytes, ErrorKind, Permutation, Stream};
use outercore_io::Backend;
use outercore_pipeline::{Advance, Hotness, Loader, LoaderConfig, TopologyMode};
use outercore_store::dataset::DataSet;
use outercore_testkit::{Csc, naive_sample};

fn naive(graph: &Csc, seeds: &[u64], config: &LoaderConfig, epoch: u64) -> Vec<Delivered> {
    let order = Permutation::new(seeds.len() as u64, config.seed, epoch);
    let places: Vec<u64> =
        (0..seeds.len() as u64).map(|i| if config.shuffle { order.at(i) } else { i }).collect();
    let fan_outs: Vec<Option<u64>> =
        config.fan_outs.iter().map(|&f| u64::try_from(f).ok()).collect();
    places
        .chunks(config.batch_size as usize)
        .zip(0u64..)
        .map(|(places, batch)| {
            let seeds: Vec<u64> = places.iter().map(|&place| seeds[place as usize]).collect();
            let stream = Stream::new(config.seed, epoch);
            let sampled = naive_sample(graph, stream, batch, &seeds, &fan_outs, config.replace);
            let arrays = config.arrays.iter().map(|key| match key.as_str() {
                "nodes/node/place" => {
                    let rows = sampled.nodes.iter().flat_map(|&node| common::place_of(node));
                    rows.flat_map(i16::to_le_bytes).collect()
                }
                _ => {
                    let ids = sampled.edge_ids.iter();
                    ids.flat_map(|&id| common::weight_of(id).to_le_bytes()).collect()
                }
            });
            Delivered {
                arrays: arrays.collect(),
                features: sampled.nodes.iter().flat_map(|&n| common::feature_row(n)).collect(),
                nodes: sampled.nodes,
                edges: sampled.edges.iter().map(|&(s, t)| (s as i64, t as i64)).collect(),
                edge_ids: sampled.edge_ids,
                input_ids: places.to_vec(),
            }
        })
        .collect()
}

#[test]
fn batches_are_those_of_the_naive_sampler_under_every_setting() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::power_law(500, 4000, 1);
    common::write(directory.path(), &graph);
    let seeds: Vec<u64> = (0..500).step_by(3).collect();
    let expected: Vec<_> = (0..2).map(|epoch| naive(&graph, &seeds, &base(), epoch)).collect();

    let mut settings = Vec::new();
    for backend in [Backend::Auto, Backend::Threads, Backend::Mmap] {
        for topology in [TopologyMode::Resident, TopologyMode::Paged] {
            for threads in [1, 2, 4] {
                settings.push(LoaderConfig { backend, topology, threads, ..base() });
            }
        }
    }
    for policy in [Policy::Window, Policy::Lru] {
        let heat = Hotness::Array("nodes/node/heat".into());
        for hotness in [Hotness::Presample, Hotness::Visits, Hotness::InDegree, heat, Hotness::None]
        {
            for (group, look_ahead) in [(1, 0), (1, 1), (3, 2), (32, 1)] {
                settings.push(LoaderConfig {
                    policy,
                    hotness: hotness.clone(),
                    group: Some(group),
                    look_ahead,
                    constant_share: Some(0.3),
                    ..base()
                });
            }
        }
    }
    for config in settings {
        let dataset = DataSet::open(directory.path()).unwrap();
        let mut loader = Loader::new(dataset, Some(seeds.clone()), config.clone()).unwrap();
        for (epoch, expected) in (0..).zip(&expected) {
            let delivered = deliver(&mut loader, epoch, 0);
            assert!(delivered == *expected, "epoch {epoch} differs under {config:?}");
        }
    }
}

#[test]
fn rows_of_further_arrays_come_with_every_batch_from_memory_and_from_disk() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::power_law(30_000, 200_000, 1);
    common::write(directory.path(), &graph);
    let seeds: Vec<u64> = (0..30_000).step_by(50).collect();
    let arrays = vec!["edges/edge/weight".to_owned(), "nodes/node/place".to_owned()];
    let mut places = Vec::new();
    for features in [Some("nodes/node/x".to_owned()), None] {
        for (memory, group) in [(Bytes::mib(4), None), (Bytes::mib(64), Some(3))] {
            let arrays = arrays.clone();
            let config =
                LoaderConfig { arrays, memory, group, features: features.clone(), ..base() };
            let dataset = DataSet::open(directory.path()).unwrap();
            let mut loader = Loader::new(dataset, Some(seeds.clone()), config.clone()).unwrap();
            for epoch in 0..2 {
                let mut expected = naive(&graph, &seeds, &config, epoch);
                if features.is_none() {
                    expected.iter_mut().for_each(|batch| batch.features.clear());
                }
                let delivered = match features {
                    Some(_) => deliver(&mut loader, epoch, 0),
                    None => common::deliver_without_features(&mut loader, epoch),
                };
                assert!(delivered == expected, "epoch {epoch} differs under {config:?}");
            }
            let plan = loader.plan().unwrap().arrays.unwrap();
            places.push((plan.resident, plan.paged));
        }
    }
    assert!(places.contains(&(2, 0)) && places.iter().any(|&(_, paged)| paged > 0), "{places:?}");
}

#[test]
fn an_array_that_batches_cannot_carry_is_named() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::path(10));
    let dataset = || DataSet::open(directory.path()).unwrap();
    for (key, text) in [
        ("edges/edge/offsets", "expected an array of nodes or of edges"),
        ("nodes/node/nonsense", "has no array `nodes/node/nonsense`"),
    ] {
        let config = LoaderConfig { arrays: vec![key.to_owned()], ..base() };
        let error = Loader::new(dataset(), None, config).err().unwrap();
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_batch_of_too_many_edges_is_refused_before_it_takes_memory() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::path(10));
    for topology in [TopologyMode::Resident, TopologyMode::Paged] {
        let fan_outs = vec![4_000_000_000];
        let config = LoaderConfig { fan_outs, replace: true, topology, ..base() };
        let mut loader =
            Loader::new(DataSet::open(directory.path()).unwrap(), None, config).unwrap();
        let error = loader.plan().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
        assert!(error.to_string().contains("too many for the budget"), "{error}");
    }
}

#[test]
fn ranks_deliver_the_batches_of_one_process_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::power_law(500, 4000, 1);
    common::write(directory.path(), &graph);
    let seeds: Vec<u64> = (0..480).collect();
    let expected = naive(&graph, &seeds, &base(), 1);
    for rank in 0..3 {
        let config = LoaderConfig { rank, world_size: 3, ..base() };
        let dataset = DataSet::open(directory.path()).unwrap();
        let mut loader = Loader::new(dataset, Some(seeds.clone()), config).unwrap();
        let own = expected.iter().skip(rank as usize).step_by(3);
        assert!(deliver(&mut loader, 1, 0).iter().eq(own), "rank {rank}");
    }
}

#[test]
fn an_epoch_goes_on_in_its_middle() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::random(300, 2000, 2);
    common::write(directory.path(), &graph);
    let mut loader = Loader::new(DataSet::open(directory.path()).unwrap(), None, base()).unwrap();
    let whole = deliver(&mut loader, 3, 0);
    assert_eq!(deliver(&mut loader, 3, 7), whole[7..]);
    assert!(deliver(&mut loader, 3, whole.len() as u64).is_empty());
}

#[test]
fn a_batch_is_taken_once_and_its_memory_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::random(300, 2000, 2);
    common::write(directory.path(), &graph);
    let mut loader = Loader::new(DataSet::open(directory.path()).unwrap(), None, base()).unwrap();
    let whole = deliver(&mut loader, 0, 0);
    let mut held = Vec::new();
    let mut run = loader.epoch(0, 0).unwrap();
    for expected in &whole {
        assert_eq!(run.advance(PATIENCE).unwrap(), Advance::Batch);
        let (sampled, input_ids) = run.take_batch().unwrap();
        assert!(run.batch().is_none() && run.take_batch().is_none());
        assert!(sampled.nodes.iter().eq(expected.nodes.iter().copied()));
        assert_eq!(sampled.num_edges(), expected.edges.len());
        assert_eq!(input_ids, expected.input_ids);
        let mut features = vec![f32::NAN; expected.features.len()];
        run.gather(0, &mut features).unwrap();
        assert_eq!(features, expected.features);
        // Some batches are kept for long; most are returned at once.
        if input_ids[0] % 3 == 0 { held.push(sampled) } else { run.shelf().give_back(sampled) }
    }
    loader.finish(run).unwrap();
    assert_eq!(deliver(&mut loader, 0, 0), whole);
}

#[test]
fn an_abandoned_epoch_leaves_a_usable_loader() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::random(300, 2000, 2);
    common::write(directory.path(), &graph);
    let config = LoaderConfig { group: Some(2), constant_share: Some(0.1), ..base() };
    let mut loader = Loader::new(DataSet::open(directory.path()).unwrap(), None, config).unwrap();
    let whole = deliver(&mut loader, 0, 0);
    for stop_after in 0..6 {
        let mut run = loader.epoch(0, 0).unwrap();
        for _ in 0..stop_after {
            assert_eq!(run.advance(PATIENCE).unwrap(), Advance::Batch);
        }
        loader.finish(run).unwrap();
        assert_eq!(deliver(&mut loader, 0, 0), whole, "after {stop_after} batches");
    }
}

#[test]
fn a_budget_below_the_least_is_refused_and_the_least_works() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::random(20_000, 200_000, 2);
    common::write(directory.path(), &graph);
    let open = |memory: Bytes| {
        let config = LoaderConfig { memory, batch_size: 256, ..base() };
        Loader::new(DataSet::open(directory.path()).unwrap(), None, config).unwrap()
    };
    for budget in [Bytes(1), Bytes::kib(700), Bytes::kib(1200), Bytes::kib(1500)] {
        let error = open(budget).plan().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
        let text = error.to_string();
        let least = text.split("the least that works is ").nth(1).expect(&text);
        let least: Bytes = least.lines().next().unwrap().parse().unwrap();
        let mut loader = open(least);
        loader.plan().unwrap();
        assert_eq!(deliver(&mut loader, 0, 0).len() as u64, loader.num_batches());
    }
}

#[test]
fn a_topology_that_leaves_no_room_for_rows_is_paged() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::random(20_000, 1_000_000, 2));
    let open = |memory: Bytes, topology| {
        let config = LoaderConfig { memory, topology, batch_size: 512, ..base() };
        Loader::new(DataSet::open(directory.path()).unwrap(), None, config).unwrap()
    };
    let least = |topology| {
        let fits = |&kib: &u64| open(Bytes::kib(kib), topology).plan().is_ok();
        (1..64).map(|mib| mib << 10).find(fits).unwrap()
    };
    assert!(least(TopologyMode::Auto) < least(TopologyMode::Resident));
    assert!(least(TopologyMode::Auto) <= least(TopologyMode::Paged));
}

#[test]
fn a_seed_that_is_no_node_is_named() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::path(10));
    let dataset = DataSet::open(directory.path()).unwrap();
    let error = Loader::new(dataset, Some(vec![3, 10]), base()).err().unwrap();
    assert_eq!(error.to_string(), "input node 10 at place 1, expected ids below 10");
}

#[test]
fn a_feature_file_cut_after_opening_ends_in_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::random(20_000, 100_000, 2);
    common::write(directory.path(), &graph);
    let config = LoaderConfig { constant_share: Some(0.0), ..base() };
    let mut loader = Loader::new(DataSet::open(directory.path()).unwrap(), None, config).unwrap();
    loader.plan().unwrap();
    let path = directory.path().join("nodes/node/x.npy");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let mut run = loader.epoch(0, 0).unwrap();
    file.set_len(8192).unwrap();
    let error = loop {
        match run.advance(PATIENCE) {
            Ok(Advance::Batch) => {}
            Ok(other) => panic!("{other:?} instead of an error"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("x.npy"), "{error}");
    loader.finish(run).unwrap();
}

#[test]
fn counters_add_up() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::power_law(2000, 20_000, 3);
    common::write(directory.path(), &graph);
    let config = LoaderConfig { constant_share: Some(0.5), group: Some(2), ..base() };
    let mut loader = Loader::new(DataSet::open(directory.path()).unwrap(), None, config).unwrap();
    deliver(&mut loader, 0, 0);
    let (counters, spans, dropped) = loader.take_counters();
    let cache = counters.cache;
    assert_eq!(cache.distinct, cache.constant_hits + cache.dynamic_hits + cache.misses);
    assert!(cache.accesses >= cache.distinct);
    assert_eq!(counters.assemble.items, loader.num_batches());
    assert_eq!(counters.sample.items, loader.num_batches());
    assert!(counters.feature_reads.bytes >= counters.feature_reads.useful_bytes);
    assert!(!spans.is_empty() && dropped == 0);
}
