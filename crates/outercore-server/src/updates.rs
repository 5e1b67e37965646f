//! Converts updates of the graph from JSON to the rows that the arrays store.

use std::collections::BTreeMap;
use std::fmt;

use outercore_core::Error;
use outercore_format::log::Key;
use outercore_format::{DType, Manifest, NewEdge, Rows, Update, keys};
use outercore_live::{Ack, NEW_NODE, Write};
use outercore_store::delta::{Applied, ArrayShape, Schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::body::Memory;
use crate::element::encode;
use crate::json::{self, check_sizes, each_item, each_member};
use crate::refusal::{Refusal, cut};

/// Most updates of a request.
const MOST_UPDATES: usize = 1 << 16;

/// Beginning of the message about a body that cannot be read.
const NO_LIST: &str = "the body is no list of updates";

/// Bytes in addition to the bytes of rows: for an update or a part of one, for the map of its rows,
/// and for each row.
const A_CHANGE: usize = 128;
const ROWS: usize = 576;
const A_ROW: usize = 96;

/// Updates that take effect together, as a client writes them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request<'a> {
    #[serde(borrow)]
    updates: &'a RawValue,
    /// Idempotency key: a second request with the same key gets the first answer again and changes
    /// nothing.
    key: Option<String>,
}

/// Kind of an update.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    AddEdge,
    RemoveEdge,
    AddNode,
    RemoveNode,
    UpdateNode,
    RegisterGraph,
    UnregisterGraph,
}

/// The members of an update; each `op` has some of them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change<'a> {
    op: Op,
    source: Option<Place>,
    target: Option<Place>,
    node: Option<Place>,
    graph: Option<u64>,
    #[serde(borrow)]
    values: Option<&'a RawValue>,
    #[serde(borrow)]
    nodes: Option<&'a RawValue>,
    #[serde(borrow)]
    edges: Option<&'a RawValue>,
}

/// An edge of a graph to register.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeWithin<'a> {
    source: u64,
    target: u64,
    #[serde(borrow)]
    values: Option<&'a RawValue>,
}

/// An existing node by its id, or a node that the same request adds.
#[derive(Clone, Copy, Debug, PartialEq, ToSchema)]
#[serde(untagged)]
pub enum Place {
    /// An existing node.
    Id(u64),
    /// A node that the request adds.
    New {
        /// Number of the node among the nodes that the request adds, including nodes of registered
        /// graphs, from 0.
        new: u64,
    },
}

/// Written by hand, because the derived code for untagged enums first stores a tree of the whole
/// value.
impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct New {
            new: u64,
        }

        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Place;

            fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
                text.write_str("a node, or `{\"new\": k}`")
            }

            fn visit_u64<E>(self, id: u64) -> Result<Place, E> {
                Ok(Place::Id(id))
            }

            fn visit_map<A: MapAccess<'de>>(self, all: A) -> Result<Place, A::Error> {
                let New { new } = New::deserialize(MapAccessDeserializer::new(all))?;
                Ok(Place::New { new })
            }
        }

        from.deserialize_any(Either)
    }
}

/// Results of the updates of a request.
#[derive(Debug, Serialize, ToSchema)]
pub struct UpdateAnswer {
    lsn: u64,
    results: Vec<Outcome>,
}

/// Result of one update.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Outcome {
    Edge {
        /// Id of the new edge.
        edge: u64,
    },
    Node {
        /// Id of the new node.
        node: u64,
    },
    Removed {
        /// Number of removed edges.
        removed: u64,
    },
    Updated {
        /// Whether the values of the node were replaced.
        updated: bool,
    },
    Graph {
        /// Id of the new graph.
        graph: u64,
        /// Id of its first node; the ids of the others follow.
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

/// Parses the updates in a body into the form of the log.
///
/// # Errors
/// A sentence for the client that names the update and the array: no or too many updates, an
/// unknown array, a wrong value, a missing value. Also if no memory is free.
pub fn read(
    body: &[u8],
    manifest: &Manifest,
    schema: &Schema,
    memory: &mut Memory,
) -> Result<Write, Refusal> {
    check_sizes(body)?;
    let request: Request<'_> = serde_json::from_slice(body)
        .map_err(|error| Refusal::wrong(format!("{NO_LIST}: {error}")))?;
    let mut reader = Reader { manifest, schema, memory };
    let mut updates = Vec::new();
    let mut count = 0;
    each_item(NO_LIST, request.updates, |change: Change<'_>| {
        count += 1;
        if count <= MOST_UPDATES {
            let update = reader.update(&change);
            updates
                .push(update.map_err(|refused| refused.about(&format!("update {}", count - 1)))?);
        }
        Ok(())
    })?;
    if count == 0 || count > MOST_UPDATES {
        let text = format!("updates: {count}, expected 1 to {MOST_UPDATES}");
        return Err(Refusal::wrong(text));
    }
    let key = request.key.as_deref().map(Key::new).transpose();
    let key = key.map_err(|error| Refusal::wrong(format!("key: {}", error.one_line())))?;
    Ok(Write { updates, key })
}

