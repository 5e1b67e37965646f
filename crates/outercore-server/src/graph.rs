//! The served graph: fixed, or with updates.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use outercore_core::{Bytes, NodeId, Result};
use outercore_live::{LiveConfig, LiveGraph, LiveStatus, Snapshot, WRITER_MEMORY};
use outercore_store::dataset::DataSet;
use outercore_store::delta::{Delta, Graphs, Replaced, removed_nodes};

use crate::asked::Asked;
use crate::config::ServerConfig;
use crate::live_metrics::LiveMetrics;
use crate::question::Question;
use crate::refusal::Refusal;

/// Fraction of the budget for changes of the graph: one over this number.
const CHANGES: u64 = 8;

/// Fraction of the budget for growth of the arrays: one over this number.
const GROWTH: u64 = 64;

/// Most updates in the queue of the writer.
const WRITES: usize = 4096;

/// A graph that is served.
pub enum Graph {
    /// A graph without updates.
    Fixed(Box<FixedGraph>),
    /// A graph that takes updates.
    Live(Arc<LiveGraph>),
}

/// A graph that takes no updates.
pub struct FixedGraph {
    data_set: DataSet,
    /// When it was read. Later updates of another process are not included.
    opened: Instant,
    /// Nodes that were already removed, ascending.
    removed: Vec<NodeId>,
    /// The graphs of a data set of many graphs.
    graphs: Option<Graphs>,
    /// An empty delta for inline requests, created by the first one.
    unchanged: OnceLock<Delta>,
}

/// The graph at one moment.
pub enum View<'a> {
    /// Of a graph without updates.
    Fixed(&'a FixedGraph),
    /// Of a graph with updates.
    Live(Arc<Snapshot>),
}

impl Graph {
    /// Opens the data set in `root` at its last acknowledged update. With `watch`, which receives
    /// the metrics of commits, the graph takes updates.
    ///
    /// # Errors
    /// As [`LiveGraph::open`] and [`outercore_live::open`].
    pub fn open(root: &Path, config: &ServerConfig, watch: Option<&LiveMetrics>) -> Result<Self> {
        if let Some(watch) = watch {
            let memory = Bytes(config.memory.0 / CHANGES);
            let live = LiveConfig { memory, queue: WRITES, ..LiveConfig::default() };
            let graph = LiveGraph::open(root, live, Arc::new(watch.clone()))?;
            return Ok(Self::Live(Arc::new(graph)));
        }
        // Take the time before opening, so that the age is never too small.
        let opened = Instant::now();
        let data_set = outercore_live::open(root, &|| Ok(()))?;
        let removed = removed_nodes(&data_set)?;
        let graphs = Graphs::open(&data_set, &removed)?;
        let unchanged = OnceLock::new();
        Ok(Self::Fixed(Box::new(FixedGraph { data_set, opened, removed, graphs, unchanged })))
    }

    /// Part of the budget for growth of the arrays. A reader that outgrows it is reopened.
    pub fn growth(config: &ServerConfig) -> Bytes {
        Bytes(if config.updates { config.memory.0 / GROWTH } else { 0 })
    }

    /// Part of the budget for changes and for writing them.
    pub fn reserved(config: &ServerConfig) -> Bytes {
        let needed = config.memory.0 / CHANGES + WRITER_MEMORY.0;
        Bytes(if config.updates { needed } else { 0 })
    }

    /// The graph at this moment.
    pub fn view(&self) -> View<'_> {
        match self {
            Self::Fixed(graph) => View::Fixed(graph),
            Self::Live(live) => View::Live(live.snapshot()),
        }
    }

    /// How long ago the graph was read; `None` if it takes updates.
    pub fn age(&self) -> Option<Duration> {
        match self {
            Self::Fixed(graph) => Some(graph.opened.elapsed()),
            Self::Live(_) => None,
        }
    }

    /// The part that takes updates.
    ///
    /// # Errors
    /// The graph takes no updates.
    pub fn live(&self) -> Result<&Arc<LiveGraph>, Refusal> {
        match self {
            Self::Live(live) => Ok(live),
            Self::Fixed(_) => Err(Refusal::read_only()),
        }
    }

    /// Status of a graph that takes updates.
    pub fn status(&self) -> Option<LiveStatus> {
        match self {
            Self::Live(live) => Some(live.status()),
            Self::Fixed(_) => None,
        }
    }
}

