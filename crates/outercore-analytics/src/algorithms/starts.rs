//! Where searches begin.

use outercore_core::Result;

use crate::program::Passes;

/// The nodes at which a search begins.
pub(crate) struct Starts {
    /// Partition and local id of those with arcs, ascending.
    places: Vec<(usize, usize)>,
    /// How many have none: they reach themselves, which is the caller's to enter.
    pub(crate) isolated: u64,
}

impl Starts {
    /// Those of `sources`, each once.
    pub(crate) fn new<R: Passes>(run: &mut R, sources: &[u64]) -> Result<Self> {
        let mut nodes = sources.to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        let mut places: Vec<_> = run.place(&nodes)?.into_iter().flatten().collect();
        places.sort_unstable();
        let isolated = (nodes.len() - places.len()) as u64;
        Ok(Self { places, isolated })
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.places.len() as u64 + self.isolated
    }

    /// The local ids of those in a partition.
    pub(crate) fn of(&self, partition: usize) -> impl Iterator<Item = usize> + '_ {
        let first = self.places.partition_point(|place| place.0 < partition);
        let here = self.places[first..].iter().take_while(move |place| place.0 == partition);
        here.map(|place| place.1)
    }

    /// By partition, whether there are any.
    pub(crate) fn active(&self, partitions: usize) -> Vec<bool> {
        (0..partitions).map(|partition| self.of(partition).next().is_some()).collect()
    }
}
