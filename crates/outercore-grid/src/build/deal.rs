//! Counts the edges of every block, and deals them to positions computed from the counts.

use std::path::Path;

use outercore_core::{Error, Result, mix};
use outercore_io::{Disk, WriteFile};

use super::input::{Ids, Pass};
use super::record::Record;
use crate::shape::GridShape;

/// Blocks in file order: diagonal by diagonal, starting with the main one.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    partitions: usize,
    symmetric: bool,
}

impl Layout {
    pub(super) fn new(shape: &GridShape) -> Self {
        Self { partitions: shape.partitions(), symmetric: shape.symmetric }
    }

    /// Number of blocks, including those that a symmetric grid leaves empty.
    pub(super) fn blocks(self) -> usize {
        self.partitions * self.partitions
    }

    pub(super) fn is_symmetric(self) -> bool {
        self.symmetric
    }

    /// The partitions of the rows and of the columns of a block.
    pub(super) fn partitions_of(self, block: usize) -> (usize, usize) {
        let (diagonal, row) = (block / self.partitions, block % self.partitions);
        (row, (row + diagonal) % self.partitions)
    }

    /// The block of an arc, from the places of its target and its source. In a symmetric grid, the
    /// block of the arc or its reverse, whichever is stored.
    ///
    /// # Errors
    /// A place without arcs, which is impossible if the graph has not changed since the degrees
    /// were counted.
    #[inline(always)]
    fn block(self, target: u32, source: u32) -> Result<usize, Changed> {
        let (row, column) = match self.symmetric {
            true => (target.min(source), target.max(source)),
            false => (target, source),
        };
        let (row, column) = ((row >> 16) as usize, (column >> 16) as usize);
        if row >= self.partitions || column >= self.partitions {
            return Err(Changed);
        }
        let wrapped = if column >= row { 0 } else { self.partitions };
        Ok((column + wrapped - row) * self.partitions + row)
    }

    /// Whether the arc itself is stored, and not its reverse.
    #[inline(always)]
    fn is_stored(self, target: u32, source: u32) -> bool {
        !self.symmetric | (target <= source)
    }
}

/// Error: the CSC has changed, or its arrays disagree.
struct Changed;

impl From<Changed> for Error {
    fn from(_: Changed) -> Self {
        Error::corrupt("the arcs contradict each other or have changed meanwhile")
            .hint("run `outercore check DATASET`")
    }
}

/// Edges of every block, in file order, and the number of loops.
pub(super) struct Counts {
    pub(super) edges: Vec<u64>,
    pub(super) loops: u64,
}

/// Counts the edges of every block.
///
/// # Errors
/// `Corrupt` if the graph is marked as symmetric but is not: an arc has no reverse.
pub(super) fn count(
    pass: &Pass<'_>,
    places: &[u32],
    layout: Layout,
    lanes: usize,
    on_arcs: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Counts> {
    struct Lane {
        edges: Vec<u32>,
        loops: u64,
        /// Sum over the arcs of a number that depends only on the pair of nodes; reverse arcs
        /// subtract it. It is 0 if each arc has a reverse.
        balance: u64,
    }
    let mut lanes: Vec<Lane> = (0..lanes)
        .map(|_| Lane { edges: vec![0; layout.blocks()], loops: 0, balance: 0 })
        .collect();
    let mut edges = vec![0u64; layout.blocks()];
    let each = |lane: &mut Lane, target: u32, sources: &[u32], _: Ids<'_>| {
        let row = places[target as usize];
        // Which of two arcs is stored is unpredictable. It is therefore added as a number instead
        // of a branch.
        for &column in sources {
            let stored = layout.is_stored(row, column);
            lane.edges[layout.block(row, column)?] += u32::from(stored);
            lane.loops += u64::from(row == column);
            if layout.symmetric {
                let pair = u64::from(row.min(column)) << 32 | u64::from(row.max(column));
                let number = mix(pair) * u64::from(row != column);
                let sign = u64::from(stored).wrapping_sub(1);
                lane.balance = lane.balance.wrapping_add((number ^ sign).wrapping_sub(sign));
            }
        }
        Ok(())
    };
    // Frequent enough that 32-bit counters do not overflow, and rare enough to cost nothing.
    let interval = 8 * layout.blocks() as u64;
    let mut flushed = 0;
    let mut flush = |lanes: &mut [Lane]| {
        for lane in lanes {
            for (sum, count) in edges.iter_mut().zip(&mut lane.edges) {
                *sum += u64::from(std::mem::take(count));
            }
        }
    };
    pass.run(&mut lanes, 1, each, |_| {}, &mut |lanes, done| {
        if done - flushed >= interval {
            flush(lanes);
            flushed = done;
        }
        on_arcs(done)
    })?;
    flush(&mut lanes);
    let balance = lanes.iter().fold(0u64, |sum, lane| sum.wrapping_add(lane.balance));
    let loops = lanes.iter().map(|lane| lane.loops).sum();
    if layout.symmetric
        && (balance != 0 || 2 * edges.iter().sum::<u64>() - loops != pass.input.rows)
    {
        return Err(Error::corrupt("the data set says `undirected`, but some arc has no reverse")
            .hint("run `outercore check DATASET`, or import the edges again"));
    }
    Ok(Counts { edges, loops })
}

