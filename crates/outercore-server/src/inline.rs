//! Inline nodes, edges and graphs: a request contains them, and only its answer uses them.
//!
//! The tensor names are the ones of PyG. `x` has a row for each inline node, `edge_index` the ends
//! of inline edges, and `batch` the graph of each inline node. In `edge_index` and in the ids of
//! the request, `-1 - k` is the k-th inline node. NumPy writes it as `~k`.
//!
//! An edge of an undirected data set has two arcs, whichever direction it was imported in. A
//! request may list it once, or in both directions, as PyG does; `directions.rs` has the rule.
//!
//! `docs/design/0028-inline-requests.md` has the reasons.

use std::collections::BTreeMap;

use outercore_core::{EdgeId, Error, NodeId, ReadCounters, Result};
use outercore_format::{NewEdge, Rows, Update};
use outercore_live::{NEW_NODE, resolve};
use outercore_store::delta::{ArrayShape, Delta};
use outercore_store::{Extent, Topology};

use crate::asked::{Asked, Input, Scope, Subject};
use crate::body::Memory;
use crate::directions::{COUNTED_EDGE, Directions, EDGES};
use crate::element::encode;
use crate::refusal::{Refusal, cut};

/// Tensor of features: `[nodes, columns]`.
pub const FEATURES: &str = "x";
/// Tensor of graphs: `[nodes]`, ascending from 0.
pub const GRAPHS: &str = "batch";

/// Most inline edges of a request, for each node that the request may have.
const EDGES_A_NODE: u64 = 64;

/// Most in-edges of existing neighbours that are copied for a request.
const MOST_COPIED: u64 = 1 << 20;

/// Bytes of an inline node in addition to its features, and bytes of each end of an inline edge.
const A_NODE: usize = 128;
const AN_END: usize = 32;

/// Ends of edges whose memory is reserved at once.
const SOME_ENDS: usize = 1024;

/// The inline nodes, edges and graphs of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inline {
    /// Features of each node in the dtype of the array. Rows are empty if the model reads none.
    rows: Vec<Vec<u8>>,
    /// Source and target; `NEW_NODE + k` is the k-th inline node.
    edges: Vec<(NodeId, NodeId)>,
    /// Number of nodes of each graph; empty unless the model predicts graphs.
    sizes: Vec<usize>,
}

/// Most inline edges of a request.
pub fn most_edges(most_nodes: u64) -> u64 {
    EDGES_A_NODE * most_nodes
}