impl View<'_> {
    /// The arrays.
    pub fn data_set(&self) -> &DataSet {
        match self {
            Self::Fixed(graph) => &graph.data_set,
            Self::Live(snapshot) => &snapshot.data_set,
        }
    }

    /// The changes since the arrays were written.
    pub fn delta(&self) -> Option<&Delta> {
        match self {
            Self::Fixed(_) => None,
            Self::Live(snapshot) => Some(&snapshot.delta),
        }
    }

    /// The delta, or an empty one for a graph without updates. Inline requests add to a copy of it.
    ///
    /// # Errors
    /// `Unsupported` for a graph that cannot change.
    pub fn changes(&self) -> Result<&Delta> {
        match self {
            Self::Live(snapshot) => Ok(&snapshot.delta),
            Self::Fixed(graph) => match graph.unchanged.get() {
                Some(unchanged) => Ok(unchanged),
                None => {
                    let unchanged = Delta::new(&graph.data_set)?;
                    Ok(graph.unchanged.get_or_init(|| unchanged))
                }
            },
        }
    }

    /// Number of times that the arrays were exchanged.
    pub fn generation(&self) -> u64 {
        match self {
            Self::Fixed(_) => 0,
            Self::Live(snapshot) => snapshot.generation,
        }
    }

    /// The arrays that the last exchange replaced; `None` for a graph without updates.
    pub fn replaced(&self) -> Option<&Replaced> {
        match self {
            Self::Fixed(_) => None,
            Self::Live(snapshot) => Some(&snapshot.replaced),
        }
    }

    /// LSN of the last update.
    pub fn lsn(&self) -> u64 {
        match self {
            Self::Fixed(_) => self.data_set().manifest().lsn(),
            Self::Live(snapshot) => snapshot.delta.lsn(),
        }
    }

    /// Number of nodes, removed ones included.
    pub fn num_nodes(&self) -> u64 {
        self.delta().map_or_else(|| self.data_set().num_nodes(), Delta::num_nodes)
    }

    /// Whether the graph is undirected.
    pub fn is_undirected(&self) -> bool {
        self.data_set().manifest().edge_types.values().all(|edges| edges.undirected)
    }

    /// Number of arcs.
    pub fn num_edges(&self) -> u64 {
        self.delta().map_or_else(|| self.data_set().num_edges(), Delta::num_edges)
    }

    /// Number of removed nodes.
    pub fn num_removed(&self) -> u64 {
        match self {
            Self::Fixed(graph) => graph.removed.len() as u64,
            Self::Live(snapshot) => snapshot.delta.num_removed(),
        }
    }

    /// The graphs of a data set of many; `None` for a single graph.
    pub fn graphs(&self) -> Option<&Graphs> {
        match self {
            Self::Fixed(graph) => graph.graphs.as_ref(),
            Self::Live(snapshot) => snapshot.delta.graphs(),
        }
    }

    fn is_removed(&self, node: NodeId) -> bool {
        match self {
            Self::Fixed(graph) => graph.removed.binary_search(&node).is_ok(),
            Self::Live(snapshot) => snapshot.delta.is_removed(node),
        }
    }

    /// Checks the ids of a question, and fills in the current nodes of its graphs. Inline questions
    /// are checked when they are answered.
    ///
    /// # Errors
    /// A node or graph that never existed or was removed; graphs with more than `most_nodes` nodes
    /// in total.
    pub fn settle(&self, question: &mut Question, most_nodes: u64) -> Result<(), Refusal> {
        if question.inline.is_some() {
            return Ok(());
        }
        let Asked::Graphs { graphs: ids, sizes } = &mut question.asked else {
            return self.require(&question.nodes);
        };
        let Some(graphs) = self.graphs() else {
            return Err(Refusal::wrong("the data set is one graph"));
        };
        sizes.clear();
        question.nodes.clear();
        for &graph in &*ids {
            graphs.require(graph).map_err(|error| Refusal::of_lookup(&error))?;
            let before = question.nodes.len();
            question.nodes.extend(graphs.nodes(graph).filter(|&node| !self.is_removed(node)));
            sizes.push(question.nodes.len() - before);
            let count = question.nodes.len();
            if count as u64 > most_nodes {
                return Err(Refusal::wrong(format!(
                    "graph_ids: graphs of {count} nodes or more, expected {most_nodes} at most"
                )));
            }
        }
        Ok(())
    }

    /// Checks that the nodes exist.
    ///
    /// # Errors
    /// A node that never existed or was removed.
    pub fn require(&self, nodes: &[NodeId]) -> Result<(), Refusal> {
        let count = self.num_nodes();
        if let Some(node) = nodes.iter().find(|&&node| node >= count) {
            return Err(Refusal::wrong(format!("node {node}: expected a node below {count}")));
        }
        match nodes.iter().find(|&&node| self.is_removed(node)) {
            Some(node) => Err(Refusal::unknown(format!("node {node} was removed"))),
            None => Ok(()),
        }
    }
}
