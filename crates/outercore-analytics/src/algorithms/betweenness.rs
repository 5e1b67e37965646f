//! Betweenness centrality.

mod counts;
mod weighted;

use outercore_core::{Bytes, Error, Permutation, Result};
use outercore_grid::{Arcs, GridShape};
use serde::{Deserialize, Serialize};

use self::counts::{Count, Counts};
use self::weighted::Distances;
use crate::algorithm::{GraphAlgorithm, Scale, require_nodes};
use crate::output::{Isolated, Need, Raw};
use crate::partitions::{all, each_partition};
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::result::AnyRaw;
use crate::state::Parts;
use crate::teleport::Teleport;

/// The nodes from which shortest paths are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources<'a> {
    /// All nodes: an exact result.
    All,
    /// Only these node ids: only paths that start there are counted.
    Given(&'a [u64]),
    /// A number of nodes drawn without repetition: a sample of all paths.
    Drawn {
        /// Number of nodes.
        samples: u32,
        /// Seed of the draw.
        seed: u64,
    },
}

/// Options of [`betweenness`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Betweenness {
    /// Nodes from which paths are counted; all by default.
    pub sources: Option<Vec<u64>>,
    /// Number of nodes to draw instead.
    pub samples: Option<u32>,
    /// Seed of the draw.
    pub seed: u64,
    /// Edge array of lengths; by default each arc has length 1.
    pub weights: Option<String>,
    /// Whether to divide by the number of pairs.
    pub normalized: bool,
}

impl Default for Betweenness {
    fn default() -> Self {
        Self { sources: None, samples: None, seed: 0, weights: None, normalized: true }
    }
}

impl GraphAlgorithm for Betweenness {
    fn validate(&self, nodes: u64) -> Result<()> {
        match (&self.sources, self.samples) {
            (Some(_), Some(_)) => {
                Err(Error::invalid("betweenness: both sources and samples, expected one of them"))
            }
            (None, Some(samples)) if samples == 0 || u64::from(samples) > nodes => {
                Err(Error::invalid(format!(
                    "betweenness: samples {samples}, expected 1 to {nodes}, the nodes of the graph"
                )))
            }
            (Some(sources), None) => require_nodes("betweenness", "sources", sources, nodes),
            _ => Ok(()),
        }
    }

    fn weights(&self) -> Option<&str> {
        self.weights.as_deref()
    }

