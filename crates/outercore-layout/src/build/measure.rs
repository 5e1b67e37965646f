//! The pass that looks at every value before columns become `int8`.

use outercore_core::{Context, Error, Result};
use outercore_format::{Checksum, widen, words_of};
use outercore_store::dataset::{ArrayFile, ArrayRef};

use super::OnProgress;
use crate::scales::{Column, Scales, scales_of};

/// Bytes of rows that are read at a time.
pub(super) const CHUNK: u64 = 1 << 20;

/// Scales of the columns of an array.
///
/// # Errors
/// `Invalid` with row and column: a value that is not finite, or that `float32` does not hold.
/// `Corrupt`: other bytes than were written. Failed reads; those of `on_progress`.
pub(super) fn measure(array: &ArrayRef, on_progress: OnProgress<'_>) -> Result<Scales> {
    let mut columns = vec![Column::default(); array.row_elements() as usize];
    let (mut words, mut values) = (Vec::new(), vec![0.0; columns.len()]);
    let mut checksum = Checksum::new();
    each_chunk(array, &mut |first, bytes| {
        on_progress("measuring", first * array.row_bytes(), array.data_len(), "bytes")?;
        checksum.update(bytes);
        for (row, bytes) in (first..).zip(bytes.chunks_exact(array.row_bytes() as usize)) {
            words_of(bytes, &mut words);
            let context = || format!("array `{}`, row {row}", array.key);
            widen(array.dtype, &words, &mut values).with_context(context)?;
            if let Some(column) = values.iter().position(|value| !value.is_finite()) {
                let text = format!("column {column}: {}, expected a finite value", values[column]);
                return Err(Error::invalid(text))
                    .with_context(context)
                    .map_err(|error| error.hint("int8 has no NaN and no infinity"));
            }
            columns.iter_mut().zip(&values).for_each(|(column, &value)| column.add(value));
        }
        Ok(())
    })?;
    let found = checksum.finish();
    if found != array.checksum {
        let text = format!("array `{}`: checksum {found}, expected {}", array.key, array.checksum);
        return Err(Error::corrupt(text).hint("run `outercore check DATASET`"));
    }
    Ok(scales_of(&columns))
}

/// Calls `take(first row, bytes)` for an array from its first row to its last.
///
/// # Errors
/// Failed reads; those of `take`.
pub(crate) fn each_chunk(
    array: &ArrayRef,
    take: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
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
