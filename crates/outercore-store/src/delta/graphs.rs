//! Which nodes each graph of a data set of many has, and the updates that change this.

use std::collections::HashMap;
use std::sync::Arc;

use outercore_core::{Bytes, Error, ErrorKind, NodeId, Result};
use outercore_format::{DType, NewEdge, Rows, keys};
use rpds::{HashTrieMapSync, HashTrieSetSync, VectorSync};

use super::{Applied, Changed, Delta, ENTRY_BYTES, List, RowMap};
use crate::dataset::DataSet;
use crate::topology::Topology;

/// Key of the graph of each node that updates have added, in the order of the nodes.
pub const GRAPHS: &str = "live/graphs";

/// Bytes of a new node in a graph, roughly.
const MEMBER_BYTES: u64 = 64;

/// The graphs of a data set of many.
///
/// The nodes that were imported are a range a graph. Nodes that updates add follow all of these and
/// name their graph. A graph without a node has been unregistered. A clone is a snapshot, as that of
/// a [`Delta`] is.
#[derive(Clone, Debug)]
pub struct Graphs {
    arrays: Arc<Arrays>,
    /// Graph of each node that the arrays do not have.
    of_new: VectorSync<u64>,
    /// Those nodes by graph, ascending.
    new: HashTrieMapSync<u64, VectorSync<NodeId>>,
    count: u64,
    unregistered: HashTrieSetSync<u64>,
}

/// The graphs as the arrays have them.
#[derive(Debug)]
struct Arrays {
    /// Where the imported nodes of each imported graph begin, and where the last ones end.
    ends: Vec<NodeId>,
    /// Graph of each node after those.
    of_added: Vec<u64>,
    /// Those nodes by graph, ascending.
    added: HashMap<u64, Vec<NodeId>>,
}

impl Graphs {
    /// Those of a data set, whose `removed` nodes are ascending; `None` where it is one graph.
    ///
    /// **Cost** 8 bytes a graph, and about 60 bytes a node that updates have added.
    ///
    /// # Errors
    /// `Corrupt`: graphs that do not follow each other, or an added node of a graph that there is
    /// not. Failed reads.
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

    /// Graphs, unregistered ones included.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Unregistered graphs.
    pub fn num_unregistered(&self) -> u64 {
        self.unregistered.size() as u64
    }

    /// Whether a graph was unregistered.
    pub fn is_unregistered(&self, graph: u64) -> bool {
        self.unregistered.contains(&graph)
    }

    /// Nodes of the largest graph, removed ones included.
    pub fn largest(&self) -> u64 {
        let imported = self.arrays.ends.windows(2).map(|ends| ends[1] - ends[0]).max();
        // Most graphs are as they were imported.
        let changed = self.arrays.added.keys().chain(self.new.keys());
        let changed = changed.map(|&graph| self.nodes(graph).count() as u64).max();
        imported.max(changed).unwrap_or(0)
    }

    /// The graph of a node that there is or was.
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

    /// The nodes of a graph, ascending, removed ones included; none of a graph that never was.
    pub fn nodes(&self, graph: u64) -> impl Iterator<Item = NodeId> + '_ {
        let Arrays { ends, added, .. } = &*self.arrays;
        let ends = usize::try_from(graph).ok().and_then(|graph| ends.get(graph..)?.get(..2));
        let imported = ends.map_or(0..0, |ends| ends[0]..ends[1]);
        let added = added.get(&graph).into_iter().flatten();
        imported.chain(added.chain(self.new.get(&graph).into_iter().flatten()).copied())
    }

    /// A graph that there is.
    ///
    /// # Errors
    /// `Invalid`: it never was. `NotFound`: it was unregistered.
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

    /// Memory that changes since the arrays were written take, roughly.
    pub(super) fn memory(&self) -> Bytes {
        let entries = self.new.size() as u64 * ENTRY_BYTES;
        let unregistered = self.unregistered.size() as u64 * MEMBER_BYTES;
        Bytes(entries + unregistered + self.of_new.len() as u64 * MEMBER_BYTES)
    }

    /// The graph of every node that updates have added, in the order of the nodes.
    pub fn of_added(&self) -> impl Iterator<Item = u64> + '_ {
        self.arrays.of_added.iter().chain(self.of_new.iter()).copied()
    }

    /// What stays of the changes once `newer` arrays hold the nodes below `nodes`, of `count`.
    pub(super) fn since(&self, newer: &Self, nodes: NodeId, count: NodeId) -> Self {
        let mut rest = newer.clone();
        (nodes..count).for_each(|node| rest.push(node, self.of(node)));
        (rest.count, rest.unregistered) = (self.count, self.unregistered.clone());
        rest
    }

    /// Enters the next node.
    fn push(&mut self, node: NodeId, graph: u64) {
        self.of_new.push_back_mut(graph);
        if !self.new.contains_key(&graph) {
            self.new.insert_mut(graph, VectorSync::new_sync());
        }
        self.new.get_mut(&graph).expect("just entered").push_back_mut(node);
    }
}

impl Arrays {
    /// Reads them; the second number is that of the graphs.
    fn read(data_set: &DataSet) -> Result<(Self, u64)> {
        let corrupt = |key: &str, what: &str| {
            Err(Error::corrupt(format!("array `{key}`: expected {what}"))
                .hint("run `outercore check DATASET`"))
        };
        let first = data_set.array(keys::FIRST_NODES)?;
        // Signed or not, it has 8 bytes, and a negative number does not ascend.
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
            // A graph gets its id with its first node.
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
    /// The graphs of a data set of many; `None` of one graph.
    pub fn graphs(&self) -> Option<&Graphs> {
        self.graphs.as_ref()
    }

    /// The row of an array of graphs, if the graph is new.
    pub fn graph_row(&self, key: &str, graph: u64) -> Option<&[u8]> {
        self.graph_rows.get(key)?.get(&graph).map(|row| &*row.value)
    }

    /// The nodes that a graph has now, ascending; none of a data set of one graph.
    pub fn nodes_of_graph(&self, graph: u64) -> Vec<NodeId> {
        self.live_nodes(graph).collect()
    }

    fn live_nodes(&self, graph: u64) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = self.graphs.as_ref().map(|graphs| graphs.nodes(graph));
        nodes.into_iter().flatten().filter(|&node| !self.is_removed(node))
    }

    /// A new node joins one of many graphs, and of one graph names none.
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

    /// Both ends of an edge are in one graph.
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

    /// A node that is not the last one of its graph.
    pub(super) fn require_others(&self, node: NodeId) -> Result<()> {
        let Some(graphs) = &self.graphs else { return Ok(()) };
        let graph = graphs.of(node);
        if self.live_nodes(graph).any(|other| other != node) {
            return Ok(());
        }
        Err(Error::invalid(format!("node {node} is the last one of graph {graph}"))
            .hint("unregister the graph instead"))
    }

    /// Enters the graph of the next node.
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
        // A loop is one arc in an undirected graph, too.
        Ok(Applied::Removed(if self.schema.undirected { (arcs + loops) / 2 } else { arcs }))
    }
}

fn one_graph() -> Error {
    Error::invalid("the data set is one graph: it has no graphs to join, register or unregister")
}
