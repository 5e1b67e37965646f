//! A matrix on disk with one row per node.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outercore_core::{Bytes, Context, Error, Result};
use outercore_format::{DType, NpyHeader, widen, words_of};
use outercore_io::RowLayout;
use outercore_layout::{Layout, Places, Scales};
use outercore_store::dataset::{ArrayRef, DataSet};

use crate::rows::RowArena;

/// Longest `.npy` header to read.
const MAX_HEADER: usize = 64 << 10;

/// Location and type of a feature matrix.
#[derive(Clone, Debug)]
pub struct RowSource {
    /// The file.
    pub path: PathBuf,
    /// Rows of the matrix.
    pub rows: u64,
    /// Elements per row.
    pub width: usize,
    /// Type on disk.
    pub dtype: DType,
    /// Offset of the first row.
    pub data_offset: u64,
    /// Type of the array, and of updates of its rows. Differs from `dtype` if rows are stored as
    /// `int8`.
    pub array_dtype: DType,
    /// Place of each node's row; `None` if the place is the node id.
    pub places: Option<Arc<Places>>,
    /// Scales that convert `int8` rows back to values; `None` if rows are not quantised.
    pub scales: Option<Arc<Scales>>,
}

impl RowSource {
    /// The rows of an array of a data set.
    ///
    /// # Errors
    /// `Invalid` if the array is not a matrix with one row per node.
    pub fn of_array(array: &ArrayRef, num_nodes: u64) -> Result<Self> {
        Self::new(array.path.clone(), array.dtype, &array.shape, array.data_offset, num_nodes)
    }

    /// The rows of an array in one of its layouts.
    ///
    /// **Cost** reads the table of places and keeps it in memory.
    ///
    /// # Errors
    /// As [`RowSource::of_array`] and [`Layout::load_places`].
    pub fn of_layout(dataset: &DataSet, layout: &Layout) -> Result<Self> {
        Ok(Self {
            array_dtype: layout.array().dtype,
            places: layout.load_places(dataset)?.map(Arc::new),
            scales: layout.scales().cloned().map(Arc::new),
            ..Self::of_array(layout.rows(), layout.array().rows())?
        })
    }

    /// The rows of an `.npy` file, such as an intermediate layer.
    ///
    /// # Errors
    /// The file is missing, not an `.npy` file, too short, or has another number of rows.
    pub fn of_npy(path: &Path, num_nodes: u64) -> Result<Self> {
        let name = || format!("feature file `{}`", path.display());
        let mut head = Vec::new();
        let file = File::open(path).with_context(name)?;
        let len = file.metadata().with_context(name)?.len();
        file.take(MAX_HEADER as u64).read_to_end(&mut head).with_context(name)?;
        let header = NpyHeader::parse(&head).with_context(name)?;
        let source =
            Self::new(path.to_owned(), header.dtype, &header.shape, header.data_offset, num_nodes)
                .with_context(name)?;
        let expected = source.data_offset + source.rows * source.row_bytes();
        if len < expected {
            return Err(Error::corrupt(format!(
                "file has {len} bytes, expected {expected} ({} rows x {} x {} + header)",
                source.rows, source.width, source.dtype
            ))
            .context(name()));
        }
        Ok(source)
    }

    fn new(
        path: PathBuf,
        dtype: DType,
        shape: &[u64],
        data_offset: u64,
        num_nodes: u64,
    ) -> Result<Self> {
        let (rows, width) = match *shape {
            [rows, width] => (rows, width),
            [rows] => (rows, 1),
            _ => {
                return Err(Error::invalid(format!(
                    "features of shape {shape:?}, expected [nodes, features]"
                )));
            }
        };
        if rows != num_nodes {
            return Err(Error::invalid(format!(
                "{rows} feature rows, expected {num_nodes} (one per node)"
            )));
        }
        if width == 0 {
            return Err(Error::invalid("features of width 0, expected at least one column"));
        }
        Ok(Self {
            path,
            rows,
            width: width as usize,
            dtype,
            data_offset,
            array_dtype: dtype,
            places: None,
            scales: None,
        })
    }

    /// Bytes from one row to the next.
    pub fn row_bytes(&self) -> u64 {
        (self.dtype.size() * self.width) as u64
    }

    /// The layout of the rows for the read planner.
    pub fn layout(&self, file_len: u64) -> RowLayout {
        RowLayout { base: self.data_offset, stride: self.row_bytes(), file_len }
    }

    /// Memory of the tables that describe the rows.
    pub fn memory(&self) -> Bytes {
        let places = self.places.as_ref().map_or(0, |places| places.memory().0);
        Bytes(places + self.scales.as_ref().map_or(0, |scales| scales.memory().0))
    }

    /// Writes the row in a slot of `arena` to `out`, in the form of batches.
    ///
    /// # Errors
    /// As [`RowArena::load`].
    pub fn deliver(&self, arena: &RowArena, slot: u32, out: &mut [f32]) -> Result<()> {
        arena.load(slot, self.dtype, out)?;
        if let Some(scales) = &self.scales {
            scales.restore(out);
        }
        Ok(())
    }

    /// Like [`RowSource::deliver`], for a row changed by an update, given as bytes of the array. If
    /// rows are stored as `int8`, the result equals the row after the update is folded.
    ///
    /// # Errors
    /// As [`widen`].
    ///
    /// # Panics
    /// If `row` or `out` is not one row long.
    pub fn deliver_changed(&self, row: &[u8], out: &mut [f32]) -> Result<()> {
        assert_eq!(row.len(), self.width * self.array_dtype.size(), "a row of another size");
        assert_eq!(out.len(), self.width, "a row of another width");
        let mut words = Vec::new();
        words_of(row, &mut words);
        let widened = widen(self.array_dtype, &words, out);
        let Some(scales) = &self.scales else { return widened };
        // If `float32` cannot represent a value, the nearest `float32` has the same `int8` step.
        scales.quantise(out);
        scales.restore(out);
        Ok(())
    }
}

/// Sorts the places of the nodes `rows`, for the read planner, and reorders `slots` in the same
/// way.
///
/// Without a table, the place is the node id, and both stay unchanged.
pub fn by_place(places: Option<&Places>, rows: &mut [u64], slots: &mut [u32]) {
    let Some(places) = places else { return };
    let mut placed: Vec<(u64, u32)> =
        rows.iter().zip(&*slots).map(|(&node, &slot)| (places.of(node), slot)).collect();
    placed.sort_unstable();
    for ((place, slot), (row, of_row)) in placed.into_iter().zip(rows.iter_mut().zip(slots)) {
        (*row, *of_row) = (place, slot);
    }
}
