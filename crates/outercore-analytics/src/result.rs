//! A result of any type, converted to the order of node ids.

use std::path::Path;

use outercore_core::{Bytes, Result};

use crate::output::{NodeValue, Raw, Values, deliver, deliver_file};
use crate::program::Passes;
use crate::teleport::Teleport;

/// A result of any type, in the numbering of the grid.
#[derive(Debug)]
pub(crate) enum AnyRaw {
    I32(Raw<i32>),
    I64(Raw<i64>),
    F64(Raw<f64>),
}

impl From<Raw<i32>> for AnyRaw {
    fn from(raw: Raw<i32>) -> Self {
        Self::I32(raw)
    }
}

impl From<Raw<i64>> for AnyRaw {
    fn from(raw: Raw<i64>) -> Self {
        Self::I64(raw)
    }
}

impl From<Raw<f64>> for AnyRaw {
    fn from(raw: Raw<f64>) -> Self {
        Self::F64(raw)
    }
}

/// A result by node id, and additional facts about it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) values: Values,
    pub(crate) facts: serde_json::Map<String, serde_json::Value>,
}

impl AnyRaw {
    /// Converts the result to the order of node ids, into memory or, if requested, into a file in a
    /// directory, some bytes at a time. The nodes `zeros` get the value 0.
    ///
    /// # Errors
    /// Errors of reading the result and the grid's order, and of writing the file.
    pub(crate) fn deliver<R: Passes>(
        self,
        run: &mut R,
        zeros: &[u64],
        teleport: &Teleport,
        file: Option<(&Path, Bytes)>,
    ) -> Result<Found> {
        match self {
            Self::I32(raw) => typed(run, raw, teleport, zeros, file),
            Self::I64(raw) => typed(run, raw, teleport, zeros, file),
            Self::F64(raw) => typed(run, raw, teleport, zeros, file),
        }
    }
}

fn typed<T: NodeValue, R: Passes>(
    run: &mut R,
    mut raw: Raw<T>,
    teleport: &Teleport,
    zeros: &[u64],
    file: Option<(&Path, Bytes)>,
) -> Result<Found> {
    let facts = std::mem::take(&mut raw.facts);
    let of = |node| teleport.of(node);
    if let Some((directory, window)) = file {
        let file = deliver_file(run, raw, &of, (zeros, T::default()), directory, window)?;
        return Ok(Found { values: Values::File(file), facts });
    }
    let mut values = deliver(run, raw, &of)?;
    for &node in zeros {
        if let Some(place) = values.get_mut(node as usize) {
            *place = T::default();
        }
    }
    Ok(Found { values: T::wrap(values), facts })
}
