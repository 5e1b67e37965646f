//! Arrays of ids for Python, in reused memory.

use std::sync::{Arc, Weak};

use bytemuck::Pod;
use numpy::ndarray::{ArrayViewMut, Dimension, IntoDimension};
use numpy::{Element, PyArray, PyArray1, PyArray2, PyReadonlyArray1};
use outercore_core::{Error, Result};
use outercore_pipeline::SpareIds;
use outercore_sample::Shelf;
use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::False;

use crate::errors::to_python;
use crate::process::OfProcess;

/// Keeps the memory of an array alive until the last array or tensor on it is dropped.
#[pyclass(module = "outercore._core")]
struct Owner {
    values: Vec<i64>,
    /// Dead once the loader is closed.
    spare: OfProcess<Weak<SpareIds>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.take().and_then(|spare| spare.upgrade()) {
            spare.give_back(std::mem::take(&mut self.values));
        }
    }
}

/// The same, for ids that Python receives in the memory that they were sampled into.
#[pyclass(module = "outercore._core")]
struct BatchOwner {
    ids: Vec<u32>,
    /// Dead once the loader is closed.
    shelf: OfProcess<Weak<Shelf>>,
    give_back: GiveBack,
}

/// Function that returns a batch's memory to the shelf.
pub type GiveBack = fn(&Shelf, Vec<u32>);

impl Drop for BatchOwner {
    fn drop(&mut self) {
        if let Some(shelf) = self.shelf.take().and_then(|shelf| shelf.upgrade()) {
            (self.give_back)(&shelf, std::mem::take(&mut self.ids));
        }
    }
}

/// An array of a batch may keep at most this many times its size alive.
const MOST_KEPT: usize = 3;

/// A type of ids for Python.
pub trait Id: Element + Pod {
    /// Converts an id. The caller guarantees that it fits.
    fn of(id: u64) -> Self;
}

impl Id for i64 {
    fn of(id: u64) -> Self {
        id as Self
    }
}

impl Id for i32 {
    fn of(id: u64) -> Self {
        id as Self
    }
}

/// A new array of the `count` ids from `ids`.
pub fn vector<'py, T: Id>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    count: usize,
    ids: impl Iterator<Item = u64>,
) -> PyResult<Bound<'py, PyArray1<T>>> {
    array(py, spare, [count], |values: &mut [T]| {
        for (value, id) in values.iter_mut().zip(ids) {
            *value = T::of(id);
        }
    })
}

/// An array of ids below 2^31, in the memory that they were sampled into. If that memory is far too
/// large, the ids are copied.
pub fn handed_over<'py>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    shelf: &Arc<Shelf>,
    ids: Vec<u32>,
    give_back: GiveBack,
) -> PyResult<Bound<'py, PyArray1<i32>>> {
    let copied = ids.capacity() > MOST_KEPT * ids.len();
    let copy = copied.then(|| vector(py, spare, ids.len(), ids.iter().map(|&id| id.into())));
    let owner = BatchOwner { ids, shelf: OfProcess::new(Arc::downgrade(shelf)), give_back };
    if let Some(copy) = copy {
        return copy;
    }
    let shape = [owner.ids.len()];
    show(Bound::new(py, owner)?, |owner| bytemuck::cast_slice_mut(&mut owner.ids), shape)
}

/// A new two-dimensional array that `fill` writes completely.
pub fn matrix<'py>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    shape: [usize; 2],
    fill: impl FnOnce(&mut [i64]),
) -> PyResult<Bound<'py, PyArray2<i64>>> {
    array(py, spare, shape, fill)
}

fn array<'py, T: Id, D, const N: usize>(
    py: Python<'py>,
    spare: &Arc<SpareIds>,
    shape: [usize; N],
    fill: impl FnOnce(&mut [T]),
) -> PyResult<Bound<'py, PyArray<T, D>>>
where
    D: Dimension,
    [usize; N]: IntoDimension<Dim = D>,
{
    let count: usize = shape.iter().product();
    let mut values = spare.take((count * size_of::<T>()).div_ceil(size_of::<i64>()));
    fill(&mut bytemuck::cast_slice_mut(&mut values)[..count]);
    let owner = Bound::new(py, Owner { values, spare: OfProcess::new(Arc::downgrade(spare)) })?;
    show(owner, |owner| &mut bytemuck::cast_slice_mut(&mut owner.values)[..count], shape)
}

/// An array on values that `owner` holds.
fn show<'py, O, T: Id, D, const N: usize>(
    owner: Bound<'py, O>,
    values: impl FnOnce(&mut O) -> &mut [T],
    shape: [usize; N],
) -> PyResult<Bound<'py, PyArray<T, D>>>
where
    O: PyClass<Frozen = False>,
    D: Dimension,
    [usize; N]: IntoDimension<Dim = D>,
{
    let mut held = owner.borrow_mut();
    // Mutable, because Python may write to its array.
    let view = ArrayViewMut::from_shape(shape.into_dimension(), values(&mut held))
        .map_err(|error| to_python(Error::internal(format!("an array of ids: {error}"))))?;
    // SAFETY: the array keeps the owner alive, which drops the memory no earlier. Until then the
    // owner neither moves nor reads the memory: it has no methods, and nothing else refers to it.
    Ok(unsafe { PyArray::borrow_from_array(&view, owner.clone().into_any()) })
}

/// Converts node ids from Python; refuses negative ones.
pub fn node_ids(ids: &PyReadonlyArray1<'_, i64>) -> Result<Vec<u64>> {
    ids.as_array()
        .iter()
        .enumerate()
        .map(|(place, &id)| {
            u64::try_from(id).map_err(|_| {
                Error::invalid(format!("node id {id} at place {place}, expected 0 or more"))
            })
        })
        .collect()
}
