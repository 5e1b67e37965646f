//! Updates of a graph, and their encoding in the log.

use std::collections::BTreeMap;

use outercore_core::{Error, Result};

/// Rows of arrays by key; each row has the stored form of its array.
pub type Rows = BTreeMap<String, Vec<u8>>;

/// An edge of a graph to register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEdge {
    /// Source: an index among the nodes of the graph, from 0.
    pub source: u64,
    /// Target: an index among the nodes of the graph, from 0.
    pub target: u64,
    /// Row of the edge in every edge array.
    pub rows: Rows,
}

/// A change of the homogeneous graph, or of one of many graphs.
///
/// **Source** GLIST, table 3: AddEdge, RemoveEdge, AddVertex, RemoveVertex, UpdateVertex,
/// GraphRegister, GraphUnregister.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// Adds an edge; in an undirected graph, both arcs. Parallel edges are allowed.
    AddEdge {
        /// Source node.
        source: u64,
        /// Target node.
        target: u64,
        /// Row of the edge in every edge array.
        rows: Rows,
    },
    /// Removes all edges from `source` to `target`; in an undirected graph, all edges between the
    /// two.
    RemoveEdge {
        /// Source node.
        source: u64,
        /// Target node.
        target: u64,
    },
    /// Adds a node; its id is the current number of nodes.
    AddNode {
        /// The graph of the node, in a data set of many graphs; otherwise `None`.
        graph: Option<u64>,
        /// Row of the node in every node array.
        rows: Rows,
    },
    /// Removes a node with all its edges. Its id is not used again. In a data set of many graphs,
    /// the last node of a graph stays until the graph is removed.
    RemoveNode {
        /// The node.
        node: u64,
    },
    /// Replaces rows of a node.
    UpdateNode {
        /// The node.
        node: u64,
        /// The new rows; rows in other arrays stay unchanged.
        rows: Rows,
    },
    /// Adds a graph to a data set of many, with the next ids of graphs, nodes and edges.
    RegisterGraph {
        /// Row of the graph in every array of graphs.
        rows: Rows,
        /// Rows of its nodes in every node array; at least one node.
        nodes: Vec<Rows>,
        /// Its edges.
        edges: Vec<NewEdge>,
    },
    /// Removes one of many graphs with its nodes and edges. The graph's id is not used again.
    UnregisterGraph {
        /// The graph.
        graph: u64,
    },
}

const ADD_EDGE: u8 = 1;
const REMOVE_EDGE: u8 = 2;
const ADD_NODE: u8 = 3;
const REMOVE_NODE: u8 = 4;
const UPDATE_NODE: u8 = 5;
const ADD_NODE_TO_GRAPH: u8 = 6;
const REGISTER_GRAPH: u8 = 7;
const UNREGISTER_GRAPH: u8 = 8;

impl Update {
    /// Appends the update's bytes.
    ///
    /// # Errors
    /// `Invalid`: more than 65,535 rows, a key above 65,535 bytes, a row of 4 GiB, or a graph of
    /// 2^32 nodes or edges.
    pub fn encode(&self, bytes: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::AddEdge { source, target, rows } => {
                bytes.push(ADD_EDGE);
                bytes.extend(source.to_le_bytes());
                bytes.extend(target.to_le_bytes());
                encode_rows(rows, bytes)
            }
            Self::RemoveEdge { source, target } => {
                bytes.push(REMOVE_EDGE);
                bytes.extend(source.to_le_bytes());
                bytes.extend(target.to_le_bytes());
                Ok(())
            }
            Self::AddNode { graph: None, rows } => {
                bytes.push(ADD_NODE);
                encode_rows(rows, bytes)
            }
            Self::AddNode { graph: Some(graph), rows } => {
                bytes.push(ADD_NODE_TO_GRAPH);
                bytes.extend(graph.to_le_bytes());
                encode_rows(rows, bytes)
            }
            Self::RemoveNode { node } => {
                bytes.push(REMOVE_NODE);
                bytes.extend(node.to_le_bytes());
                Ok(())
            }
            Self::UpdateNode { node, rows } => {
                bytes.push(UPDATE_NODE);
                bytes.extend(node.to_le_bytes());
                encode_rows(rows, bytes)
            }
            Self::RegisterGraph { rows, nodes, edges } => {
                bytes.push(REGISTER_GRAPH);
                encode_rows(rows, bytes)?;
                encode_count(nodes.len(), "2^32 nodes or more", bytes)?;
                nodes.iter().try_for_each(|rows| encode_rows(rows, bytes))?;
                encode_count(edges.len(), "2^32 edges or more", bytes)?;
                edges.iter().try_for_each(|edge| edge.encode(bytes))
            }
            Self::UnregisterGraph { graph } => {
                bytes.push(UNREGISTER_GRAPH);
                bytes.extend(graph.to_le_bytes());
                Ok(())
            }
        }
    }

    /// Decodes an update from the front of `bytes` and advances `bytes` past it.
    ///
    /// # Errors
    /// `Corrupt`: an unknown kind, bytes that end too early, keys that are not text or are
    /// repeated.
    pub fn decode(bytes: &mut &[u8]) -> Result<Self> {
        let [kind] = take(bytes)?;
        Ok(match kind {
            ADD_EDGE => Self::AddEdge {
                source: number(bytes)?,
                target: number(bytes)?,
                rows: decode_rows(bytes)?,
            },
            REMOVE_EDGE => Self::RemoveEdge { source: number(bytes)?, target: number(bytes)? },
            ADD_NODE => Self::AddNode { graph: None, rows: decode_rows(bytes)? },
            REMOVE_NODE => Self::RemoveNode { node: number(bytes)? },
            UPDATE_NODE => Self::UpdateNode { node: number(bytes)?, rows: decode_rows(bytes)? },
            ADD_NODE_TO_GRAPH => {
                Self::AddNode { graph: Some(number(bytes)?), rows: decode_rows(bytes)? }
            }
            REGISTER_GRAPH => Self::RegisterGraph {
                rows: decode_rows(bytes)?,
                nodes: decode_list(bytes, decode_rows)?,
                edges: decode_list(bytes, NewEdge::decode)?,
            },
            UNREGISTER_GRAPH => Self::UnregisterGraph { graph: number(bytes)? },
            other => {
                return Err(Error::corrupt(format!("update of kind {other}, expected 1 to 8")));
            }
        })
    }
}

