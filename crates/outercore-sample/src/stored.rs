//! Node ids in the width in which a batch stores them.

use outercore_core::NodeId;
use outercore_store::resident::Ids;

/// Graphs with more nodes have 64-bit ids. Up to this number, 32-bit ids are valid as signed
/// numbers too.
pub(crate) const MOST_NARROW: u64 = 1 << 31;

/// A node id as a batch stores it.
pub(crate) trait Stored: Copy + Default + Eq + Into<NodeId> + Send + Sync {
    /// The id of a node, which fits.
    fn of(node: NodeId) -> Self;

    /// The memory of `ids`, if it has this width.
    fn memory(ids: Ids) -> Option<Vec<Self>>;

    fn ids(stored: Vec<Self>) -> Ids;
}

impl Stored for u32 {
    #[inline(always)]
    fn of(node: NodeId) -> Self {
        node as Self
    }

    fn memory(ids: Ids) -> Option<Vec<Self>> {
        if let Ids::Narrow(ids) = ids { Some(ids) } else { None }
    }

    fn ids(stored: Vec<Self>) -> Ids {
        stored.into()
    }
}

impl Stored for u64 {
    #[inline(always)]
    fn of(node: NodeId) -> Self {
        node
    }

    fn memory(ids: Ids) -> Option<Vec<Self>> {
        if let Ids::Wide(ids) = ids { Some(ids) } else { None }
    }

    fn ids(stored: Vec<Self>) -> Ids {
        stored.into()
    }
}
