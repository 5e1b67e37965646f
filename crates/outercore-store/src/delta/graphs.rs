//! The nodes of each graph in a data set of many, and the updates that change them.

use std::collections::HashMap;
use std::sync::Arc;

use outercore_core::{Bytes, Error, ErrorKind, NodeId, Result};
use outercore_format::{DType, NewEdge, Rows, keys};
use rpds::{HashTrieMapSync, HashTrieSetSync, VectorSync};

use super::{Applied, Changed, Delta, ENTRY_BYTES, List, RowMap};
use crate::dataset::DataSet;
use crate::topology::Topology;

/// Key of the array with the graph of each node that updates have added, in the order of the nodes.
pub const GRAPHS: &str = "live/graphs";

/// Approximate bytes of a new node in a graph.
const MEMBER_BYTES: u64 = 64;

/// The graphs of a data set of many.
///
/// The imported nodes of each graph are a range of ids. Nodes from updates have higher ids and
/// record their graph. A graph without nodes was unregistered. A clone is a snapshot, like a clone
/// of a [`Delta`].
#[derive(Clone, Debug)]
pub struct Graphs {
    arrays: Arc<Arrays>,
    /// Graph of each node beyond the arrays.
    of_new: VectorSync<u64>,
    /// These nodes by graph, ascending.
    new: HashTrieMapSync<u64, VectorSync<NodeId>>,
    count: u64,
    unregistered: HashTrieSetSync<u64>,
}

/// The graphs in the arrays.
#[derive(Debug)]
struct Arrays {
    /// The first node of each imported graph, and the end of the last graph.
    ends: Vec<NodeId>,
    /// Graph of each later node.
    of_added: Vec<u64>,
    /// These later nodes by graph, ascending.
    added: HashMap<u64, Vec<NodeId>>,
}

impl Graphs {
    /// The graphs of a data set; `removed` are its removed nodes, ascending. `None` if the data set
    /// is one graph.
    ///
    /// **Cost** 8 bytes per graph, and about 60 bytes per node that updates have added.
    ///
    /// # Errors
    /// `Corrupt`: the ranges of graphs are not consecutive, or an added node belongs to an unknown
    /// graph. Errors of reads.
    pub fn open(data_set: &DataSet, removed: &[NodeId]) -> Result<Option<Self>> {
        if !data_set.has_array(keys::FIRST_NODES) {
            return Ok(None);
        }
        let (arrays, count) = Arrays::read(data_set)?;
        let mut graphs = Self {
            arrays: Arc::new(arrays),
            of_new: VectorSync::new_sync(),
            new: HashTrieMapSync::new_sync(),
            count,
            unregistered: HashTrieSetSync::new_sync(),
        };
        for &node in removed {
            let graph = graphs.of(node);
            let is_removed = |node: NodeId| removed.binary_search(&node).is_ok();
            if !graphs.is_unregistered(graph) && graphs.nodes(graph).all(is_removed) {
                graphs.unregistered.insert_mut(graph);
            }
        }
        Ok(Some(graphs))
    }

    /// Number of graphs, unregistered ones included.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Number of unregistered graphs.
    pub fn num_unregistered(&self) -> u64 {
        self.unregistered.size() as u64
    }

    /// Whether a graph was unregistered.
    pub fn is_unregistered(&self, graph: u64) -> bool {
        self.unregistered.contains(&graph)
    }

    /// Number of nodes of the largest graph, removed nodes included.
    pub fn largest(&self) -> u64 {
        let imported = self.arrays.ends.windows(2).map(|ends| ends[1] - ends[0]).max();
        // Only graphs with added nodes can be larger than their imported range.
        let changed = self.arrays.added.keys().chain(self.new.keys());
        let changed = changed.map(|&graph| self.nodes(graph).count() as u64).max();
        imported.max(changed).unwrap_or(0)
    }

    /// The graph of an existing or removed node.
    pub fn of(&self, node: NodeId) -> u64 {
        let Arrays { ends, of_added, .. } = &*self.arrays;
        let imported = ends.last().copied().unwrap_or(0);
        let Some(place) = node.checked_sub(imported) else {
            return ends.partition_point(|first| *first <= node) as u64 - 1;
        };
        let new = place.checked_sub(of_added.len() as u64);
        match new {
            None => of_added[place as usize],
            Some(new) => *self.of_new.get(new as usize).expect("a node that there is or was"),
        }
    }

