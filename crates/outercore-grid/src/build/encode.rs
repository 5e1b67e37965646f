//! Turns dealt records into pieces: sorts, encodes and appends them in file order.

use std::fs::File;
use std::os::unix::fs::FileExt;

use outercore_core::{Context, Result};
use outercore_store::npy::ArrayWriter;
use rayon::ThreadPool;
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::deal::Layout;
use super::input::READ;
use super::record::{Record, Weight};
use crate::piece::{ALIGN, PIECE_EDGES, Piece, encode};

/// Location of the dealt records.
pub(super) enum Dealt<R> {
    Memory(Vec<R>),
    File(File),
}

/// Receives encoded blocks in file order.
pub(super) struct Outputs {
    pub(super) blocks: ArrayWriter,
    pub(super) pieces: ArrayWriter,
    pub(super) weights: Option<ArrayWriter>,
    pub(super) written: Written,
}

/// Amount encoded so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Written {
    pub(super) bytes: u64,
    pub(super) edges: u64,
    pub(super) pieces: u64,
    pub(super) blocks: u64,
    /// `None` without weighted edges.
    pub(super) least_weight: Option<f64>,
}

/// An encoded block; its offsets are relative to its start.
struct Encoded<W> {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    weights: Vec<W>,
}

/// Encodes all blocks, of `edges[block]` records each. Encodes at most `batch` records at a time,
/// unless a single block has more.
pub(super) fn encode_all<R: Record>(
    mut dealt: Dealt<R>,
    edges: &[u64],
    layout: Layout,
    batch: u64,
    pool: &ThreadPool,
    outputs: &mut Outputs,
    on_edges: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let mut buffer = Vec::new();
    let (mut first, mut start) = (0, 0u64);
    while first < edges.len() {
        let (mut next, mut records) = (first, 0);
        while next < edges.len() && (records == 0 || records + edges[next] <= batch) {
            records += edges[next];
            next += 1;
        }
        let part = match &mut dealt {
            Dealt::Memory(all) => &mut all[start as usize..][..records as usize],
            Dealt::File(file) => {
                buffer.resize(records as usize, R::zeroed());
                pool.install(|| read_back(file, start, &mut buffer))?;
                &mut buffer[..]
            }
        };
        let blocks = split(part, first, &edges[first..next]);
        let encoded: Vec<Encoded<R::Weight>> = pool.install(|| {
            blocks
                .into_par_iter()
                .with_max_len(1)
                .map_init(Vec::new, |scratch, (block, records)| {
                    encode_block(layout, block, records, scratch)
                })
                .collect()
        });
        for block in encoded {
            outputs.append(block)?;
        }
        (first, start) = (next, start + records);
        on_edges(start)?;
    }
    Ok(())
}

fn read_back<R: Record>(file: &File, first: u64, records: &mut [R]) -> Result<()> {
    let size = size_of::<R>();
    records.par_chunks_mut(READ / size).enumerate().try_for_each(|(at, part)| {
        let offset = first * size as u64 + (at * READ) as u64;
        file.read_exact_at(bytemuck::cast_slice_mut(part), offset)
            .with_context(|| format!("temporary edges at byte {offset}"))
    })
}

/// The blocks with records, starting with block number `first`.
fn split<'a, R>(
    mut records: &'a mut [R],
    first: usize,
    edges: &[u64],
) -> Vec<(usize, &'a mut [R])> {
    let mut blocks = Vec::new();
    for (block, edges) in (first..).zip(edges).filter(|(_, edges)| **edges > 0) {
        let (now, later) = records.split_at_mut(*edges as usize);
        blocks.push((block, now));
        records = later;
    }
    blocks
}

fn encode_block<R: Record>(
    layout: Layout,
    block: usize,
    records: &mut [R],
    scratch: &mut Vec<R>,
) -> Encoded<R::Weight> {
    R::sort(records, scratch);
    let (row_part, col_part) = layout.partitions_of(block);
    let mut encoded = Encoded { bytes: Vec::new(), pieces: Vec::new(), weights: Vec::new() };
    let mut loops = Vec::new();
    let mut others = records.len();
    if layout.is_symmetric() && row_part == col_part {
        others = 0;
        for at in 0..records.len() {
            let record = records[at];
            if record.is_loop() {
                loops.push(record);
            } else {
                records[others] = record;
                others += 1;
            }
        }
    }
    let mut keys = Vec::with_capacity(records.len().min(PIECE_EDGES));
    let mut weights = Vec::new();
    let pieces = records[..others].chunks(PIECE_EDGES).map(|part| (part, false));
    for (part, is_loop) in pieces.chain(loops.chunks(PIECE_EDGES).map(|part| (part, true))) {
        keys.clear();
        keys.extend(part.iter().map(|record| record.key()));
        if R::WEIGHTED {
            weights.clear();
            weights.extend(part.iter().map(|record| record.weight()));
        }
        let offset = encoded.bytes.len();
        let (codec, rows) = encode(&keys, &weights, &mut encoded.bytes, &mut encoded.weights);
        let body = &encoded.bytes[offset..];
        encoded.pieces.push(Piece {
            offset: offset as u64,
            first_edge: 0,
            len: body.len() as u32,
            edges: keys.len() as u32,
            rows,
            row_part: row_part as u32,
            col_part: col_part as u32,
            first_row: (keys[0] >> 16) as u16,
            last_row: (keys[keys.len() - 1] >> 16) as u16,
            checksum: xxh3_64(body),
            codec,
            is_loop,
        });
        encoded.bytes.resize(encoded.bytes.len().next_multiple_of(ALIGN), 0);
    }
    encoded
}

impl Outputs {
    fn append<W: Weight>(&mut self, block: Encoded<W>) -> Result<()> {
        let written = &mut self.written;
        for piece in block.pieces {
            let placed =
                Piece { offset: written.bytes + piece.offset, first_edge: written.edges, ..piece };
            written.edges += u64::from(piece.edges);
            written.pieces += 1;
            self.pieces.write_slice(&placed.to_words())?;
        }
        written.bytes += block.bytes.len() as u64;
        written.blocks += 1;
        self.blocks.write(&block.bytes)?;
        if let Some(weights) = &mut self.weights {
            let least = block.weights.iter().map(|&weight| weight.into()).reduce(f64::min);
            written.least_weight = written.least_weight.into_iter().chain(least).reduce(f64::min);
            weights.write(bytemuck::cast_slice(&block.weights))?;
        }
        Ok(())
    }
}
