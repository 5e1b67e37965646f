//! Bodies of pieces: encoded edges decode to the same edges, and damaged bodies are rejected.

use outercore_core::ErrorKind;
use outercore_grid::{Arcs, Codec, Decoder, GridShape, Order, Piece, PieceWeights, SHORT, encode};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// Two partitions of `nodes` nodes each.
fn shape(nodes: u64) -> GridShape {
    let partition_log2 = nodes.next_power_of_two().trailing_zeros().max(1);
    let connected = nodes + (1 << partition_log2);
    GridShape {
        nodes: connected,
        connected,
        partition_log2,
        order: Order::Natural,
        symmetric: false,
        arcs: 0,
        edges: 0,
        weighted: false,
    }
}

/// A piece of block (0, 1) and its body, aligned to 8 bytes.
fn encoded(keys: &[u32]) -> (Piece, Vec<u64>) {
    let mut body = Vec::new();
    let (codec, rows) = encode::<f32>(keys, &[], &mut body, &mut Vec::new());
    let piece = Piece {
        offset: 64,
        first_edge: 0,
        len: body.len() as u32,
        edges: keys.len() as u32,
        rows,
        row_part: 1,
        col_part: 1,
        first_row: keys.first().map_or(0, |key| (key >> 16) as u16),
        last_row: keys.last().map_or(0, |key| (key >> 16) as u16),
        checksum: xxh3_64(&body),
        codec,
        is_loop: false,
    };
    let mut aligned = vec![0u64; body.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut aligned)[..body.len()].copy_from_slice(&body);
    (piece, aligned)
}

/// The edges of `arcs` in their order; both ways to walk over them must agree.
fn keys_of(arcs: &Arcs<'_>) -> Vec<u32> {
    let key = |row: usize, column: &u16| (row as u32) << 16 | u32::from(*column);
    let entries = arcs.rows();
    let keys: Vec<u32> = entries
        .flat_map(|(row, columns, _)| columns.iter().map(move |column| key(row, column)))
        .collect();
    let mut again = Vec::new();
    arcs.each_row(|row, columns| again.extend(columns.iter().map(|column| key(row, column))));
    assert!(again == keys);
    keys
}

/// Ascending edges in the order of a body.
fn grouped(keys: &[u32]) -> Vec<u32> {
    let mut entries: Vec<&[u32]> = keys.chunk_by(|a, b| a >> 16 == b >> 16).collect();
    entries.sort_by_key(|entry| entry.len().min(SHORT + 1));
    entries.concat()
}

fn assert_round_trip(keys: &[u32], codec: Option<Codec>) {
    let (piece, body) = encoded(keys);
    let bytes = &bytemuck::cast_slice(&body)[..piece.len as usize];
    let mut decoder = Decoder::default();
    let shape = shape(1 << 16);
    let arcs = decoder.decode(&piece, &shape, bytes, PieceWeights::None, true).unwrap();
    assert!(keys_of(&arcs) == grouped(keys), "{} edges", keys.len());
    assert_eq!(arcs.rows.len() as u32, piece.rows);
    if let Some(codec) = codec {
        assert_eq!(piece.codec, codec, "{} edges", keys.len());
    }
}

#[test]
fn pieces_of_every_extreme_are_read_back() {
    let key = |row: u32, column: u32| row << 16 | column;
    let all = 0..1u32 << 16;
    assert_round_trip(&[], None);
    assert_round_trip(&[0], None);
    assert_round_trip(&[u32::MAX], None);
    assert_round_trip(
        &all.clone().map(|at| key(at, 65_535)).collect::<Vec<_>>(),
        Some(Codec::Plain),
    );
    assert_round_trip(&all.clone().map(|at| key(at, at)).collect::<Vec<_>>(), Some(Codec::Plain));
    assert_round_trip(&all.clone().map(|at| key(9, at)).collect::<Vec<_>>(), Some(Codec::Delta));
    assert_round_trip(&all.clone().map(|_| key(65_535, 65_535)).collect::<Vec<_>>(), None);
    assert_round_trip(&all.map(|at| key(at / 2, at % 2 * 65_535)).collect::<Vec<_>>(), None);
}

