//! The sampler over several types against its definition.

use std::sync::Arc;

use outercore_core::{EdgeId, NodeId, Result, Stream};
use outercore_sample::{FanOut, SampleConfig, SampledBatch, Seeds, TypedFanOuts, sample_group};
use outercore_store::resident::ResidentTopology;
use outercore_store::{Extent, Topology};
use outercore_testkit::{Csc, NaiveTypedBatch, TypedGraph, naive_typed_sample};
use proptest::prelude::*;

/// A resident topology that claims to be on disk, so that batches are sampled together.
struct OnDisk(ResidentTopology);

impl Topology for OnDisk {
    fn num_nodes(&self) -> u64 {
        self.0.num_nodes()
    }
    fn num_columns(&self) -> u64 {
        self.0.num_columns()
    }
    fn num_edges(&self) -> u64 {
        self.0.num_edges()
    }
    fn extents(&self, columns: &[NodeId], extents: &mut [Extent]) -> Result<()> {
        self.0.extents(columns, extents)
    }
    fn sources(&self, positions: &[u64], sources: &mut [NodeId]) -> Result<()> {
        self.0.sources(positions, sources)
    }
    fn edge_ids(&self, positions: &[u64], ids: &mut [EdgeId]) -> Result<()> {
        self.0.edge_ids(positions, ids)
    }
}

fn resident(graph: &TypedGraph) -> ResidentTopology {
    let Csc { offsets, sources, ids } = graph.union();
    let nodes = graph.schema.num_nodes();
    ResidentTopology::from_columns(nodes, offsets, sources, Some(ids.into())).unwrap()
}

/// Writes a batch out the way the definition does.
fn spelled_out(batch: &SampledBatch, graph: &TypedGraph) -> NaiveTypedBatch {
    let typed = batch.by_type(&graph.schema);
    let unsigned = |ids: &[i64]| ids.iter().map(|&id| id as u64).collect::<Vec<u64>>();
    for (of_type, range) in typed.nodes.iter().zip(graph.schema.node_types()) {
        // The places lead back to the batch.
        let nodes: Vec<u64> = batch.nodes.iter().collect();
        let back = of_type.places.iter().map(|&place| nodes[place as usize] - range.nodes.start);
        assert!(back.eq(unsigned(&of_type.ids)));
    }
    NaiveTypedBatch {
        nodes: typed.nodes.iter().map(|of| unsigned(&of.ids)).collect(),
        nodes_per_hop: typed.nodes.into_iter().map(|of| of.per_hop).collect(),
        edges: typed
            .edges
            .iter()
            .map(|of| {
                let pairs = of.sources.iter().zip(&of.targets);
                pairs.map(|(&source, &target)| (source as usize, target as usize)).collect()
            })
            .collect(),
        edge_ids: typed.edges.iter().map(|of| unsigned(&of.ids)).collect(),
        edges_per_hop: typed.edges.into_iter().map(|of| of.per_hop).collect(),
    }
}

fn fan_out() -> impl Strategy<Value = FanOut> {
    prop_oneof![
        1 => Just(FanOut::All),
        4 => (0u32..6).prop_map(FanOut::Take),
        1 => (6u32..60).prop_map(FanOut::Take),
    ]
}

fn naive(fan_out: &FanOut) -> Option<u64> {
    match *fan_out {
        FanOut::All => None,
        FanOut::Take(count) => Some(u64::from(count)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_batch_equals_the_definition_however_it_is_sampled(
        (authors, papers, venues) in (1u64..40, 1u64..60, 1u64..6),
        fan_outs in (0usize..4).prop_flat_map(|hops| {
            proptest::collection::vec(proptest::collection::vec(fan_out(), hops), 5)
        }),
        replace in any::<bool>(),
        seed in any::<u64>(),
        num_batches in 1u64..4,
        batch_size in 0usize..20,
    ) {
        let graph = TypedGraph::bibliography(authors, papers, venues);
        let stream = Stream::new(seed, 1);
        let hops = fan_outs[0].len();
        let config = SampleConfig {
            fan_outs: vec![FanOut::All; hops],
            types: Some(TypedFanOuts { schema: Arc::new(graph.schema.clone()), of: fan_outs }),
            replace,
            edge_ids: true,
            most_edges: None,
        };
        let naive_fan_outs: Vec<Vec<Option<u64>>> =
            config.types.as_ref().unwrap().of.iter().map(|of| of.iter().map(naive).collect()).collect();
        let mut draws = Stream::new(seed, 9).uniform(0, 0, 0);
        let nodes = graph.schema.num_nodes();
        let group: Vec<Seeds> = (0..num_batches)
            .map(|batch| Seeds { batch, nodes: (0..batch_size).map(|_| draws.below(nodes)).collect(), times: vec![] })
            .collect();
        let expected: Vec<NaiveTypedBatch> = group
            .iter()
            .map(|seeds| {
                let of_type = |&node: &u64| {
                    let node_type = graph.schema.type_of(node);
                    (node_type, node - graph.schema.node_types()[node_type].nodes.start)
                };
                let typed: Vec<_> = seeds.nodes.iter().map(of_type).collect();
                naive_typed_sample(&graph, stream, seeds.batch, &typed, &naive_fan_outs, replace)
            })
            .collect();
        for on_disk in [false, true] {
            let topology: Box<dyn Topology> = match on_disk {
                false => Box::new(resident(&graph)),
                true => Box::new(OnDisk(resident(&graph))),
            };
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let sampled =
                    sample_group(&*topology, stream, group.clone(), &config, &pool).unwrap();
                let found: Vec<_> =
                    sampled.iter().map(|batch| spelled_out(batch, &graph)).collect();
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}

#[test]
fn one_edge_type_gives_the_batches_of_a_graph_without_types() {
    let edges: Vec<(u64, u64)> = (0..500).map(|i| (i * 7919 % 60, i * 104_729 % 60)).collect();
    let typed = TypedGraph::new(&[("paper", 60)], &[("paper", "cites", "paper", &edges)]);
    let plain = Csc::from_edges(60, &edges);
    let fan_outs = vec![FanOut::Take(3), FanOut::Take(2)];
    let mut config = SampleConfig {
        fan_outs: fan_outs.clone(),
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
