//! Requirements of a graph that takes updates, and the shapes of its rows.

use std::collections::BTreeMap;

use outercore_core::{Error, ErrorKind, Result};
use outercore_format::keys::{self, Group};
use outercore_format::{DType, Manifest, Rows, Update};

use super::MOST_NODES;
use crate::arrays::{LabelRule, Number, number};
use crate::dataset::DataSet;

/// Element type and number of columns of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayShape {
    /// Type of the elements.
    pub dtype: DType,
    /// Number of elements in a row.
    pub columns: u64,
}

impl ArrayShape {
    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.columns * self.dtype.size() as u64
    }
}

/// The sizes of a data set, and its arrays with a row per node, edge or graph.
#[derive(Clone, Debug)]
pub struct Schema {
    /// LSN of the last update in the arrays.
    pub lsn: u64,
    /// Number of nodes in the arrays.
    pub nodes: u64,
    /// Number of arcs in the arrays.
    pub edges: u64,
    /// Rows of edge arrays; all edge ids are below this.
    pub edge_rows: u64,
    /// Whether every edge is two arcs.
    pub undirected: bool,
    /// Arrays with one row per node, by key.
    pub node_arrays: BTreeMap<String, ArrayShape>,
    /// Arrays with one row per edge id, by key.
    pub edge_arrays: BTreeMap<String, ArrayShape>,
    /// Arrays with one row per graph, in a data set of many graphs, by key.
    pub graph_arrays: BTreeMap<String, ArrayShape>,
    /// Rules for the elements of some of these arrays, by key.
    rules: BTreeMap<String, ValueRule>,
}

/// A rule for the elements of a row.
#[derive(Clone, Copy, Debug)]
enum ValueRule {
    Labels(LabelRule),
    /// Numbers to predict, NaN for none.
    NotInfinite,
    /// Features, and weights of edges.
    Finite,
    /// 0 or 1: a boolean may not have another byte.
    Boolean,
}

impl ValueRule {
    /// The rule of an array; `None` if every value is allowed.
    fn of(manifest: &Manifest, key: &str, dtype: DType) -> Option<Self> {
        if let Some(rule) = LabelRule::of(manifest, key, dtype) {
            return Some(Self::Labels(rule));
        }
        let are_labels = manifest.roles.labels.as_deref() == Some(key) || key == keys::GRAPH_LABELS;
        let must_be_finite =
            manifest.roles.features.as_deref() == Some(key) || key == keys::EDGE_WEIGHTS;
        match dtype {
            DType::Bool => Some(Self::Boolean),
            _ if dtype.is_float() && are_labels => Some(Self::NotInfinite),
            _ if dtype.is_float() && must_be_finite => Some(Self::Finite),
            _ => None,
        }
    }

    fn check(self, dtype: DType, element: &[u8]) -> std::result::Result<(), String> {
        match (self, number(dtype, element)) {
            (Self::Labels(rule), number) => rule.check(number),
            (Self::NotInfinite, Number::Float(value)) if value.is_infinite() => {
                Err(format!("{value}, expected a finite number, or NaN for none"))
            }
            (Self::Finite, Number::Float(value)) if !value.is_finite() => {
                Err(format!("{value}, expected a finite number"))
            }
            (Self::Boolean, _) if element[0] > 1 => {
                Err(format!("byte {}, expected 0 or 1", element[0]))
            }
            _ => Ok(()),
        }
    }
}

impl Schema {
    /// The schema of a data set.
    ///
    /// # Errors
    /// `Unsupported`: the data set has triples, names, several types, or 2^32 nodes or more, or
    /// does not record the number of imported edges.
    pub fn of(data_set: &DataSet) -> Result<Self> {
        let manifest = data_set.manifest();
        let no_updates = |why: &str| {
            let text = format!("data set `{}` takes no updates: {why}", data_set.root().display());
            Error::new(ErrorKind::Unsupported, text)
        };
        let edge = manifest
            .edge_types
            .get(keys::EDGE)
            .filter(|edge| edge.source == keys::NODE && edge.target == keys::NODE)
            .ok_or_else(|| no_updates("it has no edge type `edge` between nodes of type `node`"))?;
        if manifest.edge_types.len() > 1 || manifest.node_types.len() > 1 {
            return Err(no_updates("it has several types of nodes or edges"));
        }
        if manifest.node_types[keys::NODE].count >= MOST_NODES {
            return Err(no_updates("it has 2^32 nodes or more"));
        }
        let mut node_arrays = BTreeMap::new();
        let mut edge_arrays = BTreeMap::new();
        let mut graph_arrays = BTreeMap::new();
        let has_graphs = manifest.arrays.contains_key(keys::FIRST_NODES);
        for (key, entry) in &manifest.arrays {
            let shape = ArrayShape { dtype: entry.dtype, columns: entry.row_elements() };
            match Group::of(key) {
                Group::Triples { .. } | Group::Weights { .. } => {
                    return Err(no_updates("it holds triples"));
                }
                Group::Names { .. } => return Err(no_updates("its nodes have names")),
                Group::Node { node_type: keys::NODE, .. } => {
                    node_arrays.insert(key.clone(), shape);
                }
                Group::Edge { .. }
                    if ![keys::OFFSETS, keys::SOURCES, keys::EDGE_IDS].contains(&key.as_str()) =>
                {
                    edge_arrays.insert(key.clone(), shape);
                }
                Group::Graph { .. } | Group::GraphSplit { .. } if !has_graphs => {
                    return Err(no_updates("its import as many graphs has not ended")
                        .hint("import it again"));
                }
                Group::Graph { .. } => {
                    graph_arrays.insert(key.clone(), shape);
                }
                _ => {}
            }
        }
        let edge_rows = edge
            .rows
            .or_else(|| (!data_set.has_array(keys::EDGE_IDS)).then_some(edge.count))
            .ok_or_else(|| {
                no_updates("it does not say how many edges were imported").hint("import it again")
            })?;
        if let Some(key) = edge_arrays.keys().find(|key| manifest.arrays[*key].rows() != edge_rows)
        {
            return Err(no_updates(&format!("array `{key}` has not one row for each edge")));
        }
        let arrays = [&node_arrays, &edge_arrays, &graph_arrays];
        let rules = arrays.into_iter().flatten().filter_map(|(key, shape)| {
            Some((key.clone(), ValueRule::of(manifest, key, shape.dtype)?))
        });
        let rules = rules.collect();
        Ok(Self {
            lsn: manifest.lsn(),
            nodes: manifest.node_types[keys::NODE].count,
            edges: edge.count,
            edge_rows,
            undirected: edge.undirected,
            node_arrays,
            edge_arrays,
            graph_arrays,
            rules,
        })
    }

