//! Checks a grid for consistency, and against the degrees of the graph.

use std::fs::File;
use std::os::unix::fs::FileExt;

use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_format::{DType, keys};
use outercore_store::check::Problem;
use outercore_store::dataset::{ArrayRef, DataSet};
use outercore_store::npy::ArrayReader;

use crate::arcs::{Arcs, Side};
use crate::build::OnProgress;
use crate::header::{BLOCKS, GridHeader, IN_DEGREES, ORDER, OUT_DEGREES, WEIGHTS, rebuild_command};
use crate::open::{Grid, read_header};
use crate::piece::{Decoder, PieceWeights};
use crate::source::{Columns, Origin};

/// After this many problems a check stops: the others are likely of the same kind.
const MOST_PROBLEMS: usize = 100;

/// Bytes per read.
const CHUNK: Bytes = Bytes::mib(1);

/// Decodes every piece of a data set's grid and lists its problems; the list is empty if it is
/// sound.
///
/// Checks every checksum, row and column, that edges ascend, and that the order contains each node
/// once. The degrees must match the edges, and the in-degrees must match the CSC or the triples.
/// Weights must be finite, and the least weight must match the header.
///
/// **Cost**: reads the grid, and the offsets or triples, once. Holds 16 bytes per connected node (8
/// if symmetric), 4 bytes per node, 64 bytes per piece, and at most 2 MiB for one piece.
///
/// # Errors
/// `NotFound`: there is no grid. A failed read, and errors of `on_progress`. Problems of the grid,
/// even a stale one, are part of the result.
pub fn verify(data_set: &DataSet, on_progress: OnProgress<'_>) -> Result<Vec<Problem>> {
    let grid = match Grid::open(data_set) {
        Ok(grid) => grid,
        Err(error) => return as_problem(data_set, error).map(|problem| vec![problem]),
    };
    let mut check = Check { grid: &grid, data_set, problems: Vec::new() };
    let mut degrees = check.pieces(on_progress)?;
    let degrees_are_known = check.problems.is_empty();
    check.weights(on_progress)?;
    let order = check.order()?;
    if degrees_are_known {
        check.degrees(OUT_DEGREES, grid.out_degrees(), &degrees.out)?;
        if let Some(into) = &degrees.into {
            check.degrees(IN_DEGREES, grid.in_degrees(), into)?;
        }
        let into = degrees.into.as_mut().unwrap_or(&mut degrees.out);
        if let Some(ranks) = order {
            check.in_degrees(into, &ranks, on_progress)?;
        }
    }
    Ok(check.problems)
}

/// Converts an error about the grid's content to a problem.
fn as_problem(data_set: &DataSet, error: Error) -> Result<Problem> {
    match error.kind() {
        kind @ (ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Version) => {
            Ok(problem(data_set, kind, error.message()))
        }
        _ => Err(error),
    }
}

fn problem(data_set: &DataSet, kind: ErrorKind, message: String) -> Problem {
    // If the header is damaged, its options are unknown: suggest a grid of all edges without
    // weights.
    let header = read_header(data_set).ok();
    let of = |part: fn(&GridHeader) -> Option<&str>| header.as_ref().and_then(part);
    let relation = of(|header| header.relation.as_deref());
    let weights = of(|header| header.weights.as_deref());
    let hint = format!("rebuild: `{}`", rebuild_command(data_set, relation, weights));
    Problem { array: None, kind, message, hint: Some(hint) }
}

/// Degrees by rank, counted.
struct Counted {
    out: Vec<u64>,
    /// `None` if symmetric.
    into: Option<Vec<u64>>,
}

struct Check<'a> {
    grid: &'a Grid,
    data_set: &'a DataSet,
    problems: Vec<Problem>,
}