impl Inline {
    /// Reads the inline tensors of a request whose ids refer to `referenced` inline nodes.
    ///
    /// # Errors
    /// A sentence for the client: a wrong shape or datatype, a value that the array cannot hold, an
    /// unknown node, too many nodes or edges, or ambiguous edges. Also if no memory is free.
    pub fn read(
        inputs: &[Input<'_>],
        scope: &Scope<'_>,
        referenced: u64,
        directions: Directions,
        memory: &mut Memory,
    ) -> Result<Self, Refusal> {
        let tensor = |name: &str| inputs.iter().find(|input| input.name == name);
        let graph_of = tensor(GRAPHS).map(|input| whole_numbers(input, 1, memory)).transpose()?;
        let ends = tensor(EDGES).map(|input| whole_numbers(input, 2, memory)).transpose()?;
        let ends = ends.unwrap_or_default();
        let is_place = scope.subject == Subject::Graphs;
        let named = ends
            .iter()
            .map(|&end| place(scope, end))
            .max()
            .map_or(0, |last| last.saturating_add(1).max(0));
        let named = referenced.max(named as u64);
        let rows = rows_of(tensor(FEATURES), scope, graph_of.as_deref(), named, memory)?;
        let count = rows.len() as u64;
        if count > scope.most_nodes {
            let text = format!("inline nodes: {count}, expected {} at most", scope.most_nodes);
            return Err(Refusal::wrong(text));
        }
        let edges = edges_of(&ends, scope, count)?;
        memory.take(edges.len() * COUNTED_EDGE)?;
        let edges = directions.each_once(edges, scope.is_undirected)?;
        if let Some(&(source, target)) = edges.iter().find(|(a, b)| *a < NEW_NODE && *b < NEW_NODE)
        {
            return Err(Refusal::wrong(format!(
                "{EDGES}: an edge from {source} to {target}, expected an inline node at one end"
            )));
        }
        let sizes = match (is_place, graph_of) {
            (true, Some(graph_of)) => sizes_of(&graph_of, count)?,
            (true, None) => vec![count as usize],
            (false, Some(_)) => {
                return Err(Refusal::wrong(format!("{GRAPHS}: the model does not predict graphs")));
            }
            (false, None) => Vec::new(),
        };
        let inline = Self { rows, edges, sizes };
        if is_place {
            inline.check_within()?;
        }
        Ok(inline)
    }

    /// Number of inline nodes.
    pub fn num_nodes(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Number of inline graphs.
    pub fn num_graphs(&self) -> usize {
        self.sizes.len()
    }

    /// Checks that both ends of each edge are in one graph.
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

    /// Copies `delta`, adds the inline nodes, edges and graphs to the copy, and sets their ids in
    /// the question.
    ///
    /// The ids are those that updates would assign, so the answer equals the answer after these
    /// updates.
    ///
    /// **Cost** In an undirected graph, copies the in-edges of the existing neighbours.
    ///
    /// # Errors
    /// `NotFound`: a neighbour was removed. `Invalid`: the neighbours have too many edges. Errors
    /// of reads.
    pub fn enter(
        &self,
        delta: &Delta,
        base: &dyn Topology,
        features: Option<&str>,
        (nodes, asked): (&mut [NodeId], &mut Asked),
    ) -> Result<Delta> {
        let first = delta.num_nodes();
        let mut updates = self.updates(delta, features);
        resolve(&mut updates, first)?;
        let mut with = delta.clone();
        let touched: Vec<NodeId> = updates.iter().flat_map(|update| with.touched(update)).collect();
        check_copied(&touched, delta, base)?;
        with.apply(delta.lsn() + 1, &updates, &WithoutIds(base))?;
        for node in &mut *nodes {
            if let Some(new) = node.checked_sub(NEW_NODE) {
                *node = first + new;
            }
        }
        nodes.iter().try_for_each(|&node| with.require(node))?;
        if let Asked::Graphs { sizes, .. } = asked {
            sizes.clone_from(&self.sizes);
        }
        Ok(with)
    }

    /// The updates that would add the inline nodes, edges and graphs.
    fn updates(&self, delta: &Delta, features: Option<&str>) -> Vec<Update> {
        let schema = delta.schema();
        let (of_node, of_edge) = (zeros(&schema.node_arrays), zeros(&schema.edge_arrays));
        let row = |bytes: &Vec<u8>| -> Rows {
            let mut rows = of_node.clone();
            rows.extend(features.map(|key| (key.to_owned(), bytes.clone())));
            rows
        };
        if self.sizes.is_empty() {
            let nodes =
                self.rows.iter().map(|bytes| Update::AddNode { graph: None, rows: row(bytes) });
            let edges = self.edges.iter().map(|&(source, target)| Update::AddEdge {
                source,
                target,
                rows: of_edge.clone(),
            });
            return nodes.chain(edges).collect();
        }
        let of_graph = zeros(&schema.graph_arrays);
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
                        rows: of_edge.clone(),
                    })
                    .collect(),
            });
            begin += size;
        }
        graphs
    }
}

/// A row of zeros for each array. The model does not read these arrays.
fn zeros(arrays: &BTreeMap<String, ArrayShape>) -> Rows {
    arrays.iter().map(|(key, shape)| (key.clone(), vec![0; shape.row_bytes() as usize])).collect()
}

