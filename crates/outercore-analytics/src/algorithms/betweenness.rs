//! Betweenness centrality.

use outercore_core::{Bytes, Error, ErrorKind, Permutation, Result};
use outercore_grid::{Arcs, GridShape};

use super::{all, each_partition};
use crate::output::{Isolated, Need, Raw};
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::state::Parts;

/// From which nodes shortest paths are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sources<'a> {
    /// All: exact.
    All,
    /// These node ids.
    Given(&'a [u64]),
    /// So many, drawn without repetition.
    Drawn {
        /// How many.
        samples: u32,
        /// Of the draw.
        seed: u64,
    },
}

/// What [`betweenness`] takes.
pub fn need(shape: &GridShape) -> Need {
    Need {
        state_per_node: 36,
        fixed: Bytes(0),
        output: Bytes(8 * shape.nodes),
        working: None,
        passes: None,
        spill: None,
    }
}

/// For every node the sum, over pairs of other nodes, of the share of shortest paths between them
/// that lead through it.
///
/// Paths follow the arcs and are as long as they have arcs; parallel arcs are different paths.
/// `normalized` divides by the number of ordered pairs of other nodes, `(n - 1) (n - 2)`; otherwise
/// a graph without directions counts each pair once. With `k` sources instead of all `n` nodes the
/// sums are scaled by `n / k`. Drawn sources depend on the seed alone, not on how the grid is
/// numbered. Nodes without arcs have 0. Facts: `sources`, `levels` (of the deepest search).
///
/// # Method
/// From one source after the other: level by level the number of shortest paths to each node, then
/// back from the deepest level what each node passes on. The order of the sums is the order of the
/// grid, so the result is the same for every number of threads and every budget.
///
/// # Cost
/// Two passes for each level of each source; forward over the partitions that have nodes in the
/// level, back over those in the two levels. Draw sources where the graph is large. State: 36 bytes for each connected node.
///
/// # Errors
/// `Invalid`: a source out of range; no samples, or more than nodes. `Unsupported`: more shortest
/// paths than a double can count. A failed or corrupt read; the wish to stop.
///
/// # Source
/// Brandes, "A faster algorithm for betweenness centrality", Journal of Mathematical Sociology 25
/// (2001); sources drawn as in Brandes, Pich, "Centrality estimation in large networks" (2007).
pub fn betweenness<R: Passes>(
    run: &mut R,
    sources: Sources<'_>,
    normalized: bool,
) -> Result<Raw<f64>> {
    let shape = *run.shape();
    let places = places(run, sources)?;
    let mut search = Search::new(&shape);
    let mut levels = 0;
    for (done, &place) in places.connected.iter().enumerate() {
        search.done = (done as u64, places.connected.len() as u64);
        levels = levels.max(search.forward(run, place)?);
        search.backward(run)?;
    }
    let scale = scale(&shape, places.count, normalized);
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
fn scale(shape: &GridShape, sources: u64, normalized: bool) -> f64 {
    let nodes = shape.nodes as f64;
    let pairs = match normalized {
        // Two nodes have nobody between them: all sums are 0.
        true => ((nodes - 1.0) * (nodes - 2.0)).max(1.0),
        false if shape.symmetric => 2.0,
        false => 1.0,
    };
    if sources == 0 { 0.0 } else { nodes / sources as f64 / pairs }
}

/// What a partition's nodes have found out about the source at hand.
struct State {
    /// -1: not reached.
    level: Vec<i32>,
    /// Shortest paths from the source.
    paths: Vec<f64>,
    /// What the level behind hands back.
    passed_on: Vec<f64>,
    /// Over all sources so far.
    score: Vec<f64>,
    /// The level that the pass works on.
    at: i32,
}

struct Search {
    /// What the nodes of a level hand on; 0 for all others.
    sources: Vec<Vec<f64>>,
    targets: Vec<State>,
    /// For each level the partitions with nodes in it.
    levels: Vec<Vec<bool>>,
    /// Sources done, and all of them.
    done: (u64, u64),
}

impl Search {
    fn new(shape: &GridShape) -> Self {
        let lens: Vec<usize> = (0..shape.partitions()).map(|p| shape.partition_len(p)).collect();
        Self {
            sources: lens.iter().map(|&len| vec![0.0; len]).collect(),
            targets: lens
                .iter()
                .map(|&len| State {
                    level: vec![-1; len],
                    paths: vec![0.0; len],
                    passed_on: vec![0.0; len],
                    score: vec![0.0; len],
                    at: 0,
                })
                .collect(),
            levels: Vec::new(),
            done: (0, 0),
        }
    }

    /// Counts shortest paths from `source`; returns the deepest level.
    fn forward<R: Passes>(&mut self, run: &mut R, source: (usize, usize)) -> Result<u32> {
        let partitions = self.targets.len();
        let all = all(partitions);
        for (partition, (state, ahead)) in
            self.targets.iter_mut().zip(&mut self.sources).enumerate()
        {
            state.level.fill(-1);
            state.paths.fill(0.0);
            state.passed_on.fill(0.0);
            state.at = 1;
            ahead.fill(0.0);
            if partition == source.0 {
                state.level[source.1] = 0;
                state.paths[source.1] = 1.0;
                ahead[source.1] = 1.0;
            }
        }
        self.levels = vec![(0..partitions).map(|partition| partition == source.0).collect()];
        loop {
            let active = self.levels.last().expect("the source's level");
            let select =
                Selection { sources: active, targets: &all, flow: Flow::Along, weights: false };
            // In every level: a long search can be stopped in the middle.
            run.progress("sources", self.done.0, self.done.1)?;
            run.pass(&Forward, &self.sources, &mut self.targets, &select)?;
            let mut both: Vec<_> = self.sources.iter_mut().zip(&mut self.targets).collect();
            let reached = each_partition(run, &mut both, |_, (ahead, state)| {
                let (mut any, mut finite) = (false, true);
                for ((ahead, &level), &paths) in
                    ahead.iter_mut().zip(&state.level).zip(&state.paths)
                {
                    *ahead = if level == state.at { paths } else { 0.0 };
                    any |= level == state.at;
                    finite &= ahead.is_finite();
                }
                state.at += 1;
                (any, finite)
            });
            if reached.iter().any(|&(_, finite)| !finite) {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "betweenness: a node has more than 1.7e308 shortest paths from one source",
                ));
            }
            let reached: Vec<bool> = reached.into_iter().map(|(any, _)| any).collect();
            if !reached.contains(&true) {
                return Ok(self.levels.len() as u32 - 1);
            }
            self.levels.push(reached);
        }
    }

    /// Hands back, from the deepest level on, the share of paths that lead through each node.
    fn backward<R: Passes>(&mut self, run: &mut R) -> Result<()> {
        // The source itself takes no part.
        for level in (1..self.levels.len()).rev() {
            let mut both: Vec<_> = self.sources.iter_mut().zip(&mut self.targets).collect();
            each_partition(run, &mut both, |_, (back, state)| {
                state.at = level as i32 - 1;
                for (local, back) in back.iter_mut().enumerate() {
                    *back = 0.0;
                    if state.level[local] == level as i32 {
                        let through = state.paths[local] * state.passed_on[local];
                        state.score[local] += through;
                        *back = (1.0 + through) / state.paths[local];
                    }
                }
            });
            if level > 1 {
                let select = Selection {
                    sources: &self.levels[level],
                    targets: &self.levels[level - 1],
                    flow: Flow::Against,
                    weights: false,
                };
                run.progress("sources", self.done.0, self.done.1)?;
                run.pass(&Backward, &self.sources, &mut self.targets, &select)?;
            }
        }
        Ok(())
    }
}

/// Adds up paths in nodes of the next level.
struct Forward;

impl EdgeProgram for Forward {
    type Source = Vec<f64>;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, ahead: &Vec<f64>, state: &mut State) {
        arcs.for_each(|from, to, _| {
            let paths = ahead[from];
            if paths > 0.0 && (state.level[to] == -1 || state.level[to] == state.at) {
                state.level[to] = state.at;
                state.paths[to] += paths;
            }
        });
    }
}

/// Adds up what the level behind hands back.
struct Backward;

impl EdgeProgram for Backward {
    type Source = Vec<f64>;
    type Target = State;

    fn apply(&self, arcs: &Arcs<'_>, back: &Vec<f64>, state: &mut State) {
        arcs.for_each(|from, to, _| {
            if state.level[to] == state.at {
                state.passed_on[to] += back[from];
            }
        });
    }
}
