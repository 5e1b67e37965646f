//! Compares the sampler over several types with its definition.

mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outercore_core::Stream;
use outercore_sample::rules::{Choice, EqualTimes, Rules, Subgraph, TimeOrder, Times, Together};
use outercore_sample::{FanOut, SampleConfig, SampledBatch, Seeds, TypedFanOuts, sample_group};
use outercore_store::Topology;
use outercore_store::resident::ResidentTopology;
use outercore_store::row_values::RowValues;
use outercore_testkit::{Csc, NaiveRules, NaiveTypedBatch, TypedGraph, naive_typed_sample};
use proptest::prelude::*;

use shared::{OnDisk, fan_out, naive, resident, spelled_out};

/// The rules in the sampler's form, with arrays in memory.
fn rules_of(naive: &NaiveRules) -> Rules {
    let numbers = |of: &Vec<Vec<i64>>| -> Vec<_> {
        of.iter().map(|times| Some(Arc::new(RowValues::from_numbers(times.clone())))).collect()
    };
    let choice = match &naive.weights {
        _ if naive.labor => Choice::Labor,
        None => Choice::Uniform,
        Some(weights) => {
            let of_type = |of: &Vec<f64>| Some(Arc::new(RowValues::from_numbers(of.clone())));
            Choice::Weighted(weights.iter().map(of_type).collect())
        }
    };
    let has_times = naive.edge_times.is_some() || naive.node_times.is_some();
    let times = has_times.then(|| Times {
        edges: naive.edge_times.as_ref().map_or(Vec::new(), numbers),
        nodes: naive.node_times.as_ref().map_or(Vec::new(), numbers),
        order: if naive.last { TimeOrder::Last } else { TimeOrder::Any },
        equal: if naive.equal { EqualTimes::Seen } else { EqualTimes::Hidden },
    });
    let subgraph = if naive.induced { Subgraph::Induced } else { Subgraph::Directional };
    Rules { disjoint: naive.disjoint && !has_times, choice, subgraph, times, ..Rules::default() }
}

/// With replacement, disjoint, choice, edge times, node times, latest, induced.
type Chosen = (bool, bool, u8, bool, bool, bool, bool);