impl Place {
    fn node(self) -> Result<u64, Refusal> {
        match self {
            Self::Id(id) if id < NEW_NODE => Ok(id),
            Self::New { new } if new < NEW_NODE => Ok(NEW_NODE + new),
            Self::Id(id) | Self::New { new: id } => {
                Err(Refusal::wrong(format!("{id} is too large for a node")))
            }
        }
    }
}

impl Op {
    /// The members that this kind of update may have.
    fn members(self) -> &'static [&'static str] {
        match self {
            Self::AddEdge => &["source", "target", "values"],
            Self::RemoveEdge => &["source", "target"],
            Self::AddNode => &["graph", "values"],
            Self::RemoveNode => &["node"],
            Self::UpdateNode => &["node", "values"],
            Self::RegisterGraph => &["values", "nodes", "edges"],
            Self::UnregisterGraph => &["graph"],
        }
    }
}

impl Change<'_> {
    /// Refuses members that the `op` of the update does not have.
    fn check_members(&self) -> Result<(), Refusal> {
        let given = [
            ("source", self.source.is_some()),
            ("target", self.target.is_some()),
            ("node", self.node.is_some()),
            ("graph", self.graph.is_some()),
            ("values", self.values.is_some()),
            ("nodes", self.nodes.is_some()),
            ("edges", self.edges.is_some()),
        ];
        let known = self.op.members();
        match given.iter().find(|(name, is_given)| *is_given && !known.contains(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let known = known.join("`, `");
                Err(Refusal::wrong(format!("unknown field `{name}`, expected `{known}`")))
            }
        }
    }
}

/// The required member `name`.
fn needed<T>(member: Option<T>, name: &str) -> Result<T, Refusal> {
    member.ok_or_else(|| Refusal::wrong(format!("missing field `{name}`")))
}

fn node(place: Option<Place>, name: &str) -> Result<u64, Refusal> {
    needed(place, name)?.node()
}

/// Converts the error for values that the arrays cannot hold.
fn wrong(error: Error) -> Refusal {
    Refusal::wrong(error.one_line())
}

/// Converts the updates of clients.
struct Reader<'a> {
    manifest: &'a Manifest,
    schema: &'a Schema,
    memory: &'a mut Memory,
}

