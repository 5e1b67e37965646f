//! Passes over the whole table: saving, loading and exporting embeddings.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use outercore_core::{Context, Error, Result};
use outercore_format::{Checksum, DType, NpyHeader};
use outercore_io::WriteFile;

use super::rows::PIECE;
use super::{Executor, Held, SlotMemory};
use crate::partition::Slot;

/// The slots' memory for external views; it lives as long as this.
#[derive(Clone, Debug)]
pub struct SlotViews(SlotMemory);

impl SlotViews {
    /// As [`Executor::address_ranges`].
    pub fn address_ranges(&self) -> [std::ops::Range<*const u8>; 2] {
        self.0.address_ranges()
    }
}

impl Executor {
    /// A handle on the slots' memory, which keeps it alive after the executor is dropped.
    pub fn slot_views(&self) -> SlotViews {
        SlotViews(self.memory.clone())
    }

    /// Writes all embeddings to `path`, partition after partition without padding rows; returns
    /// their checksum. Call it between epochs.
    ///
    /// **Cost**: one pass over the table.
    ///
    /// # Errors
    /// `Invalid`: within a state. Errors of the disk.
    pub fn save_embeddings(&mut self, path: &Path) -> Result<String> {
        self.settle("save the embeddings")?;
        let disk = self.disk.clone();
        let mut file = disk.create(path)?;
        let mut checksum = Checksum::new();
        for partition in 0..self.layout.partitioning().partitions() {
            self.for_each_piece(partition, &mut |_, rows| {
                checksum.update(bytemuck::cast_slice(rows));
                file.write_all(bytemuck::cast_slice(rows))
            })?;
        }
        file.sync()?;
        disk.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
        Ok(checksum.finish())
    }

    /// Replaces all embeddings by those that [`Executor::save_embeddings`] wrote; the optimiser's
    /// state stays. The change is durable with the next commit.
    ///
    /// **Cost**: reads the file twice, and reads and writes every partition.
    ///
    /// # Errors
    /// `Invalid`: within a state. `Corrupt`: the checksum does not match. As [`Executor::advance`].
    pub fn load_embeddings(&mut self, path: &Path, checksum: &str) -> Result<()> {
        self.settle("load embeddings")?;
        let describe = || format!("embeddings `{}`", path.display());
        let found = checksum_of(path).with_context(describe)?;
        if found != checksum {
            return Err(Error::corrupt(format!(
                "{}: found {found}, expected {checksum}",
                describe()
            ))
            .hint("go on from a copy of the directory, or train again"));
        }
        let mut file = File::open(path).with_context(describe)?;
        self.guarded(|executor| executor.replace(&mut file).with_context(describe))
    }

    /// Writes all embeddings in the order of the nodes, as `.npy` float32 `[nodes, dim]`. Replaces
    /// `path` atomically. Call it between epochs.
    ///
    /// **Memory**: the slots; their partitions are written back first and read again afterwards.
    /// **Cost**: one pass over the table for each time that its embeddings fill the slots.
    ///
    /// # Errors
    /// `Invalid`: within a state. As [`Executor::advance`]; errors of the disk.
    pub fn write_npy(&mut self, path: &Path) -> Result<()> {
        self.settle("write the embeddings")?;
        let disk = self.disk.clone();
        let temporary = path.with_extension("tmp");
        let written = self.write_rows(&temporary).and_then(|()| disk.rename(&temporary, path));
        if written.is_err() {
            // Do not leave a partial file on a full device. Report the first error, not this one.
            let _ = disk.remove_file(&temporary);
        }
        written?;
        disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
    }

    /// Writes the header and the rows to the device.
    fn write_rows(&mut self, path: &Path) -> Result<()> {
        let mut file = self.disk.create(path)?;
        let shape = [self.layout.partitioning().nodes(), self.layout.dim() as u64];
        file.write_all(&NpyHeader::encode(DType::F32, &shape))?;
        self.guarded(|executor| executor.write_sorted(&mut *file))?;
        file.sync()
    }

    /// Moves to the next state, so that no slot is in flight.
    fn settle(&mut self, what: &str) -> Result<()> {
        if !self.parts.is_empty() {
            return Err(Error::invalid(format!("{what} in the midst of a state"))
                .hint("after a step that ends its state, or between epochs"));
        }
        self.guarded(|executor| {
            if executor.entered {
                executor.leave()?;
            }
            Ok(())
        })
    }

