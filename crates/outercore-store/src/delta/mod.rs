//! The changes of a graph since its arrays were written: adjacency lists, rows, removed nodes, and
//! the nodes of each of many graphs. Clones are cheap, so each clone serves as a snapshot.

mod apply;
mod changes;
mod graphs;
mod list;
mod overlay;
mod scan;
mod schema;

use std::collections::BTreeMap;
use std::sync::Arc;

use outercore_core::{Bytes, EdgeId, Error, ErrorKind, NodeId, Result};
use outercore_format::Update;
use rpds::HashTrieMapSync;

use changes::Changed;
pub use changes::{Applied, Replaced, ReplacedList};
pub use graphs::{GRAPHS, Graphs};
pub use list::List;
pub use overlay::Overlay;
pub use schema::{ArrayShape, Schema};

use crate::dataset::DataSet;
use crate::topology::{Extent, Topology};

/// Key of the array with the ids of removed nodes.
pub const REMOVED: &str = "live/removed";

/// Most nodes of a graph with updates: a position stores its node in 32 bits.
pub const MOST_NODES: u64 = 1 << 32;

/// Most in-edges of a changed node: a position stores its edge in 31 bits.
const MOST_DEGREE: u64 = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 31;

/// Bit that marks positions of changed lists. No file has that many edges.
const CHANGED: u64 = 1 << 63;

/// Approximate bytes of a list or a row in addition to its edges or values.
const ENTRY_BYTES: u64 = 160;

/// The changes of a graph since its arrays were written.
///
/// The first change of an adjacency list copies the whole list into the delta; rows of arrays are
/// whole, too. A clone shares all data with the original until one of them changes. So a clone is a
/// snapshot, which takes a few hundred nanoseconds.
#[derive(Clone, Debug)]
pub struct Delta {
    schema: Arc<Schema>,
    /// LSN of the last update.
    lsn: u64,
    nodes: u64,
    edges: u64,
    /// The id of the next edge.
    next_edge: EdgeId,
    lists: HashTrieMapSync<NodeId, Changed<List>>,
    node_rows: BTreeMap<String, RowMap>,
    edge_rows: BTreeMap<String, RowMap>,
    /// Rows of new graphs.
    graph_rows: BTreeMap<String, RowMap>,
    /// `None` if the data set is one graph.
    graphs: Option<Graphs>,
    removed: HashTrieMapSync<NodeId, u64>,
    /// Number of edges in `lists`.
    list_edges: u64,
    /// Bytes of rows, including their entries in the maps.
    row_bytes: u64,
}

type RowMap = HashTrieMapSync<u64, Changed<Arc<[u8]>>>;

/// The nodes that were removed before the arrays were written, ascending.
///
/// # Errors
/// `Corrupt`: the ids do not ascend. Errors of reads.
pub fn removed_nodes(data_set: &DataSet) -> Result<Vec<NodeId>> {
    if !data_set.has_array(REMOVED) {
        return Ok(Vec::new());
    }
    let removed: Vec<NodeId> =
        data_set.read_i64(REMOVED)?.into_iter().map(|node| node as u64).collect();
    let is_node = |node: &NodeId| *node < data_set.num_nodes();
    if !removed.is_sorted() || !removed.last().is_none_or(is_node) {
        return Err(Error::corrupt(format!("array `{REMOVED}`: expected nodes that ascend"))
            .hint("run `outercore check DATASET`"));
    }
    Ok(removed)
}

impl Delta {
    /// An empty delta for a data set.
    ///
    /// # Errors
    /// `Unsupported`: the graph cannot take updates, see [`Schema::of`]. Errors of reading the
    /// removed nodes.
    pub fn new(data_set: &DataSet) -> Result<Self> {
        let schema = Schema::of(data_set)?;
        let lsn = data_set.manifest().lsn();
        let removed = removed_nodes(data_set)?;
        let graphs = Graphs::open(data_set, &removed)?;
        schema.require_graphs(data_set, graphs.as_ref().map_or(0, Graphs::count))?;
        let empty = |arrays: &BTreeMap<String, ArrayShape>| {
            arrays.keys().map(|key| (key.clone(), RowMap::new_sync())).collect()
        };
        Ok(Self {
            lsn,
            nodes: schema.nodes,
            edges: schema.edges,
            next_edge: schema.edge_rows,
            lists: HashTrieMapSync::new_sync(),
            node_rows: empty(&schema.node_arrays),
            edge_rows: empty(&schema.edge_arrays),
            graph_rows: empty(&schema.graph_arrays),
            graphs,
            removed: removed.into_iter().map(|node| (node, lsn)).collect(),
            list_edges: 0,
            row_bytes: 0,
            schema: Arc::new(schema),
        })
    }

