//! Converts features to a smaller type, in place.

use std::path::Path;

use half::{bf16, f16};
use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_format::keys::Group;
use outercore_format::{DType, Roles, widen, words_of};
use outercore_io::Disk;
use serde::Serialize;

use crate::dataset::ArrayRef;
use crate::editor::ManifestEditor;
use crate::npy::ArrayWriter;
use crate::verified::for_each_rows;

/// Bytes of rows that are read at once.
const CHUNK: u64 = 1 << 20;

/// Progress callback with `(phase, done, total, unit)`; an error stops the conversion.
pub type OnProgress<'a> = &'a mut dyn FnMut(&str, u64, u64, &str) -> Result<()>;

/// Result of converting an array.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Converted {
    /// Key of the array.
    pub array: String,
    /// Previous element type.
    pub from: DType,
    /// New element type.
    pub to: DType,
    /// Bytes of all rows before.
    pub before: Bytes,
    /// Bytes of all rows after.
    pub after: Bytes,
    /// Largest change of a value by rounding.
    pub largest_change: f64,
    /// Whether a layout of the array was removed because it became stale.
    pub layout_removed: bool,
}

/// Converts arrays of numbers to the smaller type `to`; each value is rounded to the nearest one.
///
/// The manifest is replaced last and atomically; until then the data set is unchanged. Arrays that
/// already have the type are skipped, so an interrupted command can be repeated. Layouts of a
/// converted array are removed in the same commit.
///
/// **Cost** reads and writes each array once; a few MiB of memory.
///
/// # Errors
/// `NotFound`: no such array. `Invalid`: the type is not smaller, a value would become infinite
/// (with its row and column), or the array holds labels, splits or topology. `Unsupported`: the
/// data set takes updates. `Corrupt`: the checksum does not match. Errors of the disk and of
/// `on_progress`.
pub fn convert(
    disk: &dyn Disk,
    root: &Path,
    arrays: &[String],
    to: DType,
    on_progress: OnProgress<'_>,
) -> Result<Vec<Converted>> {
    let waits = &mut || on_progress("waiting for another writer", 0, 0, "");
    let mut editor = ManifestEditor::wait(disk, root, waits)?;
    if editor.manifest().live.is_some() {
        let text =
            format!("data set `{}` takes updates: its arrays keep their types", root.display());
        return Err(Error::new(ErrorKind::Unsupported, text)
            .hint("convert the features before the first update"));
    }
    if !matches!(to, DType::F16 | DType::BF16 | DType::F32) {
        let text = format!("type {to}, expected `float16`, `bfloat16` or `float32`");
        return Err(Error::invalid(text));
    }
    let data_set = editor.data_set()?;
    let mut found = Vec::new();
    for key in arrays {
        let array = data_set.array(key)?;
        let context = || format!("array `{key}`");
        require_free(&array, &data_set.manifest().roles).with_context(context)?;
        if array.dtype == to {
            found.push(Converted {
                array: array.key.clone(),
                from: to,
                to,
                before: Bytes(array.data_len()),
                after: Bytes(array.data_len()),
                largest_change: 0.0,
                layout_removed: false,
            });
            continue;
        }
        require_smaller(&array, to).with_context(context)?;
        let file = editor.claim_file(&array.key)?;
        let mut writer = ArrayWriter::create(disk, root, &file, to, &array.shape[1..])?;
        let change = write(&array, to, &mut writer, on_progress)?;
        let entry = writer.finish()?;
        let after = Bytes(entry.data_len());
        let text = format!("converted from {} to {to}", array.dtype);
        editor.manifest_mut().provenance.options.insert(array.key.clone(), text.into());
        // A float type cannot represent every microsecond.
        editor.manifest_mut().roles.times.remove(&array.key);
        let removed = editor.replace(&array.key, entry);
        found.push(Converted {
            array: array.key.clone(),
            from: array.dtype,
            to,
            before: Bytes(array.data_len()),
            after,
            largest_change: change,
            layout_removed: removed > 0,
        });
    }
    if found.iter().any(|one| one.from != one.to) {
        editor.commit()?;
    }
    Ok(found)
}

