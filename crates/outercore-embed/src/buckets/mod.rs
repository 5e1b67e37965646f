//! Triples sorted by the partitions of head and tail, on disk or in memory.

mod ahead;
mod build;
mod counts;
mod file;
mod graph;
mod held_out;
mod progress;
mod source;
mod weights;

use std::ops::Range;
use std::path::{Path, PathBuf};

use bytemuck::{AnyBitPattern, NoUninit};
use outercore_core::{Bytes, Context, Error, ReadCounters, Result};
use outercore_io::{CostModel, Engine, EngineConfig, FileId, plan_range};

use crate::order::Bucket;
use crate::step::Step;
use crate::walk::{Share, Visit, Walks};

pub use ahead::PoolReader;
pub use build::build_buckets;
use file::{Entry, Header, Places, mix};

pub use counts::{BucketCounts, Pools, READ_TOGETHER};
pub use file::Source;
pub use graph::{GraphLinks, GraphTriples, LinkReader};
pub use held_out::{HeldOut, TriplePart};
pub use progress::{OnProgress, Pass};
pub use source::{
    ArrayTripleReader, ArrayTriples, MemoryTriples, OnTriples, PartTriples, TripleReader, Triples,
};

const DAMAGED: &str = "go on from a copy of the file, or train again";

/// A part of a bucket, and the place of its triples in a pool.
struct Part {
    index: usize,
    share: Share,
    start: usize,
}

/// A pool of triples to train, in the order of their buckets. Entities are row numbers in the
/// memory of the slots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TriplePool {
    /// Row of the head, relation, row of the tail.
    pub triples: Vec<[u32; 3]>,
    /// One weight per triple, or empty.
    pub weights: Vec<f32>,
}

/// Reads a file of buckets from [`build_buckets`].
///
/// **Memory**: the engine's staging, 24 bytes per bucket, and all triples after
/// [`Buckets::keep_all`].
pub struct Buckets {
    path: PathBuf,
    header: Header,
    entries: Vec<Entry>,
    engine: Engine,
    file: FileId,
    all: Option<TriplePool>,
    /// Buffer for whole buckets of which a pool takes parts.
    whole: TriplePool,
}

impl Buckets {
    /// Opens the file at `path`; `engine` configures the reads.
    ///
    /// # Errors
    /// `NotFound`; `Version`; `Corrupt`.
    pub fn open(path: &Path, engine: EngineConfig) -> Result<Self> {
        let describe = || format!("buckets `{}`", path.display());
        let (header, entries) =
            Header::load(path).with_context(describe).map_err(|error| error.hint(DAMAGED))?;
        let mut engine = Engine::open(engine)?;
        let file = engine.register(path)?;
        Ok(Self {
            path: path.to_owned(),
            header,
            entries,
            engine,
            file,
            all: None,
            whole: TriplePool::default(),
        })
    }

    /// The source that the buckets were made from.
    pub fn made_from(&self) -> &Source {
        &self.header.source
    }

    /// Number of triples.
    pub fn triples(&self) -> u64 {
        self.header.triples
    }

    /// Whether triples have weights.
    pub fn weighted(&self) -> bool {
        self.header.weighted
    }

    /// Number of triples in a bucket; 0 for an unknown bucket.
    pub fn count(&self, bucket: Bucket) -> u64 {
        self.index(bucket).map_or(0, |index| self.entries[index].count)
    }

    /// Number of triples in every bucket, for plans.
    pub fn counts(&self) -> BucketCounts {
        let triples = self.entries.iter().map(|entry| entry.count).collect();
        BucketCounts::of_table(self.header.source.partitioning.partitions(), triples)
    }

    /// Memory, in triples, for any pool of any epoch, and for buckets that are read whole because a
    /// pool takes a part of them.
    pub fn largest_pool(&self, walks: &Walks) -> Pools {
        self.counts().pools(walks)
    }

    /// Cost of all reads so far.
    pub fn counters(&self) -> ReadCounters {
        self.engine.counters()
    }

    /// Reads all triples and keeps them in memory.
    ///
    /// # Errors
    /// As [`Buckets::read`].
    pub fn keep_all(&mut self) -> Result<()> {
        let mut all = TriplePool::default();
        self.reserve(&mut all, self.header.triples);
        let starts = self.entries.iter().map(|entry| entry.start as usize);
        let wanted: Vec<(usize, usize)> = starts.enumerate().collect();
        self.read_whole(&wanted, &mut all)?;
        self.all = Some(all);
        Ok(())
    }

