//! HGT sampling against its definition.

mod shared;

use std::collections::HashMap;
use std::sync::Arc;

use outercore_core::Stream;
use outercore_sample::rules::{Choice, Rules, Together};
use outercore_sample::{FanOut, SampleConfig, SampledBatch, Seeds, TypedFanOuts, sample_group};
use outercore_store::Topology;
use outercore_store::resident::ResidentTopology;
use outercore_testkit::{Csc, TypedGraph, naive_hgt_sample};
use proptest::prelude::*;

use shared::{OnDisk, fan_out, naive, resident, spelled_out};

/// Draws the given number of nodes of each node type and hop.
fn hgt(graph: &TypedGraph, of: Vec<Vec<FanOut>>) -> SampleConfig {
    SampleConfig {
        fan_outs: vec![FanOut::All; of[0].len()],
        types: Some(TypedFanOuts { schema: Arc::new(graph.schema.clone()), of }),
        rules: Rules { choice: Choice::Hgt, ..Rules::default() },
        edge_ids: true,
        ..SampleConfig::full_neighbours()
    }
}

fn sampled(topology: &dyn Topology, group: Vec<Seeds>, config: &SampleConfig) -> Vec<SampledBatch> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    sample_group(topology, Stream::new(7, 0), group, config, &pool).unwrap()
}

proptest! {
    #[test]
    fn every_batch_equals_the_definition_however_it_is_sampled(
        (authors, papers, venues) in (1u64..40, 1u64..60, 1u64..6),
        counts in (0usize..4).prop_flat_map(|hops| {
            proptest::collection::vec(proptest::collection::vec(fan_out(), hops), 3)
        }),
        seed in any::<u64>(),
        num_batches in 1u64..4,
        batch_size in 0usize..20,
        together in 1u64..40,
    ) {
        let graph = TypedGraph::bibliography(authors, papers, venues);
        let stream = Stream::new(seed, 1);
        let mut draws = Stream::new(seed, 9).uniform(0, 0, 0);
        let nodes = graph.schema.num_nodes();
        let group: Vec<Seeds> = (0..num_batches)
            .map(|batch| {
                let nodes = (0..batch_size).map(|_| draws.below(nodes)).collect();
                Seeds { batch, nodes, times: vec![] }
            })
            .collect();
        let naive_counts: Vec<Vec<_>> =
            counts.iter().map(|of| of.iter().map(naive).collect()).collect();
        let expected: Vec<_> = group
            .iter()
            .map(|seeds| {
                let of_type = |&node: &u64| {
                    let node_type = graph.schema.type_of(node);
                    (node_type, node - graph.schema.node_types()[node_type].nodes.start)
                };
                let typed: Vec<_> = seeds.nodes.iter().map(of_type).collect();
                naive_hgt_sample(&graph, stream, seeds.batch, &typed, &naive_counts)
            })
            .collect();
        let mut config = hgt(&graph, counts);
        config.rules.together = Together(together);
        for on_disk in [false, true] {
            let topology: Box<dyn Topology> = match on_disk {
                false => Box::new(resident(&graph)),
                true => Box::new(OnDisk(resident(&graph))),
            };
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                for group_size in [1, group.len()] {
                    let found: Vec<_> = group
                        .chunks(group_size)
                        .flat_map(|part| {
                            sample_group(&*topology, stream, part.to_vec(), &config, &pool).unwrap()
                        })
                        .map(|batch| spelled_out(&batch, &graph))
                        .collect();
                    prop_assert_eq!(&found, &expected);
                }
            }
        }
    }
}

/// Two papers, each by several authors: author 0 wrote both, author 4 is listed twice for paper 1.
fn two_papers() -> TypedGraph {
    let writes = [(0, 0), (1, 0), (0, 1), (2, 1), (3, 1), (4, 1), (4, 1)];
    TypedGraph::new(&[("author", 5), ("paper", 2)], &[("author", "writes", "paper", &writes)])
}

