//! Computes, without sampling, how often an epoch is expected to visit each node.

use std::ops::Range;

use outercore_core::{Bytes, NodeId, Result};
use outercore_store::{Extent, Topology};

use crate::config::{FanOut, SampleConfig, Step};
use crate::rules::{Choice, pieces};

/// Columns examined together.
const COLUMNS_AT_ONCE: usize = 64 << 10;

/// Edges whose sources are looked up together.
const EDGES_AT_ONCE: u64 = 256 << 10;

/// Whether [`expected_visits`] can be computed for `config`: all neighbours of a node must be
/// equally likely, without weights or times.
pub fn are_known(config: &SampleConfig) -> bool {
    let alike = matches!(config.rules.choice, Choice::Uniform | Choice::Labor);
    alike && config.rules.times.is_none()
}

/// Memory of [`expected_visits`] for a graph of `nodes` nodes, without its look-ups.
pub const fn memory(nodes: u64) -> Bytes {
    Bytes(nodes * 4 * size_of::<f32>() as u64)
}

/// The expected number of visits of each node by the batches of an epoch.
///
/// A seed is visited once. A node with `v` visits and `d` in-edges passes visits along each of
/// them: `v * k / d` if the fan-out `k` is below `d`, and otherwise `v`. The visits of all hops are
/// added. In a graph whose edges are `mirrored` (each edge leads both ways), visits do not return
/// over the edge by which they came, because the node there is already in the batch.
///
/// This is a reverse PageRank with the seeds as its jumps, weighted by fan-outs. Instead of
/// damping, it ends after the number of hops.
///
/// **Shapes** one value per node. Values are summed in the order of the CSC, so they are bit for
/// bit the same for every topology.
///
/// **Cost** [`memory`]; each hop examines all in-edges of the nodes that it starts from, in
/// ascending order. One thread.
///
/// # Errors
/// Errors of the topology.
///
/// # Source
/// GIDS 3.3, weighted reverse PageRank, after Min et al., "Graph Neural Network Training and Data
/// Tiering", KDD 2022.
///
/// # Example
/// ```
/// use outercore_sample::visits::expected_visits;
/// use outercore_sample::{FanOut, SampleConfig};
/// use outercore_store::resident::ResidentTopology;
/// // 1 -> 0, 2 -> 0, 0 -> 2
/// let graph = ResidentTopology::from_csc(vec![0, 2, 2, 3], vec![1u32, 2, 0], None)?;
/// let fan_outs = vec![FanOut::Take(1), FanOut::All];
/// let config = SampleConfig { fan_outs, ..SampleConfig::full_neighbours() };
/// // Node 0, then one of 1 and 2, of which 2 leads back to 0.
/// assert_eq!(expected_visits(&graph, [0].into_iter(), &config, false)?, [1.5, 0.5, 0.5]);
/// # Ok::<(), outercore_core::Error>(())
/// ```
pub fn expected_visits(
    topology: &dyn Topology,
    seeds: impl Iterator<Item = NodeId>,
    config: &SampleConfig,
    mirrored: bool,
) -> Result<Vec<f32>> {
    let nodes = topology.num_nodes() as usize;
    let mut visits = vec![0.0; nodes];
    seeds.for_each(|seed| visits[seed as usize] += 1.0);
    let mut hop = Hop {
        replace: config.replace,
        from: visits.clone(),
        came: mirrored.then(|| vec![0.0; nodes]),
        to: vec![0.0; nodes],
    };
    for number in 0..config.fan_outs.len() {
        let reads = |step: &Step| step.fan_out != FanOut::Take(0);
        for step in config.steps(number).into_iter().filter(reads) {
            let (first_node, columns) = match &config.types {
                None => (0, 0..nodes as u64),
                Some(types) => {
                    let edges = &types.schema.edge_types()[step.edge_type];
                    let targets = &types.schema.node_types()[edges.target].nodes;
                    (targets.start, edges.columns.clone())
                }
            };
            hop.walk(topology, step.fan_out, first_node, columns)?;
        }
        for (visits, more) in visits.iter_mut().zip(&hop.to) {
            *visits += more;
        }
        hop.turn();
    }
    Ok(visits)
}

/// Visits of one hop.
struct Hop {
    replace: bool,
    /// Visits of each node; after the node was processed, the visits that each of its in-edges
    /// carries.
    from: Vec<f32>,
    /// The visits that each in-edge of a node carried in the previous hop, if edges are mirrored.
    came: Option<Vec<f32>>,
    /// Visits of each node after the hop.
    to: Vec<f32>,
}

impl Hop {
    /// The share of a node's visits that each of its `degree` in-edges carries.
    fn share(&self, fan_out: FanOut, degree: u64) -> f32 {
        match fan_out {
            FanOut::All => 1.0,
            FanOut::Take(count) if self.replace => {
                // The chance to be drawn at least once in `count` draws.
                1.0 - (1.0 - 1.0 / degree as f32).powi(count.min(i32::MAX as u32) as i32)
            }
            FanOut::Take(count) => (count as f32 / degree as f32).min(1.0),
        }
    }

    /// Walks over all in-edges of one type; `columns` belong to the nodes starting at `first_node`.
    fn walk(
        &mut self,
        topology: &dyn Topology,
        fan_out: FanOut,
        first_node: NodeId,
        mut columns: Range<u64>,
    ) -> Result<()> {
        let first = columns.start;
        let node_of = |column: u64| (first_node + (column - first)) as usize;
        let (mut asked, mut extents) = (Vec::with_capacity(COLUMNS_AT_ONCE), Vec::new());
        let (mut positions, mut sources) = (Vec::new(), Vec::new());
        while !columns.is_empty() {
            asked.clear();
            let visited = |column: &u64| self.from[node_of(*column)] > 0.0;
            asked.extend(columns.by_ref().filter(visited).take(COLUMNS_AT_ONCE));
            extents.clear();
            extents.resize(asked.len(), Extent::default());
            topology.extents(&asked, &mut extents)?;
            for piece in pieces(&extents, EDGES_AT_ONCE) {
                positions.clear();
                positions.extend(extents[piece.clone()].iter().flat_map(Extent::positions));
                sources.resize(positions.len(), 0);
                topology.sources(&positions, &mut sources)?;
                let mut rest = &sources[..];
                for (&column, extent) in asked[piece.clone()].iter().zip(&extents[piece]) {
                    let own =
                        rest.split_off(..extent.degree as usize).expect("those of its extent");
                    self.pass_on(node_of(column), fan_out, own);
                }
            }
        }
        Ok(())
    }

    /// Passes the visits of a node to its sources, in order.
    fn pass_on(&mut self, node: usize, fan_out: FanOut, sources: &[NodeId]) {
        if sources.is_empty() {
            return;
        }
        let (visits, share) = (self.from[node], self.share(fan_out, sources.len() as u64));
        match &self.came {
            None => sources.iter().for_each(|&source| self.to[source as usize] += visits * share),
            Some(came) => {
                for &source in sources {
                    let others = (visits - came[source as usize]).max(0.0);
                    self.to[source as usize] += others * share;
                }
                self.from[node] = visits * share;
            }
        }
    }

    /// Starts the next hop from the nodes that this hop reached.
    fn turn(&mut self) {
        std::mem::swap(&mut self.from, &mut self.to);
        if let Some(came) = &mut self.came {
            std::mem::swap(came, &mut self.to);
        }
        self.to.fill(0.0);
    }
}
