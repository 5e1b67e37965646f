//! Bodies of fuzz targets. Each accepts any bytes and panics if a property does not hold.

use outercore_core::ErrorKind;

use crate::header::LayoutHeader;
use crate::keys;

/// A header that parses stays the same after writing and parsing it again; any key names a header
/// or nothing.
pub fn header(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Some((array, precision)) = keys::of_header(text)
    {
        assert_eq!(keys::key(array, precision, keys::Part::Header), text);
    }
    match LayoutHeader::from_json(bytes) {
        Ok(header) => {
            let written = header.to_json().expect("what was read can be written");
            assert_eq!(LayoutHeader::from_json(&written).expect("what was written"), header);
        }
        Err(error) => {
            assert!(error.kind() != ErrorKind::Internal, "internal error: {error}");
            assert!(!error.message().trim().is_empty(), "an error without a message");
        }
    }
}