    /// The changes that remain once the arrays of `data_set` hold all updates up to their LSN.
    ///
    /// # Errors
    /// As [`Delta::new`].
    pub fn since(&self, data_set: &DataSet) -> Result<Self> {
        let mut rest = Self::new(data_set)?;
        let lsn = rest.lsn;
        for (&node, list) in self.lists.iter().filter(|(_, list)| list.lsn > lsn) {
            rest.list_edges += list.value.len();
            rest.lists.insert_mut(node, list.clone());
        }
        let maps = [
            (&self.node_rows, &mut rest.node_rows),
            (&self.edge_rows, &mut rest.edge_rows),
            (&self.graph_rows, &mut rest.graph_rows),
        ];
        for (from, to) in maps {
            for (key, rows) in from {
                let to = to.entry(key.clone()).or_default();
                for (&row, bytes) in rows.iter().filter(|(_, bytes)| bytes.lsn > lsn) {
                    rest.row_bytes += bytes.value.len() as u64 + ENTRY_BYTES;
                    to.insert_mut(row, bytes.clone());
                }
            }
        }
        for (&node, &removed) in self.removed.iter().filter(|(_, removed)| **removed > lsn) {
            rest.removed.insert_mut(node, removed);
        }
        if let (Some(graphs), Some(newer)) = (&self.graphs, &mut rest.graphs) {
            *newer = graphs.since(newer, rest.schema.nodes, self.nodes);
        }
        (rest.lsn, rest.nodes, rest.edges, rest.next_edge) =
            (self.lsn, self.nodes, self.edges, self.next_edge);
        Ok(rest)
    }

    /// LSN of the last update.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    /// Number of nodes, removed ones included.
    pub fn num_nodes(&self) -> u64 {
        self.nodes
    }

    /// Number of arcs.
    pub fn num_edges(&self) -> u64 {
        self.edges
    }

    /// All edge ids are below this.
    pub fn edge_bound(&self) -> EdgeId {
        self.next_edge
    }

    /// Number of removed nodes.
    pub fn num_removed(&self) -> u64 {
        self.removed.size() as u64
    }

    /// Whether a node was removed.
    pub fn is_removed(&self, node: NodeId) -> bool {
        self.removed.contains_key(&node)
    }

    /// The sizes and shapes of the data set's arrays.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Approximate memory of the delta, for the budget of a reader.
    pub fn memory(&self) -> Bytes {
        let lists = self.lists.size() as u64 * ENTRY_BYTES + self.list_edges * List::EDGE_BYTES;
        let graphs = self.graphs.as_ref().map_or(Bytes(0), Graphs::memory);
        Bytes(lists + self.row_bytes + self.removed.size() as u64 * 64 + graphs.0)
    }

    /// Whether the topology is the same as in the arrays.
    pub fn keeps_topology(&self) -> bool {
        self.lists.is_empty() && self.nodes == self.schema.nodes
    }

    /// The in-edges of a node, if they have changed.
    pub fn list(&self, node: NodeId) -> Option<&List> {
        self.lists.get(&node).map(|list| &list.value)
    }

    /// The nodes whose in-edges have changed, ascending.
    pub fn changed_lists(&self) -> Vec<NodeId> {
        sorted(self.lists.keys())
    }

    /// The row of a node array, if it has changed.
    pub fn node_row(&self, key: &str, node: NodeId) -> Option<&[u8]> {
        self.node_rows.get(key)?.get(&node).map(|row| &*row.value)
    }

    /// The row of an edge array, if the edge is new.
    pub fn edge_row(&self, key: &str, edge: EdgeId) -> Option<&[u8]> {
        self.edge_rows.get(key)?.get(&edge).map(|row| &*row.value)
    }

    /// Whether rows of a node array have changed.
    pub fn changes_rows(&self, key: &str) -> bool {
        self.node_rows.get(key).is_some_and(|rows| !rows.is_empty())
    }

    /// The nodes whose row of an array has changed, ascending.
    pub fn changed_rows(&self, key: &str) -> Vec<NodeId> {
        self.node_rows.get(key).map_or_else(Vec::new, |rows| sorted(rows.keys()))
    }

    /// The parts of the arrays that this delta replaces.
    pub fn replaced(&self) -> Replaced {
        let lists = self.changed_lists().into_iter().map(|node| {
            let list = self.list(node);
            // Fits, because a position stores its edge in 31 bits.
            let degree = list.map_or(0, List::len) as u32;
            let loops = list.map_or(0, |list| list.count(node)) as u32;
            ReplacedList { node, degree, loops }
        });
        let rows = self.node_rows.iter().filter(|(_, rows)| !rows.is_empty());
        let rows = rows.map(|(key, rows)| (key.clone(), sorted(rows.keys())));
        Replaced { lists: lists.collect(), rows: rows.collect() }
    }

    /// The removed nodes, ascending.
    pub fn removed(&self) -> Vec<NodeId> {
        sorted(self.removed.keys())
    }

    /// The in-degree of a node if its in-edges have changed; without self-loops unless
    /// `with_loops`.
    pub fn in_degree(&self, node: NodeId, with_loops: bool) -> Option<u64> {
        let Some(list) = self.list(node) else {
            return (node >= self.schema.nodes).then_some(0);
        };
        Some(list.len() - if with_loops { 0 } else { list.count(node) })
    }

