//! Compares the sampler with its definition.

use outercore_core::{EdgeId, ErrorKind, NodeId, Result, Stream};
use outercore_io::{CostModel, EngineConfig};
use outercore_sample::{
    FanOut, SampleConfig, SampledBatch, Seeds, Shelf, sample_group, sample_group_on,
    sample_unknown_on,
};
use outercore_store::paged::PagedTopology;
use outercore_store::resident::{Ids, ResidentTopology};
use outercore_store::{Extent, Topology};
use outercore_testkit::{Csc, NaiveBatch, Width, naive_sample, write_data_set};
use proptest::prelude::*;
use rayon::ThreadPool;

/// A resident topology that pretends to be another kind of topology.
struct Disguised {
    topology: ResidentTopology,
    /// Pretends to be on disk, so that batches are sampled together.
    on_disk: bool,
    /// Pretends to have so many nodes that their ids need 64 bits.
    wide: bool,
}

impl Topology for Disguised {
    fn num_nodes(&self) -> u64 {
        self.topology.num_nodes() + if self.wide { 1 << 31 } else { 0 }
    }
    fn num_edges(&self) -> u64 {
        self.topology.num_edges()
    }
    fn extents(&self, nodes: &[NodeId], extents: &mut [Extent]) -> Result<()> {
        self.topology.extents(nodes, extents)
    }
    fn sources(&self, positions: &[u64], sources: &mut [NodeId]) -> Result<()> {
        self.topology.sources(positions, sources)
    }
    fn edge_ids(&self, positions: &[u64], ids: &mut [EdgeId]) -> Result<()> {
        self.topology.edge_ids(positions, ids)
    }
    fn resident(&self) -> Option<&ResidentTopology> {
        (!self.on_disk).then_some(&self.topology)
    }
}

fn resident(graph: &Csc) -> ResidentTopology {
    let Csc { offsets, sources, ids } = graph.clone();
    ResidentTopology::from_csc(offsets, sources, Some(ids.into())).unwrap()
}

fn pool(threads: usize) -> ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// Writes a batch in the form of the definition.
fn spelled_out(batch: &SampledBatch) -> NaiveBatch {
    let (mut rows, mut cols) = (vec![0; batch.num_edges()], vec![0; batch.num_edges()]);
    batch.write_edge_index(&mut rows, &mut cols);
    let edges = rows.iter().zip(&cols).map(|(&row, &col)| (row as usize, col as usize)).collect();
    NaiveBatch {
        nodes: batch.nodes.iter().collect(),
        nodes_per_hop: batch.nodes_per_hop.clone(),
        edges_per_hop: batch.edges_per_hop.clone(),
        edges,
        edge_ids: batch.edge_ids.clone(),
    }
}

fn seeds_of(nodes: u64, batch: u64, count: u64) -> Seeds {
    let mut draws = Stream::new(99, 0).uniform(batch, 0, 0);
    Seeds { batch, nodes: (0..count).map(|_| draws.below(nodes)).collect(), times: vec![] }
}

fn fan_out() -> impl Strategy<Value = FanOut> {
    prop_oneof![
        1 => Just(FanOut::All),
        4 => (0u32..6).prop_map(FanOut::Take),
        1 => (6u32..60).prop_map(FanOut::Take),
    ]
}

fn naive_fan_outs(config: &SampleConfig) -> Vec<Option<u64>> {
    let naive = |fan_out: &FanOut| match *fan_out {
        FanOut::All => None,
        FanOut::Take(count) => Some(u64::from(count)),
    };
    config.fan_outs.iter().map(naive).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn every_batch_equals_the_definition_however_it_is_sampled(
        graph in 0usize..8,
        fan_outs in proptest::collection::vec(fan_out(), 0..4),
        replace in any::<bool>(),
        seed in any::<u64>(),
        epoch in 0u64..3,
        first_batch in prop_oneof![0u64..5, Just(u64::from(u32::MAX) - 2)],
        num_batches in 1u64..5,
        batch_size in 0u64..30,
        group_size in 1usize..5,
    ) {
        let (name, graph) = Csc::zoo().swap_remove(graph);
        let stream = Stream::new(seed, epoch);
        let config = SampleConfig { fan_outs, replace, edge_ids: true, ..SampleConfig::full_neighbours() };
        let group: Vec<Seeds> = (first_batch..first_batch + num_batches)
            .map(|batch| seeds_of(graph.num_nodes(), batch, batch_size))
            .collect();
        let expected: Vec<NaiveBatch> = group
            .iter()
            .map(|seeds| {
                let fan_outs = naive_fan_outs(&config);
                naive_sample(&graph, stream, seeds.batch, &seeds.nodes, &fan_outs, replace)
            })
            .collect();
        for (on_disk, wide) in [(false, false), (true, false), (false, true), (true, true)] {
            let topology = Disguised { topology: resident(&graph), on_disk, wide };
            for threads in [1, 3] {
                let pool = pool(threads);
                let mut found = Vec::new();
                for seeds in group.chunks(group_size) {
                    let sampled =
                        sample_group(&topology, stream, seeds.to_vec(), &config, &pool).unwrap();
                    for (batch, seeds) in sampled.iter().zip(seeds) {
                        prop_assert_eq!(batch.batch, seeds.batch);
                        prop_assert_eq!(batch.num_seeds, seeds.nodes.len());
                        prop_assert_eq!(matches!(batch.nodes, Ids::Wide(_)), wide);
                        prop_assert!(
                            batch.nodes.len() as u64
                                <= config.most_nodes(batch_size, graph.num_nodes())
                        );
                    }
                    found.extend(sampled.iter().map(spelled_out));
                }
                prop_assert_eq!(&found, &expected, "{} threads {}", name, threads);
            }
        }
    }
}

