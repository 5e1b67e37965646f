//! Names of regions.

use outercore_core::{Error, Result};

use super::MAX_NAME;

/// The error for a name of `len` bytes, which is too long.
pub(super) fn name_too_long(len: usize) -> Error {
    Error::invalid(format!("the name of a region has {len} bytes, expected at most {MAX_NAME}"))
}

/// Checks the name of a region.
///
/// # Errors
/// `Invalid`: empty, longer than [`MAX_NAME`] bytes, or with control characters.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::invalid("the name of a region is empty"));
    }
    if name.len() > MAX_NAME {
        return Err(name_too_long(name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::invalid(format!("the name {name:?} has control characters")));
    }
    Ok(())
}
