//! The topology in memory against the conformance suite.

use outercore_io::{Engine, EngineConfig};
use outercore_store::resident::{Ids, ResidentTopology};
use outercore_store::{Extent, Topology};
use outercore_testkit::{Csc, Width, topology_conformance, write_data_set};

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

#[test]
fn a_loaded_topology_answers_like_its_arrays() {
    let mut engine = Engine::open(EngineConfig::default()).unwrap();
    for (name, graph) in Csc::zoo() {
        for width in [Width::Narrow, Width::Wide] {
            println!("{name} {width:?}");
            let directory = tempfile::tempdir().unwrap();
            let data_set = write_data_set(directory.path(), &graph, width);
            let topology = ResidentTopology::load(&data_set, &mut engine, true).unwrap();
            topology_conformance(&topology, &graph);
        }
    }
}

#[test]
fn offsets_that_are_read_in_several_pieces_are_those_of_the_file() {
    let nodes = 300_000;
    let graph = Csc::random(nodes, 400_000, 5);
    let directory = tempfile::tempdir().unwrap();
    let data_set = write_data_set(directory.path(), &graph, Width::Narrow);
    let mut engine = Engine::open(EngineConfig::default()).unwrap();
    let topology = ResidentTopology::load(&data_set, &mut engine, false).unwrap();

    let all: Vec<u64> = (0..nodes).collect();
    let mut extents = vec![Extent::default(); all.len()];
    topology.extents(&all, &mut extents).unwrap();
    let expected = graph.offsets.windows(2).map(|pair| (pair[0], pair[1] - pair[0]));
    assert!(extents.into_iter().map(|extent| (extent.start, extent.degree)).eq(expected));
}

#[test]
fn edge_ids_that_were_not_loaded_are_not_made_up() {
    let directory = tempfile::tempdir().unwrap();
    let data_set = write_data_set(directory.path(), &Csc::star(5), Width::Narrow);
    let mut engine = Engine::open(EngineConfig::default()).unwrap();
    let topology = ResidentTopology::load(&data_set, &mut engine, false).unwrap();
    let mut ids = [0];
    topology.sources(&[1], &mut ids).unwrap();
    assert!(topology.edge_ids(&[1], &mut ids).is_err());
}
