//! Reads whole arrays and verifies their checksums.

use outercore_core::{Error, Result};
use outercore_format::Checksum;

use crate::dataset::{ArrayFile, ArrayRef};
use crate::npy::OnBytes;

/// Bytes that are read at once where the caller skips them.
const SKIP: usize = 1 << 20;

/// Reads an array from its first element to its last and compares its checksum at the end.
///
/// Code that derives new arrays from old ones reads through this. Otherwise damaged data would get
/// a new, valid checksum, and no check could find the damage. Skipped bytes are read, too, because
/// the checksum covers all bytes.
///
/// **Cost** one sequential read of the array, even if only a part of it is used.
///
/// # Example
/// ```
/// use outercore_store::dataset::DataSet;
/// use outercore_store::verified::VerifiedReader;
/// # fn main() -> outercore_core::Result<()> {
/// # let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/format-1");
/// let graph = DataSet::open(root)?;
/// let mut offsets = VerifiedReader::open(graph.array("edges/edge/offsets")?)?;
/// let mut second = [0; 8];
/// offsets.skip_to(1, &mut |_, _| Ok(()))?;
/// offsets.read(&mut second)?;
/// offsets.finish(&mut |_, _| Ok(()))?;
/// // Only now is it known that this is what was written.
/// assert!(u64::from_le_bytes(second) <= graph.num_edges());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct VerifiedReader {
    file: ArrayFile,
    checksum: Checksum,
    /// Elements read so far.
    at: u64,
}

impl VerifiedReader {
    /// Opens the file of `array`.
    ///
    /// # Errors
    /// As [`ArrayFile::open`].
    pub fn open(array: ArrayRef) -> Result<Self> {
        Ok(Self { file: ArrayFile::open(array)?, checksum: Checksum::new(), at: 0 })
    }

    /// The array.
    pub fn array(&self) -> &ArrayRef {
        self.file.array()
    }

    /// Number of the next element, in row-major order.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// Fills `bytes` with the next elements.
    ///
    /// # Errors
    /// As [`ArrayFile::read`].
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.file.read(self.at, bytes)?;
        self.checksum.update(bytes);
        self.at += (bytes.len() / self.array().dtype.size()) as u64;
        Ok(())
    }

    /// Skips the elements before index `element`; `on_bytes` receives the progress.
    ///
    /// # Errors
    /// As [`ArrayFile::read`]; `Internal`: that element was already passed; errors of `on_bytes`.
    pub fn skip_to(&mut self, element: u64, on_bytes: OnBytes<'_>) -> Result<()> {
        let Some(mut left) = element.checked_sub(self.at) else {
            let key = &self.array().key;
            return Err(Error::internal(format!("array `{key}`: {element} after {}", self.at)));
        };
        let (size, total) = (self.array().dtype.size(), self.array().data_len());
        let mut buffer = vec![0; (left as usize).saturating_mul(size).min(SKIP / size * size)];
        while left > 0 {
            on_bytes(self.at * size as u64, total)?;
            let elements = left.min((buffer.len() / size) as u64);
            self.read(&mut buffer[..elements as usize * size])?;
            left -= elements;
        }
        Ok(())
    }

    /// Reads the rest and compares the checksum. Results derived from the array may be committed
    /// only after this.
    ///
    /// # Errors
    /// `Corrupt`: the checksum does not match. Errors of [`VerifiedReader::skip_to`].
    pub fn finish(mut self, on_bytes: OnBytes<'_>) -> Result<()> {
        let elements = self.array().rows() * self.array().row_elements();
        self.skip_to(elements, on_bytes)?;
        self.array().require(&self.checksum)
    }
}

/// Reads an array and compares its checksum.
///
/// **Cost** one sequential read.
///
/// # Errors
/// `Corrupt`: the checksum does not match. A failed read; errors of `on_bytes`.
pub fn verify(array: ArrayRef, on_bytes: OnBytes<'_>) -> Result<()> {
    VerifiedReader::open(array)?.finish(on_bytes)
}