    /// Checks that the arrays can hold the values of an update, so that the data set stays valid.
    ///
    /// Only for new updates. Records of a log are applied unchecked, because an older version may
    /// have acknowledged values that are refused today.
    ///
    /// # Errors
    /// `Invalid`, naming the array and the value.
    pub fn check_values(&self, update: &Update) -> Result<()> {
        match update {
            Update::AddEdge { rows, .. }
            | Update::AddNode { rows, .. }
            | Update::UpdateNode { rows, .. } => self.check_rows(rows),
            Update::RegisterGraph { rows, nodes, edges } => {
                self.check_rows(rows)?;
                nodes.iter().try_for_each(|rows| self.check_rows(rows))?;
                edges.iter().try_for_each(|edge| self.check_rows(&edge.rows))
            }
            Update::RemoveEdge { .. }
            | Update::RemoveNode { .. }
            | Update::UnregisterGraph { .. } => Ok(()),
        }
    }

    fn check_rows(&self, rows: &Rows) -> Result<()> {
        for (key, row) in rows {
            let Some(rule) = self.rules.get(key) else { continue };
            let of_kind = [&self.node_arrays, &self.edge_arrays, &self.graph_arrays];
            let shape = of_kind.into_iter().find_map(|arrays| arrays.get(key));
            let dtype = shape.expect("a rule is one of an array").dtype;
            // A row of wrong length is reported elsewhere, together with its update.
            for element in row.chunks_exact(dtype.size()) {
                rule.check(dtype, element)
                    .map_err(|what| Error::invalid(format!("array `{key}`: {what}")))?;
            }
        }
        Ok(())
    }

    /// Checks that each graph array has one row for each of `count` graphs.
    ///
    /// # Errors
    /// `Corrupt`, naming the array.
    pub(super) fn require_graphs(&self, data_set: &DataSet, count: u64) -> Result<()> {
        let rows = |key: &str| data_set.manifest().arrays[key].rows();
        match self.graph_arrays.keys().find(|key| rows(key) != count) {
            Some(key) => Err(Error::corrupt(format!(
                "array `{key}`: {} rows, expected one for each of {count} graphs",
                rows(key)
            ))
            .hint("import the data set again")),
            None => Ok(()),
        }
    }

    /// Checks that `rows` are rows of node arrays; with `all`, one row for each node array.
    ///
    /// # Errors
    /// `Invalid`, naming the array.
    pub fn check_node_rows(&self, rows: &Rows, all: bool) -> Result<()> {
        check(&self.node_arrays, rows, all)
    }

    /// Checks the rows of a new edge.
    ///
    /// # Errors
    /// `Invalid`, naming the array.
    pub fn check_edge_rows(&self, rows: &Rows) -> Result<()> {
        check(&self.edge_arrays, rows, true)
    }

    /// Checks the rows of a new graph.
    ///
    /// # Errors
    /// `Invalid`, naming the array.
    pub fn check_graph_rows(&self, rows: &Rows) -> Result<()> {
        check(&self.graph_arrays, rows, true)
    }
}

fn check(arrays: &BTreeMap<String, ArrayShape>, rows: &Rows, all: bool) -> Result<()> {
    for (key, row) in rows {
        let Some(shape) = arrays.get(key) else {
            let known: Vec<&str> = arrays.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Error::invalid(format!("array `{key}` is not in the data set"))
                .hint(format!("it has {known}")));
        };
        if row.len() as u64 != shape.row_bytes() {
            return Err(Error::invalid(format!(
                "array `{key}`: a row of {} bytes, expected {}",
                row.len(),
                shape.row_bytes()
            )));
        }
    }
    match arrays.keys().find(|key| all && !rows.contains_key(*key)) {
        Some(key) => Err(Error::invalid(format!("array `{key}`: a new row needs a value"))),
        None => Ok(()),
    }
}