#[test]
fn draws_follow_the_squares_of_the_scores_one_after_the_other() {
    const BATCHES: u64 = 40_000;
    let graph = two_papers();
    let scores = [0.5 + 0.2, 0.5, 0.2, 0.2, 0.4];
    let squares: Vec<f64> = scores.iter().map(|score: &f64| score * score).collect();
    let sum: f64 = squares.iter().sum();
    let group = (0..BATCHES).map(|batch| Seeds { batch, nodes: vec![5, 6], times: vec![] });
    let config = hgt(&graph, vec![vec![FanOut::Take(2)], vec![FanOut::Take(0)]]);
    let mut counts = HashMap::<(u64, u64), u64>::new();
    for batch in sampled(&resident(&graph), group.collect(), &config) {
        let nodes: Vec<u64> = batch.nodes.iter().skip(2).collect();
        *counts.entry((nodes[0], nodes[1])).or_default() += 1;
    }
    let mut chi_square = 0.0;
    for first in 0..5usize {
        for second in (0..5usize).filter(|&second| second != first) {
            let chance = squares[first] / sum * squares[second] / (sum - squares[first]);
            let expected = chance * BATCHES as f64;
            let found = counts.get(&(first as u64, second as u64)).copied().unwrap_or(0) as f64;
            chi_square += (found - expected).powi(2) / expected;
        }
    }
    // 20 ordered pairs, so 19 degrees of freedom: 43.8 is the 99.9 % quantile.
    assert!(chi_square < 43.8, "seed 7: chi-square {chi_square}");
}

#[test]
fn a_batch_holds_all_edges_between_its_nodes() {
    let graph = two_papers();
    let group = vec![Seeds { batch: 0, nodes: vec![5, 6], times: vec![] }];
    let config = hgt(&graph, vec![vec![FanOut::All], vec![FanOut::All]]);
    let batches = sampled(&resident(&graph), group, &config);
    let mut rows = batches[0].edge_ids.clone();
    rows.sort_unstable();
    assert_eq!(rows, [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn one_type_gives_the_batches_of_a_graph_without_types() {
    let mut draws = Stream::new(3, 0).uniform(0, 0, 0);
    let edges: Vec<(u64, u64)> = (0..500).map(|_| (draws.below(60), draws.below(60))).collect();
    let typed = TypedGraph::new(&[("paper", 60)], &[("paper", "cites", "paper", &edges)]);
    let Csc { offsets, sources, ids } = Csc::from_edges(60, &edges);
    let plain = ResidentTopology::from_csc(offsets, sources, Some(ids.into())).unwrap();
    let counts = vec![FanOut::Take(7), FanOut::Take(4)];
    let group = vec![Seeds { batch: 3, nodes: vec![5, 59, 0], times: vec![] }];
    let of_types = hgt(&typed, vec![counts.clone()]);
    let expected = sampled(&resident(&typed), group.clone(), &of_types);
    assert_eq!(expected[0].nodes_per_hop, [3, 7, 4]);
    let of_one = SampleConfig { fan_outs: counts, types: None, ..of_types };
    assert_eq!(sampled(&plain, group, &of_one), expected);
}

#[test]
fn a_budget_of_too_many_nodes_is_an_error() {
    let graph = two_papers();
    let counts = vec![vec![FanOut::Take(1)], vec![FanOut::Take(1)]];
    let config = SampleConfig { most_edges: Some(3), ..hgt(&graph, counts) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let group = vec![Seeds { batch: 2, nodes: vec![5, 6], times: vec![] }];
    let error = sample_group(&resident(&graph), Stream::new(0, 0), group, &config, &pool);
    assert!(error.unwrap_err().to_string().contains("batch 2 draws from 5 nodes"));
}

#[test]
fn a_batch_is_refused_for_its_own_nodes_whatever_is_drawn_beside_it() {
    let graph = two_papers();
    let counts = vec![vec![FanOut::Take(1)], vec![FanOut::Take(1)]];
    let group = (0..6).map(|batch| Seeds { batch, nodes: vec![5, 6], times: vec![] });
    let group: Vec<Seeds> = group.collect();
    let sampled = |most, threads| {
        let config = SampleConfig { most_edges: most, ..hgt(&graph, counts.clone()) };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        sample_group(&resident(&graph), Stream::new(0, 0), group.clone(), &config, &pool)
    };
    // Each batch draws from 5 authors: four batches exceed the limit together, one batch does not.
    let expected = sampled(None, 1).unwrap();
    for threads in [1, 2, 3] {
        assert_eq!(sampled(Some(8), threads).unwrap(), expected);
        let error = sampled(Some(4), threads).unwrap_err().to_string();
        assert!(error.contains("batch 0 draws from 5 nodes"), "{error}");
    }
}
