//! Arrays of feature rows for Python, in separate reusable memory.

use std::sync::{Arc, Weak};

use numpy::PyArray2;
use numpy::ndarray::ArrayViewMut2;
use outercore_core::Error;
use outercore_pipeline::{RowMemory, SpareRows};
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::process::OfProcess;

/// Keeps the memory of an array alive until the last array or tensor on it is dropped.
#[pyclass(module = "outercore._core")]
struct RowOwner {
    /// `None` only while it is dropped.
    memory: Option<RowMemory>,
    /// Dead once the loader is closed.
    spare: OfProcess<Weak<SpareRows>>,
}

impl Drop for RowOwner {
    fn drop(&mut self) {
        let spare = self.spare.take().and_then(|spare| spare.upgrade());
        if let (Some(memory), Some(spare)) = (self.memory.take(), spare) {
            spare.give_back(memory);
        }
    }
}

/// A new uninitialised array of `rows` times `width` float32 values, or `None` if it is small.
pub fn row_array<'py>(
    py: Python<'py>,
    spare: &Arc<SpareRows>,
    rows: usize,
    width: usize,
) -> PyResult<Option<Bound<'py, PyArray2<f32>>>> {
    let taken = spare.take(rows.saturating_mul(width)).map_err(to_python)?;
    let Some(memory) = taken else { return Ok(None) };
    let owner = Bound::new(
        py,
        RowOwner { memory: Some(memory), spare: OfProcess::new(Arc::downgrade(spare)) },
    )?;
    let mut held = owner.borrow_mut();
    let values = held.memory.as_deref_mut().unwrap_or_default();
    // Mutable, because Python may write to its array.
    let view = ArrayViewMut2::from_shape((rows, width), values)
        .map_err(|error| to_python(Error::internal(format!("an array of rows: {error}"))))?;
    // SAFETY: the array keeps the owner alive, which drops the memory no earlier. Until then the
    // owner neither moves nor reads the memory: it has no methods, and nothing else refers to it.
    Ok(Some(unsafe { PyArray2::borrow_from_array(&view, owner.clone().into_any()) }))
}
