//! Which node lies in which partition, and where a partition lies in memory and on disk.

use outercore_core::{Bytes, Error, Result, Stream};
use serde::{Deserialize, Serialize};

use crate::order::MAX_PARTITIONS;

/// Partitions begin, in memory and on disk, at multiples of this.
pub const PAGE: usize = 4096;

/// Which node lies in which partition: nodes are shuffled, then cut into ranges of the same length.
///
/// Shuffled, so that every partition has its share of the nodes with many edges. A function of
/// three numbers; nothing is stored.
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

/// A [`Partitioning`] as it is read: any numbers.
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

/// Where a node lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which partition.
    pub partition: usize,
    /// Which row of it.
    pub row: u64,
}

impl Partitioning {
    /// `nodes` nodes in `partitions` partitions whose lengths differ by one row at most.
    ///
    /// # Errors
    /// `Invalid`: no partition, more than [`MAX_PARTITIONS`], or more than there are nodes.
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

    /// Nodes of a partition. The first ones may have one more than the others.
    pub fn rows(&self, partition: usize) -> u64 {
        let (each, longer) = self.lengths();
        each + u64::from((partition as u64) < longer)
    }

    /// Nodes of the longest partition.
    pub fn most_rows(&self) -> u64 {
        self.rows(0)
    }

    /// Where `node` lies.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn place_of(&self, node: u64) -> Place {
        self.dealer().place_of(node)
    }

    /// The node at a place.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn node_at(&self, partition: usize, row: u64) -> u64 {
        self.dealer().node_at(partition, row)
    }

    /// The nodes of a partition, row by row.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn nodes_of(&self, partition: usize) -> impl Iterator<Item = u64> + use<> {
        let dealer = self.dealer();
        (0..self.rows(partition)).map(move |row| dealer.node_at(partition, row))
    }

    /// The same, for many nodes.
    pub fn dealer(&self) -> Dealer {
        let (each, longer) = self.lengths();
        Dealer { ranks: Shuffle::new(self.nodes, self.seed), each, longer }
    }

    /// Least length of a partition, and how many have one node more.
    fn lengths(&self) -> (u64, u64) {
        let partitions = self.partitions as u64;
        (self.nodes / partitions, self.nodes % partitions)
    }
}

/// Finds places of nodes and nodes of places.
#[derive(Clone, Copy, Debug)]
pub struct Dealer {
    ranks: Shuffle,
    each: u64,
    longer: u64,
}

impl Dealer {
    /// Where `node` lies.
    ///
    /// # Panics
    /// If there is no such node.
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
    /// If there is no such place.
    pub fn node_at(&self, partition: usize, row: u64) -> u64 {
        let partition = partition as u64;
        let rows = self.each + u64::from(partition < self.longer);
        assert!(row < rows, "row {row} of a partition of {rows}");
        self.ranks.at(partition * self.each + partition.min(self.longer) + row)
    }
}

/// A permutation of `0..len` in constant memory, cheap enough to be asked for both ends of every
/// edge: additions, multiplications and shifts on the next power of two, again and again until the
/// number is in range.
///
/// Coarser than [`outercore_core::Permutation`], which is fifty times as slow: partitions need only
/// be alike.
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
    /// Odd, so that multiplying by it modulo a power of two can be undone.
    factor: u64,
    inverse: u64,
}

impl Shuffle {
    pub(crate) fn new(len: u64, seed: u64) -> Self {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let mut draws = Stream::new(seed, u64::MAX).uniform(0, 0, 0);
        let rounds = [0; 4].map(|_| {
            let (add, factor) = (draws.next_u64(), draws.next_u64() | 1);
            // Newton's method: every step doubles the bits that are right, of which an odd number
            // has three by being its own inverse modulo 8.
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

/// Shape of the partitions of a table: the same in memory and on disk.
///
/// A partition is its embeddings, float32 `[rows, dim]`, and then what the optimiser remembers,
/// float32 `[rows, state_width]`. Rows are added until both parts are whole pages. So slots lie
/// side by side without a gap: all slots' embeddings are one array `[slots x rows, dim]`, and what
/// the optimiser remembers is another.
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

/// A [`TableLayout`] as it is read: any numbers.
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
    /// Widths above this are a mistake.
    const MAX_WIDTH: usize = 1 << 16;

    /// Rows of `dim` numbers with `state_width` numbers that the optimiser remembers of each.
    ///
    /// # Errors
    /// `Invalid`: no numbers or too many in a row.
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

    /// Which node lies where.
    pub fn partitioning(&self) -> Partitioning {
        self.partitioning
    }

    /// Numbers of a row.
    pub fn dim(&self) -> usize {
        self.dim as usize
    }

    /// Numbers that the optimiser remembers of a row.
    pub fn state_width(&self) -> usize {
        self.state_width as usize
    }

    /// Rows of a slot: those of the longest partition, and some that belong to no node.
    pub fn slot_rows(&self) -> u64 {
        let most = self.partitioning.most_rows();
        slot_rows_of(most, self.dim.into(), self.state_width.into())
    }

    /// Bytes of a partition's embeddings.
    pub fn embedding_bytes(&self) -> Bytes {
        Bytes(self.slot_rows() * u64::from(self.dim) * 4)
    }

    /// Bytes of what the optimiser remembers of a partition.
    pub fn state_bytes(&self) -> Bytes {
        Bytes(self.slot_rows() * u64::from(self.state_width) * 4)
    }

    /// Bytes of a partition: what one swap reads, and what it writes.
    pub fn partition_bytes(&self) -> Bytes {
        Bytes(self.embedding_bytes().0 + self.state_bytes().0)
    }
}

/// Rows of a slot for so many rows, by the widths of their two parts.
pub(crate) fn slot_rows_of(rows: u64, dim: u64, state_width: u64) -> u64 {
    rows.next_multiple_of(rows_of_pages(dim).max(rows_of_pages(state_width)))
}

/// The least number of rows of `width` float32 that is whole pages; a power of two.
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
