//! Arrays of ids for Python in memory that is used again and again.

use std::sync::{Arc, Mutex, PoisonError};

use numpy::ndarray::ArrayView;
use numpy::{PyArray, PyArray1, PyArray2};
use outercore_core::{Error, Result};
use pyo3::prelude::*;

use crate::errors::to_python;

/// Arrays kept at most: those of two batches.
const MOST_SPARE: usize = 4;

/// Memory of arrays that Python gave up.
///
/// A batch is some hundred kilobytes of ids. Fresh from the kernel they would cost a page fault every
/// 4 KiB, in the thread that trains.
#[derive(Debug, Default)]
pub struct SpareIds {
    arrays: Mutex<Vec<Vec<i64>>>,
}

/// What keeps the memory of an array alive, until the last tensor that shows it is gone.
#[pyclass(module = "outercore._core", frozen)]
struct Owner {
    values: Vec<i64>,
    spare: Arc<SpareIds>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut arrays = self.spare.arrays.lock().unwrap_or_else(PoisonError::into_inner);
        if arrays.len() < MOST_SPARE {
            arrays.push(std::mem::take(&mut self.values));
        }
    }
}

/// A new array of `count` ids that `fill` writes in full.
pub fn vector<'py>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    count: usize,
    fill: impl FnOnce(&mut [i64]),
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    array(py, spare, [count], fill)
}

/// As [`vector`], of two dimensions.
pub fn matrix<'py>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    shape: [usize; 2],
    fill: impl FnOnce(&mut [i64]),
) -> PyResult<Bound<'py, PyArray2<i64>>> {
    array(py, spare, shape, fill)
}

fn array<'py, D, const N: usize>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    shape: [usize; N],
    fill: impl FnOnce(&mut [i64]),
) -> PyResult<Bound<'py, PyArray<i64, D>>>
where
    D: numpy::ndarray::Dimension,
    [usize; N]: numpy::ndarray::IntoDimension<Dim = D>,
{
    let mut values =
        spare.arrays.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
    values.resize(shape.iter().product(), 0);
    fill(&mut values);
    let owner = Bound::new(py, Owner { values, spare: Arc::clone(spare) })?;
    let view = shaped(shape, &owner.get().values).map_err(to_python)?;
    // SAFETY: the owner, which the array holds, keeps the memory where it is and never looks at it
    // again; nobody else can, as it has no methods.
    Ok(unsafe { PyArray::borrow_from_array(&view, owner.clone().into_any()) })
}

fn shaped<D, const N: usize>(shape: [usize; N], values: &[i64]) -> Result<ArrayView<'_, i64, D>>
where
    D: numpy::ndarray::Dimension,
    [usize; N]: numpy::ndarray::IntoDimension<Dim = D>,
{
    use numpy::ndarray::IntoDimension;
    ArrayView::from_shape(shape.into_dimension(), values)
        .map_err(|error| Error::internal(format!("an array of ids: {error}")))
}
