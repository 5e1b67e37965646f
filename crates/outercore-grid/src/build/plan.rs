//! Memory of a build, phase by phase. Pure.

use outercore_core::{Bytes, Error, ErrorKind, Result};

use crate::piece::PIECE_EDGES;
use crate::shape::Order;

/// Three array writers and the buffer for offsets.
const FIXED: u64 = 4 << 20;

/// Fewest and most arcs of a chunk; the memory decides.
const CHUNK: std::ops::RangeInclusive<u64> = (1 << 12)..=(1 << 17);

/// Fewest and most bytes of a block's write buffer.
const BUFFER: std::ops::RangeInclusive<u64> = 512..=(64 << 10);

/// Most records encoded at a time.
const BATCH: u64 = 1 << 21;

/// Bytes per edge of the piece that a thread encodes: key, weight of at most 8 bytes, range of its
/// row (in a list that has doubled), gap, column, difference.
const PIECE: u64 = 4 + 8 + 16 + 4 + 2 + 2;

/// Inputs for computing the memory of a build.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) memory: Bytes,
    pub(super) threads: usize,
    pub(super) nodes: u64,
    /// Columns of the CSC, if columns are not nodes; otherwise 0.
    pub(super) columns: u64,
    /// Bytes for reading one arc.
    pub(super) buffer_per_arc: u64,
    /// Bytes of a record: 4 without weights, 8 with `float32` weights, 16 with `float64` weights.
    pub(super) record: u64,
    /// Rows of the edge array of weights; 0 without weights.
    pub(super) weights: u64,
}

/// Location of dealt edges, and the sizes of buffers and batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DealPlan {
    /// Records of a block's write buffer; `None`: all records stay in memory.
    pub(super) buffer: Option<usize>,
    /// Most records encoded at a time.
    pub(super) batch: u64,
}

impl Facts {
    /// Number of arcs per chunk.
    pub(super) fn chunk(&self) -> usize {
        let room = self.memory.0 / 8 / self.threads as u64 / self.lane_per_arc();
        room.clamp(*CHUNK.start(), *CHUNK.end()) as usize
    }

    /// Bytes per arc: read buffers, one record as dealt, with its block, and one record sorted.
    fn lane_per_arc(&self) -> u64 {
        self.buffer_per_arc + 2 * self.record + self.record.max(4)
    }

    fn lanes(&self) -> u64 {
        self.threads as u64 * self.chunk() as u64 * self.lane_per_arc()
    }

    /// Memory for ordering the nodes: degrees in both directions and of the columns, the order or
    /// the places, and weights.
    pub(super) fn ordering(&self, order: Order) -> u64 {
        let per_node = match order {
            Order::Degree => 12,
            Order::Natural => 8,
        };
        FIXED + self.lanes() + per_node * self.nodes + 4 * self.columns + self.weight_bytes()
    }

    /// Checks that the memory is enough for ordering the nodes.
    ///
    /// # Errors
    /// `Budget`, with the least sufficient budget for this phase.
    pub(super) fn check_ordering(&self, order: Order) -> Result<()> {
        self.fits(|facts| facts.ordering(order))
    }

    /// Memory for passes over the arcs: degrees of the columns, places, weights, and the tables of
    /// the blocks.
    fn passing(&self, blocks: u64) -> u64 {
        let columns = if self.columns == 0 { self.nodes } else { self.columns };
        let tables = blocks * (4 * self.threads as u64 + 48);
        FIXED + self.lanes() + 4 * (self.nodes + columns) + self.weight_bytes() + tables
    }

    /// Memory per record while a block is encoded: the record, room for sorting, its encoded form,
    /// its weight.
    fn encoding_per_record(&self) -> u64 {
        match self.record {
            4 => 4 + 4 + 6,
            record => record + 6 + self.weight(),
        }
    }

    /// Bytes of a weight.
    fn weight(&self) -> u64 {
        if self.record == 16 { 8 } else { 4 }
    }

    fn weight_bytes(&self) -> u64 {
        self.weight() * self.weights
    }

    /// Memory for encoding blocks, without their records; the largest block has `largest` edges.
    fn encoders(&self, blocks: u64, largest: u64) -> u64 {
        FIXED + 8 * blocks + self.threads as u64 * largest.min(PIECE_EDGES as u64) * PIECE
    }