#[test]
fn entries_of_every_length_are_read_back_with_their_weights() {
    let keys: Vec<u32> = (0..40u32)
        .flat_map(|row| (0..1 + row * 7 % 12).map(move |column| row << 16 | (column * 900)))
        .collect();
    assert_round_trip(&keys, None);
    let weights: Vec<f32> = keys.iter().map(|key| *key as f32).collect();
    let (mut body, mut in_order) = (Vec::new(), vec![0.5]);
    encode(&keys, &weights, &mut body, &mut in_order);
    let expected = grouped(&keys).into_iter().map(|key| key as f32);
    assert!(in_order[1..].iter().copied().eq(expected));
}

#[test]
fn more_long_entries_than_edges_allow_are_refused() {
    let keys: Vec<u32> = (0..12).map(|at| at << 16 | at).collect();
    let (piece, mut body) = encoded(&keys);
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut body);
    for (at, what) in [(8, 2u16), (8 + 2 * (SHORT - 1), 2), (8, 13), (8, u16::MAX)] {
        bytes[at..at + 2].copy_from_slice(&what.to_le_bytes());
        let mut decoder = Decoder::default();
        let found = decoder.decode(
            &piece,
            &shape(1 << 16),
            &bytes[..piece.len as usize],
            PieceWeights::None,
            false,
        );
        assert_eq!(found.unwrap_err().kind(), ErrorKind::Corrupt);
        bytes[at..at + 2].fill(0);
    }
}

