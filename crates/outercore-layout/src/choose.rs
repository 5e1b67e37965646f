//! Chooses the layout that a server reads.

use outercore_core::{Bytes, Error, ErrorKind, Result};
use outercore_store::dataset::DataSet;

use crate::open::{Layout, command};
use crate::{Places, Precision};

/// Without an explicit choice, the table of places may take one part in this many of the budget.
const PLACES_SHARE: u64 = 4;

/// The layout to read instead of an array, or the reason not to use it.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    /// The layout; `None` to read the array itself.
    pub layout: Option<Layout>,
    /// Why an existing layout is not used; for the operator.
    pub notice: Option<String>,
}

/// Chooses the layout that requests read for the array `key`.
///
/// [`Precision::Exact`] chooses a layout in another order, if one exists. It does not use a stale
/// layout, or one whose table of places takes more than a quarter of `memory`. [`Precision::Int8`]
/// always chooses the `int8` layout.
///
/// # Errors
/// `NotFound`: no such array, or no `int8` layout. `Invalid`: the `int8` layout is stale.
/// `Corrupt`, `Version` as [`Layout::open`].
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
