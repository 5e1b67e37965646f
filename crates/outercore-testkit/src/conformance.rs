//! Requirements for every [`Topology`], whatever its source.

use outercore_core::{ErrorKind, Stream};
use outercore_store::{Extent, Topology};

use crate::Csc;

/// Compares every answer of `topology` with `graph`: sizes, all nodes and positions in several
/// orders, duplicates, empty requests, and requests out of range.
///
/// # Panics
/// At the first difference.
pub fn topology_conformance(topology: &dyn Topology, graph: &Csc) {
    let (nodes, edges) = (graph.num_nodes(), graph.num_edges());
    assert_eq!(topology.num_nodes(), nodes);
    assert_eq!(topology.num_edges(), edges);

    for order in orders(nodes) {
        check_extents(topology, graph, &order);
    }
    for order in orders(edges) {
        check_edges(topology, graph, &order);
    }
    refuses_what_is_out_of_range(topology);
    if topology.resident().is_some() {
        assert_eq!(topology.read_counters().requests, 0);
    }
}

/// All indices ascending, descending, drawn with duplicates, a single index, and no index.
fn orders(count: u64) -> Vec<Vec<u64>> {
    let mut orders = vec![Vec::new(), (0..count).collect(), (0..count).rev().collect()];
    if count > 0 {
        let mut draws = Stream::new(count, 0).uniform(0, 0, 0);
        orders.push((0..count.min(5000) * 2).map(|_| draws.below(count)).collect());
        orders.push(vec![count - 1]);
        orders.push(vec![0; 3]);
    }
    orders
}

fn check_extents(topology: &dyn Topology, graph: &Csc, nodes: &[u64]) {
    let mut found = vec![Extent { start: u64::MAX, degree: u64::MAX }; nodes.len()];
    topology.extents(nodes, &mut found).unwrap();
    for (&node, &found) in nodes.iter().zip(&found) {
        let (start, end) = (graph.offsets[node as usize], graph.offsets[node as usize + 1]);
        assert_eq!(found, Extent { start, degree: end - start }, "extent of node {node}");
    }
}

fn check_edges(topology: &dyn Topology, graph: &Csc, positions: &[u64]) {
    let mut found = vec![u64::MAX; positions.len()];
    topology.sources(positions, &mut found).unwrap();
    for (&position, &found) in positions.iter().zip(&found) {
        assert_eq!(found, graph.sources[position as usize], "source at position {position}");
    }
    found.fill(u64::MAX);
    topology.edge_ids(positions, &mut found).unwrap();
    for (&position, &found) in positions.iter().zip(&found) {
        assert_eq!(found, graph.ids[position as usize], "edge id at position {position}");
    }
}

fn refuses_what_is_out_of_range(topology: &dyn Topology) {
    let (nodes, edges) = (topology.num_nodes(), topology.num_edges());
    for beyond in [0, 1, u64::MAX - nodes.max(edges)] {
        let (node, position) = (nodes + beyond, edges + beyond);
        let mut extents = [Extent::default(); 2];
        let error = topology.extents(&[0, node], &mut extents).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(&format!("node {node}")), "{error}");

        let mut ids = [0; 1];
        for error in
            [topology.sources(&[position], &mut ids), topology.edge_ids(&[position], &mut ids)]
        {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains(&format!("position {position}")), "{error}");
        }
    }
}
