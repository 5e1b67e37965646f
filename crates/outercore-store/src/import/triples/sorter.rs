//! External sort: sorts more items than fit in memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use outercore_core::{Bytes, Context, Error, ErrorKind, Result};
use outercore_io::{Disk, WriteFile};

/// Sorts items within `memory` bytes. Items beyond that go to a file in sorted runs.
///
/// **Cost** Every item is written and read once; not at all if everything fits.
pub(crate) struct Sorter<'a, T> {
    disk: &'a dyn Disk,
    path: PathBuf,
    items: Vec<T>,
    /// Number of items in a run.
    limit: usize,
    /// Smallest useful size of a buffer, in bytes.
    smallest_buffer: usize,
    file: Option<Box<dyn WriteFile>>,
    runs: u64,
}

impl<'a, T: Pod + Ord> Sorter<'a, T> {
    /// A sorter whose runs go to `path`.
    pub fn new(disk: &'a dyn Disk, path: &Path, memory: usize, smallest_buffer: usize) -> Self {
        let limit = (memory / size_of::<T>()).max(1);
        let path = path.to_owned();
        Self { disk, path, items: Vec::new(), limit, smallest_buffer, file: None, runs: 0 }
    }

    /// Adds an item.
    pub fn push(&mut self, item: T) -> Result<()> {
        if self.items.len() == self.limit {
            self.spill()?;
        }
        if self.items.len() == self.items.capacity() {
            // Reserve no more than the limit: a vector that doubles would exceed it.
            let room = self.limit - self.items.len();
            self.items.reserve_exact(self.items.len().max(1 << 10).min(room));
        }
        self.items.push(item);
        Ok(())
    }

    fn spill(&mut self) -> Result<()> {
        self.items.sort_unstable();
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(self.disk.create(&self.path)?),
        };
        file.write_all(bytemuck::cast_slice(&self.items))?;
        self.items.clear();
        self.runs += 1;
        Ok(())
    }

    /// Calls `take` with all items in order, and removes the file.
    ///
    /// # Errors
    /// `Budget`: so many runs that the buffer of each would be too small. Errors of `take`.
    pub fn finish(mut self, take: &mut dyn FnMut(T) -> Result<()>) -> Result<()> {
        if self.file.is_none() {
            self.items.sort_unstable();
            return self.items.drain(..).try_for_each(take);
        }
        let last = self.items.len() as u64;
        self.spill()?;
        drop(std::mem::take(&mut self.items));
        self.file = None;
        let block = self.limit / self.runs as usize;
        if block * size_of::<T>() < self.smallest_buffer {
            let least = Bytes(self.runs * self.smallest_buffer as u64 * 4);
            return Err(Error::new(
                ErrorKind::Budget,
                format!("sorting {} runs needs about {least} of memory", self.runs),
            )
            .hint(crate::import::options::least_memory((least.0 >> 20) + 1)));
        }
        self.merge(last, block.max(1) as u64, take)?;
        self.disk.remove_file(&self.path)
    }

    fn merge(&self, last: u64, block: u64, take: &mut dyn FnMut(T) -> Result<()>) -> Result<()> {
        let place = || format!("sorted runs `{}`", self.path.display());
        let file = File::open(&self.path).with_context(place)?;
        let limit = self.limit as u64;
        let mut runs: Vec<Run<T>> = (0..self.runs)
            .map(|run| Run {
                at: run * limit,
                end: run * limit + if run + 1 == self.runs { last } else { limit },
                items: Vec::new(),
                next: 0,
            })
            .collect();
        let mut heap = BinaryHeap::with_capacity(runs.len());
        for (index, run) in runs.iter_mut().enumerate() {
            heap.extend(run.next(&file, block).with_context(place)?.map(|i| Reverse((i, index))));
        }
        while let Some(Reverse((item, index))) = heap.pop() {
            take(item)?;
            let next = runs[index].next(&file, block).with_context(place)?;
            heap.extend(next.map(|item| Reverse((item, index))));
        }
        Ok(())
    }
}

/// The read position in a run, in items.
struct Run<T> {
    at: u64,
    end: u64,
    items: Vec<T>,
    next: usize,
}

impl<T: Pod> Run<T> {
    fn next(&mut self, file: &File, block: u64) -> Result<Option<T>> {
        if self.next == self.items.len() {
            let count = (self.end - self.at).min(block);
            self.items.resize(count as usize, T::zeroed());
            let offset = self.at * size_of::<T>() as u64;
            file.read_exact_at(bytemuck::cast_slice_mut(&mut self.items), offset)?;
            self.at += count;
            self.next = 0;
        }
        self.next += 1;
        Ok(self.items.get(self.next - 1).copied())
    }
}

#[cfg(test)]
mod tests {
    use outercore_core::Stream;
    use outercore_io::RealDisk;

    use super::*;

    #[test]
    fn items_come_out_sorted_in_any_memory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sorter");
        let mut draws = Stream::new(5, 0).uniform(0, 0, 0);
        let items: Vec<u128> = (0..1000).map(|_| u128::from(draws.below(300)) << 70).collect();
        let mut expected = items.clone();
        expected.sort_unstable();
        for memory in [1, 16, 100, 1600, 15_984, 16_000, 16_016, 1 << 20] {
            let mut sorter = Sorter::new(&RealDisk, &path, memory, 0);
            items.iter().try_for_each(|item| sorter.push(*item)).unwrap();
            let mut found = Vec::new();
            let mut take = |item| {
                found.push(item);
                Ok(())
            };
            let result = sorter.finish(&mut take);
            result.unwrap();
            assert!(found == expected, "memory {memory}");
            assert!(!path.exists());
        }
    }

    #[test]
    fn too_many_runs_for_the_memory_are_refused_with_the_least() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sorter");
        let mut sorter = Sorter::new(&RealDisk, &path, 80, 4096);
        (0..100u64).try_for_each(|item| sorter.push(item)).unwrap();
        let error = sorter.finish(&mut |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Budget);
        assert!(error.to_string().contains("`memory="), "{error}");
    }
}
