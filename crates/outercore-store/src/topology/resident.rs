//! A topology in memory.

use outercore_core::{Bytes, EdgeId, Error, NodeId, Result};
use outercore_format::keys::{EDGE_IDS, OFFSETS, SOURCES};
use outercore_io::{Engine, prefetch_early};

use super::{Extent, Topology};
use crate::dataset::DataSet;
pub use crate::ids::Ids;
use crate::ids::{check_ids_len, check_sources, identity};
use crate::offsets::Offsets;

/// A [`Topology`] in memory, checked once when it is built.
///
/// **Cost** 4 bytes per column, or 8 from 2^32 edges; 4 or 8 bytes per edge, and twice that if edge
/// ids differ from positions.
///
/// # Example
/// ```
/// use outercore_store::resident::ResidentTopology;
/// use outercore_store::topology::{Extent, Topology};
/// // 1 -> 0, 2 -> 0, 0 -> 2
/// let graph = ResidentTopology::from_csc(vec![0, 2, 2, 3], vec![1u32, 2, 0], None)?;
/// let mut extents = [Extent::default()];
/// graph.extents(&[0], &mut extents)?;
/// assert_eq!(extents[0], Extent { start: 0, degree: 2 });
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[derive(Debug)]
pub struct ResidentTopology {
    nodes: u64,
    offsets: Offsets,
    sources: Ids,
    edge_ids: EdgeIds,
}

#[derive(Debug)]
enum EdgeIds {
    Stored(Ids),
    /// The id of an edge is its position.
    Positions,
    /// Edge ids are stored, but were not loaded.
    NotLoaded,
}

impl ResidentTopology {
    /// Reads the topology of a data set into memory; `edge_ids` includes the edge ids.
    ///
    /// **Cost** one pass over the arrays in large reads, and the memory of the result.
    ///
    /// # Errors
    /// A failed read; `Budget` if memory is short; `Corrupt` as for [`from_csc`](Self::from_csc).
    pub fn load(data_set: &DataSet, engine: &mut Engine, edge_ids: bool) -> Result<Self> {
        let sources = Ids::load(&data_set.array(SOURCES)?, engine)?;
        let offsets = Offsets::load(&data_set.array(OFFSETS)?, engine, sources.len() as u64)?;
        let edge_ids = match (data_set.has_array(EDGE_IDS), edge_ids) {
            (false, _) => EdgeIds::Positions,
            (true, false) => EdgeIds::NotLoaded,
            (true, true) => EdgeIds::Stored(Ids::load(&data_set.array(EDGE_IDS)?, engine)?),
        };
        Self::checked(data_set.num_nodes(), offsets, sources, edge_ids)
    }

    /// Creates a topology from its arrays, with one column per node.
    ///
    /// **Shapes** `offsets`: nodes + 1; `sources` and `ids`: one per edge. Without `ids`, the id of
    /// an edge is its position.
    ///
    /// # Errors
    /// `Corrupt`, with the array and the position: offsets that do not start at 0, decrease, or do
    /// not end at the number of edges; a source beyond the nodes; a wrong number of ids.
    pub fn from_csc(offsets: Vec<u64>, sources: impl Into<Ids>, ids: Option<Ids>) -> Result<Self> {
        let nodes = (offsets.len() as u64).saturating_sub(1);
        Self::from_columns(nodes, offsets, sources, ids)
    }

    /// As [`from_csc`](Self::from_csc), for a graph of `nodes` nodes whose columns are not its
    /// nodes.
    ///
    /// # Errors
    /// As [`from_csc`](Self::from_csc).
    pub fn from_columns(
        nodes: u64,
        offsets: Vec<u64>,
        sources: impl Into<Ids>,
        ids: Option<Ids>,
    ) -> Result<Self> {
        let sources = sources.into();
        let offsets = Offsets::new(offsets, sources.len() as u64)?;
        Self::checked(nodes, offsets, sources, ids.map_or(EdgeIds::Positions, EdgeIds::Stored))
    }

    fn checked(nodes: u64, offsets: Offsets, sources: Ids, edge_ids: EdgeIds) -> Result<Self> {
        match &sources {
            Ids::Narrow(sources) => check_sources(sources, 0, nodes)?,
            Ids::Wide(sources) => check_sources(sources, 0, nodes)?,
        }
        if let EdgeIds::Stored(ids) = &edge_ids {
            check_ids_len(ids.len() as u64, sources.len() as u64)?;
        }
        Ok(Self { nodes, offsets, sources, edge_ids })
    }

    /// An announcer, which prefetches data for later calls.
    pub fn announcer(&self) -> Announcer<'_> {
        Announcer {
            offsets: Elements::of(self.offsets.numbers()),
            sources: Elements::of(&self.sources),
        }
    }

    /// Bytes of memory for the offsets of a resident topology.
    pub fn offsets_memory(columns: u64, edges: u64) -> Bytes {
        Offsets::memory_of(columns, edges)
    }

    /// Bytes of memory taken.
    pub fn memory(&self) -> Bytes {
        let ids = match &self.edge_ids {
            EdgeIds::Stored(ids) => ids.heap_bytes(),
            EdgeIds::Positions | EdgeIds::NotLoaded => 0,
        };
        Bytes(self.offsets.memory().0 + (self.sources.heap_bytes() + ids) as u64)
    }
}

