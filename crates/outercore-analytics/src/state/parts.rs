//! A result, partition by partition.

use std::fmt;

use outercore_core::Result;

/// Values by partition and local id: in memory, or loaded when needed.
pub enum Parts<T> {
    /// In memory.
    Here(Vec<Vec<T>>),
    /// Loaded by `bring(partition)`, as often as needed.
    Away(Box<dyn FnMut(usize) -> Result<Vec<T>>>),
}

impl<T: Clone> Parts<T> {
    /// The values in memory; empty if they are not in memory.
    pub fn here(&self) -> &[Vec<T>] {
        match self {
            Self::Here(values) => values,
            Self::Away(_) => &[],
        }
    }

    /// The values of a partition; `last` means that they are not needed again.
    ///
    /// # Errors
    /// A failed or corrupt read of scratch files.
    pub fn take(&mut self, partition: usize, last: bool) -> Result<Vec<T>> {
        match self {
            Self::Here(values) if last => Ok(std::mem::take(&mut values[partition])),
            Self::Here(values) => Ok(values[partition].clone()),
            Self::Away(bring) => bring(partition),
        }
    }
}

impl<T> fmt::Debug for Parts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(values) => write!(f, "Parts(of {} partitions)", values.len()),
            Self::Away(_) => write!(f, "Parts(away)"),
        }
    }
}
