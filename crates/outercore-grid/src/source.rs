//! What a grid is made of: the arcs of all edge types, or those of one. Pure.

use std::ops::Range;

use outercore_core::{Error, ErrorKind, Result};
use outercore_format::keys;
use outercore_store::dataset::DataSet;

/// The arcs that a grid is made of, and the nodes that it numbers.
///
/// All edge types together number all nodes: a node's number is its global id. One edge type numbers
/// the nodes of its source and target type alone, in the order of the types.
///
/// # Example
/// ```
/// use outercore_grid::GridSource;
/// use outercore_store::dataset::DataSet;
/// # fn main() -> outercore_core::Result<()> {
/// # let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/format-4");
/// let graph = DataSet::open(root)?;
/// // 2 authors and 3 papers.
/// assert_eq!(GridSource::of(&graph, None)?.nodes(), 5);
/// assert_eq!(GridSource::of(&graph, Some("paper__cites__paper"))?.nodes(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridSource {
    relation: Option<String>,
    nodes: u64,
    symmetric: bool,
    parts: Vec<EdgePart>,
}

/// The arcs of an edge type: consecutive columns of the CSC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EdgePart {
    /// The edge type, as in keys.
    pub(crate) name: String,
    pub(crate) columns: Range<u64>,
    /// Positions in the CSC.
    pub(crate) arcs: Range<u64>,
    /// Edge ids; an unknown end where the manifest does not say how many rows there are.
    pub(crate) rows: Range<u64>,
    pub(crate) rows_are_known: bool,
    /// Global ids that its sources have.
    pub(crate) sources: Range<u64>,
    /// The number of a source is its global id less this.
    pub(crate) source_shift: u64,
    /// The number of the first column's target.
    pub(crate) first_target: u64,
}

impl GridSource {
    /// The arcs of the edge type `relation`, by its name in keys, or of all edge types.
    ///
    /// # Errors
    /// `Invalid`: there are no edges at all. `NotFound`: no such edge type, with those there are.
    pub fn of(data_set: &DataSet, relation: Option<&str>) -> Result<Self> {
        let (schema, manifest) = (data_set.schema(), data_set.manifest());
        if manifest.edge_types.is_empty() {
            return Err(data_set.no_edges(relation));
        }
        let chosen = relation.map(|name| schema.edge_type(name)).transpose()?;
        let mut numbered: Vec<usize> = match chosen {
            Some(place) => {
                let edge_type = &schema.edge_types()[place];
                vec![edge_type.source, edge_type.target]
            }
            None => (0..schema.node_types().len()).collect(),
        };
        numbered.sort_unstable();
        numbered.dedup();
        let mut shifts = vec![0; schema.node_types().len()];
        let mut nodes = 0;
        for place in numbered {
            let range = &schema.node_types()[place].nodes;
            shifts[place] = range.start - nodes;
            nodes += range.end - range.start;
        }
        let (mut parts, mut symmetric, mut arcs) = (Vec::new(), true, 0);
        for (place, edge_type) in schema.edge_types().iter().enumerate() {
            let listed = &manifest.edge_types[&edge_type.name];
            let positions = arcs..arcs + listed.count;
            arcs = positions.end;
            if chosen.is_some_and(|chosen| chosen != place) {
                continue;
            }
            symmetric &= listed.undirected;
            let target = &schema.node_types()[edge_type.target].nodes;
            parts.push(EdgePart {
                name: edge_type.name.clone(),
                columns: edge_type.columns.clone(),
                arcs: positions,
                rows: edge_type.rows.clone(),
                rows_are_known: listed.rows.is_some(),
                sources: schema.node_types()[edge_type.source].nodes.clone(),
                source_shift: shifts[edge_type.source],
                first_target: target.start - shifts[edge_type.target],
            });
        }
        Ok(Self { relation: relation.map(str::to_owned), nodes, symmetric, parts })
    }

    /// The edge type that was asked for, as in keys; `None`: all.
    pub fn relation(&self) -> Option<&str> {
        self.relation.as_deref()
    }

    /// Nodes that the grid numbers.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// The key of the array `name` of the edges, which may be given by its key.
    ///
    /// # Errors
    /// `Invalid` where the grid is made of several edge types: an array belongs to one.
    pub fn edge_array(&self, name: &str) -> Result<String> {
        match &self.parts[..] {
            [only] => {
                let prefix = format!("edges/{}/", only.name);
                Ok(format!("{prefix}{}", name.strip_prefix(&prefix).unwrap_or(name)))
            }
            several => {
                let shown = several[0].name.replace("__", ",");
                Err(Error::invalid(format!(
                    "weights `{name}`: an edge array belongs to one edge type, and none was chosen"
                ))
                .hint(format!(
                    "choose one edge type, such as `outercore grid --relation {shown}` or \
                     `outercore run --set relation={shown}`"
                )))
            }
        }
    }

    /// That the edges, of one edge type, have no array `name`, with those they have.
    pub fn no_array(&self, data_set: &DataSet, name: &str) -> Error {
        let prefix = format!("edges/{}/", self.first().name);
        let arrays = data_set.manifest().arrays.keys();
        let there: Vec<&str> = arrays
            .filter(|key| ![keys::OFFSETS, keys::SOURCES, keys::EDGE_IDS].contains(&key.as_str()))
            .filter_map(|key| key.strip_prefix(&prefix))
            .collect();
        let text = format!("edge array `{name}` is not in the data set");
        Error::new(ErrorKind::NotFound, text).hint(if there.is_empty() {
            "add one with `Graph.add_edge_array` or `outercore import --weight`".to_owned()
        } else {
            format!("it has {}", there.join(", "))
        })
    }

    /// Whether every edge stands for two arcs.
    pub(crate) fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    pub(crate) fn parts(&self) -> &[EdgePart] {
        &self.parts
    }

    /// Consecutive columns of the CSC.
    pub(crate) fn columns(&self) -> Range<u64> {
        self.first().columns.start..self.last().columns.end
    }

    /// Consecutive positions in the CSC.
    pub(crate) fn arcs(&self) -> Range<u64> {
        self.first().arcs.start..self.last().arcs.end
    }

    /// Edge ids.
    pub(crate) fn rows(&self) -> Range<u64> {
        self.first().rows.start..self.last().rows.end
    }

    /// Whether a column is the number of its target, as in a graph of one type.
    pub(crate) fn columns_are_nodes(&self) -> bool {
        self.columns() == (0..self.nodes) && self.parts.len() == 1
    }

    pub(crate) fn first(&self) -> &EdgePart {
        self.parts.first().expect("a source has an edge type")
    }

    fn last(&self) -> &EdgePart {
        self.parts.last().expect("a source has an edge type")
    }
}
