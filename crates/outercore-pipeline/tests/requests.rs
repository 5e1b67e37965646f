//! The answer to a request equals the result of a naive sampler in memory, with or without other
//! requests.

mod common;

use std::sync::Mutex;

use outercore_core::{Bytes, ErrorKind, Stream};
use outercore_format::Update;
use outercore_io::{CostModel, EngineConfig};
use outercore_pipeline::{Ask, Degrees, Features, Precision, RequestConfig, Requests, Sharing};
use outercore_store::dataset::DataSet;
use outercore_store::delta::Delta;
use outercore_store::paged::PagedTopology;
use outercore_testkit::{Csc, LiveModel, naive_sample};

fn config(memory: Bytes) -> RequestConfig {
    RequestConfig {
        features: Some(Features { key: "nodes/node/x".into(), precision: Precision::Exact }),
        fan_outs: vec![4, 3],
        replace: false,
        most_nodes: 8,
        degrees: Degrees::None,
        memory,
        reserved: Bytes(0),
        growth: Bytes(0),
        threads: 2,
        sharing: Sharing::default(),
    }
}

fn ask(delta: Option<&Delta>, seed: u64, asked: Vec<Vec<u64>>) -> Ask<'_> {
    Ask { delta, seed, requests: asked, is_known: &|_| false }
}

/// Nodes, rows and degrees of each request.
type Found = (Vec<u64>, Vec<f32>, Option<Vec<f32>>);

fn answered(requests: &mut Requests, seed: u64, asked: &[Vec<u64>]) -> Vec<Found> {
    answered_with(requests, None, seed, asked)
}

fn paged(dataset: &DataSet) -> PagedTopology {
    let config = EngineConfig::default();
    PagedTopology::open(dataset, config, CostModel::default(), false).unwrap()
}

fn answered_with(
    requests: &mut Requests,
    delta: Option<&Delta>,
    seed: u64,
    asked: &[Vec<u64>],
) -> Vec<Found> {
    let found = Mutex::new(vec![None; asked.len()]);
    requests
        .answer(ask(delta, seed, asked.to_vec()), &|place, found_here| {
            let nodes = found_here.sampled.nodes.iter().collect();
            let answer: Found = (nodes, found_here.x.to_vec(), found_here.degrees.clone());
            assert!(found.lock().unwrap()[place].replace(answer).is_none());
            Ok(())
        })
        .unwrap();
    found.into_inner().unwrap().into_iter().map(Option::unwrap).collect()
}

#[test]
fn requests_get_what_the_naive_sampler_gives_alone_or_together_within_any_budget() {
    let directory = tempfile::tempdir().unwrap();
    let graph = Csc::power_law(30_000, 200_000, 1);
    common::write(directory.path(), &graph);
    let asked: Vec<Vec<u64>> =
        (0..40u64).map(|i| (0..i % 8 + 1).map(|k| i * 613 % 30_000 + k % 3).collect()).collect();
    for (memory, reorder, group) in [
        (Bytes::mib(4), true, 0),
        (Bytes::mib(4), false, 3),
        (Bytes::mib(64), true, 1),
        (Bytes::mib(64), false, 0),
    ] {
        let dataset = DataSet::open(directory.path()).unwrap();
        let sharing = Sharing { reorder, group };
        let wanted = RequestConfig { sharing, ..config(memory) };
        let mut requests = Requests::open(&dataset, &wanted).unwrap();
        for seed in [0, 7] {
            let together = answered(&mut requests, seed, &asked);
            for (nodes, found) in asked.iter().zip(together) {
                let stream = Stream::new(seed, 0);
                let expected = naive_sample(&graph, stream, 0, nodes, &[Some(4), Some(3)], false);
                let rows: Vec<f32> =
                    expected.nodes.iter().flat_map(|&node| common::feature_row(node)).collect();
                assert_eq!((&found.0, &found.1), (&expected.nodes, &rows));
                let alone = answered(&mut requests, seed, std::slice::from_ref(nodes));
                assert_eq!(alone, [found]);
            }
        }
        let counters = requests.counters();
        assert!(counters.rows_in_memory > 0 && counters.rows >= counters.rows_in_memory);
    }
}

#[test]
fn degrees_are_those_of_the_whole_graph_with_loops_or_without() {
    let directory = tempfile::tempdir().unwrap();
    // 0 -> 0, 1 -> 0, 2 -> 0, 2 -> 1, 2 -> 2.
    let graph = Csc::from_edges(3, &[(0, 0), (1, 0), (2, 0), (2, 1), (2, 2)]);
    common::write(directory.path(), &graph);
    let dataset = DataSet::open(directory.path()).unwrap();
    for (degrees, expected) in
        [(Degrees::WithLoops, vec![3.0, 1.0, 1.0]), (Degrees::WithoutLoops, vec![2.0, 1.0, 0.0])]
    {
        let wanted = RequestConfig { degrees, fan_outs: vec![], ..config(Bytes::mib(4)) };
        let mut requests = Requests::open(&dataset, &wanted).unwrap();
        let found = answered(&mut requests, 0, &[vec![0, 1, 2]]);
        assert_eq!(found[0].2, Some(expected));
    }
}

