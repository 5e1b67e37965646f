use std::fmt;
use std::sync::Arc;

use outercore_core::Error;
use outercore_format::Schema;

use crate::rules::{Choice, Rules};

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
    /// All in-edges.
    All,
    /// At most this many; with replacement exactly this many, if the node has in-edges.
    Take(u32),
}

impl TryFrom<i64> for FanOut {
    type Error = Error;

    /// The convention of `num_neighbors`: -1 means all.
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

/// Rules for sampling around the seeds.
#[derive(Clone, Debug)]
pub struct SampleConfig {
    /// One fan-out per hop, starting with the hop from the seeds. For [`Choice::Ladies`] and
    /// [`Choice::Hgt`] these are numbers of nodes.
    pub fan_outs: Vec<FanOut>,
    /// Fan-outs by type, in a graph with several types.
    pub types: Option<TypedFanOuts>,
    /// Whether an edge may be drawn several times.
    pub replace: bool,
    /// Rules in addition to the fan-outs.
    pub rules: Rules,
    /// Whether batches carry the ids of their edges.
    pub edge_ids: bool,
    /// Rejects a batch with more edges before allocating memory for it.
    pub most_edges: Option<u64>,
}

/// Fan-outs in a graph with several edge types. The number of hops equals the length of
/// [`SampleConfig::fan_outs`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedFanOuts {
    /// The types.
    pub schema: Arc<Schema>,
    /// One fan-out per hop for each edge type; for [`Choice::Hgt`] for each node type.
    pub of: Vec<Vec<FanOut>>,
}

/// A part of a hop: the edges of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Index of the edge type.
    pub edge_type: usize,
    pub fan_out: FanOut,
}

impl SampleConfig {
    /// The fan-outs of a hop, by type.
    pub(crate) fn fan_outs_of(&self, hop: usize) -> Vec<FanOut> {
        match &self.types {
            None => vec![self.fan_outs[hop]],
            Some(types) => types.of.iter().map(|of| of[hop]).collect(),
        }
    }

    /// The steps of a hop, in order: one for each edge type.
    pub(crate) fn steps(&self, hop: usize) -> Vec<Step> {
        let step = |(edge_type, fan_out)| Step { edge_type, fan_out };
        match &self.types {
            Some(types) if matches!(self.rules.choice, Choice::Hgt) => {
                let is_drawn = |node_type: usize| {
                    types.of[node_type][hop..].iter().any(|&count| count != FanOut::Take(0))
                };
                // If no later hop draws nodes of a type, the type needs no scores.
                let looked_at = |source| match is_drawn(source) {
                    true => FanOut::All,
                    false => FanOut::Take(0),
                };
                let sources = types.schema.edge_types().iter().map(|edge_type| edge_type.source);
                sources.map(looked_at).enumerate().map(step).collect()
            }
            _ => self.fan_outs_of(hop).into_iter().enumerate().map(step).collect(),
        }
    }

    /// All in-neighbours of the seeds in one hop, for layer-wise inference.
    pub fn full_neighbours() -> Self {
        Self {
            fan_outs: vec![FanOut::All],
            types: None,
            rules: Rules::default(),
            replace: false,
            edge_ids: false,
            most_edges: None,
        }
    }

    /// The most nodes that a batch of `seeds` seeds can hold in a graph of `nodes` nodes. If a hop
    /// takes all neighbours, this is `nodes` plus the seeds.
    ///
    /// # Example
    /// ```
    /// use outercore_sample::{FanOut, SampleConfig};
    /// let fan_outs = vec![FanOut::Take(15), FanOut::Take(10)];
    /// let config = SampleConfig { fan_outs, ..SampleConfig::full_neighbours() };
    /// assert_eq!(config.most_nodes(2, 1_000_000), 2 + 30 + 300);
    /// assert_eq!(config.most_nodes(2, 100), 102);
    /// ```
    pub fn most_nodes(&self, seeds: u64, nodes: u64) -> u64 {
        let (mut frontier, mut found) = (seeds, 0u64);
        for hop in 0..self.fan_outs.len() {
            let takers = match self.rules.choice {
                Choice::Ladies | Choice::Hgt => 1,
                _ => frontier,
            };
            let reached = self.fan_outs_of(hop).into_iter().map(|fan_out| match fan_out {
                FanOut::All => nodes,
                FanOut::Take(count) => takers.saturating_mul(u64::from(count)),
            });
            frontier = reached.fold(0, u64::saturating_add);
            found = found.saturating_add(frontier);
        }
        seeds.saturating_add(found.min(nodes))
    }
}
