//! Closeness centrality.

use outercore_core::{Bytes, Result};
use outercore_grid::Arcs;
use serde::{Deserialize, Serialize};

use crate::algorithm::{FlowName, GraphAlgorithm, Scale, require_nodes};
use crate::output::{Isolated, Need, Raw};
use crate::partitions::{all, each_partition, is_everywhere};
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::result::AnyRaw;
use crate::state::Parts;
use crate::teleport::Teleport;

/// Number of searches that run together, with one bit each.
const TOGETHER: usize = 64;

/// Options of [`closeness`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Closeness {
    /// Nodes for which to compute closeness; all by default.
    pub nodes: Option<Vec<u64>>,
    /// The direction in which arcs are followed.
    #[serde(rename = "direction")]
    pub flow: FlowName,
    /// Whether to multiply by the share of nodes reached.
    pub improved: bool,
}

impl Default for Closeness {
    fn default() -> Self {
        Self { nodes: None, flow: FlowName::In, improved: true }
    }
}

impl GraphAlgorithm for Closeness {
    fn validate(&self, nodes: u64) -> Result<()> {
        match &self.nodes {
            Some(wanted) => require_nodes("closeness", "nodes", wanted, nodes),
            None => Ok(()),
        }
    }

    fn need(&self, scale: &Scale<'_>) -> Need {
        Need { state_per_node: 24, output: Bytes(8 * scale.shape.nodes), ..Need::default() }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        let nodes = self.nodes.as_deref();
        closeness(run, nodes, self.flow.into(), self.improved).map(AnyRaw::from)
    }

    /// A node without arcs reaches no other nodes.
    fn zeros<R: Passes>(&self, run: &mut R) -> Result<Vec<u64>> {
        let Some(nodes) = &self.nodes else { return Ok(Vec::new()) };
        let places = run.place(nodes)?;
        let isolated = nodes.iter().zip(places).filter(|(_, place)| place.is_none());
        Ok(isolated.map(|(&node, _)| node).collect())
    }
}

/// For each node, one over the mean distance to the nodes that it reaches along `flow`.
///
/// With `improved`, multiplied by the share of all other nodes that it reaches, so that nodes of
/// small components do not rank first (Wasserman, Faust). 0 if a node reaches no other nodes. If
/// `nodes` are given, computed only for these, and NaN for all others. Facts: `searches`.
///
/// # Cost
/// A search from every node, 64 at a time. 64 searches need one pass per level of the deepest
/// search, and one more. Suitable for small graphs or a few nodes. State: 24 bytes per connected
/// node.
///
/// # Errors
/// A failed or corrupt read; a stop request.
///
/// # Source
/// Freeman, "Centrality in social networks" (1979); as `closeness_centrality` of networkx, which
/// follows the arcs of directed graphs against their direction ([`Flow::Against`]).
pub fn closeness<R: Passes>(
    run: &mut R,
    nodes: Option<&[u64]>,
    flow: Flow,
    improved: bool,
) -> Result<Raw<f64>> {
    let shape = *run.shape();
    let unknown = if nodes.is_some() { f64::NAN } else { 0.0 };
    let mut scores: Vec<Vec<f64>> =
        (0..shape.partitions()).map(|part| vec![unknown; shape.partition_len(part)]).collect();
    let given = match nodes {
        Some(nodes) => Some(run.place(nodes)?.into_iter().flatten().collect::<Vec<_>>()),
        None => None,
    };
    let total = given.as_ref().map_or(shape.connected, |given| given.len() as u64);
    let mut done = 0;
    while done < total {
        let together: Vec<_> = (done..total.min(done + TOGETHER as u64))
            .map(|at| given.as_ref().map_or_else(|| shape.place(at), |given| given[at as usize]))
            .collect();
        let found = search(run, &together, flow, (done, total))?;
        for (&(part, local), &(reached, distance)) in together.iter().zip(&found) {
            scores[part][local] = score(reached, distance, shape.nodes, improved);
        }
        done += together.len() as u64;
    }
    let mut facts = serde_json::Map::new();
    facts.insert("searches".into(), total.into());
    let isolated = Isolated::Same(unknown);
    Ok(Raw { by_partition: Parts::Here(scores), isolated, facts })
}

/// The score of a node that reaches `reached` other nodes with the total distance `distance`.
fn score(reached: u64, distance: u64, nodes: u64, improved: bool) -> f64 {
    if reached == 0 {
        return 0.0;
    }
    let closeness = reached as f64 / distance as f64;
    if improved { closeness * (reached as f64 / (nodes - 1) as f64) } else { closeness }
}

/// For each source, the number of other nodes that it reaches, and the sum of their distances.
fn search<R: Passes>(
    run: &mut R,
    together: &[(usize, usize)],
    flow: Flow,
    (done, total): (u64, u64),
) -> Result<Vec<(u64, u64)>> {
    let shape = *run.shape();
    let partitions = shape.partitions();
    let mut reached: Vec<Vec<u64>> =
        (0..partitions).map(|part| vec![0; shape.partition_len(part)]).collect();
    let mut active = vec![false; partitions];
    for (bit, &(partition, local)) in together.iter().enumerate() {
        reached[partition][local] |= 1 << bit;
        active[partition] = true;
    }
    let mut before = reached.clone();
    let mut found = vec![(0, 0); together.len()];
    let all = all(partitions);
    for distance in 1.. {
        if !active.contains(&true) {
            break;
        }
        run.progress("searches", done, total)?;
        let select = Selection { sources: &active, targets: &all, flow, weights: false };
        if is_everywhere(&select) {
            run.expect(&select);
        }
        run.pass(&Spread, &before, &mut reached, &select)?;
        let mut parts: Vec<_> = before.iter_mut().zip(&reached).collect();
        let new = each_partition(run, &mut parts, |_, (before, reached)| {
            let mut counts = [0u64; TOGETHER];
            for (before, &reached) in before.iter_mut().zip(reached.iter()) {
                let mut new = *before ^ reached;
                *before = reached;
                while new != 0 {
                    counts[new.trailing_zeros() as usize] += 1;
                    new &= new - 1;
                }
            }
            counts
        });
        active = new.iter().map(|counts| counts.iter().any(|&count| count > 0)).collect();
        for (bit, (nodes, distances)) in found.iter_mut().enumerate() {
            let here: u64 = new.iter().map(|counts| counts[bit]).sum();
            *nodes += here;
            *distances += distance * here;
        }
    }
    Ok(found)
}

/// Each search that reaches a node also reaches its neighbours.
struct Spread;

impl EdgeProgram for Spread {
    type Source = Vec<u64>;
    type Target = Vec<u64>;

    fn apply(&self, arcs: &Arcs<'_>, source: &Vec<u64>, target: &mut Vec<u64>) {
        arcs.for_each(|from, to, _| target[to] |= source[from]);
    }
}
