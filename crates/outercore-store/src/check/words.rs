use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use outercore_core::{Context, Result};
use outercore_format::{Checksum, DType};

use crate::dataset::ArrayRef;

const BUFFER: u64 = 1 << 20;

/// Iterates over the unsigned integers of an array and computes the checksum of its bytes.
pub(super) struct Words<'a> {
    array: &'a ArrayRef,
    file: File,
    checksum: Checksum,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were already returned.
    at: usize,
    /// Data bytes read into the buffer so far.
    read: u64,
}

impl<'a> Words<'a> {
    /// Opens `array`, which holds `uint32` or `uint64`.
    pub fn open(array: &'a ArrayRef) -> Result<Self> {
        let mut file = File::open(&array.path)?;
        file.seek(SeekFrom::Start(array.data_offset))?;
        Ok(Self { array, file, checksum: Checksum::new(), buffer: Vec::new(), at: 0, read: 0 })
    }

    /// The next integer. The caller knows how many there are.
    #[inline]
    pub fn next(&mut self) -> Result<u64> {
        if self.at == self.buffer.len() {
            self.fill()?;
        }
        let rest = &self.buffer[self.at..];
        if self.array.dtype == DType::U32 {
            self.at += 4;
            return Ok(u64::from(u32::from_le_bytes(rest[..4].try_into().expect("4 bytes"))));
        }
        self.at += 8;
        Ok(u64::from_le_bytes(rest[..8].try_into().expect("8 bytes")))
    }

    /// Data bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }

    /// The checksum of the whole array. All integers must have been returned.
    pub fn finish(self) -> String {
        self.checksum.finish()
    }

    fn fill(&mut self) -> Result<()> {
        let len = (self.array.data_len() - self.read).min(BUFFER);
        self.buffer.resize(len as usize, 0);
        self.file
            .read_exact(&mut self.buffer)
            .with_context(|| format!("at byte {}", self.array.data_offset + self.read))?;
        self.checksum.update(&self.buffer);
        self.read += len;
        self.at = 0;
        Ok(())
    }
}
