//! Converts the rows of an array to the rows of its layout.

use std::path::Path;

use outercore_core::{Bytes, Result};
use outercore_format::{DType, widen, words_of};
use outercore_io::{CostModel, Engine, EngineConfig, RowLayout, plan_rows};
use outercore_store::dataset::ArrayRef;
use outercore_store::npy::ArrayWriter;
use outercore_store::verified::for_each_rows;

use super::OnProgress;
use super::measure::CHUNK;
use crate::Scales;

/// Bytes of a row waiting for its place, in addition to its values: its node, its place and its
/// read.
const ROW_OVERHEAD: u64 = 64;

/// Read buffers.
pub(super) const STAGING: Bytes = Bytes::mib(2);

/// Memory of a row waiting for its place.
pub(super) fn slot_bytes(array: &ArrayRef) -> u64 {
    array.row_bytes() + ROW_OVERHEAD
}

/// Writes rows of an array in the stored form of a layout.
pub(super) struct RowWriter<'a> {
    writer: &'a mut ArrayWriter,
    convert: Option<Convert<'a>>,
    row_bytes: usize,
}

/// Converts rows to `int8`.
struct Convert<'a> {
    steps: Steps<'a>,
    stored: Vec<i8>,
}

/// Converts rows of an array to `int8` steps.
pub(crate) struct Steps<'a> {
    dtype: DType,
    scales: &'a Scales,
    words: Vec<u64>,
    values: Vec<f32>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(dtype: DType, scales: &'a Scales) -> Self {
        Self { dtype, scales, words: Vec::new(), values: vec![0.0; scales.width()] }
    }

    /// Appends the steps of a row. After an error, these are the steps of the nearest `float32`
    /// values.
    ///
    /// # Errors
    /// As [`widen`].
    pub(crate) fn push(&mut self, row: &[u8], stored: &mut Vec<i8>) -> Result<()> {
        words_of(row, &mut self.words);
        let widened = widen(self.dtype, &self.words, &mut self.values);
        self.scales.quantise(&mut self.values);
        stored.extend(self.values.iter().map(|&steps| steps as i8));
        widened
    }
}

impl<'a> RowWriter<'a> {
    pub(super) fn new(
        writer: &'a mut ArrayWriter,
        array: &ArrayRef,
        scales: Option<&'a Scales>,
    ) -> Self {
        let steps = scales.map(|scales| Steps::new(array.dtype, scales));
        let convert = steps.map(|steps| Convert { steps, stored: Vec::new() });
        Self { writer, convert, row_bytes: array.row_bytes() as usize }
    }

    /// Appends rows of the array.
    fn write(&mut self, rows: &[u8]) -> Result<()> {
        let Some(Convert { steps, stored }) = &mut self.convert else {
            return self.writer.write(rows);
        };
        // In parts, so that the steps take at most one buffer.
        let part = (CHUNK as usize / self.row_bytes).max(1) * self.row_bytes;
        for rows in rows.chunks(part) {
            stored.clear();
            for row in rows.chunks_exact(self.row_bytes) {
                steps.push(row, stored)?;
            }
            self.writer.write_slice(stored)?;
        }
        Ok(())
    }
}

/// The rows of an array.
pub(super) struct Source<'a> {
    /// The data set, for the profile of its device.
    pub root: &'a Path,
    pub array: &'a ArrayRef,
}

impl Source<'_> {
    /// Writes the rows by node.
    pub(super) fn in_order(
        &self,
        writer: &mut RowWriter<'_>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        for_each_rows(self.array, CHUNK, &mut |first, bytes| {
            on_progress("writing", first * self.array.row_bytes(), self.array.data_len(), "bytes")?;
            writer.write(bytes)
        })
    }

    /// Writes the rows of `nodes`, in that order, in parts that fit into `room`.
    pub(super) fn by_place(
        &self,
        nodes: &[u32],
        room: Bytes,
        writer: &mut RowWriter<'_>,
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let array = self.array;
        let cost = CostModel::of_device(self.root)?;
        let reading = EngineConfig { staging: STAGING, ..EngineConfig::default() };
        let mut engine = Engine::open(reading)?;
        let file = engine.register(&array.path)?;
        let (base, stride) = (array.data_offset, array.row_bytes());
        let layout = RowLayout { base, stride, file_len: engine.file_len(file) };
        let part = (room.0 / slot_bytes(array)).max(1) as usize;
        let mut rows = Vec::new();
        for (done, nodes) in nodes.chunks(part).enumerate() {
            let mut wanted: Vec<(u64, u32)> =
                nodes.iter().zip(0..).map(|(&node, slot)| (node.into(), slot)).collect();
            wanted.sort_unstable();
            let (wanted, slots): (Vec<u64>, Vec<u32>) = wanted.into_iter().unzip();
            rows.resize(nodes.len() * stride as usize, 0);
            let plan = plan_rows(&wanted, layout, &cost, engine.max_read());
            let written = (done * part) as u64 * stride;
            engine.read(file, &plan.reads, &mut |index, bytes| {
                on_progress("writing", written, array.data_len(), "bytes")?;
                let start = plan.reads[index].offset;
                for place in plan.rows_of[index].clone() {
                    let at = (base + wanted[place as usize] * stride - start) as usize;
                    let slot = slots[place as usize] as usize * stride as usize;
                    rows[slot..slot + stride as usize]
                        .copy_from_slice(&bytes[at..at + stride as usize]);
                }
                Ok(())
            })?;
            writer.write(&rows)?;
        }
        Ok(())
    }
}