    /// Degree of every node: how often it is a head or a tail. The nodes of a partition follow each
    /// other.
    ///
    /// **Cost**: one pass over the triples; 4 bytes per node.
    ///
    /// # Errors
    /// As [`Buckets::read`]; errors of `on_progress`.
    pub fn degrees(&mut self, on_progress: OnProgress<'_>) -> Result<Vec<u32>> {
        let mut pass = Pass::begin("count degrees", self.triples(), on_progress)?;
        let dealt = self.header.source.partitioning;
        let partitions = dealt.partitions();
        let firsts: Vec<u64> = (0..partitions)
            .scan(0, |next, partition| {
                let first = *next;
                *next += dealt.rows(partition);
                Some(first)
            })
            .collect();
        let mut degrees = vec![0u32; dealt.nodes() as usize];
        let mut pool = TriplePool::default();
        for index in 0..self.entries.len() {
            self.reserve(&mut pool, self.entries[index].count);
            self.read_whole(&[(index, 0)], &mut pool)?;
            let [head, tail] = [index / partitions, index % partitions].map(|p| firsts[p]);
            for &[source, _, target] in &pool.triples {
                degrees[(head + u64::from(source)) as usize] += 1;
                degrees[(tail + u64::from(target)) as usize] += 1;
            }
            pass.add(pool.triples.len() as u64)?;
        }
        Ok(degrees)
    }

    /// Fills `pool` with the triples of a step, as row numbers in the memory of the slots; a slot
    /// has `slot_rows` rows.
    ///
    /// **Cost**: one sequential read per bucket. If the step trains a part of a bucket, the whole
    /// bucket is read, and small buckets are read together. No read if the triples are kept in
    /// memory.
    ///
    /// # Errors
    /// `Invalid`: a bucket whose partitions are not in the step. `Corrupt`: the checksum does not
    /// match. A failed read.
    pub fn read(&mut self, step: &Step, slot_rows: u64, pool: &mut TriplePool) -> Result<()> {
        self.fill(&step.visits().collect::<Vec<_>>(), pool)?;
        self.put(step, slot_rows, pool)
    }

    /// Fills `pool` with the triples of buckets or parts of them, as row numbers in their
    /// partitions.
    fn fill(&mut self, visits: &[Visit], pool: &mut TriplePool) -> Result<()> {
        let total = visits.iter().map(|&(bucket, share)| share.count(self.count(bucket))).sum();
        self.reserve(pool, total);
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        let mut start = 0;
        for &(bucket, share) in visits {
            let Some(index) = self.index(bucket) else {
                return Err(Error::invalid(format!("there is no {bucket:?}")));
            };
            if share.of == 1 {
                whole.push((index, start));
            } else {
                parts.push(Part { index, share, start });
            }
            start += share.count(self.entries[index].count) as usize;
        }
        self.read_whole(&whole, pool)?;
        self.read_parts(parts, pool)
    }

    /// Converts the rows from [`Buckets::fill`] to row numbers in the memory of the slots.
    fn put(&self, step: &Step, slot_rows: u64, pool: &mut TriplePool) -> Result<()> {
        let first_row = |partition| {
            let found = step.resident.iter().find(|resident| resident.partition == partition);
            found.map(|resident| (resident.slot as u64 * slot_rows) as u32).ok_or_else(|| {
                Error::invalid(format!("partition {partition} is not in memory in this step"))
            })
        };
        let mut start = 0;
        for (bucket, share) in step.visits() {
            let (head, tail) = (first_row(bucket.source)?, first_row(bucket.target)?);
            let end = start + share.count(self.count(bucket)) as usize;
            for triple in &mut pool.triples[start..end] {
                triple[0] += head;
                triple[2] += tail;
            }
            start = end;
        }
        Ok(())
    }

    fn index(&self, bucket: Bucket) -> Option<usize> {
        let partitions = self.header.source.partitioning.partitions();
        let there = bucket.source < partitions && bucket.target < partitions;
        there.then(|| bucket.source * partitions + bucket.target)
    }

    fn reserve(&self, pool: &mut TriplePool, triples: u64) {
        let triples = triples as usize;
        // Reserve the exact size: a growing vector may take twice the planned memory.
        if pool.triples.capacity() < triples {
            *pool = TriplePool::default();
        }
        pool.triples.resize(triples, [0; 3]);
        pool.weights.resize(if self.header.weighted { triples } else { 0 }, 0.0);
    }

