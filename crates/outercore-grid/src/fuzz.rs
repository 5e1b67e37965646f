//! Bodies of fuzz targets. Each accepts any bytes and panics if a property does not hold.

use std::sync::OnceLock;

use outercore_core::{Error, ErrorKind};
use outercore_store::dataset::DataSet;

use crate::header::GridHeader;
use crate::open::Expected;
use crate::piece::{Decoder, PIECE_EDGES, Piece, PieceWeights, encode};
use crate::shape::{GridShape, Order};

/// A header that parses does not contradict itself, and stays the same after writing and parsing it
/// again.
pub fn header(bytes: &[u8]) {
    static DATA_SET: OnceLock<DataSet> = OnceLock::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/format-1");
    let data_set = DATA_SET.get_or_init(|| DataSet::open(root).expect("a frozen data set"));
    let header = match GridHeader::from_json(bytes, data_set) {
        Ok(header) => header,
        Err(error) => return told(&error),
    };
    let shape = header.shape();
    let connected: u64 = (0..shape.partitions()).map(|p| shape.partition_len(p) as u64).sum();
    assert_eq!(connected, shape.connected);
    let written = header.to_json().expect("what was read can be written");
    let again = GridHeader::from_json(&written, data_set).expect("what was written");
    // A NaN weight is not equal to itself, so compare the text.
    assert_eq!(again.to_json().unwrap(), written);
}

/// Bytes of a piece's record, followed by the shape of its grid.
const HEAD: usize = 64 + 8;

/// For any record and body, decoded rows and columns are within the partitions. Encoded edges
/// decode to the same edges.
pub fn piece(bytes: &[u8]) {
    if let Some((head, body)) = bytes.split_first_chunk::<HEAD>() {
        any_piece(head, body);
    }
    let mut keys: Vec<u32> = words(bytes).collect();
    keys.truncate(PIECE_EDGES);
    keys.sort_unstable();
    same_edges(&keys);
    // The same with small rows and columns: other number widths, longer rows.
    keys.iter_mut().for_each(|key| *key = *key & 0x003F_0000 | *key & 0x3FF);
    keys.sort_unstable();
    same_edges(&keys);
}

fn any_piece(head: &[u8; HEAD], body: &[u8]) {
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let mut piece = match Piece::from_words(std::array::from_fn(|word| number(8 * word))) {
        Ok(piece) => piece,
        Err(what) => return assert!(!what.is_empty()),
    };
    assert_eq!(Piece::from_words(piece.to_words()), Ok(piece));
    let (connected, flags) = (number(64) & 0xFF_FFFF, head[71]);
    let shape = GridShape {
        nodes: connected,
        connected,
        partition_log2: 1 + u32::from(flags & 15),
        order: if flags & 16 == 0 { Order::Degree } else { Order::Natural },
        symmetric: flags & 32 != 0,
        arcs: 0,
        edges: 0,
        weighted: false,
    };
    (piece.offset, piece.first_edge, piece.len) = (0, 0, body.len() as u32);
    let header = GridHeader::new(&shape, None, Default::default());
    if Expected::default().take(&piece, &header).is_err() {
        return;
    }
    // Bodies start at multiples of 8.
    let mut aligned = vec![0u64; body.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut aligned)[..body.len()].copy_from_slice(body);
    let body = &bytemuck::cast_slice(&aligned)[..body.len()];
    let mut decoder = Decoder::default();
    let arcs = match decoder.decode(&piece, &shape, body, PieceWeights::None, false) {
        Ok(arcs) => arcs,
        Err(error) => return told(&error),
    };
    let rows = shape.partition_len(piece.row_part as usize);
    let columns = shape.partition_len(piece.col_part as usize);
    let mut edges = 0;
    arcs.for_each(|source, target, _| {
        assert!(target < rows && source < columns, "{target} of {rows}, {source} of {columns}");
        edges += 1;
    });
    assert_eq!(edges, piece.edges);
    assert_eq!(arcs.rows.len(), piece.rows as usize);
}

fn same_edges(keys: &[u32]) {
    if keys.is_empty() {
        return;
    }
    let weights: Vec<f64> = keys.iter().map(|key| f64::from(*key)).collect();
    let (mut body, mut in_order) = (Vec::new(), Vec::new());
    let (codec, rows) = encode(keys, &weights, &mut body, &mut in_order);
    let shape = GridShape {
        nodes: 1 << 16,
        connected: 1 << 16,
        partition_log2: 16,
        order: Order::Degree,
        symmetric: false,
        arcs: keys.len() as u64,
        edges: keys.len() as u64,
        weighted: true,
    };
    let piece = Piece {
        offset: 0,
        first_edge: 0,
        len: body.len() as u32,
        edges: keys.len() as u32,
        rows,
        row_part: 0,
        col_part: 0,
        first_row: (keys[0] >> 16) as u16,
        last_row: (keys[keys.len() - 1] >> 16) as u16,
        checksum: xxhash_rust::xxh3::xxh3_64(&body),
        codec,
        is_loop: false,
    };
    let header = GridHeader::new(&shape, None, Default::default());
    Expected::default().take(&piece, &header).expect("a record of an encoded piece");
    let mut aligned = vec![0u64; body.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut aligned)[..body.len()].copy_from_slice(&body);
    let body = &bytemuck::cast_slice(&aligned)[..body.len()];
    let mut decoder = Decoder::default();
    let arcs = decoder
        .decode(&piece, &shape, body, PieceWeights::Double(&in_order), true)
        .expect("what was encoded");
    let mut found = Vec::new();
    arcs.for_each(|source, target, weight| {
        let key = (target as u32) << 16 | source as u32;
        assert_eq!(weight, f64::from(key));
        found.push(key);
    });
    found.sort_unstable();
    assert_eq!(found, keys);
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// Bytes from outside never cause an internal error, and the error always has a message.
fn told(error: &Error) {
    assert!(error.kind() != ErrorKind::Internal, "internal error: {error}");
    assert!(!error.message().trim().is_empty(), "an error without a message");
}