    fn need(&self, scale: &Scale<'_>) -> Need {
        Need {
            // Distances twice, each with a bit, and the number of arcs that a node waits for.
            state_per_node: 44 + if self.weights.is_some() { 21 } else { 0 },
            fixed: Bytes(0),
            output: Bytes(8 * scale.shape.nodes),
            working: None,
            passes: None,
            spill: None,
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        let sources = match (&self.sources, self.samples) {
            (Some(sources), _) => Sources::Given(sources),
            (None, Some(samples)) => Sources::Drawn { samples, seed: self.seed },
            (None, None) => Sources::All,
        };
        betweenness(run, sources, self.weights.is_some(), self.normalized).map(AnyRaw::from)
    }
}

/// For every node, the sum, over pairs of other nodes, of the share of shortest paths between them
/// that lead through the node.
///
/// Paths follow the arcs. The length of a path is its number of arcs or, with `weighted`, the sum
/// of its weights, which must be above 0. Parallel arcs give different paths. `normalized` divides
/// by the number of ordered pairs of other nodes, `(n - 1) (n - 2)`; otherwise an undirected graph
/// counts each pair once. With `k` drawn sources instead of all `n` nodes, the sums are scaled by
/// `n / k`, which makes them unbiased. Sums of given sources are not scaled, because these are not
/// a sample. Drawn sources depend only on the seed, not on the numbering of the grid. Nodes without
/// arcs have the value 0.
/// Facts: `sources`, `levels` (of the deepest search).
///
/// # Method
/// One source after the other: first the number of shortest paths to each node, level by level,
/// then the dependencies, backwards from the deepest level. Numbers of paths have separate
/// exponents, so they do not overflow. Sums are computed in the order of the grid, so the result is
/// the same for every number of threads and every budget.
///
/// # Cost
/// Two passes for each level of each source: forward over the partitions with nodes in the level,
/// and back over the partitions of the two levels. With weights, additional passes compute the
/// distances, and a level is a wave of nodes: see `weighted.rs`. For large graphs, draw sources.
/// State: 44 bytes per connected node, 65 with weights.
///
/// # Errors
/// `Invalid`: a source out of range; no sources; no samples, or more than nodes. `Unsupported`:
/// weights too small relative to the distances. A failed or corrupt read; a stop request.
///
/// # Source
/// Brandes, "A faster algorithm for betweenness centrality", Journal of Mathematical Sociology 25
/// (2001); sources drawn as in Brandes, Pich, "Centrality estimation in large networks" (2007).
pub fn betweenness<R: Passes>(
    run: &mut R,
    sources: Sources<'_>,
    weighted: bool,
    normalized: bool,
) -> Result<Raw<f64>> {
    let shape = *run.shape();
    let places = places(run, sources)?;
    let mut search = Search::new(&shape, weighted);
    let mut levels = 0;
    for (done, &place) in places.connected.iter().enumerate() {
        search.done = (done as u64, places.connected.len() as u64);
        let deepest = match weighted {
            true => search.forward_weighted(run, place)?,
            false => search.forward(run, place)?,
        };
        levels = levels.max(deepest);
        search.backward(run, weighted)?;
    }
    let scale = scale(&shape, sources, normalized);
    let mut by_partition: Vec<Vec<f64>> =
        search.targets.into_iter().map(|target| target.score).collect();
    for score in by_partition.iter_mut().flatten() {
        *score *= scale;
    }
    let mut facts = serde_json::Map::new();
    facts.insert("sources".into(), places.count.into());
    facts.insert("levels".into(), levels.into());
    Ok(Raw { by_partition: Parts::Here(by_partition), isolated: Isolated::Same(0.0), facts })
}

/// The places of the sources.
struct Places {
    /// Sources with arcs; the others contribute nothing.
    connected: Vec<(usize, usize)>,
    /// Number of all sources.
    count: u64,
}

fn places<R: Passes>(run: &mut R, sources: Sources<'_>) -> Result<Places> {
    let shape = *run.shape();
    let nodes = match sources {
        Sources::All => {
            let connected = (0..shape.connected).map(|rank| shape.place(rank)).collect();
            return Ok(Places { connected, count: shape.nodes });
        }
        Sources::Given([]) => {
            return Err(Error::invalid("betweenness: no sources, expected at least one node")
                .hint("leave `sources` out for all nodes"));
        }
        Sources::Given(nodes) => {
            if let Some(node) = nodes.iter().find(|&&node| node >= shape.nodes) {
                let (count, last) = (shape.nodes, shape.nodes.saturating_sub(1));
                return Err(Error::invalid(format!(
                    "betweenness: source {node}, the graph has {count} nodes (0 to {last})"
                )));
            }
            nodes.to_vec()
        }
        Sources::Drawn { samples, seed } => {
            if samples == 0 || u64::from(samples) > shape.nodes {
                return Err(Error::invalid(format!(
                    "betweenness: samples {samples}, expected 1 to {} (the graph's nodes)",
                    shape.nodes
                )));
            }
            let order = Permutation::new(shape.nodes, seed, 0);
            (0..u64::from(samples)).map(|at| order.at(at)).collect()
        }
    };
    let connected = run.place(&nodes)?.into_iter().flatten().collect();
    Ok(Places { connected, count: nodes.len() as u64 })
}

/// The factor of the sums.
fn scale(shape: &GridShape, sources: Sources<'_>, normalized: bool) -> f64 {
    let nodes = shape.nodes as f64;
    let pairs = match normalized {
        // With two nodes, no node is between others: all sums are 0.
        true => ((nodes - 1.0) * (nodes - 2.0)).max(1.0),
        false if shape.symmetric => 2.0,
        false => 1.0,
    };
    match sources {
        Sources::Drawn { samples, .. } => nodes / f64::from(samples) / pairs,
        Sources::All | Sources::Given(_) => 1.0 / pairs,
    }
}

/// Results of a partition's nodes for the current source.
struct State {
    partition: usize,
    /// -1: not reached.
    level: Vec<i32>,
    /// Number of shortest paths from the source.
    paths: Counts,
    /// Dependency passed back by the next level.
    passed_on: Vec<f64>,
    /// Sum over all sources so far.
    score: Vec<f64>,
    /// With weights: number of arcs on shortest paths to a node that have not been followed yet.
    waiting: Vec<u32>,
    /// The level of the current pass.
    at: i32,
}

/// Values that the nodes of a level pass on; 0 for all other nodes. Forward, these are numbers of
/// paths. Backward, each is the value of one path: a share divided by the number of paths.
struct Handed {
    partition: usize,
    counts: Counts,
}

struct Search {
    sources: Vec<Handed>,
    targets: Vec<State>,
    /// For each level, the partitions with nodes in it.
    levels: Vec<Vec<bool>>,
    /// Empty without weights.
    distances: Distances,
    /// Number of finished sources, and of all sources.
    done: (u64, u64),
}

impl Search {
    fn new(shape: &GridShape, weighted: bool) -> Self {
        let lens: Vec<usize> = (0..shape.partitions()).map(|p| shape.partition_len(p)).collect();
        let handed = |(partition, &len)| Handed { partition, counts: Counts::new(len) };
        let state = |(partition, &len)| State {
            partition,
            level: vec![-1; len],
            paths: Counts::new(len),
            passed_on: vec![0.0; len],
            score: vec![0.0; len],
            waiting: vec![0; if weighted { len } else { 0 }],
            at: 0,
        };
        Self {
            sources: lens.iter().enumerate().map(handed).collect(),
            targets: lens.iter().enumerate().map(state).collect(),
            levels: Vec::new(),
            distances: if weighted { Distances::new(&lens) } else { Distances::default() },
            done: (0, 0),
        }
    }

