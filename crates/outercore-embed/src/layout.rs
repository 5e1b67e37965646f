//! Maps nodes to partitions, and partitions to memory and disk.

use outercore_core::{Bytes, Error, Result, Stream};
use serde::{Deserialize, Serialize};

use crate::order::MAX_PARTITIONS;

/// Partitions begin at multiples of this, in memory and on disk.
pub const PAGE: usize = 4096;

/// Maps nodes to partitions: nodes are shuffled, then divided into ranges of equal length.
///
/// The shuffle gives every partition its share of nodes with many edges. The mapping is a function
/// of three numbers; nothing is stored.
///
/// # Example
/// ```
/// use outercore_embed::Partitioning;
/// let dealt = Partitioning::new(1000, 8, 7)?;
/// let place = dealt.place_of(42);
/// assert_eq!(dealt.node_at(place.partition, place.row), 42);
/// assert_eq!(dealt.rows(0), 125);
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PartitioningFields")]
pub struct Partitioning {
    nodes: u64,
    partitions: usize,
    seed: u64,
}

/// An unchecked [`Partitioning`], as read from a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartitioningFields {
    nodes: u64,
    partitions: usize,
    seed: u64,
}

impl TryFrom<PartitioningFields> for Partitioning {
    type Error = Error;

    fn try_from(fields: PartitioningFields) -> Result<Self> {
        Self::new(fields.nodes, fields.partitions, fields.seed)
    }
}

/// Place of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its partition.
    pub partition: usize,
    /// Its row in the partition.
    pub row: u64,
}

impl Partitioning {
    /// `nodes` nodes in `partitions` partitions, whose lengths differ by at most one row.
    ///
    /// # Errors
    /// `Invalid`: no partitions, more than [`MAX_PARTITIONS`], or more partitions than nodes.
    pub fn new(nodes: u64, partitions: usize, seed: u64) -> Result<Self> {
        if partitions == 0 || partitions > MAX_PARTITIONS || partitions as u64 > nodes {
            let most = nodes.min(MAX_PARTITIONS as u64);
            return Err(Error::invalid(format!(
                "partitions of {nodes} nodes: expected 1 to {most}, found {partitions}"
            ))
            .hint("every partition needs a node; sixteen to sixty-four are usual"));
        }
        Ok(Self { nodes, partitions, seed })
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        self.partitions
    }

    /// Number of nodes in a partition. The first partitions may have one node more than the others.
    pub fn rows(&self, partition: usize) -> u64 {
        let (each, longer) = self.lengths();
        each + u64::from((partition as u64) < longer)
    }

    /// Number of nodes in the largest partition.
    pub fn most_rows(&self) -> u64 {
        self.rows(0)
    }

    /// The place of `node`.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn place_of(&self, node: u64) -> Place {
        self.dealer().place_of(node)
    }

    /// The node at a place.
    ///
    /// # Panics
    /// If the place does not exist.
    pub fn node_at(&self, partition: usize, row: u64) -> u64 {
        self.dealer().node_at(partition, row)
    }

    /// The nodes of a partition, in row order.
    ///
    /// # Panics
    /// If the partition does not exist.
    pub fn nodes_of(&self, partition: usize) -> impl Iterator<Item = u64> + use<> {
        let dealer = self.dealer();
        (0..self.rows(partition)).map(move |row| dealer.node_at(partition, row))
    }

    /// A dealer: the same mapping, faster for many nodes.
    pub fn dealer(&self) -> Dealer {
        let (each, longer) = self.lengths();
        Dealer { ranks: Shuffle::new(self.nodes, self.seed), each, longer }
    }

    /// Length of the shortest partition, and the number of partitions with one node more.
    fn lengths(&self) -> (u64, u64) {
        let partitions = self.partitions as u64;
        (self.nodes / partitions, self.nodes % partitions)
    }
}

/// Maps nodes to places and places to nodes.
#[derive(Clone, Copy, Debug)]
pub struct Dealer {
    ranks: Shuffle,
    each: u64,
    longer: u64,
}

impl Dealer {
    /// The place of `node`.
    ///
    /// # Panics
    /// If the node does not exist.
    pub fn place_of(&self, node: u64) -> Place {
        let rank = self.ranks.place_of(node);
        let long = self.each + 1;
        let (partition, row) = if rank < self.longer * long {
            (rank / long, rank % long)
        } else {
            let rest = rank - self.longer * long;
            (self.longer + rest / self.each, rest % self.each)
        };
        Place { partition: partition as usize, row }
    }