#[test]
fn many_blocks_and_growing_tables_change_nothing() {
    let graph = Csc::random(100_000, 1_500_000, 5);
    let (stream, pool) = (Stream::new(3, 1), pool(2));
    let group: Vec<Seeds> = (0..3).map(|batch| seeds_of(graph.num_nodes(), batch, 2000)).collect();
    for fan_outs in [vec![FanOut::Take(15), FanOut::Take(10)], vec![FanOut::All, FanOut::Take(30)]]
    {
        let config = SampleConfig { fan_outs, edge_ids: true, ..SampleConfig::full_neighbours() };
        let topology = resident(&graph);
        let found = sample_group(&topology, stream, group.clone(), &config, &pool).unwrap();
        let topology = Disguised { topology, on_disk: true, wide: false };
        let together = sample_group(&topology, stream, group.clone(), &config, &pool).unwrap();
        assert_eq!(found, together);
        let fan_outs = naive_fan_outs(&config);
        for (batch, seeds) in found.iter().zip(&group) {
            let expected =
                naive_sample(&graph, stream, seeds.batch, &seeds.nodes, &fan_outs, false);
            assert!(spelled_out(batch) == expected, "batch {} differs", batch.batch);
        }
    }
}

#[test]
fn batches_in_memory_used_before_are_the_same() {
    let graph = Csc::power_law(3000, 40_000, 2);
    let (topology, pool, shelf) = (resident(&graph), pool(2), Shelf::default());
    let stream = Stream::new(8, 2);
    // Larger and smaller batches, with and without edge ids, in turn.
    for (fan_out, count, edge_ids) in [(9, 400, true), (2, 7, false), (16, 900, true)] {
        let config = SampleConfig {
            fan_outs: vec![FanOut::Take(fan_out); 2],
            edge_ids,
            ..SampleConfig::full_neighbours()
        };
        let group: Vec<Seeds> =
            (0..5).map(|batch| seeds_of(graph.num_nodes(), batch, count)).collect();
        let expected = sample_group(&topology, stream, group.clone(), &config, &pool).unwrap();
        let found = sample_group_on(&shelf, &topology, stream, group, &config, &pool).unwrap();
        assert!(found == expected, "fan-out {fan_out} differs");
        found.into_iter().for_each(|batch| shelf.give_back(batch));
    }
}

/// The sources of each destination by node id, in the order in which they were picked.
fn sources_of(batch: &SampledBatch) -> Vec<Vec<NodeId>> {
    let nodes: Vec<NodeId> = batch.nodes.iter().collect();
    let starts: Vec<u64> = batch.starts().collect();
    let of = |ends: &[u64]| {
        let edges = &batch.sources[ends[0] as usize..ends[1] as usize];
        edges.iter().map(|&source| nodes[source as usize]).collect()
    };
    starts.windows(2).map(of).collect()
}

