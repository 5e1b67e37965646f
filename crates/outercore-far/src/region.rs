//! Regions of far memory.

use outercore_core::{Bytes, Error, Result};
use serde::{Deserialize, Serialize};

/// The key by which a region is read and written (`rkey`, Fargraph+ 6.1): drawn by the server, not
/// to be guessed.
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
    /// Checks that `len` bytes at `offset` lie within it.
    ///
    /// # Errors
    /// `Invalid`: they do not, or are none.
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
