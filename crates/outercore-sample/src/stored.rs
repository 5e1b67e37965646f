//! Node ids at the width in which a batch stores them.

use outercore_core::NodeId;
use outercore_store::resident::Ids;

/// Graphs with more nodes have ids of 64 bits. With these, ids of 32 bits may be taken for signed.
pub(crate) const MOST_NARROW: u64 = 1 << 31;

/// A node id as a batch stores it.
pub(crate) trait Stored: Copy + Default + Eq + Into<NodeId> + Send + Sync {
    /// The id of a node, which fits.
    fn of(node: NodeId) -> Self;

    /// No ids, in the memory of `ids` where it has the width.
    fn none(ids: Ids) -> Vec<Self>;

    fn ids(stored: Vec<Self>) -> Ids;
}

impl Stored for u32 {
    #[inline(always)]
    fn of(node: NodeId) -> Self {
        node as Self
    }

    fn none(ids: Ids) -> Vec<Self> {
        match ids {
            Ids::Narrow(mut ids) => {
                ids.clear();
                ids
            }
            Ids::Wide(_) => Vec::new(),
        }
    }

    fn ids(stored: Vec<Self>) -> Ids {
        Ids::Narrow(stored)
    }
}

impl Stored for u64 {
    #[inline(always)]
    fn of(node: NodeId) -> Self {
        node
    }

    fn none(ids: Ids) -> Vec<Self> {
        match ids {
            Ids::Wide(mut ids) => {
                ids.clear();
                ids
            }
            Ids::Narrow(_) => Vec::new(),
        }
    }

    fn ids(stored: Vec<Self>) -> Ids {
        Ids::Wide(stored)
    }
}
