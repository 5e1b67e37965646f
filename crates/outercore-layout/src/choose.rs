//! Which layout a server reads.

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_store::dataset::DataSet;

use crate::open::{Layout, command};
use crate::{Places, Precision};

/// Part of a budget that the table of places may take unasked.
const PLACES_SHARE: u64 = 4;

/// What to read instead of an array, or the reason not to.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// The layout; `None` for the array itself.
    pub layout: Option<Layout>,
    /// Why a layout that is there is not used; for the operator.
    pub notice: Option<String>,
}

/// Chooses what requests read for the array `key`.
///
/// With [`Precision::Exact`] that is a layout in another order where there is one. A stale one, and
/// one whose table of places takes more than a quarter of `memory`, is not used. With
/// [`Precision::Int8`] it is the `int8` layout.
///
/// # Errors
/// `NotFound`: no such array, or no `int8` layout. `Invalid`: the `int8` layout is stale. `Corrupt`,
/// `Version` as [`Layout::open`].
pub fn choose(
    data_set: &DataSet,
    key: &str,
    precision: Precision,
    memory: Bytes,
) -> Result<Chosen> {
    match (Layout::open(data_set, key, precision), precision) {
        (Ok(None), Precision::Exact) => Ok(Chosen::default()),
        (Ok(None), Precision::Int8) => {
            let text = format!("array `{key}` has no int8 layout");
            Err(Error::new(ErrorKind::NotFound, text)
                .hint(format!("build it: {}", command(data_set, key, precision))))
        }
        (Ok(Some(layout)), Precision::Exact)
            if layout.places_memory().0 > memory.0 / PLACES_SHARE =>
        {
            let needed = Places::memory_of(layout.rows().rows());
            let notice = format!(
                "the layout of `{key}` is not used: its table takes {needed}, more than a quarter \
                 of the memory"
            );
            Ok(Chosen { layout: None, notice: Some(notice) })
        }
        (Ok(layout), _) => Ok(Chosen { layout, notice: None }),
        (Err(error), Precision::Exact) if error.kind() == ErrorKind::Invalid => {
            Ok(Chosen { layout: None, notice: Some(error.to_string()) })
        }
        (Err(error), _) => Err(error),
    }
}
