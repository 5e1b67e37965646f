//! What a request brings along: nodes, edges and graphs that the server has never seen. They are part
//! of the graph while that request is answered, and of no other answer.
//!
//! The names are those of PyG: `x` has a row for each new node, `edge_index` the ends of new edges, and
//! `batch` the graph of each node. In `edge_index` and among the ids that are asked for, `-1 - k` is
//! the k-th new node, which NumPy writes `~k`.

use outercore_core::{EdgeId, Error, NodeId, ReadCounters, Result};
use outercore_format::{NewEdge, Rows, Update};
use outercore_live::{NEW_NODE, resolve};
use outercore_store::delta::{ArrayShape, Delta};
use outercore_store::{Extent, Topology};
use serde_json::Value;

use crate::protocol::{Asked, Input, Question, Scope, Subject, cut, flatten};
use crate::refusal::Refusal;
use crate::updates::encode;

/// Name of the tensor with the features of new nodes.
pub const FEATURES: &str = "x";
/// Name of the tensor with the ends of new edges.
pub const EDGES: &str = "edge_index";
/// Name of the tensor that says which graph each new node is in.
pub const GRAPHS: &str = "batch";

/// New edges of a request, for each node that it may have.
const EDGES_A_NODE: u64 = 64;

/// In-edges of existing neighbours that are copied for a request, at most.
const MOST_COPIED: u64 = 1 << 20;

/// What a request brings along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inline {
    /// The features of each new node, as the array stores them; empty rows for a model that reads none.
    rows: Vec<Vec<u8>>,
    /// Source and target; `NEW_NODE + k` is the k-th new node.
    edges: Vec<(NodeId, NodeId)>,
    /// Nodes of each new graph; empty where the graph is one.
    sizes: Vec<usize>,
}

/// Most new edges of a request.
pub fn most_edges(most_nodes: u64) -> u64 {
    EDGES_A_NODE * most_nodes
}

impl Inline {
    /// Reads it from tensors of a request; `references` are the new nodes that its ids name, at least.
    ///
    /// # Errors
    /// A sentence for the client: a tensor of another shape or datatype, a value that the array cannot
    /// hold, an end that there is not, too many nodes or edges.
    pub fn read(inputs: &[Input], scope: &Scope<'_>, references: u64) -> Result<Self, Refusal> {
        let tensor = |name: &str| inputs.iter().find(|input| input.name == name);
        let graph_of = tensor(GRAPHS).map(|input| whole_numbers(input, 1)).transpose()?;
        let ends = tensor(EDGES).map(|input| whole_numbers(input, 2)).transpose()?;
        let ends = ends.unwrap_or_default();
        let is_place = scope.subject == Subject::Graphs;
        let highest = |&end: &i64| if is_place { end } else { -1 - end };
        let named = ends.iter().map(highest).max().map_or(0, |k| (k + 1).max(0) as u64);
        let rows = match (tensor(FEATURES), scope.features) {
            (Some(input), Some(_)) => feature_rows(input, scope)?,
            (None, Some(_)) if named.max(references) > 0 || graph_of.is_some() => {
                return Err(Refusal::wrong(format!(
                    "{FEATURES}: expected a row for each new node"
                )));
            }
            (Some(_), None) => {
                return Err(Refusal::wrong(format!("{FEATURES}: this model reads no features")));
            }
            _ => {
                let count = graph_of.as_ref().map_or(named.max(references), |of| of.len() as u64);
                if count > scope.most_nodes {
                    return Err(too_many(count, scope));
                }
                vec![Vec::new(); count as usize]
            }
        };
        let count = rows.len() as u64;
        if count > scope.most_nodes {
            return Err(too_many(count, scope));
        }
        if ends.len() as u64 / 2 > most_edges(scope.most_nodes) {
            return Err(Refusal::wrong(format!(
                "{EDGES}: {} edges, expected {} at most",
                ends.len() / 2,
                most_edges(scope.most_nodes)
            )));
        }
        let node = |end: i64| {
            let new = highest(&end);
            match u64::try_from(new) {
                Ok(new) if new < count => Ok(NEW_NODE + new),
                Err(_) if !is_place && (end as u64) < scope.num_nodes => Ok(end as u64),
                _ => Err(Refusal::wrong(match is_place {
                    true => format!("{EDGES}: {end}, expected a place among the {count} nodes"),
                    false => format!(
                        "{EDGES}: {end}, expected a node below {} or one of {count} new ones from -1 \
                         downwards",
                        scope.num_nodes
                    ),
                })),
            }
        };
        // Rows of a tensor of two: all sources, then all targets.
        let (sources, targets) = ends.split_at(ends.len() / 2);
        let edges = sources.iter().zip(targets);
        let edges = edges.map(|(&source, &target)| Ok((node(source)?, node(target)?)));
        let edges: Vec<(NodeId, NodeId)> = edges.collect::<Result<_, Refusal>>()?;
        if let Some(&(source, target)) = edges.iter().find(|(a, b)| *a < NEW_NODE && *b < NEW_NODE)
        {
            return Err(Refusal::wrong(format!(
                "{EDGES}: an edge from {source} to {target}, expected a new node at one end"
            )));
        }
        let sizes = match (is_place, graph_of) {
            (true, Some(graph_of)) => sizes_of(&graph_of, count)?,
            (true, None) => vec![count as usize],
            (false, Some(_)) => {
                return Err(Refusal::wrong(format!("{GRAPHS}: the model is not one of graphs")));
            }
            (false, None) => Vec::new(),
        };
        let inline = Self { rows, edges, sizes };
        if is_place {
            inline.check_within()?;
        }
        Ok(inline)
    }

