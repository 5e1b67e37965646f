//! Pieces: the edges of a block, at most 65,536 at a time. Encodes, checks and decodes them.

use std::ops::Range;

use outercore_core::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::arcs::{Arcs, SHORT, Side, length_group};
use crate::bytes12;
use crate::header::{BLOCKS, mend};
use crate::shape::GridShape;

// Columns are used directly from the file's bytes.
const _: () = assert!(cfg!(target_endian = "little"), "the format is little endian");

/// The most edges of a piece.
pub const PIECE_EDGES: usize = 1 << 16;

/// Bodies start at multiples of this many bytes.
pub(crate) const ALIGN: usize = 8;

/// Bytes before the first section of a body: the lengths of the first two sections, and the numbers
/// of row entries with 2 to [`SHORT`] columns and with more.
const PREFIX: usize = 8 + 2 * SHORT;

/// Encoding of the columns of a piece; its rows are always compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Two bytes per column, used in place.
    Plain,
    /// Differences within a row, one or two bytes each: for graphs whose neighbours have near ids.
    Delta,
}

/// Position and content of an encoded part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Start of its body in the data of `grid/edge/blocks`; a multiple of 8.
    pub offset: u64,
    /// Number of stored edges before it; also the row of its first weight.
    pub first_edge: u64,
    /// Bytes of its body.
    pub len: u32,
    /// Edges, 1 to 65,536.
    pub edges: u32,
    /// Number of row entries.
    pub rows: u32,
    /// Partition of its rows.
    pub row_part: u32,
    /// Partition of its columns.
    pub col_part: u32,
    /// Least local id of a row.
    pub first_row: u16,
    /// Largest local id of a row.
    pub last_row: u16,
    /// XXH3-64 of its body.
    pub checksum: u64,
    /// Encoding of its columns.
    pub codec: Codec,
    /// Whether it holds the loops of a symmetric grid, which are applied once and never in reverse.
    pub is_loop: bool,
}

const LOOP: u64 = 1;

impl Piece {
    /// The record in `grid/edge/pieces`.
    pub(crate) fn to_words(self) -> [u64; 8] {
        let codec = match self.codec {
            Codec::Plain => 0,
            Codec::Delta => 1,
        };
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let rows = u64::from(self.first_row) << 32 | u64::from(self.last_row) << 48;
        [
            self.offset,
            self.first_edge,
            pair(self.len, self.edges),
            pair(self.row_part, self.col_part),
            u64::from(self.rows) | rows,
            self.checksum,
            codec | if self.is_loop { LOOP << 8 } else { 0 },
            0,
        ]
    }

    /// Reads a record; `Grid::open` checks its content against the shape.
    ///
    /// # Errors
    /// A description of the unknown codec, flag or word.
    pub(crate) fn from_words(words: [u64; 8]) -> Result<Self, String> {
        let (codec, flags) = (words[6] & 0xFF, words[6] >> 8);
        let codec = match codec {
            0 => Codec::Plain,
            1 => Codec::Delta,
            other => return Err(format!("codec {other}, expected 0 or 1")),
        };
        if flags & !LOOP != 0 || words[7] != 0 {
            return Err(format!("flags {flags:#x} and word {:#x} are not known", words[7]));
        }
        Ok(Self {
            offset: words[0],
            first_edge: words[1],
            len: words[2] as u32,
            edges: (words[2] >> 32) as u32,
            rows: words[4] as u32,
            row_part: words[3] as u32,
            col_part: (words[3] >> 32) as u32,
            first_row: (words[4] >> 32) as u16,
            last_row: (words[4] >> 48) as u16,
            checksum: words[5],
            codec,
            is_loop: flags & LOOP != 0,
        })
    }

    /// Length of its body with padding.
    pub(crate) fn padded_len(&self) -> u64 {
        u64::from(self.len).next_multiple_of(ALIGN as u64)
    }

    fn corrupt(&self, what: impl std::fmt::Display) -> Error {
        Error::corrupt(what.to_string())
            .context(format!(
                "piece at byte {} (block {}, {})",
                self.offset, self.row_part, self.col_part
            ))
            .context(format!("grid `{BLOCKS}`"))
            .hint(mend())
    }
}