#[test]
fn known_nodes_have_no_edges_in_the_last_hop_and_all_others_have_theirs() {
    let graph = Csc::power_law(3000, 40_000, 2);
    let (pool, shelf, stream) = (pool(2), Shelf::default(), Stream::new(8, 2));
    let group: Vec<Seeds> = (0..6).map(|batch| seeds_of(graph.num_nodes(), batch, 40)).collect();
    let is_known = |node: NodeId| node.is_multiple_of(3);
    for (fan_outs, replace) in [
        (vec![FanOut::Take(4), FanOut::Take(5)], false),
        (vec![FanOut::Take(3), FanOut::Take(4), FanOut::All], false),
        (vec![FanOut::Take(6), FanOut::Take(7)], true),
        (vec![FanOut::Take(4)], false),
    ] {
        let hops = fan_outs.len();
        let config =
            SampleConfig { fan_outs, replace, edge_ids: true, ..SampleConfig::full_neighbours() };
        for on_disk in [false, true] {
            let topology = Disguised { topology: resident(&graph), on_disk, wide: false };
            let group = || group.clone();
            let full = sample_group(&topology, stream, group(), &config, &pool).unwrap();
            let found =
                sample_unknown_on(&shelf, &topology, stream, group(), &config, &pool, &is_known)
                    .unwrap();
            for (found, full) in found.iter().zip(&full) {
                // Before the last hop nothing differs, so the destinations are the same.
                assert_eq!(found.nodes_per_hop[..hops], full.nodes_per_hop[..hops]);
                let before: u64 = full.nodes_per_hop[..hops - 1].iter().sum();
                let nodes: Vec<NodeId> = full.nodes.iter().collect();
                let mut expected = sources_of(full);
                let mut known = 0;
                if hops > 1 {
                    for (place, sources) in expected.iter_mut().enumerate() {
                        if place as u64 >= before && is_known(nodes[place]) {
                            sources.clear();
                            known += 1;
                        }
                    }
                }
                assert_eq!(known > 0, hops > 1, "nothing was left out: the test proves nothing");
                assert!(sources_of(found) == expected, "{hops} hops, on disk: {on_disk}");
            }
        }
    }
}

#[test]
fn a_topology_on_disk_gives_the_same_batches() {
    let graph = Csc::power_law(3000, 40_000, 2);
    let directory = tempfile::tempdir().unwrap();
    let data_set = write_data_set(directory.path(), &graph, Width::Narrow);
    let stream = Stream::new(8, 2);
    let group: Vec<Seeds> = (0..6).map(|batch| seeds_of(graph.num_nodes(), batch, 40)).collect();
    let fan_outs = vec![FanOut::Take(4), FanOut::All, FanOut::Take(20)];
    let config = SampleConfig { fan_outs, edge_ids: true, ..SampleConfig::full_neighbours() };
    let expected =
        sample_group(&resident(&graph), stream, group.clone(), &config, &pool(2)).unwrap();
    for offsets_resident in [false, true] {
        let (engine, cost) = (EngineConfig::default(), CostModel::default());
        let paged = PagedTopology::open(&data_set, engine, cost, offsets_resident).unwrap();
        for group_size in [1, 4, 6] {
            let mut found = Vec::new();
            for seeds in group.chunks(group_size) {
                let sampled = sample_group(&paged, stream, seeds.to_vec(), &config, &pool(2));
                found.extend(sampled.unwrap());
            }
            assert!(found == expected, "groups of {group_size} differ");
        }
    }
}

#[test]
fn edge_ids_come_only_when_asked_for() {
    let config = SampleConfig::full_neighbours();
    let seeds = vec![Seeds { batch: 0, nodes: vec![0], times: vec![] }];
    let topology = resident(&Csc::star(10));
    let batches = sample_group(&topology, Stream::new(0, 0), seeds, &config, &pool(1)).unwrap();
    assert!(batches[0].edge_ids.is_empty());
    assert!(batches[0].nodes.iter().eq(0..10));
    assert_eq!(batches[0].nodes_per_hop, [1, 9]);
    assert!(batches[0].heap_bytes() >= 4 * 10 + 4 * 9);
}

#[test]
fn duplicate_seeds_keep_their_places_and_the_first_is_the_one_found() {
    let graph = Csc::from_edges(3, &[(0, 1), (1, 0)]);
    let config = SampleConfig::full_neighbours();
    let seeds = vec![Seeds { batch: 7, nodes: vec![1, 0, 1], times: vec![] }];
    let sampled = sample_group(&resident(&graph), Stream::new(0, 0), seeds, &config, &pool(1));
    let batch = &sampled.unwrap()[0];
    assert!(batch.nodes.iter().eq([1, 0, 1]));
    assert_eq!(batch.sources, [1, 0, 1]);
    assert_eq!(batch.picked, [1, 1, 1]);
}

#[test]
fn a_seed_out_of_range_is_refused_by_name() {
    let seeds = vec![
        Seeds { batch: 4, nodes: vec![0], times: vec![] },
        Seeds { batch: 5, nodes: vec![9, 50], times: vec![] },
    ];
    let config = SampleConfig::full_neighbours();
    let topology = resident(&Csc::path(50));
    let error = sample_group(&topology, Stream::new(0, 0), seeds, &config, &pool(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let expected = "seed 50 of batch 5 is out of range: the graph has 50 nodes";
    assert_eq!(error.to_string(), expected);
}
