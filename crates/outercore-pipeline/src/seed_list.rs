//! The seeds of an epoch, and their division into batches.

use std::ops::Range;
use std::sync::Arc;

use outercore_core::{Error, NodeId, Result};

use crate::config::LoaderConfig;
use crate::share::Share;

/// The nodes whose neighbourhoods are sampled.
#[derive(Clone, Debug)]
pub enum Input {
    /// All nodes, or all nodes of a type, in order.
    All(Range<NodeId>),
    /// A list, in its order; repeated nodes are allowed.
    Nodes(Arc<Vec<NodeId>>),
}

impl Input {
    /// Number of seeds in an epoch.
    pub fn len(&self) -> u64 {
        match self {
            Self::All(nodes) => nodes.end - nodes.start,
            Self::Nodes(nodes) => nodes.len() as u64,
        }
    }

    fn node(&self, place: u64) -> NodeId {
        match self {
            Self::All(nodes) => nodes.start + place,
            Self::Nodes(nodes) => nodes[place as usize],
        }
    }
}

/// Seeds divided into batches, with times if rules need them.
#[derive(Clone, Debug)]
pub struct SeedList {
    input: Input,
    /// Times by place in the input; empty without times.
    times: Arc<Vec<i64>>,
    cut: Cut,
}

/// Division of seeds into batches.
#[derive(Clone, Debug)]
enum Cut {
    /// Batches of one size, shared between ranks.
    Even(Share),
    /// The start of each batch and the end of the last one; and the number of the first batch.
    At(Arc<Vec<u64>>, u64),
}

impl SeedList {
    /// Batches according to the configuration.
    ///
    /// # Errors
    /// `Invalid` if the seeds are too few to give every rank a non-empty batch.
    pub fn even(input: Input, times: Vec<i64>, config: &LoaderConfig) -> Result<Self> {
        let cut = Cut::Even(Share::new(input.len(), config)?);
        Ok(Self { input, times: Arc::new(times), cut })
    }

    /// Batch `i` gets the seeds from `bounds[i]` to `bounds[i + 1]`, and the number `first + i`,
    /// which is a coordinate of its randomness.
    ///
    /// # Errors
    /// `Invalid`: bounds that do not ascend from 0 to the number of seeds, or a wrong number of
    /// times.
    pub fn at(nodes: Vec<NodeId>, times: Vec<i64>, bounds: Vec<u64>, first: u64) -> Result<Self> {
        let ascends = bounds.is_sorted() && bounds.first() == Some(&0);
        if !ascends || bounds.last() != Some(&(nodes.len() as u64)) {
            return Err(Error::invalid("bounds of batches that do not cover the seeds"));
        }
        if !times.is_empty() && times.len() != nodes.len() {
            let (found, expected) = (times.len(), nodes.len());
            return Err(Error::invalid(format!("{found} times of {expected} seeds")));
        }
        let cut = Cut::At(Arc::new(bounds), first);
        Ok(Self { input: Input::Nodes(Arc::new(nodes)), times: Arc::new(times), cut })
    }

    /// The same seeds with other times.
    ///
    /// # Errors
    /// `Invalid`: a wrong number of times.
    pub fn with_times(self, times: Vec<i64>) -> Result<Self> {
        if times.len() as u64 != self.count() {
            let (found, expected) = (times.len(), self.count());
            return Err(Error::invalid(format!("{found} times of {expected} seeds")));
        }
        Ok(Self { times: Arc::new(times), ..self })
    }

    /// Number of seeds.
    pub fn count(&self) -> u64 {
        self.input.len()
    }

    /// Whether seeds have times.
    pub fn has_times(&self) -> bool {
        !self.times.is_empty()
    }

    /// Bytes of memory of seeds and times.
    pub fn heap_bytes(&self) -> u64 {
        let nodes = match &self.input {
            Input::All(_) => 0,
            Input::Nodes(nodes) => nodes.len() as u64 * 8,
        };
        nodes + self.times.len() as u64 * 8
    }

    /// Batches per epoch.
    pub fn num_batches(&self) -> u64 {
        match &self.cut {
            Cut::Even(share) => share.num_batches(),
            Cut::At(bounds, _) => bounds.len() as u64 - 1,
        }
    }

    /// Places of the seeds of a batch in the order of the epoch.
    pub fn places(&self, batch: u64) -> Range<u64> {
        match &self.cut {
            Cut::Even(share) => share.places(batch),
            Cut::At(bounds, _) => bounds[batch as usize]..bounds[batch as usize + 1],
        }
    }

    /// Number of a batch, a coordinate of its randomness.
    pub fn number(&self, batch: u64) -> u64 {
        match &self.cut {
            Cut::Even(share) => share.number(batch),
            Cut::At(_, first) => first + batch,
        }
    }

    /// All seeds, in the order of the input.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.count()).map(|place| self.input.node(place))
    }

    /// The seeds at `places`, and their times.
    pub fn at_places(&self, places: &[u64]) -> (Vec<NodeId>, Vec<i64>) {
        let nodes = places.iter().map(|&place| self.input.node(place)).collect();
        if self.times.is_empty() {
            return (nodes, Vec::new());
        }
        (nodes, places.iter().map(|&place| self.times[place as usize]).collect())
    }
}
