//! Distances from a sample of nodes to all others, which estimate the width of the graph.

use outercore_core::{Bytes, Error, Permutation, Result};
use outercore_grid::Arcs;
use serde::{Deserialize, Serialize};

use crate::algorithm::{FlowName, GraphAlgorithm, Scale};
use crate::output::{Isolated, Need, Raw};
use crate::partitions::{all, each_partition, is_everywhere};
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::result::AnyRaw;
use crate::state::Parts;
use crate::teleport::Teleport;

/// Number of searches that run together, with one bit each.
const TOGETHER: usize = 64;

/// Options of [`radii`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Radii {
    /// Number of nodes to search from, at least 1.
    pub sources: u32,
    /// Seed of their draw.
    pub seed: u64,
    /// The direction in which arcs are followed.
    #[serde(rename = "direction")]
    pub flow: FlowName,
}

impl Default for Radii {
    fn default() -> Self {
        Self { sources: 64, seed: 0, flow: FlowName::Out }
    }
}

impl GraphAlgorithm for Radii {
    fn validate(&self, _: u64) -> Result<()> {
        if self.sources == 0 {
            return Err(Error::invalid("radii: sources 0, expected 1 or more"));
        }
        Ok(())
    }

    fn need(&self, scale: &Scale<'_>) -> Need {
        Need {
            state_per_node: 20,
            fixed: Bytes(0),
            output: Bytes(4 * scale.shape.nodes),
            working: None,
            passes: None,
            spill: None,
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        radii(run, self.sources, self.seed, self.flow.into()).map(AnyRaw::from)
    }
}

/// The largest distance to each node from any of the sources that reach it; -1 if none does.
///
/// Distances are numbers of arcs along `flow`. `sources` is rounded up to a multiple of 64, limited
/// by the number of nodes. The sources are drawn with `seed`, without repetition and without
/// isolated nodes, and do not depend on the numbering of the grid. Nodes without arcs have the
/// value -1. Facts: `sources` and `diameter_at_least` (the largest value).
///
/// # Cost
/// 64 sources together need one pass per level of the deepest search, and one more; partitions that
/// nothing new reached are skipped. State: 20 bytes per connected node.
///
/// # Errors
/// `Invalid`: no sources. A failed or corrupt read; a stop request.
///
/// # Source
/// Magnien, Latapy, Habib, "Fast computation of empirically tight bounds for the diameter of
/// massive graphs", JEA 13 (2009), for sampling; the application Radii of Shun, Blelloch, "Ligra",
/// PPoPP 2013, for searches as bits.
pub fn radii<R: Passes>(run: &mut R, sources: u32, seed: u64, flow: Flow) -> Result<Raw<i32>> {
    if sources == 0 {
        return Err(Error::invalid("radii: sources 0, expected 1 or more"));
    }
    let shape = *run.shape();
    let lens: Vec<usize> = (0..shape.partitions()).map(|p| shape.partition_len(p)).collect();
    let mut radii: Vec<Vec<i32>> = lens.iter().map(|&len| vec![-1; len]).collect();
    let drawn = draw(run, sources, seed)?;
    for (round, together) in drawn.chunks(TOGETHER).enumerate() {
        let done = ((round * TOGETHER) as u64, drawn.len() as u64);
        search(run, together, flow, done, &mut radii)?;
    }
    let widest = radii.iter().flatten().max().copied().unwrap_or(-1);
    let mut facts = serde_json::Map::new();
    facts.insert("sources".into(), drawn.len().into());
    facts.insert("diameter_at_least".into(), widest.max(0).into());
    Ok(Raw { by_partition: Parts::Here(radii), isolated: Isolated::Same(-1), facts })
}

/// The places of the sources: the first nodes with arcs in a permutation of all node ids.
fn draw<R: Passes>(run: &mut R, sources: u32, seed: u64) -> Result<Vec<(usize, usize)>> {
    let shape = *run.shape();
    let wanted = (sources as usize).next_multiple_of(TOGETHER).min(shape.connected as usize);
    let order = Permutation::new(shape.nodes, seed, 0);
    let mut found = Vec::with_capacity(wanted);
    let mut next = 0;
    // Twice as many as are probably needed, because each look-up of places scans the whole order.
    let mut share = 2 * wanted as u64 * shape.nodes.div_ceil(shape.connected.max(1));
    while found.len() < wanted {
        let end = shape.nodes.min(next + share);
        let nodes: Vec<u64> = (next..end).map(|at| order.at(at)).collect();
        found.extend(run.place(&nodes)?.into_iter().flatten());
        (next, share) = (end, 2 * share);
    }
    found.truncate(wanted);
    Ok(found)
}

/// Searches from up to 64 sources and raises `radii` to the distances.
fn search<R: Passes>(
    run: &mut R,
    together: &[(usize, usize)],
    flow: Flow,
    (done, total): (u64, u64),
    radii: &mut [Vec<i32>],
) -> Result<()> {
    let mut reached: Vec<Vec<u64>> = radii.iter().map(|radii| vec![0; radii.len()]).collect();
    let mut active = vec![false; radii.len()];
    for (bit, &(partition, local)) in together.iter().enumerate() {
        reached[partition][local] |= 1 << bit;
        radii[partition][local] = radii[partition][local].max(0);
        active[partition] = true;
    }
    let mut before = reached.clone();
    let all = all(radii.len());
    for distance in 1.. {
        if !active.contains(&true) {
            break;
        }
        // In every level, so that a long search can be stopped in between.
        run.progress("sources", done, total)?;
        let select = Selection { sources: &active, targets: &all, flow, weights: false };
        if is_everywhere(&select) {
            run.expect(&select);
        }
        run.pass(&Spread, &before, &mut reached, &select)?;
        let mut parts: Vec<_> = before.iter_mut().zip(&reached).zip(radii.iter_mut()).collect();
        active = each_partition(run, &mut parts, |_, ((before, reached), radii)| {
            let mut any = false;
            for ((before, &reached), radius) in
                before.iter_mut().zip(reached.iter()).zip(radii.iter_mut())
            {
                if *before != reached {
                    *before = reached;
                    *radius = distance.max(*radius);
                    any = true;
                }
            }
            any
        });
    }
    Ok(())
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