/// The records that a thread has dealt from its chunk, by block.
struct Hand<R> {
    dealt: Vec<(u32, R)>,
    /// The records, sorted by block.
    records: Vec<R>,
    /// Each block with records, and the end of its records.
    runs: Vec<(u32, usize)>,
    counters: Vec<u32>,
}

impl<R: Record> Hand<R> {
    /// Most blocks for which counters are used; with more blocks, sorting is cheaper.
    const COUNTED: usize = 1 << 16;

    /// For chunks of at most `arcs` arcs.
    fn new(arcs: usize) -> Self {
        Self {
            dealt: Vec::with_capacity(arcs),
            records: Vec::with_capacity(arcs),
            runs: Vec::new(),
            counters: Vec::new(),
        }
    }

    /// Sorts the dealt records by block.
    fn sort(&mut self, blocks: usize) {
        self.records.clear();
        self.runs.clear();
        if blocks > Self::COUNTED {
            self.dealt.sort_unstable_by_key(|(block, _)| *block);
            self.records.extend(self.dealt.iter().map(|(_, record)| *record));
            for (at, (block, _)) in self.dealt.iter().enumerate() {
                match self.runs.last_mut() {
                    Some((last, end)) if last == block => *end = at + 1,
                    _ => self.runs.push((*block, at + 1)),
                }
            }
        } else {
            self.counters.clear();
            self.counters.resize(blocks, 0);
            self.dealt.iter().for_each(|(block, _)| self.counters[*block as usize] += 1);
            let mut end = 0;
            for (block, count) in self.counters.iter_mut().enumerate() {
                let start = end as u32;
                end += *count as usize;
                if *count > 0 {
                    self.runs.push((block as u32, end));
                }
                *count = start;
            }
            self.records.resize(self.dealt.len(), R::zeroed());
            for (block, record) in &self.dealt {
                let place = &mut self.counters[*block as usize];
                self.records[*place as usize] = *record;
                *place += 1;
            }
        }
        self.dealt.clear();
    }
}

/// Deals the edges of all blocks to `sink`. `weights` are ordered by edge id; empty without
/// weights.
pub(super) fn deal<R: Record>(
    pass: &Pass<'_>,
    places: &[u32],
    layout: Layout,
    lanes: usize,
    weights: &[R::Weight],
    sink: &mut Sink<R>,
    on_arcs: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut hands: Vec<Hand<R>> = (0..lanes).map(|_| Hand::new(pass.chunk)).collect();
    let each = |hand: &mut Hand<R>, target: u32, sources: &[u32], ids: Ids<'_>| {
        let row = places[target as usize];
        let mut len = hand.dealt.len();
        hand.dealt.resize(len + sources.len(), (0, R::zeroed()));
        for (at, &column) in sources.iter().enumerate() {
            let weight =
                if R::WEIGHTED { weights[ids.get(at)] } else { bytemuck::Zeroable::zeroed() };
            let key = row << 16 | column & 0xFFFF;
            hand.dealt[len] = (layout.block(row, column)? as u32, R::new(key, weight));
            len += usize::from(layout.is_stored(row, column));
        }
        hand.dealt.truncate(len);
        Ok(())
    };
    let sort = |hand: &mut Hand<R>| hand.sort(layout.blocks());
    pass.run(&mut hands, 1, each, sort, &mut |hands, done| {
        for hand in hands {
            let mut start = 0;
            for &(block, end) in &hand.runs {
                sink.append(block as usize, &hand.records[start..end])?;
                start = end;
            }
        }
        on_arcs(done)
    })?;
    sink.finish()
}