/// Appends the body of a piece. `keys` are the edges as ascending `row << 16 | column`, at most
/// 65,536. Appends their weights, if any, in the order of the body. Returns the encoding of the
/// columns and the number of row entries.
///
/// Entries with one column come first, then entries with two, up to [`SHORT`], then all others;
/// rows ascend within each group. Most entries therefore need no stored length, and loops over the
/// columns of most entries have a length known at compile time.
///
/// Differences are used if they reduce the bytes to two thirds or less. On Kronecker graphs they
/// reduce them only to 0.77, and decoding them takes four times as long.
///
/// **Cost**: two passes over the rows and two over the columns; holds 6 bytes per edge and 8 per
/// row entry.
///
/// # Panics
/// With more than 65,536 edges, or if `weights` is neither empty nor has one weight per edge.
///
/// # Example
/// ```
/// use outercore_grid::{Codec, encode};
/// let (mut body, mut weights) = (Vec::new(), Vec::new());
/// let edges = [3 << 16 | 7, 3 << 16 | 500, 9 << 16];
/// assert_eq!(encode(&edges, &[0.1, 0.2, 0.3], &mut body, &mut weights), (Codec::Plain, 2));
/// assert_eq!(weights, [0.3, 0.1, 0.2]);
/// assert_eq!(body.len(), 24 + 3 + 1 + 2 * 3);
/// ```
pub fn encode<W: Copy>(
    keys: &[u32],
    weights: &[W],
    out: &mut Vec<u8>,
    weights_out: &mut Vec<W>,
) -> (Codec, u32) {
    assert!(keys.len() <= PIECE_EDGES, "{} edges in a piece", keys.len());
    assert!(weights.is_empty() || weights.len() == keys.len(), "{} weights", weights.len());
    let groups = by_length(keys);
    let (mut gaps, mut counts) = (Vec::new(), Vec::new());
    let mut columns = Vec::with_capacity(keys.len());
    let mut differences = Vec::with_capacity(keys.len());
    for (group, entries) in groups.iter().enumerate() {
        let mut row_before = 0;
        for entry in entries {
            let entry = entry.start as usize..entry.end as usize;
            let row = keys[entry.start] >> 16;
            gaps.push((row - row_before) as u16);
            row_before = row;
            if group == SHORT {
                counts.push((entry.len() - SHORT - 1) as u16);
            }
            let mut column_before = 0;
            for key in &keys[entry.clone()] {
                let column = *key as u16;
                columns.push(column);
                differences.push(column - column_before);
                column_before = column;
            }
            if !weights.is_empty() {
                weights_out.extend_from_slice(&weights[entry]);
            }
        }
    }
    let start = out.len();
    out.resize(start + PREFIX, 0);
    bytes12::encode(&gaps, out);
    let gaps_end = out.len();
    bytes12::encode(&counts, out);
    let counts_end = out.len();
    let [gaps_len, counts_len] = [gaps_end - start - PREFIX, counts_end - gaps_end];
    out[start..start + 4].copy_from_slice(&(gaps_len as u32).to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&(counts_len as u32).to_le_bytes());
    // At most half as many entries as edges have two or more columns, so their number fits 16 bits.
    for (place, entries) in out[start + 8..start + PREFIX].chunks_exact_mut(2).zip(&groups[1..]) {
        place.copy_from_slice(&(entries.len() as u16).to_le_bytes());
    }
    out.resize(start + (counts_end - start).next_multiple_of(2), 0);
    let rows_len = out.len() - start;
    let plain = rows_len + 2 * columns.len();
    let delta = rows_len + bytes12::encoded_len(&differences) + 1;
    let codec = if 3 * delta <= 2 * plain { Codec::Delta } else { Codec::Plain };
    match codec {
        Codec::Plain => out.extend(columns.iter().flat_map(|column| column.to_le_bytes())),
        Codec::Delta => {
            bytes12::encode(&differences, out);
            out.push(0);
        }
    }
    (codec, gaps.len() as u32)
}

/// The range of each row's edges within ascending edges, by the row's group.
fn by_length(keys: &[u32]) -> [Vec<Range<u32>>; SHORT + 1] {
    let mut groups: [Vec<Range<u32>>; SHORT + 1] = Default::default();
    let mut start = 0;
    for row in keys.chunk_by(|a, b| a >> 16 == b >> 16) {
        let end = start + row.len() as u32;
        groups[length_group(row.len())].push(start..end);
        start = end;
    }
    groups
}

