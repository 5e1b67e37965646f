//! Array files: written by rows with a padded header and a running checksum, and read in chunks of
//! bounded size.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytemuck::NoUninit;
use outercore_core::{Bytes, Context, Error, Result};
use outercore_format::{ArrayEntry, Checksum, DATA_OFFSET, DType, NpyHeader};
use outercore_io::{Disk, WriteFile};

// Arrays are written from memory without conversion.
const _: () = assert!(cfg!(target_endian = "little"), "the format is little endian");

/// Progress of a pass over an array: bytes done, total bytes. An error stops the pass.
pub type OnBytes<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// A Rust type whose memory layout equals the file's.
pub trait Element: NoUninit {
    /// The element type in the manifest.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}

elements! {
    f32 => F32, half::f16 => F16, half::bf16 => BF16, f64 => F64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64, bool => Bool,
}

/// Writes an array of the data set from its first row to its last.
///
/// The first header says that the array has no rows, and [`ArrayWriter::finish`] corrects it. So a
/// file left by a crash cannot be mistaken for a complete one: its length contradicts its header.
///
/// **Cost**: a buffer of 1 MiB; larger writes bypass it.
///
/// # Example
/// ```
/// use outercore_format::DType;
/// use outercore_io::RealDisk;
/// use outercore_store::npy::ArrayWriter;
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let root = directory.path();
/// let mut writer = ArrayWriter::create(&RealDisk, root, "nodes/node/x.npy", DType::F32, &[2])?;
/// writer.write_slice(&[1.0f32, 2.0, 3.0, 4.0])?;
/// let entry = writer.finish()?;
/// assert_eq!(entry.shape, [2, 2]);
/// # Ok(())
/// # }
/// ```
pub struct ArrayWriter {
    file: Box<dyn WriteFile>,
    name: String,
    dtype: DType,
    row_shape: Vec<u64>,
    row_bytes: u64,
    buffer: Vec<u8>,
    checksum: Checksum,
    /// Data bytes so far, including the buffer.
    written: u64,
}

impl ArrayWriter {
    const BUFFER: usize = 1 << 20;

    /// Creates `root/file` and its directory, for rows of `row_shape`. An empty shape means one
    /// element per row. An existing file is truncated.
    ///
    /// # Errors
    /// `Invalid`: rows without bytes, or with more bytes than a file can hold. Errors of the disk.
    pub fn create(
        disk: &dyn Disk,
        root: &Path,
        file: &str,
        dtype: DType,
        row_shape: &[u64],
    ) -> Result<Self> {
        let row_bytes = row_shape
            .iter()
            .try_fold(dtype.size() as u64, |bytes, extent| bytes.checked_mul(*extent))
            .filter(|bytes| *bytes > 0 && i64::try_from(*bytes).is_ok())
            .ok_or_else(|| {
                Error::invalid(format!("rows of shape {row_shape:?} x {dtype}"))
                    .context(named(file))
                    .hint("every row needs at least one column")
            })?;
        let path = root.join(file);
        if let Some(directory) = path.parent() {
            disk.create_dir_all(directory)?;
        }
        let mut writer = Self {
            file: disk.create(&path)?,
            name: file.to_owned(),
            dtype,
            row_shape: row_shape.to_vec(),
            row_bytes,
            buffer: Vec::with_capacity(Self::BUFFER),
            checksum: Checksum::new(),
            written: 0,
        };
        writer.file.write_all(&NpyHeader::encode(dtype, &writer.shape(0)))?;
        Ok(writer)
    }

