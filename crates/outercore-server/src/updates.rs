//! Updates of the graph, from JSON to the rows that the arrays store.

use std::collections::BTreeMap;

use outercore_core::{Error, Result};
use outercore_format::log::Key;
use outercore_format::{DType, Manifest, NewEdge, Rows, Update, keys};
use outercore_live::{Ack, NEW_NODE};
use outercore_store::delta::{Applied, ArrayShape, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::refusal::Refusal;

/// Most updates of a request.
const MOST_UPDATES: usize = 1 << 16;

/// Updates that take effect together.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateRequest {
    updates: Vec<Change>,
    /// A name of the request, of 64 bytes at most: with the same one again the first answer comes
    /// again, and nothing changes.
    #[serde(default)]
    key: Option<String>,
}

/// An update as a client writes it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Change {
    AddEdge {
        source: Place,
        target: Place,
        #[serde(default)]
        values: Map<String, Value>,
    },
    RemoveEdge {
        source: Place,
        target: Place,
    },
    AddNode {
        /// The graph that it joins, in a data set of many.
        graph: Option<u64>,
        #[serde(default)]
        values: Map<String, Value>,
    },
    RemoveNode {
        node: Place,
    },
    UpdateNode {
        node: Place,
        values: Map<String, Value>,
    },
    RegisterGraph {
        #[serde(default)]
        values: Map<String, Value>,
        /// Of each node, its values.
        nodes: Vec<Map<String, Value>>,
        #[serde(default)]
        edges: Vec<EdgeWithin>,
    },
    UnregisterGraph {
        graph: u64,
    },
}

/// An edge of a graph that is registered.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct EdgeWithin {
    /// Place among the nodes of the graph, from 0.
    source: u64,
    /// Likewise.
    target: u64,
    #[serde(default)]
    values: Map<String, Value>,
}

/// A node by its id, or one that the same request adds.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
enum Place {
    Id(u64),
    New {
        /// Counts the nodes that the request adds, those of registered graphs included, from 0.
        new: u64,
    },
}

/// What a request has done.
#[derive(Debug, Serialize, ToSchema)]
pub struct UpdateAnswer {
    lsn: u64,
    results: Vec<Outcome>,
}

/// What an update has done.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Outcome {
    Edge {
        /// The id of a new edge.
        edge: u64,
    },
    Node {
        /// The id of a new node.
        node: u64,
    },
    Removed {
        /// Edges that were removed.
        removed: u64,
    },
    Updated {
        /// A node whose values were replaced.
        updated: bool,
    },
    Graph {
        /// The id of a new graph.
        graph: u64,
        /// The id of its first node; the others follow.
        first_node: u64,
    },
}

impl From<Ack> for UpdateAnswer {
    fn from(ack: Ack) -> Self {
        let outcome = |applied: Applied| match applied {
            Applied::Edge(edge) => Outcome::Edge { edge },
            Applied::Node(node) => Outcome::Node { node },
            Applied::Removed(removed) => Outcome::Removed { removed },
            Applied::Rows => Outcome::Updated { updated: true },
            Applied::Graph { graph, first_node } => Outcome::Graph { graph, first_node },
        };
        Self { lsn: ack.lsn, results: ack.applied.into_iter().map(outcome).collect() }
    }
}

impl UpdateRequest {
    /// The updates as the log has them.
    ///
    /// # Errors
    /// A sentence for the client that names the update and the array: no or too many updates, an
    /// array that there is not, a value that it cannot hold, one that is missing.
    pub fn updates(
        &self,
        manifest: &Manifest,
        schema: &Schema,
    ) -> std::result::Result<Vec<Update>, Refusal> {
        let count = self.updates.len();
        if count == 0 || count > MOST_UPDATES {
            let text = format!("updates: {count}, expected 1 to {MOST_UPDATES}");
            return Err(Refusal::wrong(text));
        }
        let update = |(place, change): (usize, &Change)| {
            change
                .update(manifest, schema)
                .map_err(|error| Refusal::wrong(format!("update {place}: {}", error.one_line())))
        };
        self.updates.iter().enumerate().map(update).collect()
    }

