//! The graph that questions are about: as it lies on disk, or as it changes.

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

/// Part of the budget for changes of the graph.
const CHANGES: u64 = 8;

/// Part of the budget that the arrays may grow by.
const GROWTH: u64 = 64;

/// Updates that may wait.
const WRITES: usize = 4096;

/// A graph that is served.
pub enum Graph {
    /// It stays as it is.
    Fixed(Box<FixedGraph>),
    /// It takes updates.
    Live(Arc<LiveGraph>),
}

/// A graph that stays as it is.
pub struct FixedGraph {
    data_set: DataSet,
    /// When it was read. Updates that another process has acknowledged since are not in it.
    opened: Instant,
    /// Nodes that were removed before, ascending.
    removed: Vec<NodeId>,
    /// Those of a data set of many.
    graphs: Option<Graphs>,
    /// An empty delta for inline requests, made by the first one.
    unchanged: OnceLock<Delta>,
}

/// The graph at one moment.
pub enum View<'a> {
    /// Of a graph that stays as it is.
    Fixed(&'a FixedGraph),
    /// Of one that changes.
    Live(Arc<Snapshot>),
}

impl Graph {
    /// Opens the data set in `root` at its last acknowledged update; where commits are watched, for
    /// updates.
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
        // Before, so that the age is never too small.
        let opened = Instant::now();
        let data_set = outercore_live::open(root, &|| Ok(()))?;
        let removed = removed_nodes(&data_set)?;
        let graphs = Graphs::open(&data_set, &removed)?;
        let unchanged = OnceLock::new();
        Ok(Self::Fixed(Box::new(FixedGraph { data_set, opened, removed, graphs, unchanged })))
    }

    /// Part of the budget for growth of the arrays. A reader that outgrows it is opened again.
    pub fn growth(config: &ServerConfig) -> Bytes {
        Bytes(if config.updates { config.memory.0 / GROWTH } else { 0 })
    }

    /// Part of the budget for changes and for writing them.
    pub fn reserved(config: &ServerConfig) -> Bytes {
        let needed = config.memory.0 / CHANGES + WRITER_MEMORY.0;
        Bytes(if config.updates { needed } else { 0 })
    }

    /// The graph as it is now.
    pub fn view(&self) -> View<'_> {
        match self {
            Self::Fixed(graph) => View::Fixed(graph),
            Self::Live(live) => View::Live(live.snapshot()),
        }
    }

    /// How long ago a graph was read that stays as it is; `None` for one that takes updates.
    pub fn age(&self) -> Option<Duration> {
        match self {
            Self::Fixed(graph) => Some(graph.opened.elapsed()),
            Self::Live(_) => None,
        }
    }

    /// The part that takes updates.
    ///
    /// # Errors
    /// The graph stays as it is.
    pub fn live(&self) -> Result<&Arc<LiveGraph>, Refusal> {
        match self {
            Self::Live(live) => Ok(live),
            Self::Fixed(_) => Err(Refusal::read_only()),
        }
    }

    /// How a graph that takes updates is doing.
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

    /// What has changed since the arrays were written.
    pub fn delta(&self) -> Option<&Delta> {
        match self {
            Self::Fixed(_) => None,
            Self::Live(snapshot) => Some(&snapshot.delta),
        }
    }

    /// The delta, empty for a graph that does not change. Inline requests add to a copy of it.
    ///
    /// # Errors
    /// `Unsupported`: a graph that can take no changes.
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

    /// Counts how often the arrays were exchanged.
    pub fn generation(&self) -> u64 {
        match self {
            Self::Fixed(_) => 0,
            Self::Live(snapshot) => snapshot.generation,
        }
    }

    /// What the last exchange of the arrays has replaced; `None` for a graph that does not change.
    pub fn replaced(&self) -> Option<&Replaced> {
        match self {
            Self::Fixed(_) => None,
            Self::Live(snapshot) => Some(&snapshot.replaced),
        }
    }

    /// Number of the last update.
    pub fn lsn(&self) -> u64 {
        match self {
            Self::Fixed(_) => self.data_set().manifest().lsn(),
            Self::Live(snapshot) => snapshot.delta.lsn(),
        }
    }

    /// Nodes, removed ones included.
    pub fn num_nodes(&self) -> u64 {
        self.delta().map_or_else(|| self.data_set().num_nodes(), Delta::num_nodes)
    }

    /// Whether each edge leads both ways.
    pub fn is_undirected(&self) -> bool {
        self.data_set().manifest().edge_types.values().all(|edges| edges.undirected)
    }

    /// Arcs.
    pub fn num_edges(&self) -> u64 {
        self.delta().map_or_else(|| self.data_set().num_edges(), Delta::num_edges)
    }

    /// Removed nodes.
    pub fn num_removed(&self) -> u64 {
        match self {
            Self::Fixed(graph) => graph.removed.len() as u64,
            Self::Live(snapshot) => snapshot.delta.num_removed(),
        }
    }

    /// The graphs of a data set of many; `None` of one graph.
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

    /// Checks what a question asks about, and enters the nodes that its graphs have now. Inline
    /// questions are checked when they are answered.
    ///
    /// # Errors
    /// A node or a graph that there never was, or that was removed; graphs of more than `most_nodes`.
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

    /// Checks that there are these nodes.
    ///
    /// # Errors
    /// A node that there never was, or that was removed.
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