/// The weights of a piece, in the form of the file.
#[derive(Clone, Copy, Debug)]
pub enum PieceWeights<'a> {
    /// No weights exist or are needed.
    None,
    /// `float32`, if they represent every weight of the grid exactly.
    Single(&'a [f32]),
    /// `float64`.
    Double(&'a [f64]),
}

impl PieceWeights<'_> {
    /// Number of weights, if there are any.
    fn len(&self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Single(weights) => Some(weights.len()),
            Self::Double(weights) => Some(weights.len()),
        }
    }
}

/// Decodes bodies into arcs, one piece at a time, and reuses its memory.
///
/// **Cost**: at most 528 KiB, and 512 KiB more with `float32` weights. About a nanosecond per row
/// entry, and another per edge with [`Codec::Delta`].
#[derive(Default)]
pub struct Decoder {
    rows: Vec<u16>,
    counts: Vec<u16>,
    ends: Vec<u32>,
    columns: Vec<u16>,
    weights: Vec<f64>,
}

impl Decoder {
    /// Decodes the edges of `piece`, with flow from columns to rows.
    ///
    /// `bytes` is the body, at an address that is a multiple of 2. `weights` has one entry per edge
    /// or is empty. The checksum is compared if `verify` is set. For any bytes, the rows and
    /// columns in the result are within their partitions, and the ends are within the columns.
    ///
    /// # Errors
    /// `Corrupt`, naming the offset of the piece. `Internal`: a wrong number of weights.
    pub fn decode<'a>(
        &'a mut self,
        piece: &Piece,
        shape: &GridShape,
        bytes: &'a [u8],
        weights: PieceWeights<'a>,
        verify: bool,
    ) -> Result<Arcs<'a>> {
        let edges = piece.edges as usize;
        if let Some(found) = weights.len().filter(|&found| found != edges) {
            return Err(Error::internal(format!("{found} weights for a piece of {edges} edges")));
        }
        if bytes.len() != piece.len as usize {
            let (found, expected) = (bytes.len(), piece.len);
            return Err(piece.corrupt(format!("{found} bytes, expected {expected}")));
        }
        if verify {
            let found = xxh3_64(bytes);
            if found != piece.checksum {
                let expected = piece.checksum;
                return Err(
                    piece.corrupt(format!("checksum {found:016x}, expected {expected:016x}"))
                );
            }
        }
        let (columns, short_counts) =
            self.rows_and_ends(piece, shape, bytes).map_err(|what| piece.corrupt(what))?;
        let limit = shape.partition_len(piece.col_part as usize);
        let columns = match piece.codec {
            Codec::Plain => plain_columns(columns, piece.edges as usize),
            Codec::Delta => delta_columns(columns, &self.ends, &mut self.columns),
        };
        let columns = columns.map_err(|what| piece.corrupt(what))?;
        // The maximum of all columns, without an early exit, so that the loop is vectorised.
        let largest = columns.iter().fold(0, |largest, &column| column.max(largest));
        if edges > 0 && usize::from(largest) >= limit {
            return Err(piece.corrupt("a column beyond its partition"));
        }
        let weights = match weights {
            PieceWeights::None => &[],
            PieceWeights::Double(weights) => weights,
            PieceWeights::Single(weights) => {
                self.weights.clear();
                self.weights.extend(weights.iter().map(|&weight| f64::from(weight)));
                &self.weights[..]
            }
        };
        let (rows, ends) = (&self.rows[..], &self.ends[..]);
        Ok(Arcs { rows, ends, short_counts, columns, weights, side: Side::ToRows })
    }

    /// Decodes the row entries. Returns the bytes of the columns, and the numbers of entries with 1
    /// to [`SHORT`] columns.
    fn rows_and_ends<'a>(
        &mut self,
        piece: &Piece,
        shape: &GridShape,
        bytes: &'a [u8],
    ) -> Result<(&'a [u8], [u32; SHORT]), &'static str> {
        let (prefix, sections) = bytes.split_first_chunk::<PREFIX>().ok_or("cut short")?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| prefix[4 * at + byte]));
        let (gaps_len, counts_len) = (word(0) as usize, word(1) as usize);
        let groups = groups(piece, &prefix[8..])?;
        self.rows.resize(piece.rows as usize, 0);
        self.ends.resize(piece.rows as usize, 0);
        self.counts.resize(groups[SHORT] as usize, 0);
        bytes12::decode(sections, gaps_len, &mut self.rows).ok_or("bad row gaps")?;
        // The gaps have been decoded, so this range exists.
        let after = &sections[gaps_len..];
        bytes12::decode(after, counts_len, &mut self.counts).ok_or("bad row counts")?;
        let (mut first, mut last) = (u32::MAX, 0);
        let mut rows = &mut self.rows[..];
        for count in groups {
            let (group, others) = rows.split_at_mut(count as usize);
            // At most 65,536 gaps of at most 65,535 do not overflow.
            let mut row = 0u32;
            for gap in group.iter_mut() {
                row += u32::from(*gap);
                *gap = row as u16;
            }
            last = last.max(row);
            first = first.min(group.first().map_or(u32::MAX, |row| u32::from(*row)));
            rows = others;
        }
        if piece.rows > 0 && last as usize >= shape.partition_len(piece.row_part as usize) {
            return Err("a row beyond its partition");
        }
        if piece.rows > 0 && (first, last) != (piece.first_row.into(), piece.last_row.into()) {
            return Err("other rows than the piece's record says");
        }
        let mut end = 0;
        let mut ends = &mut self.ends[..];
        for (count, columns) in groups[..SHORT].iter().zip(1u32..) {
            let (group, others) = ends.split_at_mut(*count as usize);
            for place in group {
                end += columns;
                *place = end;
            }
            ends = others;
        }
        // At most 7,281 counts of at most 65,544 cannot overflow.
        for (count, place) in self.counts.iter().zip(ends) {
            end += u32::from(*count) + SHORT as u32 + 1;
            *place = end;
        }
        if end != piece.edges {
            return Err("other counts than the piece's record says");
        }
        let start = (PREFIX + gaps_len + counts_len).next_multiple_of(2);
        let short_counts = std::array::from_fn(|columns| groups[columns]);
        Ok((bytes.get(start..).ok_or("cut short")?, short_counts))
    }
}

