use std::cell::RefCell;

use numpy::{IntoPyArray, PyReadonlyArray1};
use outercore_core::{Error, Result};
use outercore_format::DType;
use outercore_store::dataset::DataSet as CoreDataSet;
use outercore_store::verified::verify;
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::ids::node_ids;
use crate::progress::Callback;

/// An opened data set; `outercore.Graph` is its public face.
#[pyclass(module = "outercore._core", frozen)]
pub struct DataSet {
    inner: CoreDataSet,
}

#[pymethods]
impl DataSet {
    /// With `fold` at its last acknowledged update, else as its arrays are; or as it was in
    /// `generation` where another process still has that open.
    #[new]
    #[pyo3(signature = (path, generation = None, *, fold = true))]
    fn new(py: Python<'_>, path: &str, generation: Option<&str>, fold: bool) -> PyResult<Self> {
        let mut callback = Callback::new(None);
        let opened = py.detach(|| {
            let old = generation.map(|name| CoreDataSet::open_generation(path, name));
            match old.transpose()?.flatten() {
                Some(old) => Ok(old),
                None if fold => open_current(path, &mut callback),
                None => CoreDataSet::open(path),
            }
        });
        callback.settle(opened, to_python).map(|inner| Self { inner })
    }

    /// A name for what the data set holds, by which a copy in another process opens the same.
    fn generation(&self) -> &str {
        self.inner.generation()
    }

    /// The data set with what was added since it was opened, a grid for instance; `None` where it was
    /// changed otherwise, too.
    fn with_additions(&self, py: Python<'_>) -> PyResult<Option<Self>> {
        let newest = py.detach(|| CoreDataSet::open(self.inner.root())).map_err(to_python)?;
        Ok(self.inner.is_extended_by(&newest).then_some(Self { inner: newest }))
    }

    /// Updates in the log that the arrays do not hold.
    fn pending_updates(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| outercore_live::verify(&self.inner)).map_err(to_python)
    }

    /// The manifest as JSON.
    fn manifest(&self) -> String {
        self.inner.manifest().to_json()
    }

    fn num_nodes(&self) -> u64 {
        self.inner.num_nodes()
    }

    fn num_edges(&self) -> u64 {
        self.inner.num_edges()
    }

    /// A whole array; `bfloat16` becomes `float32`.
    fn read_array<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        let array = self.inner.array(key).map_err(to_python)?;
        let bytes = py.detach(|| self.inner.read_array(key)).map_err(to_python)?;
        let shape: Vec<usize> = array.shape.iter().map(|&n| n as usize).collect();
        numpy_array(py, array.dtype, bytes, shape)
    }

    /// Compares the checksum of an array, for a caller that maps its file and makes others of it.
    fn verify_array(&self, py: Python<'_>, key: &str) -> PyResult<()> {
        let array = self.inner.array(key).map_err(to_python)?;
        let mut signals = Callback::new(None);
        let result = py.detach(|| verify(array, &mut |_, _| signals.look()));
        signals.settle(result, to_python)
    }

    /// Rows of an array, in the order of `ids`.
    fn read_rows<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        ids: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = self.inner.array(key).map_err(to_python)?;
        let ids = node_ids(&ids).map_err(to_python)?;
        let bytes = py.detach(|| self.inner.read_rows(key, &ids)).map_err(to_python)?;
        let mut shape: Vec<usize> = array.shape.iter().map(|&n| n as usize).collect();
        shape[0] = ids.len();
        numpy_array(py, array.dtype, bytes, shape)
    }
}

/// Lets go of a data set that was changed while it was open, and removes the files that only this
/// reader needed.
pub fn tidy_after(data_set: CoreDataSet) {
    let root = data_set.root().to_owned();
    drop(data_set);
    // What stays is unused, and the next writer tries again.
    let _ = outercore_store::generations::tidy(&root);
}

/// Removes the files of a data set that only readers which have ended needed.
#[pyfunction]
pub fn tidy(py: Python<'_>, path: &str) {
    // What stays is unused, and the next writer tries again.
    let _ = py.detach(|| outercore_store::generations::tidy(path.as_ref()));
}

impl DataSet {
    /// The opened data set.
    pub fn opened(&self) -> &CoreDataSet {
        &self.inner
    }
}

/// Opens a data set at its last acknowledged update; looks for signals while updates are folded.
pub fn open_current(path: &str, callback: &mut Callback) -> Result<CoreDataSet> {
    let callback = RefCell::new(callback);
    let keep_going = || callback.borrow_mut().look();
    outercore_live::open(path.as_ref(), &keep_going)
}

/// Little-endian bytes of an array as a NumPy array of the matching type.
pub fn numpy_array(
    py: Python<'_>,
    dtype: DType,
    bytes: Vec<u8>,
    shape: Vec<usize>,
) -> PyResult<Bound<'_, PyAny>> {
    let flat = bytes.into_pyarray(py);
    let name = match dtype {
        DType::BF16 => "uint16",
        other => other.name(),
    };
    let typed = flat.as_any().call_method1("view", (name,))?;
    let shaped = typed.call_method1("reshape", (shape,))?;
    if dtype == DType::BF16 {
        return widen_bfloat16(&shaped);
    }
    Ok(shaped)
}

/// NumPy has no `bfloat16`: its bits are the upper half of a `float32`.
fn widen_bfloat16<'py>(bits: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let wide = bits.call_method1("astype", ("uint32",))?;
    wide.call_method1("__lshift__", (16,))?.call_method1("view", ("float32",))
}

/// JSON parsed into a configuration, with an error that names what it is for.
pub fn parse<T: serde::de::DeserializeOwned>(what: &str, json: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| Error::invalid(format!("{what}: {error}")))
}
