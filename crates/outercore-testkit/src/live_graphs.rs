//! A reference model of the graphs in a changing data set of many, written directly from the
//! definition.

use std::collections::BTreeSet;

use outercore_core::Uniform;
use outercore_format::{DType, Rows, keys};
use outercore_store::dataset::DataSet;
use outercore_store::delta::{GRAPHS, Graphs};

/// Receives an array: its key, type, shape and bytes.
pub(crate) type WriteArray<'a> = dyn FnMut(&str, DType, &[u64], Vec<u8>) + 'a;

/// The graph of each node, with labels and a split of graphs.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveGraphs {
    /// Graph of each node, including removed nodes.
    pub of: Vec<u64>,
    /// Label of each graph, including unregistered ones.
    pub y: Vec<i64>,
    /// A split of graphs.
    pub train: Vec<i64>,
    /// Unregistered graphs.
    pub unregistered: BTreeSet<u64>,
    /// Number of imported nodes.
    imported: usize,
}

impl LiveGraphs {
    /// Graphs with these numbers of nodes, in the form of an import.
    pub(crate) fn new(sizes: &[u64]) -> Self {
        let of: Vec<u64> =
            (0..).zip(sizes).flat_map(|(graph, &size)| (0..size).map(move |_| graph)).collect();
        Self {
            imported: of.len(),
            of,
            y: (0..sizes.len() as i64).map(|graph| graph % 2).collect(),
            train: (0..sizes.len() as i64).rev().step_by(2).collect(),
            unregistered: BTreeSet::new(),
        }
    }

    /// Number of graphs, including unregistered ones.
    pub fn count(&self) -> u64 {
        self.y.len() as u64
    }

    /// The current nodes of a graph, ascending.
    pub fn nodes(&self, graph: u64, removed: &BTreeSet<u64>) -> Vec<u64> {
        (0..self.of.len() as u64)
            .filter(|node| self.of[*node as usize] == graph && !removed.contains(node))
            .collect()
    }

    pub(crate) fn is_there(&self, graph: u64) -> bool {
        graph < self.count() && !self.unregistered.contains(&graph)
    }

    pub(crate) fn are_together(&self, source: u64, target: u64) -> bool {
        self.of[source as usize] == self.of[target as usize]
    }

    pub(crate) fn is_last(&self, node: u64, removed: &BTreeSet<u64>) -> bool {
        self.nodes(self.of[node as usize], removed) == [node]
    }

    pub(crate) fn register(&mut self, rows: &Rows) -> u64 {
        self.y.push(i64::from_le_bytes(rows[keys::GRAPH_LABELS][..].try_into().unwrap()));
        self.count() - 1
    }

    /// All nodes that have ever been in the graph.
    pub(crate) fn unregister(&mut self, graph: u64) -> Vec<u64> {
        self.unregistered.insert(graph);
        self.train.retain(|&kept| kept as u64 != graph);
        self.nodes(graph, &BTreeSet::new())
    }

    /// A node that is or was in the same graph as `node`.
    pub(crate) fn neighbour(&self, node: u64, draws: &mut Uniform) -> u64 {
        let nodes = self.nodes(self.of[node as usize], &BTreeSet::new());
        nodes[draws.below(nodes.len() as u64) as usize]
    }

    /// Passes the arrays of graphs to `write`, in the form of an import.
    pub(crate) fn write(&self, write: &mut WriteArray<'_>) {
        let bytes = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let first: Vec<i64> = (0..self.count())
            .map(|graph| self.of.iter().position(|of| *of == graph).unwrap() as i64)
            .collect();
        write(keys::FIRST_NODES, DType::I64, &[self.count()], bytes(&first));
        write(keys::GRAPH_LABELS, DType::I64, &[self.count()], bytes(&self.y));
        let split = keys::graph_array("splits/train");
        write(&split, DType::I64, &[self.train.len() as u64], bytes(&self.train));
    }

    /// Compares the graphs of a snapshot with the model; `removed` are the snapshot's removed
    /// nodes.
    ///
    /// # Panics
    /// If they differ.
    pub fn assert_graphs(&self, graphs: &Graphs, removed: &BTreeSet<u64>) {
        assert_eq!(graphs.count(), self.count());
        assert_eq!(graphs.num_unregistered(), self.unregistered.len() as u64);
        for graph in 0..self.count() {
            let nodes: Vec<u64> =
                graphs.nodes(graph).filter(|node| !removed.contains(node)).collect();
            assert_eq!(nodes, self.nodes(graph, removed), "graph {graph}");
            assert_eq!(graphs.require(graph).is_ok(), self.is_there(graph), "graph {graph}");
        }
        let sizes = (0..self.count()).map(|graph| self.nodes(graph, &BTreeSet::new()).len());
        assert_eq!(graphs.largest(), sizes.max().unwrap_or(0) as u64);
        let found: Vec<u64> = (0..self.of.len() as u64).map(|node| graphs.of(node)).collect();
        assert_eq!(found, self.of);
        assert_eq!(graphs.nodes(self.count()).count(), 0);
    }

    /// Compares the arrays of a data set with the model.
    pub(crate) fn assert_arrays(&self, data_set: &DataSet) {
        let added: Vec<i64> = self.of[self.imported..].iter().map(|&graph| graph as i64).collect();
        let found = match data_set.has_array(GRAPHS) {
            true => data_set.read_i64(GRAPHS).unwrap(),
            false => Vec::new(),
        };
        assert_eq!(found, added);
        assert_eq!(data_set.read_i64(keys::GRAPH_LABELS).unwrap(), self.y);
        let split = keys::graph_array("splits/train");
        assert_eq!(data_set.read_i64(&split).unwrap(), self.train);
    }
}