/// A valid combination of rules, with arrays for `graph` drawn from `seed`.
fn naive_rules(
    graph: &TypedGraph,
    seed: u64,
    (replace, disjoint, choice, edge_times, node_times, last, induced): Chosen,
) -> NaiveRules {
    let mut draws = Stream::new(seed, 5).uniform(0, 0, 0);
    let mut numbers =
        |count: u64, most: u64| -> Vec<u64> { (0..count).map(|_| draws.below(most)).collect() };
    let rows: Vec<u64> =
        graph.schema.edge_types().iter().map(|of| of.rows.end - of.rows.start).collect();
    let nodes: Vec<u64> =
        graph.schema.node_types().iter().map(|of| of.nodes.end - of.nodes.start).collect();
    let is_timed = edge_times || node_times;
    let last = last && is_timed;
    let weighted = choice == 1 && !last;
    let labor = choice == 2 && !last && !disjoint && !is_timed;
    let mut of_rows = |counts: &[u64], most| -> Vec<Vec<u64>> {
        counts.iter().map(|&count| numbers(count, most)).collect()
    };
    let signed = |of: Vec<Vec<u64>>| -> Vec<Vec<i64>> {
        of.into_iter().map(|of| of.into_iter().map(|time| time as i64 - 3).collect()).collect()
    };
    let weights = weighted.then(|| {
        // A quarter of the weights are 0.
        let drawn = of_rows(&rows, 8).into_iter();
        drawn.map(|of| of.into_iter().map(|w| w.saturating_sub(1) as f64 / 3.0).collect()).collect()
    });
    NaiveRules {
        replace: replace && !last && !labor,
        disjoint: disjoint || is_timed,
        weights,
        labor,
        edge_times: edge_times.then(|| signed(of_rows(&rows, 12))),
        node_times: node_times.then(|| signed(of_rows(&nodes, 12))),
        seed_times: Vec::new(),
        last,
        equal: seed.is_multiple_of(2),
        induced: induced && !is_timed,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_batch_equals_the_definition_however_it_is_sampled(
        (authors, papers, venues) in (1u64..40, 1u64..60, 1u64..6),
        fan_outs in (0usize..4).prop_flat_map(|hops| {
            proptest::collection::vec(proptest::collection::vec(fan_out(), hops), 5)
        }),
        chosen in (
            any::<bool>(), any::<bool>(), 0u8..3, any::<bool>(), any::<bool>(), any::<bool>(),
            any::<bool>(),
        ),
        seed in any::<u64>(),
        num_batches in 1u64..4,
        batch_size in 0usize..20,
        together in 1u64..40,
    ) {
        let graph = TypedGraph::bibliography(authors, papers, venues);
        let rules = naive_rules(&graph, seed, chosen);
        let is_timed = rules.edge_times.is_some() || rules.node_times.is_some();
        let stream = Stream::new(seed, 1);
        let hops = fan_outs[0].len();
        let config = SampleConfig {
            fan_outs: vec![FanOut::All; hops],
            types: Some(TypedFanOuts { schema: Arc::new(graph.schema.clone()), of: fan_outs }),
            replace: rules.replace,
            rules: Rules { together: Together(together), ..rules_of(&rules) },
            edge_ids: true,
            most_edges: None,
        };
        let of_types = &config.types.as_ref().unwrap().of;
        let naive_fan_outs: Vec<Vec<_>> =
            of_types.iter().map(|of| of.iter().map(naive).collect()).collect();
        let mut draws = Stream::new(seed, 9).uniform(0, 0, 0);
        let nodes = graph.schema.num_nodes();
        let group: Vec<Seeds> = (0..num_batches)
            .map(|batch| Seeds {
                batch,
                nodes: (0..batch_size).map(|_| draws.below(nodes)).collect(),
                times: (0..batch_size * usize::from(is_timed))
                    .map(|_| draws.below(12) as i64 - 3)
                    .collect(),
            })
            .collect();
        let expected: Vec<NaiveTypedBatch> = group
            .iter()
            .map(|seeds| {
                let of_type = |&node: &u64| {
                    let node_type = graph.schema.type_of(node);
                    (node_type, node - graph.schema.node_types()[node_type].nodes.start)
                };
                let typed: Vec<_> = seeds.nodes.iter().map(of_type).collect();
                let rules = NaiveRules { seed_times: seeds.times.clone(), ..rules.clone() };
                naive_typed_sample(&graph, stream, seeds.batch, &typed, &naive_fan_outs, &rules)
            })
            .collect();
        for on_disk in [false, true] {
            let topology: Box<dyn Topology> = match on_disk {
                false => Box::new(resident(&graph)),
                true => Box::new(OnDisk(resident(&graph))),
            };
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                for group_size in [1, group.len()] {
                    let sampled = group.chunks(group_size).flat_map(|part| {
                        sample_group(&*topology, stream, part.to_vec(), &config, &pool).unwrap()
                    });
                    let found: Vec<_> =
                        sampled.map(|batch| spelled_out(&batch, &graph)).collect();
                    prop_assert_eq!(&found, &expected);
                }
            }
        }
    }
}

/// The share of batches that take each in-edge of a star's centre.
fn shares(weights: Option<Vec<f64>>, leaves: u64, count: u32, replace: bool) -> Vec<f64> {
    const BATCHES: u64 = 20_000;
    let edges: Vec<(u64, u64)> = (0..leaves).map(|leaf| (leaf, 0)).collect();
    let graph =
        TypedGraph::new(&[("leaf", leaves), ("centre", 1)], &[("leaf", "of", "centre", &edges)]);
    let rules = NaiveRules { weights: weights.map(|of| vec![of]), ..NaiveRules::default() };
    let config = SampleConfig {
        fan_outs: vec![FanOut::Take(count)],
        types: Some(TypedFanOuts {
            schema: Arc::new(graph.schema.clone()),
            of: vec![vec![FanOut::Take(count)]],
        }),
        replace,
        rules: rules_of(&rules),
        edge_ids: true,
        most_edges: None,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    // The centre is the first node: types come in the order of their names.
    let group = (0..BATCHES).map(|batch| Seeds { batch, nodes: vec![0], times: vec![] }).collect();
    let topology = resident(&graph);
    let batches = sample_group(&topology, Stream::new(7, 0), group, &config, &pool).unwrap();
    let mut taken = vec![0u64; leaves as usize];
    for batch in &batches {
        for &id in &batch.edge_ids {
            taken[id as usize] += 1;
        }
    }
    taken.into_iter().map(|times| times as f64 / BATCHES as f64).collect()
}

/// Compares the shares of 20,000 batches with the expected ones, within five standard deviations.
#[track_caller]
fn assert_shares(found: &[f64], expected: &[f64]) {
    for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
        let deviation = (expected.max(1e-3) / 20_000.0).sqrt();
        assert!((found - expected).abs() < 5.0 * deviation, "{place}: {found}, not {expected}");
    }
}

