//! The topology in memory against the conformance suite.

use outercore_store::resident::{Ids, ResidentTopology};
use outercore_testkit::{Csc, topology_conformance};

fn narrow(ids: &[u64]) -> Ids {
    Ids::from(ids.iter().map(|&id| u32::try_from(id).unwrap()).collect::<Vec<_>>())
}

#[test]
fn a_resident_topology_answers_like_its_arrays_at_either_width() {
    for (name, graph) in Csc::zoo() {
        println!("{name}");
        let Csc { offsets, sources, ids } = graph.clone();
        let (n_sources, n_ids) = (narrow(&sources), narrow(&ids));
        let wide = ResidentTopology::from_csc(offsets.clone(), sources, Some(ids.into()));
        topology_conformance(&wide.unwrap(), &graph);
        let narrow = ResidentTopology::from_csc(offsets, n_sources, Some(n_ids));
        topology_conformance(&narrow.unwrap(), &graph);
    }
}

#[test]
fn without_ids_an_edge_is_named_by_its_position() {
    for (name, mut graph) in Csc::zoo() {
        println!("{name}");
        graph.ids = (0..graph.num_edges()).collect();
        let topology =
            ResidentTopology::from_csc(graph.offsets.clone(), graph.sources.clone(), None);
        topology_conformance(&topology.unwrap(), &graph);
    }
}
