//! The types of a graph as ranges of ids.

use std::ops::Range;

use outercore_core::{Error, ErrorKind, Result};

use crate::{Manifest, keys};

/// The node and edge types of a graph as ranges, in the order of their names.
///
/// Inside the core, a node has a *global id*: the types follow each other in one range of ids. The
/// CSC has a column for each pair of edge type and target node, so the edges of one type are one
/// contiguous part of it. With one node type and one edge type, global id, column and node are the
/// same number.
///
/// # Example
/// ```
/// use outercore_format::Schema;
/// let schema = Schema::new(
///     [("author".to_owned(), 2), ("paper".to_owned(), 3)],
///     [("author__writes__paper".to_owned(), "author", "paper", 4)],
/// )?;
/// assert_eq!((schema.num_nodes(), schema.num_columns()), (5, 3));
/// assert_eq!(schema.node_types()[1].nodes, 2..5);
/// assert_eq!(schema.type_of(4), 1);
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    node_types: Vec<NodeRange>,
    edge_types: Vec<EdgeRange>,
}

/// A node type and the global ids of its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRange {
    /// Name of the type.
    pub name: String,
    /// Global ids.
    pub nodes: Range<u64>,
}

/// An edge type, its columns of the CSC, and its rows of the imported edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeRange {
    /// Name of the type in keys.
    pub name: String,
    /// Index of the source type among the node types.
    pub source: usize,
    /// Index of the target type among the node types.
    pub target: usize,
    /// Columns: one for each node of the target type.
    pub columns: Range<u64>,
    /// Edge ids.
    pub rows: Range<u64>,
}

impl EdgeRange {
    /// The key part of an edge type: `author__writes__paper`.
    pub fn key(source: &str, relation: &str, target: &str) -> String {
        format!("{source}__{relation}__{target}")
    }
}

impl Schema {
    /// A schema from node types (name, count) and edge types (name, source type, target type,
    /// rows). Both are sorted by name.
    ///
    /// # Errors
    /// `Invalid`: an edge type between unknown node types; more than 2^63 nodes, columns or rows.
    pub fn new<'a>(
        node_types: impl IntoIterator<Item = (String, u64)>,
        edge_types: impl IntoIterator<Item = (String, &'a str, &'a str, u64)>,
    ) -> Result<Self> {
        let mut nodes: Vec<(String, u64)> = node_types.into_iter().collect();
        nodes.sort();
        let mut first = 0;
        let mut ranges = Vec::with_capacity(nodes.len());
        for (name, count) in nodes {
            let nodes = following(&mut first, count, "nodes")?;
            ranges.push(NodeRange { name, nodes });
        }
        let mut edges: Vec<_> = edge_types.into_iter().collect();
        edges.sort();
        let (mut column, mut row) = (0, 0);
        let mut edge_ranges = Vec::with_capacity(edges.len());
        for (name, source, target, rows) in edges {
            let place = |end: &str| {
                ranges.iter().position(|range| range.name == end).ok_or_else(|| {
                    let known: Vec<_> = ranges.iter().map(|range| &*range.name).collect();
                    Error::invalid(format!("edge type `{name}`: there is no node type `{end}`"))
                        .hint(format!("the node types are {}", known.join(", ")))
                })
            };
            let (source, target) = (place(source)?, place(target)?);
            let targets = ranges[target].nodes.end - ranges[target].nodes.start;
            let columns = following(&mut column, targets, "columns")?;
            let rows = following(&mut row, rows, "edges")?;
            edge_ranges.push(EdgeRange { name, source, target, columns, rows });
        }
        Ok(Self { node_types: ranges, edge_types: edge_ranges })
    }

    /// The schema of a graph of one type with `nodes` nodes and `rows` imported edges.
    pub fn of_one_type(nodes: u64, rows: u64) -> Self {
        let node = NodeRange { name: keys::NODE.into(), nodes: 0..nodes };
        let edge = EdgeRange {
            name: keys::EDGE.into(),
            source: 0,
            target: 0,
            columns: 0..nodes,
            rows: 0..rows,
        };
        Self { node_types: vec![node], edge_types: vec![edge] }
    }

    /// Whether the graph has types other than those of a homogeneous graph.
    pub fn is_typed(&self) -> bool {
        self.node_types.iter().any(|range| range.name != keys::NODE)
            || self.edge_types.iter().any(|range| range.name != keys::EDGE)
    }

    /// Node types, sorted by name.
    pub fn node_types(&self) -> &[NodeRange] {
        &self.node_types
    }

    /// Edge types, sorted by name.
    pub fn edge_types(&self) -> &[EdgeRange] {
        &self.edge_types
    }

    /// Number of nodes of all types.
    pub fn num_nodes(&self) -> u64 {
        self.node_types.last().map_or(0, |range| range.nodes.end)
    }

    /// Number of columns of the CSC.
    pub fn num_columns(&self) -> u64 {
        self.edge_types.last().map_or(0, |range| range.columns.end)
    }

    /// Index of the type of the node with this global id.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn type_of(&self, node: u64) -> usize {
        assert!(node < self.num_nodes(), "node {node} of {}", self.num_nodes());
        self.node_types.partition_point(|range| range.nodes.end <= node)
    }

    /// Index of the edge type of a column.
    ///
    /// # Panics
    /// If the column does not exist.
    pub fn edge_type_of(&self, column: u64) -> usize {
        assert!(column < self.num_columns(), "column {column} of {}", self.num_columns());
        self.edge_types.partition_point(|range| range.columns.end <= column)
    }

    /// The global id of a column's target node.
    ///
    /// # Panics
    /// If the column does not exist.
    pub fn target_of(&self, column: u64) -> u64 {
        let edge_type = &self.edge_types[self.edge_type_of(column)];
        let first = self.node_types[edge_type.target].nodes.start;
        first + (column - edge_type.columns.start)
    }

    /// Index of a node type.
    ///
    /// # Errors
    /// `NotFound`, with the existing types.
    pub fn node_type(&self, name: &str) -> Result<usize> {
        let names = || self.node_types.iter().map(|range| &*range.name);
        names().position(|known| known == name).ok_or_else(|| unknown("node", name, names()))
    }

    /// Index of an edge type, by its name in keys.
    ///
    /// # Errors
    /// `NotFound`, with the existing types.
    pub fn edge_type(&self, name: &str) -> Result<usize> {
        let names = || self.edge_types.iter().map(|range| &*range.name);
        names().position(|known| known == name).ok_or_else(|| unknown("edge", name, names()))
    }
}

