//! NumPy's matrices as slices.

use numpy::{Element, PyReadonlyArray2, PyReadwriteArray2, PyUntypedArrayMethods};
use outercore_core::Error;
use pyo3::prelude::*;

use crate::errors::to_python;

/// All values of a matrix, row after row.
///
/// NumPy would also return a slice for a column-major matrix, in which rows are mixed. Such a
/// matrix is refused.
pub fn rows<'a, T: Element>(array: &'a PyReadonlyArray2<'_, T>) -> PyResult<&'a [T]> {
    check(array.is_c_contiguous(), array.shape())?;
    Ok(array.as_slice()?)
}

/// The same, as a mutable slice.
pub fn rows_mut<'a, T: Element>(array: &'a mut PyReadwriteArray2<'_, T>) -> PyResult<&'a mut [T]> {
    check(array.is_c_contiguous(), array.shape())?;
    Ok(array.as_slice_mut()?)
}

fn check(in_order: bool, found: &[usize]) -> PyResult<()> {
    if in_order {
        return Ok(());
    }
    let text = format!("array {found:?}: expected rows one after the other, without gaps");
    Err(to_python(Error::invalid(text).hint("pass it through `numpy.ascontiguousarray`")))
}
