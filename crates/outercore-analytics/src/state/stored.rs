//! The bytes of a partition's state.

use bytemuck::Pod;

/// Scratch files store each partition's state in whole pages.
pub const PAGE: u64 = 4096;

/// Bytes and bits of state per node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerNode {
    /// Bytes.
    pub bytes: u64,
    /// Number of sets of nodes, with one bit per node.
    pub sets: u64,
}

impl PerNode {
    /// Nothing.
    pub const NONE: Self = Self::new(0, 0);

    /// This number of bytes and bits.
    pub const fn new(bytes: u64, sets: u64) -> Self {
        Self { bytes, sets }
    }

    /// Bytes for `len` nodes.
    pub fn total(&self, len: u64) -> u64 {
        self.bytes * len + self.sets * 8 * len.div_ceil(64)
    }

    /// Bytes moved by reading or writing the state of `len` nodes.
    pub fn moved(&self, len: u64) -> u64 {
        self.total(len).next_multiple_of(PAGE)
    }
}

/// State of a partition's nodes that can be written and read column by column.
pub trait Stored: Send + Sync + Sized {
    /// A value of the same kind for `len` nodes, all zeros.
    fn like(&self, len: usize) -> Self;
    /// The bytes of the columns that are stored.
    fn columns(&self) -> Vec<&[u8]>;
    /// The bytes of the stored columns, for filling.
    fn columns_mut(&mut self) -> Vec<&mut [u8]>;
    /// Called after the columns have been filled: recomputes derived values.
    fn restored(&mut self, _partition: usize) {}
}

impl Stored for () {
    fn like(&self, _: usize) {}

    fn columns(&self) -> Vec<&[u8]> {
        Vec::new()
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        Vec::new()
    }
}

impl<T: Pod + Send + Sync> Stored for Vec<T> {
    fn like(&self, len: usize) -> Self {
        vec![T::zeroed(); len]
    }

    fn columns(&self) -> Vec<&[u8]> {
        vec![bytemuck::cast_slice(self)]
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        vec![bytemuck::cast_slice_mut(self)]
    }
}

impl<T: Stored> Stored for Option<T> {
    fn like(&self, len: usize) -> Self {
        self.as_ref().map(|value| value.like(len))
    }

    fn columns(&self) -> Vec<&[u8]> {
        self.as_ref().map_or_else(Vec::new, Stored::columns)
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        self.as_mut().map_or_else(Vec::new, Stored::columns_mut)
    }

    fn restored(&mut self, partition: usize) {
        self.as_mut().into_iter().for_each(|value| value.restored(partition));
    }
}

impl<A: Stored, B: Stored> Stored for (A, B) {
    fn like(&self, len: usize) -> Self {
        (self.0.like(len), self.1.like(len))
    }

    fn columns(&self) -> Vec<&[u8]> {
        let mut columns = self.0.columns();
        columns.extend(self.1.columns());
        columns
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        let mut columns = self.0.columns_mut();
        columns.extend(self.1.columns_mut());
        columns
    }

    fn restored(&mut self, partition: usize) {
        self.0.restored(partition);
        self.1.restored(partition);
    }
}

/// A set of local ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits(Vec<u64>);

impl Bits {
    /// An empty set for ids below `len`.
    pub fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// Whether the set contains `at`.
    #[inline(always)]
    pub fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    /// Adds `at` to the set.
    #[inline(always)]
    pub fn insert(&mut self, at: usize) {
        self.0[at / 64] |= 1 << (at % 64);
    }

    /// Number of ids in the set.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Removes all ids.
    pub fn clear(&mut self) {
        self.0.fill(0);
    }

    /// The ids in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(at, &word)| {
            let rest = |word: u64| (word != 0).then_some(word);
            std::iter::successors(rest(word), move |word| rest(word & (word - 1)))
                .map(move |word| at * 64 + word.trailing_zeros() as usize)
        })
    }
}

impl Stored for Bits {
    fn like(&self, len: usize) -> Self {
        Self::new(len)
    }

    fn columns(&self) -> Vec<&[u8]> {
        self.0.columns()
    }

    fn columns_mut(&mut self) -> Vec<&mut [u8]> {
        self.0.columns_mut()
    }
}