impl Check<'_> {
    fn is_full(&self) -> bool {
        self.problems.len() >= MOST_PROBLEMS
    }

    fn pieces(&mut self, on_progress: OnProgress<'_>) -> Result<Counted> {
        let (grid, shape) = (self.grid, self.grid.shape());
        let zeros = || vec![0u64; shape.connected as usize];
        let mut counted =
            Counted { out: zeros(), into: if shape.symmetric { None } else { Some(zeros()) } };
        let file = open(grid.blocks())?;
        let mut body = Vec::new();
        let mut decoder = Decoder::default();
        let mut before = None;
        for (number, piece) in grid.pieces().iter().enumerate() {
            if self.is_full() {
                break;
            }
            body.resize((piece.len as usize).div_ceil(8), 0u64);
            let bytes = &mut bytemuck::cast_slice_mut(&mut body)[..piece.len as usize];
            let offset = grid.blocks().data_offset + piece.offset;
            file.read_exact_at(bytes, offset)
                .with_context(|| format!("grid `{BLOCKS}` at byte {offset}"))?;
            match decoder.decode(piece, shape, bytes, PieceWeights::None, true) {
                Ok(arcs) => {
                    let block = (piece.row_part, piece.col_part, piece.is_loop);
                    let after = before.filter(|(last, _)| *last == block).map(|(_, key)| key);
                    match last_key(&arcs, after) {
                        Some(key) => before = Some((block, key)),
                        None => self.problem(number, "edges do not ascend"),
                    }
                    if !diagonal_is_right(&arcs, piece, shape.symmetric) {
                        self.problem(number, "an edge of the other half, or a loop out of place");
                    }
                    count(&arcs, piece, shape, &mut counted);
                }
                Err(error) => {
                    let what = as_problem(self.data_set, error)?.message;
                    self.problem(number, &what);
                }
            }
            let done = piece.offset + u64::from(piece.len);
            on_progress("grid", done, grid.header().codec_bytes, "bytes")?;
        }
        Ok(counted)
    }

    fn found(&mut self, message: String) {
        self.problems.push(problem(self.data_set, ErrorKind::Corrupt, message));
    }

    fn problem(&mut self, piece: usize, what: &str) {
        self.found(format!("grid `{BLOCKS}`: piece {piece}: {what}"));
    }

    fn weights(&mut self, on_progress: OnProgress<'_>) -> Result<()> {
        let Some(array) = self.grid.weights() else { return Ok(()) };
        let (mut least, mut row, mut bad) = (None, 0u64, None);
        let size = array.dtype.size() as u64;
        let mut reader = ArrayReader::open(&array.path)?;
        let mut weights = Vec::new();
        reader.for_each_chunk(CHUNK, &mut |_, bytes| {
            weights.clear();
            if array.dtype == DType::F64 {
                let rows = bytes.as_chunks::<8>().0;
                weights.extend(rows.iter().map(|row| f64::from_le_bytes(*row)));
            } else {
                let rows = bytes.as_chunks::<4>().0;
                weights.extend(rows.iter().map(|row| f64::from(f32::from_le_bytes(*row))));
            }
            for &weight in &weights {
                if !weight.is_finite() {
                    bad.get_or_insert(row);
                }
                least = least.into_iter().chain([weight]).reduce(f64::min);
                row += 1;
            }
            on_progress("grid weights", row * size, array.data_len(), "bytes")
        })?;
        if let Some(row) = bad {
            self.found(format!("grid `{WEIGHTS}`: row {row} is not finite"));
        } else if least != self.grid.header().least_weight {
            let expected = self.grid.header().least_weight;
            self.found(format!("grid `{WEIGHTS}`: the least is {least:?}, expected {expected:?}"));
        }
        Ok(())
    }

    /// The rank of each node, if every node has one.
    fn order(&mut self) -> Result<Option<Vec<u32>>> {
        let nodes = self.grid.shape().nodes;
        let Some(array) = self.grid.order() else { return Ok(Some((0..nodes as u32).collect())) };
        let mut ranks = vec![u32::MAX; nodes as usize];
        let (mut rank, mut bad) = (0u32, None);
        read_u32(array, &mut |order| {
            for node in order {
                match ranks.get_mut(*node as usize) {
                    Some(place) if *place == u32::MAX => *place = rank,
                    _ => bad = bad.or(Some((rank, *node))),
                }
                rank += 1;
            }
            Ok(())
        })?;
        let Some((rank, node)) = bad else { return Ok(Some(ranks)) };
        self.found(format!(
            "grid `{ORDER}`: row {rank}: node {node} is no node or has a rank already"
        ));
        Ok(None)
    }

    fn degrees(&mut self, key: &str, array: &ArrayRef, expected: &[u64]) -> Result<()> {
        let (mut rank, mut bad) = (0, None);
        read_u32(array, &mut |degrees| {
            for degree in degrees {
                if u64::from(*degree) != expected[rank] {
                    bad = bad.or(Some((rank, *degree)));
                }
                rank += 1;
            }
            Ok(())
        })?;
        if let Some((rank, degree)) = bad {
            let expected = expected[rank];
            self.found(format!(
                "grid `{key}`: row {rank}: {degree}, but there are {expected} arcs"
            ));
        }
        Ok(())
    }

    /// Compares in-degrees by rank with the CSC or the triples, by subtracting these from `into`.
    /// Nodes that are not connected must have in-degree 0.
    fn in_degrees(
        &mut self,
        into: &mut [u64],
        ranks: &[u32],
        on_progress: OnProgress<'_>,
    ) -> Result<()> {
        let mut bad = None;
        let mut take = |node: u64, degree: u64| {
            let rank = ranks.get(node as usize).map_or(usize::MAX, |rank| *rank as usize);
            match into.get_mut(rank) {
                Some(left) => *left = left.wrapping_sub(degree),
                None if degree != 0 => bad = bad.or(Some(node)),
                None => {}
            }
        };
        let key = match self.grid.source().origin() {
            Origin::Csc(columns) => {
                of_columns(self.data_set, columns, &mut take, on_progress)?;
                keys::OFFSETS
            }
            Origin::Triples { relation, .. } => {
                of_triples(self.data_set, *relation, &mut take, on_progress)?;
                keys::TRIPLES
            }
        };
        let other = |rank: &u32| into.get(*rank as usize).is_some_and(|left| *left != 0);
        let bad = bad.or(ranks.iter().position(other).map(|node| node as u64));
        if let Some(node) = bad {
            self.found(format!("grid: node {node} has other arcs into it than `{key}` says"));
        }
        Ok(())
    }
}

