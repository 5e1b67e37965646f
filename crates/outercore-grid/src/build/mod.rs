//! Builds a grid from the CSC within a memory budget.
//!
//! Makes three passes over the arcs: one counts out-degrees (not in a symmetric graph), one counts
//! the edges of every block, and one deals edges to their blocks. Then every block is sorted and
//! encoded. The manifest is changed last, in one step.

mod builder;
mod deal;
mod degrees;
mod encode;
mod input;
mod keep;
mod options;
mod plan;
mod record;
mod summary;
mod weights;

use std::time::Instant;

use outercore_core::{Error, Result};
use outercore_io::Disk;
use outercore_store::dataset::DataSet;
use outercore_store::editor::ManifestEditor;

use self::builder::Builder;
use self::keep::keep;
pub use self::options::BuildOptions;
pub use self::summary::BuildSummary;
use crate::header::MAX_PARTITION_LOG2;
use crate::open::Grid;

/// Directory of the temporary file for dealt edges; removed after a build and before the next.
const TEMPORARY: &str = ".grid";

/// Progress of a build: called with the phase, the amount done, the total, and the unit. An error
/// stops the build.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64, &str) -> Result<()>;

/// Builds the grid of a data set. An existing grid that matches the options is left unchanged.
///
/// The bytes of the grid depend only on the graph, the weights, the order and the partition size,
/// not on the memory or the threads.
///
/// **Cost**: reads the sources three or four times, once for their checksum. Writes the grid, and
/// unless the edges fit into half of the memory, also a temporary file of 4 bytes per stored edge
/// (8 or 16 with weights). Memory: 12 bytes per node (8 in natural order), with several types 4
/// bytes per column, 4 or 8 bytes per row of the weights, and buffers. Waits while another process
/// writes to the data set; if that process built the grid, uses its grid.
///
/// # Errors
/// `Budget`, with the least sufficient budget. `Invalid`: a stale grid, or a grid with other
/// options, exists and `overwrite` is not set; a weight that is not finite; weights of several edge
/// types; no edges. `NotFound`: no such weights, no such edge type. `Unsupported`: 2^32 nodes or
/// columns, or more than 4096 partitions. `Corrupt`: contradicting arrays. Errors of the disk and
/// of `on_progress`; the data set then stays unchanged.
///
/// # Example
/// ```
/// use outercore_grid::{BuildOptions, Grid, build};
/// use outercore_io::RealDisk;
/// use outercore_store::dataset::DataSet;
/// use outercore_testkit::{Csc, Width, write_data_set};
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path();
/// let graph = write_data_set(root, &Csc::power_law(1000, 5000, 1), Width::Narrow);
/// let summary = build(&RealDisk, &graph, &BuildOptions::default(), &mut |_, _, _, _| Ok(()))?;
/// assert_eq!(summary.edges, 5000);
/// let grid = Grid::open(&DataSet::open(root)?)?;
/// assert_eq!(grid.pieces().iter().map(|piece| u64::from(piece.edges)).sum::<u64>(), 5000);
/// # Ok(())
/// # }
/// ```
pub fn build(
    disk: &dyn Disk,
    data_set: &DataSet,
    options: &BuildOptions,
    on_progress: OnProgress<'_>,
) -> Result<BuildSummary> {
    let started = Instant::now();
    if let Some(log2) = options.partition_log2
        && !(1..=MAX_PARTITION_LOG2).contains(&log2)
    {
        return Err(Error::invalid(format!(
            "grid: partition_log2 {log2}, expected 1 to {MAX_PARTITION_LOG2}"
        )));
    }
    if Grid::is_built(data_set) && !options.overwrite {
        return kept(data_set, options, started);
    }
    let root = data_set.root();
    let waits = &mut || on_progress("waiting for another writer", 0, 0, "");
    let mut editor = ManifestEditor::wait(disk, root, waits)?;
    // Another process that wrote to the data set may have built the grid.
    let data_set = &editor.data_set()?;
    if Grid::is_built(data_set) && !options.overwrite {
        return kept(data_set, options, started);
    }
    let mut builder = Builder::new(disk, data_set, options)?;
    let done = builder.write(&mut editor, on_progress);
    // If this fails, the next build removes the directory.
    let _ = disk.remove_dir_all(&root.join(TEMPORARY));
    let mut summary = done
        .and_then(|summary| editor.commit().map(|()| summary))
        .map_err(|error| explain(error).context(format!("grid of `{}`", root.display())))?;
    summary.seconds = started.elapsed().as_secs_f64();
    Ok(summary)
}

fn kept(data_set: &DataSet, options: &BuildOptions, started: Instant) -> Result<BuildSummary> {
    let mut summary = keep(data_set, options)?;
    summary.seconds = started.elapsed().as_secs_f64();
    Ok(summary)
}

/// Adds a hint for a data set that is not writable.
fn explain(error: Error) -> Error {
    const EACCES: i32 = 13;
    const EROFS: i32 = 30;
    match error.os_error() {
        Some(EACCES | EROFS) => {
            error.hint("build it with `outercore grid` where you may write, or copy the data set")
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_data_set_that_may_not_be_written_to_says_what_to_do() {
        for (number, is_explained) in [(13, true), (30, true), (5, false)] {
            let error = explain(Error::from(io::Error::from_raw_os_error(number)));
            assert_eq!(error.to_string().contains("where you may write"), is_explained, "{error}");
        }
    }
}