    /// The name of the request.
    ///
    /// # Errors
    /// It is empty or too long.
    pub fn key(&self) -> std::result::Result<Option<Key>, Refusal> {
        let key = self.key.as_deref().map(Key::new).transpose();
        key.map_err(|error| Refusal::wrong(format!("key: {}", error.one_line())))
    }
}

impl Place {
    fn node(self) -> Result<u64> {
        match self {
            Self::Id(id) if id < NEW_NODE => Ok(id),
            Self::New { new } if new < NEW_NODE => Ok(NEW_NODE + new),
            Self::Id(id) | Self::New { new: id } => {
                Err(Error::invalid(format!("{id} is too large for a node")))
            }
        }
    }
}

impl Change {
    fn update(&self, manifest: &Manifest, schema: &Schema) -> Result<Update> {
        Ok(match self {
            Self::AddEdge { source, target, values } => {
                let rows = edge_rows(values, schema)?;
                Update::AddEdge { source: source.node()?, target: target.node()?, rows }
            }
            Self::RemoveEdge { source, target } => {
                Update::RemoveEdge { source: source.node()?, target: target.node()? }
            }
            Self::AddNode { graph, values } => {
                Update::AddNode { graph: *graph, rows: node_rows(values, manifest, schema)? }
            }
            Self::RemoveNode { node } => Update::RemoveNode { node: node.node()? },
            Self::UpdateNode { node, values } => {
                if values.is_empty() {
                    return Err(Error::invalid("values: expected at least one array"));
                }
                let rows = rows(values, keys::node_array, schema.node_arrays.iter())?;
                Update::UpdateNode { node: node.node()?, rows }
            }
            Self::RegisterGraph { values, nodes, edges } => Update::RegisterGraph {
                rows: graph_rows(values, manifest, schema)?,
                nodes: nodes
                    .iter()
                    .map(|values| node_rows(values, manifest, schema))
                    .collect::<Result<_>>()?,
                edges: edges.iter().map(|edge| edge.update(schema)).collect::<Result<_>>()?,
            },
            Self::UnregisterGraph { graph } => Update::UnregisterGraph { graph: *graph },
        })
    }
}

impl EdgeWithin {
    fn update(&self, schema: &Schema) -> Result<NewEdge> {
        let rows = edge_rows(&self.values, schema)?;
        Ok(NewEdge { source: self.source, target: self.target, rows })
    }
}

/// The rows of a new edge.
fn edge_rows(values: &Map<String, Value>, schema: &Schema) -> Result<Rows> {
    let rows = rows(values, keys::edge_array, schema.edge_arrays.iter())?;
    schema.check_edge_rows(&rows)?;
    Ok(rows)
}

/// The rows of a new node.
fn node_rows(values: &Map<String, Value>, manifest: &Manifest, schema: &Schema) -> Result<Rows> {
    let mut rows = rows(values, keys::node_array, schema.node_arrays.iter())?;
    add_missing(&mut rows, manifest, &schema.node_arrays);
    schema.check_node_rows(&rows, true)?;
    Ok(rows)
}

/// The rows of a new graph.
fn graph_rows(values: &Map<String, Value>, manifest: &Manifest, schema: &Schema) -> Result<Rows> {
    let mut rows = rows(values, keys::graph_array, schema.graph_arrays.iter())?;
    add_missing(&mut rows, manifest, &schema.graph_arrays);
    schema.check_graph_rows(&rows)?;
    Ok(rows)
}

fn add_missing(rows: &mut Rows, manifest: &Manifest, arrays: &BTreeMap<String, ArrayShape>) {
    for (key, shape) in arrays {
        if !rows.contains_key(key)
            && let Some(row) = missing(manifest, key, *shape)
        {
            rows.insert(key.clone(), row);
        }
    }
}

