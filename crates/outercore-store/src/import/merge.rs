use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use outercore_core::{Context, Error, Result, hint};
use outercore_io::Disk;

use super::arc::Arc;

/// A range of arcs in a file.
pub(crate) struct Extent<'a> {
    pub path: &'a Path,
    /// First arc.
    pub start: u64,
    pub arcs: u64,
}

/// Sorts a bucket that does not fit in memory. Sorted runs of `memory` bytes are written to the
/// file `runs` and then merged.
///
/// Such a bucket has a few nodes with an enormous in-degree.
pub(crate) fn merge_sort<A: Arc>(
    disk: &dyn Disk,
    bucket: &Extent<'_>,
    runs: &Path,
    memory: usize,
    take: &mut dyn FnMut(A) -> Result<()>,
) -> Result<()> {
    let run_arcs = (memory / size_of::<A>()).max(1) as u64;
    let end = bucket.start + bucket.arcs;
    let from = open(bucket.path)?;
    let mut to = disk.create(runs)?;
    let mut arcs: Vec<A> = Vec::new();
    for start in (bucket.start..end).step_by(run_arcs as usize) {
        read_arcs(&from, bucket.path, start, (end - start).min(run_arcs) as usize, &mut arcs)?;
        arcs.sort_unstable();
        to.write_all(bytemuck::cast_slice(&arcs))?;
    }
    drop((to, arcs));

    let file = open(runs)?;
    let count = bucket.arcs.div_ceil(run_arcs);
    let block = (run_arcs / count.max(1)).max(64);
    let mut cursors: Vec<Run<A>> = (0..count)
        .map(|run| Run {
            at: run * run_arcs,
            end: ((run + 1) * run_arcs).min(bucket.arcs),
            block,
            arcs: Vec::new(),
            next: 0,
        })
        .collect();
    let mut heap = BinaryHeap::with_capacity(cursors.len());
    for (run, cursor) in cursors.iter_mut().enumerate() {
        heap.extend(cursor.next(&file, runs)?.map(|arc| Reverse((arc, run))));
    }
    while let Some(Reverse((arc, run))) = heap.pop() {
        take(arc)?;
        heap.extend(cursors[run].next(&file, runs)?.map(|arc| Reverse((arc, run))));
    }
    disk.remove_file(runs)
}

struct Run<A> {
    /// Position of the next arc to read from the file.
    at: u64,
    end: u64,
    block: u64,
    arcs: Vec<A>,
    next: usize,
}

impl<A: Arc> Run<A> {
    fn next(&mut self, file: &File, path: &Path) -> Result<Option<A>> {
        if self.next == self.arcs.len() {
            let count = (self.end - self.at).min(self.block);
            read_arcs(file, path, self.at, count as usize, &mut self.arcs)?;
            self.at += count;
            self.next = 0;
        }
        self.next += 1;
        Ok(self.arcs.get(self.next - 1).copied())
    }
}

/// Opens a file of arcs.
pub(crate) fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("open `{}`", path.display()))
}

/// Replaces `arcs` by `count` arcs of the file, starting at arc `start`.
pub(crate) fn read_arcs<A: Arc>(
    file: &File,
    path: &Path,
    start: u64,
    count: usize,
    arcs: &mut Vec<A>,
) -> Result<()> {
    // Reserve the exact size: a vector that doubles would exceed the memory that buckets are
    // planned for.
    arcs.clear();
    arcs.reserve_exact(count);
    arcs.resize(count, A::zeroed());
    file.read_exact_at(bytemuck::cast_slice_mut(arcs), start * size_of::<A>() as u64).map_err(
        |source| {
            Error::from(source)
                .context(format!("read {count} arcs at {start} of `{}`", path.display()))
                .hint(hint!("start the import again with " {overwrite = true}))
        },
    )
}

#[cfg(test)]
mod tests {
    use outercore_core::Stream;
    use outercore_io::RealDisk;

    use super::super::arc::{Narrow, Wide};
    use super::*;

    fn check<A: Arc + std::fmt::Debug>() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("arcs");
        let mut draws = Stream::new(3, 0).uniform(0, 0, 0);
        let arcs: Vec<A> =
            (0..5000).map(|id| A::new(7 + draws.below(2), draws.below(50), id)).collect();
        std::fs::write(&path, bytemuck::cast_slice(&arcs)).unwrap();
        let mut expected = arcs[10..4990].to_vec();
        expected.sort_unstable();
        for memory in [1 << 20, 64 << 10, 5000, 1000] {
            let mut found = Vec::new();
            let bucket = Extent { path: &path, start: 10, arcs: 4980 };
            let runs = directory.path().join("runs");
            merge_sort::<A>(&RealDisk, &bucket, &runs, memory, &mut |arc| {
                found.push(arc);
                Ok(())
            })
            .unwrap();
            assert_eq!(found, expected, "memory {memory}");
            assert!(!runs.exists());
        }
    }

    #[test]
    fn arcs_of_both_widths_are_sorted_in_any_memory() {
        check::<Narrow>();
        check::<Wide>();
    }
}