/// Prefetch hints to the processor for a topology in memory. They change no result and ignore ids
/// out of range. The default gives no hints.
///
/// Loops hold it by value, so that its pointers stay in registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announcer<'a> {
    offsets: Elements<'a>,
    sources: Elements<'a>,
}

/// An array with elements of 4 or 8 bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Elements<'a> {
    bytes: &'a [u8],
    /// An element has `1 << shift` bytes.
    shift: u32,
}

impl<'a> Elements<'a> {
    fn of(ids: &'a Ids) -> Self {
        let (bytes, size) = match ids {
            Ids::Narrow(ids) => (bytemuck::cast_slice(ids), size_of::<u32>()),
            Ids::Wide(ids) => (bytemuck::cast_slice(ids), size_of::<u64>()),
        };
        Self { bytes, shift: size.trailing_zeros() }
    }

    #[inline(always)]
    fn announce(self, index: u64) {
        prefetch_early(self.bytes, (index as usize) << self.shift);
    }
}

impl Announcer<'_> {
    /// Prefetches for a later call of [`extents`](Topology::extents) with `column`.
    #[inline(always)]
    pub fn extent(self, column: NodeId) {
        self.offsets.announce(column);
    }

    /// Prefetches for a later call of [`sources`](Topology::sources) with `position`.
    #[inline(always)]
    pub fn source(self, position: u64) {
        self.sources.announce(position);
    }
}

impl Topology for ResidentTopology {
    fn num_nodes(&self) -> u64 {
        self.nodes
    }

    fn num_columns(&self) -> u64 {
        self.offsets.num_columns()
    }

    fn num_edges(&self) -> u64 {
        self.sources.len() as u64
    }

    fn extents(&self, columns: &[NodeId], extents: &mut [Extent]) -> Result<()> {
        self.offsets.extents(columns, extents)
    }

    fn sources(&self, positions: &[u64], sources: &mut [NodeId]) -> Result<()> {
        self.sources.gather(positions, sources)
    }

    fn edge_ids(&self, positions: &[u64], ids: &mut [EdgeId]) -> Result<()> {
        match &self.edge_ids {
            EdgeIds::Stored(stored) => stored.gather(positions, ids),
            EdgeIds::Positions => identity(positions, self.num_edges(), ids),
            EdgeIds::NotLoaded => {
                Err(Error::internal("edge ids are asked for but were not loaded"))
            }
        }
    }

    fn resident(&self) -> Option<&ResidentTopology> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outercore_core::ErrorKind;

    #[track_caller]
    fn refused(offsets: Vec<u64>, sources: Vec<u64>, ids: Option<Vec<u32>>, expected: &str) {
        let found = ResidentTopology::from_csc(offsets, sources, ids.map(Ids::from)).unwrap_err();
        assert_eq!(found.kind(), ErrorKind::Corrupt);
        assert!(found.to_string().contains(expected), "{found}");
    }

    #[test]
    fn damaged_arrays_are_refused_with_array_and_position() {
        refused(vec![], vec![], None, "`edges/edge/offsets`: is empty");
        refused(vec![1, 2], vec![0, 0], None, "`edges/edge/offsets`: position 0 holds 1");
        refused(vec![0, 2, 1], vec![0], None, "`edges/edge/offsets`: position 2 holds 1");
        refused(vec![0, 1, 1], vec![0, 1], None, "`edges/edge/offsets`: position 2 holds 1");
        refused(vec![0, 2, 2], vec![1, 2], None, "`edges/edge/sources`: position 1 holds 2");
        refused(vec![0, 2, 2], vec![1, 0], Some(vec![0]), "`edges/edge/ids`: has 1 ids");
    }

    #[test]
    fn narrow_offsets_and_sources_take_four_bytes() {
        let graph = ResidentTopology::from_csc(vec![0, 2], vec![0u32, 0], None).unwrap();
        assert_eq!(graph.memory(), Bytes(16));
    }

    #[test]
    fn announcing_changes_nothing_and_takes_any_number() {
        for sources in [Ids::Narrow(vec![1, 0]), Ids::Wide(vec![1, 0])] {
            let graph = ResidentTopology::from_csc(vec![0, 2, 2], sources, None).unwrap();
            for number in [0, 1, 2, 1 << 33, 1 << 62, u64::MAX] {
                graph.announcer().source(number);
                graph.announcer().extent(number);
            }
            let mut sources = [7; 2];
            graph.sources(&[1, 0], &mut sources).unwrap();
            assert_eq!(sources, [0, 1]);
        }
    }

    #[test]
    fn ids_are_the_same_at_either_width() {
        let (narrow, wide) = (Ids::from(vec![3u32, 1]), Ids::from(vec![3u64, 1]));
        assert!(narrow.iter().eq([3, 1]) && wide.iter().eq([3, 1]));
        assert_eq!((narrow.len(), wide.len()), (2, 2));
        assert!(Ids::default().is_empty());
    }
}
