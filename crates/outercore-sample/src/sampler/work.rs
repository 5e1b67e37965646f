//! A batch during sampling.

use std::ops::Range;

use outercore_core::{Error, ErrorKind, NodeId, Result, hint};

use crate::batch::SampledBatch;
use crate::config::{FanOut, SampleConfig, Step, TypedFanOuts};
use crate::floyd::Drawn;
use crate::locals::{Locals, MOST_PLACES};
use crate::stored::{MOST_NARROW, Stored};

/// A batch in progress.
pub(super) struct Work<N> {
    /// The batch without its nodes.
    pub batch: SampledBatch,
    pub nodes: Vec<N>,
    pub locals: Locals,
    pub drawn: Drawn,
    /// The nodes that the last hop found; before the first hop, the seeds.
    pub frontier: Range<usize>,
    /// The indices of the frontier's nodes by type, in a graph with several types.
    pub by_type: Vec<Vec<u32>>,
    /// The columns of the current step; `None` if they are the frontier's nodes.
    pub columns: Option<Vec<NodeId>>,
    /// Number of nodes of the graph, if seeds are disjoint: node `v` of the tree of seed `t` then
    /// has the id `t * nodes + v`.
    pub forest: Option<u64>,
    /// The tree of each column of the current step.
    pub trees: Vec<u32>,
    /// Time of each seed, if rules use times.
    pub seed_times: Vec<i64>,
    /// Edges picked so far, already added to the batch or not.
    pub edges: u64,
}

impl<N: Stored> Work<N> {
    /// Begins a step of the current hop; returns the range to divide into blocks.
    pub fn begin_step(&mut self, config: &SampleConfig, step: Step) -> Range<usize> {
        if config.types.is_none() && self.forest.is_none() {
            return self.frontier.clone();
        }
        let (mut columns, mut trees) =
            (self.columns.take().unwrap_or_default(), std::mem::take(&mut self.trees));
        columns.clear();
        trees.clear();
        // If the step picks no edges, nothing has to be looked up.
        if step.fan_out != FanOut::Take(0) || config.types.is_none() {
            for (column, tree) in self.columns_of(config.types.as_ref(), step) {
                columns.push(column);
                trees.push(tree);
            }
        }
        let all = 0..columns.len();
        (self.columns, self.trees) = (Some(columns), trees);
        all
    }

    /// The columns of a step's edge type for the frontier's nodes, in order, each with its tree.
    fn columns_of(
        &self,
        types: Option<&TypedFanOuts>,
        step: Step,
    ) -> impl Iterator<Item = (NodeId, u32)> {
        let (first, columns, places, others) = match types {
            None => (0, 0, &[][..], self.frontier.clone()),
            Some(types) => {
                let edge_type = &types.schema.edge_types()[step.edge_type];
                let first = types.schema.node_types()[edge_type.target].nodes.start;
                (first, edge_type.columns.start, &self.by_type[edge_type.target][..], 0..0)
            }
        };
        let forest = self.forest;
        let places = places.iter().map(|&place| place as usize).chain(others);
        places.map(move |place| {
            let key: NodeId = self.nodes[place].into();
            let (node, tree) = match forest {
                None => (key, 0),
                Some(nodes) => (key % nodes, (key / nodes) as u32),
            };
            (node - first + columns, tree)
        })
    }

    /// Sorts the nodes of the frontier by type, before the first step of a hop.
    pub fn begin_hop(&mut self, config: &SampleConfig) {
        let Some(types) = &config.types else { return };
        let of_types = types.schema.node_types();
        self.by_type.resize_with(of_types.len(), Vec::new);
        self.by_type.iter_mut().for_each(Vec::clear);
        let ends: Vec<NodeId> = of_types.iter().map(|range| range.nodes.end).collect();
        for place in self.frontier.clone() {
            let key: NodeId = self.nodes[place].into();
            let node = self.forest.map_or(key, |nodes| key % nodes);
            let node_type = ends.iter().filter(|&&end| end <= node).count();
            self.by_type[node_type].push(place as u32);
        }
    }

    /// Converts the sources of a share's edges to nodes of their trees.
    ///
    /// `picked` holds the number of edges of each column of the share, `trees` the trees of the
    /// columns.
    pub fn in_trees(&self, sources: &mut [NodeId], picked: &[u32], trees: &[u32]) {
        let Some(nodes) = self.forest else { return };
        let mut rest = sources;
        for (&picked, &tree) in picked.iter().zip(trees) {
            let own = rest.split_off_mut(..picked as usize).expect("a source for each edge");
            own.iter_mut().for_each(|source| *source += u64::from(tree) * nodes);
        }
    }