    /// Removes the results of the previous source, and starts with `source`.
    fn begin(&mut self, source: (usize, usize)) {
        for (state, ahead) in self.targets.iter_mut().zip(&mut self.sources) {
            state.level.fill(-1);
            state.paths.clear();
            state.passed_on.fill(0.0);
            state.at = 1;
            ahead.counts.clear();
            if state.partition == source.0 {
                state.level[source.1] = 0;
                state.paths.set(source.1, Count::ONE);
                ahead.counts.set(source.1, Count::ONE);
            }
        }
        self.levels = vec![(0..self.targets.len()).map(|part| part == source.0).collect()];
    }

    /// Counts shortest paths from `source`; returns the deepest level.
    fn forward<R: Passes>(&mut self, run: &mut R, source: (usize, usize)) -> Result<u32> {
        let all = all(self.targets.len());
        self.begin(source);
        loop {
            let active = self.levels.last().expect("the source's level");
            let select =
                Selection { sources: active, targets: &all, flow: Flow::Along, weights: false };
            // In every level, so that a long search can be stopped in between.
            run.progress("sources", self.done.0, self.done.1)?;
            run.pass(&Forward, &self.sources, &mut self.targets, &select)?;
            let mut both: Vec<_> = self.sources.iter_mut().zip(&mut self.targets).collect();
            let reached = each_partition(run, &mut both, |_, (ahead, state)| {
                let mut any = false;
                for (local, &level) in state.level.iter().enumerate() {
                    if level == state.at {
                        ahead.counts.set(local, state.paths.get(local));
                        any = true;
                    } else {
                        ahead.counts.reset(local);
                    }
                }
                state.at += 1;
                any
            });
            if !reached.contains(&true) {
                return Ok(self.levels.len() as u32 - 1);
            }
            self.levels.push(reached);
        }
    }

    /// Passes back, starting at the deepest level, the share of paths that lead through each node.
    fn backward<R: Passes>(&mut self, run: &mut R, weighted: bool) -> Result<()> {
        // The source itself is left out.
        for level in (1..self.levels.len()).rev() {
            let mut both: Vec<_> = self.sources.iter_mut().zip(&mut self.targets).collect();
            each_partition(run, &mut both, |_, (back, state)| {
                state.at = level as i32 - 1;
                for local in 0..state.level.len() {
                    back.counts.reset(local);
                    if state.level[local] == level as i32 {
                        let through = state.passed_on[local];
                        state.score[local] += through;
                        back.counts.set(local, state.paths.get(local).divides(1.0 + through));
                    }
                }
            });
            if level == 1 {
                break;
            }
            run.progress("sources", self.done.0, self.done.1)?;
            if weighted {
                self.back_weighted(run, level)?;
                continue;
            }
            let select = Selection {
                sources: &self.levels[level],
                targets: &self.levels[level - 1],
                flow: Flow::Against,
                weights: false,
            };
            run.pass(&Backward, &self.sources, &mut self.targets, &select)?;
        }
        Ok(())
    }
}

/// Sums the numbers of paths in nodes of the next level.
struct Forward;

impl EdgeProgram for Forward {
    type Source = Handed;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, ahead: &Handed, state: &mut State) {
        arcs.for_each(|from, to, _| {
            if ahead.counts.has(from) && (state.level[to] == -1 || state.level[to] == state.at) {
                state.level[to] = state.at;
                state.paths.add(to, ahead.counts.get(from));
            }
        });
    }
}

/// Sums the values that the next level passes back.
struct Backward;

impl EdgeProgram for Backward {
    type Source = Handed;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, back: &Handed, state: &mut State) {
        arcs.for_each(|from, to, _| {
            if state.level[to] == state.at && back.counts.has(from) {
                state.passed_on[to] += state.paths.get(to).times(back.counts.get(from));
            }
        });
    }
}
