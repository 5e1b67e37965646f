//! The pass over all values that computes the `int8` scales of columns.

use outercore_core::{Context, Error, Result};
use outercore_format::{widen, words_of};
use outercore_store::dataset::ArrayRef;
use outercore_store::verified::for_each_rows;

use super::OnProgress;
use crate::scales::{Column, Scales, scales_of};

/// Bytes of rows per read.
pub(crate) const CHUNK: u64 = 1 << 20;

/// Scales of the columns of an array.
///
/// # Errors
/// `Invalid`, naming row and column: a value that is not finite, or that `float32` cannot
/// represent. `Corrupt`: the bytes differ from the written ones. Failed reads; errors of
/// `on_progress`.
pub(super) fn measure(array: &ArrayRef, on_progress: OnProgress<'_>) -> Result<Scales> {
    let mut columns = vec![Column::default(); array.row_elements() as usize];
    let (mut words, mut values) = (Vec::new(), vec![0.0; columns.len()]);
    for_each_rows(array, CHUNK, &mut |first, bytes| {
        on_progress("measuring", first * array.row_bytes(), array.data_len(), "bytes")?;
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
    Ok(scales_of(&columns))
}
