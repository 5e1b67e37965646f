//! Opens a grid: reads and checks its header and its piece records; reads no edges.

use outercore_core::{Error, ErrorKind, Result, shell_path};
use outercore_format::DType;
use outercore_store::dataset::{ArrayFile, ArrayRef, DataSet};

use crate::header::{
    BLOCKS, GridHeader, HEADER, IN_DEGREES, ORDER, OUT_DEGREES, PIECES, WEIGHTS, in_array, mend,
    named, rebuild_command,
};
use crate::piece::{ALIGN, PIECE_EDGES, Piece};
use crate::shape::GridShape;
use crate::source::GridSource;

/// Words of a piece record.
pub(crate) const RECORD_WORDS: usize = 8;

/// Piece records per read.
const RECORDS: u64 = 1 << 12;

/// A larger header was not written by Outercore.
const MAX_HEADER: u64 = 1 << 20;

/// A grid whose header and piece records have been read and are consistent.
///
/// **Cost**: holds 64 bytes per piece.
#[derive(Clone, Debug)]
pub struct Grid {
    shape: GridShape,
    header: GridHeader,
    source: GridSource,
    pieces: Vec<Piece>,
    blocks: ArrayRef,
    weights: Option<ArrayRef>,
    order: Option<ArrayRef>,
    out_degrees: ArrayRef,
    in_degrees: Option<ArrayRef>,
}

impl Grid {
    /// Opens the grid of a data set.
    ///
    /// **Cost**: reads the header and 64 bytes per piece.
    ///
    /// # Errors
    /// `NotFound`: there is no grid. `Invalid`: it must be rebuilt, because it was built from
    /// another topology or other weights, or by an older release. `Version`: a newer version.
    /// `Corrupt`: it contradicts itself.
    pub fn open(data_set: &DataSet) -> Result<Self> {
        let root = data_set.root().display();
        if !Self::is_built(data_set) {
            return Err(Error::new(ErrorKind::NotFound, format!("data set `{root}` has no grid"))
                .hint(format!("run `outercore grid {}`", shell_path(data_set.root()))));
        }
        let header = read_header(data_set)?;
        let manifest = data_set.manifest();
        let source = GridSource::of(data_set, header.relation.as_deref()).ok().filter(|source| {
            header.topology == source.topology(manifest, header.weights.as_deref())
                && header.nodes == source.nodes()
                && source.arcs().is_none_or(|arcs| header.arcs == arcs)
                && header.symmetric == source.is_symmetric()
        });
        let Some(source) = source else {
            return Err(Error::invalid(format!(
                "the grid of `{root}` belongs to another topology"
            ))
            .hint(format!(
                "rebuild: `{}`",
                rebuild_command(data_set, header.relation.as_deref(), header.weights.as_deref())
            )));
        };
        let shape = header.shape();
        let array = |key: &str, dtype: DType, extents: &[u64]| {
            let array = data_set.array(key)?;
            if array.dtype == dtype && array.shape == extents {
                return Ok(array);
            }
            in_array(
                key,
                Err(Error::corrupt(format!(
                    "{} {:?}, expected {dtype} {extents:?}",
                    array.dtype, array.shape
                ))
                .hint(mend())),
            )
        };
        let blocks = array(BLOCKS, DType::U8, &[header.codec_bytes])?;
        let out_degrees = array(OUT_DEGREES, DType::U32, &[shape.connected])?;
        let in_degrees = match shape.symmetric {
            true => None,
            false => Some(array(IN_DEGREES, DType::U32, &[shape.connected])?),
        };
        let order = match data_set.has_array(ORDER) {
            true => Some(array(ORDER, DType::U32, &[shape.nodes])?),
            false => None,
        };
        let weights = match shape.weighted {
            // The narrowest type that represents all weights exactly.
            true => Some(match data_set.array(WEIGHTS)?.dtype {
                DType::F64 => array(WEIGHTS, DType::F64, &[shape.edges])?,
                _ => array(WEIGHTS, DType::F32, &[shape.edges])?,
            }),
            false => None,
        };
        let pieces = in_array(PIECES, read_pieces(&data_set.array(PIECES)?, &header))?;
        Ok(Self { shape, header, source, pieces, blocks, weights, order, out_degrees, in_degrees })
    }

    /// Whether a grid exists; it may be stale.
    pub fn is_built(data_set: &DataSet) -> bool {
        data_set.has_array(HEADER)
    }

    /// The shape of the grid.
    pub fn shape(&self) -> &GridShape {
        &self.shape
    }

    /// The header as it was read.
    pub fn header(&self) -> &GridHeader {
        &self.header
    }

    /// The source of the grid's arcs.
    pub fn source(&self) -> &GridSource {
        &self.source
    }

    /// Checks that the grid of `data_set` contains the arcs of the edge type or relation `wanted`,
    /// or all arcs.
    ///
    /// # Errors
    /// `Invalid`: it contains other arcs; names the command that rebuilds it.
    pub fn check_relation(&self, data_set: &DataSet, wanted: Option<&str>) -> Result<()> {
        let found = self.source.relation();
        if found == wanted {
            return Ok(());
        }
        let all = match data_set.manifest().edge_types.is_empty() {
            true => "all relations",
            false => "all edge types",
        };
        let name = |relation: Option<&str>| {
            relation.map_or_else(|| all.to_owned(), |relation| named(data_set, relation))
        };
        Err(Error::invalid(format!(
            "the grid of `{}` has the arcs of {}, expected {}",
            data_set.root().display(),
            name(found),
            name(wanted)
        ))
        .hint(format!("rebuild: `{}`", rebuild_command(data_set, wanted, None))))
    }