    /// New nodes.
    pub fn num_nodes(&self) -> u64 {
        self.rows.len() as u64
    }

    /// New graphs.
    pub fn num_graphs(&self) -> usize {
        self.sizes.len()
    }

    /// Edges stay within a graph.
    fn check_within(&self) -> Result<(), Refusal> {
        let mut graph_of = Vec::with_capacity(self.rows.len());
        for (graph, &size) in self.sizes.iter().enumerate() {
            graph_of.resize(graph_of.len() + size, graph);
        }
        let graph = |node: NodeId| graph_of[(node - NEW_NODE) as usize];
        match self.edges.iter().find(|(source, target)| graph(*source) != graph(*target)) {
            Some((source, target)) => Err(Refusal::wrong(format!(
                "{EDGES}: an edge from node {} to node {} of another graph",
                source - NEW_NODE,
                target - NEW_NODE
            ))),
            None => Ok(()),
        }
    }

    /// The graph of `delta` with it, and the question about the nodes that it has there.
    ///
    /// The new nodes, edges and graphs get the ids that updates would give them, so that the answer is
    /// that after these updates.
    ///
    /// # Errors
    /// `NotFound`: a neighbour was removed. `Invalid`: the neighbours have too many edges. Failed
    /// reads.
    pub fn enter(
        &self,
        delta: &Delta,
        base: &dyn Topology,
        features: Option<&str>,
        question: &mut Question,
    ) -> Result<Delta> {
        let first = delta.num_nodes();
        let mut updates = self.updates(delta, features);
        resolve(&mut updates, first)?;
        let mut with = delta.clone();
        let touched: Vec<NodeId> = updates.iter().flat_map(|update| with.touched(update)).collect();
        check_copied(&touched, delta, base)?;
        with.apply(delta.lsn() + 1, &updates, &WithoutIds(base))?;
        for node in &mut question.nodes {
            if let Some(new) = node.checked_sub(NEW_NODE) {
                *node = first + new;
            }
        }
        question.nodes.iter().try_for_each(|&node| with.require(node))?;
        if let Asked::Graphs { sizes, .. } = &mut question.asked {
            sizes.clone_from(&self.sizes);
        }
        Ok(with)
    }

    fn updates(&self, delta: &Delta, features: Option<&str>) -> Vec<Update> {
        let row = |bytes: &Vec<u8>| -> Rows {
            let arrays = &delta.schema().node_arrays;
            // The model reads no other array.
            let none = |(key, shape): (&String, &ArrayShape)| {
                let is_read = features == Some(key.as_str());
                let bytes =
                    if is_read { bytes.clone() } else { vec![0; shape.row_bytes() as usize] };
                (key.clone(), bytes)
            };
            arrays.iter().map(none).collect()
        };
        let of_edge = || -> Rows {
            let arrays = delta.schema().edge_arrays.iter();
            arrays.map(|(key, shape)| (key.clone(), vec![0; shape.row_bytes() as usize])).collect()
        };
        if self.sizes.is_empty() {
            let nodes =
                self.rows.iter().map(|bytes| Update::AddNode { graph: None, rows: row(bytes) });
            let edges = self.edges.iter().map(|&(source, target)| Update::AddEdge {
                source,
                target,
                rows: of_edge(),
            });
            return nodes.chain(edges).collect();
        }
        let arrays = delta.schema().graph_arrays.iter();
        let of_graph: Rows =
            arrays.map(|(key, shape)| (key.clone(), vec![0; shape.row_bytes() as usize])).collect();
        let mut begin = 0;
        let mut graphs = Vec::new();
        for &size in &self.sizes {
            let own = begin as u64..(begin + size) as u64;
            let place = |node: NodeId| node - NEW_NODE;
            let edges = self.edges.iter().filter(|(source, _)| own.contains(&place(*source)));
            graphs.push(Update::RegisterGraph {
                rows: of_graph.clone(),
                nodes: self.rows[begin..begin + size].iter().map(row).collect(),
                edges: edges
                    .map(|&(source, target)| NewEdge {
                        source: place(source) - own.start,
                        target: place(target) - own.start,
                        rows: of_edge(),
                    })
                    .collect(),
            });
            begin += size;
        }
        graphs
    }
}