impl NewEdge {
    fn encode(&self, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.extend(self.source.to_le_bytes());
        bytes.extend(self.target.to_le_bytes());
        encode_rows(&self.rows, bytes)
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self> {
        Ok(Self { source: number(bytes)?, target: number(bytes)?, rows: decode_rows(bytes)? })
    }
}

fn too_much(what: &str) -> Error {
    Error::invalid(format!("an update with {what}"))
}

fn encode_count(count: usize, too_many: &str, bytes: &mut Vec<u8>) -> Result<()> {
    let count = u32::try_from(count).map_err(|_| too_much(too_many))?;
    bytes.extend(count.to_le_bytes());
    Ok(())
}

/// Decodes a count and as many elements. A wrong count reserves no memory, because the bytes run
/// out first.
fn decode_list<T>(bytes: &mut &[u8], element: impl Fn(&mut &[u8]) -> Result<T>) -> Result<Vec<T>> {
    let mut list = Vec::new();
    for _ in 0..u32::from_le_bytes(take(bytes)?) {
        list.push(element(bytes)?);
    }
    Ok(list)
}

fn encode_rows(rows: &Rows, bytes: &mut Vec<u8>) -> Result<()> {
    let count = u16::try_from(rows.len()).map_err(|_| too_much("more than 65,535 rows"))?;
    bytes.extend(count.to_le_bytes());
    for (key, row) in rows {
        let len = u16::try_from(key.len()).map_err(|_| too_much("a key above 65,535 bytes"))?;
        bytes.extend(len.to_le_bytes());
        bytes.extend(key.as_bytes());
        let len = u32::try_from(row.len()).map_err(|_| too_much("a row of 4 GiB or more"))?;
        bytes.extend(len.to_le_bytes());
        bytes.extend(row);
    }
    Ok(())
}

fn decode_rows(bytes: &mut &[u8]) -> Result<Rows> {
    let mut rows = Rows::new();
    for _ in 0..u16::from_le_bytes(take(bytes)?) {
        let len = u16::from_le_bytes(take(bytes)?);
        let key = std::str::from_utf8(split(bytes, len.into())?)
            .map_err(|_| Error::corrupt("an update of an array whose key is not UTF-8"))?
            .to_owned();
        let len = u32::from_le_bytes(take(bytes)?);
        let row = split(bytes, len as usize)?.to_vec();
        if rows.insert(key, row).is_some() {
            return Err(Error::corrupt("an update with two rows of one array"));
        }
    }
    Ok(rows)
}

fn number(bytes: &mut &[u8]) -> Result<u64> {
    take(bytes).map(u64::from_le_bytes)
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N]> {
    split(bytes, N).map(|taken| taken.try_into().expect("N bytes"))
}

fn split<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    bytes.split_off(..len).ok_or_else(|| Error::corrupt("an update that ends too early"))
}