    /// The node at a place.
    ///
    /// # Panics
    /// If the place does not exist.
    pub fn node_at(&self, partition: usize, row: u64) -> u64 {
        let partition = partition as u64;
        let rows = self.each + u64::from(partition < self.longer);
        assert!(row < rows, "row {row} of a partition of {rows}");
        self.ranks.at(partition * self.each + partition.min(self.longer) + row)
    }
}

/// A permutation of `0..len` in constant memory, fast enough to map both ends of every edge. It
/// applies additions, multiplications and shifts on the next power of two, and repeats them until
/// the result is in range.
///
/// Less random than [`outercore_core::Permutation`], but fifty times as fast. That is enough to
/// make partitions similar.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    len: u64,
    mask: u64,
    shift: u32,
    rounds: [Round; 4],
}

#[derive(Clone, Copy, Debug)]
struct Round {
    add: u64,
    /// Odd, so that the multiplication modulo a power of two is invertible.
    factor: u64,
    inverse: u64,
}

impl Shuffle {
    pub(crate) fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let mut draws = Stream::new(seed, u64::MAX).uniform(0, 0, 0);
        let rounds = [0; 4].map(|_| {
            let (add, factor) = (draws.next_u64(), draws.next_u64() | 1);
            // Newton's method doubles the number of correct bits in every step. It starts with
            // three, because an odd number is its own inverse modulo 8.
            let refine = |inverse: u64| {
                inverse.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(inverse)))
            };
            Round { add, factor, inverse: (0..5).fold(factor, |inverse, _| refine(inverse)) }
        });
        let mask = u64::MAX.checked_shr(u64::BITS - bits).unwrap_or(0);
        Self { len, mask, shift: bits.div_ceil(2).max(1), rounds }
    }

    pub(crate) fn at(&self, place: u64) -> u64 {
        assert!(place < self.len, "place {place} of {}", self.len);
        self.walk(place, |value| {
            self.rounds.iter().fold(value, |value, round| {
                let value = value.wrapping_add(round.add).wrapping_mul(round.factor) & self.mask;
                value ^ value >> self.shift
            })
        })
    }

    fn place_of(&self, element: u64) -> u64 {
        assert!(element < self.len, "element {element} of {}", self.len);
        self.walk(element, |value| {
            self.rounds.iter().rev().fold(value, |value, round| {
                let value = value ^ value >> self.shift;
                value.wrapping_mul(round.inverse).wrapping_sub(round.add) & self.mask
            })
        })
    }

    fn walk(&self, start: u64, step: impl Fn(u64) -> u64) -> u64 {
        let mut value = step(start);
        while value >= self.len {
            value = step(value);
        }
        value
    }
}

/// Shape of a table's partitions, the same in memory and on disk.
///
/// A partition holds embeddings, float32 `[rows, dim]`, followed by the optimiser's state, float32
/// `[rows, state_width]`. Padding rows make both parts whole pages. So slots are adjacent without
/// gaps: the embeddings of all slots form one array `[slots x rows, dim]`, and their state forms
/// another.
///
/// # Example
/// ```
/// use outercore_embed::{Partitioning, TableLayout};
/// let layout = TableLayout::new(Partitioning::new(10_000, 4, 0)?, 64, 1)?;
/// assert_eq!((layout.partitioning().most_rows(), layout.slot_rows()), (2500, 3072));
/// assert_eq!(layout.partition_bytes().0, 3072 * (64 + 1) * 4);
/// # Ok::<(), outercore_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "LayoutFields")]
pub struct TableLayout {
    partitioning: Partitioning,
    dim: u32,
    state_width: u32,
}

/// An unchecked [`TableLayout`], as read from a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LayoutFields {
    partitioning: Partitioning,
    dim: u32,
    state_width: u32,
}

impl TryFrom<LayoutFields> for TableLayout {
    type Error = Error;

    fn try_from(fields: LayoutFields) -> Result<Self> {
        Self::new(fields.partitioning, fields.dim as usize, fields.state_width as usize)
    }
}

impl TableLayout {
    /// Largest width; larger values are mistakes.
    const MAX_WIDTH: usize = 1 << 16;

    /// Rows of `dim` values, with `state_width` values of optimiser state each.
    ///
    /// # Errors
    /// `Invalid`: rows of no values or too many.
    pub fn new(partitioning: Partitioning, dim: usize, state_width: usize) -> Result<Self> {
        if dim == 0 || dim > Self::MAX_WIDTH || state_width > Self::MAX_WIDTH {
            return Err(Error::invalid(format!(
                "rows of {dim} numbers and {state_width} of state: expected 1 to {} and 0 to {}",
                Self::MAX_WIDTH,
                Self::MAX_WIDTH
            )));
        }
        Ok(Self { partitioning, dim: dim as u32, state_width: state_width as u32 })
    }