fn too_many(count: u64, scope: &Scope<'_>) -> Refusal {
    Refusal::wrong(format!("{count} new nodes, expected {} at most", scope.most_nodes))
}

/// The whole numbers of a tensor; of one of two rows as `[2, n]`.
fn whole_numbers(input: &Input, rows: i64) -> Result<Vec<i64>, Refusal> {
    let name = cut(&input.name);
    input.require_ids()?;
    let mut numbers = Vec::new();
    flatten(&input.data, &mut |value| {
        let wrong = || {
            Refusal::wrong(format!("{name}: {}, expected whole numbers", cut(&value.to_string())))
        };
        numbers.push(value.as_i64().ok_or_else(wrong)?);
        Ok(())
    })?;
    let count = numbers.len() as i64;
    let fits = match (rows, &input.shape[..]) {
        (1, [n]) => *n == count,
        (_, [2, n]) => count % 2 == 0 && *n == count / 2,
        _ => false,
    };
    if fits {
        return Ok(numbers);
    }
    let expected = if rows == 1 { "[n]" } else { "[2, n]" };
    Err(Refusal::wrong(format!(
        "{name}: shape {} for {count} values, expected {expected}",
        cut(&format!("{:?}", input.shape))
    )))
}

/// The rows of the features, as the array stores them.
fn feature_rows(input: &Input, scope: &Scope<'_>) -> Result<Vec<Vec<u8>>, Refusal> {
    let Some(shape) = scope.features else { return Ok(Vec::new()) };
    let columns = shape.columns;
    let mut values = Vec::new();
    let mut count = 0;
    flatten(&input.data, &mut |value: &Value| {
        let node = count / columns;
        count += 1;
        encode(value, shape.dtype, &mut values, &mut 0).map_err(|error| {
            Refusal::wrong(format!("{FEATURES}: new node {node}: {}", error.one_line()))
        })
    })?;
    let rows = count / columns;
    let is_whole = input.shape == [rows as i64, columns as i64]
        || (columns == 1 && input.shape == [rows as i64]);
    if count % columns != 0 || !is_whole {
        return Err(Refusal::wrong(format!(
            "{FEATURES}: shape {} for {count} values, expected [n, {columns}]",
            cut(&format!("{:?}", input.shape))
        )));
    }
    Ok(values.chunks_exact(shape.row_bytes() as usize).map(<[u8]>::to_vec).collect())
}

/// How many nodes each graph has, where the nodes of a graph follow each other.
fn sizes_of(graph_of: &[i64], nodes: u64) -> Result<Vec<usize>, Refusal> {
    let mut sizes: Vec<usize> = Vec::new();
    for (node, &graph) in graph_of.iter().enumerate() {
        match graph - sizes.len() as i64 {
            0 => sizes.push(1),
            -1 => *sizes.last_mut().expect("a graph before it") += 1,
            _ => {
                return Err(Refusal::wrong(format!(
                    "{GRAPHS}: node {node} is in graph {graph}, expected graphs that ascend from 0"
                )));
            }
        }
    }
    if graph_of.len() as u64 == nodes && nodes > 0 {
        return Ok(sizes);
    }
    Err(Refusal::wrong(format!(
        "{GRAPHS}: {} nodes, expected one number for each of {nodes}",
        graph_of.len()
    )))
}

/// A request that changes the in-edges of hubs would copy all of them.
fn check_copied(touched: &[NodeId], delta: &Delta, base: &dyn Topology) -> Result<()> {
    let is_copied = |node: &NodeId| *node < base.num_nodes() && delta.list(*node).is_none();
    let mut nodes: Vec<NodeId> = touched.iter().copied().filter(is_copied).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut extents = vec![Extent::default(); nodes.len()];
    base.extents(&nodes, &mut extents)?;
    let edges: u64 = extents.iter().map(|extent| extent.degree).sum();
    if edges <= MOST_COPIED {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{EDGES}: the neighbours of the new nodes have {edges} edges, expected {MOST_COPIED} at most"
    )))
}

/// A topology whose edges have no ids. New edges have larger ones, and nobody asks for others.
struct WithoutIds<'a>(&'a dyn Topology);

impl Topology for WithoutIds<'_> {
    fn num_nodes(&self) -> u64 {
        self.0.num_nodes()
    }

    fn num_edges(&self) -> u64 {
        self.0.num_edges()
    }

    fn extents(&self, nodes: &[NodeId], extents: &mut [Extent]) -> Result<()> {
        self.0.extents(nodes, extents)
    }

    fn sources(&self, positions: &[u64], sources: &mut [NodeId]) -> Result<()> {
        self.0.sources(positions, sources)
    }

    fn edge_ids(&self, _: &[u64], ids: &mut [EdgeId]) -> Result<()> {
        ids.fill(0);
        Ok(())
    }

    fn read_counters(&self) -> ReadCounters {
        self.0.read_counters()
    }
}