impl Reader<'_> {
    fn update(&mut self, change: &Change<'_>) -> Result<Update, Refusal> {
        self.memory.take(A_CHANGE)?;
        change.check_members()?;
        let Change { values, .. } = *change;
        Ok(match change.op {
            Op::AddEdge => {
                let (source, target) =
                    (node(change.source, "source")?, node(change.target, "target")?);
                Update::AddEdge { source, target, rows: self.edge_rows(values)? }
            }
            Op::RemoveEdge => Update::RemoveEdge {
                source: node(change.source, "source")?,
                target: node(change.target, "target")?,
            },
            Op::AddNode => Update::AddNode { graph: change.graph, rows: self.node_rows(values)? },
            Op::RemoveNode => Update::RemoveNode { node: node(change.node, "node")? },
            Op::UpdateNode => {
                let node = node(change.node, "node")?;
                let arrays = &self.schema.node_arrays;
                let rows = self.rows(Some(needed(values, "values")?), keys::node_array, arrays)?;
                if rows.is_empty() {
                    return Err(Refusal::wrong("values: expected at least one array"));
                }
                Update::UpdateNode { node, rows }
            }
            Op::RegisterGraph => {
                let rows = self.graph_rows(values)?;
                let (mut nodes, mut edges) = (Vec::new(), Vec::new());
                each_item("nodes", needed(change.nodes, "nodes")?, |values: &RawValue| {
                    self.memory.take(A_CHANGE)?;
                    nodes.push(self.node_rows(Some(values))?);
                    Ok(())
                })?;
                if let Some(given) = change.edges {
                    each_item("edges", given, |edge: EdgeWithin<'_>| {
                        self.memory.take(A_CHANGE)?;
                        let EdgeWithin { source, target, values } = edge;
                        let rows = self.edge_rows(values)?;
                        edges.push(NewEdge { source, target, rows });
                        Ok(())
                    })?;
                }
                Update::RegisterGraph { rows, nodes, edges }
            }
            Op::UnregisterGraph => {
                Update::UnregisterGraph { graph: needed(change.graph, "graph")? }
            }
        })
    }

    /// The rows of a new edge.
    fn edge_rows(&mut self, values: Option<&RawValue>) -> Result<Rows, Refusal> {
        let rows = self.rows(values, keys::edge_array, &self.schema.edge_arrays)?;
        self.schema.check_edge_rows(&rows).map_err(wrong)?;
        Ok(rows)
    }

    /// The rows of a new node.
    fn node_rows(&mut self, values: Option<&RawValue>) -> Result<Rows, Refusal> {
        let mut rows = self.rows(values, keys::node_array, &self.schema.node_arrays)?;
        self.add_missing(&mut rows, &self.schema.node_arrays)?;
        self.schema.check_node_rows(&rows, true).map_err(wrong)?;
        Ok(rows)
    }

    /// The rows of a new graph.
    fn graph_rows(&mut self, values: Option<&RawValue>) -> Result<Rows, Refusal> {
        let mut rows = self.rows(values, keys::graph_array, &self.schema.graph_arrays)?;
        self.add_missing(&mut rows, &self.schema.graph_arrays)?;
        self.schema.check_graph_rows(&rows).map_err(wrong)?;
        Ok(rows)
    }

    fn add_missing(
        &mut self,
        rows: &mut Rows,
        arrays: &BTreeMap<String, ArrayShape>,
    ) -> Result<(), Refusal> {
        for (key, shape) in arrays {
            if !rows.contains_key(key)
                && let Some(row) = missing(self.manifest, key, *shape)
            {
                self.take(rows, row.len())?;
                rows.insert(key.clone(), row);
            }
        }
        Ok(())
    }

    /// Reserves the memory of one more row.
    fn take(&mut self, rows: &Rows, bytes: usize) -> Result<(), Refusal> {
        self.memory.take(A_ROW + bytes + if rows.is_empty() { ROWS } else { 0 })
    }

    fn rows(
        &mut self,
        values: Option<&RawValue>,
        full_key: fn(&str) -> String,
        arrays: &BTreeMap<String, ArrayShape>,
    ) -> Result<Rows, Refusal> {
        let mut rows = Rows::new();
        let Some(values) = values else { return Ok(rows) };
        each_member("values", values, |name, value| {
            let key = full_key(name);
            let Some(shape) = arrays.get(&key) else {
                let prefix = full_key("");
                let known: Vec<&str> =
                    arrays.keys().filter_map(|known| known.strip_prefix(&prefix)).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let text = format!("values: no array `{}`; there is {known}", cut(name));
                return Err(Refusal::wrong(text));
            };
            self.take(&rows, shape.row_bytes() as usize)?;
            let row = self.row(name, &key, value, *shape)?;
            rows.insert(key, row);
            Ok(())
        })?;
        Ok(rows)
    }

    /// The row of the array `key`, in the format that it stores.
    fn row(
        &self,
        name: &str,
        key: &str,
        value: &RawValue,
        shape: ArrayShape,
    ) -> Result<Vec<u8>, Refusal> {
        let extents = self.manifest.arrays.get(key).map_or(&[][..], |array| &array.shape);
        let extents: Vec<i64> = extents.iter().skip(1).map(|&extent| extent as i64).collect();
        let name = format!("values of `{name}`");
        let mut row = Vec::with_capacity(shape.row_bytes() as usize);
        let mut columns = 0;
        json::each(&name, value.get(), &extents, |number| {
            columns += 1;
            // Values beyond the limit are counted but not stored.
            match columns <= shape.columns {
                true => encode(number, shape.dtype, &mut row).map_err(|e| wrong(e.context(&name))),
                false => Ok(()),
            }
        })?;
        if columns == shape.columns {
            return Ok(row);
        }
        Err(Refusal::wrong(format!("{name}: {columns} numbers, expected {}", shape.columns)))
    }
}

/// The default row of a node or graph for which no value is given: no label, or NaN for numbers.
/// Features have no default.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> serde_json::Result<Place> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_node_is_an_id_or_one_that_the_request_adds() {
        assert_eq!(place("7").unwrap(), Place::Id(7));
        assert_eq!(place(r#"{"new": 3}"#).unwrap(), Place::New { new: 3 });
        for wrong in ["-1", "1.5", "\"7\"", "true", "{}", r#"{"new": -1}"#, r#"{"new": 1, "b": 2}"#]
        {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_node_that_is_none_is_refused_before_the_rest_of_it_is_read() {
        let list = format!("[{}1]", "1,".repeat(1000));
        for begin in ["", r#"{"new": "#, r#"{"other": "#] {
            let refused = place(&format!("{begin}{list}")).unwrap_err();
            assert!(refused.column() <= begin.len() + 2, "{begin}: {refused}");
            assert!(!refused.is_eof(), "{begin}: {refused}");
        }
    }
}
