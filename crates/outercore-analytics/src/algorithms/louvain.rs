//! Communities by modularity.

mod level;

use outercore_core::{Bytes, Error, Permutation, Result};
use outercore_grid::Arcs;
use serde::{Deserialize, Serialize};

use self::level::Level;
use crate::algorithm::{GraphAlgorithm, Scale};
use crate::gather::neighbour_counts;
use crate::output::{Isolated, Need, Raw};
use crate::partitions::all;
use crate::program::{EdgeProgram, Flow, Passes, Selection};
use crate::result::AnyRaw;
use crate::state::Parts;
use crate::teleport::Teleport;

/// A level ends when a round raises modularity by less than this, as in networkx.
const LEAST_GAIN: f64 = 1e-7;

/// Bytes per edge at one of its ends: the other end and the weight.
const PER_SLOT: u64 = 12;

/// Options of [`louvain`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Louvain {
    /// Larger values give smaller communities.
    pub resolution: f64,
    /// Seed of the order in which nodes are visited.
    pub seed: u64,
    /// Edge array of weights.
    pub weights: Option<String>,
}

impl Default for Louvain {
    fn default() -> Self {
        Self { resolution: 1.0, seed: 0, weights: None }
    }
}

impl GraphAlgorithm for Louvain {
    fn validate(&self, _: u64) -> Result<()> {
        validate(self.resolution)
    }

    fn weights(&self) -> Option<&str> {
        self.weights.as_deref()
    }

    /// The edges of a level in memory, and those of the next level while it is built.
    fn need(&self, scale: &Scale<'_>) -> Need {
        let slots = if scale.shape.symmetric { scale.shape.arcs } else { 2 * scale.shape.arcs };
        Need {
            state_per_node: 96,
            fixed: Bytes(2 * PER_SLOT * slots),
            output: Bytes(8 * scale.shape.nodes),
            passes: Some(1),
            ..Need::default()
        }
    }

    fn run<R: Passes>(&self, run: &mut R, _: &Teleport) -> Result<AnyRaw> {
        louvain(run, self.resolution, self.seed, self.weights.is_some()).map(AnyRaw::from)
    }
}

/// Checks an option.
///
/// # Errors
/// `Invalid`: a resolution that is not above 0.
fn validate(resolution: f64) -> Result<()> {
    if resolution > 0.0 && resolution.is_finite() {
        return Ok(());
    }
    Err(Error::invalid(format!("louvain: resolution {resolution}, expected above 0")))
}

/// For every node, the smallest node of its community. Communities are chosen so that much weight
/// is within them and little between them.
///
/// Directions are ignored: each arc is an edge, and arcs in both directions and parallel arcs are
/// summed. The measure is modularity, `sum over communities of w / m - resolution (s / 2 m)^2`.
/// Here `m` is the weight of all edges, `w` the weight within the community, and `s` the sum over
/// its nodes of the weights at each node. A larger `resolution` gives smaller communities. Each
/// node without arcs is a separate community. Facts: `communities`, `modularity`, `levels`.
///
/// # Method
/// Nodes are visited one after the other, in an order drawn by `seed`. Each moves to the community
/// of a neighbour that raises modularity most, ties to the first, until a round gains little. Then
/// the communities are the nodes of the next level, in the order of their first nodes. The order of
/// ids is not suitable if neighbours have close ids: communities would grow along the ids one node
/// at a time, and settle while they are small and many nodes are in the wrong one. On a ring
/// lattice of 1,000 nodes with neighbours up to 3 away, this gave a modularity of .66 instead of
/// .91.
///
/// # Cost
/// One pass; all edges are in memory: 24 bytes per edge for both ends, and 96 bytes per connected
/// node.
///
/// # Errors
/// `Invalid`: a resolution that is not above 0; weights that overflow. Errors of the pass.
///
/// # Source
/// Blondel, Guillaume, Lambiotte, Lefebvre, "Fast unfolding of communities in large networks"
/// (2008); resolution as in Reichardt, Bornholdt (2006).
pub fn louvain<R: Passes>(
    run: &mut R,
    resolution: f64,
    seed: u64,
    weighted: bool,
) -> Result<Raw<i64>> {
    validate(resolution)?;
    let shape = *run.shape();
    // Nodes are numbered in the order of visits, so that visits access memory in order. With nodes
    // numbered by id, a drawn order took 1.6 times as long (R-MAT, 2^17 nodes, 16 edges each).
    let drawn = Permutation::new(shape.nodes, seed, 0);
    let mut order: Vec<(u32, usize)> = Vec::with_capacity(shape.connected as usize);
    for part in 0..shape.partitions() {
        for node in run.nodes(part)? {
            order.push((drawn.at(u64::from(node)) as u32, order.len()));
        }
    }
    order.sort_unstable();
    let mut level = first_level(run, &order, weighted)?;
    if !level.strength().is_finite() {
        return Err(Error::invalid("louvain: the sum of all weights is beyond 1.8e308"));
    }
    // By position in `order`.
    let mut community: Vec<u32> = (0..order.len() as u32).collect();
    let (mut levels, mut modularity) = (0u64, level.modularity_of_singles(resolution));
    loop {
        run.progress("level", levels, 0)?;
        let (found, reached) = level.settle(resolution, LEAST_GAIN);
        if reached - modularity <= LEAST_GAIN {
            break;
        }
        (modularity, levels) = (reached, levels + 1);
        let (next, renamed) = level.joined(&found);
        community.iter_mut().for_each(|community| *community = renamed[*community as usize]);
        level = next;
    }
    let mut of_place = vec![0u32; order.len()];
    for (&(_, place), &community) in order.iter().zip(&community) {
        of_place[place] = community;
    }
    drop(order);
    let by_partition = smallest_nodes(run, &of_place, level.nodes())?;
    let mut facts = serde_json::Map::new();
    let communities = level.nodes() as u64 + shape.nodes - shape.connected;
    facts.insert("communities".into(), communities.into());
    facts.insert("modularity".into(), modularity.into());
    facts.insert("levels".into(), levels.into());
    Ok(Raw { by_partition: Parts::Here(by_partition), isolated: Isolated::Itself, facts })
}

