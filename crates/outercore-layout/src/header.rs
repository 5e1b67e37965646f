//! The JSON that describes a layout.

use outercore_core::{Error, ErrorKind, Result};
use outercore_store::dataset::ArrayRef;
use serde::{Deserialize, Serialize};

use crate::Precision;
use crate::order::Order;

/// The version of layouts that this build writes and reads.
pub const LAYOUT_VERSION: u32 = 1;

const FORMAT: &str = "outercore-layout";

/// Content of a layout's header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutHeader {
    /// Always `outercore-layout`.
    pub format: String,
    /// The version of the layout; it differs from the version of the data set.
    pub version: u32,
    /// Key of the copied array.
    pub array: String,
    /// Checksum of the copied array. If the array's checksum differs, the layout is stale.
    pub checksum: String,
    /// Precision of the rows.
    pub precision: Precision,
    /// Order of the rows.
    pub order: Order,
    /// Checksums of the arrays from which order and scales were computed: the array for `int8`,
    /// offsets and sources for an order.
    pub made_of: Vec<String>,
}

impl LayoutHeader {
    /// A header of this version.
    pub(crate) fn new(
        array: &ArrayRef,
        precision: Precision,
        order: Order,
        made_of: Vec<String>,
    ) -> Self {
        Self {
            format: FORMAT.into(),
            version: LAYOUT_VERSION,
            array: array.key.clone(),
            checksum: array.checksum.clone(),
            precision,
            order,
            made_of,
        }
    }

    /// The JSON of the header.
    pub(crate) fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self).map_err(|error| Error::internal(error.to_string()))
    }

    /// Parses a header.
    ///
    /// # Errors
    /// `Version`: the header has another version. `Corrupt`: the bytes are not a header.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Preamble {
            format: String,
            version: u32,
        }
        let corrupt = |error: serde_json::Error| Error::corrupt(error.to_string());
        let Preamble { format, version } = serde_json::from_slice(json).map_err(corrupt)?;
        if format != FORMAT {
            return Err(Error::corrupt(format!("format `{format}`, expected `{FORMAT}`")));
        }
        if version != LAYOUT_VERSION {
            let text = format!("version {version}, this release reads {LAYOUT_VERSION}");
            return Err(Error::new(ErrorKind::Version, text));
        }
        serde_json::from_slice(json).map_err(corrupt)
    }
}