/// Calls `each` for every node with a column, with the number of arcs in the column.
fn of_columns(
    data_set: &DataSet,
    columns: &Columns,
    each: &mut dyn FnMut(u64, u64),
    on_progress: OnProgress<'_>,
) -> Result<()> {
    let array = data_set.array(keys::OFFSETS)?;
    let mut parts = columns.parts().iter().peekable();
    let mut reader = ArrayReader::open(&array.path)?;
    let (mut row, mut before) = (0u64, 0u64);
    reader.for_each_chunk(CHUNK, &mut |_, bytes| {
        for offset in bytes.as_chunks::<8>().0.iter().map(|offset| u64::from_le_bytes(*offset)) {
            while parts.next_if(|part| part.columns.end < row).is_some() {}
            if let Some(part) = parts.peek().filter(|part| row > part.columns.start) {
                // A node has one column for each edge type into it.
                let node = part.first_target + (row - 1 - part.columns.start);
                each(node, offset.wrapping_sub(before));
            }
            (row, before) = (row + 1, offset);
        }
        on_progress("grid degrees", row * 8, array.data_len(), "bytes")
    })
}

/// Calls `each` with the tail of every triple of the chosen relation, and 1.
fn of_triples(
    data_set: &DataSet,
    chosen: Option<i64>,
    each: &mut dyn FnMut(u64, u64),
    on_progress: OnProgress<'_>,
) -> Result<()> {
    let array = data_set.array(keys::TRIPLES)?;
    let mut reader = ArrayReader::open(&array.path)?;
    let mut done = 0;
    reader.for_each_chunk(CHUNK, &mut |_, bytes| {
        for words in bytes.as_chunks::<24>().0 {
            let [_, relation, tail] = bytemuck::pod_read_unaligned::<[i64; 3]>(words);
            if chosen.is_none_or(|chosen| chosen == relation) {
                // An id that is not an entity becomes a number that is not a node.
                each(tail as u64, 1);
            }
        }
        done += bytes.len() as u64;
        on_progress("grid degrees", done, array.data_len(), "bytes")
    })
}

