//! Regions of far memory.

use outercore_core::{Bytes, Error, Result};
use serde::{Deserialize, Serialize};

/// The key for reading and writing a region (`rkey`, Fargraph+ 6.1): a random number from the
/// server, which cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RegionKey(pub u64);

/// A region of far memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Its key.
    pub key: RegionKey,
    /// Its length.
    pub len: Bytes,
}

impl Region {
    /// Checks that `len` bytes at `offset` are within the region.
    ///
    /// # Errors
    /// `Invalid`: they are not, or `len` is 0.
    pub fn check_range(&self, offset: u64, len: usize) -> Result<()> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len.0 && len > 0 => Ok(()),
            _ => Err(Error::invalid(format!(
                "{len} bytes at {offset} of a region of {} bytes, expected at least 1 within it",
                self.len.0
            ))),
        }
    }
}
