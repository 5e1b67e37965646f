//! Reads the CSC in pieces of one megabyte.

use std::ops::Range;

use outercore_core::{Error, Result};
use outercore_format::{DType, keys};
use outercore_store::dataset::{ArrayFile, ArrayRef, DataSet};
use outercore_store::verified::VerifiedReader;

use super::{Buffers, Chunk, Ids, Pass, READ, too_many};
use crate::source::{Columns, EdgePart};

/// Reads node or edge ids of 32 or 64 bits, checks that they are `within` a range, and subtracts
/// `shift`.
fn read_ids(
    stored: &ArrayFile,
    first: u64,
    within: &Range<u64>,
    shift: u64,
    wide: &mut Vec<u64>,
    ids: &mut [u32],
) -> Result<()> {
    let end = first + ids.len() as u64;
    let beyond = |id: u64| {
        let expected = match within.start {
            0 => format!("less than {}", within.end),
            start => format!("{start} or more and less than {}", within.end),
        };
        Error::corrupt(format!(
            "array `{}`: {id} between rows {first} and {end}, expected {expected}",
            stored.array().key
        ))
        .hint("run `outercore check DATASET`")
    };
    if stored.array().dtype == DType::U64 {
        wide.resize(ids.len(), 0);
        stored.read(first, bytemuck::cast_slice_mut(wide))?;
        if let Some(id) = wide.iter().find(|id| !within.contains(id)) {
            return Err(beyond(*id));
        }
        ids.iter_mut().zip(wide).for_each(|(id, wide)| *id = (*wide - shift) as u32);
        return Ok(());
    }
    stored.read(first, bytemuck::cast_slice_mut(ids))?;
    // If the range starts at 0, one bound is enough, because no id is below 0.
    let largest = ids.iter().copied().max().filter(|id| u64::from(*id) >= within.end);
    let least = match within.start {
        0 => None,
        start => ids.iter().copied().min().filter(|id| u64::from(*id) < start),
    };
    if let Some(id) = largest.or(least) {
        return Err(beyond(id.into()));
    }
    if shift > 0 {
        ids.iter_mut().for_each(|id| *id = (u64::from(*id) - shift) as u32);
    }
    Ok(())
}

/// The columns of the CSC for the grid.
pub(super) struct Csc {
    source: Columns,
    nodes: u64,
    offsets: ArrayRef,
    sources: ArrayFile,
    /// `None` if not needed, or if the id of each arc equals its position.
    ids: Option<ArrayFile>,
}

impl Csc {
    /// Opens the arrays of a graph with this number of nodes; edge ids only if `with_ids`.
    pub(super) fn open(
        data_set: &DataSet,
        source: Columns,
        nodes: u64,
        with_ids: bool,
    ) -> Result<Self> {
        let open = |key| ArrayFile::open(data_set.array(key)?);
        let ids = match with_ids && data_set.has_array(keys::EDGE_IDS) {
            true => Some(open(keys::EDGE_IDS)?),
            false => None,
        };
        let (offsets, sources) = (data_set.array(keys::OFFSETS)?, open(keys::SOURCES)?);
        Ok(Self { source, nodes, offsets, sources, ids })
    }

    fn arcs(&self) -> u64 {
        self.source.arcs().end - self.source.arcs().start
    }

    /// Number of columns: one per node, or one per pair of edge type and target.
    pub(super) fn columns(&self) -> u64 {
        let columns = self.source.columns();
        columns.end - columns.start
    }

    /// Number of columns, if columns are not nodes; otherwise 0.
    pub(super) fn extra_columns(&self) -> u64 {
        if self.source.are_nodes() { 0 } else { self.columns() }
    }

    /// The number of rows that an edge array must have, if known.
    pub(super) fn edge_rows(&self) -> Option<u64> {
        let rows = self.source.rows();
        match &self.ids {
            None => Some(self.arcs()),
            // Ids are opened only for weights, which belong to one edge type.
            Some(_) => self.source.first().rows_are_known.then_some(rows.end - rows.start),
        }
    }

    /// Bytes of the arrays to read.
    pub(super) fn bytes(&self) -> u64 {
        self.offsets.data_len() + self.read_in_parallel().map(ArrayRef::data_len).sum::<u64>()
    }

