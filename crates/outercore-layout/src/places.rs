//! The table that maps each node to the place of its row.

use outercore_core::{Bytes, Context, Error, Result};
use outercore_format::DType;
use outercore_store::dataset::{ArrayRef, DataSet};

/// The place of each node's row in a layout: a table in memory.
///
/// **Source** GLIST 4.2, the property mapping table of GL-TL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// For at most 2^32 rows.
    Narrow(Vec<u32>),
    /// For more than 2^32 rows.
    Wide(Vec<u64>),
}

impl Places {
    /// The type in which the places of this number of rows are stored.
    pub const fn dtype(rows: u64) -> DType {
        if rows <= 1 << 32 { DType::U32 } else { DType::U64 }
    }

    /// Memory of the table for this number of rows.
    pub const fn memory_of(rows: u64) -> Bytes {
        Bytes(rows * Self::dtype(rows).size() as u64)
    }

    /// Reads the table.
    ///
    /// # Errors
    /// `Corrupt`: the bytes differ from the written ones, or a place is out of range. `Budget`;
    /// failed reads.
    pub(crate) fn load(data_set: &DataSet, array: &ArrayRef) -> Result<Self> {
        let bytes = data_set.read_array(&array.key)?;
        let rows = array.rows();
        let places = match array.dtype {
            DType::U32 => Self::Narrow(bytemuck::pod_collect_to_vec(&bytes)),
            _ => Self::Wide(bytemuck::pod_collect_to_vec(&bytes)),
        };
        let wrong = places.iter().enumerate().find(|(_, place)| *place >= rows);
        match wrong {
            None => Ok(places),
            Some((node, place)) => Err(Error::corrupt(format!(
                "node {node}: place {place}, expected a place below {rows}"
            )))
            .with_context(|| format!("array `{}`", array.key)),
        }
    }

    /// The place of a node's row.
    ///
    /// # Panics
    /// If the node does not exist.
    #[inline]
    pub fn of(&self, node: u64) -> u64 {
        match self {
            Self::Narrow(places) => places[node as usize].into(),
            Self::Wide(places) => places[node as usize],
        }
    }

    /// The places by node.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let (narrow, wide): (&[u32], &[u64]) = match self {
            Self::Narrow(places) => (places, &[]),
            Self::Wide(places) => (&[], places),
        };
        narrow.iter().map(|&place| place.into()).chain(wide.iter().copied())
    }

    /// The node of each place.
    ///
    /// # Errors
    /// `Corrupt`: two nodes have the same place.
    pub(crate) fn inverse(&self) -> Result<Self> {
        match self {
            Self::Narrow(places) => inverse(places, u32::MAX).map(Self::Narrow),
            Self::Wide(places) => inverse(places, u64::MAX).map(Self::Wide),
        }
    }

    /// Memory of the table.
    pub fn memory(&self) -> Bytes {
        match self {
            Self::Narrow(places) => Bytes(size_of_val(&places[..]) as u64),
            Self::Wide(places) => Bytes(size_of_val(&places[..]) as u64),
        }
    }
}

/// The index of each value below the length; `free` marks a value without an index.
fn inverse<I>(values: &[I], free: I) -> Result<Vec<I>>
where
    I: Copy + PartialEq + Into<u64> + TryFrom<u64> + std::fmt::Display,
{
    let mut indices = vec![free; values.len()];
    for (index, &value) in (0u64..).zip(values) {
        let at = &mut indices[value.into() as usize];
        if *at != free {
            return Err(Error::corrupt(format!("nodes {at} and {index} have place {value}")));
        }
        *at = I::try_from(index).map_err(|_| Error::corrupt(format!("{index} nodes")))?;
    }
    Ok(indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_either_width_is_turned_around_or_refused() {
        let narrow = Places::Narrow(vec![2, 0, 1]);
        let wide = Places::Wide(vec![2, 0, 1]);
        assert_eq!(narrow.inverse().unwrap(), Places::Narrow(vec![1, 2, 0]));
        assert_eq!(wide.inverse().unwrap(), Places::Wide(vec![1, 2, 0]));
        assert_eq!([narrow.of(0), wide.of(0)], [2, 2]);
        assert_eq!([narrow.memory(), wide.memory()], [Bytes(12), Bytes(24)]);
        for twice in [Places::Narrow(vec![1, 1]), Places::Wide(vec![1, 1])] {
            let error = twice.inverse().unwrap_err().to_string();
            assert!(error.contains("nodes 0 and 1 have place 1"), "{error}");
        }
    }

    #[test]
    fn places_are_as_wide_as_the_number_of_rows_asks_for() {
        assert_eq!(Places::dtype(1 << 32), DType::U32);
        assert_eq!(Places::dtype((1 << 32) + 1), DType::U64);
        assert_eq!(Places::memory_of(1000), Bytes(4000));
    }
}
