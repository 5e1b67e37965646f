//! The target of a request: the tensors and the nodes, pairs or graphs that they name.

use std::collections::HashMap;

use outercore_core::NodeId;
use outercore_format::DType;
use outercore_live::NEW_NODE;
use outercore_store::delta::ArrayShape;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::body::Memory;
use crate::element::Element;
use crate::json::{self, Parameters, few};
use crate::messages::InferTensorContents;
use crate::refusal::{Refusal, cut};
use crate::tensors;

/// Ids whose memory is reserved at once, and the bytes that each id takes until it is answered.
const SOME_IDS: usize = 1024;
const AN_ID: usize = 32;

/// Types of input that hold ids.
const ID_TYPES: [&str; 4] = ["INT64", "UINT64", "INT32", "UINT32"];

/// The kind of object that a model predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Nodes.
    Nodes,
    /// Pairs of nodes.
    Edges,
    /// Whole graphs, in a data set of many graphs.
    Graphs,
}

impl Subject {
    /// Name of the input of a request.
    pub fn input(self) -> &'static str {
        match self {
            Self::Nodes => "node_ids",
            Self::Edges => "edge_ids",
            Self::Graphs => "graph_ids",
        }
    }

    /// Shape of that input; -1 stands for the number of ids.
    pub fn shape(self) -> &'static [i64] {
        match self {
            Self::Edges => &[-1, 2],
            Self::Nodes | Self::Graphs => &[-1],
        }
    }
}

/// The limits that a request is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The kind of object that the model predicts.
    pub subject: Subject,
    /// Number of nodes of the graph.
    pub num_nodes: u64,
    /// Whether the graph is undirected.
    pub is_undirected: bool,
    /// Number of graphs in a data set of many, unregistered ones included.
    pub num_graphs: u64,
    /// Most nodes or graphs of a request.
    pub most_nodes: u64,
    /// Shape of the feature rows that the model reads; `None` if it reads none.
    pub features: Option<ArrayShape>,
    /// Names of the outputs.
    pub outputs: &'a [&'a str],
}

/// The predictions that a request wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Asked {
    /// One for each node.
    #[default]
    Nodes,
    /// One for each pair. A pair holds two places in the list of nodes.
    Edges(Vec<(u32, u32)>),
    /// One for each graph.
    Graphs {
        /// Ids of the graphs.
        graphs: Vec<u64>,
        /// Number of nodes of each graph; filled in together with the nodes.
        sizes: Vec<usize>,
    },
}

/// A tensor of a request.
#[derive(Debug, Deserialize)]
pub struct Input<'a> {
    /// Its name.
    pub name: String,
    /// Data type of its values.
    pub datatype: String,
    /// Size of each dimension.
    #[serde(deserialize_with = "few")]
    pub shape: Vec<i64>,
    /// Its values.
    #[serde(borrow, default)]
    pub data: Data<'a>,
    /// Parameters, which say where the values are if they are not in `data`.
    #[serde(borrow, default)]
    pub parameters: Parameters<'a>,
}

/// The values of a tensor in the form that the client sent.
#[derive(Debug, Default)]
pub enum Data<'a> {
    /// No values.
    #[default]
    Absent,
    /// JSON, flat or as lists in lists.
    Json(&'a str),
    /// Row-major, little-endian.
    Bytes(&'a [u8]),
    /// The contents of a gRPC message.
    Message(&'a InferTensorContents),
}

impl<'de: 'a, 'a> Deserialize<'de> for Data<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let given = Option::<&RawValue>::deserialize(from)?;
        Ok(given.map_or(Self::Absent, |raw| Self::Json(raw.get())))
    }
}