/// Calls `take(first row, bytes)` for whole rows of an array in order, about `chunk` bytes at a
/// time, and compares the checksum at the end.
///
/// # Errors
/// `Corrupt`: the checksum does not match. A failed read; errors of `take`.
pub fn for_each_rows(
    array: &ArrayRef,
    chunk: u64,
    take: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut reader = VerifiedReader::open(array.clone())?;
    let row_bytes = array.row_bytes();
    let step = (chunk / row_bytes.max(1)).max(1);
    let mut bytes = Vec::new();
    let mut first = 0;
    while first < array.rows() {
        let rows = step.min(array.rows() - first);
        bytes.resize((rows * row_bytes) as usize, 0);
        reader.read(&mut bytes)?;
        take(first, &bytes)?;
        first += rows;
    }
    reader.finish(&mut |_, _| Ok(()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use outercore_core::ErrorKind;
    use outercore_format::DType;
    use outercore_io::RealDisk;

    use super::*;
    use crate::npy::ArrayWriter;

    /// Writes an array of `rows` rows with three numbers each; every number is its place.
    fn written(root: &Path, rows: u64) -> ArrayRef {
        let mut writer = ArrayWriter::create(&RealDisk, root, "a.npy", DType::U16, &[3]).unwrap();
        for element in 0..3 * rows {
            writer.write_slice(&[element as u16]).unwrap();
        }
        ArrayRef::new(root, "nodes/node/a", &writer.finish().unwrap())
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is_and_whatever_is_read_before() {
        let directory = tempfile::tempdir().unwrap();
        let array = written(directory.path(), 400_000);
        let sound = std::fs::read(&array.path).unwrap();
        let ignore: OnBytes<'_> = &mut |_, _| Ok(());
        for bit in [0, 7, 8 * 1_199_999, 8 * 1_200_000, 8 * 2_399_999 + 7] {
            let mut damaged = sound.clone();
            damaged[4096 + bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&array.path, &damaged).unwrap();
            for read in [0, 1, 3, 100_000, 1_200_000] {
                let mut reader = VerifiedReader::open(array.clone()).unwrap();
                reader.read(&mut vec![0; 2 * read]).unwrap();
                reader.skip_to((read as u64 + 5).min(1_200_000), ignore).unwrap();
                let error = reader.finish(ignore).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "bit {bit}, {read} read");
                let text = error.to_string();
                let names = ["nodes/node/a", "nothing was changed", "outercore check"];
                assert!(names.iter().all(|name| text.contains(name)), "{text}");
            }
            let error = for_each_rows(&array, 1 << 16, &mut |_, _| Ok(())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "bit {bit}");
        }
        std::fs::write(&array.path, &sound).unwrap();
        verify(array.clone(), ignore).unwrap();
        let mut elements = Vec::new();
        for_each_rows(&array, 1000, &mut |first, bytes| {
            assert_eq!(first as usize * 3, elements.len());
            elements.extend(bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair)));
            Ok(())
        })
        .unwrap();
        assert!(elements.iter().copied().eq((0..1_200_000u32).map(|element| element as u16)));
    }

    #[test]
    fn an_element_that_has_passed_cannot_be_skipped_to_and_an_error_of_the_caller_ends_a_skip() {
        let directory = tempfile::tempdir().unwrap();
        let array = written(directory.path(), 10);
        let mut reader = VerifiedReader::open(array).unwrap();
        reader.skip_to(4, &mut |_, _| Ok(())).unwrap();
        assert_eq!(reader.position(), 4);
        let error = reader.skip_to(3, &mut |_, _| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        let stop = |_, _| Err(Error::new(ErrorKind::Interrupted, "stop"));
        assert_eq!(reader.finish(&mut { stop }).unwrap_err().kind(), ErrorKind::Interrupted);
    }
}
