//! Data that stays the same for all passes of a run, and the reads of a pass.

use std::ops::Range;
use std::sync::Arc;

use outercore_core::{Bytes, Context, Result};
use outercore_grid::Grid;
use outercore_io::{Engine, FileId, Kept, KeptRead, PlannedRead, Slots};
use outercore_store::dataset::ArrayRef;

use crate::segments::{Segment, longest, slot_bytes, wanted};
use crate::task::Task;

/// The grid of a run, divided into segments, and the location of its arrays.
pub(super) struct Layout {
    pub grid: Grid,
    pub files: Files,
    pub segments: Vec<Segment>,
    /// By piece.
    pub segment_of: Arc<[u32]>,
    /// Which segments stay in memory once they have been read.
    pub pins: Vec<bool>,
    /// Whether segments that stay in memory include their weights.
    pub weighted: bool,
    /// Buffers for parts that are read ahead.
    pub slots: PartSlots,
    /// Whether to read while other threads compute.
    pub buffering: bool,
}

/// Buffers for parts of segments.
pub(super) struct PartSlots {
    /// Number of parts that fit.
    pub count: usize,
    blocks: Slots,
    weights: Option<Slots>,
}

impl PartSlots {
    /// As many buffers as fit into `window`, from the engine's staging.
    pub fn within(
        window: Bytes,
        engine: &Engine,
        segments: &[Segment],
        weighted: bool,
    ) -> Result<Self> {
        let [blocks, weights] = longest(segments, weighted);
        let count = (window.0 / slot_bytes(segments, weighted).0.max(1)).max(1) as usize;
        Ok(Self {
            count,
            blocks: engine.slots(blocks, count)?,
            weights: weighted.then(|| engine.slots(weights, count)).transpose()?,
        })
    }

    /// The memory of all free slots; it must be returned before the next pass.
    pub fn take_free(&self) -> Vec<Kept> {
        let mut free = self.blocks.take_free();
        free.extend(self.weights.iter().flat_map(Slots::take_free));
        free
    }
}

/// Location of the grid's arrays.
pub(super) struct Files {
    pub blocks: File,
    pub weights: Option<File>,
    pub order: Option<File>,
    pub out_degrees: File,
    pub in_degrees: File,
}

#[derive(Clone, Copy)]
pub(super) struct File {
    pub id: FileId,
    /// Offset of the data.
    pub data: u64,
}

impl Files {
    pub fn register(engine: &mut Engine, grid: &Grid) -> Result<Self> {
        let mut register = |array: &ArrayRef| -> Result<File> {
            let id =
                engine.register(&array.path).with_context(|| format!("grid `{}`", array.key))?;
            Ok(File { id, data: array.data_offset })
        };
        Ok(Self {
            blocks: register(grid.blocks())?,
            weights: grid.weights().map(&mut register).transpose()?,
            order: grid.order().map(&mut register).transpose()?,
            out_degrees: register(grid.out_degrees())?,
            in_degrees: register(grid.in_degrees())?,
        })
    }
}

/// A part of a segment that a pass reads.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub segment: usize,
    pub range: Segment,
    pub weighted: bool,
    /// Number of the pass that needs it.
    pub pass: u64,
}

impl Part {
    pub fn bytes(&self) -> u64 {
        self.range.bytes(self.weighted)
    }

    /// Whether this part can be used instead of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.segment == other.segment
            && self.pass == other.pass
            && self.weighted >= other.weighted
            && self.range.pieces.start <= other.range.pieces.start
            && self.range.pieces.end >= other.range.pieces.end
    }
}

/// The destination of a read.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Index of the part.
    pub part: usize,
    pub into: Into,
}

#[derive(Clone, Copy)]
pub(super) enum Into {
    Blocks,
    Weights,
}

/// Parts to read, in this order, and their reads.
pub(super) struct ReadList {
    pub parts: Vec<Part>,
    /// Number of reads by part.
    pub reads_of: Vec<u32>,
    pub reads: Vec<KeptRead>,
    pub places: Vec<Place>,
}

impl Layout {
    /// The parts that pass number `pass` must read for `tasks`, without segments in memory, in file
    /// order.
    pub fn parts(&self, tasks: &[Vec<Task>], weights: bool, held: &[bool], pass: u64) -> Vec<Part> {
        let wanted = wanted(tasks.iter().flatten(), &self.segment_of, self.segments.len());
        let mut parts = Vec::new();
        for (segment, first, last) in wanted.into_iter().filter(|wanted| !held[wanted.0]) {
            parts.push(if self.pins[segment] {
                self.whole(segment, pass)
            } else {
                let range =
                    Segment::between(self.grid.pieces(), first, last, self.grid.weight_bytes());
                Part { segment, range, weighted: weights, pass }
            });
        }
        parts
    }

    /// A whole segment that stays in memory: it must serve every later pass.
    pub fn whole(&self, segment: usize, pass: u64) -> Part {
        let range = self.segments[segment].clone();
        Part { segment, range, weighted: self.weighted, pass }
    }

    /// The first parts of a later pass, as many as the slots have room for. Segments that stay in
    /// memory are left out, because an earlier pass may read them first.
    pub fn first_parts(&self, parts: Vec<Part>) -> Vec<Part> {
        parts.into_iter().filter(|part| !self.pins[part.segment]).take(self.slots.count).collect()
    }

    /// The reads for `parts`, one per array.
    pub fn reads(&self, parts: Vec<Part>) -> ReadList {
        let (mut reads_of, mut reads, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (number, part) in parts.iter().enumerate() {
            let before = reads.len();
            let mut add = |file: File, slots: &Slots, into: Into, range: &Range<u64>| {
                // A segment is short, or a single piece.
                let len = (range.end - range.start) as u32;
                let read = PlannedRead { offset: file.data + range.start, len };
                reads.push(KeptRead { file: file.id, read, into: slots.clone() });
                places.push(Place { part: number, into });
            };
            add(self.files.blocks, &self.slots.blocks, Into::Blocks, &part.range.blocks);
            if part.weighted
                && let (Some(file), Some(slots)) = (self.files.weights, &self.slots.weights)
            {
                add(file, slots, Into::Weights, &part.range.weights);
            }
            reads_of.push((reads.len() - before) as u32);
        }
        ReadList { parts, reads_of, reads, places }
    }
}