    /// The nodes of a graph, ascending, removed ones included; empty for an unknown graph.
    pub fn nodes(&self, graph: u64) -> impl Iterator<Item = NodeId> + '_ {
        let Arrays { ends, added, .. } = &*self.arrays;
        let ends = usize::try_from(graph).ok().and_then(|graph| ends.get(graph..)?.get(..2));
        let imported = ends.map_or(0..0, |ends| ends[0]..ends[1]);
        let added = added.get(&graph).into_iter().flatten();
        imported.chain(added.chain(self.new.get(&graph).into_iter().flatten()).copied())
    }

    /// Checks that a graph exists.
    ///
    /// # Errors
    /// `Invalid`: it never existed. `NotFound`: it was unregistered.
    pub fn require(&self, graph: u64) -> Result<()> {
        if graph >= self.count {
            let text = format!("graph {graph}: expected a graph below {}", self.count);
            return Err(Error::invalid(text));
        }
        if self.is_unregistered(graph) {
            let text = format!("graph {graph} was unregistered");
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        Ok(())
    }

    /// Approximate memory of the changes since the arrays were written.
    pub(super) fn memory(&self) -> Bytes {
        let entries = self.new.size() as u64 * ENTRY_BYTES;
        let unregistered = self.unregistered.size() as u64 * MEMBER_BYTES;
        Bytes(entries + unregistered + self.of_new.len() as u64 * MEMBER_BYTES)
    }

    /// The graph of every node from updates, in the order of the nodes.
    pub fn of_added(&self) -> impl Iterator<Item = u64> + '_ {
        self.arrays.of_added.iter().chain(self.of_new.iter()).copied()
    }

    /// The changes that remain once the `newer` arrays hold the nodes below `nodes`, out of
    /// `count`.
    pub(super) fn since(&self, newer: &Self, nodes: NodeId, count: NodeId) -> Self {
        let mut rest = newer.clone();
        (nodes..count).for_each(|node| rest.push(node, self.of(node)));
        (rest.count, rest.unregistered) = (self.count, self.unregistered.clone());
        rest
    }

    /// Adds the next node.
    fn push(&mut self, node: NodeId, graph: u64) {
        self.of_new.push_back_mut(graph);
        if !self.new.contains_key(&graph) {
            self.new.insert_mut(graph, VectorSync::new_sync());
        }
        self.new.get_mut(&graph).expect("just entered").push_back_mut(node);
    }
}

impl Arrays {
    /// Reads the arrays; also returns the number of graphs.
    fn read(data_set: &DataSet) -> Result<(Self, u64)> {
        let corrupt = |key: &str, what: &str| {
            Err(Error::corrupt(format!("array `{key}`: expected {what}"))
                .hint("run `outercore check DATASET`"))
        };
        let first = data_set.array(keys::FIRST_NODES)?;
        // Either type has 8 bytes, and a negative number would fail the check for ascending order.
        if !matches!(first.dtype, DType::I64 | DType::U64) {
            return corrupt(&first.key, "int64 or uint64");
        }
        let bytes = data_set.read_array(&first.key)?;
        let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let mut ends: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(number).collect();
        let of_added: Vec<u64> = match data_set.has_array(GRAPHS) {
            true => data_set.read_i64(GRAPHS)?.into_iter().map(|graph| graph as u64).collect(),
            false => Vec::new(),
        };
        let mut count = ends.len() as u64;
        ends.push(data_set.num_nodes().saturating_sub(of_added.len() as u64));
        if count == 0 || ends[0] != 0 || ends.windows(2).any(|pair| pair[0] >= pair[1]) {
            return corrupt(&first.key, "nodes that ascend from 0, of one graph at least");
        }
        let mut added: HashMap<u64, Vec<NodeId>> = HashMap::new();
        for (node, &graph) in (ends[count as usize]..).zip(&of_added) {
            // The first node of a graph takes the next id of a graph.
            if graph > count {
                return corrupt(GRAPHS, &format!("graphs up to {count}, found {graph}"));
            }
            count = count.max(graph + 1);
            added.entry(graph).or_default().push(node);
        }
        Ok((Self { ends, of_added, added }, count))
    }
}

/// Updates of graphs.
impl Delta {
    /// The graphs of a data set of many; `None` for a single graph.
    pub fn graphs(&self) -> Option<&Graphs> {
        self.graphs.as_ref()
    }

    /// The row of a graph array, if the graph is new.
    pub fn graph_row(&self, key: &str, graph: u64) -> Option<&[u8]> {
        self.graph_rows.get(key)?.get(&graph).map(|row| &*row.value)
    }

    /// The current nodes of a graph, ascending; empty for a data set of one graph.
    pub fn nodes_of_graph(&self, graph: u64) -> Vec<NodeId> {
        self.live_nodes(graph).collect()
    }