    /// Reads parts of buckets, each to its place in `pool`.
    fn read_parts(&mut self, mut parts: Vec<Part>, pool: &mut TriplePool) -> Result<()> {
        parts.retain(|part| part.share.count(self.entries[part.index].count) > 0);
        if let Some(all) = self.all.take() {
            for part in &parts {
                self.take(part, &all, self.entries[part.index].start as usize, pool);
            }
            self.all = Some(all);
            return Ok(());
        }
        // Buckets that are adjacent in the file are read together.
        parts.sort_unstable_by_key(|part| part.index);
        let mut whole = std::mem::take(&mut self.whole);
        let mut rest = parts.as_slice();
        while !rest.is_empty() {
            let (mut wanted, mut triples) = (Vec::new(), 0);
            for part in rest {
                let count = self.entries[part.index].count;
                if !wanted.is_empty() && triples + count > READ_TOGETHER {
                    break;
                }
                wanted.push((part.index, triples as usize));
                triples += count;
            }
            self.reserve(&mut whole, triples);
            self.read_whole(&wanted, &mut whole)?;
            let (now, later) = rest.split_at(wanted.len());
            for (part, &(_, from)) in now.iter().zip(&wanted) {
                self.take(part, &whole, from, pool);
            }
            rest = later;
        }
        self.whole = whole;
        Ok(())
    }

    /// Copies a part of a bucket whose triples begin at `from` in `there`.
    fn take(&self, part: &Part, there: &TriplePool, from: usize, pool: &mut TriplePool) {
        let places = part.share.places(self.entries[part.index].count);
        for (to, place) in (part.start..).zip(places) {
            let place = from + place as usize;
            pool.triples[to] = there.triples[place];
            if self.header.weighted {
                pool.weights[to] = there.weights[place];
            }
        }
    }

    /// Reads whole buckets in stored form, each to its place in `pool`. Small reads of several
    /// buckets wait for the device together.
    fn read_whole(&mut self, wanted: &[(usize, usize)], pool: &mut TriplePool) -> Result<()> {
        if let Some(all) = &self.all {
            for &(index, start) in wanted {
                let Entry { start: from, count, .. } = self.entries[index];
                let (from, count) = (from as usize, count as usize);
                let range = start..start + count;
                pool.triples[range.clone()].copy_from_slice(&all.triples[from..from + count]);
                if self.header.weighted {
                    pool.weights[range].copy_from_slice(&all.weights[from..from + count]);
                }
            }
            return Ok(());
        }
        let Places { triples, weights, weighted, .. } = self.header.places();
        self.read_column(wanted, triples, &mut pool.triples)?;
        if weighted {
            self.read_column(wanted, weights, &mut pool.weights)?;
        }
        wanted.iter().try_for_each(|&(index, start)| self.check(index, start, pool))
    }

    /// Reads the bytes of buckets in the section of the file that begins at `base`.
    fn read_column<T: NoUninit + AnyBitPattern>(
        &mut self,
        wanted: &[(usize, usize)],
        base: u64,
        into: &mut [T],
    ) -> Result<()> {
        let width = size_of::<T>() as u64;
        // Ranges of the file, and the destinations of their bytes. Buckets that are adjacent in
        // both become one range.
        let mut ranges: Vec<(Range<u64>, u64)> = Vec::new();
        for &(index, start) in wanted {
            let Entry { start: from, count, .. } = self.entries[index];
            let (first, to) = (base + width * from, width * start as u64);
            match ranges.last_mut() {
                Some((range, place))
                    if range.end == first && *place + (first - range.start) == to =>
                {
                    range.end += width * count;
                }
                _ => ranges.push((first..first + width * count, to)),
            }
        }
        let (cost, most) = (CostModel::default(), self.engine.max_read());
        let (mut reads, mut places) = (Vec::new(), Vec::new());
        for (range, to) in ranges {
            let first = range.start;
            for read in plan_range(range, &cost, most) {
                places.push((to + read.offset - first) as usize);
                reads.push(read);
            }
        }
        let into: &mut [u8] = bytemuck::cast_slice_mut(into);
        self.engine.read(self.file, &reads, &mut |number, bytes| {
            into[places[number]..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        })?;
        Ok(())
    }

    /// Compares a bucket's triples, at `start` in `pool`, with its checksum.
    fn check(&self, index: usize, start: usize, pool: &TriplePool) -> Result<()> {
        let entry = self.entries[index];
        let range = start..start + entry.count as usize;
        let triples = pool.triples[range.clone()].iter();
        let sum = if self.header.weighted {
            let with_weights = triples.zip(&pool.weights[range]);
            with_weights.fold(0, |sum, (&triple, &weight)| mix(sum, triple, Some(weight)))
        } else {
            triples.fold(0, |sum, &triple| mix(sum, triple, None))
        };
        if sum == entry.sum {
            return Ok(());
        }
        let partitions = self.header.source.partitioning.partitions();
        let text = format!(
            "buckets `{}`: bucket ({}, {}) at byte {}: found {sum:016x}, expected {:016x}",
            self.path.display(),
            index / partitions,
            index % partitions,
            self.header.places().triples + 12 * entry.start,
            entry.sum
        );
        Err(Error::corrupt(text).hint(DAMAGED))
    }
}

/// Memory of triples in a pool.
pub(crate) fn pool_bytes(triples: u64, weighted: bool) -> Bytes {
    Bytes(triples * if weighted { 16 } else { 12 })
}
