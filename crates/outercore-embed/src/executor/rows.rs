//! Reads rows of embeddings, from memory if possible, otherwise from disk.

use outercore_core::{Error, Result};

use super::Executor;
use super::worker::{Answer, Job};

/// Bytes per read.
pub(super) const PIECE: u64 = 4 << 20;
/// Rows with a smaller gap are read together, because the gap costs less than another read.
const GAP: u64 = 64 << 10;

impl Executor {
    /// The embeddings of `rows` rows of a partition, starting at `first_row`: from memory if the
    /// partition is there, otherwise from disk.
    ///
    /// Call it between epochs: within a step, rows may be partly trained.
    ///
    /// **Cost**: one sequential read if the partition is not in memory. If all rows of a partition
    /// are read in order, up to the row of its last node, they are compared with its checksum.
    /// Other reads cannot be checked.
    ///
    /// # Errors
    /// `Invalid`: rows out of range. As [`Executor::advance`].
    pub fn read_rows(&mut self, partition: usize, first_row: u64, rows: u64) -> Result<Vec<f32>> {
        let all = self.layout.slot_rows();
        let known = partition < self.copies.len();
        if !known || first_row.checked_add(rows).is_none_or(|end| end > all) {
            return Err(Error::invalid(format!(
                "{rows} rows of partition {partition} from row {first_row}: expected up to {all} \
                 rows of {} partitions",
                self.copies.len()
            )));
        }
        self.guarded(|executor| executor.rows_of(partition, first_row, rows))
    }

    /// The embeddings of nodes, in the given order, with
    /// [`TableLayout::dim`](crate::TableLayout::dim) values each.
    ///
    /// **Cost**: one read for rows that are close together; never more than the whole table.
    ///
    /// # Errors
    /// `Invalid`: no such node. As [`Executor::advance`].
    ///
    /// # Panics
    /// If `out` does not have one row per node.
    pub fn rows_of_nodes(&mut self, nodes: &[i64], out: &mut [f32]) -> Result<()> {
        let dim = self.layout.dim();
        assert_eq!(out.len(), nodes.len() * dim, "rows of {dim} numbers");
        let dealt = self.layout.partitioning();
        let dealer = dealt.dealer();
        let mut wanted = Vec::with_capacity(nodes.len());
        for (at, &node) in nodes.iter().enumerate() {
            let known = u64::try_from(node).ok().filter(|&node| node < dealt.nodes());
            let node = known.ok_or_else(|| {
                Error::invalid(format!("node {node}, expected 0 to {}", dealt.nodes() - 1))
            })?;
            let place = dealer.place_of(node);
            wanted.push((place.partition, place.row, at));
        }
        wanted.sort_unstable();
        let row_bytes = dim as u64 * 4;
        let (gap, piece) = (GAP / row_bytes + 1, (PIECE / row_bytes).max(1));
        let mut rest = &wanted[..];
        while let Some(&(partition, first, _)) = rest.first() {
            let mut last = first;
            let near = |&&(other, row, _): &&(usize, u64, usize)| {
                let near = other == partition && row - first < piece && row - last <= gap;
                last = row;
                near
            };
            let count = rest.iter().take_while(near).count();
            let (run, others) = rest.split_at(count);
            let rows = self.read_rows(partition, first, run[count - 1].1 - first + 1)?;
            for &(_, row, at) in run {
                let from = (row - first) as usize * dim;
                out[at * dim..][..dim].copy_from_slice(&rows[from..from + dim]);
            }
            rest = others;
        }
        Ok(())
    }

    fn rows_of(&mut self, partition: usize, first_row: u64, rows: u64) -> Result<Vec<f32>> {
        self.finish()?;
        let dim = self.layout.dim() as u64;
        let (start, len) = ((first_row * dim) as usize, (rows * dim) as usize);
        let slot = self.slot_of(partition).and_then(|slot| self.slots[slot].as_ref());
        if let Some(slot) = slot {
            return Ok(slot.embeddings()[start..start + len].to_vec());
        }
        let load = self.read_of(partition);
        self.worker.ask(Job::Rows { load, first_row, rows: vec![0.0; len] })?;
        match self.worker.answer()? {
            Answer::Rows(rows) => rows,
            Answer::Swap(_) => Err(Error::internal("a slot instead of rows")),
        }
    }
}