#[test]
fn weighted_draws_come_in_proportion_to_weights() {
    let weights = vec![1.0, 2.0, 0.0, 5.0, 2.0];
    let by_weight: Vec<f64> = weights.iter().map(|weight| weight / 10.0).collect();
    assert_shares(&shares(Some(weights.clone()), 5, 1, false), &by_weight);
    let four_times: Vec<f64> = by_weight.iter().map(|share| share * 4.0).collect();
    assert_shares(&shares(Some(weights.clone()), 5, 4, true), &four_times);
    // Without replacement: the chance of being among the first two of successive draws.
    let pair =
        |first: usize, second: usize| by_weight[first] * weights[second] / (10.0 - weights[first]);
    let among_two: Vec<f64> = (0..5)
        .map(|one| {
            let others = (0..5).filter(|&other| other != one);
            by_weight[one] + others.map(|other| pair(other, one)).sum::<f64>()
        })
        .collect();
    assert_shares(&shares(Some(weights), 5, 2, false), &among_two);
}

#[test]
fn uniform_draws_are_equally_likely() {
    assert_shares(&shares(None, 8, 3, false), &[0.375; 8]);
    assert_shares(&shares(Some(vec![0.7; 8]), 8, 3, false), &[0.375; 8]);
    assert_shares(&shares(None, 8, 3, true), &[0.375; 8]);
}

#[test]
fn labor_takes_the_same_neighbours_for_several_nodes() {
    // Each of 40 targets has the same 20 sources.
    let edges: Vec<(u64, u64)> = (0..40).flat_map(|t| (0..20).map(move |s| (s, t))).collect();
    let graph =
        TypedGraph::new(&[("source", 20), ("target", 40)], &[("source", "to", "target", &edges)]);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let reached = |choice: Choice| {
        let of = vec![vec![FanOut::Take(5)]];
        let config = SampleConfig {
            fan_outs: vec![FanOut::Take(5)],
            types: Some(TypedFanOuts { schema: Arc::new(graph.schema.clone()), of }),
            rules: Rules { choice, ..Rules::default() },
            ..SampleConfig::full_neighbours()
        };
        let seeds = (0..200)
            .map(|batch| Seeds { batch, nodes: (20..60).collect(), times: vec![] })
            .collect();
        let batches =
            sample_group(&resident(&graph), Stream::new(1, 0), seeds, &config, &pool).unwrap();
        let edges: usize = batches.iter().map(SampledBatch::num_edges).sum();
        let nodes: usize = batches.iter().map(|batch| batch.nodes.len() - 40).sum();
        (edges as f64 / 200.0, nodes as f64 / 200.0)
    };
    let (edges, nodes) = reached(Choice::Labor);
    // 5 of 20 sources on average, the same for all targets.
    assert!((nodes - 5.0).abs() < 1.0 && (edges - 200.0).abs() < 40.0, "{nodes} {edges}");
    assert_eq!(reached(Choice::Uniform), (200.0, 20.0));
}