/// Checks that the array may have any type: only features and further node arrays may.
fn require_free(array: &ArrayRef, roles: &Roles) -> Result<()> {
    let is_fixed = roles.labels.as_ref() == Some(&array.key);
    if matches!(Group::of(&array.key), Group::Node { .. }) && !is_fixed {
        return Ok(());
    }
    Err(Error::invalid("its type is fixed, expected features or another array of nodes"))
}

fn require_smaller(array: &ArrayRef, to: DType) -> Result<()> {
    if array.dtype.size() > to.size() {
        return Ok(());
    }
    Err(Error::invalid(format!("values of type {} are not larger than {to}", array.dtype))
        .hint("leave the array as it is"))
}

/// Writes all rows; returns the largest change.
fn write(
    array: &ArrayRef,
    to: DType,
    writer: &mut ArrayWriter,
    on_progress: OnProgress<'_>,
) -> Result<f64> {
    let (row_bytes, columns) = (array.row_bytes(), array.row_elements() as usize);
    let (mut row, mut out) = (Vec::new(), Vec::new());
    let mut largest = 0.0f64;
    for_each_rows(array, CHUNK, &mut |first, bytes| {
        on_progress("converting", first * row_bytes, array.data_len(), "bytes")?;
        out.clear();
        for (number, of_row) in (first..).zip(bytes.chunks_exact(row_bytes as usize)) {
            let context = || format!("array `{}`: row {number}", array.key);
            values(array.dtype, of_row, columns, &mut row).with_context(context)?;
            for (column, &value) in row.iter().enumerate() {
                let became = push(value, to, &mut out);
                if value.is_finite() && !became.is_finite() {
                    return Err(too_large(column, value, to)).with_context(context);
                }
                if value.is_finite() {
                    largest = largest.max((value - became).abs());
                }
            }
        }
        writer.write(&out)
    })?;
    Ok(largest)
}

/// Reads the values of a row as `float64`; integers beyond 2^53 are rounded.
fn values(dtype: DType, row: &[u8], columns: usize, out: &mut Vec<f64>) -> Result<()> {
    out.clear();
    match dtype {
        DType::F64 => out.extend(row.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes))),
        DType::I64 => {
            out.extend(row.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes) as f64));
        }
        DType::U64 => {
            out.extend(row.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes) as f64));
        }
        DType::I32 => {
            out.extend(row.as_chunks().0.iter().map(|bytes| f64::from(i32::from_le_bytes(*bytes))));
        }
        DType::U32 => {
            out.extend(row.as_chunks().0.iter().map(|bytes| f64::from(u32::from_le_bytes(*bytes))));
        }
        _ => {
            let (mut words, mut wide) = (Vec::new(), vec![0.0f32; columns]);
            words_of(row, &mut words);
            widen(dtype, &words, &mut wide)?;
            out.extend(wide.into_iter().map(f64::from));
        }
    }
    Ok(())
}

/// Appends the bytes of the nearest value of type `to`; returns that value.
fn push(value: f64, to: DType, out: &mut Vec<u8>) -> f64 {
    match to {
        DType::F16 => {
            let nearest = f16::from_f64(value);
            out.extend(nearest.to_le_bytes());
            nearest.to_f64()
        }
        DType::BF16 => {
            let nearest = bf16::from_f64(value);
            out.extend(nearest.to_le_bytes());
            nearest.to_f64()
        }
        _ => {
            let nearest = value as f32;
            out.extend(nearest.to_le_bytes());
            f64::from(nearest)
        }
    }
}

fn too_large(column: usize, value: f64, to: DType) -> Error {
    let error = Error::invalid(format!("column {column}: {value} is beyond the largest {to}"));
    match to {
        DType::F16 => error.hint("`bfloat16` has the range of float32"),
        _ => error.hint("scale the values and import them again"),
    }
}
