//! Arrays of ids for Python in memory that is used again and again.

use std::sync::{Arc, Weak};

use numpy::ndarray::{ArrayViewMut, Dimension, IntoDimension};
use numpy::{PyArray, PyArray1, PyArray2};
use outercore_core::Error;
use outercore_pipeline::SpareIds;
use pyo3::prelude::*;

use crate::errors::to_python;

/// What keeps the memory of an array alive, until the last array or tensor that shows it is gone.
#[pyclass(module = "outercore._core")]
struct Owner {
    values: Vec<i64>,
    /// Gone once the loader is closed.
    spare: Weak<SpareIds>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.upgrade() {
            spare.give_back(std::mem::take(&mut self.values));
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

/// A new array of `count` ids of 32 bits that `fill` writes in full.
pub fn narrow<'py>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    count: usize,
    fill: impl FnOnce(&mut [i32]),
) -> PyResult<Bound<'py, PyArray1<i32>>> {
    let mut values = spare.take(count.div_ceil(2));
    fill(&mut bytemuck::cast_slice_mut(&mut values)[..count]);
    let owner = Bound::new(py, Owner { values, spare: Arc::downgrade(spare) })?;
    let mut held = owner.borrow_mut();
    let halves: &mut [i32] = bytemuck::cast_slice_mut(&mut held.values);
    let view = ArrayViewMut::from(&mut halves[..count]);
    // SAFETY: as in `array`.
    Ok(unsafe { PyArray::borrow_from_array(&view, owner.clone().into_any()) })
}

fn array<'py, D, const N: usize>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    shape: [usize; N],
    fill: impl FnOnce(&mut [i64]),
) -> PyResult<Bound<'py, PyArray<i64, D>>>
where
    D: Dimension,
    [usize; N]: IntoDimension<Dim = D>,
{
    let mut values = spare.take(shape.iter().product());
    fill(&mut values);
    let owner = Bound::new(py, Owner { values, spare: Arc::downgrade(spare) })?;
    let mut held = owner.borrow_mut();
    // Mutable, as Python may write into its array.
    let view = ArrayViewMut::from_shape(shape.into_dimension(), &mut held.values[..])
        .map_err(|error| to_python(Error::internal(format!("an array of ids: {error}"))))?;
    // SAFETY: the array holds the owner, which drops the memory no earlier, and neither moves nor
    // looks at it until then: it has no methods, and nothing else refers to it.
    Ok(unsafe { PyArray::borrow_from_array(&view, owner.clone().into_any()) })
}
