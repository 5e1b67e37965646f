//! Start nodes of searches.

use outercore_core::Result;

use crate::program::Passes;

/// The nodes at which a search begins.
pub(crate) struct Starts {
    /// Partition and local id of the start nodes with arcs, ascending.
    places: Vec<(usize, usize)>,
    /// Number of start nodes without arcs: they reach themselves, and the caller must enter them.
    pub(crate) isolated: u64,
}

impl Starts {
    /// The nodes of `sources`, each once.
    pub(crate) fn new<R: Passes>(run: &mut R, sources: &[u64]) -> Result<Self> {
        let mut nodes = sources.to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        let mut places: Vec<_> = run.place(&nodes)?.into_iter().flatten().collect();
        places.sort_unstable();
        let isolated = (nodes.len() - places.len()) as u64;
        Ok(Self { places, isolated })
    }

    /// Number of start nodes.
    pub(crate) fn count(&self) -> u64 {
        self.places.len() as u64 + self.isolated
    }

    /// The local ids of the start nodes in a partition.
    pub(crate) fn of(&self, partition: usize) -> impl Iterator<Item = usize> + '_ {
        let first = self.places.partition_point(|place| place.0 < partition);
        let here = self.places[first..].iter().take_while(move |place| place.0 == partition);
        here.map(|place| place.1)
    }

    /// For each partition, whether it has start nodes.
    pub(crate) fn active(&self, partitions: usize) -> Vec<bool> {
        (0..partitions).map(|partition| self.of(partition).next().is_some()).collect()
    }
}