#[test]
fn one_edge_type_gives_the_batches_of_a_graph_without_types() {
    let edges: Vec<(u64, u64)> = (0..500).map(|i| (i * 7919 % 60, i * 104_729 % 60)).collect();
    let typed = TypedGraph::new(&[("paper", 60)], &[("paper", "cites", "paper", &edges)]);
    let plain = Csc::from_edges(60, &edges);
    let fan_outs = vec![FanOut::Take(3), FanOut::Take(2)];
    let mut config = SampleConfig {
        fan_outs: fan_outs.clone(),
        rules: outercore_sample::rules::Rules::default(),
        types: None,
        replace: false,
        edge_ids: true,
        most_edges: None,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let group = vec![Seeds { batch: 3, nodes: vec![5, 59, 0], times: vec![] }];
    let Csc { offsets, sources, ids } = plain;
    let topology = ResidentTopology::from_csc(offsets, sources, Some(ids.into())).unwrap();
    let stream = Stream::new(4, 2);
    let expected = sample_group(&topology, stream, group.clone(), &config, &pool).unwrap();
    config.types =
        Some(TypedFanOuts { schema: Arc::new(typed.schema.clone()), of: vec![fan_outs] });
    let found = sample_group(&resident(&typed), stream, group, &config, &pool).unwrap();
    assert_eq!(found, expected);
}

/// For each hop: the nodes found, the edges as (source, target) in the graph, the weights.
type Layers = Vec<(Vec<u64>, Vec<(u64, u64)>, Vec<f64>)>;

/// LADIES, written from its definition.
fn naive_ladies(graph: &Csc, stream: Stream, batch: u64, seeds: &[u64], sizes: &[usize]) -> Layers {
    let mut nodes = seeds.to_vec();
    let mut layers = Layers::new();
    for (hop, &size) in (0u32..).zip(sizes) {
        let in_edges = |node: u64| -> Vec<u64> {
            let range = graph.offsets[node as usize]..graph.offsets[node as usize + 1];
            range.map(|position| graph.sources[position as usize]).collect()
        };
        let mut importance = BTreeMap::<u64, f64>::new();
        for &node in &nodes {
            let sources = in_edges(node);
            for &source in &sources {
                *importance.entry(source).or_default() += (1.0 / sources.len() as f64).powi(2);
            }
        }
        let key = |(&source, &p): (&u64, &f64)| {
            (-(1.0 - stream.uniform(batch, hop | 0x80, source).unit()).ln() / p, source)
        };
        let mut keyed: Vec<(f64, u64)> = importance.iter().map(key).collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        keyed.truncate(size);
        let chosen: BTreeSet<u64> = keyed.into_iter().map(|(_, source)| source).collect();
        let (mut found, mut edges, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for &node in &nodes {
            let sources = in_edges(node);
            let taken: Vec<u64> = sources.iter().copied().filter(|s| chosen.contains(s)).collect();
            let weight = |source: &u64| 1.0 / sources.len() as f64 / importance[source];
            let sum: f64 = taken.iter().map(weight).sum();
            for source in taken {
                if !nodes.contains(&source) && !found.contains(&source) {
                    found.push(source);
                }
                edges.push((source, node));
                weights.push(weight(&source) / sum);
            }
        }
        nodes.extend(&found);
        layers.push((found, edges, weights));
    }
    layers
}

proptest! {
    #[test]
    fn ladies_is_that_of_its_definition(
        nodes in 1u64..60,
        edges in 0u64..400,
        sizes in proptest::collection::vec(0usize..20, 0..4),
        seed in any::<u64>(),
        seeds in 1usize..12,
    ) {
        let graph = Csc::random(nodes, edges, seed);
        let stream = Stream::new(seed, 0);
        // Each seed once, because LADIES is defined for sets.
        let mut draws = stream.uniform(9, 9, 9);
        let mut own: Vec<u64> = (0..seeds).map(|_| draws.below(nodes)).collect();
        own.sort_unstable();
        own.dedup();
        let config = SampleConfig {
            fan_outs: sizes.iter().map(|&size| FanOut::Take(size as u32)).collect(),
            rules: Rules { choice: Choice::Ladies, ..Rules::default() },
            ..SampleConfig::full_neighbours()
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let Csc { offsets, sources, ids } = graph.clone();
        let topology = ResidentTopology::from_csc(offsets, sources, Some(ids.into())).unwrap();
        let group: Vec<Seeds> =
            (0..3).map(|batch| Seeds { batch, nodes: own.clone(), times: vec![] }).collect();
        let sampled = sample_group(&topology, stream, group, &config, &pool).unwrap();
        for batch in sampled {
            let expected = naive_ladies(&graph, stream, batch.batch, &own, &sizes);
            let all: Vec<u64> = batch.nodes.iter().collect();
            let (mut rows, mut cols) = (vec![0; batch.num_edges()], vec![0; batch.num_edges()]);
            batch.write_edge_index(&mut rows, &mut cols);
            let (mut node, mut edge) = (own.len(), 0);
            for (hop, (found, edges, weights)) in expected.into_iter().enumerate() {
                let of_hop = batch.nodes_per_hop[hop + 1] as usize;
                prop_assert_eq!(&all[node..node + of_hop], &found[..]);
                let count = batch.edges_per_hop[hop] as usize;
                let pairs: Vec<(u64, u64)> = (edge..edge + count)
                    .map(|at| (all[rows[at] as usize], all[cols[at] as usize]))
                    .collect();
                prop_assert_eq!(pairs, edges);
                for (found, expected) in batch.edge_weights[edge..edge + count].iter().zip(weights) {
                    prop_assert!((f64::from(*found) - expected).abs() < 1e-6);
                }
                (node, edge) = (node + of_hop, edge + count);
            }
        }
    }
}
