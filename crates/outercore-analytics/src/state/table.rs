//! A value for each partition.

use std::collections::BTreeMap;
use std::sync::Arc;

use outercore_core::{Error, Result};

use super::parts::Parts;
use super::spill::Spill;
use super::stored::{PAGE, Stored};
use crate::program::Passes;

/// A value for each partition: in memory, or in a scratch file.
pub enum Table<T> {
    /// In memory.
    Here(Vec<T>),
    /// In a scratch file.
    Away(Away<T>),
}

/// Values in a scratch file; each value has one or two places.
pub struct Away<T> {
    spill: Arc<Spill>,
    file: usize,
    /// An empty value of the same kind.
    like: T,
    lens: Vec<usize>,
    /// Start of each value in its first place.
    starts: Vec<u64>,
    /// Bytes of all first places.
    bytes: u64,
    places: usize,
    /// By partition: the place of the valid value, and the checksums in all places.
    counts: Vec<(usize, [u64; 2])>,
    /// Partitions written to their other places, which are not valid yet.
    written: Vec<usize>,
}

impl<T: Stored> Table<T> {
    /// A table with the values of `make`; in scratch files if the run has them. With two `places`,
    /// new values can be written while the old ones are read.
    pub(crate) fn build<R: Passes>(
        run: &mut R,
        places: usize,
        mut make: impl FnMut(&mut R, usize) -> Result<T>,
    ) -> Result<Self> {
        let partitions = run.shape().partitions();
        let Some(spill) = run.spill() else {
            return Ok(Self::Here(
                (0..partitions).map(|part| make(run, part)).collect::<Result<_>>()?,
            ));
        };
        let first = make(run, 0)?;
        let mut table = Away::new(run, spill, places, &first)?;
        table.store(0, &first)?;
        drop(first);
        for partition in 1..partitions {
            let value = make(run, partition)?;
            table.store(partition, &value)?;
        }
        table.settle();
        Ok(Self::Away(table))
    }

    /// Values of the same kind as `like`, to be written before they are read.
    pub(crate) fn blank<R: Passes>(run: &mut R, like: &T) -> Result<Self> {
        let lens = lens(run);
        match run.spill() {
            None => Ok(Self::Here(lens.into_iter().map(|len| like.like(len)).collect())),
            Some(spill) => Ok(Self::Away(Away::new(run, spill, 1, like)?)),
        }
    }

    /// Converts the table to a result: `values` converts each partition's value.
    pub(crate) fn into_parts<X>(self, values: impl Fn(T) -> Vec<X> + 'static) -> Parts<X>
    where
        T: 'static,
    {
        match self {
            Self::Here(parts) => Parts::Here(parts.into_iter().map(values).collect()),
            Self::Away(table) => {
                Parts::Away(Box::new(move |partition| table.load(partition).map(&values)))
            }
        }
    }

    /// The values of a run without scratch files.
    pub(crate) fn into_here(self) -> Result<Vec<T>> {
        match self {
            Self::Here(values) => Ok(values),
            Self::Away(_) => Err(Error::internal("state that has to be in memory is not")),
        }
    }

    /// The value of a partition, which is not needed again.
    pub(crate) fn take(&mut self, partition: usize) -> Result<T>
    where
        T: Default,
    {
        match self {
            Self::Here(values) => Ok(std::mem::take(&mut values[partition])),
            Self::Away(table) => table.load(partition),
        }
    }

    /// Calls `each` with the value of a partition.
    pub(crate) fn with<T2>(
        &mut self,
        partition: usize,
        each: impl FnOnce(&T) -> Result<T2>,
    ) -> Result<T2> {
        match self {
            Self::Here(values) => each(&values[partition]),
            Self::Away(table) => each(&table.load(partition)?),
        }
    }

    /// Calls `each` for every partition's value, one after the other, and stores its changes if it
    /// returns true.
    pub(crate) fn each(
        &mut self,
        mut each: impl FnMut(usize, &mut T) -> Result<bool>,
    ) -> Result<()> {
        match self {
            Self::Here(values) => {
                for (partition, value) in values.iter_mut().enumerate() {
                    each(partition, value)?;
                }
            }
            Self::Away(table) => {
                for partition in 0..table.lens.len() {
                    let mut value = table.load(partition)?;
                    if each(partition, &mut value)? {
                        table.store(partition, &value)?;
                    }
                }
                table.settle();
            }
        }
        Ok(())
    }
}

impl Table<()> {
    /// A table of empty values.
    pub(crate) fn nothing<R: Passes>(run: &mut R) -> Result<Self> {
        Self::build(run, 1, |_, _| Ok(()))
    }
}

impl<T: Stored> Away<T> {
    fn new<R: Passes>(run: &mut R, spill: Arc<Spill>, places: usize, like: &T) -> Result<Self> {
        let lens = lens(run);
        // There are at most two different lengths.
        let mut moved: BTreeMap<usize, u64> = BTreeMap::new();
        let mut starts = Vec::with_capacity(lens.len());
        let mut bytes = 0;
        for &len in &lens {
            starts.push(bytes);
            let moved = moved.entry(len).or_insert_with(|| {
                let value = like.like(len);
                let bytes: u64 = value.columns().iter().map(|column| column.len() as u64).sum();
                bytes.next_multiple_of(PAGE)
            });
            bytes += *moved;
        }
        Ok(Self {
            file: spill.file(bytes * places as u64)?,
            like: like.like(0),
            counts: vec![(0, [0; 2]); lens.len()],
            written: Vec::new(),
            spill,
            lens,
            starts,
            bytes,
            places,
        })
    }

    pub(super) fn blank(&self, partition: usize) -> T {
        self.like.like(self.lens[partition])
    }

    /// Reads the valid value.
    pub(super) fn load(&self, partition: usize) -> Result<T> {
        let mut value = self.blank(partition);
        let (place, sums) = self.counts[partition];
        let offset = self.starts[partition] + place as u64 * self.bytes;
        self.spill.read(self.file, offset, sums[place], &mut value)?;
        value.restored(partition);
        Ok(value)
    }

    /// Writes a value; with two places, it becomes valid in [`Away::settle`].
    pub(super) fn store(&mut self, partition: usize, value: &T) -> Result<()> {
        let (place, sums) = &mut self.counts[partition];
        let next = (*place + 1) % self.places;
        let offset = self.starts[partition] + next as u64 * self.bytes;
        sums[next] = self.spill.write(self.file, offset, value)?;
        self.written.push(partition);
        Ok(())
    }

    /// Makes the written values valid.
    pub(super) fn settle(&mut self) {
        for partition in self.written.drain(..) {
            let place = &mut self.counts[partition].0;
            *place = (*place + 1) % self.places;
        }
    }
}

impl<T> Drop for Away<T> {
    fn drop(&mut self) {
        self.spill.empty(self.file);
    }
}

fn lens<R: Passes>(run: &R) -> Vec<usize> {
    let shape = run.shape();
    (0..shape.partitions()).map(|partition| shape.partition_len(partition)).collect()
}
