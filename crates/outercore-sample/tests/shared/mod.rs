//! Shared code of the tests of typed graphs.

use outercore_core::{EdgeId, NodeId, Result};
use outercore_sample::{FanOut, SampledBatch};
use outercore_store::resident::ResidentTopology;
use outercore_store::{Extent, Topology};
use outercore_testkit::{Csc, NaiveTypedBatch, TypedGraph};
use proptest::prelude::*;

/// A resident topology that pretends to be on disk, so that batches are sampled together.
pub struct OnDisk(pub ResidentTopology);

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

/// The graph in memory, in the form of a data set.
pub fn resident(graph: &TypedGraph) -> ResidentTopology {
    let Csc { offsets, sources, ids } = graph.union();
    let nodes = graph.schema.num_nodes();
    ResidentTopology::from_columns(nodes, offsets, sources, Some(ids.into())).unwrap()
}

/// Writes a batch in the form of the definition.
pub fn spelled_out(batch: &SampledBatch, graph: &TypedGraph) -> NaiveTypedBatch {
    let typed = batch.by_type(&graph.schema);
    let unsigned = |ids: &[i64]| ids.iter().map(|&id| id as u64).collect::<Vec<u64>>();
    for (of_type, range) in typed.nodes.iter().zip(graph.schema.node_types()) {
        // The indices must lead back to the nodes of the batch.
        let nodes: Vec<u64> = batch.nodes.iter().collect();
        let back = of_type.places.iter().map(|&place| nodes[place as usize] - range.nodes.start);
        assert!(back.eq(unsigned(&of_type.ids)));
    }
    NaiveTypedBatch {
        nodes: typed.nodes.iter().map(|of| unsigned(&of.ids)).collect(),
        trees: typed
            .nodes
            .iter()
            .map(|of| match of.trees.is_empty() {
                true => vec![0; of.ids.len()],
                false => unsigned(&of.trees),
            })
            .collect(),
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

/// Any fan-out, often a small one.
pub fn fan_out() -> impl Strategy<Value = FanOut> {
    prop_oneof![
        1 => Just(FanOut::All),
        4 => (0u32..6).prop_map(FanOut::Take),
        1 => (6u32..60).prop_map(FanOut::Take),
    ]
}

/// A fan-out in the form of the definitions.
pub fn naive(fan_out: &FanOut) -> Option<u64> {
    match *fan_out {
        FanOut::All => None,
        FanOut::Take(count) => Some(u64::from(count)),
    }
}
