//! Arrays of a data set as files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use outercore_core::{Context, Error, ErrorKind, Result};
use outercore_format::{ArrayEntry, Checksum, DType, keys};

use crate::npy::check_len;

/// An array of a data set: the place and the meaning of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayRef {
    /// Its key in the manifest.
    pub key: String,
    /// Its file.
    pub path: PathBuf,
    /// Type of the elements.
    pub dtype: DType,
    /// Size of each dimension, rows first; at least one dimension.
    pub shape: Vec<u64>,
    /// Offset of the first data byte; a multiple of 4096 only inside the data set.
    pub data_offset: u64,
    /// Checksum of the data bytes, from the manifest.
    pub checksum: String,
}

impl ArrayRef {
    pub(crate) fn new(root: &Path, key: &str, entry: &ArrayEntry) -> Self {
        Self {
            key: key.to_owned(),
            // `join` returns an absolute path unchanged, so this also works for external files.
            path: root.join(&entry.file),
            dtype: entry.dtype,
            shape: entry.shape.clone(),
            data_offset: entry.data_offset,
            checksum: entry.checksum.clone(),
        }
    }

    /// A name for the content of the file: on any machine, equal names mean equal bytes.
    ///
    /// # Example
    /// `xxh3:5f1c…/float32/1000x128/4096`
    pub fn content_name(&self) -> String {
        let shape: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        format!("{}/{}/{}/{}", self.checksum, self.dtype, shape.join("x"), self.data_offset)
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.shape[0]
    }

    /// Number of elements in a row.
    pub fn row_elements(&self) -> u64 {
        self.shape[1..].iter().product()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.row_elements() * self.dtype.size() as u64
    }

    /// Bytes of the data.
    pub fn data_len(&self) -> u64 {
        self.rows() * self.row_bytes()
    }

    /// Compares a checksum of all bytes of the array with the manifest.
    ///
    /// # Errors
    /// `Corrupt`, naming the array.
    pub fn require(&self, found: &Checksum) -> Result<()> {
        let found = found.finish();
        if found == self.checksum {
            return Ok(());
        }
        let error = Error::corrupt(format!(
            "array `{}`: checksum {found}, expected {}: damaged on disk; nothing was changed",
            self.key, self.checksum
        ));
        // A derived array can be rebuilt by a command, which the caller names.
        Err(match keys::is_derived(&self.key) {
            true => error,
            false => {
                error.hint("run `outercore check DATASET`, then copy or import the array again")
            }
        })
    }

    /// Compares the length of the file with the shape.
    pub(crate) fn check_len(&self, external: bool) -> Result<()> {
        let meta = std::fs::metadata(&self.path).map_err(|error| {
            let error = Error::from(error).context(format!("file `{}`", self.path.display()));
            match (error.kind(), external) {
                (ErrorKind::NotFound, true) => error.hint(
                    "it was registered in place and has moved; put it back or import it again",
                ),
                (ErrorKind::NotFound, false) => error.hint("copy the data set again, whole"),
                _ => error,
            }
        })?;
        if !meta.is_file() {
            return Err(Error::corrupt(format!("`{}` is not a file", self.path.display())));
        }
        check_len(meta.len(), self.dtype, &self.shape, self.data_offset)
    }
}

/// An array and its open file. Parts are read with blocking calls.
#[derive(Debug)]
pub struct ArrayFile {
    array: ArrayRef,
    file: File,
}

impl ArrayFile {
    /// Opens the file of `array`.
    ///
    /// # Errors
    /// `NotFound`: the file is missing. `Io`.
    pub fn open(array: ArrayRef) -> Result<Self> {
        let file = File::open(&array.path).with_context(|| format!("array `{}`", array.key))?;
        Ok(Self { array, file })
    }

    /// The array.
    pub fn array(&self) -> &ArrayRef {
        &self.array
    }

    /// Fills `bytes` with the elements from index `first` on, in row-major order.
    ///
    /// # Errors
    /// A failed read; `Corrupt` for a short read, with the byte at which it began.
    pub fn read(&self, first: u64, bytes: &mut [u8]) -> Result<()> {
        let offset = self.array.data_offset + first * self.array.dtype.size() as u64;
        self.file
            .read_exact_at(bytes, offset)
            .with_context(|| format!("array `{}` at byte {offset}", self.array.key))
    }
}