/// Number of row entries by number of columns minus one; the last group has all longer entries.
/// Together they have at most as many edges as a piece may have.
fn groups(piece: &Piece, counts: &[u8]) -> Result<[u32; SHORT + 1], &'static str> {
    const WRONG: &str = "more edges or rows than a piece can have";
    if piece.edges as usize > PIECE_EDGES || piece.rows > piece.edges {
        return Err(WRONG);
    }
    let mut groups = [0; SHORT + 1];
    for (group, count) in groups[1..].iter_mut().zip(counts.as_chunks::<2>().0) {
        *group = u32::from(u16::from_le_bytes(*count));
    }
    groups[0] = piece.rows.checked_sub(groups.iter().sum()).ok_or(WRONG)?;
    let least: u32 = groups.iter().zip(1..).map(|(count, columns)| count * columns).sum();
    if least > piece.edges { Err(WRONG) } else { Ok(groups) }
}

fn plain_columns(bytes: &[u8], edges: usize) -> Result<&[u16], &'static str> {
    let columns = bytemuck::try_cast_slice::<u8, u16>(bytes)
        .map_err(|_| "columns of an odd length or address")?;
    if columns.len() == edges { Ok(columns) } else { Err("other columns than its record says") }
}

fn delta_columns<'a>(
    bytes: &[u8],
    ends: &[u32],
    columns: &'a mut Vec<u16>,
) -> Result<&'a [u16], &'static str> {
    columns.resize(ends.last().map_or(0, |end| *end as usize), 0);
    let len = bytes.len().checked_sub(1).ok_or("cut short")?;
    bytes12::decode(bytes, len, columns).ok_or("bad columns")?;
    let (mut start, mut largest) = (0, 0);
    for &end in ends {
        let mut column = 0u32;
        for difference in &mut columns[start..end as usize] {
            column += u32::from(*difference);
            *difference = column as u16;
        }
        largest = largest.max(column);
        start = end as usize;
    }
    if largest > 0xFFFF { Err("a column beyond its partition") } else { Ok(columns) }
}