/// Receives records in any order of blocks, and stores the records of each block together.
pub(super) struct Sink<R> {
    /// Position of each block's next record, counted in records.
    cursors: Vec<u64>,
    /// End of each block's records.
    ends: Vec<u64>,
    place: Place<R>,
}

enum Place<R> {
    Memory(Vec<R>),
    File {
        file: Box<dyn WriteFile>,
        buffers: Vec<Vec<R>>,
        /// Number of records per buffer.
        capacity: usize,
    },
}

impl<R: Record> Sink<R> {
    fn new(edges: &[u64], place: Place<R>) -> Self {
        let mut end = 0;
        let ends: Vec<u64> = edges
            .iter()
            .map(|edges| {
                end += edges;
                end
            })
            .collect();
        let cursors = ends.iter().zip(edges).map(|(end, edges)| end - edges).collect();
        Self { cursors, ends, place }
    }

    /// Keeps all records in memory; `edges` by block.
    pub(super) fn in_memory(edges: &[u64]) -> Self {
        let total = edges.iter().sum::<u64>() as usize;
        Self::new(edges, Place::Memory(vec![R::zeroed(); total]))
    }

    /// Writes to a new file at `path`, with a buffer of `capacity` records per block.
    pub(super) fn to_file(
        disk: &dyn Disk,
        path: &Path,
        edges: &[u64],
        capacity: usize,
    ) -> Result<Self> {
        let buffers = vec![Vec::new(); edges.len()];
        Ok(Self::new(edges, Place::File { file: disk.create(path)?, buffers, capacity }))
    }

    fn append(&mut self, block: usize, mut records: &[R]) -> Result<()> {
        let (cursor, end) = (&mut self.cursors[block], self.ends[block]);
        match &mut self.place {
            Place::Memory(all) => {
                if records.len() as u64 > end - *cursor {
                    return Err(Changed.into());
                }
                let start = *cursor as usize;
                all[start..start + records.len()].copy_from_slice(records);
                *cursor += records.len() as u64;
            }
            Place::File { file, buffers, capacity } => {
                let buffer = &mut buffers[block];
                if (buffer.len() + records.len()) as u64 > end - *cursor {
                    return Err(Changed.into());
                }
                if buffer.capacity() == 0 {
                    buffer.reserve_exact((*capacity as u64).min(end - *cursor) as usize);
                }
                while !records.is_empty() {
                    let (now, later) =
                        records.split_at(records.len().min(*capacity - buffer.len()));
                    buffer.extend_from_slice(now);
                    records = later;
                    if buffer.len() == *capacity {
                        flush(file.as_mut(), buffer, cursor)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the buffered records.
    ///
    /// # Errors
    /// `Corrupt` if a block received fewer records than counted.
    fn finish(&mut self) -> Result<()> {
        if let Place::File { file, buffers, .. } = &mut self.place {
            for (buffer, cursor) in buffers.iter_mut().zip(&mut self.cursors) {
                if !buffer.is_empty() {
                    flush(file.as_mut(), buffer, cursor)?;
                }
                *buffer = Vec::new();
            }
        }
        if self.cursors == self.ends { Ok(()) } else { Err(Changed.into()) }
    }

    /// The records, if they are in memory.
    pub(super) fn into_memory(self) -> Option<Vec<R>> {
        match self.place {
            Place::Memory(records) => Some(records),
            Place::File { .. } => None,
        }
    }
}

fn flush<R: Record>(file: &mut dyn WriteFile, buffer: &mut Vec<R>, cursor: &mut u64) -> Result<()> {
    file.write_at(*cursor * size_of::<R>() as u64, bytemuck::cast_slice(buffer))?;
    *cursor += buffer.len() as u64;
    buffer.clear();
    Ok(())
}