    /// The arrays that threads read in chunks, in an order that does not allow computing a
    /// checksum.
    pub(super) fn read_in_parallel(&self) -> impl Iterator<Item = &ArrayRef> {
        [Some(&self.sources), self.ids.as_ref()].into_iter().flatten().map(ArrayFile::array)
    }

    /// Bytes of a [`Buffers`] per arc of a chunk.
    pub(super) fn buffer_per_arc(&self) -> u64 {
        let wide = |stored: &ArrayFile| stored.array().dtype == DType::U64;
        let any_wide = wide(&self.sources) || self.ids.as_ref().is_some_and(wide);
        4 + if any_wide { 8 } else { 0 } + if self.ids.is_some() { 4 } else { 0 }
    }

    /// Number of arcs in each column.
    ///
    /// # Errors
    /// `Corrupt`: offsets that decrease, contradict the number of arcs, or differ from the written
    /// ones. `Unsupported`: 2^32 arcs into one node.
    pub(super) fn column_degrees(
        &self,
        on_columns: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Vec<u32>> {
        let corrupt = |what: String| {
            Error::corrupt(format!("array `{}`: {what}", keys::OFFSETS))
                .hint("run `outercore check DATASET`")
        };
        let columns = self.source.columns();
        let mut degrees = Vec::with_capacity(self.columns() as usize);
        let mut buffer = vec![0u64; READ / 8];
        let mut offsets = VerifiedReader::open(self.offsets.clone())?;
        offsets.skip_to(columns.start, &mut |_, _| Ok(()))?;
        let mut before = self.source.arcs().start;
        let last = self.source.arcs().end;
        let mut row = columns.start;
        // The end of the next edge type, and the number of arcs up to it.
        let mut ends = self.source.parts().iter().map(|part| (part.columns.end, part.arcs.end));
        let mut next = ends.next();
        while row <= columns.end {
            let part = buffer.len().min((columns.end + 1 - row) as usize);
            offsets.read(bytemuck::cast_slice_mut(&mut buffer[..part]))?;
            for &offset in &buffer[..part] {
                if offset > last {
                    // This is damage; it must not be reported as a node with too many arcs.
                    let text = match row == columns.end {
                        true => format!("the last is {offset}, expected {last}"),
                        false => format!("row {row}: {offset}, expected at most {last}"),
                    };
                    return Err(corrupt(text));
                }
                let degree = offset
                    .checked_sub(before)
                    .ok_or_else(|| corrupt(format!("row {row}: {offset} after {before}")))?;
                if row == columns.start && degree != 0 {
                    return Err(corrupt(format!("row {row}: {offset}, expected {before}")));
                }
                before = offset;
                if row > columns.start {
                    let node = || self.target_of(row - 1 - columns.start);
                    degrees.push(u32::try_from(degree).map_err(|_| too_many(node(), "into"))?);
                }
                while let Some((_, expected)) = next.filter(|(end, _)| *end == row) {
                    if offset != expected {
                        let text = match row == columns.end {
                            true => format!("the last is {offset}, expected {expected}"),
                            false => format!("row {row}: {offset}, expected {expected}"),
                        };
                        return Err(corrupt(text));
                    }
                    next = ends.next();
                }
                row += 1;
            }
            on_columns((row - columns.start).min(self.columns()))?;
        }
        offsets.finish(&mut |_, _| Ok(()))?;
        Ok(degrees)
    }

    /// Number of arcs into each node, if columns are not nodes.
    ///
    /// # Errors
    /// `Unsupported`: 2^32 arcs into one node.
    pub(super) fn in_degrees(&self, columns: &[u32]) -> Result<Vec<u32>> {
        let mut into = vec![0u32; self.nodes as usize];
        let first = self.source.columns().start;
        for part in self.source.parts() {
            let of_part =
                (part.columns.start - first) as usize..(part.columns.end - first) as usize;
            for (node, degree) in (part.first_target..).zip(&columns[of_part]) {
                let sum = &mut into[node as usize];
                *sum = sum.checked_add(*degree).ok_or_else(|| too_many(node, "into"))?;
            }
        }
        Ok(into)
    }

    /// The edge type of a column, counted from the first column of the input.
    fn part_of(&self, column: u64) -> &EdgePart {
        let (parts, column) = (self.source.parts(), self.source.columns().start + column);
        &parts[parts.partition_point(|part| part.columns.end <= column)]
    }

    fn target_of(&self, column: u64) -> u64 {
        let part = self.part_of(column);
        part.first_target + (self.source.columns().start + column - part.columns.start)
    }

    /// All arcs in chunks of at most `arcs`, given the number of arcs in each column.
    pub(super) fn chunks(&self, degrees: &[u32], arcs: usize) -> impl Iterator<Item = Chunk> {
        let total = self.arcs();
        let (mut first, mut column, mut behind) = (0u64, 0usize, 0u32);
        std::iter::from_fn(move || {
            if first == total {
                return None;
            }
            while degrees[column] == behind {
                (column, behind) = (column + 1, 0);
            }
            let len = (arcs as u64).min(total - first) as usize;
            let chunk = Chunk { first, arcs: len, column: column as u32, behind };
            let mut left = len as u64;
            while left > 0 {
                let step = u64::from(degrees[column] - behind);
                if step > left {
                    behind += left as u32;
                    break;
                }
                left -= step;
                if left > 0 { (column, behind) = (column + 1, 0) } else { behind = degrees[column] }
            }
            first += len as u64;
            Some(chunk)
        })
    }

    /// Reads the sources of a chunk as node numbers, edge type by edge type.
    fn read_sources(&self, chunk: Chunk, wide: &mut Vec<u64>, sources: &mut [u32]) -> Result<()> {
        let first = self.source.arcs().start + chunk.first;
        let end = first + chunk.arcs as u64;
        let (mut at, mut rest) = (first, sources);
        for part in self.source.parts() {
            if part.arcs.end <= at || at == end {
                continue;
            }
            let (now, later) = rest.split_at_mut((part.arcs.end.min(end) - at) as usize);
            read_ids(&self.sources, at, &part.sources, part.source_shift, wide, now)?;
            (at, rest) = (at + now.len() as u64, later);
        }
        Ok(())
    }

    /// Reads a chunk and calls `each(target, sources, edge rows)` for each of its columns.
    pub(super) fn walk(
        &self,
        pass: &Pass<'_>,
        chunk: Chunk,
        buffers: &mut Buffers,
        each: &mut impl FnMut(u32, &[u32], Ids<'_>) -> Result<()>,
    ) -> Result<()> {
        let degrees = pass.degrees;
        let Buffers { wide, sources, ids, .. } = buffers;
        sources.resize(chunk.arcs, 0);
        self.read_sources(chunk, wide, sources)?;
        if let Some(places) = pass.places {
            // All at once and without branches, so that many cache misses overlap.
            sources.iter_mut().for_each(|source| *source = places[*source as usize]);
        }
        let listed = self.ids.as_ref().zip(pass.rows);
        if let Some((stored, rows)) = listed {
            ids.resize(chunk.arcs, 0);
            let (at, row) = (self.source.arcs().start + chunk.first, self.source.rows().start);
            read_ids(stored, at, &(row..row + rows), row, wide, ids)?;
        }
        let (mut start, mut column, mut behind) = (0, chunk.column as usize, chunk.behind);
        // Columns below `until` have the target `column - shift`.
        let (mut until, mut shift) = (0, 0);
        while start < chunk.arcs {
            let end = chunk.arcs.min(start + (degrees[column] - behind) as usize);
            if end > start {
                if column >= until {
                    let part = self.part_of(column as u64);
                    until = (part.columns.end - self.source.columns().start) as usize;
                    shift = (column as u32).wrapping_sub(self.target_of(column as u64) as u32);
                }
                let ids = match listed {
                    Some(_) => Ids::Listed(&ids[start..end]),
                    None => Ids::From(chunk.first + start as u64),
                };
                each((column as u32).wrapping_sub(shift), &sources[start..end], ids)?;
            }
            (start, column, behind) = (end, column + 1, 0);
        }
        Ok(())
    }
}