    fn live_nodes(&self, graph: u64) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = self.graphs.as_ref().map(|graphs| graphs.nodes(graph));
        nodes.into_iter().flatten().filter(|&node| !self.is_removed(node))
    }

    /// Checks that a new node names a graph in a data set of many, and names none otherwise.
    pub(super) fn require_joined(&self, graph: Option<u64>) -> Result<()> {
        match (&self.graphs, graph) {
            (None, None) => Ok(()),
            (Some(graphs), Some(graph)) => graphs.require(graph),
            (Some(_), None) => {
                Err(Error::invalid("a new node needs `graph`: the data set holds many graphs"))
            }
            (None, Some(_)) => Err(one_graph()),
        }
    }

    /// Checks that both ends of an edge are in the same graph.
    pub(super) fn require_together(&self, source: NodeId, target: NodeId) -> Result<()> {
        let Some(graphs) = &self.graphs else { return Ok(()) };
        let (from, to) = (graphs.of(source), graphs.of(target));
        if from == to {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "node {source} is in graph {from} and node {target} in graph {to}: no edge connects \
             two graphs"
        )))
    }

    /// Checks that a node is not the last one of its graph.
    pub(super) fn require_others(&self, node: NodeId) -> Result<()> {
        let Some(graphs) = &self.graphs else { return Ok(()) };
        let graph = graphs.of(node);
        if self.live_nodes(graph).any(|other| other != node) {
            return Ok(());
        }
        Err(Error::invalid(format!("node {node} is the last one of graph {graph}"))
            .hint("unregister the graph instead"))
    }

    /// Records the graph of the next node.
    pub(super) fn join(&mut self, node: NodeId, graph: Option<u64>) {
        if let (Some(graphs), Some(graph)) = (&mut self.graphs, graph) {
            graphs.push(node, graph);
        }
    }

    pub(super) fn register_graph(
        &mut self,
        rows: &Rows,
        nodes: &[Rows],
        edges: &[NewEdge],
        base: &dyn Topology,
    ) -> Result<Applied> {
        let graphs = self.graphs.as_mut().ok_or_else(one_graph)?;
        if nodes.is_empty() {
            return Err(Error::invalid("a graph without nodes, expected at least one"));
        }
        self.schema.check_graph_rows(rows)?;
        let (graph, first_node) = (graphs.count, self.nodes);
        graphs.count += 1;
        for rows in nodes {
            self.add_node(Some(graph), rows)?;
        }
        let count = nodes.len() as u64;
        for (place, NewEdge { source, target, rows }) in edges.iter().enumerate() {
            let end = (*source).max(*target);
            if end >= count {
                let text = format!("edge {place}: node {end}, expected a place below {count}");
                return Err(Error::invalid(text));
            }
            self.add_edge(first_node + source, first_node + target, rows, base)?;
        }
        for (key, row) in rows {
            self.row_bytes += row.len() as u64 + ENTRY_BYTES;
            let row = Changed { value: row.as_slice().into(), lsn: self.lsn };
            self.graph_rows.entry(key.clone()).or_insert_with(RowMap::new_sync);
            self.graph_rows.get_mut(key).expect("just entered").insert_mut(graph, row);
        }
        Ok(Applied::Graph { graph, first_node })
    }

    pub(super) fn unregister_graph(&mut self, graph: u64, base: &dyn Topology) -> Result<Applied> {
        self.graphs.as_ref().ok_or_else(one_graph)?.require(graph)?;
        let nodes = self.nodes_of_graph(graph);
        self.adopt(&nodes, base)?;
        let (mut arcs, mut loops) = (0, 0);
        for &node in &nodes {
            let list = self.list(node).map_or((0, 0), |list| (list.len(), list.count(node)));
            if list.0 > 0 {
                *self.list_mut(node, base)? = List::default();
            }
            (arcs, loops) = (arcs + list.0, loops + list.1);
            self.removed.insert_mut(node, self.lsn);
        }
        self.list_edges -= arcs;
        self.edges -= arcs;
        self.drop_unchanged(&nodes);
        if let Some(graphs) = &mut self.graphs {
            graphs.unregistered.insert_mut(graph);
        }
        // A self-loop is one arc, in an undirected graph, too.
        Ok(Applied::Removed(if self.schema.undirected { (arcs + loops) / 2 } else { arcs }))
    }
}

fn one_graph() -> Error {
    Error::invalid("the data set is one graph: it has no graphs to join, register or unregister")
}
