use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use outercore_core::{Context, Result};
use outercore_format::{ArrayEntry, Checksum, DATA_OFFSET, DType, NpyHeader};
use outercore_io::{Disk, WriteFile};

/// A one-dimensional array under construction, which can be continued after a crash.
///
/// The header is written last, because only then is the number of rows known.
pub(crate) struct Output {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    dtype: DType,
    rows: u64,
    checksum: Checksum,
}

impl Output {
    /// Opens the array at `path`. It is new if `rows` is 0; otherwise it is truncated to its first
    /// `rows` rows.
    ///
    /// **Cost** Reads these rows again, for the checksum.
    pub fn open(disk: &dyn Disk, path: &Path, dtype: DType, rows: u64) -> Result<Self> {
        let mut checksum = Checksum::new();
        let mut file = if rows == 0 { disk.create(path)? } else { disk.open(path)? };
        let bytes = rows * dtype.size() as u64;
        if rows > 0 {
            read_back(path, bytes, &mut checksum)?;
        }
        file.set_len(DATA_OFFSET + bytes)?;
        Ok(Self { file, path: path.to_owned(), dtype, rows, checksum })
    }

    /// Appends whole rows.
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.checksum.update(bytes);
        self.rows += (bytes.len() / self.dtype.size()) as u64;
        self.file.write_all(bytes)
    }

    /// Makes the appended rows durable.
    pub fn sync(&mut self) -> Result<()> {
        self.file.sync()
    }

    /// Writes the header, makes the content durable, and returns the manifest entry for the file
    /// `name`. The name is durable only after a sync of its directory.
    pub fn finish(mut self, name: &str) -> Result<ArrayEntry> {
        let shape = vec![self.rows];
        self.file.write_at(0, &NpyHeader::encode(self.dtype, &shape))?;
        self.file.sync().with_context(|| format!("array `{}`", self.path.display()))?;
        Ok(ArrayEntry {
            file: name.to_owned(),
            dtype: self.dtype,
            shape,
            data_offset: DATA_OFFSET,
            checksum: self.checksum.finish(),
            external: false,
        })
    }
}

fn read_back(path: &Path, bytes: u64, checksum: &mut Checksum) -> Result<()> {
    let describe = || format!("array `{}`, written before", path.display());
    let file = File::open(path).with_context(describe)?;
    let mut block = vec![0; 1 << 20];
    let mut done = 0;
    while done < bytes {
        let step = (bytes - done).min(block.len() as u64) as usize;
        file.read_exact_at(&mut block[..step], DATA_OFFSET + done).with_context(describe)?;
        checksum.update(&block[..step]);
        done += step as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use outercore_io::RealDisk;

    use super::*;

    #[test]
    fn an_array_gone_on_with_equals_one_written_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let rows: Vec<u8> = (0..100u32).flat_map(u32::to_le_bytes).collect();
        let (once, twice) = (directory.path().join("once.npy"), directory.path().join("twice.npy"));
        let mut output = Output::open(&RealDisk, &once, DType::U32, 0).unwrap();
        output.append(&rows).unwrap();
        let expected = output.finish("a.npy").unwrap();
        assert_eq!((&expected.shape[..], &*expected.file), (&[100][..], "a.npy"));

        let mut output = Output::open(&RealDisk, &twice, DType::U32, 0).unwrap();
        output.append(&rows[..160]).unwrap();
        output.append(b"torn off later!!").unwrap();
        drop(output);
        let mut output = Output::open(&RealDisk, &twice, DType::U32, 40).unwrap();
        output.append(&rows[160..]).unwrap();
        assert_eq!(output.finish("a.npy").unwrap(), expected);
        assert_eq!(std::fs::read(&twice).unwrap(), std::fs::read(&once).unwrap());
    }
}
