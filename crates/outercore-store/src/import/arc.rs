use bytemuck::Pod;

/// An arc during an import: target, source and edge id, compared in this order.
///
/// Two widths: 12 bytes if nodes and edge ids stay below 2^32, otherwise 24.
pub(crate) trait Arc: Pod + Ord + Send {
    /// An arc without its target: source and edge id, compared in this order.
    type Entry: Pod + Ord + Send;

    fn new(target: u64, source: u64, id: u64) -> Self;
    fn target(&self) -> u64;
    fn entry(&self) -> Self::Entry;
    /// Source and edge id.
    fn open(entry: Self::Entry) -> (u64, u64);
}

/// An arc with nodes and edge ids below 2^32.
pub(crate) type Narrow = [u32; 3];

/// An arc of any graph.
pub(crate) type Wide = [u64; 3];

impl Arc for Narrow {
    type Entry = u64;

    #[inline(always)]
    fn new(target: u64, source: u64, id: u64) -> Self {
        debug_assert!(target.max(source).max(id) <= u64::from(u32::MAX));
        [target as u32, source as u32, id as u32]
    }

    #[inline(always)]
    fn target(&self) -> u64 {
        u64::from(self[0])
    }

    #[inline(always)]
    fn entry(&self) -> u64 {
        u64::from(self[1]) << 32 | u64::from(self[2])
    }

    #[inline(always)]
    fn open(entry: u64) -> (u64, u64) {
        (entry >> 32, entry & u64::from(u32::MAX))
    }
}

impl Arc for Wide {
    type Entry = [u64; 2];

    #[inline(always)]
    fn new(target: u64, source: u64, id: u64) -> Self {
        [target, source, id]
    }

    #[inline(always)]
    fn target(&self) -> u64 {
        self[0]
    }

    #[inline(always)]
    fn entry(&self) -> [u64; 2] {
        [self[1], self[2]]
    }

    #[inline(always)]
    fn open(entry: [u64; 2]) -> (u64, u64) {
        (entry[0], entry[1])
    }
}
