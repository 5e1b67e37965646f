//! Measures the edges per second of an import, from a `.npy` file and from text.
//!
//! ```text
//! cargo run --release -p outercore-store --example import_bench -- DIRECTORY [EDGES] [MEMORY] [undirected]
//! ```
//! Writes an R-MAT-like edge list (16 edges per node, scrambled ids) into DIRECTORY, imports it,
//! and removes all files. Prints one line per input format: seconds, edges per second, and peak
//! resident memory so far.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use outercore_core::{Bytes, Error, Permutation, Result, Stream};
use outercore_format::{DType, NpyHeader};
use outercore_io::RealDisk;
use outercore_store::import::{EdgeImport, EdgeImportOptions, Phase};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, rest @ ..] = &arguments[..] else {
        return Err(Error::invalid("usage: import_bench DIRECTORY [EDGES] [MEMORY] [undirected]"));
    };
    let number = |text: &String| text.parse::<u64>().map_err(|e| Error::invalid(e.to_string()));
    let edges = rest.first().map_or(Ok(16_000_000), number)?;
    let memory = rest.get(1).map_or(Ok(Bytes::gib(1)), |text| text.parse::<Bytes>())?;
    let undirected = rest.get(2).is_some_and(|text| text == "undirected");
    let directory = Path::new(directory).join("import-bench");
    std::fs::create_dir_all(&directory)?;
    let (npy, text) = (directory.join("edges.npy"), directory.join("edges.tsv"));
    write_edges(&npy, &text, edges)?;
    let options = EdgeImportOptions { memory, undirected, ..EdgeImportOptions::default() };
    for source in [&npy, &text] {
        measure(&directory.join("graph"), source, edges, &options)?;
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// Writes the same edges as int64 `[E, 2]` and as lines of text.
fn write_edges(npy: &Path, text: &Path, edges: u64) -> Result<()> {
    let nodes = (edges / 16).max(1);
    let scramble = Permutation::new(nodes, 1, 0);
    let mut arrays = std::io::BufWriter::new(std::fs::File::create(npy)?);
    let mut lines = std::io::BufWriter::new(std::fs::File::create(text)?);
    arrays.write_all(&NpyHeader::encode(DType::I64, &[edges, 2]))?;
    for edge in 0..edges {
        let mut draws = Stream::new(1, 0).uniform(0, 0, edge);
        // The square of a uniform number makes a few nodes frequent, as in a power law.
        let mut node = || scramble.at((draws.unit().powi(2) * nodes as f64) as u64);
        let (source, target) = (node(), node());
        arrays.write_all(&source.to_le_bytes())?;
        arrays.write_all(&target.to_le_bytes())?;
        writeln!(lines, "{source}\t{target}")?;
    }
    for file in [arrays.into_inner(), lines.into_inner()] {
        file.map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    }
    Ok(())
}

fn measure(root: &Path, source: &Path, edges: u64, options: &EdgeImportOptions) -> Result<()> {
    let begun = Instant::now();
    let mut ends: Vec<(Phase, f64)> = Vec::new();
    let mut on_progress = |progress: outercore_store::import::Progress| {
        match ends.last_mut().filter(|(phase, _)| *phase == progress.phase) {
            Some((_, end)) => *end = begun.elapsed().as_secs_f64(),
            None => ends.push((progress.phase, begun.elapsed().as_secs_f64())),
        }
        Ok(())
    };
    let mut import = EdgeImport::new(Arc::new(RealDisk), root, options.clone(), "bench")?;
    if source.extension().is_some_and(|extension| extension == "npy") {
        import.npy(source, &mut on_progress)?;
    } else {
        import.text(source, &mut on_progress)?;
    }
    let artifacts = import.finish(&mut on_progress)?;
    let seconds = begun.elapsed().as_secs_f64();
    let phases: Vec<String> = ends.iter().map(|(phase, end)| format!("{phase} {end:.2}")).collect();
    println!(
        "{}: {edges} edges, {} arcs, {} budget: {seconds:.2} s, {:.2} M edges/s, peak {} (until: {})",
        source.display(),
        artifacts.num_edges,
        options.memory,
        edges as f64 / seconds / 1e6,
        peak(),
        phases.join(", ")
    );
    std::fs::remove_dir_all(root)?;
    Ok(())
}

/// Peak resident memory of this process.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
}