    /// Calls `take` with consecutive rows of a partition, without padding rows.
    fn for_each_piece(
        &mut self,
        partition: usize,
        take: &mut dyn FnMut(u64, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let rows = self.layout.partitioning().rows(partition);
        let step = (PIECE / (self.layout.dim() as u64 * 4)).max(1);
        let mut first = 0;
        while first < rows {
            let count = step.min(rows - first);
            let piece = self.read_rows(partition, first, count)?;
            take(first, &piece)?;
            first += count;
        }
        Ok(())
    }

    fn replace(&mut self, file: &mut File) -> Result<()> {
        let before: Vec<Option<usize>> =
            self.held.iter().map(|held| held.map(|held| held.partition)).collect();
        for partition in 0..self.layout.partitioning().partitions() {
            let slot = match self.slot_of(partition) {
                Some(slot) => slot,
                None => {
                    // Any slot works: the next partition writes it back.
                    let slot = partition % self.slots.len();
                    self.exchange(&[(slot, Some(partition))])?;
                    slot
                }
            };
            let numbers = self.layout.partitioning().rows(partition) as usize * self.layout.dim();
            let memory = self.slots[slot].as_mut();
            let memory = memory.ok_or_else(|| Error::internal(format!("slot {slot} is away")))?;
            file.read_exact(bytemuck::cast_slice_mut(&mut memory.numbers_mut().0[..numbers]))?;
            self.held[slot] = Some(Held { partition, changed: true });
        }
        self.empty_slots(before)
    }

    /// Writes back changed partitions and marks the slots as empty; the next step finds
    /// `partitions` in their old slots.
    fn empty_slots(&mut self, partitions: Vec<Option<usize>>) -> Result<()> {
        self.write_back()?;
        self.held.fill(None);
        self.brings_back.get_or_insert(partitions);
        Ok(())
    }

    fn write_sorted(&mut self, file: &mut dyn WriteFile) -> Result<()> {
        let before = self.held.iter().map(|held| held.map(|held| held.partition)).collect();
        self.empty_slots(before)?;
        let mut slots: Vec<Slot> = self.slots.iter_mut().filter_map(Option::take).collect();
        let result = self.write_through(&mut slots, file);
        for (place, slot) in self.slots.iter_mut().zip(slots) {
            *place = Some(slot);
        }
        result
    }

    /// Gathers as many nodes at a time as the slots can hold, and writes them.
    fn write_through(&mut self, slots: &mut [Slot], file: &mut dyn WriteFile) -> Result<()> {
        let dim = self.layout.dim();
        let dealt = self.layout.partitioning();
        let dealer = dealt.dealer();
        let mut parts: Vec<&mut [f32]> = Vec::new();
        for slot in slots {
            let (embeddings, state) = slot.numbers_mut();
            parts.extend([embeddings, state]);
        }
        let ends: Vec<u64> = parts
            .iter()
            .scan(0, |end, part| {
                *end += (part.len() / dim) as u64;
                Some(*end)
            })
            .collect();
        let room = ends.last().copied().unwrap_or(0);
        if room == 0 {
            return Err(Error::internal("slots without room for a row"));
        }
        let mut first = 0;
        while first < dealt.nodes() {
            let stop = dealt.nodes().min(first + room);
            for partition in 0..dealt.partitions() {
                self.for_each_piece(partition, &mut |row, rows| {
                    for (numbers, row) in rows.chunks(dim).zip(row..) {
                        let node = dealer.node_at(partition, row);
                        if node < first || node >= stop {
                            continue;
                        }
                        let place = node - first;
                        let part = ends.partition_point(|&end| end <= place);
                        let start = if part == 0 { 0 } else { ends[part - 1] };
                        let at = (place - start) as usize * dim;
                        parts[part][at..at + dim].copy_from_slice(numbers);
                    }
                    Ok(())
                })?;
            }
            let mut left = (stop - first) as usize * dim;
            for part in &parts {
                let len = (part.len() / dim * dim).min(left);
                file.write_all(bytemuck::cast_slice(&part[..len]))?;
                left -= len;
            }
            // Sync now: data in the page cache takes memory outside the budget.
            file.sync()?;
            first = stop;
        }
        Ok(())
    }
}

fn checksum_of(path: &Path) -> Result<String> {
    let mut file = BufReader::with_capacity(1 << 18, File::open(path)?);
    let mut checksum = Checksum::new();
    let mut bytes = vec![0; 1 << 18];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(checksum.finish()),
            count => checksum.update(&bytes[..count]),
        }
    }
}
