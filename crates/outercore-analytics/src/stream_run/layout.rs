//! What stays the same for all passes of a run, and what a pass has to read.

use std::ops::Range;
use std::sync::Arc;

use outercore_core::{Bytes, Context, Result};
use outercore_grid::Grid;
use outercore_io::{CostModel, Engine, FileId, PlannedRead, plan_range};
use outercore_store::dataset::ArrayRef;

use crate::schedule::Task;
use crate::segments::{Segment, wanted};

/// The grid of a run, cut into segments, and where its arrays are.
pub(super) struct Layout {
    pub grid: Grid,
    pub files: Files,
    pub segments: Vec<Segment>,
    /// By piece.
    pub segment_of: Arc<[u32]>,
    /// Which segments stay in memory once they have been read.
    pub pins: Vec<bool>,
    /// Whether segments that stay have their weights with them.
    pub weighted: bool,
    /// Bytes that are read ahead at most.
    pub window: u64,
    /// Whether to read while others compute.
    pub buffering: bool,
    /// The longest read.
    pub max_read: Bytes,
}

/// Where the grid's arrays are.
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
    /// Where the data begins.
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
    /// Number of the pass that wants it.
    pub pass: u64,
}

impl Part {
    pub fn bytes(&self) -> u64 {
        self.range.bytes(self.weighted)
    }

    /// Whether whoever wants `other` can do with this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.segment == other.segment
            && self.pass == other.pass
            && self.weighted >= other.weighted
            && self.range.pieces.start <= other.range.pieces.start
            && self.range.pieces.end >= other.range.pieces.end
    }
}

/// One read: where its bytes belong.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Index into the parts.
    pub part: usize,
    pub into: Into,
    /// Byte of the destination.
    pub at: u64,
}

#[derive(Clone, Copy)]
pub(super) enum Into {
    Blocks,
    Weights,
}

/// Parts to read, in this order, and the reads that bring them.
pub(super) struct ReadList {
    pub parts: Vec<Part>,
    /// By part.
    pub reads_of: Vec<u32>,
    pub reads: Vec<(FileId, PlannedRead)>,
    pub places: Vec<Place>,
}

impl Layout {
    /// What pass number `pass` has to read for `tasks`, besides what is held; in the order of the
    /// file.
    pub fn parts(&self, tasks: &[Vec<Task>], weights: bool, held: &[bool], pass: u64) -> Vec<Part> {
        let wanted = wanted(tasks.iter().flatten(), &self.segment_of, self.segments.len());
        let mut parts = Vec::new();
        for (segment, first, last) in wanted.into_iter().filter(|wanted| !held[wanted.0]) {
            parts.push(if self.pins[segment] {
                self.whole(segment, pass)
            } else {
                let range = Segment::between(self.grid.pieces(), first, last);
                Part { segment, range, weighted: weights, pass }
            });
        }
        parts
    }

    /// A segment as it stays in memory: it has to serve every later pass.
    pub fn whole(&self, segment: usize, pass: u64) -> Part {
        let range = self.segments[segment].clone();
        Part { segment, range, weighted: self.weighted, pass }
    }

    /// Of what a later pass has to read, the beginning: as much as the window has room for. What
    /// stays in memory is left out: a pass before may have brought it by then.
    pub fn first_parts(&self, parts: Vec<Part>) -> Vec<Part> {
        let mut bytes = 0;
        let fits = |part: &Part| {
            bytes += part.bytes();
            bytes <= self.window
        };
        parts.into_iter().filter(|part| !self.pins[part.segment]).take_while(fits).collect()
    }

    /// The reads that bring `parts`.
    pub fn reads(&self, parts: Vec<Part>) -> ReadList {
        let (mut reads_of, mut reads, mut places) = (Vec::new(), Vec::new(), Vec::new());
        for (number, part) in parts.iter().enumerate() {
            let before = reads.len();
            let mut add = |file: File, into: Into, range: &Range<u64>| {
                let absolute = file.data + range.start..file.data + range.end;
                let start = absolute.start;
                for read in plan_range(absolute, &CostModel::default(), self.max_read) {
                    reads.push((file.id, read));
                    places.push(Place { part: number, into, at: read.offset - start });
                }
            };
            add(self.files.blocks, Into::Blocks, &part.range.blocks);
            if part.weighted
                && let Some(file) = self.files.weights
            {
                add(file, Into::Weights, &part.range.weights);
            }
            reads_of.push((reads.len() - before) as u32);
        }
        ReadList { parts, reads_of, reads, places }
    }
}