/// The row of a node or graph for which no value is given: no label, or no number. Features have
/// none.
fn missing(manifest: &Manifest, key: &str, shape: ArrayShape) -> Option<Vec<u8>> {
    let is = |role: &Option<String>| role.as_deref() == Some(key);
    if is(&manifest.roles.features) {
        return None;
    }
    let is_labels = is(&manifest.roles.labels) || key == keys::GRAPH_LABELS;
    let element: Vec<u8> = match shape.dtype {
        DType::F32 => f32::NAN.to_le_bytes().to_vec(),
        DType::F64 => f64::NAN.to_le_bytes().to_vec(),
        DType::I64 if is_labels => (-1i64).to_le_bytes().to_vec(),
        _ => return None,
    };
    Some(element.repeat(shape.columns as usize))
}

fn rows<'a>(
    values: &Map<String, Value>,
    full_key: fn(&str) -> String,
    arrays: impl Iterator<Item = (&'a String, &'a ArrayShape)> + Clone,
) -> Result<Rows> {
    let mut rows = Rows::new();
    for (name, value) in values {
        let key = full_key(name);
        let Some((_, shape)) = arrays.clone().find(|(known, _)| **known == key) else {
            let prefix = full_key("");
            let known: Vec<&str> =
                arrays.clone().filter_map(|(known, _)| known.strip_prefix(&prefix)).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let name: String = name.chars().take(80).collect();
            return Err(Error::invalid(format!("values: no array `{name}`; there is {known}")));
        };
        let mut row = Vec::with_capacity(shape.row_bytes() as usize);
        let mut columns = 0;
        encode(value, shape.dtype, &mut row, &mut columns)
            .map_err(|error| error.context(format!("values of `{name}`")))?;
        if columns != shape.columns {
            return Err(Error::invalid(format!(
                "values of `{name}`: {columns} numbers, expected {}",
                shape.columns
            )));
        }
        rows.insert(key, row);
    }
    Ok(rows)
}

/// Appends a number, or the numbers of lists in lists, as `dtype` stores them.
///
/// # Errors
/// `Invalid`: a value that is no number of that type.
pub fn encode(value: &Value, dtype: DType, row: &mut Vec<u8>, columns: &mut u64) -> Result<()> {
    if let Value::Array(values) = value {
        return values.iter().try_for_each(|value| encode(value, dtype, row, columns));
    }
    *columns += 1;
    let does_not_fit = || {
        let found: String = value.to_string().chars().take(80).collect();
        Error::invalid(format!("{found} is no value of type {dtype}"))
    };
    macro_rules! whole {
        ($type:ty) => {{
            let number = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
            let number = number.and_then(|number| <$type>::try_from(number).ok());
            row.extend(number.ok_or_else(does_not_fit)?.to_le_bytes());
        }};
    }
    let real = || value.as_f64().ok_or_else(does_not_fit);
    // Rounded to the nearest is what a decimal number means; infinite is not.
    let finite = |narrow: f64, bits: Vec<u8>| match narrow.is_finite() {
        true => Ok(bits),
        false => Err(does_not_fit()),
    };
    match dtype {
        DType::F64 => row.extend(real()?.to_le_bytes()),
        DType::F32 => {
            let narrow = real()? as f32;
            row.extend(finite(narrow.into(), narrow.to_le_bytes().to_vec())?);
        }
        DType::F16 => {
            let narrow = half::f16::from_f64(real()?);
            row.extend(finite(narrow.into(), narrow.to_le_bytes().to_vec())?);
        }
        DType::BF16 => {
            let narrow = half::bf16::from_f64(real()?);
            row.extend(finite(narrow.into(), narrow.to_le_bytes().to_vec())?);
        }
        DType::I8 => whole!(i8),
        DType::I16 => whole!(i16),
        DType::I32 => whole!(i32),
        DType::I64 => whole!(i64),
        DType::U8 => whole!(u8),
        DType::U16 => whole!(u16),
        DType::U32 => whole!(u32),
        DType::U64 => whole!(u64),
        DType::Bool => row.push(u8::from(value.as_bool().ok_or_else(does_not_fit)?)),
    }
    Ok(())
}