    /// LSN of the last update in the arrays.
    pub fn base_lsn(&self) -> u64 {
        self.schema.lsn
    }

    /// LSN of the last update of a node's in-edges or of its row in the array `key`. If none is
    /// known, the LSN of the arrays.
    pub fn changed_at(&self, node: NodeId, key: Option<&str>) -> u64 {
        let list = self.lists.get(&node).map(|list| list.lsn);
        let rows = key.and_then(|key| self.node_rows.get(key));
        let row = rows.and_then(|rows| rows.get(&node)).map(|row| row.lsn);
        list.max(row).unwrap_or(self.schema.lsn)
    }

    /// Copies the unchanged in-edges of `nodes` into the delta with a few large reads. Changes do
    /// this one node at a time; doing it for many nodes together takes fewer reads.
    ///
    /// # Errors
    /// Errors of reads.
    pub fn adopt(&mut self, nodes: &[NodeId], base: &dyn Topology) -> Result<()> {
        let is_unchanged =
            |node: &NodeId| *node < self.schema.nodes && !self.lists.contains_key(node);
        let mut nodes: Vec<NodeId> = nodes.iter().copied().filter(is_unchanged).collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.is_empty() {
            return Ok(());
        }
        let mut extents = vec![Extent::default(); nodes.len()];
        base.extents(&nodes, &mut extents)?;
        let positions: Vec<u64> = extents.iter().flat_map(Extent::positions).collect();
        let (mut sources, mut ids) = (vec![0; positions.len()], vec![0; positions.len()]);
        base.sources(&positions, &mut sources)?;
        base.edge_ids(&positions, &mut ids)?;
        let (mut sources, mut ids) = (&sources[..], &ids[..]);
        for (&node, extent) in nodes.iter().zip(&extents) {
            let degree = extent.degree as usize;
            let own = sources.split_off(..degree).expect("those of its extent");
            let list = List::from_sorted(own, ids.split_off(..degree).expect("one for each"));
            self.list_edges += list.len();
            // The LSN of the arrays marks the list as unchanged.
            let lsn = self.schema.lsn;
            self.lists.insert_mut(node, Changed { value: list, lsn });
        }
        Ok(())
    }

    /// Drops the copied in-edges of those `nodes` that no update has changed.
    pub fn drop_unchanged(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            if self.lists.get(node).is_some_and(|list| list.lsn == self.schema.lsn) {
                self.list_edges -= self.list(*node).map_or(0, List::len);
                self.lists.remove_mut(node);
            }
        }
    }

    /// The nodes whose in-edges an update changes, as far as the update itself names them.
    pub fn touched(&self, update: &Update) -> Vec<NodeId> {
        match *update {
            Update::AddEdge { source, target, .. } | Update::RemoveEdge { source, target } => {
                if self.schema.undirected {
                    vec![source, target]
                } else {
                    vec![target]
                }
            }
            Update::RemoveNode { node } => vec![node],
            Update::UnregisterGraph { graph } => self.nodes_of_graph(graph),
            Update::AddNode { .. } | Update::UpdateNode { .. } | Update::RegisterGraph { .. } => {
                Vec::new()
            }
        }
    }

    /// Applies the updates of a record. An error leaves the delta half changed, so apply them to a
    /// clone.
    ///
    /// **Cost** copies the in-edges of nodes that change for the first time. Removing a node of a
    /// directed graph reads the sources of all edges; in a data set of many graphs, only the edges
    /// of its graph.
    ///
    /// # Errors
    /// `Invalid`: an unknown node, graph or edge, an edge between two graphs, or rows of unknown
    /// arrays or wrong length. `NotFound`: a removed node or graph. `Unsupported`: too many nodes
    /// or in-edges. Errors of reads.
    pub fn apply(
        &mut self,
        lsn: u64,
        updates: &[Update],
        base: &dyn Topology,
    ) -> Result<Vec<Applied>> {
        let touched: Vec<NodeId> = updates.iter().flat_map(|update| self.touched(update)).collect();
        self.adopt(&touched, base)?;
        self.lsn = lsn;
        updates.iter().map(|update| self.apply_one(update, base)).collect()
    }

    /// Checks that a node exists.
    ///
    /// # Errors
    /// `Invalid`: it never existed. `NotFound`: it was removed.
    pub fn require(&self, node: NodeId) -> Result<()> {
        if node >= self.nodes {
            let text = format!("node {node}: expected a node below {}", self.nodes);
            return Err(Error::invalid(text));
        }
        if self.is_removed(node) {
            return Err(Error::new(ErrorKind::NotFound, format!("node {node} was removed")));
        }
        Ok(())
    }
}

fn sorted<'a>(keys: impl Iterator<Item = &'a u64>) -> Vec<u64> {
    let mut keys: Vec<u64> = keys.copied().collect();
    keys.sort_unstable();
    keys
}
