//! The restart distribution of a random walk.

use outercore_core::{Error, Result};
use xxhash_rust::xxh3::Xxh3Default;

use crate::program::Passes;

/// The restart distribution of a random walk over the nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Teleport {
    /// All nodes are equal; the share of each node.
    Uniform(f64),
    /// The nodes with a share, ascending, and their shares, which sum to 1.
    Given(Vec<u64>, Vec<f64>),
}

impl Teleport {
    /// Equal shares for `nodes` nodes.
    pub fn uniform(nodes: u64) -> Self {
        Self::Uniform(1.0 / nodes.max(1) as f64)
    }

    /// Shares in proportion to `weights` of `ids`, in any order; repeated ids are summed.
    ///
    /// # Errors
    /// `Invalid`: an id that is not below `nodes`, a weight that is negative or not finite, only
    /// zero weights.
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
        // Divide by the largest weight first, because a sum of finite weights may not be finite.
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

    /// A digest that identifies the distribution; `None` if it is uniform.
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
            // If every node has an entry, its index is the node id.
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
    /// Non-zero shares of a given vector.
    given: Vec<f64>,
    uniform: f64,
}

impl IsolatedShares {
    /// The change in the first iteration, from the rank `start`.
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
