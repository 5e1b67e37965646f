use std::fmt;

use outercore_core::{Error, NodeId};

/// How many in-edges of a node are sampled in one hop.
///
/// # Example
/// ```
/// use outercore_sample::FanOut;
/// assert_eq!(FanOut::try_from(-1).unwrap(), FanOut::All);
/// assert_eq!(FanOut::try_from(15).unwrap(), FanOut::Take(15));
/// assert!(FanOut::try_from(-2).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FanOut {
    /// All of them.
    All,
    /// At most this many; with replacement exactly this many, if there are any.
    Take(u32),
}

impl TryFrom<i64> for FanOut {
    type Error = Error;

    /// The convention of `num_neighbors`: -1 stands for all.
    fn try_from(number: i64) -> Result<Self, Error> {
        if number == -1 {
            return Ok(Self::All);
        }
        u32::try_from(number).map(Self::Take).map_err(|_| {
            Error::invalid(format!("{number} is not a fan-out"))
                .hint("write a number from 0, or -1 for all in-neighbours")
        })
    }
}

impl fmt::Display for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Take(count) => write!(f, "{count}"),
        }
    }
}

/// What is sampled around the seeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleConfig {
    /// One per hop, the seeds' own first.
    pub fan_outs: Vec<FanOut>,
    /// Whether an edge may be drawn several times.
    pub replace: bool,
    /// Whether batches carry the ids of their edges.
    pub edge_ids: bool,
    /// A batch of more edges is refused before it takes memory.
    pub most_edges: Option<u64>,
}

impl SampleConfig {
    /// All in-neighbours of the seeds, one hop: what layer-wise inference asks for.
    pub fn full_neighbours() -> Self {
        Self { fan_outs: vec![FanOut::All], replace: false, edge_ids: false, most_edges: None }
    }

    /// The most nodes that a batch of `seeds` seeds can hold in a graph of `nodes` nodes; `nodes`
    /// (beside the seeds) as soon as a hop takes all neighbours.
    ///
    /// # Example
    /// ```
    /// use outercore_sample::{FanOut, SampleConfig};
    /// let fan_outs = vec![FanOut::Take(15), FanOut::Take(10)];
    /// let config =
    ///     SampleConfig { fan_outs, replace: false, edge_ids: true, most_edges: None };
    /// assert_eq!(config.most_nodes(2, 1_000_000), 2 + 30 + 300);
    /// assert_eq!(config.most_nodes(2, 100), 102);
    /// ```
    pub fn most_nodes(&self, seeds: u64, nodes: u64) -> u64 {
        let (mut frontier, mut found) = (seeds, 0u64);
        for fan_out in &self.fan_outs {
            frontier = match fan_out {
                FanOut::All => nodes,
                FanOut::Take(count) => frontier.saturating_mul(u64::from(*count)),
            };
            found = found.saturating_add(frontier);
        }
        seeds.saturating_add(found.min(nodes))
    }
}

/// The seeds of one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seeds {
    /// Number of the batch in its epoch: a coordinate of the randomness.
    pub batch: u64,
    /// The seed nodes; duplicates keep their own places.
    pub nodes: Vec<NodeId>,
}