#[test]
fn a_piece_that_is_cut_short_or_damaged_anywhere_is_corrupt() {
    for keys in [
        vec![0, 1, 2, 3 << 16 | 700, 300 << 16, 300 << 16 | 65_000],
        (0..600).map(|at| ((at / 40) << 16) | ((at % 40) * 3)).collect(),
        (0..300).map(|at| at << 16 | (at * 7919) & 0xFFFF).collect(),
    ] {
        let (piece, mut body) = encoded(&keys);
        let len = piece.len as usize;
        let (shape, mut decoder) = (shape(1 << 16), Decoder::default());
        for short in 0..len {
            let bytes = &bytemuck::cast_slice(&body)[..short];
            let error =
                decoder.decode(&piece, &shape, bytes, PieceWeights::None, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            // Also without its checksum, even if the record agrees.
            let piece = Piece { len: short as u32, ..piece };
            let error =
                decoder.decode(&piece, &shape, bytes, PieceWeights::None, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{short} of {len} bytes");
        }
        for at in 0..len {
            for flip in [1, 0x80, 0xFF] {
                bytemuck::cast_slice_mut::<u64, u8>(&mut body)[at] ^= flip;
                let bytes = &bytemuck::cast_slice(&body)[..len];
                let error =
                    decoder.decode(&piece, &shape, bytes, PieceWeights::None, true).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                assert!(error.to_string().contains("byte 64"), "{error}");
                assert_contained(
                    decoder.decode(&piece, &shape, bytes, PieceWeights::None, false),
                    &piece,
                    1 << 16,
                );
                bytemuck::cast_slice_mut::<u64, u8>(&mut body)[at] ^= flip;
            }
        }
    }
}

/// Decoded rows and columns are within partitions of `nodes` nodes.
fn assert_contained(decoded: outercore_core::Result<Arcs<'_>>, piece: &Piece, nodes: usize) {
    let Ok(arcs) = decoded else { return };
    assert_eq!(arcs.columns.len(), piece.edges as usize);
    assert_eq!(arcs.ends.last().map_or(0, |end| *end), piece.edges);
    assert!(arcs.ends.is_sorted());
    assert_eq!(keys_of(&arcs).len(), arcs.columns.len());
    assert!(arcs.rows.iter().chain(arcs.columns).all(|local| usize::from(*local) < nodes));
}

#[test]
fn rows_and_columns_beyond_a_small_partition_are_refused() {
    let mut decoder = Decoder::default();
    for (keys, fits) in [
        (vec![99 << 16 | 99], true),
        (vec![100 << 16 | 99], false),
        (vec![99 << 16 | 100], false),
        ((0..101).collect(), false),
        ((0..100).collect(), true),
    ] {
        let (piece, body) = encoded(&keys);
        let bytes = &bytemuck::cast_slice(&body)[..piece.len as usize];
        let decoded = decoder.decode(&piece, &shape(100), bytes, PieceWeights::None, true);
        assert_eq!(decoded.is_ok(), fits, "{keys:?}");
    }
}

fn keys() -> impl Strategy<Value = Vec<u32>> {
    let near = prop::collection::vec((0..40u32, 0..600u32), 0..400);
    let far = prop::collection::vec((0..1u32 << 16, 0..1u32 << 16), 0..400);
    prop_oneof![near, far].prop_map(|pairs| {
        let mut keys: Vec<u32> = pairs.iter().map(|(row, column)| row << 16 | column).collect();
        keys.sort_unstable();
        keys
    })
}

proptest! {
    #[test]
    fn sorted_edges_are_read_back(keys in keys()) {
        assert_round_trip(&keys, None);
    }

    #[test]
    fn damaged_bodies_never_lead_out_of_a_partition(
        keys in keys(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let (mut piece, mut body) = encoded(&keys);
        let len = piece.len as usize;
        for (at, byte) in damage {
            bytemuck::cast_slice_mut::<u64, u8>(&mut body)[at.index(len)] = byte;
        }
        let bytes = &bytemuck::cast_slice(&body)[..len];
        for codec in [Codec::Plain, Codec::Delta] {
            piece.codec = codec;
            let mut decoder = Decoder::default();
            assert_contained(decoder.decode(&piece, &shape(1 << 16), bytes, PieceWeights::None, false), &piece, 1 << 16);
        }
    }
}

/// The bytes of a body as specified in `docs/format.md`, section 9, so that existing grids stay
/// readable.
#[test]
fn bodies_are_the_bytes_of_the_format() {
    let key = |row: u32, column: u32| row << 16 | column;
    let one_two_eight_ten: Vec<u32> = [key(3, 7), key(4, 1), key(4, 300)]
        .into_iter()
        .chain((0..8).map(|column| key(5, column)))
        .chain([key(6, 65_535)])
        .chain((10..20).map(|column| key(9, column)))
        .collect();
    let mut expected = vec![6, 0, 0, 0, 2, 0, 0, 0];
    // Numbers of entries with 2, 3, ... 8 columns, and with more.
    for count in [1u16, 0, 0, 0, 0, 0, 1, 1] {
        expected.extend(count.to_le_bytes());
    }
    // Rows 3 and 6 have one column, row 4 two, row 5 eight, row 9 ten: stored as ten minus nine.
    expected.extend([0, 3, 3, 4, 5, 9]);
    expected.extend([0, 1]);
    let columns = [7, 65_535, 1, 300].into_iter().chain(0..8).chain(10..20);
    expected.extend(columns.flat_map(|column: u16| column.to_le_bytes()));
    let mut body = Vec::new();
    assert_eq!(
        encode::<f32>(&one_two_eight_ten, &[], &mut body, &mut Vec::new()),
        (Codec::Plain, 5)
    );
    assert_eq!(body, expected);

    // A row of two bytes, one padding byte for an even offset, and differences.
    let near: Vec<u32> = (0..61).map(|column| key(300, column)).collect();
    let mut expected = vec![3, 0, 0, 0, 2, 0, 0, 0];
    expected.extend([0; 14]);
    expected.extend([1, 0]);
    expected.extend([1, 44, 1]);
    expected.extend([0, 52]);
    expected.push(0);
    expected.extend([0; 8]);
    expected.push(0);
    expected.extend([1; 60]);
    expected.push(0);
    let mut body = Vec::new();
    assert_eq!(encode::<f32>(&near, &[], &mut body, &mut Vec::new()), (Codec::Delta, 1));
    assert_eq!(body, expected);
}