/// By partition, the smallest node of each node's community; there are `communities` communities.
fn smallest_nodes<R: Passes>(
    run: &mut R,
    community: &[u32],
    communities: usize,
) -> Result<Vec<Vec<i64>>> {
    let mut smallest = vec![u32::MAX; communities];
    let mut first = 0;
    for part in 0..run.shape().partitions() {
        let nodes = run.nodes(part)?;
        for (node, &community) in nodes.iter().zip(&community[first..]) {
            let smallest = &mut smallest[community as usize];
            *smallest = (*smallest).min(*node);
        }
        first += nodes.len();
    }
    let mut community = community;
    let shape = *run.shape();
    let labels = (0..shape.partitions()).map(|part| {
        let (here, others) = community.split_at(shape.partition_len(part));
        community = others;
        here.iter().map(|&community| i64::from(smallest[community as usize])).collect()
    });
    Ok(labels.collect())
}

/// All edges at both ends. Nodes are numbered by their index in `order`, which holds their places.
fn first_level<R: Passes>(run: &mut R, order: &[(u32, usize)], weighted: bool) -> Result<Level> {
    let shape = *run.shape();
    let counts = neighbour_counts(run, Flow::Both)?.into_here()?;
    let mut position = vec![0u32; order.len()];
    for (at, &(_, place)) in order.iter().enumerate() {
        position[place] = at as u32;
    }
    let slots: usize = counts.iter().flatten().map(|&count| count as usize).sum();
    let (mut neighbours, mut weights) = (vec![0u32; slots], vec![0f64; slots]);
    // Rows are stored in the order in which the grid numbers nodes.
    let mut starts = vec![0u64; order.len()];
    {
        let (mut neighbours, mut weights) = (&mut neighbours[..], &mut weights[..]);
        let (mut place, mut start) = (0, 0u64);
        let mut targets = Vec::with_capacity(counts.len());
        for (partition, counts) in counts.iter().enumerate() {
            let first = place;
            let here: usize = counts.iter().map(|&count| count as usize).sum();
            let (mut ends, mut end) = (Vec::with_capacity(counts.len()), 0);
            for &count in counts {
                starts[place] = start + end;
                ends.push(end);
                end += u64::from(count);
                place += 1;
            }
            start += end;
            let (own_neighbours, others) = neighbours.split_at_mut(here);
            let (own_weights, other_weights) = weights.split_at_mut(here);
            (neighbours, weights) = (others, other_weights);
            targets.push(Rows {
                partition,
                first,
                ends,
                neighbours: own_neighbours,
                weights: own_weights,
            });
        }
        let firsts: Vec<(usize, usize)> =
            targets.iter().map(|rows| (rows.partition, rows.first)).collect();
        let everywhere = all(counts.len());
        let select = Selection {
            sources: &everywhere,
            targets: &everywhere,
            flow: Flow::Both,
            weights: weighted,
        };
        run.progress("edges", 0, 1)?;
        let fill = Fill { position: &position, loops: if shape.symmetric { 2.0 } else { 1.0 } };
        run.pass(&fill, &firsts, &mut targets, &select)?;
    }
    let rows = order
        .iter()
        .map(|&(_, place)| {
            let start = starts[place] as usize;
            let end = starts.get(place + 1).map_or(slots, |&end| end as usize);
            start..end
        })
        .collect();
    Ok(Level::new(rows, neighbours, weights))
}

/// Memory for the neighbours of a partition's nodes.
struct Rows<'a> {
    partition: usize,
    /// Grid place of the first node.
    first: usize,
    /// Position of each node's next neighbour.
    ends: Vec<u64>,
    neighbours: &'a mut [u32],
    weights: &'a mut [f64],
}

/// Lists neighbours with weights; a loop twice, or once with twice its weight.
struct Fill<'a> {
    /// By place.
    position: &'a [u32],
    loops: f64,
}

impl<'a> EdgeProgram for Fill<'a> {
    /// Partition, and place of its first node.
    type Source = (usize, usize);
    type Target = Rows<'a>;

    fn apply(&self, arcs: &Arcs<'_>, &(source, first): &(usize, usize), rows: &mut Rows<'a>) {
        let same = source == rows.partition;
        arcs.for_each(|from, to, weight| {
            let slot = &mut rows.ends[to];
            rows.neighbours[*slot as usize] = self.position[first + from];
            let is_loop = same && from == to;
            rows.weights[*slot as usize] = if is_loop { self.loops * weight } else { weight };
            *slot += 1;
        });
    }
}
