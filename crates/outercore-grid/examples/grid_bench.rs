//! Builds the grid of a data set and decodes it; reports seconds and bytes.
//!
//! ```text
//! outercore generate rmat --scale 20 --undirected --out rmat20
//! cargo run --release -p outercore-grid --example grid_bench -- rmat20 128MiB
//! ```
//! Prints one JSON object: the summary of the build, and the decoding speed of one thread for
//! pieces in memory. A third argument, `degree` or `natural`, gives the order.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use outercore_core::{Bytes, Error, Result};
use outercore_grid::{BuildOptions, Decoder, Grid, Order, PieceWeights, build};
use outercore_io::RealDisk;
use outercore_store::dataset::DataSet;

/// Most pieces to decode; they are spread over the file.
const PIECES: usize = 2000;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = || Error::invalid("expected: grid_bench DATASET [MEMORY [ORDER]]");
    let path = arguments.next().ok_or_else(usage)?;
    let memory: Bytes = arguments.next().map_or(Ok(Bytes::mib(128)), |text| text.parse())?;
    let order = match arguments.next().as_deref() {
        None => None,
        Some("degree") => Some(Order::Degree),
        Some("natural") => Some(Order::Natural),
        Some(_) => return Err(usage()),
    };
    let data_set = DataSet::open(&path)?;
    let options = BuildOptions { memory, order, overwrite: true, ..BuildOptions::default() };
    let (mut phase, mut begun) = (String::new(), Instant::now());
    let mut phases = serde_json::Map::new();
    let summary = build(&RealDisk, &data_set, &options, &mut |what, _, _, _| {
        if what != phase {
            if !phase.is_empty() {
                phases.insert(phase.clone(), begun.elapsed().as_secs_f64().into());
            }
            (phase, begun) = (what.to_owned(), Instant::now());
        }
        Ok(())
    })?;
    phases.insert(phase, begun.elapsed().as_secs_f64().into());
    let (edges, nanoseconds, checked) = decode(&DataSet::open(&path)?)?;
    let report = serde_json::json!({
        "summary": summary,
        "written_by_input": summary.written.0 as f64 / summary.input.0 as f64,
        "seconds_by_phase": phases,
        "decoded_edges": edges,
        "decode_ns_per_edge": nanoseconds,
        "decode_and_verify_ns_per_edge": checked,
    });
    println!("{report:#}");
    Ok(())
}

/// Decoded edges, and nanoseconds per edge without and with the checksum.
fn decode(data_set: &DataSet) -> Result<(u64, f64, f64)> {
    let grid = Grid::open(data_set)?;
    let step = grid.pieces().len().div_ceil(PIECES).max(1);
    let mut bodies = Vec::new();
    for piece in grid.pieces().iter().step_by(step) {
        let rows: Vec<u64> = (piece.offset..piece.offset + u64::from(piece.len)).collect();
        let bytes = data_set.read_rows(&grid.blocks().key, &rows)?;
        let mut body = vec![0u64; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut body)[..bytes.len()].copy_from_slice(&bytes);
        bodies.push((*piece, body));
    }
    let edges: u64 = bodies.iter().map(|(piece, _)| u64::from(piece.edges)).sum();
    let mut decoder = Decoder::default();
    let mut seconds = [f64::INFINITY; 2];
    for _ in 0..3 {
        for (verify, best) in [false, true].into_iter().zip(&mut seconds) {
            let begun = Instant::now();
            for (piece, body) in &bodies {
                let bytes = &bytemuck::cast_slice(body)[..piece.len as usize];
                black_box(decoder.decode(
                    piece,
                    grid.shape(),
                    bytes,
                    PieceWeights::None,
                    verify,
                )?);
            }
            *best = best.min(begun.elapsed().as_secs_f64());
        }
    }
    let per_edge = |seconds: f64| seconds * 1e9 / edges.max(1) as f64;
    Ok((edges, per_edge(seconds[0]), per_edge(seconds[1])))
}
