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

/// From which nodes shortest paths are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources<'a> {
    /// All: exact.
    All,
    /// These node ids: the paths that begin there, and no others.
    Given(&'a [u64]),
    /// So many, drawn without repetition: a sample of all paths.
    Drawn {
        /// How many.
        samples: u32,
        /// Of the draw.
        seed: u64,
    },
}

/// Options of [`betweenness`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Betweenness {
    /// Nodes from which paths are counted; all by default.
    pub sources: Option<Vec<u64>>,
    /// So many nodes instead.
    pub samples: Option<u32>,
    /// Of their draw.
    pub seed: u64,
    /// Edge array of lengths; arcs of length 1 by default.
    pub weights: Option<String>,
    /// Divided by the number of pairs.
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
            // Distances twice, with a bit each, and arcs that are awaited.
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

/// For every node the sum, over pairs of other nodes, of the share of shortest paths between them
/// that lead through it.
///
/// Paths follow the arcs and are as long as they have arcs, or with `weighted` as the sum of their
/// weights, which must be above 0; parallel arcs are different paths. `normalized` divides by the
/// number of ordered pairs of other nodes, `(n - 1) (n - 2)`; otherwise a graph without directions
/// counts each pair once. With `k` drawn sources instead of all `n` nodes the sums are scaled by
/// `n / k`, which makes them unbiased; those of given sources are not scaled, as they are no sample.
/// Drawn sources depend on the seed alone, not on how the grid is numbered. Nodes without arcs have
/// 0. Facts: `sources`, `levels` (of the deepest search).
///
/// # Method
/// From one source after the other: level by level the number of shortest paths to each node, then
/// back from the deepest level what each node passes on. Numbers of paths have exponents of their
/// own, so they do not overflow. The order of the sums is the order of the grid, so the result is
/// the same for every number of threads and every budget.
///
/// # Cost
/// Two passes for each level of each source; forward over the partitions that have nodes in the
/// level, back over those in the two levels. With weights as many passes more as distances take, and
/// a level is a wave of nodes: see `weighted.rs`. Draw sources where the graph is large. State: 44
/// bytes for each connected node, with weights 65.
///
/// # Errors
/// `Invalid`: a source out of range; no sources; no samples, or more than nodes. `Unsupported`:
/// weights that are nothing beside distances. A failed or corrupt read; the wish to stop.
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

/// Where the sources are.
struct Places {
    /// Those with arcs; the others contribute nothing.
    connected: Vec<(usize, usize)>,
    /// All of them.
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

/// What the sums are multiplied with.
fn scale(shape: &GridShape, sources: Sources<'_>, normalized: bool) -> f64 {
    let nodes = shape.nodes as f64;
    let pairs = match normalized {
        // Two nodes have nobody between them: all sums are 0.
        true => ((nodes - 1.0) * (nodes - 2.0)).max(1.0),
        false if shape.symmetric => 2.0,
        false => 1.0,
    };
    match sources {
        Sources::Drawn { samples, .. } => nodes / f64::from(samples) / pairs,
        Sources::All | Sources::Given(_) => 1.0 / pairs,
    }
}

/// What a partition's nodes have found out about the source at hand.
struct State {
    partition: usize,
    /// -1: not reached.
    level: Vec<i32>,
    /// Shortest paths from the source.
    paths: Counts,
    /// What the level behind hands back.
    passed_on: Vec<f64>,
    /// Over all sources so far.
    score: Vec<f64>,
    /// With weights: arcs on shortest paths to a node that have not been followed yet.
    waiting: Vec<u32>,
    /// The level that the pass works on.
    at: i32,
}

/// What the nodes of a level hand on; 0 for all others. Forward it is numbers of paths, back what one
/// path is worth: a share that is divided by their number.
struct Handed {
    partition: usize,
    counts: Counts,
}

struct Search {
    sources: Vec<Handed>,
    targets: Vec<State>,
    /// For each level the partitions with nodes in it.
    levels: Vec<Vec<bool>>,
    /// Of no nodes without weights.
    distances: Distances,
    /// Sources done, and all of them.
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

    /// Forgets the source before, and begins with `source`.
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
            // In every level: a long search can be stopped in the middle.
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

    /// Hands back, from the deepest level on, the share of paths that lead through each node.
    fn backward<R: Passes>(&mut self, run: &mut R, weighted: bool) -> Result<()> {
        // The source itself takes no part.
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

/// Adds up paths in nodes of the next level.
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

/// Adds up what the level behind hands back.
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