/// The last edge of `arcs`. Requires that each row has one entry, columns ascend within each, and
/// no edge is below `before`; otherwise `None`.
fn last_key(arcs: &Arcs<'_>, before: Option<u32>) -> Option<u32> {
    let mut entries: Vec<(usize, &[u16])> =
        arcs.rows().map(|(row, columns, _)| (row, columns)).collect();
    entries.sort_unstable_by_key(|(row, _)| *row);
    let once = entries.is_sorted_by(|(row, _), (next, _)| row < next);
    let ascend = entries.iter().all(|(_, columns)| columns.is_sorted());
    let key = |row: usize, column: &u16| (row as u32) << 16 | u32::from(*column);
    let first = entries.first().and_then(|(row, columns)| Some(key(*row, columns.first()?)));
    let last = entries.last().and_then(|(row, columns)| Some(key(*row, columns.last()?)));
    if once && ascend && first >= before { last } else { None }
}

/// Whether a diagonal block of a symmetric grid has only edges of the upper half, with loops only
/// in loop pieces.
fn diagonal_is_right(arcs: &Arcs<'_>, piece: &crate::Piece, symmetric: bool) -> bool {
    if !symmetric || piece.row_part != piece.col_part {
        return true;
    }
    arcs.rows().all(|(row, columns, _)| {
        columns.iter().all(|column| match piece.is_loop {
            true => usize::from(*column) == row,
            false => usize::from(*column) > row,
        })
    })
}

fn count(arcs: &Arcs<'_>, piece: &crate::Piece, shape: &crate::GridShape, counted: &mut Counted) {
    let rank = |part: u32, local: usize| shape.rank(part as usize, local) as usize;
    let Counted { out, into } = counted;
    arcs.for_each(|column, row, _| {
        let (source, target) = (rank(piece.col_part, column), rank(piece.row_part, row));
        out[source] += 1;
        match into {
            Some(into) => into[target] += 1,
            None if !piece.is_loop => out[target] += 1,
            None => {}
        }
    });
    debug_assert_eq!(arcs.side, Side::ToRows);
}

fn open(array: &ArrayRef) -> Result<File> {
    File::open(&array.path).with_context(|| format!("grid `{}`", array.key))
}

/// Calls `each` with the rows of an array of four bytes each.
fn read_u32(array: &ArrayRef, each: &mut dyn FnMut(&[u32]) -> Result<()>) -> Result<()> {
    let mut reader = ArrayReader::open(&array.path)?;
    let mut rows = Vec::new();
    reader.for_each_chunk(CHUNK, &mut |_, bytes| {
        rows.clear();
        rows.extend(bytes.as_chunks::<4>().0.iter().map(|row| u32::from_le_bytes(*row)));
        each(&rows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arcs::SHORT;

    /// Row entries of one column each, then one of three.
    fn last_of(rows: &[u16], columns: &[u16], before: Option<u32>) -> Option<u32> {
        let single = rows.len() as u32 - 1;
        let ends: Vec<u32> = (1..=single).chain([single + 3]).collect();
        let mut short_counts = [0; SHORT];
        (short_counts[0], short_counts[2]) = (single, 1);
        let side = Side::ToRows;
        last_key(&Arcs { rows, ends: &ends, short_counts, columns, weights: &[], side }, before)
    }

    #[test]
    fn rows_stand_once_and_edges_ascend_behind_those_before() {
        let key = |row: u32, column: u32| Some(row << 16 | column);
        // Rows 2 and 9 have one column, row 5 has three.
        assert_eq!(last_of(&[2, 9, 5], &[8, 4, 1, 3, 7], None), key(9, 4));
        assert_eq!(last_of(&[2, 3, 5], &[8, 4, 1, 3, 7], None), key(5, 7));
        // Parallel arcs have the same column, also in the piece before.
        assert_eq!(last_of(&[2, 9, 5], &[8, 4, 3, 3, 3], key(2, 8)), key(9, 4));
        assert_eq!(last_of(&[2, 9, 5], &[8, 4, 1, 3, 7], key(2, 9)), None, "not behind");
        assert_eq!(last_of(&[2, 2, 5], &[8, 9, 1, 3, 7], None), None, "twice in a group");
        assert_eq!(last_of(&[2, 5, 5], &[8, 0, 1, 3, 7], None), None, "twice, in two groups");
        assert_eq!(last_of(&[2, 9, 5], &[8, 4, 3, 1, 7], None), None, "columns descend");
    }
}
