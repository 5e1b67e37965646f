//! Where a walk begins anew.

use outercore_core::{Error, Result};
use xxhash_rust::xxh3::Xxh3Default;

use crate::program::Passes;

/// Where a walk begins anew: a distribution over the nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Teleport {
    /// Every node alike; its share.
    Uniform(f64),
    /// The nodes that have a share, ascending, and their shares, which sum to 1.
    Given(Vec<u64>, Vec<f64>),
}

impl Teleport {
    /// Every one of `nodes` alike.
    pub fn uniform(nodes: u64) -> Self {
        Self::Uniform(1.0 / nodes.max(1) as f64)
    }

    /// In proportion to `weights` of `ids`, in any order; a node named twice gets both.
    ///
    /// # Errors
    /// `Invalid`: a node that is none of `nodes`, a weight that is negative or not finite, nothing
    /// but zeros.
    pub fn given(nodes: u64, ids: Vec<u64>, weights: Vec<f64>) -> Result<Self> {
        if ids.len() != weights.len() {
            return Err(Error::invalid(format!(
                "pagerank: personalization has {} nodes and {} weights",
                ids.len(),
                weights.len()
            )));
        }
        for (&id, &weight) in ids.iter().zip(&weights) {
            if id >= nodes {
                return Err(Error::invalid(format!(
                    "pagerank: personalization names node {id}, the graph has {nodes} nodes"
                )));
            }
            if !weight.is_finite() || weight < 0.0 {
                return Err(Error::invalid(format!(
                    "pagerank: personalization of node {id} is {weight}, expected 0 or more"
                )));
            }
        }
        let (ids, mut weights) = if ids.is_sorted_by(|a, b| a < b) {
            (ids, weights)
        } else {
            let mut pairs: Vec<(u64, f64)> = ids.into_iter().zip(weights).collect();
            pairs.sort_by_key(|pair| pair.0);
            pairs.dedup_by(|next, kept| {
                let same = next.0 == kept.0;
                if same {
                    kept.1 += next.1;
                }
                same
            });
            pairs.into_iter().unzip()
        };
        // By the greatest first: a sum of finite weights may not be finite.
        let most = weights.iter().copied().fold(0.0, f64::max);
        if most <= 0.0 {
            return Err(Error::invalid("pagerank: personalization is zero everywhere")
                .hint("give at least one node a weight above 0"));
        }
        weights.iter_mut().for_each(|weight| *weight /= most);
        let total: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= total);
        Ok(Self::Given(ids, weights))
    }

    /// What tells it from others: nothing where it is uniform.
    pub(crate) fn digest(&self) -> Option<String> {
        let Self::Given(ids, shares) = self else { return None };
        let mut sum = Xxh3Default::new();
        sum.update(bytemuck::cast_slice(ids));
        sum.update(bytemuck::cast_slice(shares));
        Some(format!("{:016x}", sum.digest()))
    }

    /// The share of a node.
    pub fn of(&self, node: u64) -> f64 {
        match self {
            Self::Uniform(share) => *share,
            // Where every node has an entry, its place is known.
            Self::Given(ids, shares) if ids.get(node as usize) == Some(&node) => {
                shares[node as usize]
            }
            Self::Given(ids, shares) => ids.binary_search(&node).map_or(0.0, |at| shares[at]),
        }
    }
}

/// The teleport vector over the nodes without arcs.
pub(crate) struct IsolatedShares {
    nodes: u64,
    pub(crate) total: f64,
    /// Those of a given vector that are not 0.
    given: Vec<f64>,
    uniform: f64,
}

impl IsolatedShares {
    /// How far the first iteration takes them from `start`.
    pub(crate) fn first_change(&self, start: f64, scalar: f64) -> f64 {
        let given: f64 = self.given.iter().map(|share| (share * scalar - start).abs()).sum();
        let others = (self.nodes - self.given.len() as u64) as f64;
        given + others * (self.uniform * scalar - start).abs()
    }
}

/// The shares of the nodes without arcs.
pub(crate) fn isolated_shares<R: Passes>(
    run: &mut R,
    teleport: &Teleport,
) -> Result<IsolatedShares> {
    let nodes = run.shape().nodes - run.shape().connected;
    if let &Teleport::Uniform(uniform) = teleport {
        return Ok(IsolatedShares {
            nodes,
            total: uniform * nodes as f64,
            given: Vec::new(),
            uniform,
        });
    }
    let mut given = Vec::new();
    run.isolated(&mut |ids| {
        given.extend(ids.iter().map(|&id| teleport.of(u64::from(id))).filter(|&share| share > 0.0));
    })?;
    Ok(IsolatedShares { nodes, total: given.iter().sum(), given, uniform: 0.0 })
}