/// Reads the integers of a tensor of shape `[n]`, or `[2, n]` if `rows` is 2.
fn whole_numbers(input: &Input<'_>, rows: i64, memory: &mut Memory) -> Result<Vec<i64>, Refusal> {
    let name = cut(&input.name);
    input.require_ids()?;
    let mut numbers = Vec::new();
    input.each(|value| {
        if numbers.len() % SOME_ENDS == SOME_ENDS - 1 {
            memory.take(SOME_ENDS * AN_END)?;
        }
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

/// Converts an id of a request to the place of an inline node; the result is below 0 for a node of
/// the graph.
fn place(scope: &Scope<'_>, end: i64) -> i64 {
    if scope.subject == Subject::Graphs { end } else { -1 - end }
}

/// Returns the feature row of each inline node. If the model reads no features, the rows are empty,
/// and their number comes from `graph_of`, or else from the ids of the request.
fn rows_of(
    features: Option<&Input<'_>>,
    scope: &Scope<'_>,
    graph_of: Option<&[i64]>,
    named: u64,
    memory: &mut Memory,
) -> Result<Vec<Vec<u8>>, Refusal> {
    match (features, scope.features) {
        (Some(input), Some(_)) => feature_rows(input, scope, memory),
        (None, Some(_)) => {
            Err(Refusal::wrong(format!("{FEATURES}: expected a row for each inline node")))
        }
        (Some(_), None) => Err(Refusal::wrong(format!("{FEATURES}: this model reads no features"))),
        // A node without edges appears in no other tensor, so `batch` is needed to count the nodes.
        (None, None) if scope.subject == Subject::Graphs && graph_of.is_none() => {
            Err(Refusal::wrong(format!(
                "{GRAPHS}: expected the graph of each inline node, as the model reads no {FEATURES}"
            )))
        }
        (None, None) => {
            let count = graph_of.map_or(named, |graph_of| graph_of.len() as u64);
            // One node more than allowed, so that the caller refuses the request.
            Ok(vec![Vec::new(); count.min(scope.most_nodes + 1) as usize])
        }
    }
}

/// Source and target of each edge, given `count` inline nodes. `ends` holds all sources, then all
/// targets.
fn edges_of(ends: &[i64], scope: &Scope<'_>, count: u64) -> Result<Vec<(NodeId, NodeId)>, Refusal> {
    let (sources, targets) = ends.split_at(ends.len() / 2);
    let most = most_edges(scope.most_nodes);
    if sources.len() as u64 > most {
        let text = format!("{EDGES}: {} edges, expected {most} at most", sources.len());
        return Err(Refusal::wrong(text));
    }
    let is_place = scope.subject == Subject::Graphs;
    let node = |end: i64| match u64::try_from(place(scope, end)) {
        Ok(place) if place < count => Ok(NEW_NODE + place),
        Err(_) if !is_place && (end as u64) < scope.num_nodes => Ok(end as u64),
        _ => Err(Refusal::wrong(match is_place {
            true => format!("{EDGES}: {end}, expected an inline node below {count}"),
            false => format!(
                "{EDGES}: {end}, expected a node below {} or an inline node from -1 to -{count}",
                scope.num_nodes
            ),
        })),
    };
    let edges = sources.iter().zip(targets);
    edges.map(|(&source, &target)| Ok((node(source)?, node(target)?))).collect()
}

/// Feature rows in the dtype of the array.
fn feature_rows(
    input: &Input<'_>,
    scope: &Scope<'_>,
    memory: &mut Memory,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let Some(shape) = scope.features else { return Ok(Vec::new()) };
    input.require_numbers(shape.dtype)?;
    let (columns, row_bytes) = (shape.columns, shape.row_bytes() as usize);
    let mut rows: Vec<Vec<u8>> = Vec::new();
    let mut count = 0;
    input.each(|value| {
        let node = count / columns;
        count += 1;
        if node >= scope.most_nodes {
            // Values beyond the limit are counted but not stored.
            return Ok(());
        }
        if (count - 1) % columns == 0 {
            memory.take(row_bytes + A_NODE)?;
            rows.push(Vec::with_capacity(row_bytes));
        }
        let row = rows.last_mut().ok_or_else(Refusal::failed)?;
        encode(value, shape.dtype, row).map_err(|error| {
            Refusal::wrong(format!("{FEATURES}: inline node {node}: {}", error.one_line()))
        })
    })?;
    let found = count / columns;
    let is_whole = input.shape == [found as i64, columns as i64]
        || (columns == 1 && input.shape == [found as i64]);
    if count % columns != 0 || !is_whole {
        return Err(Refusal::wrong(format!(
            "{FEATURES}: shape {} for {count} values, expected [n, {columns}]",
            cut(&format!("{:?}", input.shape))
        )));
    }
    if found > scope.most_nodes {
        let text = format!("inline nodes: {found}, expected {} at most", scope.most_nodes);
        return Err(Refusal::wrong(text));
    }
    Ok(rows)
}

/// Number of nodes of each graph. The nodes of a graph are consecutive.
fn sizes_of(graph_of: &[i64], nodes: u64) -> Result<Vec<usize>, Refusal> {
    let mut sizes: Vec<usize> = Vec::new();
    for (node, &graph) in graph_of.iter().enumerate() {
        let next = sizes.len() as i64;
        match sizes.last_mut() {
            _ if graph == next => sizes.push(1),
            Some(size) if graph == next - 1 => *size += 1,
            _ => {
                return Err(Refusal::wrong(format!(
                    "{GRAPHS}: inline node {node} is in graph {graph}, expected graphs ascending from 0"
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

/// Checks how many in-edges of existing nodes a request would copy.
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
        "{EDGES}: the neighbours have {edges} in-edges, expected {MOST_COPIED} at most"
    )))
}

/// A topology in which all edge ids are 0. Sampling needs only that inline edges have larger ids.
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
