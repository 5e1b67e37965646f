//! Building a grid from the CSC within a memory budget.
//!
//! Three passes over the arcs: out-degrees (not in a symmetric graph), edges of every block, and
//! dealing edges to their blocks; then every block is sorted and encoded. The manifest is changed
//! last, at once.

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

/// Where edges are dealt to; removed after a build and before the next.
const TEMPORARY: &str = ".grid";

/// Told what a build does, how far it has come, how far it has to go, and in which unit. An error
/// stops it.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64, &str) -> Result<()>;

/// Builds the grid of a data set; one that is there and is as asked for is left as it is.
///
/// The bytes of the grid depend on the graph, the weights, the order and the partition size alone,
/// not on the memory or the threads.
///
/// **Cost**: reads the sources three or four times, once for their checksum; writes 4 bytes a stored edge (8 or 16 with
/// weights) to a temporary file unless half the memory holds them, and the grid. Memory: 12 bytes a
/// node (8 in natural order), with several types 4 bytes a column, 4 or 8 bytes a row of the weights,
/// buffers. While somebody else writes to the data set it waits; where they built the grid, it is
/// taken.
///
/// # Errors
/// `Budget`, with the least that works. `Invalid`: a stale grid or one built with other options is
/// there and `overwrite` is not set; a weight that is not finite; weights of several edge types; no
/// edges. `NotFound`: no such weights, no such edge type. `Unsupported`: 2^32 nodes or columns, or
/// more than 4096 partitions. `Corrupt`: arrays that contradict each other. Those of the disk and of
/// `on_progress`; the data set stays as it was.
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
    // Whoever wrote to it may have built the grid.
    let data_set = &editor.data_set()?;
    if Grid::is_built(data_set) && !options.overwrite {
        return kept(data_set, options, started);
    }
    let mut builder = Builder::new(disk, data_set, options)?;
    let done = builder.write(&mut editor, on_progress);
    // What cannot be removed now is removed by the next build.
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

/// Says what to do about a data set that may not be written to.
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