    /// Appends bytes of rows; a row may span several calls.
    ///
    /// # Errors
    /// Errors of the disk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.checksum.update(bytes);
        self.written += bytes.len() as u64;
        if self.buffer.len() + bytes.len() > Self::BUFFER {
            self.flush()?;
        }
        if bytes.len() >= Self::BUFFER {
            return self.file.write_all(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends elements of the array's type.
    ///
    /// # Errors
    /// `Internal` if the type differs from the array's; errors of the disk.
    pub fn write_slice<T: Element>(&mut self, elements: &[T]) -> Result<()> {
        if T::DTYPE != self.dtype {
            return Err(Error::internal(format!(
                "{} written to an array of {}",
                T::DTYPE,
                self.dtype
            ))
            .context(named(&self.name)));
        }
        self.write(bytemuck::cast_slice(elements))
    }

    /// Number of complete rows so far.
    pub fn rows(&self) -> u64 {
        self.written / self.row_bytes
    }

    /// Writes the buffer, corrects the header and makes the content durable. The name of the file
    /// becomes durable with the commit of the manifest.
    ///
    /// # Errors
    /// `Internal` if the last row is incomplete; errors of the disk.
    pub fn finish(mut self) -> Result<ArrayEntry> {
        self.flush()?;
        let rows = self.rows();
        if rows * self.row_bytes != self.written {
            return Err(Error::internal(format!(
                "{} bytes written, expected whole rows of {}",
                self.written, self.row_bytes
            ))
            .context(named(&self.name)));
        }
        let shape = self.shape(rows);
        self.file.write_at(0, &NpyHeader::encode(self.dtype, &shape))?;
        self.file.sync()?;
        Ok(ArrayEntry {
            file: self.name,
            dtype: self.dtype,
            shape,
            data_offset: DATA_OFFSET,
            checksum: self.checksum.finish(),
            external: false,
        })
    }

    fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.file.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn shape(&self, rows: u64) -> Vec<u64> {
        [&[rows], self.row_shape.as_slice()].concat()
    }
}

/// Reads a `.npy` file of this library or another program, from the first row to the last.
#[derive(Debug)]
pub struct ArrayReader {
    file: File,
    path: PathBuf,
    /// The header; its type is corrected if `uint16` stands for `bfloat16`.
    header: NpyHeader,
}

impl ArrayReader {
    /// Opens `path`, parses its header and checks the length of the file.
    ///
    /// # Errors
    /// `NotFound`. `Invalid`: not a `.npy` file, a kind that is refused (see [`NpyHeader::parse`]),
    /// or a scalar. `Corrupt`: the file is longer or shorter than its header says.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_unnamed(path).with_context(|| named(&path.display().to_string()))
    }

    /// [`ArrayReader::open`] for a caller that adds the file name to errors.
    pub(crate) fn open_unnamed(path: &Path) -> Result<Self> {
        let mut file = File::open(path)?;
        let header = read_header(&mut file)?;
        if header.shape.is_empty() {
            return Err(Error::invalid("a single number, expected rows"));
        }
        check_len(file.metadata()?.len(), header.dtype, &header.shape, header.data_offset)?;
        Ok(Self { file, path: path.to_owned(), header })
    }

    /// Interprets the elements as `dtype`. Needed for `bfloat16`, which NumPy stores as `uint16`.
    ///
    /// # Errors
    /// `Invalid` if the header has any other type.
    pub fn with_dtype(mut self, dtype: DType) -> Result<Self> {
        if dtype.stored() != self.header.dtype.stored() {
            return Err(Error::invalid(format!(
                "header says {}, expected {}",
                self.header.dtype,
                dtype.stored()
            ))
            .context(named(&self.path.display().to_string())));
        }
        self.header.dtype = dtype;
        Ok(self)
    }

    /// Element type, shape and data offset.
    pub fn header(&self) -> &NpyHeader {
        &self.header
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.header.shape[0]
    }

    /// Shape of a row; empty for a single element.
    pub fn row_shape(&self) -> &[u64] {
        &self.header.shape[1..]
    }

    /// Calls `take` with the offset and the bytes of each chunk of data, in order. Chunks hold
    /// whole rows if a row fits `chunk`, otherwise whole elements.
    ///
    /// **Cost**: one buffer of at most `chunk`; one read per chunk.
    ///
    /// # Errors
    /// Errors of `take`; `Corrupt` if the file has become shorter.
    pub fn for_each_chunk(
        &mut self,
        chunk: Bytes,
        take: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let Self { file, path, header } = self;
        let len = header.data_len();
        let element = header.dtype.size() as u64;
        let row = header.shape[1..].iter().product::<u64>() * element;
        let unit = if row > 0 && row <= chunk.0 { row } else { element };
        let size = (chunk.0 / unit * unit).max(unit).min(len);
        let mut buffer = vec![0; size as usize];
        let failed = |offset: u64| {
            format!("array `{}` at byte {}", path.display(), header.data_offset + offset)
        };
        file.seek(SeekFrom::Start(header.data_offset)).with_context(|| failed(0))?;
        let mut offset = 0;
        while offset < len {
            let part = &mut buffer[..size.min(len - offset) as usize];
            file.read_exact(part).with_context(|| failed(offset))?;
            take(offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }
}

/// Calls `take` with each chunk of a `.npy` file's data, in order; see
/// [`ArrayReader::for_each_chunk`].
///
/// # Errors
/// As [`ArrayReader::open`] and [`ArrayReader::for_each_chunk`].
///
/// # Example
/// ```
/// # fn main() -> outercore_core::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("x.npy");
/// # let mut bytes = outercore_format::NpyHeader::encode(outercore_format::DType::U8, &[5]);
/// # bytes.extend([1, 2, 3, 4, 5]);
/// # std::fs::write(&path, bytes)?;
/// use outercore_core::Bytes;
/// let mut sum = 0u64;
/// outercore_store::npy::read_npy_chunks(&path, Bytes::kib(64), &mut |_offset, bytes| {
///     sum += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
///     Ok(())
/// })?;
/// assert_eq!(sum, 15);
/// # Ok(())
/// # }
/// ```
pub fn read_npy_chunks(
    path: &Path,
    chunk: Bytes,
    take: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<NpyHeader> {
    let mut reader = ArrayReader::open(path)?;
    reader.for_each_chunk(chunk, take)?;
    Ok(reader.header)
}

/// Reads and parses the header at the start of `file`.
pub(crate) fn read_header(file: &mut File) -> Result<NpyHeader> {
    let mut bytes = Vec::with_capacity(DATA_OFFSET as usize);
    file.by_ref().take(NpyHeader::PREFIX as u64).read_to_end(&mut bytes)?;
    let length = NpyHeader::length(&bytes)?;
    let rest = length.saturating_sub(bytes.len()) as u64;
    file.by_ref().take(rest).read_to_end(&mut bytes)?;
    NpyHeader::parse(&bytes)
}

/// Compares the length of an array's file with its dtype and shape.
pub(crate) fn check_len(found: u64, dtype: DType, shape: &[u64], data_offset: u64) -> Result<()> {
    let expected = shape.iter().product::<u64>() * dtype.size() as u64 + data_offset;
    if found == expected {
        return Ok(());
    }
    let (rows, columns) = shape.split_first().map_or((1, &[][..]), |(rows, rest)| (*rows, rest));
    let columns: String = columns.iter().map(|extent| format!(" x {}", grouped(*extent))).collect();
    let error = Error::corrupt(format!(
        "file has {} bytes, expected {} ({} rows{columns} x {dtype} + header)",
        grouped(found),
        grouped(expected),
        grouped(rows),
    ));
    Err(if found < expected {
        error.hint("the copy was cut short; copy the file again")
    } else {
        error.hint("the file was written to or is not the one meant; copy it again")
    })
}

/// Formats `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn named(file: &str) -> String {
    format!("array `{file}`")
}

#[cfg(test)]
mod tests {
    use outercore_core::ErrorKind;
    use outercore_io::RealDisk;

    use super::*;

    fn write(root: &Path, rows: &[[u32; 3]]) -> ArrayEntry {
        let mut writer =
            ArrayWriter::create(&RealDisk, root, "nodes/node/x.npy", DType::U32, &[3]).unwrap();
        for row in rows {
            writer.write_slice(row).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn what_is_written_reads_back_in_chunks_of_whole_rows() {
        let directory = tempfile::tempdir().unwrap();
        let rows: Vec<[u32; 3]> = (0..100).map(|i| [i, 2 * i, 3 * i]).collect();
        let entry = write(directory.path(), &rows);
        assert_eq!((entry.shape.as_slice(), entry.data_offset), (&[100, 3][..], 4096));
        let bytes: &[u8] = bytemuck::cast_slice(&rows);
        assert_eq!(entry.checksum, Checksum::of(bytes));
        let path = directory.path().join(&entry.file);
        for chunk in [1, 4, 11, 12, 13, 100, 4096] {
            let mut read = Vec::new();
            let unit = if chunk >= 12 { 12 } else { 4 };
            let header = read_npy_chunks(&path, Bytes(chunk), &mut |offset, bytes| {
                assert_eq!(offset as usize, read.len());
                assert_eq!(bytes.len() % unit, 0, "chunk {chunk}");
                read.extend_from_slice(bytes);
                Ok(())
            })
            .unwrap();
            assert_eq!(read, bytes, "chunk {chunk}");
            assert_eq!(header.shape, [100, 3]);
        }
    }

    #[test]
    fn writes_larger_than_the_buffer_keep_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer =
            ArrayWriter::create(&RealDisk, directory.path(), "a.npy", DType::U8, &[]).unwrap();
        let mut expected = Vec::new();
        for (value, len) in [(1, 10), (2, 3 << 20), (3, (1 << 20) - 5), (4, 100), (5, 1 << 20)] {
            writer.write(&vec![value; len]).unwrap();
            expected.resize(expected.len() + len, value);
        }
        let entry = writer.finish().unwrap();
        let bytes = std::fs::read(directory.path().join("a.npy")).unwrap();
        assert!(bytes[4096..] == expected);
        assert_eq!(entry.shape, [expected.len() as u64]);
    }

    #[test]
    fn a_file_of_the_wrong_length_is_named_with_both_lengths() {
        let directory = tempfile::tempdir().unwrap();
        let entry = write(directory.path(), &[[1, 2, 3]; 1000]);
        let path = directory.path().join(&entry.file);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(16_000).unwrap();
        let error = ArrayReader::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        let text = error.to_string();
        let expected =
            "file has 16,000 bytes, expected 16,096 (1,000 rows x 3 x uint32 + header)\nhint: ";
        assert!(text.contains(expected), "{text}");
        file.set_len(16_097).unwrap();
        assert_eq!(ArrayReader::open(&path).unwrap_err().kind(), ErrorKind::Corrupt);
        file.set_len(100).unwrap();
        assert_eq!(ArrayReader::open(&path).unwrap_err().kind(), ErrorKind::Corrupt);
        file.set_len(0).unwrap();
        assert_eq!(ArrayReader::open(&path).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn a_file_that_was_not_finished_cannot_be_opened() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer =
            ArrayWriter::create(&RealDisk, directory.path(), "a.npy", DType::U8, &[]).unwrap();
        writer.write(&vec![7; 2 << 20]).unwrap();
        drop(writer);
        let error = ArrayReader::open(&directory.path().join("a.npy")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn misuse_of_the_writer_is_an_internal_error() {
        let directory = tempfile::tempdir().unwrap();
        let create = |dtype, shape: &[u64]| {
            ArrayWriter::create(&RealDisk, directory.path(), "a.npy", dtype, shape)
        };
        let mut writer = create(DType::F32, &[2]).unwrap();
        assert_eq!(writer.write_slice(&[1u32]).unwrap_err().kind(), ErrorKind::Internal);
        writer.write_slice(&[1f32]).unwrap();
        assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Internal);
        assert_eq!(create(DType::F32, &[0]).err().unwrap().kind(), ErrorKind::Invalid);
        let huge = create(DType::F32, &[u64::MAX, 2]).err().unwrap();
        assert_eq!(huge.kind(), ErrorKind::Invalid);
    }

    #[test]
    fn bfloat16_is_uint16_in_the_header_and_itself_when_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer =
            ArrayWriter::create(&RealDisk, directory.path(), "a.npy", DType::BF16, &[]).unwrap();
        writer.write_slice(&[half::bf16::from_f32(1.5)]).unwrap();
        assert_eq!(writer.finish().unwrap().dtype, DType::BF16);
        let reader = ArrayReader::open(&directory.path().join("a.npy")).unwrap();
        assert_eq!(reader.header().dtype, DType::U16);
        let reader = reader.with_dtype(DType::BF16).unwrap();
        assert_eq!(reader.header().dtype, DType::BF16);
        reader.with_dtype(DType::F32).unwrap_err();
    }

    #[test]
    fn large_numbers_are_written_in_groups() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (511_996_928, "511,996,928")]
        {
            assert_eq!(grouped(number), text);
        }
    }
}
