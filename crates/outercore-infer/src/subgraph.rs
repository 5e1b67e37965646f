use std::fmt::Display;
use std::ops::Range;

use outercore_core::{Error, Result};

/// The sampled in-neighbourhood of some seeds in local numbering, as `outercore-sample` gives it.
///
/// **Shapes** `nodes_per_hop` hops + 1, `edges_per_hop` hops, `sources` an entry an edge, `picked`
/// an entry a destination: a node of any hop but the last. A seed may come twice.
#[derive(Clone, Copy, Debug)]
pub struct Subgraph<'a> {
    /// Node ids: the seeds, then the new nodes of every hop.
    pub nodes: &'a [u64],
    /// Seeds, then new nodes of every hop.
    pub nodes_per_hop: &'a [u64],
    /// Edges of every hop.
    pub edges_per_hop: &'a [u64],
    /// Local source of every edge: those of destination 0 first, then those of destination 1.
    pub sources: &'a [u32],
    /// Edges picked for destinations 0, 1, 2, ...
    pub picked: &'a [u32],
    /// In-degree of each of `nodes` in the whole graph, self-loops counted where
    /// [`Model::counts_loops`](crate::Model::counts_loops) says so; for models that need them.
    pub degrees: Option<&'a [f32]>,
}

/// A subgraph whose counts agree, so that no index is out of range.
pub(crate) struct Batch<'a> {
    nodes: &'a [u64],
    sources: &'a [u32],
    degrees: &'a [f32],
    /// Nodes up to each hop.
    node_ends: Vec<usize>,
    /// Where the edges of each destination begin, and where the last ones end.
    starts: Vec<usize>,
}

/// The edges into some nodes.
#[derive(Clone, Copy)]
pub(crate) struct Hop<'a> {
    /// The first so many nodes are computed.
    pub targets: usize,
    /// The first so many nodes are needed for it.
    pub sources: usize,
    /// Empty for models that need none.
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

    /// Places of the nodes that a hop has found, counted from 1 on.
    pub fn found_by(&self, hop: usize) -> Range<usize> {
        self.node_ends[hop - 1]..self.node_ends[hop]
    }

    /// What a layer computes that has `hops` hops of layers from itself on.
    ///
    /// With none, as in networks that look at no edge, it computes the seeds from themselves.
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

    /// Those that are no self-loops.
    ///
    /// By node id: a seed that comes twice has two places.
    #[inline(always)]
    pub fn edges_of_others(&self, target: usize) -> impl Iterator<Item = usize> + Clone {
        self.edges(target).filter(move |&source| self.nodes[source] != self.nodes[target])
    }

    /// What a sum over `sampled` edges is multiplied by to stand for all edges.
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

/// Running sums of counts.
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