    /// The pieces in file order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The bodies of the pieces: `uint8 [bytes]`.
    pub fn blocks(&self) -> &ArrayRef {
        &self.blocks
    }

    /// The weights of the edges, in the order of the pieces: `float32 [edges]` or
    /// `float64 [edges]`.
    pub fn weights(&self) -> Option<&ArrayRef> {
        self.weights.as_ref()
    }

    /// Bytes of a stored weight; 0 without weights.
    pub fn weight_bytes(&self) -> u64 {
        self.weights.as_ref().map_or(0, |weights| weights.dtype.size() as u64)
    }

    /// The node of each rank, nodes without arcs last: `uint32 [N]`; `None` if ranks equal node
    /// ids.
    pub fn order(&self) -> Option<&ArrayRef> {
        self.order.as_ref()
    }

    /// Number of arcs out of each rank, including loops and parallel arcs: `uint32 [C]`.
    pub fn out_degrees(&self) -> &ArrayRef {
        &self.out_degrees
    }

    /// Number of arcs into each rank: `uint32 [C]`; the out-degrees in a symmetric grid.
    pub fn in_degrees(&self) -> &ArrayRef {
        self.in_degrees.as_ref().unwrap_or(&self.out_degrees)
    }
}

/// The header of the grid, stale or not.
pub(crate) fn read_header(data_set: &DataSet) -> Result<GridHeader> {
    let array = data_set.array(HEADER)?;
    let read = || {
        if array.data_len() > MAX_HEADER {
            return Err(Error::corrupt(format!("{} bytes", array.data_len())).hint(mend()));
        }
        let bytes = data_set.read_array(HEADER).map_err(|error| error.hint(mend()))?;
        GridHeader::from_json(&bytes, data_set)
    };
    in_array(HEADER, read())
}

fn read_pieces(array: &ArrayRef, header: &GridHeader) -> Result<Vec<Piece>> {
    if array.dtype != DType::U64 || array.shape.get(1..) != Some(&[RECORD_WORDS as u64][..]) {
        return Err(Error::corrupt(format!(
            "{} {:?}, expected uint64 [pieces, {RECORD_WORDS}]",
            array.dtype, array.shape
        ))
        .hint(mend()));
    }
    let file = ArrayFile::open(array.clone())?;
    let mut pieces = Vec::with_capacity(array.rows() as usize);
    let mut records = vec![[0u64; RECORD_WORDS]; RECORDS.min(array.rows()) as usize];
    let mut expected = Expected::default();
    while (pieces.len() as u64) < array.rows() {
        let part = RECORDS.min(array.rows() - pieces.len() as u64) as usize;
        let bytes = bytemuck::cast_slice_mut(&mut records[..part]);
        file.read((pieces.len() * RECORD_WORDS) as u64, bytes)?;
        for words in &records[..part] {
            let piece = Piece::from_words(*words).and_then(|piece| {
                expected.take(&piece, header)?;
                Ok(piece)
            });
            pieces.push(piece.map_err(|what| {
                Error::corrupt(format!("piece {}: {what}", pieces.len())).hint(mend())
            })?);
        }
    }
    if expected.edges != header.edges || expected.bytes != header.codec_bytes {
        return Err(Error::corrupt(format!(
            "{} edges in {} bytes, expected {} in {}",
            expected.edges, expected.bytes, header.edges, header.codec_bytes
        ))
        .hint(mend()));
    }
    Ok(pieces)
}

/// The required content of the next record, from the records before it.
#[derive(Default)]
pub(crate) struct Expected {
    bytes: u64,
    edges: u64,
    /// Place of the last piece in file order: diagonal, row partition, loops last.
    place: (u64, u32, bool),
}

impl Expected {
    pub(crate) fn take(&mut self, piece: &Piece, header: &GridHeader) -> Result<(), String> {
        let shape = header.shape();
        let partitions = shape.partitions() as u64;
        let (row, col) = (u64::from(piece.row_part), u64::from(piece.col_part));
        if row >= partitions || col >= partitions || (shape.symmetric && row > col) {
            return Err(format!("block {row}, {col} of {partitions} partitions"));
        }
        if piece.is_loop && !(shape.symmetric && row == col) {
            return Err(format!("loops in block {row}, {col}"));
        }
        let place = ((col + partitions - row) % partitions, piece.row_part, piece.is_loop);
        if place < self.place {
            return Err(format!("block {row}, {col} is out of order"));
        }
        if piece.edges == 0 || piece.edges as usize > PIECE_EDGES {
            return Err(format!("{} edges", piece.edges));
        }
        let rows = shape.partition_len(piece.row_part as usize);
        if piece.rows == 0
            || piece.rows > piece.edges
            || piece.first_row > piece.last_row
            || usize::from(piece.last_row) >= rows
        {
            return Err(format!(
                "{} entries of rows {} to {}",
                piece.rows, piece.first_row, piece.last_row
            ));
        }
        if piece.offset != self.bytes || piece.first_edge != self.edges {
            return Err(format!(
                "byte {} and edge {}, expected {} and {}",
                piece.offset, piece.first_edge, self.bytes, self.edges
            ));
        }
        // The longest possible body: all numbers have two bytes.
        let most = 32 + 5 * u64::from(piece.rows) + 3 * u64::from(piece.edges);
        if u64::from(piece.len) > most.next_multiple_of(ALIGN as u64) {
            return Err(format!("{} bytes for {} edges", piece.len, piece.edges));
        }
        self.bytes += piece.padded_len();
        self.edges += u64::from(piece.edges);
        self.place = place;
        Ok(())
    }
}