    /// Mapping of nodes to partitions.
    pub fn partitioning(&self) -> Partitioning {
        self.partitioning
    }

    /// Dimensions of an embedding.
    pub fn dim(&self) -> usize {
        self.dim as usize
    }

    /// Values of optimiser state per row.
    pub fn state_width(&self) -> usize {
        self.state_width as usize
    }

    /// Rows of a slot: the rows of the largest partition, plus padding.
    pub fn slot_rows(&self) -> u64 {
        let most = self.partitioning.most_rows();
        slot_rows_of(most, self.dim.into(), self.state_width.into())
    }

    /// Bytes of a partition's embeddings.
    pub fn embedding_bytes(&self) -> Bytes {
        Bytes(self.slot_rows() * u64::from(self.dim) * 4)
    }

    /// Bytes of a partition's optimiser state.
    pub fn state_bytes(&self) -> Bytes {
        Bytes(self.slot_rows() * u64::from(self.state_width) * 4)
    }

    /// Bytes of a partition: a swap reads and writes this much.
    pub fn partition_bytes(&self) -> Bytes {
        Bytes(self.embedding_bytes().0 + self.state_bytes().0)
    }
}

/// Rows of a slot for `rows` nodes, given the widths of both parts.
pub(crate) fn slot_rows_of(rows: u64, dim: u64, state_width: u64) -> u64 {
    rows.next_multiple_of(rows_of_pages(dim).max(rows_of_pages(state_width)))
}

/// The smallest number of rows of `width` float32 values that fills whole pages; a power of two.
fn rows_of_pages(width: u64) -> u64 {
    let page = PAGE as u64 / 4;
    page >> width.trailing_zeros().min(page.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nodes_fill_the_partitions_evenly_and_come_back() {
        for (nodes, partitions) in [(1, 1), (2, 1), (7, 7), (10, 3), (64, 8), (1001, 16)] {
            let dealt = Partitioning::new(nodes, partitions, 3).unwrap();
            let mut found = vec![0; partitions];
            for node in 0..nodes {
                let Place { partition, row } = dealt.place_of(node);
                assert!(row < dealt.rows(partition));
                assert_eq!(dealt.node_at(partition, row), node);
                found[partition] += 1;
            }
            for partition in 0..partitions {
                for (row, node) in (0..).zip(dealt.nodes_of(partition)) {
                    assert_eq!(dealt.place_of(node), Place { partition, row });
                }
            }
            let rows: Vec<u64> = (0..partitions).map(|p| dealt.rows(p)).collect();
            assert_eq!(found, rows, "{nodes} nodes in {partitions}");
            assert!(rows[0] - rows[partitions - 1] <= 1);
        }
    }

    #[test]
    fn other_seeds_deal_otherwise() {
        let [a, b] = [1, 2].map(|seed| Partitioning::new(1000, 4, seed).unwrap());
        let same = (0..1000).filter(|&n| a.place_of(n).partition == b.place_of(n).partition);
        assert!((150..350).contains(&same.count()));
    }

    #[test]
    fn neighbours_in_number_are_spread_over_all_partitions() {
        for nodes in [5_000, 65_536, 70_001] {
            let dealer = Partitioning::new(nodes, 10, 1).unwrap().dealer();
            for first in [0, 1000, nodes - 1000] {
                let mut found = [0; 10];
                (first..first + 1000).for_each(|node| found[dealer.place_of(node).partition] += 1);
                let even = found.iter().all(|count| (50..160).contains(count));
                assert!(even, "{found:?} of {nodes} from {first}");
            }
        }
    }

    #[test]
    fn partitions_without_nodes_and_rows_without_numbers_are_refused() {
        for (nodes, partitions) in [(5, 0), (5, 6), (0, 1), (10_000, MAX_PARTITIONS + 1)] {
            let error = Partitioning::new(nodes, partitions, 0).unwrap_err().to_string();
            assert!(error.contains(&format!("found {partitions}")), "{error}");
        }
        let dealt = Partitioning::new(5, 2, 0).unwrap();
        for (dim, state) in [(0, 1), (1 << 20, 1), (1, 1 << 20)] {
            TableLayout::new(dealt, dim, state).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn both_parts_of_a_partition_are_whole_pages(
            nodes in 1u64..1_000_000, dim in 1usize..500, state in 0usize..500,
        ) {
            let layout = TableLayout::new(Partitioning::new(nodes, 1, 0).unwrap(), dim, state).unwrap();
            prop_assert_eq!(layout.embedding_bytes().0 % PAGE as u64, 0);
            prop_assert_eq!(layout.state_bytes().0 % PAGE as u64, 0);
            prop_assert!(layout.slot_rows() >= nodes && layout.slot_rows() < nodes + 1024);
        }
    }
}