impl Input<'_> {
    /// Calls `take` with each value in row-major order.
    ///
    /// # Errors
    /// Errors of `take`. The values are missing, the nesting of the lists does not match the shape,
    /// or the values or bytes do not fit the datatype.
    pub fn each(
        &self,
        mut take: impl FnMut(Element<'_>) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let take = |value: Element<'_>| {
            take(value)?;
            if tensors::is_of(&self.datatype, value) {
                return Ok(());
            }
            let (name, found) = (cut(&self.name), cut(&value.to_string()));
            Err(Refusal::wrong(format!("{name}: {found} is no {}", cut(&self.datatype))))
        };
        match self.data {
            Data::Absent => Err(Refusal::wrong(format!("{}: expected `data`", cut(&self.name)))),
            Data::Json(text) => json::each(&self.name, text, &self.shape, take),
            Data::Bytes(bytes) => tensors::each(&self.name, &self.datatype, bytes, take),
            Data::Message(contents) => {
                tensors::each_of_message(&self.name, &self.datatype, contents, take)
            }
        }
    }

    /// Checks that the data type can hold ids.
    ///
    /// # Errors
    /// It cannot.
    pub fn require_ids(&self) -> Result<(), Refusal> {
        if ID_TYPES.contains(&self.datatype.as_str()) {
            return Ok(());
        }
        Err(self.wrong_type("INT64"))
    }

    /// Checks that an array of `dtype` can hold values of this data type.
    ///
    /// # Errors
    /// It cannot.
    pub fn require_numbers(&self, dtype: DType) -> Result<(), Refusal> {
        let is_whole = self.datatype.starts_with("INT") || self.datatype.starts_with("UINT");
        let (expected, fits) = match dtype {
            DType::Bool => ("BOOL", self.datatype == "BOOL"),
            dtype if dtype.is_float() => ("FP32", is_whole || self.datatype.starts_with("FP")),
            _ => ("INT64", is_whole),
        };
        if fits { Ok(()) } else { Err(self.wrong_type(expected)) }
    }

    fn wrong_type(&self, expected: &str) -> Refusal {
        let (name, found) = (cut(&self.name), cut(&self.datatype));
        Refusal::wrong(format!("{name}: datatype {found}, expected {expected}"))
    }

    /// The nodes to compute, and the predictions to make for them. In an inline request, ids below
    /// 0 are inline nodes.
    pub fn asked(
        &self,
        scope: &Scope<'_>,
        is_inline: bool,
        memory: &mut Memory,
    ) -> Result<(Vec<NodeId>, Asked), Refusal> {
        self.require_ids()?;
        let name = scope.subject.input();
        let (what, below) = match scope.subject {
            Subject::Nodes | Subject::Edges => ("a node", scope.num_nodes),
            Subject::Graphs => ("a graph", scope.num_graphs),
        };
        let mut ids = Vec::new();
        self.each(|value| {
            if ids.len() % SOME_IDS == SOME_IDS - 1 {
                memory.take(SOME_IDS * AN_ID)?;
            }
            let new = value.as_i64().filter(|&id| is_inline && id < 0);
            let new = new.map(|id| NEW_NODE + (-1 - id) as u64);
            let id = value.as_u64().filter(|&id| id < below).or(new).ok_or_else(|| {
                let found = cut(&value.to_string());
                Refusal::wrong(format!("{name}: {found}, expected {what} below {below}"))
            })?;
            ids.push(id);
            Ok(())
        })?;
        self.check_shape(scope.subject, ids.len())?;
        Ok(match scope.subject {
            Subject::Nodes => (ids, Asked::Nodes),
            Subject::Edges => {
                let (nodes, pairs) = ends(&ids);
                (nodes, Asked::Edges(pairs))
            }
            Subject::Graphs => (Vec::new(), Asked::Graphs { graphs: ids, sizes: Vec::new() }),
        })
    }

    fn check_shape(&self, subject: Subject, values: usize) -> Result<(), Refusal> {
        let said = self
            .shape
            .iter()
            .try_fold(1i64, |product, &extent| product.checked_mul(extent).filter(|_| extent >= 0));
        let (expected, fits) = match subject {
            Subject::Edges => ("[n, 2]", matches!(self.shape[..], [_, 2])),
            // A column or a row also counts as a list. For a table the order of the ids would be a
            // guess.
            _ => ("[n]", self.shape.iter().filter(|&&extent| extent != 1).count() <= 1),
        };
        if !self.shape.is_empty() && said == Some(values as i64) && fits {
            return Ok(());
        }
        Err(Refusal::wrong(format!(
            "{}: shape {} for {values} values{}",
            subject.input(),
            cut(&format!("{:?}", self.shape)),
            if fits { String::new() } else { format!(", expected {expected}") }
        )))
    }
}

/// The distinct nodes of the pairs, in order of first appearance, and the places of each pair in
/// that list. This is the mapping table from embeddings to predictions.
///
/// **Source** GLIST, algorithm 1.
fn ends(ids: &[NodeId]) -> (Vec<NodeId>, Vec<(u32, u32)>) {
    let (mut nodes, mut places) = (Vec::new(), HashMap::new());
    let mut place = |node: NodeId| {
        *places.entry(node).or_insert_with(|| {
            nodes.push(node);
            (nodes.len() - 1) as u32
        })
    };
    let (pairs, _) = ids.as_chunks::<2>();
    let pairs = pairs.iter().map(|&[source, target]| (place(source), place(target))).collect();
    (nodes, pairs)
}
