//! A result, partition by partition.

use std::fmt;

use outercore_core::Result;

/// Values by partition and local id: in memory, or brought as they are wanted.
pub enum Parts<T> {
    /// In memory.
    Here(Vec<Vec<T>>),
    /// `bring(partition)`, as often as wanted.
    Away(Box<dyn FnMut(usize) -> Result<Vec<T>>>),
}

impl<T: Clone> Parts<T> {
    /// The values in memory; none where they are elsewhere.
    pub fn here(&self) -> &[Vec<T>] {
        match self {
            Self::Here(values) => values,
            Self::Away(_) => &[],
        }
    }

    /// The values of a partition; `last`: they are not wanted again.
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
