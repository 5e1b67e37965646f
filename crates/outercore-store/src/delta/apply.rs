//! Applies updates to a delta, one after the other.

use outercore_core::{EdgeId, Error, ErrorKind, NodeId, Result};
use outercore_format::{Rows, Update};

use super::{Applied, Changed, Delta, ENTRY_BYTES, INDEX_BITS, List, MOST_DEGREE, MOST_NODES};
use crate::topology::Topology;

impl Delta {
    pub(super) fn apply_one(&mut self, update: &Update, base: &dyn Topology) -> Result<Applied> {
        match update {
            Update::AddEdge { source, target, rows } => self.add_edge(*source, *target, rows, base),
            Update::RemoveEdge { source, target } => self.remove_edge(*source, *target, base),
            Update::AddNode { graph, rows } => self.add_node(*graph, rows).map(Applied::Node),
            Update::RemoveNode { node } => self.remove_node(*node, base),
            Update::UpdateNode { node, rows } => {
                self.require(*node)?;
                self.schema.check_node_rows(rows, false)?;
                self.enter_node_rows(*node, rows);
                Ok(Applied::Rows)
            }
            Update::RegisterGraph { rows, nodes, edges } => {
                self.register_graph(rows, nodes, edges, base)
            }
            Update::UnregisterGraph { graph } => self.unregister_graph(*graph, base),
        }
    }

    pub(super) fn add_edge(
        &mut self,
        source: NodeId,
        target: NodeId,
        rows: &Rows,
        base: &dyn Topology,
    ) -> Result<Applied> {
        self.require(source)?;
        self.require(target)?;
        self.require_together(source, target)?;
        self.schema.check_edge_rows(rows)?;
        let id = self.next_edge;
        self.next_edge += 1;
        self.add_arc(source, target, id, base)?;
        if self.schema.undirected && source != target {
            self.add_arc(target, source, id, base)?;
        }
        for (key, row) in rows {
            self.row_bytes += row.len() as u64 + ENTRY_BYTES;
            let row = Changed { value: row.as_slice().into(), lsn: self.lsn };
            self.edge_rows.entry(key.clone()).or_default().insert_mut(id, row);
        }
        Ok(Applied::Edge(id))
    }

    fn add_arc(
        &mut self,
        source: NodeId,
        target: NodeId,
        id: EdgeId,
        base: &dyn Topology,
    ) -> Result<()> {
        let list = self.list_mut(target, base)?;
        if list.len() + 1 >= MOST_DEGREE {
            let text = format!("node {target}: 2^{INDEX_BITS} in-edges, more than can be updated");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        list.insert(source, id);
        self.list_edges += 1;
        self.edges += 1;
        Ok(())
    }

    fn remove_edge(
        &mut self,
        source: NodeId,
        target: NodeId,
        base: &dyn Topology,
    ) -> Result<Applied> {
        self.require(source)?;
        self.require(target)?;
        let removed = self.remove_arcs(source, target, base)?;
        if removed == 0 {
            return Err(Error::invalid(format!("there is no edge from {source} to {target}")));
        }
        if self.schema.undirected && source != target {
            self.remove_arcs(target, source, base)?;
        }
        Ok(Applied::Removed(removed))
    }

    /// Removes the arcs from `source` to `target`; returns their number.
    fn remove_arcs(&mut self, source: NodeId, target: NodeId, base: &dyn Topology) -> Result<u64> {
        // Copy the list unmarked first: without arcs to remove, it must not count as changed.
        self.adopt(&[target], base)?;
        if self.list(target).is_none_or(|list| list.count(source) == 0) {
            return Ok(0);
        }
        let removed = self.list_mut(target, base)?.remove(source).len() as u64;
        self.list_edges -= removed;
        self.edges -= removed;
        Ok(removed)
    }

    pub(super) fn add_node(&mut self, graph: Option<u64>, rows: &Rows) -> Result<NodeId> {
        self.require_joined(graph)?;
        let node = self.nodes;
        if node + 1 >= MOST_NODES {
            let text = "2^32 nodes, more than a graph with updates can have";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        self.schema.check_node_rows(rows, true)?;
        self.nodes += 1;
        self.join(node, graph);
        self.enter_node_rows(node, rows);
        Ok(node)
    }

    fn remove_node(&mut self, node: NodeId, base: &dyn Topology) -> Result<Applied> {
        self.require(node)?;
        self.require_others(node)?;
        self.adopt(&[node], base)?;
        let own: Vec<NodeId> =
            self.list(node).into_iter().flat_map(List::iter).map(|edge| edge.0).collect();
        let mut removed = own.iter().filter(|&&source| source == node).count() as u64;
        let mut targets = match (self.schema.undirected, &self.graphs) {
            // In an undirected graph, the targets of a node are its sources.
            (true, _) => own.clone(),
            (false, None) => self.targets_of(node, base)?,
            // All edges of the node stay within its graph.
            (false, Some(graphs)) => self.nodes_of_graph(graphs.of(node)),
        };
        targets.sort_unstable();
        targets.dedup();
        targets.retain(|&target| target != node);
        self.adopt(&targets, base)?;
        for &target in &targets {
            removed += self.remove_arcs(node, target, base)?;
        }
        self.drop_unchanged(&targets);
        if !self.schema.undirected {
            removed += own.iter().filter(|&&source| source != node).count() as u64;
        }
        if !own.is_empty() {
            *self.list_mut(node, base)? = List::default();
            self.list_edges -= own.len() as u64;
            self.edges -= own.len() as u64;
        }
        self.removed.insert_mut(node, self.lsn);
        Ok(Applied::Removed(removed))
    }

    fn enter_node_rows(&mut self, node: NodeId, rows: &Rows) {
        for (key, row) in rows {
            let of_array = self.node_rows.entry(key.clone()).or_default();
            if !of_array.contains_key(&node) {
                self.row_bytes += row.len() as u64 + ENTRY_BYTES;
            }
            of_array.insert_mut(node, Changed { value: row.as_slice().into(), lsn: self.lsn });
        }
    }

    /// The in-edges of a node, for a change.
    pub(super) fn list_mut(&mut self, node: NodeId, base: &dyn Topology) -> Result<&mut List> {
        self.adopt(&[node], base)?;
        if !self.lists.contains_key(&node) {
            self.lists.insert_mut(node, Changed::default());
        }
        let list = self.lists.get_mut(&node).expect("just entered");
        list.lsn = self.lsn;
        Ok(&mut list.value)
    }
}
