use std::fmt::Display;
use std::ops::Range;

use outercore_core::{Error, Result};

/// The sampled in-neighbourhood of some seeds in local numbering, in the form of
/// `outercore-sample`.
///
/// **Shapes** `nodes_per_hop` hops + 1, `edges_per_hop` hops, `sources` one entry per edge,
/// `picked` one entry per destination, which is a node of any hop except the last. A seed may occur
/// twice.
#[derive(Clone, Copy, Debug)]
pub struct Subgraph<'a> {
    /// Node ids: the seeds, then the new nodes of every hop.
    pub nodes: &'a [u64],
    /// Number of seeds, then number of new nodes per hop.
    pub nodes_per_hop: &'a [u64],
    /// Number of edges per hop.
    pub edges_per_hop: &'a [u64],
    /// Local source of every edge: first the edges into destination 0, then those into destination
    /// 1, and so on.
    pub sources: &'a [u32],
    /// Number of edges picked for destinations 0, 1, 2, ...
    pub picked: &'a [u32],
    /// In-degree of each of `nodes` in the whole graph, for models that need it. Includes
    /// self-loops if [`Model::counts_loops`](crate::Model::counts_loops) is true.
    pub degrees: Option<&'a [f32]>,
}

/// A subgraph with consistent counts, so that no index is out of range.
pub(crate) struct Batch<'a> {
    nodes: &'a [u64],
    sources: &'a [u32],
    degrees: &'a [f32],
    /// Number of nodes up to each hop.
    node_ends: Vec<usize>,
    /// The start of each destination's edges, and the end of the last ones.
    starts: Vec<usize>,
}

/// The edges into some nodes.
#[derive(Clone, Copy)]
pub(crate) struct Hop<'a> {
    /// Number of nodes to compute, from the first one.
    pub targets: usize,
    /// Number of nodes needed as input, from the first one.
    pub sources: usize,
    /// Empty for models that do not need degrees.
    pub degrees: &'a [f32],
    nodes: &'a [u64],
    edges: &'a [u32],
    starts: &'a [usize],
}

impl<'a> Batch<'a> {
    pub fn check(subgraph: &Subgraph<'a>, hops: usize, needs_degrees: bool) -> Result<Self> {
        let Subgraph { nodes, nodes_per_hop, edges_per_hop, sources, picked, degrees } = *subgraph;
        agree("nodes_per_hop", "hops of the model, and one", nodes_per_hop.len(), hops + 1)?;
        agree("edges_per_hop", "hops of the model", edges_per_hop.len(), hops)?;
        let node_ends = ends("nodes_per_hop", nodes_per_hop)?;
        let edge_ends = ends("edges_per_hop", edges_per_hop)?;
        agree("nodes", "as `nodes_per_hop`", nodes.len(), node_ends[hops])?;
        agree(
            "sources",
            "as `edges_per_hop`",
            sources.len(),
            edge_ends.last().map_or(0, |&end| end),
        )?;
        let destinations = if hops == 0 { 0 } else { node_ends[hops - 1] };
        agree("picked", "nodes before the last hop", picked.len(), destinations)?;
        let mut starts = Vec::with_capacity(destinations + 1);
        let mut end = 0_usize;
        starts.push(end);
        for &count in picked {
            end = end.saturating_add(count as usize);
            starts.push(end);
        }
        let mut first = 0;
        for hop in 0..hops {
            let (edges, nodes) = (edge_ends[hop], node_ends[hop + 1]);
            agree("picked", format!("edges up to hop {}", hop + 1), starts[node_ends[hop]], edges)?;
            if let Some(wrong) = sources[first..edges].iter().find(|&&one| one as usize >= nodes) {
                return Err(Error::invalid(format!(
                    "subgraph: sources: expected less than {nodes} up to hop {}, found {wrong}",
                    hop + 1
                )));
            }
            first = edges;
        }
        let degrees = match degrees {
            _ if !needs_degrees => &[],
            Some(degrees) => degrees,
            None => {
                return Err(Error::invalid("subgraph: this model needs in-degrees, found none"));
            }
        };
        if needs_degrees {
            agree("degrees", "as `nodes`", degrees.len(), nodes.len())?;
            if let Some(wrong) = degrees.iter().find(|one| !(0.0..=f32::MAX).contains(*one)) {
                return Err(Error::invalid(format!(
                    "subgraph: degrees: expected counts, found {wrong}"
                )));
            }
        }
        Ok(Self { nodes, sources, degrees, node_ends, starts })
    }

    pub fn seeds(&self) -> usize {
        self.node_ends[0]
    }

    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Indices of the nodes that a hop found, counted from 1.
    pub fn found_by(&self, hop: usize) -> Range<usize> {
        self.node_ends[hop - 1]..self.node_ends[hop]
    }

    /// The edges for a layer, if it and the later layers together span `hops` hops.
    ///
    /// With `hops` 0, as in networks without edges, the layer computes the seeds from their own
    /// states.
    pub fn hop(&self, hops: usize) -> Hop<'_> {
        let targets = self.node_ends[hops.saturating_sub(1)];
        Hop {
            targets,
            sources: self.node_ends[hops],
            degrees: self.degrees,
            nodes: self.nodes,
            edges: self.sources,
            starts: &self.starts,
        }
    }
}

impl Hop<'_> {
    /// Local sources of the edges into a target.
    #[inline(always)]
    pub fn edges(&self, target: usize) -> impl ExactSizeIterator<Item = usize> + Clone {
        let edges = &self.edges[self.starts[target]..self.starts[target + 1]];
        edges.iter().map(|&source| source as usize)
    }

    /// Local sources of the edges into a target, without self-loops.
    ///
    /// Compared by node id, because a seed that occurs twice has two indices.
    #[inline(always)]
    pub fn edges_of_others(&self, target: usize) -> impl Iterator<Item = usize> + Clone {
        self.edges(target).filter(move |&source| self.nodes[source] != self.nodes[target])
    }

    /// Factor that scales a sum over `sampled` edges up to all edges.
    pub fn sample_scale(&self, target: usize, sampled: usize) -> f32 {
        self.degrees[target].max(1.0) / sampled.max(1) as f32
    }
}

fn agree(name: &str, what: impl Display, found: usize, expected: usize) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::invalid(format!("subgraph: {name}: expected {expected} ({what}), found {found}")))
}

/// Cumulative sums of counts.
fn ends(name: &str, counts: &[u64]) -> Result<Vec<usize>> {
    let mut end = 0_usize;
    counts
        .iter()
        .map(|&count| {
            let sum = usize::try_from(count).ok().and_then(|count| end.checked_add(count));
            end = sum.ok_or_else(|| {
                Error::invalid(format!("subgraph: {name}: expected counts, found {count}"))
            })?;
            Ok(end)
        })
        .collect()
}