    /// Records that a step picks nothing for any of its columns.
    pub fn skip(&mut self, config: &SampleConfig, step: Step) {
        let Some(types) = &config.types else { return };
        let columns = self.columns_of(Some(types), step).count();
        self.batch.picked.extend(std::iter::repeat_n(0, columns));
    }

    /// Appends the columns of a block of the step to `columns`.
    pub fn columns(&self, block: Range<usize>, columns: &mut Vec<NodeId>) {
        match &self.columns {
            Some(own) => columns.extend_from_slice(&own[block]),
            None => columns.extend(self.nodes[block].iter().map(|&node| node.into())),
        }
    }

    /// Records how many edges of each column are picked, and returns their sum.
    ///
    /// `most` is the most edges that the batch may have in total.
    pub fn count(
        &mut self,
        counts: impl ExactSizeIterator<Item = u64>,
        most: Option<u64>,
    ) -> Result<usize> {
        let mut picked = 0usize;
        self.batch.picked.reserve(counts.len());
        for count in counts {
            let Ok(narrow) = u32::try_from(count) else {
                return Err(Error::invalid(format!(
                    "a node of batch {} has {count} in-edges, more than a batch can hold",
                    self.batch.batch
                ))
                .hint("give a fan-out instead of taking all neighbours"));
            };
            self.batch.picked.push(narrow);
            picked += narrow as usize;
        }
        self.edges += picked as u64;
        if most.is_some_and(|most| self.edges > most) {
            return Err(too_many_edges(self.batch.batch, self.edges));
        }
        Ok(picked)
    }

    /// Appends edges from `sources`; new sources get new places.
    pub fn relabel(&mut self, sources: &[NodeId], meanwhile: impl Fn(usize) + Copy) -> Result<()> {
        let SampledBatch { sources: places, batch, .. } = &mut self.batch;
        let most = self.nodes.len() + sources.len();
        if most > MOST_PLACES {
            return Err(Error::invalid(format!(
                "batch {batch} may reach {most} nodes, more than the 2^31 that local ids tell apart"
            ))
            .hint("lower the batch size or the fan-outs"));
        }
        self.locals.relabel(sources, &mut self.nodes, places, meanwhile);
        Ok(())
    }

    /// Closes the hop: the nodes that it found are the next frontier. With `layers`, all nodes of
    /// the batch are.
    pub fn end_hop(&mut self, layers: bool) {
        let found = self.nodes.len() - self.batch.nodes_per_hop.iter().sum::<u64>() as usize;
        self.batch.nodes_per_hop.push(found as u64);
        if layers {
            self.batch.targets.push(self.frontier.clone());
            self.frontier = 0..self.nodes.len();
        } else {
            self.frontier = self.frontier.end..self.nodes.len();
        }
    }

    /// Removes the edges, so that all edges between the nodes can replace them.
    pub fn restart_edges(&mut self) {
        let SampledBatch { sources, picked, edge_ids, edges_per_hop, .. } = &mut self.batch;
        sources.clear();
        picked.clear();
        edge_ids.clear();
        edges_per_hop.clear();
        self.edges = 0;
        self.frontier = 0..self.nodes.len();
        self.batch.targets = vec![self.frontier.clone()];
    }

    /// Whether a node of tree `tree` is in the batch.
    pub fn has(&self, node: NodeId, tree: u32) -> bool {
        let key = node + self.forest.map_or(0, |of_tree| u64::from(tree) * of_tree);
        self.locals.contains(key, &self.nodes)
    }

    /// Returns the batch, and the memory that the next batch can reuse.
    pub fn finish(self) -> (SampledBatch, Locals, Drawn) {
        let Self { mut batch, nodes, locals, drawn, forest, .. } = self;
        batch.nodes = match forest {
            None => N::ids(nodes),
            Some(of_graph) => {
                let key = |key: &N| -> NodeId { (*key).into() };
                batch.trees.extend(nodes.iter().map(|one| (key(one) / of_graph) as u32));
                let nodes = nodes.iter().map(|one| key(one) % of_graph);
                if of_graph <= MOST_NARROW {
                    nodes.map(|node| node as u32).collect::<Vec<u32>>().into()
                } else {
                    nodes.collect::<Vec<u64>>().into()
                }
            }
        };
        (batch, locals, drawn)
    }
}

fn too_many_edges(batch: u64, edges: u64) -> Error {
    let text = format!("batch {batch} has {edges} edges or more, too many for the budget");
    Error::new(ErrorKind::Budget, text).hint(hint!(
        "raise " {memory} ", or lower the batch size or the fan-outs"
    ))
}
