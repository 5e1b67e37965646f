//! Graphs small enough to check by hand or by brute force.

use outercore_core::Stream;

/// A graph as plain arrays: the in-neighbours of every node, column by column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Csc {
    /// Offsets of all nodes; length nodes + 1.
    pub offsets: Vec<u64>,
    /// Source node of every edge; within a column sorted by (source, id).
    pub sources: Vec<u64>,
    /// Row of every edge in the edge list from which the graph was built.
    pub ids: Vec<u64>,
}

impl Csc {
    /// Builds the graph of an edge list of `(source, target)`; an edge's id is its index in the
    /// list.
    pub fn from_edges(nodes: u64, edges: &[(u64, u64)]) -> Self {
        let mut order: Vec<(u64, u64, u64)> =
            edges.iter().zip(0..).map(|(&(source, target), id)| (target, source, id)).collect();
        order.sort_unstable();
        let mut offsets = vec![0; nodes as usize + 1];
        for &(target, _, _) in &order {
            offsets[target as usize + 1] += 1;
        }
        for node in 0..nodes as usize {
            offsets[node + 1] += offsets[node];
        }
        Self {
            offsets,
            sources: order.iter().map(|edge| edge.1).collect(),
            ids: order.iter().map(|edge| edge.2).collect(),
        }
    }

    /// `0 -> 1 -> 2 -> ...`
    pub fn path(nodes: u64) -> Self {
        let edges: Vec<_> = (1..nodes).map(|node| (node - 1, node)).collect();
        Self::from_edges(nodes, &edges)
    }

    /// Every other node has an edge to node 0.
    pub fn star(nodes: u64) -> Self {
        let edges: Vec<_> = (1..nodes).rev().map(|node| (node, 0)).collect();
        Self::from_edges(nodes, &edges)
    }

    /// Uniform endpoints, with duplicates, self-loops and isolated nodes by chance.
    pub fn random(nodes: u64, edges: u64, seed: u64) -> Self {
        Self::skewed(nodes, edges, seed, 1)
    }

    /// Endpoints drawn as `nodes * u^4`: low ids are hubs with many duplicates and self-loops, high
    /// ids are mostly isolated.
    pub fn power_law(nodes: u64, edges: u64, seed: u64) -> Self {
        Self::skewed(nodes, edges, seed, 4)
    }

    fn skewed(nodes: u64, edges: u64, seed: u64, exponent: i32) -> Self {
        let edges: Vec<_> = (0..edges)
            .map(|edge| {
                let mut draws = Stream::new(seed, 0).uniform(0, 0, edge);
                let mut node = || (draws.unit().powi(exponent) * nodes as f64) as u64;
                (node(), node())
            })
            .collect();
        Self::from_edges(nodes, &edges)
    }

    /// Number of nodes.
    pub fn num_nodes(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    /// Number of edges.
    pub fn num_edges(&self) -> u64 {
        self.sources.len() as u64
    }

    /// The graphs on which every topology and sampler is tested, with their names.
    pub fn zoo() -> Vec<(&'static str, Self)> {
        vec![
            ("a single node", Self::from_edges(1, &[])),
            ("isolated nodes", Self::from_edges(7, &[])),
            ("self-loops", Self::from_edges(3, &[(1, 1), (1, 1), (0, 0)])),
            ("duplicates", Self::from_edges(4, &[(3, 0), (2, 0), (3, 0), (3, 0), (0, 3)])),
            ("a path", Self::path(50)),
            ("a star", Self::star(2000)),
            ("a random graph", Self::random(300, 2500, 1)),
            ("a power-law graph", Self::power_law(3000, 40_000, 2)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_sorted_by_source_and_id() {
        let graph = Csc::from_edges(3, &[(2, 1), (0, 1), (2, 1), (1, 0)]);
        assert_eq!(graph.offsets, [0, 1, 4, 4]);
        assert_eq!(graph.sources, [1, 0, 2, 2]);
        assert_eq!(graph.ids, [3, 1, 0, 2]);
    }

    #[test]
    fn the_power_law_graph_has_hubs_loops_duplicates_and_isolated_nodes() {
        let graph = Csc::power_law(3000, 40_000, 2);
        let degrees: Vec<u64> = graph.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(degrees[0] > 1000, "{}", degrees[0]);
        assert!(degrees.iter().filter(|&&degree| degree == 0).count() > 10);
        assert!(graph.sources[..degrees[0] as usize].contains(&0));
        assert!(graph.sources[..degrees[0] as usize].windows(2).any(|pair| pair[0] == pair[1]));
    }
}
