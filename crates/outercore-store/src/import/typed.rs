//! Converts edges of several types to the source and column of one CSC.

use std::collections::BTreeMap;

use outercore_core::{Error, Result};
use outercore_format::{EdgeRange, EdgeType, NodeType, Schema};
use serde::Deserialize;

/// The node types and edge types of a graph to import.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphTypes {
    /// Number of nodes of each type.
    pub nodes: BTreeMap<String, u64>,
    /// Edge types: source type, relation, target type.
    pub edges: Vec<(String, String, String)>,
}

/// Takes edges with ids within their types, and returns pairs of global source and column.
pub(super) struct TypedEdges {
    types: BTreeMap<String, EdgeType>,
    nodes: BTreeMap<String, u64>,
    /// Ranges of nodes and columns. The number of rows of an edge type is only known at the end.
    schema: Schema,
    /// The current edge type.
    current: Option<usize>,
    /// Number of edges so far of each edge type.
    rows: Vec<u64>,
    pairs: Vec<[u64; 2]>,
}

impl TypedEdges {
    /// # Errors
    /// `Invalid`: two edge types with the same name, or an edge type between unknown node types.
    pub fn new(types: &GraphTypes) -> Result<Self> {
        let mut edges = BTreeMap::new();
        for (source, relation, target) in &types.edges {
            let name = EdgeRange::key(source, relation, target);
            let (source, target) = (source.clone(), target.clone());
            let edge_type = EdgeType { source, target, ..EdgeType::default() };
            if edges.insert(name.clone(), edge_type).is_some() {
                return Err(Error::invalid(format!("edge type `{name}` is given twice")));
            }
        }
        let schema = Schema::new(
            types.nodes.iter().map(|(name, &count)| (name.clone(), count)),
            edges.iter().map(|(name, edges)| (name.clone(), &*edges.source, &*edges.target, 0)),
        )?;
        let rows = vec![0; edges.len()];
        let nodes = types.nodes.clone();
        Ok(Self { types: edges, nodes, schema, current: None, rows, pairs: Vec::new() })
    }

    pub fn num_nodes(&self) -> u64 {
        self.schema.num_nodes()
    }

    pub fn num_columns(&self) -> u64 {
        self.schema.num_columns()
    }

    /// Number of nodes of a type.
    pub fn nodes_of(&self, node_type: &str) -> Result<u64> {
        let range = &self.schema.node_types()[self.schema.node_type(node_type)?].nodes;
        Ok(range.end - range.start)
    }

    /// Number of edges so far of an edge type.
    pub fn rows_of(&self, edge_type: &str) -> Result<u64> {
        Ok(self.rows[self.schema.edge_type(edge_type)?])
    }

    /// Starts an edge type. Types come in the order of their names, so that edge ids do, too.
    pub fn begin(&mut self, name: &str) -> Result<()> {
        let place = self.schema.edge_type(name)?;
        if self.current.is_some_and(|current| place <= current) {
            return Err(Error::internal(format!("edge type `{name}` comes too late")));
        }
        self.current = Some(place);
        Ok(())
    }

    /// Converts edges of the current type, with ids within their types, to pairs of source and
    /// column.
    pub fn pairs(&mut self, sources: &[i64], targets: &[i64]) -> Result<&[[u64; 2]]> {
        let Some(current) = self.current else {
            return Err(Error::internal("edges before the first edge type"));
        };
        let edge_type = &self.schema.edge_types()[current];
        if sources.len() != targets.len() {
            return Err(Error::invalid(format!(
                "edge type `{}`: a batch has {} sources and {} targets, expected as many of each",
                edge_type.name,
                sources.len(),
                targets.len()
            )));
        }
        let ends = [edge_type.source, edge_type.target].map(|end| &self.schema.node_types()[end]);
        let rows = self.rows[current];
        let within = |place: usize, id: i64, end: usize| {
            let count = ends[end].nodes.end - ends[end].nodes.start;
            u64::try_from(id).ok().filter(|&id| id < count).ok_or_else(|| {
                Error::invalid(format!(
                    "edge type `{}`: row {}: {} {id} is no node of type `{}`, which has {count}",
                    edge_type.name,
                    rows + place as u64,
                    ["source", "target"][end],
                    ends[end].name
                ))
            })
        };
        self.pairs.clear();
        for (place, (&source, &target)) in sources.iter().zip(targets).enumerate() {
            let source = ends[0].nodes.start + within(place, source, 0)?;
            let column = edge_type.columns.start + within(place, target, 1)?;
            self.pairs.push([source, column]);
        }
        self.rows[current] += sources.len() as u64;
        Ok(&self.pairs)
    }

    /// The types as stored in a manifest; `arcs` counts the arcs in a range of columns.
    pub fn in_manifest(
        &self,
        mut arcs: impl FnMut(u64, u64) -> Result<u64>,
    ) -> Result<(BTreeMap<String, NodeType>, BTreeMap<String, EdgeType>)> {
        let nodes = self.nodes.iter().map(|(name, &count)| (name.clone(), NodeType::of(count)));
        let mut edges = self.types.clone();
        for ((edge_type, range), &rows) in
            edges.values_mut().zip(self.schema.edge_types()).zip(&self.rows)
        {
            edge_type.count = arcs(range.columns.start, range.columns.end)?;
            edge_type.rows = Some(rows);
        }
        Ok((nodes.collect(), edges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges() -> TypedEdges {
        let nodes = [("paper".to_owned(), 3), ("author".to_owned(), 2)].into();
        let triple = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        let edges = vec![triple("paper", "cites", "paper"), triple("author", "writes", "paper")];
        TypedEdges::new(&GraphTypes { nodes, edges }).unwrap()
    }

    #[test]
    fn edges_get_global_sources_and_columns_of_their_type() {
        let mut edges = edges();
        edges.begin("author__writes__paper").unwrap();
        assert_eq!(edges.pairs(&[1, 0], &[2, 0]).unwrap(), [[1, 2], [0, 0]]);
        edges.begin("paper__cites__paper").unwrap();
        assert_eq!(edges.pairs(&[0], &[1]).unwrap(), [[2, 4]]);
        assert_eq!(edges.rows_of("author__writes__paper").unwrap(), 2);
    }

    #[test]
    fn an_end_outside_its_type_is_named_with_its_row() {
        let mut edges = edges();
        edges.begin("author__writes__paper").unwrap();
        edges.pairs(&[1], &[2]).unwrap();
        for (ends, expected) in [((2, 0), "row 1: source 2"), ((0, -1), "row 1: target -1")] {
            let error = edges.pairs(&[ends.0], &[ends.1]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