impl Manifest {
    /// The types as ranges.
    ///
    /// # Errors
    /// As [`Schema::new`].
    pub fn schema(&self) -> Result<Schema> {
        let nodes = self.node_types.iter().map(|(name, nodes)| (name.clone(), nodes.count));
        let edges = self.edge_types.iter().map(|(name, edges)| {
            let rows = edges.rows.unwrap_or(edges.count);
            (name.clone(), &*edges.source, &*edges.target, rows)
        });
        Schema::new(nodes, edges)
    }

    /// Whether the graph has types other than those of a homogeneous graph.
    pub fn is_typed(&self) -> bool {
        self.node_types.keys().any(|name| name != keys::NODE)
            || self.edge_types.keys().any(|name| name != keys::EDGE)
    }
}

/// The next `count` numbers, after the ones given out so far.
fn following(first: &mut u64, count: u64, what: &str) -> Result<Range<u64>> {
    let start = *first;
    let end = start.checked_add(count).filter(|&end| i64::try_from(end).is_ok());
    *first = end.ok_or_else(|| Error::invalid(format!("more than 2^63 {what} of all types")))?;
    Ok(start..*first)
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let known: Vec<_> = known.collect();
    Error::new(ErrorKind::NotFound, format!("there is no {what} type `{name}`"))
        .hint(format!("the {what} types are {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bibliography() -> Schema {
        Schema::new(
            [("venue".into(), 1), ("author".into(), 4), ("paper".into(), 3)],
            [
                ("paper__cites__paper".into(), "paper", "paper", 5),
                ("author__writes__paper".into(), "author", "paper", 7),
                ("paper__in__venue".into(), "paper", "venue", 3),
            ],
        )
        .unwrap()
    }

    #[test]
    fn types_follow_each_other_in_the_order_of_their_names() {
        let schema = bibliography();
        let nodes: Vec<_> = schema.node_types().iter().map(|t| t.nodes.clone()).collect();
        assert_eq!(nodes, [0..4, 4..7, 7..8]);
        let columns: Vec<_> = schema.edge_types().iter().map(|t| t.columns.clone()).collect();
        assert_eq!(columns, [0..3, 3..6, 6..7]);
        let rows: Vec<_> = schema.edge_types().iter().map(|t| t.rows.clone()).collect();
        assert_eq!(rows, [0..7, 7..12, 12..15]);
        assert_eq!((schema.num_nodes(), schema.num_columns()), (8, 7));
        assert_eq!([0, 3, 4, 6, 7].map(|node| schema.type_of(node)), [0, 0, 1, 1, 2]);
        assert_eq!([0, 2, 3, 5, 6].map(|column| schema.edge_type_of(column)), [0, 0, 1, 1, 2]);
        assert!(schema.is_typed());
    }

    #[test]
    fn a_type_without_nodes_owns_no_id() {
        let schema = Schema::new([("a".into(), 0), ("b".into(), 2)], []).unwrap();
        assert_eq!((schema.type_of(0), schema.num_columns()), (1, 0));
    }

    #[test]
    fn a_missing_type_is_named_with_those_there_are() {
        let error = Schema::new([("a".into(), 1)], [("a__r__b".into(), "a", "b", 1)]).unwrap_err();
        assert!(
            error.to_string().contains("`b`") && error.to_string().contains("are a"),
            "{error}"
        );
        let error = bibliography().node_type("book").unwrap_err().to_string();
        assert!(error.contains("`book`") && error.contains("author, paper, venue"), "{error}");
    }

    #[test]
    fn one_type_has_one_number_for_everything() {
        let schema = Schema::of_one_type(5, 9);
        assert!(!schema.is_typed());
        assert_eq!((schema.num_nodes(), schema.num_columns()), (5, 5));
        let manifest = Manifest::homogeneous(5, 9, false);
        assert_eq!(manifest.schema().unwrap(), schema);
    }
}
