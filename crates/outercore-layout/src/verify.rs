//! Checks layouts against the arrays that they copy.

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_store::check::Problem;
use outercore_store::dataset::{ArrayFile, ArrayRef, DataSet};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::OnProgress;
use crate::build::CHUNK;
use crate::keys;
use crate::{Layout, Places};

/// Lists the problems of a data set's layouts; the list is empty if all are sound.
///
/// Each layout must match the current content of its array, have a place for each node, and hold
/// each node's row at that place.
///
/// **Cost** reads each layout and its array once; for a layout in another order, holds 8 bytes per
/// node (16 above 2^32 nodes). [`outercore_store::check`] checks the checksums of the rows.
///
/// # Errors
/// Failed reads; errors of `on_progress`.
pub fn verify(data_set: &DataSet, on_progress: OnProgress<'_>) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for header in data_set.manifest().arrays.keys() {
        let Some((array, precision)) = keys::of_header(header) else { continue };
        let checked = Layout::open(data_set, array, precision).and_then(|layout| {
            layout.map_or(Ok(()), |layout| check(data_set, &layout, on_progress))
        });
        match checked {
            Ok(()) => {}
            Err(error) if is_of_content(&error) => {
                problems.push(Problem::of(Some(header), &error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(problems)
}

fn is_of_content(error: &Error) -> bool {
    use ErrorKind::{Corrupt, Invalid, NotFound, Version};
    matches!(error.kind(), Corrupt | Invalid | NotFound | Version)
}

fn check(data_set: &DataSet, layout: &Layout, on_progress: OnProgress<'_>) -> Result<()> {
    let places = layout.load_places(data_set)?;
    let nodes = places.as_ref().map(Places::inverse).transpose().context("places")?;
    drop(places);
    let array = digest(layout.array(), on_progress, &mut |node, row, add| {
        add(node, &layout.stored(row));
        Ok(())
    })?;
    let rows = digest(layout.rows(), on_progress, &mut |place, row, add| {
        add(nodes.as_ref().map_or(place, |nodes| nodes.of(place)), row);
        Ok(())
    })?;
    if array == rows {
        return Ok(());
    }
    Err(Error::corrupt("its rows are not those of the array")
        .hint("build the layout anew with `outercore layout`"))
}

/// Adds a row under its node id.
type Add<'a> = &'a mut dyn FnMut(u64, &[u8]);

/// Called with the number of a row, its bytes, and the function that adds it.
type Each<'a> = &'a mut dyn FnMut(u64, &[u8], Add<'_>) -> Result<()>;

/// A sum over the rows of an array that does not depend on their order.
fn digest(array: &ArrayRef, on_progress: OnProgress<'_>, each: Each<'_>) -> Result<u64> {
    let mut sum = 0u64;
    each_chunk(array, &mut |first, bytes| {
        on_progress("checking layouts", first * array.row_bytes(), array.data_len(), "bytes")?;
        for (at, row) in (first..).zip(bytes.chunks_exact(array.row_bytes() as usize)) {
            let mut add = |node, row: &[u8]| {
                sum = sum.wrapping_add(xxh3_64_with_seed(row, node));
            };
            each(at, row, &mut add)?;
        }
        Ok(())
    })?;
    Ok(sum)
}

/// Calls `take(first row, bytes)` for all parts of an array, from its first row to its last.
fn each_chunk(array: &ArrayRef, take: &mut dyn FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let file = ArrayFile::open(array.clone())?;
    let step = (CHUNK / array.row_bytes()).max(1);
    let mut bytes = Vec::new();
    let mut first = 0;
    while first < array.rows() {
        let rows = step.min(array.rows() - first);
        bytes.resize((rows * array.row_bytes()) as usize, 0);
        file.read(first * array.row_elements(), &mut bytes)?;
        take(first, &bytes)?;
        first += rows;
    }
    Ok(())
}