#[test]
fn a_node_out_of_range_and_an_error_of_the_caller_are_told() {
    let directory = tempfile::tempdir().unwrap();
    common::write(directory.path(), &Csc::path(10));
    let dataset = DataSet::open(directory.path()).unwrap();
    let mut requests = Requests::open(&dataset, &config(Bytes::mib(4))).unwrap();
    let error = requests.answer(ask(None, 0, vec![vec![10]]), &|_, _| Ok(())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let refused = requests
        .answer(ask(None, 0, vec![vec![1]]), &|_, _| Err(outercore_core::Error::invalid("no")));
    assert_eq!(refused.unwrap_err().to_string(), "no");
    // Afterwards it answers requests again.
    assert_eq!(answered(&mut requests, 0, &[vec![1]]).len(), 1);
}

#[test]
fn a_changed_graph_answers_as_one_that_was_written_so() {
    for seed in 0..12u64 {
        let [before, after] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let mut model = LiveModel::random(40, 200, seed.is_multiple_of(2), seed);
        let dataset = model.write(before.path());
        let base = paged(&dataset);
        let mut delta = Delta::new(&dataset).unwrap();
        let mut draws = Stream::new(seed, 1).uniform(0, 0, 0);
        for lsn in 1..=60 {
            let update = model.draw(&mut draws);
            let mut next = delta.clone();
            if next.apply(lsn, std::slice::from_ref(&update), &base).is_ok() {
                assert!(model.apply(&update));
                delta = next;
            }
        }
        let written = model.write(after.path());
        let asked: Vec<Vec<u64>> = (0..model.nodes).map(|node| vec![node, node / 2]).collect();
        for degrees in [Degrees::WithLoops, Degrees::WithoutLoops] {
            let wanted = RequestConfig { degrees, ..config(Bytes::mib(4)) };
            let mut live = Requests::open(&dataset, &wanted).unwrap();
            let mut fixed = Requests::open(&written, &wanted).unwrap();
            let found = answered_with(&mut live, Some(&delta), seed, &asked);
            assert_eq!(found, answered_with(&mut fixed, None, seed, &asked), "seed {seed}");
            // An earlier snapshot stays unchanged.
            let empty = Delta::new(&dataset).unwrap();
            let early = &asked[..40];
            let found = answered_with(&mut live, Some(&empty), seed, early);
            assert_eq!(found, answered_with(&mut live, None, seed, early));
        }
    }
}

#[test]
fn a_reader_that_follows_exchanges_answers_as_one_that_is_opened_anew() {
    // Rows and topology on disk; only rows on disk; all in memory, without a slot for a new node.
    for (memory, degrees, holds) in [
        (Bytes::mib(6), Degrees::None, (false, false)),
        (Bytes::mib(10), Degrees::WithLoops, (true, false)),
        (Bytes::mib(10), Degrees::WithoutLoops, (true, false)),
        (Bytes::mib(64), Degrees::WithoutLoops, (true, true)),
    ] {
        let mut model = LiveModel::random(300_000, 200_000, degrees == Degrees::None, 3);
        let wanted = RequestConfig { degrees, growth: Bytes::kib(64), ..config(memory) };
        let mut directory = tempfile::tempdir().unwrap();
        let mut dataset = model.write(directory.path());
        let mut requests = Requests::open(&dataset, &wanted).unwrap();
        let plan = requests.plan();
        assert_eq!((plan.topology.resident, plan.holds_all_rows()), holds);
        let mut draws = Stream::new(5, 1).uniform(0, 0, 0);
        for round in 0..2 {
            let base = paged(&dataset);
            let mut delta = Delta::new(&dataset).unwrap();
            for lsn in 1..=200 {
                let update = model.draw(&mut draws);
                let mut next = delta.clone();
                let adds = matches!(update, Update::AddNode { .. });
                if !(adds && holds.1)
                    && next.apply(lsn, std::slice::from_ref(&update), &base).is_ok()
                {
                    assert!(model.apply(&update));
                    delta = next;
                }
            }
            let replaced = delta.replaced();
            let rows = &replaced.rows["nodes/node/x"];
            let lists = replaced.lists.iter().map(|list| list.node);
            let changed: Vec<u64> = rows.iter().copied().chain(lists).collect();
            let asked: Vec<Vec<u64>> = changed.chunks(8).map(<[u64]>::to_vec).collect();
            // So that old rows of changed nodes are in memory.
            let there: Vec<Vec<u64>> = asked
                .iter()
                .map(|nodes| nodes.iter().map(|node| node % dataset.num_nodes()).collect())
                .collect();
            answered(&mut requests, round, &there);
            let after = tempfile::tempdir().unwrap();
            dataset = model.write(after.path());
            requests = requests.follow(&dataset, &replaced).unwrap().expect("it has room");
            // The previous arrays are no longer used.
            drop(std::mem::replace(&mut directory, after));
            let before = requests.counters();
            let found = answered(&mut requests, round, &there);
            let counters = requests.counters();
            let read = counters.rows - before.rows;
            assert!(counters.rows_in_memory - before.rows_in_memory > read / 2, "round {round}");
            let mut anew = Requests::open(&dataset, &wanted).unwrap();
            assert_eq!(found, answered(&mut anew, round, &there), "round {round}");
            let found = answered(&mut requests, round, &asked);
            assert_eq!(found, answered(&mut anew, round, &asked), "round {round}");
        }
    }
}

#[test]
fn a_graph_that_outgrows_its_part_of_the_budget_is_opened_anew() {
    let [before, after] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut model = LiveModel::random(1000, 3000, false, 1);
    let dataset = model.write(before.path());
    model.next_edge = 4000;
    for id in 3000..4000 {
        model.edges.insert(id, (id % 1000, 7));
        model.weights.push(0.0);
    }
    let grown = model.write(after.path());
    for (growth, fits) in [(Bytes(3999), false), (Bytes(4000), true)] {
        let wanted = RequestConfig { growth, ..config(Bytes::mib(8)) };
        let requests = Requests::open(&dataset, &wanted).unwrap();
        let followed = requests.follow(&grown, &Delta::new(&dataset).unwrap().replaced()).unwrap();
        assert_eq!(followed.is_some(), fits, "{growth}");
    }
}
