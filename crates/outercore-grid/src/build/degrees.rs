//! Degrees, and the order computed from them.

use std::sync::atomic::{AtomicU32, Ordering};

use outercore_core::Result;
use outercore_io::prefer_huge_pages;

use super::input::{Ids, Input, Pass, READ, too_many};
use crate::order::{self, ISOLATED, NEAR};
use crate::shape::{GridShape, Order};

/// Number of reads of one megabyte in the sample that decides whether most arcs are short.
const SAMPLES: u64 = 64;

/// Arcs into and out of every node.
pub(super) struct Degrees {
    pub(super) into: Vec<u32>,
    /// `None` in a symmetric graph.
    pub(super) out: Option<Vec<u32>>,
    /// Number of arcs in each column; `None` if columns are nodes, because `into` then has these
    /// numbers.
    pub(super) columns: Option<Vec<u32>>,
}

impl Degrees {
    pub(super) fn out_of(&self, node: usize) -> u32 {
        self.out.as_ref().map_or(self.into[node], |out| out[node])
    }

    /// The degree by which nodes are ranked.
    pub(super) fn total(&self, node: usize) -> u64 {
        u64::from(self.into[node]) + self.out.as_ref().map_or(0, |out| u64::from(out[node]))
    }

    pub(super) fn arcs(&self) -> u64 {
        self.into.iter().map(|degree| u64::from(*degree)).sum()
    }

    pub(super) fn connected(&self) -> u64 {
        (0..self.into.len()).filter(|node| self.total(*node) > 0).count() as u64
    }
}

/// Number of arcs out of every node, and into every node if `with_into`.
///
/// # Errors
/// `Unsupported`: 2^32 arcs out of or into one node; a failed read.
pub(super) fn counted(
    pass: &Pass<'_>,
    lanes: usize,
    with_into: bool,
    on_arcs: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<(Vec<u32>, Option<Vec<u32>>)> {
    let (out, into) = (zeros(pass.input.nodes), with_into.then(|| zeros(pass.input.nodes)));
    let each = |_: &mut (), target: u32, sources: &[u32], _: Ids<'_>| {
        for source in sources {
            add(&out, *source, 1, "out of")?;
        }
        match &into {
            Some(into) => add(into, target, sources.len() as u32, "into"),
            None => Ok(()),
        }
    };
    pass.run(&mut vec![(); lanes], 1, each, |_| {}, &mut |_, done| on_arcs(done))?;
    let plain = |degrees: Vec<AtomicU32>| degrees.into_iter().map(AtomicU32::into_inner).collect();
    Ok((plain(out), into.map(plain)))
}

fn zeros(nodes: u64) -> Vec<AtomicU32> {
    let mut degrees: Vec<AtomicU32> = Vec::with_capacity(nodes as usize);
    prefer_huge_pages(degrees.spare_capacity_mut());
    degrees.extend((0..nodes).map(|_| AtomicU32::new(0)));
    degrees
}

/// Adds arcs of a node; the sum does not depend on the order of threads.
#[inline(always)]
fn add(degrees: &[AtomicU32], node: u32, arcs: u32, direction: &str) -> Result<()> {
    let before = degrees[node as usize].fetch_add(arcs, Ordering::Relaxed);
    match before.checked_add(arcs) {
        Some(_) => Ok(()),
        None => Err(too_many(u64::from(node), direction)),
    }
}

/// A suitable order for the graph, from a sample of its arcs.
pub(super) fn choose(pass: &Pass<'_>, input: &Input, lanes: usize) -> Result<Order> {
    if order::choose(input.nodes, 1, 1) == Order::Degree {
        return Ok(Order::Degree);
    }
    let reads = (input.rows * 4).div_ceil(READ as u64).div_ceil(SAMPLES).max(1);
    let mut counts = vec![(0u64, 0u64); lanes];
    let each = |(near, all): &mut (u64, u64), target: u32, sources: &[u32], _: Ids<'_>| {
        let is_near = |source: &&u32| u64::from(source.abs_diff(target)) < NEAR;
        *near += sources.iter().filter(is_near).count() as u64;
        *all += sources.len() as u64;
        Ok(())
    };
    pass.run(&mut counts, reads as usize, each, |_| {}, &mut |_, _| Ok(()))?;
    let (near, all) = counts.iter().fold((0, 0), |sum, lane| (sum.0 + lane.0, sum.1 + lane.1));
    Ok(order::choose(input.nodes, near, all))
}

/// Nodes by rank.
pub(super) enum Ranks {
    Degree(Vec<u32>),
    Natural,
}

impl Ranks {
    pub(super) fn new(order: Order, degrees: &Degrees) -> Self {
        match order {
            Order::Degree => {
                let nodes = degrees.into.len();
                Self::Degree(order::by_degree(nodes, |node| degrees.total(node)))
            }
            Order::Natural => Self::Natural,
        }
    }

    /// Calls `each` for every node, in the order of the ranks, with a flag for whether it has arcs.
    pub(super) fn for_each(
        &self,
        degrees: &Degrees,
        mut each: impl FnMut(u32, bool) -> Result<()>,
    ) -> Result<()> {
        let has_arcs = |node: u32| degrees.total(node as usize) > 0;
        match self {
            Self::Degree(order) => order.iter().try_for_each(|node| each(*node, has_arcs(*node))),
            Self::Natural => {
                let nodes = 0..degrees.into.len() as u32;
                nodes
                    .clone()
                    .filter(|node| has_arcs(*node))
                    .try_for_each(|node| each(node, true))?;
                nodes.filter(|node| !has_arcs(*node)).try_for_each(|node| each(node, false))
            }
        }
    }

    /// Whether each rank equals its node id.
    pub(super) fn is_identity(&self, degrees: &Degrees) -> bool {
        match self {
            Self::Degree(order) => order.iter().copied().eq(0..order.len() as u32),
            Self::Natural => {
                let connected = degrees.connected() as usize;
                (0..connected).all(|node| degrees.total(node) > 0)
            }
        }
    }

    /// Returns the arcs in each column, and the place of each node: its partition in the upper
    /// half, its local id in the lower half.
    ///
    /// **Cost**: in natural order it reuses the memory of the degrees, if there are degrees for
    /// both directions.
    pub(super) fn places(self, degrees: Degrees, shape: &GridShape) -> (Vec<u32>, Vec<u32>) {
        let Degrees { into, out, columns } = degrees;
        let order = match self {
            Self::Degree(order) => order,
            Self::Natural => {
                let mut places = out.unwrap_or_else(|| vec![0; into.len()]);
                let mut rank = 0;
                for (place, into) in places.iter_mut().zip(&into) {
                    if *place == 0 && *into == 0 {
                        *place = ISOLATED;
                    } else {
                        *place = order::packed_place(shape, rank);
                        rank += 1;
                    }
                }
                return (columns.unwrap_or(into), places);
            }
        };
        drop(out);
        let mut places = Vec::with_capacity(into.len());
        prefer_huge_pages(places.spare_capacity_mut());
        places.resize(into.len(), ISOLATED);
        for (node, rank) in order.iter().zip(0..shape.connected) {
            places[*node as usize] = order::packed_place(shape, rank);
        }
        (columns.unwrap_or(into), places)
    }
}
