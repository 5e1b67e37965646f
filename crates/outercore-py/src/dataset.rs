use std::cell::RefCell;
use std::path::{Path, PathBuf};

use numpy::{IntoPyArray, PyReadonlyArray1};
use outercore_core::Result;
use outercore_format::DType;
use outercore_store::dataset::DataSet as CoreDataSet;
use outercore_store::verified::verify;
use pyo3::prelude::*;

use crate::errors::to_python;
use crate::ids::node_ids;
use crate::progress::Callback;
use crate::values::python_value;

/// An open data set; its public class is `outercore.Graph`.
#[pyclass(module = "outercore._core", frozen)]
pub struct DataSet {
    inner: CoreDataSet,
}

#[pymethods]
impl DataSet {
    /// Opens the data set. With `fold`, at its last acknowledged update; otherwise as stored in its
    /// arrays. With `generation`, at that generation, if another process still has it open.
    #[new]
    #[pyo3(signature = (path, generation = None, *, fold = true))]
    fn new(py: Python<'_>, path: PathBuf, generation: Option<&str>, fold: bool) -> PyResult<Self> {
        let mut callback = Callback::new(None);
        let opened = py.detach(|| {
            let old = generation.map(|name| CoreDataSet::open_generation(&path, name));
            match old.transpose()?.flatten() {
                Some(old) => Ok(old),
                None if fold => open_current(&path, &mut callback),
                None => CoreDataSet::open(&path),
            }
        });
        callback.settle(opened, to_python).map(|inner| Self { inner })
    }

    /// Name of the open generation, by which another process can open the same one.
    fn generation(&self) -> &str {
        self.inner.generation()
    }

    /// The data set with arrays that were added since it was opened, such as a grid; `None` if it
    /// was also changed otherwise.
    fn with_additions(&self, py: Python<'_>) -> PyResult<Option<Self>> {
        let newest = py.detach(|| CoreDataSet::open(self.inner.root())).map_err(to_python)?;
        Ok(self.inner.is_extended_by(&newest).then_some(Self { inner: newest }))
    }

    /// Number of updates in the log that the arrays do not include.
    fn pending_updates(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| outercore_live::verify(&self.inner)).map_err(to_python)
    }

    /// The manifest, as a new dictionary.
    fn manifest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        python_value(py, self.inner.manifest())
    }

    fn num_nodes(&self) -> u64 {
        self.inner.num_nodes()
    }

    fn num_edges(&self) -> u64 {
        self.inner.num_edges()
    }

    /// A whole array; `bfloat16` is converted to `float32`.
    fn read_array<'py>(&self, py: Python<'py>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        let array = self.inner.array(key).map_err(to_python)?;
        let bytes = py.detach(|| self.inner.read_array(key)).map_err(to_python)?;
        let shape: Vec<usize> = array.shape.iter().map(|&n| n as usize).collect();
        numpy_array(py, array.dtype, bytes, shape)
    }

    /// Verifies the checksum of an array, for a caller that maps its file and derives other arrays
    /// from it.
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

/// Closes a data set that was changed while it was open, and removes the files that only this
/// reader needed.
pub fn tidy_after(data_set: CoreDataSet) {
    let root = data_set.root().to_owned();
    drop(data_set);
    // Files that cannot be removed are unused, and the next writer tries again.
    let _ = outercore_store::generations::tidy(&root);
}

/// Removes files of a data set that only ended readers needed.
#[pyfunction]
pub fn tidy(py: Python<'_>, path: PathBuf) {
    // Files that cannot be removed are unused, and the next writer tries again.
    let _ = py.detach(|| outercore_store::generations::tidy(&path));
}

impl DataSet {
    /// The open data set.
    pub fn opened(&self) -> &CoreDataSet {
        &self.inner
    }
}

/// Opens a data set at its last acknowledged update; checks for signals while updates are folded.
pub fn open_current(path: &Path, callback: &mut Callback) -> Result<CoreDataSet> {
    let callback = RefCell::new(callback);
    let keep_going = || callback.borrow_mut().look();
    outercore_live::open(path, &keep_going)
}

/// Converts little-endian bytes to a NumPy array of the matching type.
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

/// Converts `bfloat16`, which NumPy lacks: its bits are the upper half of a `float32`.
fn widen_bfloat16<'py>(bits: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let wide = bits.call_method1("astype", ("uint32",))?;
    wide.call_method1("__lshift__", (16,))?.call_method1("view", ("float32",))
}
