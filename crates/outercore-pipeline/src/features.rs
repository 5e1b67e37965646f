//! A matrix on disk with one row per node.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, Result};
use outercore_format::{DType, NpyHeader};
use outercore_io::RowLayout;
use outercore_store::dataset::ArrayRef;

/// Longest `.npy` header that is looked at.
const MAX_HEADER: usize = 64 << 10;

/// Where a feature matrix lies.
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
    /// Where the rows start.
    pub data_offset: u64,
}

impl RowSource {
    /// The rows of an array of a data set.
    ///
    /// # Errors
    /// `Invalid` if the array is not a matrix with one row per node.
    pub fn of_array(array: &ArrayRef, num_nodes: u64) -> Result<Self> {
        Self::new(array.path.clone(), array.dtype, &array.shape, array.data_offset, num_nodes)
    }

    /// The rows of an `.npy` file, such as an intermediate layer.
    ///
    /// # Errors
    /// The file is missing, no `.npy`, too short, or has another number of rows.
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
        Ok(Self { path, rows, width: width as usize, dtype, data_offset })
    }

    /// Bytes from one row to the next.
    pub fn row_bytes(&self) -> u64 {
        (self.dtype.size() * self.width) as u64
    }

    /// For the read planner.
    pub fn layout(&self, file_len: u64) -> RowLayout {
        RowLayout { base: self.data_offset, stride: self.row_bytes(), file_len }
    }
}