    /// Least memory for blocks with these numbers of edges.
    pub(super) fn least_memory(&self, edges: &[u64]) -> u64 {
        let blocks = edges.len() as u64;
        let filled = edges.iter().filter(|edges| **edges > 0).count() as u64;
        let largest = edges.iter().max().copied().unwrap_or(0);
        let dealing = self.passing(blocks) + filled * BUFFER.start();
        dealing.max(self.encoders(blocks, largest) + largest * self.encoding_per_record())
    }

    /// How to deal and encode blocks with these numbers of edges.
    ///
    /// # Errors
    /// `Budget`, with the least sufficient budget.
    pub(super) fn dealing(&self, edges: &[u64]) -> Result<DealPlan> {
        self.fits(|facts| facts.least_memory(edges))?;
        let blocks = edges.len() as u64;
        let filled = edges.iter().filter(|edges| **edges > 0).count() as u64;
        let largest = edges.iter().max().copied().unwrap_or(0);
        let all = edges.iter().sum::<u64>() * self.record;
        let free = self.memory.0 - self.passing(blocks);
        let for_encoding = self.memory.0 - self.encoders(blocks, largest);
        // The records themselves are already counted in `all`.
        let beside = self.encoding_per_record() - self.record;
        if 2 * all <= self.memory.0 && all <= free && all + largest * beside <= for_encoding {
            let batch = ((for_encoding - all) / beside).min(BATCH);
            return Ok(DealPlan { buffer: None, batch });
        }
        let buffer = (free / filled.max(1)).clamp(*BUFFER.start(), *BUFFER.end());
        Ok(DealPlan {
            buffer: Some((buffer / self.record) as usize),
            batch: (for_encoding / self.encoding_per_record()).min(BATCH),
        })
    }

    fn fits(&self, needed: impl Fn(&Self) -> u64) -> Result<()> {
        let enough = |memory: Bytes| needed(&Self { memory, ..*self });
        if enough(self.memory) <= self.memory.0 {
            return Ok(());
        }
        // Chunks take at most an eighth of any memory added, so this soon ends.
        let mut least = self.memory;
        while enough(least) > least.0 {
            least = Bytes(enough(least)).readable();
        }
        Err(Error::new(
            ErrorKind::Budget,
            format!(
                "a memory budget of {} is too small for the grid of {} nodes; the least that works \
                 is {least}",
                self.memory, self.nodes
            ),
        )
        .needs(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(memory: Bytes) -> Facts {
        Facts {
            memory,
            threads: 2,
            nodes: 1 << 22,
            columns: 0,
            buffer_per_arc: 4,
            record: 4,
            weights: 0,
        }
    }

    #[test]
    fn the_least_memory_works_and_a_byte_less_does_not() {
        for (record, weights) in [(4, 0), (8, 50_000_000), (16, 50_000_000)] {
            for blocks in [vec![0], vec![90_000; 703], vec![5, 40_000_000, 0]] {
                let facts = |memory| Facts { record, weights, ..facts(Bytes(memory)) };
                // Chunks depend on the memory: go down until they no longer change.
                let mut least = u64::MAX >> 8;
                for _ in 0..40 {
                    least = facts(least).least_memory(&blocks);
                }
                facts(least).dealing(&blocks).unwrap();
                let error = facts(least - 1).dealing(&blocks).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
            }
        }
    }

    #[test]
    fn edges_stay_in_memory_where_they_take_half_of_it_at_most() {
        let blocks = vec![90_000; 703];
        let plan = facts(Bytes::gib(1)).dealing(&blocks).unwrap();
        assert_eq!(plan, DealPlan { buffer: None, batch: BATCH });
        let plan = facts(Bytes::mib(128)).dealing(&blocks).unwrap();
        assert_eq!(plan, DealPlan { buffer: Some(16 << 10), batch: BATCH });
        let plan = facts(Bytes::mib(64)).dealing(&blocks).unwrap();
        let buffer = plan.buffer.unwrap();
        assert!((128..16 << 10).contains(&buffer), "{buffer}");
    }
}
